"""Hashes of very many samples, in a temporary file: which are alike is found in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.checking.shards.shard_facts import Hashes, ShardFacts

MOST_AT_ONCE = 1 << 24
"""Hashes that are sorted at a time, about 400 MB with their positions; of more, those that begin alike."""
_CHUNK = 1 << 22

Positions = npt.NDArray[np.int64]


class Alike(NamedTuple):
    """Pairs of samples with one hash, neighbours in the order of hash and position."""

    first: Positions
    """Positions in the file, shape (pairs,), each before the one beside it in"""
    second: Positions


class HashFile:
    """Hashes by position, in the order in which they were added. A context manager: the file goes with it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="wdspec-check-")  # noqa: SIM115 - closed by __exit__
        self.count = 0

    def __enter__(self) -> HashFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, hashes: Hashes) -> range:
        """Adds the hashes of one shard; returns their positions."""
        self._file.write(hashes.tobytes())
        self.count += len(hashes)
        return range(self.count - len(hashes), self.count)

    def alike(self, most: int = MOST_AT_ONCE) -> Iterator[Alike]:
        """All neighbours with one hash; 0 is none. A hash of n samples gives n - 1 pairs.

        Args:
            most: hashes that are sorted at a time.
        """
        if not self.count:
            return
        self._file.flush()
        hashes = np.memmap(self._file, np.uint64, "r", shape=(self.count,))
        parts = 1 << max(0, (-(-self.count // most) - 1).bit_length())
        shift = np.uint64(64 - (parts.bit_length() - 1))
        for part in range(parts):
            found: list[Hashes] = []
            places: list[Positions] = []
            for at in range(0, self.count, _CHUNK):
                chunk = np.asarray(hashes[at : at + _CHUNK])
                wanted = chunk != 0
                if parts > 1:
                    wanted &= (chunk >> shift) == part
                found.append(chunk[wanted])
                places.append(np.flatnonzero(wanted) + at)
            values, positions = np.concatenate(found), np.concatenate(places)
            order = np.argsort(values, kind="stable")
            values, positions = values[order], positions[order]
            same = np.flatnonzero(values[1:] == values[:-1])
            if len(same):
                yield Alike(positions[same], positions[same + 1])


class HashSpool:
    """Keeps the hashes of shards in a temporary file until all are there. A context manager: the file goes with it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="wdspec-check-")  # noqa: SIM115 - closed by __exit__
        self._held: list[tuple[ShardFacts, str, int, int]] = []
        self._count = 0

    def __enter__(self) -> HashSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, facts: ShardFacts) -> None:
        """Takes the hashes of a shard out of memory."""
        for name in ("keys", "contents", "looks"):
            hashes = getattr(facts, name)
            if len(hashes):
                self._file.write(hashes.tobytes())
                self._held.append((facts, name, self._count, len(hashes)))
                self._count += len(hashes)
                setattr(facts, name, hashes[:0].copy())

    def give_back(self) -> None:
        """Gives every shard its hashes again, as parts of the file."""
        if self._count:
            self._file.flush()
            stored = np.memmap(self._file, np.uint64, "r", shape=(self._count,))
            for facts, name, start, count in self._held:
                setattr(facts, name, stored[start : start + count])
