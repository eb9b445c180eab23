"""Steps of a run as ranges of global batches, to be counted, cut and put together.

What `skip` says: steps of the run, and ranges of them with both their ends.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from wdspec.spec.language.effects import AffectsNeither
from wdspec.spec.language.values import Count, Model, one_or_more, read_integer, read_list, refuse, text_form
from wdspec.spec.problems import quoted, shown


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


_NUMBER = "[0-9]{1,18}(_[0-9]{1,18}){0,9}"
_FORM = re.compile(rf"\s*({_NUMBER})\s*(?:\.\.\s*({_NUMBER})\s*)?")
_MEANT = re.compile(rf"\s*({_NUMBER})\s*(?:-|–|:|,|…|\.{{3,}}|to)\s*({_NUMBER})\s*")
_HINT = "write a step, such as `1200`, or a range with both its ends, such as `1200..1260`"


class StepRange(Model):
    """Global batches in a row."""

    first: Count
    """J of the first one."""
    last: Count
    """J of the last one."""


def read_step_range(value: Any) -> Any:
    """`1200`, or `1200..1260`, which is 61 steps."""
    if isinstance(value, StepRange):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        hint = _HINT if not isinstance(value, bool) else "to skip what cannot be read, write `errors: skip`"
        refuse("E202", f"expected a range of steps, but this is {shown(value)}", hint)
    if not isinstance(value, str):
        step = read_integer(value)
        if step < 0:
            refuse("E217", f"there is no step {step}", "steps are counted from 0, as `wdspec batch` does")
        return {"first": step, "last": step}
    match = _FORM.fullmatch(value)
    if match is None:
        meant = _MEANT.fullmatch(value)
        hint = _HINT
        if meant is not None:
            ends = sorted((meant[1], meant[3]), key=int)
            hint = f"write `{'..'.join(ends)}`"
        refuse("E217", f"{quoted(value)} is no range of steps", hint)
    first, last = int(match[1]), int(match[3] or match[1])
    if last < first:
        refuse("E217", f"the range {quoted(value.strip())} runs backwards", f"write `{last}..{first}`")
    return {"first": first, "last": last}


def steps_in(skip: Iterable[StepRange]) -> StepRanges:
    """The steps that `skip` names."""
    return StepRanges.of((each.first, each.last + 1) for each in skip)


_STEP = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        text_form(rf"\s*{_NUMBER}\s*(\.\.\s*{_NUMBER}\s*)?"),
    ]
}
# Not the order: what is delivered besides comes as it would have.
SkippedSteps = AffectsNeither[
    Annotated[
        tuple[Annotated[StepRange, BeforeValidator(read_step_range)], ...],
        Field(min_length=1),
        BeforeValidator(read_list),
        one_or_more(_STEP, ["1200..1260"]),
    ]
]
