"""Which samples of a source are read: `where`, `subset`, `keys` and `exclude`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from wdspec.spec.language import values
from wdspec.spec.language.effects import AffectsOrder
from wdspec.spec.problems import describe, quote

_PERCENT = re.compile(r"\s*(\d{1,3}(?:\.\d{1,15})?)\s*%\s*")
_FORMS = "write a fraction such as `10%`, or a range such as `[95%, 100%]`"

Part = tuple[Decimal, Decimal]
"""The fractions at which a part starts and ends, from 0 to 1."""


def read_part(value: Any) -> Any:
    """Read `10%`, `0.1`, `[95%, 100%]` or `[0.95, 1]`: from 0 to 1, in order, not empty."""
    ends = value if isinstance(value, (list, tuple)) else (0, value)
    if len(ends) != 2:
        values.refuse("E210", f"a range has two ends, but this list has {len(ends)} items", _FORMS)
    start, stop = map(_read_fraction, ends)
    if start >= stop:
        found = f"{describe_fraction(start)} to {describe_fraction(stop)}"
        hint = f"write `[{describe_fraction(stop)}, {describe_fraction(start)}]`" if start > stop else _FORMS
        values.refuse("E210", f"no sample is in the range from {found}", hint)
    return start, stop


def _read_fraction(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
        fraction = Decimal(percent[1]) / 100
    elif isinstance(value, (dict, list, tuple)):
        values.refuse("E202", f"expected a part of the samples, but this is {describe(value)}", _FORMS)
    else:
        fraction = Decimal(str(values.read_number(value)))
    if not 0 <= fraction <= 1:
        is_percentage = not isinstance(value, str) and 1 < fraction <= 100
        meant = f"write `{value}%`" if is_percentage else _FORMS
        values.refuse("E210", f"{quote(str(value))} is not a part of the samples", meant)
    return fraction


def describe_fraction(fraction: Decimal) -> str:
    """Return a fraction in percent, such as `12.5%`."""
    return f"{(fraction * 100).normalize():f}%"


_END = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, values.text_form(r"\s*\d+(\.\d+)?\s*%?\s*")]
}
_PART = {"anyOf": [*_END["anyOf"], {"type": "array", "items": _END, "minItems": 2, "maxItems": 2}]}


class Subset(values.Model):
    """A part of the samples of a source, chosen by a hash."""

    part: AffectsOrder[Annotated[Part, BeforeValidator(read_part), WithJsonSchema(_PART)]] = Field(
        description="How much to keep: `10%` is the part from 0 to 10%, `[95%, 100%]` the last 5%. Parts that do not "
        "overlap have no sample in common, and 10% is a part of 20%."
    )
    of: AffectsOrder[values.Text | None] = Field(
        None,
        description="A field, or a value in it, such as `json.user`: samples with the same value are kept or left out "
        "together. By default the key of the sample.",
    )
    seed: AffectsOrder[values.Seed] = Field(0, description="A different number selects different samples.")


def read_subset(value: Any) -> Any:
    """Read a part, or a map with `part`."""
    return value if isinstance(value, (dict, Subset)) else {"part": value}


SubsetOrNone = Annotated[Subset, BeforeValidator(read_subset)] | None


MOST_REPEATS = 1000


def read_repeat(value: Any) -> Any:
    """Read how often a pass reads each sample: above 0, at most `MOST_REPEATS`; exactly as it is written."""
    if isinstance(value, Decimal):
        return value
    number = Decimal(str(values.read_number(value)))
    if not 0 < number <= MOST_REPEATS:
        hint = f"write a number above 0 and up to {MOST_REPEATS:,}, such as `2` or `2.5`"
        values.refuse("E210", f"samples cannot be read {number:f} times in a pass", hint)
    return number


Repeat = Annotated[
    Decimal,
    BeforeValidator(read_repeat),
    WithJsonSchema(values.real_form(exclusiveMinimum=0, maximum=MOST_REPEATS)),
]
