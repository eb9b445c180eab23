"""Groups of equal samples among any number, with bounded memory: hashes are sorted in temporary files.

Each sample is a record of its hash and its position, and lands in one of `PARTS` parts by its hash. A part is small
enough to be sorted in memory, and has all samples with a hash. What is found is spread once more by position, so that
it comes out in the order of the shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from wdspec.base.files import ScratchFile

PARTS = 256
_PENDING = 1 << 18
"""Records that are kept in memory before they are written."""
INDEX_BITS = 32
"""Bits of a position that are the index of the sample in its shard; the others are the number of the shard."""

Numbers = npt.NDArray[np.uint64]
Records = npt.NDArray[np.void]

_SAMPLE = np.dtype([("high", np.uint64), ("low", np.uint64), ("key", np.uint64), ("at", np.uint64)])
_BY_KEY = np.dtype([("key", np.uint64), ("at", np.uint64), ("first", np.uint64)])
_FOUND = np.dtype([("at", np.uint64), ("first", np.uint64), ("shares_key", np.bool_)])


class PartedFile(ScratchFile):
    """Records in a temporary file, in parts. A context manager, which deletes the file."""

    def __init__(self, kind: np.dtype[Any]) -> None:
        super().__init__("groups")
        self._kind = kind
        self._pending: list[tuple[Numbers, Records]] = []
        self._count = 0
        self._blocks: list[list[tuple[int, int]]] = [[] for _ in range(PARTS)]
        """For each part the offsets and the numbers of records of its blocks."""

    def add(self, parts: Numbers, records: Records) -> None:
        """Add records, each to a part."""
        self._pending.append((parts, records))
        self._count += len(records)
        if self._count >= _PENDING:
            self._write()

    def _write(self) -> None:
        if not self._count:
            return
        parts = np.concatenate([each for each, _ in self._pending])
        records = np.concatenate([each for _, each in self._pending])
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts.astype(np.int64), minlength=PARTS))
        self._file.seek(0, 2)
        at, start = self._file.tell(), 0
        for part, end in enumerate(ends.tolist()):
            if end > start:
                self._blocks[part].append((at + start * self._kind.itemsize, end - start))
            start = end
        self._file.write(records[order].tobytes())
        self._pending, self._count = [], 0

    def read(self, part: int) -> Records:
        """All records of a part, in the order of adding."""
        self._write()
        pieces = [np.zeros(0, self._kind)]
        for offset, count in self._blocks[part]:
            self._file.seek(offset)
            pieces.append(np.frombuffer(self._file.read(count * self._kind.itemsize), self._kind))
        return np.concatenate(pieces)


class Found(NamedTuple):
    """Samples of a shard, by index in ascending order."""

    shard: int
    """Its number."""
    indexes: npt.NDArray[np.int64]
    firsts: Numbers
    """The position of the first sample of each one's group."""
    shares_key: npt.NDArray[np.bool_]
    """Whether a sample that stays has the same key, in the same source."""


