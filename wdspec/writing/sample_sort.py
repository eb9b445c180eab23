"""Samples in the order of their keys, however many there are: sorted runs on the disk, merged."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wdspec.writing.spilling import read_back, spill

Sample = dict[str, Any]
_MOST_RUNS = 64
"""Runs merged at a time: each needs an open file."""


def sorted_samples(
    samples: Iterable[Sample], memory: int, order: Callable[[Sample], Any], reverse: bool = False
) -> Iterator[Sample]:
    """The samples in the order of `order`; equal ones keep their order.

    Args:
        samples: raw samples: names → bytes (or values that a record holds).
        memory: bytes of samples that are held at a time; more are put into files in the temporary folder.
        order: sample → what to sort by.
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
                runs.append(spill(held, folder, len(runs)))
                held, size = [], 0
        held.sort(key=order, reverse=reverse)
        level = 0
        while len(runs) > _MOST_RUNS:
            level += 1
            merged: list[str] = []
            for start in range(0, len(runs), _MOST_RUNS):
                some = map(read_back, runs[start : start + _MOST_RUNS])
                merged.append(
                    spill(heapq.merge(*some, key=order, reverse=reverse), folder, len(merged), level)
                )
            runs = merged
        yield from heapq.merge(*map(read_back, runs), iter(held), key=order, reverse=reverse)
