"""The environment variables that decide where bytes come from, and how a URL is resolved with them.

Variables are read once, in the parent. Resolution is pure: it opens nothing, so that all workers agree with the parent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

from wdspec.base.errors import UrlError, warn_user
from wdspec.base.files import expand_home
from wdspec.base.redaction import redacted_urls
from wdspec.base.user_code import is_security_enforced, secure_mode
from wdspec.cache.names import Copies
from wdspec.spec.language.values import read_size, read_variable
from wdspec.stores.ais_cluster import AisCluster, AisVariables
from wdspec.stores.settings import HTTP_VARIABLES, HttpSettings
from wdspec.stores.store import Store
from wdspec.stores.table import user_stores
from wdspec.urls.rewrite import Rule, parse_rules, rewrite
from wdspec.urls.urls import AIS_PREFIX, ShardUrl, is_command, path_of_file_url, scheme_of, tidy_path

VARIABLES = {
    "WDS_REWRITE": "rewrite rules, applied before those of specs",
    "GOPEN_REWRITE": "the same, if WDS_REWRITE is not set",
    "WDS_SECURE": "forbids programs, user code and pickle",
    "WDS_CACHE": "folder for cached copies of remote shards",
    "WDS_CACHE_SIZE": "size limit of this folder",
    "WDS_VERBOSE_CACHE": "prints a line for each copy that is made",
    "WDS_SEED": "seed of `WebDataset(…)`",
    "WDSPEC_ENV": "environment of specs",
    "AIS_ENDPOINT": "gateway of AIStore",
    "USE_AIS_FOR": "schemes that AIStore serves",
    "AIS_AUTHN_TOKEN": "token for AIStore",
    "AIS_AUTHN_TOKEN_FILE": "file with the token for AIStore",
    "AIS_CLIENT_CA": "certificates to verify AIStore with",
    "AIS_CRT": "client certificate for AIStore",
    "AIS_CRT_KEY": "key of the client certificate",
    "AIS_SKIP_VERIFY_CRT": "skips verification of AIStore's certificate",
    "AIS_CONNECT_TIMEOUT": "timeout in seconds for connecting to AIStore",
    "AIS_READ_TIMEOUT": "timeout in seconds for a response of AIStore",
    "HTTP_PROXY": "proxy for http://",
    "HTTPS_PROXY": "proxy for https://",
    "ALL_PROXY": "proxy for both",
    "NO_PROXY": "hosts that are accessed without a proxy",
    "SSL_CERT_FILE": "certificates to trust",
    "SSL_CERT_DIR": "folder of certificates to trust",
    "REQUESTS_CA_BUNDLE": "the same as SSL_CERT_FILE, if that is not set",
    "CURL_CA_BUNDLE": "the same, if neither is set",
    "NETRC": "file with logins of hosts",
    "WDS_CLIENT_CERT": "client certificate for https://",
    "WDS_CLIENT_KEY": "its key, if it is in another file",
    "RAY_ADDRESS": "Ray cluster of `loader: {kind: ray}`",
    "RANK": "rank of this process",
    "WORLD_SIZE": "number of processes of the job",
    "SLURM_PROCID": "rank of this process, if RANK is not set",
    "SLURM_NTASKS": "number of processes of the job, if WORLD_SIZE is not set",
}
"""The environment variables that wdspec reads, and what they mean."""
_OURS = ("WDS", "AIS_", "USE_AIS")
_SECRET = frozenset({"AIS_AUTHN_TOKEN"})


def show_variable(name: str, value: str) -> str:
    """Return the value of an environment variable without secrets."""
    return "(set)" if name in _SECRET else redacted_urls(value)


def describe_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are set and that wdspec reads, without secrets."""
    return {name: show_variable(name, environ[name]) for name in VARIABLES if name in environ}