class SampleGroups:
    """Samples by hash. A context manager, which deletes its files.

    Args:
        shards: how many there are; they are numbered from 0.
    """

    def __init__(self, shards: int) -> None:
        self._shards = max(1, shards)
        self._samples = PartedFile(_SAMPLE)
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._samples.__exit__()

    def add(self, shard: int, indexes: Numbers, hashes: Numbers, keys: Numbers) -> None:
        """Add samples of a shard, in any order of shards.

        Args:
            indexes: of the samples in the shard.
            hashes: 128 bits of each sample, shape (samples, 2). Samples are equal if these are.
            keys: 64 bits of each key and its source.
        """
        records = np.zeros(len(indexes), _SAMPLE)
        records["high"], records["low"], records["key"] = hashes[:, 0], hashes[:, 1], keys
        records["at"] = np.uint64(shard << INDEX_BITS) | indexes.astype(np.uint64)
        self._samples.add(_part_of(records["high"]), records)
        self.count += len(records)

    def repeated(self) -> Iterator[Found]:
        """Find the samples that are equal to an earlier one, in the order of the shards."""
        with PartedFile(_BY_KEY) as by_key, PartedFile(_FOUND) as found:
            for part in range(PARTS):
                records = self._sorted(part)
                starts = _starts(records["high"], records["low"])
                firsts = records["at"][np.maximum.accumulate(np.where(starts, np.arange(len(records)), 0))]
                keyed = np.zeros(len(records), _BY_KEY)
                keyed["key"], keyed["at"], keyed["first"] = records["key"], records["at"], firsts
                by_key.add(_part_of(keyed["key"]), keyed)
            for part in range(PARTS):
                records = by_key.read(part)
                records = records[np.argsort(records["key"], kind="stable")]
                is_repeated = records["at"] != records["first"]
                begins = np.flatnonzero(_starts(records["key"]))
                stays = ~np.minimum.reduceat(is_repeated, begins) if len(begins) else np.zeros(0, np.bool_)
                lengths = np.diff(np.append(begins, len(records)))
                chosen = np.zeros(int(is_repeated.sum()), _FOUND)
                chosen["at"] = records["at"][is_repeated]
                chosen["first"] = records["first"][is_repeated]
                chosen["shares_key"] = np.repeat(stays, lengths)[is_repeated]
                found.add(self._part_of_shard(chosen["at"]), chosen)
            yield from self._in_order(found)

    def lacking(self, shard: int) -> Iterator[Found]:
        """Find the first sample of each group that has none before a shard, or none from it on, in the order of the
        shards."""
        with PartedFile(_FOUND) as found:
            for part in range(PARTS):
                records = self._sorted(part)
                starts = np.flatnonzero(_starts(records["high"], records["low"]))
                if not len(starts):
                    continue
                is_late = (records["at"] >> np.uint64(INDEX_BITS)) >= np.uint64(shard)
                alone = np.minimum.reduceat(is_late, starts) == np.maximum.reduceat(is_late, starts)
                chosen = np.zeros(int(alone.sum()), _FOUND)
                chosen["at"] = chosen["first"] = records["at"][starts][alone]
                found.add(self._part_of_shard(chosen["at"]), chosen)
            yield from self._in_order(found)

    def _sorted(self, part: int) -> Records:
        """The samples of a part, by hash, and within it by position."""
        records = self._samples.read(part)
        return records[np.lexsort((records["at"], records["low"], records["high"]))]

    def _part_of_shard(self, positions: Numbers) -> Numbers:
        return (positions >> np.uint64(INDEX_BITS)) * np.uint64(PARTS) // np.uint64(self._shards)

    def _in_order(self, found: PartedFile) -> Iterator[Found]:
        for part in range(PARTS):
            records = found.read(part)
            records = records[np.argsort(records["at"], kind="stable")]
            shards = (records["at"] >> np.uint64(INDEX_BITS)).astype(np.int64)
            starts = np.flatnonzero(_starts(shards))
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(records)], strict=False):
                here = records[start:end]
                indexes = (here["at"] & np.uint64((1 << INDEX_BITS) - 1)).astype(np.int64)
                yield Found(int(shards[start]), indexes, here["first"], here["shares_key"])


def _part_of(hashes: Numbers) -> Numbers:
    return hashes >> np.uint64(64 - 8)


def _starts(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where the values of sorted columns differ from those before."""
    starts = np.ones(len(columns[0]), np.bool_)
    if len(starts) > 1:
        starts[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return starts


class KeyTexts(ScratchFile):
    """The keys of shards in a temporary file. A context manager, which deletes the file."""

    def __init__(self) -> None:
        super().__init__("keys")
        self._places: dict[int, tuple[int, int]] = {}

    def add(self, shard: int, indexes: Numbers, keys: Sequence[str]) -> None:
        """Add the keys of samples of a shard, by their indexes in ascending order."""
        encoded = [key.encode("utf-8", "surrogateescape") for key in keys]
        self._file.seek(0, 2)
        self._places[shard] = self._file.tell(), len(keys)
        lengths = np.fromiter(map(len, encoded), np.uint32, len(encoded))
        self._file.write(indexes.astype(np.uint32).tobytes() + lengths.tobytes() + b"".join(encoded))

    def read(self, shard: int, indexes: npt.NDArray[np.int64]) -> list[str]:
        """The keys of some samples of a shard."""
        offset, count = self._places[shard]
        self._file.seek(offset)
        known = np.frombuffer(self._file.read(4 * count), np.uint32)
        lengths = np.frombuffer(self._file.read(4 * count), np.uint32)
        ends = np.cumsum(lengths, dtype=np.int64)
        data = self._file.read(int(ends[-1]) if count else 0)
        places = np.searchsorted(known, indexes).tolist()
        starts, ends_of = (ends - lengths).tolist(), ends.tolist()
        return [data[starts[at] : ends_of[at]].decode("utf-8", "surrogateescape") for at in places]
