"""Which versions of objects a lock knows: a sorted file, of which a process maps what it looks at into memory.

    12 bytes  hash of the name of the object        8 bytes  its size in bytes; -1 if it is unknown
     4 bytes  hash of the place where it was        8 bytes  hash of its validator; 0 if it has none

The name is its URL without a login, or its path in the directory of the spec: such objects are found wherever the
directory is. Validators of two places, such as a bucket and its mirror, cannot be compared. Of 10⁹ objects, two have
the same hash of the name with a probability of 10⁻¹¹; another version is taken for the same one with 2⁻⁶⁴.
"""

from __future__ import annotations

import io
import mmap
import os
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from struct import Struct
from typing import Any

from wdspec.base.errors import UnusableStoreError
from wdspec.base.redaction import redact
from wdspec.cache.follower import Follower
from wdspec.cache.shard_cache import Copy, CopyFile
from wdspec.stores.local import TIME, stat_open_file
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import local_path

_RECORD = Struct(">12s4sqQ")
SIZE = _RECORD.size
"""Bytes of an object in the file."""
KEY = 12
"""Bytes of the hash of a name, with which a record starts."""
_LOGIN = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")


def key_of(url: str, base: str) -> bytes:
    """Return the hash of the name of an object.

    Args:
        url: its URL or absolute path.
        base: the directory of the spec.
    """
    return _hash(_name_of(url, base), KEY)


def make_record(url: str, base: str, location: str, stat: ObjectStat) -> bytes:
    """Return the record of an object.

    Args:
        url: its URL or absolute path.
        base: the directory of the spec.
        location: where it is read from.
        stat: what its store says about it.
    """
    size = -1 if stat.size is None else stat.size
    version = 0 if stat.validator is None else _number_of(stat.validator)
    return _RECORD.pack(key_of(url, base), _hash(_name_of(location, base), 4), size, version)


def is_identified(record: bytes) -> bool:
    """Whether anything is known by which another version of an object would be noticed."""
    return _RECORD.unpack(record)[2:] != (-1, 0)


def find_change(record: bytes, base: str, location: str, now: ObjectStat) -> tuple[str | None, str]:
    """Compare an object with its record.

    Args:
        record: of the object.
        base: the directory of the spec.
        location: where it is read from now.
        now: what is known about it now.

    Returns:
        The change in words, or None if nothing shows one; and what was compared: `ETag`, `time`, `size` or `name`.
    """
    _, place, size, version = _RECORD.unpack(record)
    if size >= 0 and now.size is not None and now.size != size:
        return f"it had {size:,} bytes, and has {now.size:,}", "size"
    if version and now.validator is not None and place == _hash(_name_of(location, base), 4):
        basis = "time" if now.validator.startswith(TIME) else "ETag"
        # AIStore may name several properties, of which a later answer has others.
        if version in map(_number_of, (now.validator, *now.validator.split(", "))):
            return None, basis
        what = (
            "the time of its last change" if basis == "time" else "its ETag, or the time of its last change,"
        )
        return f"{what} is another one", basis
    return None, "size" if size >= 0 and now.size is not None else "name"


@dataclass(frozen=True)
class KnownObjects:
    """The objects of a lock. It pickles by its path: each process maps the file."""

    path: str
    base: str
    """The directory of the spec of their source."""
    lock: str
    """The name of the lock, for messages."""

    def find(self, url: str) -> bytes | None:
        """Return the record of an object; None if the lock does not have it.

        Raises:
            UnusableStoreError: the file cannot be read.
        """
        data, key = self._data, key_of(url, self.base)
        at = bisect_left(range(len(data) // SIZE), key, key=lambda n: data[n * SIZE : n * SIZE + KEY])
        record = data[at * SIZE : (at + 1) * SIZE]
        return record if record.startswith(key) and record else None

    @cached_property
    def _data(self) -> mmap.mmap | bytes:
        try:
            with open(self.path, "rb") as file:
                is_empty = not os.fstat(file.fileno()).st_size
                return b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UnusableStoreError(
                f"the objects of the lock cannot be read: {error.strerror}", location=self.path
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownObjects, (self.path, self.base, self.lock)


def describe_stream(record: bytes, stream: Any, location: str, ask: Callable[[], ObjectStat]) -> ObjectStat:
    """Return the size and the validator of the object that was read from a stream.

    Args:
        record: of the object.
        stream: of a store, or a cached copy.
        location: what it was opened for.
        ask: asks the store, which is needed if the record has a validator and the stream has not.
    """
    if isinstance(stream, Copy):
        size, made_of = stream.made_of
        return ObjectStat(size, made_of or None)
    if isinstance(stream, CopyFile):  # a user made it: its time says nothing about the object
        return ObjectStat(stat_open_file(stream).size)
    if isinstance(stream, io.FileIO) and local_path(location) is not None:
        return stat_open_file(stream)
    found = stream.made_of if isinstance(stream, Follower) else getattr(stream, "validator", None)
    left = getattr(stream, "left", None)
    known = ObjectStat(None if left is None else left + stream.tell(), found or None)
    if known.validator is None and _RECORD.unpack(record)[3]:
        asked = ask()
        known = ObjectStat(asked.size if known.size is None else known.size, asked.validator)
    return known


def _name_of(url: str, base: str) -> str:
    start = base.rstrip("/") + "/"
    return url[len(start) :] if url.startswith(start) else _LOGIN.sub(r"\1", url)


def _number_of(validator: str) -> int:
    return int.from_bytes(_hash(redact(validator), 8), "big") or 1  # copies in a cache have no secrets either


def _hash(text: str, size: int) -> bytes:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).digest()
