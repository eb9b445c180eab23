"""The AIStore cluster of a source, from the spec and the environment, and the object in it that a URL names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from wdspec.base.errors import UrlError, UsageError
from wdspec.base.files import expand_home
from wdspec.spec.language.locations import Etl, read_endpoint, read_schemes
from wdspec.spec.language.values import read_variable
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import AIS_PROVIDERS, scheme_of

_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_NAMESPACE = re.compile(r"@[^/@#]+(?:#[^/@#]+)?|#[^/@#]+")
_SLASHES = re.compile(r"/{2,}")


class AisObject(NamedTuple):
    """An object of a bucket, as AIStore names it; `name` is empty for the bucket itself."""

    provider: str
    """The backend of the bucket: `gcp`, `aws`, `azure`, `oci`, or `ais` for the cluster itself."""
    bucket: str
    name: str
    namespace: str | None = None

    @property
    def query(self) -> str:
        """The query that identifies the bucket. It always has the provider, which otherwise defaults to `ais`."""
        query = f"provider={self.provider}"
        return query if self.namespace is None else f"{query}&namespace={quote(self.namespace, safe='')}"

    @property
    def quoted_name(self) -> str:
        """The name as it is written in the path of a request."""
        return quote(self.name, safe="/", errors="surrogateescape")


def ais_object(url: str, namespace: str | None = None) -> AisObject:
    """The object of `gs://bucket/a/b.tar`, `ais://@cluster/bucket/b.tar` or `gs://#name/bucket/b.tar`.

    The rest of the URL is a literal name: `%20` in it is not a space, and `?` starts no query. Repeated slashes count
    as one, as in AIStore.

    Args:
        namespace: of a URL without one.

    Raises:
        UrlError: no bucket, an impossible name of a bucket, or a segment `.` or `..`.
    """
    first, _, rest = url.partition("://")[2].partition("/")
    if first[:1] in ("@", "#"):
        if not _NAMESPACE.fullmatch(first):
            message = f"`{first}` is not a namespace: write `@cluster`, `@cluster#name` or `#name`"
            raise UrlError(message, url=url)
        namespace = first
        first, _, rest = rest.partition("/")
    if not _BUCKET.fullmatch(first):
        seen = f"`{first}` cannot be the name of a bucket" if first else "no bucket"
        raise UrlError(f"{seen}; AIStore's have letters, digits, `.`, `_` and `-`: gs://bucket/name", url=url)
    name = _SLASHES.sub("/", rest).removeprefix("/")
    if any(segment in (".", "..") for segment in name.split("/")):
        raise UrlError("AIStore has no `.` or `..` in the names of objects; write the name out", url=url)
    return AisObject(AIS_PROVIDERS[scheme_of(url)], first, name, namespace)


NO_LIMIT = 86_400.0
"""Seconds used for a timeout of 0, which means no limit in AIStore's own tools."""
_TRUE = frozenset({"1", "t", "true", "y", "yes", "on"})


@dataclass(frozen=True)
class AisVariables:
    """The environment variables of AIStore, under AIStore's own names."""

    endpoints: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    client_ca: str | None = None
    client_crt: str | None = None
    client_key: str | None = None
    skip_verify_crt: bool = False
    connect_timeout: float | None = None
    read_timeout: float | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> AisVariables:
        """Read them. Raises UsageError for an invalid one."""

        def said(name: str) -> str | None:
            return environ.get(name, "").strip() or None

        def path(name: str) -> str | None:
            value = said(name)
            return value and os.path.abspath(os.path.expanduser(value))

        skip = said("AIS_SKIP_VERIFY_CRT") or said("AIS_SKIP_VERIFY") or ""
        return cls(
            endpoints=tuple(
                read_variable("AIS_ENDPOINT", read_endpoint, each)
                for each in (said("AIS_ENDPOINT") or "").split(",")
                if each.strip()
            ),
            schemes=read_variable("USE_AIS_FOR", read_schemes, value)
            if (value := said("USE_AIS_FOR"))
            else (),
            token=said("AIS_AUTHN_TOKEN"),
            token_file=path("AIS_AUTHN_TOKEN_FILE"),
            client_ca=path("AIS_CLIENT_CA"),
            client_crt=path("AIS_CRT"),
            client_key=path("AIS_CRT_KEY"),
            skip_verify_crt=skip.lower() in _TRUE,
            connect_timeout=_seconds("AIS_CONNECT_TIMEOUT", said("AIS_CONNECT_TIMEOUT")),
            read_timeout=_seconds("AIS_READ_TIMEOUT", said("AIS_READ_TIMEOUT")),
        )


