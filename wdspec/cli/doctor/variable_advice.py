"""The environment variables that wdspec looks at, as they are set, and names that only look like one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wdspec.base.errors import WdspecError, nearest
from wdspec.base.redaction import redacted_urls
from wdspec.storage.environment import Environment

MEANINGS = {
    "WDS_REWRITE": "rewrite rules, before those of specs",
    "GOPEN_REWRITE": "the same, where WDS_REWRITE is unset",
    "WDS_SECURE": "forbids programs, user code and pickle",
    "WDS_CACHE": "folder that keeps copies of remote shards",
    "WDS_CACHE_SIZE": "how large it may grow",
    "WDS_SEED": "seed of `WebDataset(…)`",
    "WDSPEC_ENV": "environment of specs",
    "AIS_ENDPOINT": "gateway of AIStore",
    "USE_AIS_FOR": "schemes that AIStore serves",
    "AIS_AUTHN_TOKEN": "login of AIStore",
    "AIS_AUTHN_TOKEN_FILE": "file with the login of AIStore",
    "AIS_CLIENT_CA": "certificates that AIStore is checked by",
    "AIS_CRT": "client certificate for AIStore",
    "AIS_CRT_KEY": "its key",
    "AIS_SKIP_VERIFY_CRT": "leaves AIStore's certificate unchecked",
    "AIS_CONNECT_TIMEOUT": "seconds for a connection to AIStore",
    "AIS_READ_TIMEOUT": "seconds for an answer of AIStore",
    "HTTP_PROXY": "proxy for http://",
    "HTTPS_PROXY": "proxy for https://",
    "ALL_PROXY": "proxy for both",
    "NO_PROXY": "hosts that are asked directly",
    "SSL_CERT_FILE": "certificates to trust",
    "SSL_CERT_DIR": "folder of certificates to trust",
    "REQUESTS_CA_BUNDLE": "the same as SSL_CERT_FILE, where that is unset",
    "CURL_CA_BUNDLE": "the same, after that",
    "NETRC": "file with logins of hosts",
    "RANK": "rank of this process",
    "WORLD_SIZE": "processes of the job",
    "SLURM_PROCID": "rank of this process, where RANK is unset",
    "SLURM_NTASKS": "processes of the job, likewise",
}
_SECRET = frozenset({"AIS_AUTHN_TOKEN"})
_OURS = ("WDS", "AIS_", "USE_AIS")


class Variable(NamedTuple):
    """A variable that is set."""

    name: str
    value: str
    """Without secrets."""
    meaning: str
    advice: str = ""
    is_wrong: bool = False
    """Whether nothing can be read with it."""


def set_variables(environ: Mapping[str, str] | None = None) -> Iterator[Variable]:
    """Those that are set, in the order of `MEANINGS`; then names that look like them, and what cannot be understood."""
    environ = os.environ if environ is None else environ
    for name, meaning in MEANINGS.items():
        for spelling in dict.fromkeys((name, name.lower() if name.endswith("_PROXY") else name)):
            if spelling in environ:
                value = "(set)" if name in _SECRET else redacted_urls(environ[spelling])
                yield Variable(spelling, value, meaning, _advice(name, environ))
    for name in sorted(environ):
        if name.startswith(_OURS) and name not in MEANINGS:
            near = nearest(name, map(str.lower, MEANINGS))
            if near:
                yield Variable(name, "(set)", "nothing here looks at it", f"did you mean {near.upper()}?")
    try:
        Environment.read(environ)
    except WdspecError as error:
        text = error.message
        # The longest: WDS_CACHE_SIZE begins as WDS_CACHE does.
        name = max((name for name in MEANINGS if text.startswith(name)), key=len, default="variables")
        yield Variable(name, "(wrong)", "cannot be understood", text.removeprefix(f"{name}: "), True)


def _advice(name: str, environ: Mapping[str, str]) -> str:
    if name == "GOPEN_REWRITE" and "WDS_REWRITE" in environ:
        return "it has no effect, since WDS_REWRITE is set"
    if name == "AIS_ENDPOINT" and not environ.get("USE_AIS_FOR", "").strip():
        return "only `ais://` goes there; USE_AIS_FOR names other schemes"
    if name == "USE_AIS_FOR" and not environ.get("AIS_ENDPOINT", "").strip():
        return "AIS_ENDPOINT is not set, so specs have to name the cluster"
    return ""
