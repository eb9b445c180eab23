"""What `skip` says: steps of the run, and ranges of them with both their ends."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from wdspec.spec.language.effects import AffectsNeither
from wdspec.spec.language.model import Model
from wdspec.spec.language.steps.step_ranges import StepRanges
from wdspec.spec.language.value_types import Count, one_or_more, read_integer, read_list, refuse, text_form
from wdspec.spec.problems.message_words import quoted, shown

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
