"""Shards named on the command line, as raw samples: with the spelling that their files have, and not decoded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import click

from wdspec.base.errors import ShardError
from wdspec.fields.samples import SampleFields
from wdspec.formats.decompress import decompressed
from wdspec.read.shard import Piece, ShardOpener
from wdspec.shards.listing import list_shards
from wdspec.spec.language.samples import KeyRule
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl, UrlSequence

ABOUT_RECORDS = frozenset({"__key__", "__url__"})
"""Entries of a raw sample that are no fields."""

key_option = click.option(
    "--key",
    type=click.Choice(["first_dot", "last_dot"]),
    default="first_dot",
    show_default=True,
    help="Where names of files split into key and field.",
)
extensions_option = click.option(
    "--extensions", metavar="TEXT", help="Only these fields, as `extensions` in a spec: 'jpg;png cls'."
)


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the argument SHARDS and the options that say how to read them; passes ``files``."""

    @click.argument("shards", metavar="SHARDS...", nargs=-1, required=True)
    @click.option(
        "--input-format",
        type=click.Choice(["auto", "tar", "cbor", "msgpack", "jsonl"]),
        default="auto",
        show_default=True,
        help="What the shards are; auto goes by their names.",
    )
    @key_option
    @functools.wraps(command)
    def with_files(shards: tuple[str, ...], input_format: str, key: str, **others: Any) -> Any:
        return command(files=ShardFiles(shards, input_format, key), **others)

    return with_files


decode_option = click.option(
    "--decode",
    is_flag=True,
    help="Decode fields by their extension first (not images); JSON lines need that.",
)


@dataclass(frozen=True)
class ShardFiles:
    """Shards and how to open them."""

    texts: Sequence[str]
    """Paths and URLs as in a spec: braces, globs, directories, `@file`s, `a::b`."""
    format: str = "auto"
    key: str = "first_dot"
    storage: Storage = field(default_factory=lambda: Storage.of(Environment.read()))

    def listed(self) -> UrlSequence:
        """The shards, in order. Raises WdspecError where there are none."""
        return list_shards(self.texts, self.storage.environment.directory, self.storage)

    def samples(self, fields: Callable[[str], str | None] = str) -> Iterator[dict[str, Any]]:
        """The raw samples of all shards, one after the other; `fields` as for `TarSamples`."""
        for shard in self.listed():
            yield from self.samples_of(shard, fields)

    def chosen_samples(self, extensions: str | None, decode: bool) -> Iterator[dict[str, Any]]:
        """The samples of all shards as options choose them.

        Args:
            extensions: which fields to keep, as in a spec, in the spelling of the files; None keeps all.
            decode: whether to give values instead of bytes where an extension has a decoder by default.
        """
        from wdspec.fields.extensions import Extensions

        asked = Extensions([extensions]) if extensions is not None else None
        samples = self.samples(
            lambda suffix: suffix if asked is None or asked.field_of(suffix) is not None else None
        )
        if not decode:
            return samples
        fields = SampleFields()
        return (sample for raw in samples if (sample := fields(raw)) is not None)

    def samples_of(
        self, shard: ShardUrl, fields: Callable[[str], str | None] = str
    ) -> Iterator[dict[str, Any]]:
        """The raw samples of one shard.

        Raises:
            ShardError: it cannot be read, or is damaged.
        """
        key = KeyRule(kind="last_dot" if self.key == "last_dot" else "first_dot")
        opener = ShardOpener("", self.storage, SampleFields(), key, lenient_end=False, format=self.format)
        with closing(opener.samples(Piece(shard), fields, _raised, opener.ahead())) as samples:
            yield from samples

    def opened(self, shard: ShardUrl) -> BinaryIO:
        """The uncompressed bytes of a shard."""
        raw = self.storage.watched(shard)
        try:
            return decompressed(raw)
        except BaseException:
            raw.close()
            raise


def _raised(error: ShardError) -> None:
    raise error


def fields_of(sample: dict[str, Any]) -> dict[str, Any]:
    """The fields of a raw sample, without what says where it is from."""
    return {name: value for name, value in sample.items() if name not in ABOUT_RECORDS}
