"""The key `aistore`: which AIStore cluster serves which URLs, and how it is asked."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.effects import AffectsNeither, AffectsSamples
from wdspec.spec.language.values import (
    Boolean,
    Duration,
    Model,
    Prefetched,
    Text,
    one_or_more,
    read_list,
    read_text,
    refuse,
    text_form,
)
from wdspec.spec.problems import quoted, shown
from wdspec.urls.urls import AIS_PROVIDERS

_ETL_NAME = re.compile(r"[a-z0-9-]{6,32}")
_NAMESPACE = re.compile(r"@[A-Za-z0-9_-]+(?:#[A-Za-z0-9_-]+)?|#[A-Za-z0-9_-]+")
_BETWEEN_SCHEMES = re.compile(r"[:,\s]+")


def read_endpoint(value: Any) -> str:
    """The URL of a gateway, without the `/` at its end; `http://` where it has no scheme."""
    text = read_text(value).strip()
    url = text if "://" in text else f"http://{text}"
    example = "write for example `http://aistore:51080`"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        refuse("E219", f"this is no address of a gateway: {error}", example)
    if parts.username is not None or parts.password is not None:
        hint = "take it out; a token comes from AIS_AUTHN_TOKEN, or from the file that `token_file` names"
        refuse("E219", "this address holds a user name or password, which AIStore does not take", hint)
    blank = any(sign.isspace() for sign in text)
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or blank:
        refuse("E219", f"{quoted(text)} is no http or https address of a gateway", example)
    return url.rstrip("/")


def read_schemes(value: Any) -> tuple[str, ...]:
    """URL schemes: `[gs, s3]`, `gs:s3`, `gs, s3`, or `all`."""
    texts = [read_text(entry) for entry in read_list(value)]
    words = [word.removesuffix("//") for text in texts for word in _BETWEEN_SCHEMES.split(text.lower())]
    names = [word for word in words if word.strip("/")]
    if not names:
        refuse("E214", "expected URL schemes, but there are none", "write for example `[gs, s3]`")
    for name in names:
        if name in ("http", "https"):
            hint = "rewrite such URLs to `ais://…` or to the bucket that they stand for"
            refuse("E219", f"AIStore does not serve {name}:// URLs", hint)
        if name not in AIS_PROVIDERS and name != "all":
            known = [*AIS_PROVIDERS, "all"]
            hint = did_you_mean(name, known) or f"it serves {', '.join(known)}"
            refuse("E219", f"AIStore does not serve {name[:30]}:// URLs", hint)
    return tuple(dict.fromkeys(AIS_PROVIDERS if "all" in names else names))


def read_etl_name(value: Any) -> str:
    """The name of an ETL as AIStore has it."""
    text = read_text(value)
    if not _ETL_NAME.fullmatch(text):
        hint = "AIStore's rule: 6 to 32 characters out of a-z, 0-9 and `-`; `ais etl show` lists the names"
        refuse("E219", f"{quoted(text)} cannot be the name of an ETL", hint)
    return str(text)


def read_etl_args(value: Any) -> str:
    """The text that an ETL gets: a map becomes compact JSON, once and for all readers."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        refuse("E202", f"expected text or a map, but this is {shown(value)}", "write `args: {size: 224}`")
    import json  # most specs have no use for it

    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        refuse("E202", f"the arguments of an ETL go to it as JSON, and these cannot: {error}")


def read_namespace(value: Any) -> str:
    """`@cluster`, `@cluster#name` or `#name`."""
    text = read_text(value)
    if not _NAMESPACE.fullmatch(text):
        hint = "write `@cluster`, `@cluster#name` or `#name`, in quotes"
        refuse("E219", f"{quoted(text)} is no namespace of AIStore", hint)
    return str(text)


_SCHEME = rf"({'|'.join([*AIS_PROVIDERS, 'all'])})(://?)?"
_SCHEMES_FORM = text_form(rf"[\s,:]*{_SCHEME}([\s,:]+{_SCHEME})*[\s,:]*")
_GATEWAY_FORM = text_form(
    r"\s*([hH][tT][tT][pP][sS]?://)?([^:/?#@\s]+|\[[0-9a-fA-F:.]+\])(:[0-9]+)?(/[^?#\s]*)?\s*"
)
_ETL_FORM = text_form(_ETL_NAME.pattern)
_TEXT_OR_MAP = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})
_Gateway = Annotated[str, BeforeValidator(read_endpoint)]
Gateways = Annotated[
    tuple[_Gateway, ...],
    Field(min_length=1),
    BeforeValidator(read_list),
    one_or_more(_GATEWAY_FORM, "http://aistore:51080"),
]
UrlSchemes = Annotated[
    tuple[str, ...], BeforeValidator(read_schemes), one_or_more(_SCHEMES_FORM, "gs", "all")
]
EtlName = Annotated[str, BeforeValidator(read_etl_name), WithJsonSchema(_ETL_FORM)]
EtlNames = Annotated[tuple[EtlName, ...], BeforeValidator(read_list), one_or_more(_ETL_FORM, "second-etl")]
EtlArgs = Annotated[str, BeforeValidator(read_etl_args), _TEXT_OR_MAP]
Namespace = Annotated[str, BeforeValidator(read_namespace)]


