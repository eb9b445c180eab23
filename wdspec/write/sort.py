"""Sorting more samples than fit in memory, by merging sorted runs on the disk."""

from __future__ import annotations

import heapq
import marshal
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wdspec.base.errors import FieldError

Sample = dict[str, Any]
_MOST_RUNS = 64
"""Runs to merge at a time, as each needs an open file."""
_PREFIX = 8
"""Bytes for the length of each sample in the file of a run."""


def sorted_samples(
    samples: Iterable[Sample], memory: int, order: Callable[[Sample], Any], reverse: bool = False
) -> Iterator[Sample]:
    """Sort samples by the values of `order`. The sort is stable.

    Args:
        samples: raw samples: names → bytes (or values of a record).
        memory: bytes of samples to keep in memory; more are written to files in the temporary folder.
        order: sample → sort key.
        reverse: whether the largest comes first.
    """
    with tempfile.TemporaryDirectory(prefix="wdspec-sort-") as folder:
        runs: list[str] = []
        held: list[Sample] = []
        size = 0
        for sample in samples:
            held.append(sample)
            size += 500 + sum(
                len(value) if isinstance(value, (bytes, str)) else 50 for value in sample.values()
            )
            if size > memory:
                held.sort(key=order, reverse=reverse)
                runs.append(_spill(held, folder, len(runs)))
                held, size = [], 0
        held.sort(key=order, reverse=reverse)
        level = 0
        while len(runs) > _MOST_RUNS:
            level += 1
            merged: list[str] = []
            for start in range(0, len(runs), _MOST_RUNS):
                some = map(_read_back, runs[start : start + _MOST_RUNS])
                merged.append(
                    _spill(heapq.merge(*some, key=order, reverse=reverse), folder, len(merged), level)
                )
            runs = merged
        yield from heapq.merge(*map(_read_back, runs), iter(held), key=order, reverse=reverse)


def _spill(samples: Iterable[dict[str, Any]], folder: str, number: int, level: int = 0) -> str:
    """Write samples into a file of a private folder, and return its path."""
    path = os.path.join(folder, f"{level}-{number}")
    with open(path, "wb", buffering=1 << 20) as file:
        for sample in samples:
            # marshal is for plain values only, runs no code, and is three times as fast as other formats.
            try:
                data = marshal.dumps(sample)
            except ValueError as error:
                raise FieldError(
                    "a value cannot be written to the temporary folder; increase --memory",
                    key=sample["__key__"],
                ) from error
            file.write(len(data).to_bytes(_PREFIX, "little"))
            file.write(data)
    return path


def _read_back(path: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a file that `_spill` wrote in this process, and delete it at the end."""
    with open(path, "rb", buffering=1 << 20) as file:
        while head := file.read(_PREFIX):
            yield marshal.loads(file.read(int.from_bytes(head, "little")))
    os.unlink(path)
