"""Numbers, amounts and lists of names as text, for messages and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from math import log10
from typing import TypeVar

N = TypeVar("N", int, float)

MOST_ROWS = 60
"""A table with a row for each source that is longer shows the `LARGEST` sources only."""
LARGEST = 20


def largest_places(sizes: Sequence[float], others: Iterable[int] = ()) -> list[int]:
    """Return the places of the rows to show: all of a few; else the largest, and some others of importance."""
    if len(sizes) <= MOST_ROWS:
        return list(range(len(sizes)))
    largest = sorted(range(len(sizes)), key=lambda place: -sizes[place])[:LARGEST]
    return sorted({*largest, *islice(others, LARGEST)})


def sum_known(numbers: Iterable[N | None]) -> N | None:
    """The sum; None if a number is unknown."""
    known = list(numbers)
    return None if None in known else sum(each for each in known if each is not None)


def number(value: float) -> str:
    """Format a count or an amount: `1,797`, `12.5`, `0.031`."""
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def number_range(low: float, high: float) -> str:
    """Format a range: `12`, `900 to 1,000`."""
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def percent(share: float) -> str:
    """Format a share: `40.00%`, `0.013%`."""
    return f"{100 * share:.2f}%" if share >= 0.001 or not share else f"{100 * share:.2g}%"


def size(count: float) -> str:
    """Format an amount of bytes: `812 B`, `1.4 kB`, `3.2 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"


def show_value(value: object, most: int = 60) -> str:
    """Show a value from data, in at most so many characters of `repr`. Data may have values that have none."""
    try:
        text = repr(value)
    except Exception:  # thousands of digits, or very deep lists
        if not isinstance(value, int):
            return f"a {type(value).__name__}"
        return f"an integer of about {round(value.bit_length() * log10(2)):,} digits"
    return text if len(text) <= most else f"{text[:most]}…"


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: `1 shard`, `1,024 shards`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def join_names(names: Iterable[str], most: int = 4) -> str:
    """List names: `a, b, c`, or `a, b, c, d and 96 more`."""
    rest = list(names)
    shown = ", ".join(islice(rest, most))
    return shown if len(rest) <= most else f"{shown} and {len(rest) - most} more"
