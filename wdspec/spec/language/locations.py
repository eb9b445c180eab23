"""Where bytes come from and go to: rewrite rules, object stores, the cache, outputs, and AIStore clusters."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language import values
from wdspec.spec.language.effects import AffectsNeither, Key
from wdspec.spec.language.samples import Regex
from wdspec.spec.problems import describe, quote
from wdspec.urls.urls import AIS_PROVIDERS


class RewriteRule(values.Model):
    """A regex that matches the start of a URL, and a replacement."""

    pattern: AffectsNeither[Regex] = Field(
        alias="from", description="A regex, matched at the start of the URL."
    )
    replacement: AffectsNeither[Annotated[str, Field(strict=True), values.FilePath(is_template=True)]] = (
        Field(alias="to", description=r"What replaces the match; `\1` is the first group.")
    )
    origin: str = Field("", exclude=True)
    """Where the rule was written, for explanations: ``spec.yaml:12``."""
    overlay: bool = Field(False, exclude=True)
    """Whether it is from an environment or an override: such rules come before those of the spec."""


_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Argument = Annotated[
    str, AfterValidator(lambda name: (_ARGUMENT.fullmatch(name) and name) or _no_argument(name))
]
"""The name of an argument of a class."""


def _no_argument(name: str) -> NoReturn:
    hint = "write the name of an argument of the file system's class, such as `client_kwargs`"
    values.refuse("E202", f"{quote(name)} cannot be the name of an argument", hint)


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc or parts.query:
        hint = "write for example `https://minio.example.org:9000`, without a login"
        values.refuse("E202", "the endpoint of a store must be an http or https URL", hint)
    return text.rstrip("/")


class ObjectStoreOptions(values.Model):
    """How to access an object store that fsspec reads. Secrets are never written here."""

    endpoint: AffectsNeither[Annotated[values.Text, AfterValidator(_endpoint)] | None] = Field(
        None, description="The URL of the server: `s3`, `gs` and `hf`."
    )
    profile: AffectsNeither[values.Text | None] = Field(
        None, description="The profile with the credentials, in the user's settings: `s3`."
    )
    region: AffectsNeither[values.Text | None] = Field(None, description="The region of its buckets: `s3`.")
    anonymous: AffectsNeither[values.Boolean] = Field(
        False, description="Do not log in, for public data: `s3`, `gs`, `az` and `hf`."
    )
    requester_pays: AffectsNeither[values.Boolean] = Field(
        False, description="The reader pays for requests: `s3` and `gs`."
    )
    options: AffectsNeither[dict[Argument, Any]] = Field(
        {}, description="Other arguments of fsspec's file system for the scheme, by name."
    )
    env: AffectsNeither[dict[Argument, values.Text]] = Field(
        {},
        description="Secret arguments: for each one, the name of the environment variable that contains it, such as "
        "`{key: LAB_KEY, secret: LAB_SECRET}`.",
    )
    files: AffectsNeither[dict[Argument, values.LocalPath]] = Field(
        {}, description="Secret arguments: for each one, the path of a file that contains only its value."
    )


def read_storage(value: Any) -> Any:
    """Read a map, or `false`."""
    if value is False:
        return None
    if not isinstance(value, (dict, ObjectStoreOptions)):
        values.refuse(
            "E202", f"expected a map or `false`, but this is {describe(value)}", "write `{endpoint: …}`"
        )
    if isinstance(value, dict):
        maps = [value.get(name) for name in ("options", "env", "files")]
        names = [name for each in maps if isinstance(each, dict) for name in each]
        for name in names:
            if names.count(name) > 1:
                values.refuse(
                    "E202",
                    f"the argument {quote(name)} is given twice",
                    "leave it in one of `options`, `env`, `files`",
                )
    return value


StorageOrNone = Annotated[ObjectStoreOptions | None, BeforeValidator(read_storage)]


def _local(directory: str) -> str:
    if "://" in directory:
        values.refuse(
            "E202", f"a cache must be a local directory, but this is {describe(directory)}", "write a path"
        )
    return directory


Verify = Literal["changed", "once", "always", "never"]


class CacheOptions(values.Model):
    """A local directory with copies of remote shards."""

    short: ClassVar[str] = "dir"

    dir: AffectsNeither[Annotated[values.Text, AfterValidator(_local), values.FilePath()]] = Field(
        description="The directory; it is created when needed. Copies that you put there are used too."
    )
    size: AffectsNeither[values.Size | None] = Field(
        None,
        description="Maximum total size of the copies that wdspec makes: a number of bytes, or text such as "
        "`500GB`. With 0, wdspec makes no copies.",
    )
    verify: AffectsNeither[Verify] = Field(
        "changed",
        description="When to compare a copy with the checksum that was computed while it was fetched: if its file was "
        "`changed` since, `once` in each process, `always` when it is opened, or `never`.",
    )


class OutputOptions(values.Model):
    """Where `wdspec process` writes: one shard for each shard that it reads."""

    short: ClassVar[str] = "dir"

    dir: AffectsNeither[values.PathOrUrl | None] = Field(
        None, description="A directory or its URL; shards keep their file names."
    )
    pattern: AffectsNeither[Regex | None] = Field(
        None,
        alias="from",
        description="A regex, matched at the start of a shard's URL as it is written in the spec.",
    )
    replacement: AffectsNeither[
        Annotated[str, Field(strict=True), values.FilePath(keeps_text=True)] | None
    ] = Field(None, alias="to", description=r"What replaces the match; `\1` is the first group.")
    base: str = Field("", exclude=True)
    """Absolute directory where relative paths start."""


def read_output(value: Any) -> Any:
    """Read `out/`, `{dir: out/}` or `{from: regex, to: replacement}`."""
    if isinstance(value, str):
        value = {"dir": value}
    if not isinstance(value, OutputOptions):
        given = {
            key for key in ("dir", "from", "to") if isinstance(value, dict) and value.get(key) is not None
        }
        if given not in ({"dir"}, {"from", "to"}):
            hint = "write `output: out/`, or `output: {from: 'in/(.*)', to: 'out/\\1'}`"
            values.refuse("E202", "an output must be a directory, or `from` and `to`", hint)
    return value


def read_cache(value: Any) -> Any:
    """Read a directory, a map, or `false`."""
    if value is False:
        return None
    if isinstance(value, str) and values.is_size(value):
        hint = f"write `cache: {{dir: /data/cache, size: {value}}}`"
        values.refuse("E202", f"a cache needs a directory, but this is only a size, {quote(value)}", hint)
    return {"dir": value} if isinstance(value, str) else value


CacheOrNone = Annotated[CacheOptions | None, BeforeValidator(read_cache)]


_ETL_NAME = re.compile(r"[a-z0-9-]{6,32}")
_NAMESPACE = re.compile(r"@[A-Za-z0-9_-]+(?:#[A-Za-z0-9_-]+)?|#[A-Za-z0-9_-]+")
_BETWEEN_SCHEMES = re.compile(r"[:,\s]+")


def read_endpoint(value: Any) -> str:
    """Read the URL of a gateway, without the `/` at its end; `http://` is added if it has no scheme."""
    text = values.read_text(value).strip()
    url = text if "://" in text else f"http://{text}"
    example = "write for example `http://aistore:51080`"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        values.refuse("E219", f"this is not the address of a gateway: {error}", example)
    if parts.username is not None or parts.password is not None:
        hint = "remove it; put a token into AIS_AUTHN_TOKEN, or into the file that `token_file` names"
        values.refuse("E219", "this address has a user name or password, which AIStore does not use", hint)
    blank = any(sign.isspace() for sign in text)
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or blank:
        values.refuse("E219", f"{quote(text)} is not an http or https address of a gateway", example)
    return url.rstrip("/")


def read_schemes(value: Any) -> tuple[str, ...]:
    """Read URL schemes: `[gs, s3]`, `gs:s3`, `gs, s3`, or `all`."""
    texts = [values.read_text(entry) for entry in values.read_list(value)]
    words = [word.removesuffix("//") for text in texts for word in _BETWEEN_SCHEMES.split(text.lower())]
    names = [word for word in words if word.strip("/")]
    if not names:
        values.refuse("E214", "expected URL schemes, but there are none", "write for example `[gs, s3]`")
    for name in names:
        if name in ("http", "https"):
            hint = "rewrite such URLs to `ais://…` or to the URL of the bucket"
            values.refuse("E219", f"AIStore does not serve {name}:// URLs", hint)
        if name not in AIS_PROVIDERS and name != "all":
            known = [*AIS_PROVIDERS, "all"]
            hint = did_you_mean(name, known) or f"it serves {', '.join(known)}"
            values.refuse("E219", f"AIStore does not serve {name[:30]}:// URLs", hint)
    return tuple(dict.fromkeys(AIS_PROVIDERS if "all" in names else names))


def read_etl_name(value: Any) -> str:
    """Read the name of an ETL in AIStore."""
    text = values.read_text(value)
    if not _ETL_NAME.fullmatch(text):
        hint = "in AIStore, names have 6 to 32 of the characters a-z, 0-9 and `-`; `ais etl show` lists them"
        values.refuse("E219", f"{quote(text)} cannot be the name of an ETL", hint)
    return str(text)


def read_etl_args(value: Any) -> str:
    """Read the arguments of an ETL: a text, or a map, which becomes compact JSON."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        values.refuse(
            "E202", f"expected text or a map, but this is {describe(value)}", "write `args: {size: 224}`"
        )
    import json  # most specs have no use for it

    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        values.refuse("E202", f"arguments of an ETL are sent as JSON, which is impossible for these: {error}")


