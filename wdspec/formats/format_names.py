"""Which format a shard has: as the spec says, or by its name."""

from __future__ import annotations

from typing import Literal

from wdspec.formats.compression.compress import without_compression

Format = Literal["tar", "cbor", "msgpack", "jsonl"]

SUFFIXES: dict[str, Format] = {
    **dict.fromkeys((".cbors", ".cbor"), "cbor"),
    **dict.fromkeys((".msgpack", ".mps", ".mp"), "msgpack"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
}
"""Ends of names (before `.gz` and the like) of shards that are no tars."""


def format_of(name: str, asked: str = "auto") -> Format:
    """The format of a shard.

    Args:
        name: its path or URL; a query and a fragment do not count.
        asked: the format, or ``auto`` to go by the name. What has none of the known suffixes is a tar: content is
            not asked, as an error message of a store may well be JSON.
    """
    if asked != "auto":
        return asked  # type: ignore[return-value]  # the spec has been checked
    for text in (name, name.partition("?")[0]):
        base = without_compression(text.rpartition("/")[2].lower())
        for suffix, format in SUFFIXES.items():
            if base.endswith(suffix):
                return format
    return "tar"


def stem_of(name: str) -> str:
    """A shard's name without folders, format and compression: what its samples are called after."""
    base = without_compression(name.rpartition("/")[2])
    for suffix in (*SUFFIXES, ".tar"):
        if base.lower().endswith(suffix):
            return base[: -len(suffix)]
    return base
