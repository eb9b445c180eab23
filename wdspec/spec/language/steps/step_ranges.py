"""Steps of a run as ranges of global batches, to be counted, cut and put together."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class StepRanges:
    """Global batches J, as ranges [first, stop) that ascend, do not overlap and do not touch."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> StepRanges:
        """Of ranges [first, stop) in any order, which may overlap."""
        joined: list[tuple[int, int]] = []
        for first, stop in sorted(ranges):
            if joined and first <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(stop, joined[-1][1])
            elif first < stop:
                joined.append((first, stop))
        return cls(tuple(joined))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, step: int) -> bool:
        return self.following(step) != step

    def __or__(self, other: StepRanges) -> StepRanges:
        """The steps of both."""
        return StepRanges.of((*self.ranges, *other.ranges)) if other else self

    def following(self, step: int) -> int:
        """The first step from this one on that is not among them."""
        at = bisect_right(self._firsts, step) - 1
        return max(step, self.ranges[at][1]) if at >= 0 else step

    def within(self, first: int, stop: int | None = None) -> StepRanges:
        """Those of them from `first` on, up to `stop`, which is not one of them."""
        cut = ((max(a, first), b if stop is None else min(b, stop)) for a, b in self.ranges)
        return StepRanges.of((a, b) for a, b in cut if a < b)

    def emptied(self, length: int) -> int | None:
        """The first epoch of so many steps all of which are among them."""
        for first, stop in self.ranges:
            epoch = -(-first // length)
            if (epoch + 1) * length <= stop:
                return epoch
        return None

    @property
    def count(self) -> int:
        """How many steps they are."""
        return sum(stop - first for first, stop in self.ranges)

    def __str__(self) -> str:
        """`1,200 to 1,260, 1,300`: as people count, with the last step of each."""
        return ", ".join(
            f"{first:,}" if stop == first + 1 else f"{first:,} to {stop - 1:,}" for first, stop in self.ranges
        )

    def as_text(self) -> str:
        """JSON text; the same for the same."""
        return json.dumps([list(each) for each in self.ranges])

    @classmethod
    def from_text(cls, text: str) -> StepRanges:
        """The inverse of `as_text`.

        Raises:
            ValueError: this is no such text.
        """
        read = cls(tuple(_pairs(json.loads(text))))
        if read != cls.of(read.ranges) or (read and read.ranges[0][0] < 0):
            raise ValueError(f"{text[:60]} are no steps in a row")
        return read

    @cached_property
    def _firsts(self) -> list[int]:
        return [first for first, _ in self.ranges]


def _pairs(value: Any) -> Iterator[tuple[int, int]]:
    if not isinstance(value, list):
        raise ValueError("this is no list")
    for first, stop in value:
        if type(first) is not int or type(stop) is not int:
            raise ValueError("these are no numbers")
        yield first, stop
