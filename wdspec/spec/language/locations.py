"""The small models of where bytes come from and go to: rewrite rules, the cache, the output of offline jobs."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from wdspec.spec.language.effects import AffectsNeither
from wdspec.spec.language.model import Model
from wdspec.spec.language.sample_options import Regex
from wdspec.spec.language.value_types import Size, Text, is_size, refuse
from wdspec.spec.problems.message_words import shown


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
