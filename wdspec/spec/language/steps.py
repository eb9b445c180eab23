"""Ranges of steps (global batches): what `skip` names, and how ranges are counted, cut and joined."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from wdspec.spec.language.values import Count, Model, one_or_more, read_integer, read_list, refuse, text_form
from wdspec.spec.problems import describe, quote


@dataclass(frozen=True)
class StepRanges:
    """Steps J as ranges [first, stop), in order, that neither overlap nor touch."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> StepRanges:
        """Join ranges [first, stop) that may be in any order and overlap."""
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
        """The first step that is not in the ranges, from this one on."""
        at = bisect_right(self._firsts, step) - 1
        return max(step, self.ranges[at][1]) if at >= 0 else step

    def within(self, first: int, stop: int | None = None) -> StepRanges:
        """The steps from `first` up to, but not including, `stop`."""
        cut = ((max(a, first), b if stop is None else min(b, stop)) for a, b in self.ranges)
        return StepRanges.of((a, b) for a, b in cut if a < b)

    def emptied(self, length: int) -> int | None:
        """The first epoch whose steps are all in the ranges; `length` is the number of steps of an epoch."""
        for first, stop in self.ranges:
            epoch = -(-first // length)
            if (epoch + 1) * length <= stop:
                return epoch
        return None

    @property
    def count(self) -> int:
        """The number of steps."""
        return sum(stop - first for first, stop in self.ranges)

    def __str__(self) -> str:
        """`1,200 to 1,260, 1,300`, with the last step of each range."""
        return ", ".join(
            f"{first:,}" if stop == first + 1 else f"{first:,} to {stop - 1:,}" for first, stop in self.ranges
        )

    def as_text(self) -> str:
        """JSON text; equal ranges have equal texts."""
        return json.dumps([list(each) for each in self.ranges])

    @classmethod
    def from_text(cls, text: str) -> StepRanges:
        """The inverse of `as_text`.

        Raises:
            ValueError: this is not such a text.
        """
        read = cls(tuple(_pairs(json.loads(text))))
        if read != cls.of(read.ranges) or (read and read.ranges[0][0] < 0):
            raise ValueError(f"{text[:60]} are not ranges in order")
        return read

    @cached_property
    def _firsts(self) -> list[int]:
        return [first for first, _ in self.ranges]


def _pairs(value: Any) -> Iterator[tuple[int, int]]:
    if not isinstance(value, list):
        raise ValueError("this is not a list")
    for first, stop in value:
        if type(first) is not int or type(stop) is not int:
            raise ValueError("these are not numbers")
        yield first, stop


_NUMBER = "[0-9]{1,18}(_[0-9]{1,18}){0,9}"
_FORM = re.compile(rf"\s*({_NUMBER})\s*(?:\.\.\s*({_NUMBER})\s*)?")
_MEANT = re.compile(rf"\s*({_NUMBER})\s*(?:-|–|:|,|…|\.{{3,}}|to)\s*({_NUMBER})\s*")
_HINT = "write a step, such as `1200`, or a range with both ends, such as `1200..1260`"


class StepRange(Model):
    """Consecutive steps."""

    first: Count
    """The first one."""
    last: Count
    """The last one."""


def read_step_range(value: Any) -> Any:
    """Read `1200`, or `1200..1260`, which is 61 steps."""
    if isinstance(value, StepRange):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        hint = (
            _HINT
            if not isinstance(value, bool)
            else "to skip samples that cannot be read, write `errors: skip`"
        )
        refuse("E202", f"expected a range of steps, but this is {describe(value)}", hint)
    if not isinstance(value, str):
        step = read_integer(value)
        if step < 0:
            refuse("E217", f"there is no step {step}", "steps are numbered from 0, as in `wdspec batch`")
        return {"first": step, "last": step}
    match = _FORM.fullmatch(value)
    if match is None:
        meant = _MEANT.fullmatch(value)
        hint = _HINT
        if meant is not None:
            ends = sorted((meant[1], meant[3]), key=int)
            hint = f"write `{'..'.join(ends)}`"
        refuse("E217", f"{quote(value)} is not a range of steps", hint)
    first, last = int(match[1]), int(match[3] or match[1])
    if last < first:
        refuse("E217", f"the range {quote(value.strip())} is backwards", f"write `{last}..{first}`")
    return {"first": first, "last": last}


_STEP = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        text_form(rf"\s*{_NUMBER}\s*(\.\.\s*{_NUMBER}\s*)?"),
    ]
}
SkippedSteps = Annotated[
    tuple[Annotated[StepRange, BeforeValidator(read_step_range)], ...],
    Field(min_length=1),
    BeforeValidator(read_list),
    one_or_more(_STEP, ["1200..1260"]),
]
