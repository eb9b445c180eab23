"""The environment variables that decide where bytes come from, read once, in the parent."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from wdspec.urls.cluster import AisVariables
from wdspec.urls.rewrite import Rule, parse_rules


@dataclass(frozen=True)
class UrlEnvironment:
    """What ``WDS_REWRITE``, ``WDS_SECURE``, the variables of AIStore and the process say about URLs.

    It travels with the plan, so that all workers and ranks agree.
    """

    directory: str
    """Working directory: where relative results of the variable's rules start."""
    home: str
    """What `~` stands for."""
    rules: tuple[Rule, ...] = ()
    """Of ``WDS_REWRITE``, or of ``GOPEN_REWRITE`` where that is unset."""
    secure: bool = False
    """``WDS_SECURE``: no `pipe:` from anywhere."""
    ais: AisVariables = field(default_factory=AisVariables)

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> UrlEnvironment:
        """Reads the variables, from ``os.environ`` by default.

        Raises:
            UrlError: a rule that cannot be understood.
            UsageError: a variable of AIStore that cannot be understood.
        """
        environ = os.environ if environ is None else environ
        directory = os.getcwd()
        variable = "WDS_REWRITE" if "WDS_REWRITE" in environ else "GOPEN_REWRITE"
        if environ.get("WDS_CACHE"):
            warnings.warn(
                f"WDS_CACHE={environ['WDS_CACHE']} is set, but caching is not built yet: shards are read "
                "from where they are, each time; unset it to silence this warning",
                stacklevel=2,
            )
        return cls(
            directory=directory,
            home=os.path.expanduser("~"),
            rules=parse_rules(environ.get(variable, ""), variable, base=directory),
            secure=environ.get("WDS_SECURE", "").strip().lower() not in ("", "0", "false", "no", "off"),
            ais=AisVariables.read(environ),
        )