def misspelled_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that resemble one of `VARIABLES`, and that one. Others are for specs: `WDS_a` is `${a}`."""
    ours = [name for name in VARIABLES if name.startswith(_OURS)]
    others = [name for name in sorted(environ) if name.startswith(_OURS) and name not in VARIABLES]
    found = {name: get_close_matches(name, ours, n=1, cutoff=0.85) for name in others}
    return {name: near[0] for name, near in found.items() if near}


def warn_of_variables(environ: Mapping[str, str]) -> None:
    """Warn about the `misspelled_variables`, which have no effect, once in a process."""
    for name, near in misspelled_variables(environ).items():
        _warn_of(name, near)


@cache
def _warn_of(name: str, near: str) -> None:
    warn_user(f"the environment variable {name} is not a setting of wdspec; did you mean {near}?")


class ResolutionStep(NamedTuple):
    """One step of resolving a URL: its name, the result, and the reason."""

    stage: str
    url: str
    why: str


class Resolution(NamedTuple):
    """Where the bytes of a shard come from."""

    url: ShardUrl
    location: str
    """An absolute path for a local file, else a URL for the store of its scheme."""
    rewritten: str
    """The URL after rewriting."""
    steps: tuple[ResolutionStep, ...]
    """What happened to the URL, for `wdspec resolve`."""
    rule: Rule | None = None
    """The rule that rewrote the URL."""
    copies: Copies | None = None
    """Where a cache may have the bytes."""


@dataclass(frozen=True)
class Environment:
    """The settings of the process: ``WDS_REWRITE``, ``WDS_SECURE``, ``WDS_CACHE``, AIStore, HTTP, and added stores.

    It travels with the plan, so that all workers and ranks agree.
    """

    directory: str = "/"
    """Working directory, the base of relative results of the variable's rules."""
    home: str = "/"
    """The home directory, for `~`."""
    rules: tuple[Rule, ...] = ()
    """The rules of ``WDS_REWRITE``, or of ``GOPEN_REWRITE`` if that is not set."""
    secure: bool = False
    """``WDS_SECURE``: no `pipe:`, and no stores of packages."""
    ais: AisVariables = field(default_factory=AisVariables)
    cache_dir: str | None = None
    """``WDS_CACHE``, as written."""
    cache_size: int | None = None
    """``WDS_CACHE_SIZE``, in bytes."""
    verbose_cache: bool = False
    """``WDS_VERBOSE_CACHE``: print a line for each copy that is made."""
    http: HttpSettings = field(default_factory=HttpSettings)
    users: Mapping[str, Store] = field(default_factory=dict)
    """Stores that users have added, by scheme."""

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> Environment:
        """Read the variables, from ``os.environ`` by default.

        Raises:
            UrlError: an invalid rule.
            UsageError: an invalid variable of AIStore, or a ``WDS_CACHE_SIZE`` that is not a size.
        """
        environ = os.environ if environ is None else environ
        if any(name.startswith(_OURS) for name in environ):
            warn_of_variables(environ)
        directory, home = os.getcwd(), os.path.expanduser("~")
        variable = "WDS_REWRITE" if "WDS_REWRITE" in environ else "GOPEN_REWRITE"
        rules, size = environ.get(variable, ""), environ.get("WDS_CACHE_SIZE", "").strip()
        secure = secure_mode(environ)
        return cls(
            directory=directory,
            home=home,
            rules=parse_rules(rules, variable, base=directory) if rules else (),
            secure=secure,
            ais=AisVariables.read(environ) if any("AIS_" in name for name in environ) else AisVariables(),
            cache_dir=environ.get("WDS_CACHE") or None,
            cache_size=_cache_size(size) if size else None,
            verbose_cache=environ.get("WDS_VERBOSE_CACHE", "") not in ("", "0"),
            http=HttpSettings.read(environ)
            if HTTP_VARIABLES & environ.keys()
            else HttpSettings(netrc=f"{home}/.netrc"),
            users=user_stores(secure),
        )

    def locate(self, url: ShardUrl, rules: tuple[Rule, ...], cluster: AisCluster | None) -> Resolution:
        """Resolve a URL to the location of its bytes.

        Args:
            rules: all that apply, in order; the first that changes the URL is applied once.
            cluster: serves the schemes that it names.

        Raises:
            UrlError: an empty result, a NUL character, a `file:` URL of another host, a `pipe:` that WDS_SECURE
                forbids, a name that AIStore cannot have, an ETL that cannot take effect.
        """
        steps: list[ResolutionStep] = []
        text, rule = rewrite(url.text, rules)
        base = url.base
        if rule is not None:
            steps.append(ResolutionStep("rewrite", text, str(rule)))
            base = rule.base or base
        scheme = scheme_of(text)
        if not text or "\0" in text or (scheme == "file" and "%00" in text):
            seen = "a NUL character in a URL" if text else "an empty URL"
            raise UrlError(f"{seen}{f' after {rule}' if rule else ''}; no file has such a name", url=url.text)
        if is_command(text) and (self.secure or is_security_enforced()):
            raise UrlError(
                f"`{text}` runs a program, and WDS_SECURE forbids `pipe:`; unset it if you trust "
                "the spec and the environment",
                url=url.text,
            )
        if cluster is not None and scheme in cluster.schemes:
            why = f"AIStore at {cluster.endpoints[0]} serves {scheme}://"
            step = ResolutionStep("ais", cluster.endpoints[0] + cluster.target(text), why)
            return Resolution(url, AIS_PREFIX + text, text, (*steps, step), rule)
        if cluster is not None and cluster.etl is not None:
            raise UrlError(
                f"the ETL `{cluster.etl.name}` runs in AIStore, which does not serve this; add the scheme to "
                "`use_for`, or switch it off where the bytes are transformed already: `aistore: false`",
                url=url.text,
                location=text,
            )
        if (scheme or "file") == "file" and text != "-":
            location, why = self._path(text, scheme, base)
            if location != text:
                steps.append(ResolutionStep("path", location, why))
            return Resolution(url, location, text, tuple(steps), rule)
        return Resolution(url, text, text, tuple(steps), rule)

    def _path(self, text: str, scheme: str, base: str) -> tuple[str, str]:
        """The absolute path of a local file, and why it differs.

        `..` stays: after a link it may lead elsewhere.
        """
        path = path_of_file_url(text) if scheme else text
        why = "the path of the `file:` URL"
        if (expanded := expand_home(path, self.home)) != path:
            path, why = expanded, "`~` is the home directory"
        elif path.startswith("~"):
            path, why = os.path.expanduser(path), "`~name` is the home directory of that user"
        if not path.startswith("/"):
            path, why = os.path.join(self.directory, base, path), f"relative to {base}"
        elif path == text:
            why = "without empty segments"
        return tidy_path(path), why


def _cache_size(text: str) -> int:
    # `1e12`, as webdataset's users write it
    if re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)[eE]\+?[0-9]{1,2}", text):
        return int(float(text))
    return int(read_variable("WDS_CACHE_SIZE", read_size, text))
