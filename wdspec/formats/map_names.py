"""Names that occur twice in a map of JSON, CBOR or MessagePack: parsers keep the last value without a word."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

_ENDLESS = 1 << 62
"""Items of a list or map that ends with a break."""
_SCALAR = rb"(?>[\x00-\x17\x20-\x37\xe0-\xf7]|[\x18\x38\xf8].|[\x19\x39\xf9]..|[\x1a\x3a\xfa].{4}|[\x1b\x3b\xfb].{8})"
_RUNS = [(1 << n, re.compile(_SCALAR + b"{%d}" % (1 << n), re.DOTALL)) for n in (12, 9, 6, 3)]
"""Numbers in a row, such as token ids: these are passed together, which takes a twentieth of the time."""


class PairsHook:
    """Builds the maps of a parser from their pairs. `twice` is a name that a map had twice, until it is read."""

    def __init__(self) -> None:
        self._twice = ""

    def build(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            self._twice = find_repeated(name for name, _ in pairs)
        return found

    def take(self) -> str:
        twice, self._twice = self._twice, ""
        return twice


def find_repeated(names: Iterable[Any]) -> str:
    """Return the first name that occurs again; "" if there is none."""
    counts = Counter(names)
    return next((str(name) or '""' for name, count in counts.items() if count > 1), "")


def find_repeated_in_json(data: bytes) -> str:
    """Return a name that occurs twice in a map of JSON; "" if there is none, or if this cannot be read."""
    hook = PairsHook()
    try:
        json.loads(data, object_pairs_hook=hook.build)
    except (ValueError, RecursionError):
        return ""
    return hook.take()


def find_repeated_in_msgpack(msgpack: Any, data: bytes) -> str:
    """As `find_repeated_in_json`."""
    hook = PairsHook()
    try:
        msgpack.unpackb(data, object_pairs_hook=hook.build, strict_map_key=False)
    except Exception:  # what its values raise differs; the decoder of the field reports it
        return ""
    return hook.take()


def find_repeated_in_cbor(load: Callable[[BinaryIO], Any], data: bytes) -> str:
    """As `find_repeated_in_json`. Its library has no hook for pairs, so that their names are found in the bytes."""
    try:
        for names in _names_of_maps(data):
            if twice := find_repeated(load(io.BytesIO(name)) for name in names):
                return twice
    except Exception:  # names that are no values of Python, or not complete without what is before them
        return ""
    return ""


def find_lost_in_cbor(load: Callable[[BinaryIO], Any], data: bytes, kept: int) -> str:
    """As `find_repeated_in_cbor`, for data of which so many names were kept: only if there are more."""
    if sum(map(len, _names_of_maps(data))) <= kept:
        return ""
    names = load(_as_list(data))[::2]
    return find_repeated_in_cbor(load, data) or find_repeated(name for name in names if type(name) is str)


def _as_list(record: bytes) -> BinaryIO:
    """Return a map as a list of its names and values in turn. There, a name may refer to an earlier value."""
    kind, size = divmod(record[0], 32)
    if kind != 5:
        return io.BytesIO(b"\x80")
    if size == 31:
        return io.BytesIO(b"\x9f" + record[1:])
    at = 1 + (0 if size < 24 else 1 << (size - 24))
    items = 2 * (size if at == 1 else int.from_bytes(record[1:at], "big"))
    return io.BytesIO(b"\x9b" + items.to_bytes(8, "big") + record[at:])


def _names_of_maps(data: bytes) -> Iterator[list[bytes]]:
    """Yield the names of each map of an item of CBOR (RFC 8949), as they are encoded. An inner map is first."""
    at = begin = 0
    left: list[int] = []  # the items that each open list and map still has
    begins: list[int] = []  # where each of these starts, with its tags
    names: list[list[bytes] | None] = []  # those of a map; None of a list
    while True:
        kind, size = divmod(data[at], 32)
        at += 1
        is_endless = size == 31
        if 24 <= size < 28:
            width = 1 << (size - 24)
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        if kind == 6:  # a tag is a part of the item that follows
            continue
        if kind == 7 and is_endless:
            left[-1] = 0
        elif kind in (4, 5) or (kind in (2, 3) and is_endless):
            if kind == 4 and not is_endless:
                at, size = _pass_numbers(data, at, size)
            left.append(_ENDLESS if is_endless else size * 2 if kind == 5 else size)
            begins.append(begin)
            names.append([] if kind == 5 else None)
        else:
            if kind in (2, 3):
                at += size
            if not left:
                return
            _count(data[begin:at], left, names)
        while left[-1] == 0:
            left.pop()
            found, start = names.pop(), begins.pop()
            if found is not None:
                yield found
            if not left:
                return
            _count(data[start:at], left, names)
        begin = at


def _pass_numbers(data: bytes, at: int, items: int) -> tuple[int, int]:
    """Return where the items of a list that are not numbers at its start begin, about, and how many there are."""
    for count, run in _RUNS:
        while items >= count and (found := run.match(data, at)):
            at, items = found.end(), items - count
    return at, items


def _count(item: bytes, left: list[int], names: list[list[bytes] | None]) -> None:
    """Count an item as one of the list or map that it is in."""
    known = names[-1]
    if known is not None and left[-1] % 2 == 0:
        known.append(item)
    left[-1] -= 1