def read_namespace(value: Any) -> str:
    """Read `@cluster`, `@cluster#name` or `#name`."""
    text = values.read_text(value)
    if not _NAMESPACE.fullmatch(text):
        hint = "write `@cluster`, `@cluster#name` or `#name`, in quotes"
        values.refuse("E219", f"{quote(text)} is not a namespace of AIStore", hint)
    return str(text)


_SCHEME = rf"({'|'.join([*AIS_PROVIDERS, 'all'])})(://?)?"
_SCHEMES_FORM = values.text_form(rf"[\s,:]*{_SCHEME}([\s,:]+{_SCHEME})*[\s,:]*")
_GATEWAY_FORM = values.text_form(
    r"\s*([hH][tT][tT][pP][sS]?://)?([^:/?#@\s]+|\[[0-9a-fA-F:.]+\])(:[0-9]+)?(/[^?#\s]*)?\s*"
)
_ETL_FORM = values.text_form(_ETL_NAME.pattern)
_TEXT_OR_MAP = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})
_Gateway = Annotated[str, BeforeValidator(read_endpoint)]
Gateways = Annotated[
    tuple[_Gateway, ...],
    Field(min_length=1),
    BeforeValidator(values.read_list),
    values.one_or_more(_GATEWAY_FORM, "http://aistore:51080"),
]
UrlSchemes = Annotated[
    tuple[str, ...], BeforeValidator(read_schemes), values.one_or_more(_SCHEMES_FORM, "gs", "all")
]
EtlName = Annotated[str, BeforeValidator(read_etl_name), WithJsonSchema(_ETL_FORM)]
EtlNames = Annotated[
    tuple[EtlName, ...], BeforeValidator(values.read_list), values.one_or_more(_ETL_FORM, "second-etl")
]
EtlArgs = Annotated[str, BeforeValidator(read_etl_args), _TEXT_OR_MAP]
Namespace = Annotated[str, BeforeValidator(read_namespace)]


