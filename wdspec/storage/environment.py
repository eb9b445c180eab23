"""The environment variables that decide where bytes come from, read once, in the parent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from wdspec.base.user_code import secure_mode
from wdspec.spec.language.values import read_size, read_variable
from wdspec.stores.ais_cluster import AisVariables
from wdspec.stores.settings import HTTP_VARIABLES, HttpSettings
from wdspec.urls.rewrite import Rule, parse_rules


@dataclass(frozen=True)
class Environment:
    """What ``WDS_REWRITE``, ``WDS_SECURE``, ``WDS_CACHE``, the variables of AIStore and HTTP, and the process
    say about URLs.

    It travels with the plan, so that all workers and ranks agree.
    """

    directory: str = "/"
    """Working directory: where relative results of the variable's rules start."""
    home: str = "/"
    """What `~` stands for."""
    rules: tuple[Rule, ...] = ()
    """Of ``WDS_REWRITE``, or of ``GOPEN_REWRITE`` where that is unset."""
    secure: bool = False
    """``WDS_SECURE``: no `pipe:` from anywhere, and no stores of packages."""
    ais: AisVariables = field(default_factory=AisVariables)
    cache_dir: str | None = None
    """``WDS_CACHE``, as written."""
    cache_size: int | None = None
    """``WDS_CACHE_SIZE``, in bytes."""
    http: HttpSettings = field(default_factory=HttpSettings)

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> Environment:
        """Reads the variables, from ``os.environ`` by default.

        Raises:
            UrlError: a rule that cannot be understood.
            UsageError: a variable of AIStore that cannot be understood, a ``WDS_CACHE_SIZE`` that is no size.
        """
        environ = os.environ if environ is None else environ
        directory, home = os.getcwd(), os.path.expanduser("~")
        variable = "WDS_REWRITE" if "WDS_REWRITE" in environ else "GOPEN_REWRITE"
        rules, size = environ.get(variable, ""), environ.get("WDS_CACHE_SIZE", "").strip()
        return cls(
            directory=directory,
            home=home,
            rules=parse_rules(rules, variable, base=directory) if rules else (),
            secure=secure_mode(environ),
            ais=AisVariables.read(environ) if any("AIS_" in name for name in environ) else AisVariables(),
            cache_dir=environ.get("WDS_CACHE") or None,
            cache_size=_cache_size(size) if size else None,
            http=HttpSettings.read(environ)
            if HTTP_VARIABLES & environ.keys()
            else HttpSettings(netrc=f"{home}/.netrc"),
        )


def _cache_size(text: str) -> int:
    # `1e12`, as webdataset's users write it
    if re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)[eE]\+?[0-9]{1,2}", text):
        return int(float(text))
    return int(read_variable("WDS_CACHE_SIZE", read_size, text))
