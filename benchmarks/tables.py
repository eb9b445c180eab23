"""A table of figures and their targets, as lines of markdown, or as JSON for the page of all tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A bound on a figure."""

    what: str
    """Of what, in words."""
    found: float
    bound: float
    least: bool = True
    """Whether more is better."""
    unit: str = "x"
    why: str = ""
    """What keeps it, as a profile shows; said where it is not met."""

    @property
    def met(self) -> bool:
        return self.found >= self.bound if self.least else self.found <= self.bound

    def cells(self) -> list[str]:
        sign = "≥" if self.least else "≤"
        return [
            self.what,
            f"{sign} {self.bound:g}{self.unit}",
            f"{_short(self.found)}{self.unit}",
            "met" if self.met else "**not met**",
        ]


@dataclass(frozen=True)
class Table:
    """Columns, of which the first says what a line is about."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    asked: Sequence[Asked] = field(default_factory=list)

    def markdown(self) -> list[str]:
        return [f"{self.title}:", "", *grid(self.columns, self.lines)]

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Table:
        return cls(data["title"], data["columns"], data["lines"], [Asked(**each) for each in data["asked"]])


def grid(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table in markdown, figures to the right."""
    return [
        f"| {' | '.join(columns)} |",
        "|--|" + "--:|" * (len(columns) - 1),
        *(f"| {' | '.join(line)} |" for line in lines),
    ]


def show(tables: Callable[[bool], Iterator[Table]], doc: str | None) -> None:
    """The program of a script that makes tables: `tables(quick)`."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="next to nothing: checks that it runs")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each table")
    options = parser.parse_args()
    for table in tables(options.quick):
        if options.json:
            print(json.dumps(asdict(table)), flush=True)
            continue
        asked = grid(["figure", "target", "measured", ""], [each.cells() for each in table.asked])
        print("\n".join([*table.markdown(), *(["", *asked] if table.asked else []), ""]), flush=True)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
