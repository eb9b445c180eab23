"""How commands show what they found: tables by rich on a terminal, plain aligned text in a pipe.

The JSON that commands print for other programs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wdspec.base.redaction import printable, redacted_urls

if TYPE_CHECKING:
    from rich.console import Console


Row = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """Rows of text under headings.

    Cells may hold anything: what cannot be printed is escaped when shown. A heading that ends in ``>`` (not
    shown) marks a column of numbers, which is set flush right and never broken.
    """

    headings: Row
    """Empty for a table that needs none."""
    rows: Sequence[Row | None]
    """None is a gap between groups of rows."""
    title: str = ""
    faint: frozenset[int] = frozenset()
    """Rows that matter less."""


def table_of(items: Iterable[T], columns: Mapping[str, Callable[[T], str]], title: str = "") -> Table:
    """A table with a row for each item: under each heading what its function makes of the item."""
    cells = list(columns.values())
    return Table(tuple(columns), [tuple(cell(item) for cell in cells) for item in items], title)


@dataclass(frozen=True)
class Warning:
    """A line of advice."""

    text: str


Part = Table | Warning | str
"""What a report is made of; a `str` is a line or a paragraph."""


def show(*parts: Part) -> None:
    """Prints the parts with an empty line around each table."""
    console = None
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")
    before: Part | None = None
    for part in parts:
        if before is not None and (isinstance(part, Table) or isinstance(before, Table)):
            click.echo()
        if console is not None:
            _draw(part, console)
        else:
            for line in _lines(part):
                click.echo(line)
        before = part


def aligned(table: Table) -> list[str]:
    """The lines of a table as plain text: columns two blanks apart, nothing cut, no blanks at the end."""
    from rich.cells import cell_len

    rows = [row if row is None else tuple(map(printable, row)) for row in table.rows]
    headings, flush_right = _columns(table)
    everything = [row for row in (headings or None, *rows) if row is not None]
    widths = [max(map(cell_len, column)) for column in zip(*everything, strict=True)]
    lines = [printable(table.title)] if table.title else []
    for row in (headings, *rows) if headings else rows:
        cells = []
        for number, cell in enumerate(row or ()):
            padding = " " * (widths[number] - cell_len(cell))
            cells.append(padding + cell if flush_right[number] else cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines


def _lines(part: Part) -> list[str]:
    if isinstance(part, Table):
        return aligned(part)
    text = f"warning: {part.text}" if isinstance(part, Warning) else part
    return [printable(line) for line in text.split("\n")]


def _draw(part: Part, console: Console) -> None:
    from rich.text import Text

    if isinstance(part, Table):
        _draw_table(part, console)
    elif isinstance(part, Warning):
        console.print(Text.assemble(("warning: ", "yellow"), printable(part.text)))
    else:
        for line in _lines(part):
            console.print(Text(line))


def _draw_table(table: Table, console: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    headings, flush_right = _columns(table)
    if table.title:
        console.print(Text(printable(table.title), style="bold"))
    drawn = RichTable(
        box=box.SIMPLE_HEAD if headings else None,
        show_header=bool(headings),
        show_edge=False,
        pad_edge=False,
        header_style="bold cyan",
        padding=(0, 1 if headings else 2, 0, 0),
    )
    for number, right in enumerate(flush_right):
        name = headings[number] if headings else ""
        drawn.add_column(
            Text(name),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
            style=None if headings or number else "bold",
        )
    for number, row in enumerate(table.rows):
        if row is None:
            drawn.add_row()
        else:
            style = "dim" if number in table.faint else None
            drawn.add_row(*(Text(printable(cell)) for cell in row), style=style)
    console.print(drawn)


def _columns(table: Table) -> tuple[Row, list[bool]]:
    """The headings as shown, and for each column whether it is flush right."""
    if table.headings:
        return tuple(name.removesuffix(">") for name in table.headings), [
            name.endswith(">") for name in table.headings
        ]
    width = next((len(row) for row in table.rows if row is not None), 0)
    return (), [False] * width


def number(value: float) -> str:
    """A count or an amount: `1,797`, `12.5`, `0.031`."""
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share: `40.00 %`, `0.013 %`."""
    return f"{100 * share:.2f} %" if share >= 0.001 or not share else f"{100 * share:.2g} %"


def size(count: float) -> str:
    """An amount of bytes: `812 B`, `1.4 kB`, `3.2 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 shard`, `1,024 shards`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Iterable[str], most: int = 4) -> str:
    """`a, b, c` or, of many, `a, b, c, d and 96 more`."""
    rest = list(names)
    shown = ", ".join(islice(rest, most))
    return shown if len(rest) <= most else f"{shown} and {len(rest) - most} more"


def print_json(document: Any) -> None:
    """Prints a document, without the secrets of the URLs in it: what commands print ends up in logs."""
    click.echo(json.dumps(without_secrets(document), indent=2))


def without_secrets(value: Any) -> Any:
    """The same with its texts redacted: before it is written as JSON or cut, since both hide where a secret ends."""
    if isinstance(value, str):
        return redacted_urls(value)
    if isinstance(value, dict):
        return {name: without_secrets(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(each) for each in value]
    return value
