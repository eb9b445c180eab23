"""Which suffixes make a file a shard, and of which format: as the spec says, or by its name."""

from __future__ import annotations

import re

from wdspec.formats.compression import COMPRESSIONS, without_compression
from wdspec.spec.language.values import SUFFIXES, Format

TAR_SUFFIXES = (
    *SUFFIXES["tar"],
    *(suffix for each in COMPRESSIONS for suffix in each.tar_suffixes),
    *(f".tar{suffix}" for each in COMPRESSIONS for suffix in each.suffixes),
)
"""Ends of names that are shards when a directory is read: tars only, for lists of other things are often JSON lines."""

_HIDDEN_OR_PARTIAL = (".", "~")

_BY_SUFFIX = {suffix: format for format, suffixes in SUFFIXES.items() for suffix in suffixes}


def format_of(name: str, asked: str = "auto") -> Format:
    """The format of a shard.

    Args:
        name: its path or URL; a query and a fragment count only where what is before them says nothing, as in
            `get?name=a.jsonl`.
        asked: the format, or ``auto`` to go by the name. What has none of the known suffixes is a tar: content is
            not asked, as an error message of a store may well be JSON.
    """
    if asked != "auto":
        return asked  # type: ignore[return-value]  # the spec has been checked
    for text in (re.split("[?#]", name, maxsplit=1)[0], name):
        suffix = _suffix(text.rpartition("/")[2])
        if suffix:
            return _BY_SUFFIX[suffix]
    return "tar"


def is_listed(name: str) -> bool:
    """Whether a file is a shard when the directory that it lies in is read: a tar by its name.

    Hidden files (`.x.tar`), those of editors and half-written ones (`~x.tar`, `x.tar.tmp`) are not.
    """
    return name.lower().endswith(TAR_SUFFIXES) and not name.startswith(_HIDDEN_OR_PARTIAL)


def stem_of(name: str) -> str:
    """A shard's name without folders, format and compression: what its samples are called after."""
    base = without_compression(name.rpartition("/")[2])
    return base[: len(base) - len(_suffix(base))]


def _suffix(name: str) -> str:
    """The end of a name that says the format, as in the table; empty if none does."""
    base = without_compression(name).lower()
    return next((suffix for suffix in _BY_SUFFIX if base.endswith(suffix)), "")
