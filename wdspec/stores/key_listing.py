"""Globs and directories in stores that only have keys: names with slashes, in one flat list.

The rules are those of ``wdspec.stores.local`` on disks.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from wdspec.formats.compression import is_listed
from wdspec.urls.urls import MAGIC


def shards_among(keys: Iterable[str]) -> list[str]:
    """Of the keys below a directory, the shards that lie directly in it, in code point order."""
    return sorted(key for key in keys if "/" not in key and is_listed(key))


def keys_matching(keys: Iterable[str], pattern: str) -> list[str]:
    """The keys that match a glob, in code point order.

    `*`, `?` and `[a-z]` within a segment, `**` for any number of directories; hidden names need a `.` in the
    pattern. A segment that is there by exactly its own name is taken literally: `a[1].tar` is that key, if there is
    one.
    """
    known = list(dict.fromkeys(key for key in keys if key and not key.endswith("/")))
    return sorted(_below([key.split("/") for key in known], pattern.split("/")))


def _below(keys: list[list[str]], pattern: list[str]) -> set[str]:
    segment, rest = pattern[0], pattern[1:]
    if segment == "**":
        found = {"/".join(key) for key in keys if not rest and not _is_hidden(key)}
        depth = max(map(len, keys), default=0)
        for skipped in range(depth if rest else 0):
            # Only what `**` itself passes over must be open: what follows may name hidden directories.
            open_keys = [key for key in keys if not _is_hidden(key[:skipped])]
            for head, deeper in _grouped(open_keys, skipped).items():
                found |= {head + name for name in _below(deeper, rest)}
        return found
    literal = any(key[0] == segment for key in keys)
    matches = re.compile(fnmatch.translate(segment)).match
    taken = [
        key
        for key in keys
        if (key[0] == segment)
        or (not literal and matches(key[0]) and (segment.startswith(".") or not key[0].startswith(".")))
    ]
    if not rest:
        return {key[0] for key in taken if len(key) == 1}
    return {
        head + name
        for head, deeper in _grouped([key for key in taken if len(key) > 1], 1).items()
        for name in _below(deeper, rest)
    }


def _is_hidden(names: list[str]) -> bool:
    return any(name.startswith(".") for name in names)


def _grouped(keys: list[list[str]], depth: int) -> dict[str, list[list[str]]]:
    """The keys by their first directories, which are taken away."""
    groups: dict[str, list[list[str]]] = {}
    for key in keys:
        if len(key) > depth:
            groups.setdefault("".join(f"{name}/" for name in key[:depth]), []).append(key[depth:])
    return groups


def literal_start(pattern: str) -> str:
    """What all that matches a glob begins with, also a key that is literally the pattern: what to list by."""
    match = MAGIC.search(pattern)
    return pattern if match is None else pattern[: match.start()]