class Etl(values.Model):
    """A transformation that runs in the cluster, from whole shards to whole shards."""

    name: Annotated[EtlName, Key("samples shard")] = Field(
        description="Its name in the cluster, where it must be running."
    )
    args: Annotated[EtlArgs, Key("samples shard")] = Field(
        "", description="Its arguments: text, or a map, which is sent as JSON."
    )
    pipeline: Annotated[EtlNames, Key("samples shard")] = Field(
        (), description="ETLs that run after it, in order."
    )
    deterministic: AffectsNeither[values.Boolean] = Field(
        False,
        description="Whether it always returns the same bytes. If so, a shard is read again from the start if the "
        "connection breaks in the middle. Otherwise, this raises an error.",
    )


def read_etl(value: Any) -> Any:
    """Read a name, a map, or `false`."""
    if value is False:
        return None
    return {"name": value} if isinstance(value, str) else value


class AIStore(values.Model):
    """An AIStore cluster that serves remote shards."""

    endpoint: AffectsNeither[Gateways] = Field(
        (), description="The URL of its gateway, or a list of URLs. By default AIS_ENDPOINT."
    )
    use_for: AffectsNeither[UrlSchemes] = Field(
        (),
        description="The URL schemes that it serves, besides `ais`: `[gs, s3]`, or `all` of them (`gs`, `s3`, `az`, "
        "`oc` and their other names). By default USE_AIS_FOR.",
    )
    token_file: AffectsNeither[values.LocalPath | None] = Field(
        None,
        description="A file with the token, written by `ais auth login`. By default AIS_AUTHN_TOKEN, or else the file "
        "AIS_AUTHN_TOKEN_FILE, or else ~/.config/ais/cli/auth.token if it exists.",
    )
    client_ca: AffectsNeither[values.LocalPath | None] = Field(
        None,
        description="A file with the certificates to trust. By default AIS_CLIENT_CA, or else those of the system.",
    )
    client_crt: AffectsNeither[values.LocalPath | None] = Field(
        None, description="A file with the certificate of the client. By default AIS_CRT."
    )
    client_key: AffectsNeither[values.LocalPath | None] = Field(
        None, description="A file with the key of that certificate. By default AIS_CRT_KEY."
    )
    skip_verify_crt: AffectsNeither[values.Boolean] = Field(
        False, description="Trust any certificate. By default AIS_SKIP_VERIFY_CRT."
    )
    connect_timeout: AffectsNeither[values.Duration] = Field(
        10.0,
        description="How long to wait for a connection: seconds, or text such as `10s`. By default "
        "AIS_CONNECT_TIMEOUT.",
    )
    read_timeout: AffectsNeither[values.Duration] = Field(
        300.0,
        description="How long to wait for the next bytes: seconds, or text such as `5m`. The cluster sends a shard "
        "only after it has fetched all of it. By default AIS_READ_TIMEOUT.",
    )
    checksum: AffectsNeither[Literal["verify", "ignore"]] = Field(
        "verify", description="Whether to verify AIStore's checksum when a shard is read to the end."
    )
    etl: Annotated[Etl | None, BeforeValidator(read_etl)] = Field(
        None, description="The ETL through which shards are read: its name, a map, or `false` for none."
    )
    latest: AffectsNeither[values.Boolean] = Field(
        False,
        description="Whether the cluster compares its copy with the object in the remote bucket at each read.",
    )
    prefetch: AffectsNeither[values.Prefetched] = Field(
        0,
        description="Number of shards that the cluster fetches ahead from the remote bucket, for each source of "
        "each slot. Each request covers half of them.",
    )
    namespace: AffectsNeither[Namespace | None] = Field(
        None, description="Namespace of the buckets: `'@cluster'`, `'@cluster#name'` or `'#name'`."
    )


def read_aistore(value: Any) -> Any:
    """Read a map, or `false`."""
    if value is False:
        return None
    if not isinstance(value, (dict, AIStore)):
        hint = "write `{endpoint: …, use_for: [gs]}`"
        values.refuse("E202", f"expected a map or `false`, but this is {describe(value)}", hint)
    return value


AIStoreOrNone = Annotated[AIStore | None, BeforeValidator(read_aistore)]
