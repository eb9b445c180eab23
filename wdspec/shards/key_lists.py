"""The keys of `keys` and `exclude`: short lists in memory, long ones in a file of the node that all processes map.

The file is a hash table with open addressing. A key takes one 64-bit number, at a place that another hash of it gives,
so 10 million keys take 120 MB on a node, whatever their lengths. Another key is taken for one of them with a
probability of about 2⁻⁶³. A lookup takes 1.9 µs; in a sorted file with a third less memory it takes 2.5.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import re
from codecs import BOM_UTF8
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, cast

import numpy as np

from wdspec.base.encodings import describe_encoding, name_wide
from wdspec.base.errors import ShardError, UsageError, WdspecError
from wdspec.base.files import LockFile, shared_folder
from wdspec.base.progress import progress
from wdspec.formats.decompress import decompress
from wdspec.formats.tokens import read_npy_header
from wdspec.planning.keys import encode_text
from wdspec.spec.spec import Source
from wdspec.storage.storage import Storage
from wdspec.stores.local import translate_error
from wdspec.urls.urls import ShardUrl

IN_MEMORY = 1 << 16
"""The largest number of keys that every process holds itself."""
MAX_KEY = 64 * 2**10
"""Bytes of a line."""
_AT_ONCE = 1 << 16
"""Keys that are put into a table together."""


_HARMLESS = "._-/,\"'[]"


def show_entry(entry: str, sample: str) -> str:
    """Show an entry of a list that is the key of no sample, unless the list may be another file, such as passwords.

    Args:
        entry: of the list.
        sample: the key of a sample. The other marks of an entry that is shown also occur in it.
    """
    marks = {each for each in entry.strip().replace(", ", ",") if not each.isalnum()}
    return f"{entry!r:.80}" if marks <= {*_HARMLESS, *sample} else f"a text of {len(entry)} characters"


@dataclass(frozen=True)
class KeyTable:
    """A set of keys in a file, of which it reads only the places that it looks at. It pickles by its path."""

    path: str

    def __contains__(self, key: object) -> bool:
        slots = self._slots
        number, place = _hash(encode_text(cast(str, key)))
        at = place * (len(slots) - _TAIL) >> 64
        while (found := slots[at]) != number:
            if not found:
                return False
            at += 1
        return True

    @cached_property
    def _slots(self) -> memoryview:
        with open(self.path, "rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("Q")

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyTable, (self.path,)


_TAIL = 1 << 12
"""Slots after the last place, for keys that are moved on; the last one is always empty."""


def _hash(key: bytes) -> tuple[int, int]:
    """Return the 64-bit number of a key, which is never 0, and a 64-bit number for its place."""
    digest = hashlib.blake2b(key, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little") or 1, int.from_bytes(digest[8:], "little")


KeyLists = tuple[Container[str] | None, Container[str] | None]
"""The keys of `keys` and of `exclude`; None without such a list."""


def read_key_lists(source: Source, storage: Storage) -> tuple[KeyLists, dict[str, str]]:
    """Read `keys` and `exclude` of a source.

    Returns:
        The keys of both, and digests of the files by key of the spec.

    Raises:
        MissingShardError: a file does not exist.
        ShardError: it cannot be read, has no keys or too long lines.
    """
    digests: dict[str, str] = {}
    only = _read_entries("keys", source.only_keys, source, storage, digests)
    return (only, _read_entries("exclude", source.exclude, source, storage, digests)), digests


def iter_keys(key: str, source: Source, storage: Storage) -> Iterator[str]:
    """Yield the keys of `keys` or `exclude` of a source, with repetitions. Raises as `read_key_lists`."""
    for entry in (source.only_keys if key == "keys" else source.exclude) or ():
        if entry.startswith("@"):
            lines = _KeyFile(entry, source, storage).lines()
            yield from (line.decode("utf-8", "surrogateescape") for line in lines)
        else:
            yield entry


def _read_entries(
    key: str, entries: Sequence[str] | None, source: Source, storage: Storage, digests: dict[str, str]
) -> Container[str] | None:
    if entries is None:
        return None
    written = {entry for entry in entries if not entry.startswith("@")}
    files = [_KeyFile(entry, source, storage) for entry in entries if entry.startswith("@")]
    if not files:
        return frozenset(written)
    short = written
    whole = hashlib.blake2b(digest_size=16)
    total = 0
    for each in files:
        for line in each.lines():
            total += 1
            whole.update(line + b"\n")
            if len(short) <= IN_MEMORY:
                short.add(line.decode("utf-8", "surrogateescape"))
        whole.update(b"\n")
    digests[key] = whole.hexdigest()
    if len(short) <= IN_MEMORY:
        return frozenset(short)
    for name in sorted(written):
        whole.update(encode_text(name) + b"\n")
    lines = (line for each in files for line in each.lines())
    named = (encode_text(name) for name in written)
    return _find_table(whole.hexdigest(), total + len(written), [lines, named])


@dataclass(frozen=True)
class _KeyFile:
    """A file with one key per line."""

    entry: str
    """As in the spec, with its `@`."""
    source: Source
    storage: Storage

    def lines(self) -> Iterator[bytes]:
        """Yield the keys. Empty lines are ignored; an array (`.npy`) has one key in each element."""
        number = 0
        try:
            location = self.storage.resolve(ShardUrl(self.entry[1:], self.source.base)).location
            has_key = False
            with (
                decompress(self.storage.open_location(location)) as raw,
                io.BufferedReader(cast(io.RawIOBase, raw)) as file,
            ):
                if re.search(r"\.npy(\.\w+)?$", self.entry.partition("?")[0], re.IGNORECASE):
                    for key in _read_array(file):
                        has_key = True
                        yield key
                for number in count(1):
                    line = file.readline(MAX_KEY + 1)
                    if not line:
                        break
                    if len(line) > MAX_KEY or b"\0" in line:
                        seen = (
                            "a line is too long or has a zero byte; write a text file with one key per line"
                        )
                        raise ShardError(describe_encoding(line) if name_wide(line) else seen)
                    if number == 1:
                        line = line.removeprefix(BOM_UTF8)
                    if line := line.rstrip(b"\r\n"):
                        has_key = True
                        yield line
            if not has_key:
                raise ShardError("no key in this file; write one per line")
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except WdspecError as error:
            raise error.at(source=self.source.name, list=self.entry, line=number or None) from None
        except OSError as error:
            raise translate_error(error, self.entry[1:]).at(
                source=self.source.name, list=self.entry
            ) from None


def _read_array(file: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield the elements of a one-dimensional array of texts, integers, or pairs of 64-bit numbers (DataComp's uids).

    A pair is a text of 32 hexadecimal digits. Raises ShardError for other arrays.
    """
    try:
        shape, _, dtype = read_npy_header(file)
    except ValueError as error:
        raise ShardError(f"this is not an array of numpy: {error}") from None
    names = dtype.names or ()
    is_pair = [dtype[name] for name in names] == [np.dtype("u8")] * 2
    is_key = (is_pair or dtype.kind in "SUiu") and 0 < dtype.itemsize <= 4 * MAX_KEY
    if len(shape) != 1 or shape[0] < 0 or not is_key:
        raise ShardError(
            f"the array has the shape {shape} and the type {dtype}; keys are one-dimensional: texts, integers, or "
            "pairs of `u8`, such as the uids of DataComp"
        )
    left = shape[0]
    while left:
        many = min(left, max(1, 16 * _AT_ONCE // dtype.itemsize))
        data = file.read(many * dtype.itemsize)
        if len(data) < many * dtype.itemsize:
            raise ShardError(f"truncated: the array should have {left:,} more elements")
        left -= many
        found = np.frombuffer(data, dtype)
        if is_pair:
            digits = np.stack([found[name] for name in names], axis=1).astype(">u8").tobytes().hex()
            yield from (digits[at : at + 32].encode() for at in range(0, len(digits), 32))
        elif dtype.kind == "S":
            yield from filter(None, found.tolist())
        else:
            yield from (encode_text(str(each)) for each in found.tolist())


def _find_table(digest: str, most: int, parts: Sequence[Iterator[bytes]]) -> KeyTable:
    """Return the table of a set of keys. The first process of a node that needs it builds it."""
    path = os.path.join(shared_folder("keys"), f"{digest}.keys")
    with LockFile(f"{path}.lock", 0o600):
        if not os.path.exists(path):
            with _written_whole(path) as partial:
                _build(partial, most, parts)
    return KeyTable(path)


@contextmanager
def _written_whole(path: str) -> Iterator[str]:
    partial = f"{path}.{os.getpid()}.partial"
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        raise UsageError(
            f"the table of keys `{path}` cannot be written: {error.strerror}; set TMPDIR to a larger disk"
        ) from error
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _build(path: str, most: int, parts: Sequence[Iterator[bytes]]) -> None:
    """Write a table.

    Args:
        path: the file.
        most: the number of keys, perhaps with duplicates.
        parts: the keys.
    """
    places = most + most // 2 + 1
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * (places + _TAIL))
    slots = np.memmap(path, dtype="<u8", mode="r+")
    with progress("reading keys", most) as bar:
        chunk: list[tuple[int, int]] = []
        for part in parts:
            for key in part:
                number, place = _hash(key)
                chunk.append((number, place * places >> 64))
                if len(chunk) == _AT_ONCE:
                    _insert(slots, chunk)
                    bar.advance(len(chunk))
                    chunk.clear()
        _insert(slots, chunk)
    slots.flush()


def _insert(slots: Any, chunk: Sequence[tuple[int, int]]) -> None:
    """Put keys at the first free place from theirs on."""
    if not chunk:
        return
    numbers = np.array([number for number, _ in chunk], dtype=np.uint64)
    at = np.array([place for _, place in chunk], dtype=np.int64)
    while len(at):
        if at.max() >= len(slots) - 1:
            raise UsageError("the keys cannot be put into a table, as too many of them have the same place")
        found = slots[at]
        free = np.flatnonzero(found == 0)
        _, first = np.unique(at[free], return_index=True)  # one key for each place
        chosen = free[first]
        slots[at[chosen]] = numbers[chosen]
        is_in = slots[at] == numbers
        numbers, at = numbers[~is_in], at[~is_in] + 1