@dataclass(frozen=True)
class AisCluster:
    """A cluster, and how to ask it for the shards of one source. A description only; pickles."""

    endpoints: tuple[str, ...]
    """URLs of equivalent gateways, without a final `/`."""
    schemes: frozenset[str] = frozenset({"ais"})
    """URL schemes that it serves."""
    token: str | None = field(default=None, repr=False)
    """The token itself, used instead of a file."""
    token_file: str | None = None
    """The file with the token."""
    token_named: bool = False
    """Whether the user named that file, so that it must exist."""
    client_ca: str | None = None
    client_crt: str | None = None
    client_key: str | None = None
    skip_verify_crt: bool = False
    connect_timeout: float = 10.0
    """Seconds."""
    read_timeout: float = 300.0
    """Seconds."""
    verifies: bool = True
    """Whether checksums are compared."""
    etl: Etl | None = None
    latest: bool = False
    prefetch: int = 0
    """How many shards ahead the cluster is asked to fetch from its remote buckets."""
    namespace: str | None = None
    """Of URLs without one."""

    @classmethod
    def of(
        cls, variables: AisVariables, home: str, spec: Spec | None = None, source: Source | None = None
    ) -> AisCluster | None:
        """The cluster of a source of a spec, or without them that of the environment; None if there is none.

        Each setting comes from the source, or else the top level, or else the environment, or else its default.

        Args:
            home: the home directory, for `~`.

        Raises:
            UsageError: a cluster is needed and has no address; or a client certificate has no key.
        """
        said: dict[str, Any] = {}
        is_off = False
        for holder in (spec, source):
            if holder is not None and "aistore" in holder.model_fields_set:
                own = holder.aistore
                is_off = own is None
                said = (
                    {} if own is None else said | {name: getattr(own, name) for name in own.model_fields_set}
                )
        if is_off:
            return None
        endpoints = said.get("endpoint") or variables.endpoints
        schemes = said.get("use_for") or variables.schemes
        if not endpoints:
            if said or schemes:
                raise UsageError(_nowhere(variables, said))
            return None
        files = ("token_file", "client_ca", "client_crt", "client_key")
        own_file, ca, own_crt, own_key = (expand_home(said.get(name) or "", home) for name in files)
        crt, key = own_crt or variables.client_crt, own_key or variables.client_key
        if (crt is None) != (key is None):
            raise UsageError(
                "AIStore's client certificate and its key go together: set `client_crt` and `client_key` of "
                "`aistore:`, or AIS_CRT and AIS_CRT_KEY"
            )
        return cls(
            endpoints=endpoints,
            schemes=frozenset({"ais", *schemes}),
            token=None if own_file else variables.token,
            token_file=own_file or variables.token_file or f"{home}/.config/ais/cli/auth.token",
            token_named=bool(own_file or variables.token_file),
            client_ca=ca or variables.client_ca,
            client_crt=crt,
            client_key=key,
            skip_verify_crt=said.get("skip_verify_crt", variables.skip_verify_crt),
            connect_timeout=_first(said.get("connect_timeout"), variables.connect_timeout, 10.0),
            read_timeout=_first(said.get("read_timeout"), variables.read_timeout, 300.0),
            verifies=said.get("checksum") != "ignore",
            etl=said.get("etl"),
            latest=said.get("latest", False),
            prefetch=said.get("prefetch", 0),
            namespace=said.get("namespace"),
        )

    @property
    def variant(self) -> str:
        """The query of the ETL, which changes the bytes of an object; "" without an ETL."""
        etl = self.etl
        if etl is None:
            return ""
        options = [("etl_name", etl.name), ("etl_args", etl.args), ("etl_pipeline", ",".join(etl.pipeline))]
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in options if value)

    def object(self, url: str) -> AisObject:
        """The bucket and object that a URL names. Raises UrlError for a name that AIStore cannot have."""
        return ais_object(url, self.namespace)

    def target(self, url: str) -> str:
        """The path and query of a request for the object of a URL. Raises UrlError as `object`."""
        found = self.object(url)
        query = [found.query, self.variant, "latest-ver=true" if self.latest else ""]
        return f"/v1/objects/{found.bucket}/{found.quoted_name}?{'&'.join(filter(None, query))}"


def _nowhere(variables: AisVariables, said: Mapping[str, Any]) -> str:
    where = "the address of the cluster, such as http://host:51080"
    if variables.schemes and not said:
        schemes = ":".join(variables.schemes)
        return (
            f"USE_AIS_FOR={schemes} is set, but AIS_ENDPOINT is not; set it to {where}, or unset USE_AIS_FOR"
        )
    return (
        f"`aistore:` has no `endpoint`, and AIS_ENDPOINT is not set; set one of them to {where}, or switch it off: "
        "`aistore: false`"
    )


def _first(*values: float | None) -> float:
    found = next(value for value in values if value is not None)
    return found or NO_LIMIT


def _seconds(name: str, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < NO_LIMIT:
        raise UsageError(
            f"{name}={value} is not a number of seconds; set for example {name}=20, or 0 for no limit"
        )
    return seconds