class Etl(Model):
    """A transformation that runs in the cluster: it gets whole shards and gives whole shards."""

    name: AffectsSamples[EtlName] = Field(description="Its name in the cluster, where it must be running.")
    args: AffectsSamples[EtlArgs] = Field(
        "", description="What it is given: text, or a map, which is sent as JSON."
    )
    pipeline: AffectsSamples[EtlNames] = Field((), description="ETLs that follow it, in order.")
    deterministic: AffectsNeither[Boolean] = Field(
        False,
        description="It always gives the same bytes, so that a stream that was cut may be read again from its "
        "beginning. Without it a cut in the middle of a shard is an error.",
    )


def read_etl(value: Any) -> Any:
    """A name, a map, or `false`."""
    if value is False:
        return None
    return {"name": value} if isinstance(value, str) else value


class AIStore(Model):
    """An AIStore cluster that serves remote shards."""

    endpoint: AffectsNeither[Gateways] = Field(
        (), description="The URL of its gateway, or of several. By default AIS_ENDPOINT."
    )
    use_for: AffectsNeither[UrlSchemes] = Field(
        (),
        description="The URL schemes it serves beside `ais`: `[gs, s3]`, or `all` of them (`gs`, `s3`, `az`, `oc` and "
        "their other names). By default USE_AIS_FOR.",
    )
    token_file: AffectsNeither[Text | None] = Field(
        None,
        description="A file with the token that `ais auth login` wrote; by default AIS_AUTHN_TOKEN, else the file "
        "AIS_AUTHN_TOKEN_FILE, else ~/.config/ais/cli/auth.token if it exists.",
    )
    client_ca: AffectsNeither[Text | None] = Field(
        None,
        description="A file with the certificates to trust. By default AIS_CLIENT_CA, else the system's.",
    )
    client_crt: AffectsNeither[Text | None] = Field(
        None, description="The client's own certificate, a file. By default AIS_CRT."
    )
    client_key: AffectsNeither[Text | None] = Field(
        None, description="The key to it, a file. By default AIS_CRT_KEY."
    )
    skip_verify_crt: AffectsNeither[Boolean] = Field(
        False, description="Trust any certificate. By default AIS_SKIP_VERIFY_CRT."
    )
    connect_timeout: AffectsNeither[Duration] = Field(
        10.0,
        description="Seconds in which a connection must stand, or text such as `10s`. By default "
        "AIS_CONNECT_TIMEOUT.",
    )
    read_timeout: AffectsNeither[Duration] = Field(
        300.0,
        description="Seconds in which the next bytes must come, or text such as `5m`: a shard that the cluster does "
        "not hold yet starts only when it has fetched it. By default AIS_READ_TIMEOUT.",
    )
    checksum: AffectsNeither[Literal["verify", "ignore"]] = Field(
        "verify", description="Whether shards that are read whole must have the checksum that AIStore keeps."
    )
    etl: Annotated[Etl | None, BeforeValidator(read_etl)] = Field(
        None,
        description="An ETL of the cluster through which shards are read: its name, a map, or `false` for none.",
    )
    latest: AffectsNeither[Boolean] = Field(
        False, description="Ask the cluster to compare its copy with the remote bucket's object each time."
    )
    prefetch: AffectsNeither[Prefetched] = Field(
        0,
        description="How many shards ahead the cluster is asked to fetch those that it does not hold yet from their "
        "remote bucket, for each source of each stream of samples. It is asked for half as many at a time.",
    )
    namespace: AffectsNeither[Namespace | None] = Field(
        None, description="Namespace of the buckets: `'@cluster'`, `'@cluster#name'` or `'#name'`."
    )


def read_aistore(value: Any) -> Any:
    """A map, or `false`."""
    if value is False:
        return None
    if not isinstance(value, (dict, AIStore)):
        hint = "write `{endpoint: …, use_for: [gs]}`"
        refuse("E202", f"expected a map or `false`, but this is {shown(value)}", hint)
    return value


AIStoreOrNone = Annotated[AIStore | None, BeforeValidator(read_aistore)]
