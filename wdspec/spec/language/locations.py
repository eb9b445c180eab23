"""The small models of where bytes come from and go to: rewrite rules, object stores, the cache, offline outputs."""

import re
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from wdspec.spec.language.effects import AffectsNeither
from wdspec.spec.language.samples import Regex
from wdspec.spec.language.values import Boolean, Model, Size, Text, is_size, refuse
from wdspec.spec.problems import quoted, shown


class RewriteRule(Model):
    """A regex, anchored at the start of a URL, and what takes the place of the match."""

    pattern: AffectsNeither[Regex] = Field(
        alias="from", description="A regex, matched at the start of the URL."
    )
    replacement: AffectsNeither[Annotated[str, Field(strict=True)]] = Field(
        alias="to", description=r"What takes its place; `\1` stands for the first group."
    )
    origin: str = ""
    """Where the rule was written, for explanations: ``spec.yaml:12``."""
    overlay: bool = False
    """Whether an environment or an override brought it: such rules come before those of the spec."""


_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Argument = Annotated[
    str, AfterValidator(lambda name: (_ARGUMENT.fullmatch(name) and name) or _no_argument(name))
]
"""The name of an argument of a class."""


def _no_argument(name: str) -> NoReturn:
    hint = "write the name of an argument of the file system's class, such as `client_kwargs`"
    refuse("E202", f"{quoted(name)} cannot be the name of an argument", hint)


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc or parts.query:
        hint = "write for example `https://minio.example.org:9000`, without a login"
        refuse("E202", "the endpoint of a store is an http or https URL, which this is not", hint)
    return text.rstrip("/")


class ObjectStoreOptions(Model):
    """How an object store that fsspec reads is reached: names only, and no secrets."""

    endpoint: AffectsNeither[Annotated[Text, AfterValidator(_endpoint)] | None] = Field(
        None, description="The URL of its server: `s3`, `gs` and `hf`."
    )
    profile: AffectsNeither[Text | None] = Field(
        None, description="The section of the user's own settings that has the login: `s3`."
    )
    region: AffectsNeither[Text | None] = Field(None, description="Where its buckets are: `s3`.")
    anonymous: AffectsNeither[Boolean] = Field(
        False, description="Without a login, as for public data: `s3`, `gs`, `az` and `hf`."
    )
    requester_pays: AffectsNeither[Boolean] = Field(
        False, description="Whoever reads pays for it: `s3` and `gs`."
    )
    options: AffectsNeither[dict[Argument, Any]] = Field(
        {},
        description="Whatever else fsspec's file system of the scheme takes, by the names of its arguments.",
    )
    env: AffectsNeither[dict[Argument, Text]] = Field(
        {},
        description="Arguments whose values are secret: argument → the name of the environment variable that holds it, "
        "as in `{key: LAB_KEY, secret: LAB_SECRET}`.",
    )
    files: AffectsNeither[dict[Argument, Text]] = Field(
        {}, description="The same, with the path of a file that holds nothing but the value."
    )


def read_storage(value: Any) -> Any:
    """A map, or `false`."""
    if value is False:
        return None
    if not isinstance(value, (dict, ObjectStoreOptions)):
        refuse("E202", f"expected a map or `false`, but this is {shown(value)}", "write `{endpoint: …}`")
    if isinstance(value, dict):
        maps = [value.get(name) for name in ("options", "env", "files")]
        names = [name for each in maps if isinstance(each, dict) for name in each]
        for name in names:
            if names.count(name) > 1:
                refuse(
                    "E202",
                    f"the argument {quoted(name)} is given twice",
                    "leave it in one of `options`, `env`, `files`",
                )
    return value


StorageOrNone = Annotated[ObjectStoreOptions | None, BeforeValidator(read_storage)]


def _local(directory: str) -> str:
    if "://" in directory:
        refuse("E202", f"a cache is a local directory, but this is {shown(directory)}", "write a path")
    return directory


class CacheOptions(Model):
    """A local directory that keeps copies of remote shards."""

    dir: AffectsNeither[Annotated[Text, AfterValidator(_local)]] = Field(
        description="The directory, made when it is needed. Copies that somebody put there are used too."
    )
    size: AffectsNeither[Size | None] = Field(
        None,
        description="The most that copies made by wdspec may take there: bytes, or text such as `500GB`. With 0 none "
        "is made.",
    )


class OutputOptions(Model):
    """Where `wdspec process` writes: one shard for each shard read."""

    dir: AffectsNeither[Text | None] = Field(
        None, description="A directory, or the URL of one; shards keep their file names."
    )
    pattern: AffectsNeither[Regex | None] = Field(
        None,
        alias="from",
        description="A regex, matched at the start of a shard's URL as the spec spells it.",
    )
    replacement: AffectsNeither[Annotated[str, Field(strict=True)] | None] = Field(
        None, alias="to", description=r"What takes the place of the match; `\1` stands for the first group."
    )
    base: str = ""
    """Absolute directory against which relative paths are resolved."""


def read_output(value: Any) -> Any:
    """`out/`, `{dir: out/}` or `{from: regex, to: replacement}`."""
    if isinstance(value, str):
        value = {"dir": value}
    if not isinstance(value, OutputOptions):
        given = {
            key for key in ("dir", "from", "to") if isinstance(value, dict) and value.get(key) is not None
        }
        if given not in ({"dir"}, {"from", "to"}):
            hint = "write `output: out/`, or `output: {from: 'in/(.*)', to: 'out/\\1'}`"
            refuse("E202", "an output is a directory, or `from` and `to`", hint)
    return value


def read_cache(value: Any) -> Any:
    """A directory, a map, or `false`."""
    if value is False:
        return None
    if isinstance(value, str) and is_size(value):
        hint = f"write `cache: {{dir: /data/cache, size: {value}}}`"
        refuse("E202", f"a cache needs a directory, but this is the size {shown(value)}", hint)
    return {"dir": value} if isinstance(value, str) else value


CacheOrNone = Annotated[CacheOptions | None, BeforeValidator(read_cache)]
