"""Reports: the results of commands, as values that one renderer shows as text, tables or JSON.

A report has `blocks()`: tables, warnings, problems and lines, drawn by rich on a terminal, aligned as plain text in a
pipe. Its JSON is built from its fields, or from what its `as_json()` returns.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click

from wdspec.base.amounts import LARGEST as LARGEST
from wdspec.base.amounts import MOST_ROWS as MOST_ROWS
from wdspec.base.amounts import join_names as join_names
from wdspec.base.amounts import largest_places
from wdspec.base.amounts import number as number
from wdspec.base.amounts import number_range as number_range
from wdspec.base.amounts import percent as percent
from wdspec.base.amounts import pluralize as pluralize
from wdspec.base.amounts import size as size
from wdspec.base.redaction import printable, redacted_urls
from wdspec.spec.problems import Problem

if TYPE_CHECKING:
    from rich.console import Console

_SPECIAL = re.compile(r"[\\|*_<>\[\]~]")
Row = tuple[str, ...]
T = TypeVar("T")


class Table(NamedTuple):
    """Rows of text under headings.

    Cells may hold anything: characters that cannot be printed are escaped. A heading that ends in ``>`` (not shown)
    marks a column of numbers, which is aligned to the right and never broken.
    """

    headings: Row
    """Empty for a table without headings."""
    rows: Sequence[Row | None]
    """None is a gap between groups of rows."""
    title: str = ""
    faint: frozenset[int] = frozenset()
    """Rows to draw dimmed."""

    def of_largest(self, sizes: Sequence[float], named: Collection[str] = (), part: str = "") -> Table:
        """The same table if it is short; else the largest rows, and others with their number in the last row.

        Args:
            sizes: how large each row is.
            named: rows with one of these texts in their first cell are shown, too.
            part: the heading of a column in which the last row has the part of the other rows in all sizes.
        """
        if len(self.rows) <= MOST_ROWS:
            return self
        others = (place for place, row in enumerate(self.rows) if row and row[0].strip() in named)
        places = largest_places(sizes, others)
        more = f"… and {len(self.rows) - len(places):,} more, in --format json"
        rest = 1 - sum(sizes[place] for place in places) / (sum(sizes) or 1)
        last = (more, *(percent(rest) if heading == part else "" for heading in self.headings[1:]))
        faint = frozenset(new for new, place in enumerate(places) if place in self.faint) | {len(places)}
        return self._replace(rows=[*(self.rows[place] for place in places), last], faint=faint)

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The heading of each column as shown, and whether it is aligned to the right."""
        if self.headings:
            return [(name.removesuffix(">"), name.endswith(">")) for name in self.headings]
        width = next((len(row) for row in self.rows if row is not None), 0)
        return [("", False)] * width


def table_of(items: Iterable[T], columns: Mapping[str, Callable[[T], str]], title: str = "") -> Table:
    """Build a table with a row for each item; `columns` maps headings to the functions that make the cells."""
    cells = list(columns.values())
    return Table(tuple(columns), [tuple(cell(item) for cell in cells) for item in items], title)


class Warning(NamedTuple):
    """A line of advice."""

    text: str


Block = Table | Warning | Problem | str
"""A part of a report; a `str` is a line or a paragraph."""


class Report(Protocol):
    """The result of a command."""

    def blocks(self) -> Iterable[Block]:
        """The parts of the text. A report may also have `as_json()`, the values of its JSON."""
        ...


def chart_text(text: str) -> str:
    """Text for matplotlib, which takes what is between two `$` for a formula."""
    return text.replace("$", r"\$")


def show_report(report: Report, form: str) -> None:
    """Print a report as JSON, as Markdown, or as text."""
    if form == "json":
        print_json(report)
    elif form == "markdown":
        click.echo(to_markdown(report.blocks()))
    else:
        show(*report.blocks())


def show(*blocks: Block) -> None:
    """Print blocks, with an empty line around each table."""
    console = None
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")
    before: Block | None = None
    for block in blocks:
        if before is not None and (isinstance(block, Table) or isinstance(before, Table)):
            click.echo()
        if console is not None:
            _draw(block, console)
        else:
            for line in _lines(block):
                click.echo(line)
        before = block


def _align(table: Table) -> list[str]:
    """The lines of a table as plain text: columns two spaces apart, nothing cut, no trailing spaces."""
    from rich.cells import cell_len

    columns = table.columns
    rows = [row if row is None else tuple(map(printable, row)) for row in table.rows]
    if table.headings:
        rows.insert(0, tuple(name for name, _ in columns))
    widths = [max(map(cell_len, column)) for column in zip(*filter(None, rows), strict=True)]
    lines = [printable(table.title)] if table.title else []
    for row in rows:
        cells = []
        for cell, width, (_, flush_right) in zip(row or (), widths, columns, strict=False):
            padding = " " * (width - cell_len(cell))
            cells.append(padding + cell if flush_right else cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines


def _lines(block: Block) -> list[str]:
    if isinstance(block, Table):
        return _align(block)
    if isinstance(block, Problem):
        return [show_problem(block)]
    text = f"warning: {block.text}" if isinstance(block, Warning) else block
    return [printable(line) for line in text.split("\n")]


def one_line(problem: Problem) -> str:
    """Advice as one line: `spec.yaml:2:5: W508 message; hint`."""
    where = f"{problem.position}: " if problem.line else ""
    return f"{where}{problem.code} {'; '.join(filter(None, (problem.message, problem.hint)))}"


def show_problem(problem: Problem) -> str:
    """The problem as text; in colour on a terminal, unless NO_COLOR is set."""
    text = str(problem)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    colour = "red" if problem.is_error else "yellow"
    first, *rest = text.split("\n")
    place, _, message = first.partition(f": {problem.code} ")
    lines = [f"{click.style(place, bold=True)}: {click.style(problem.code, fg=colour, bold=True)} {message}"]
    for line in rest:
        margin, bar, content = line.partition(" | ")
        if bar:
            is_carets = set(content.strip()) == {"^"} and not margin.strip()
            content = click.style(content, fg=colour) if is_carets else content
            lines.append(click.style(margin + bar, fg="blue") + content)
        else:
            before, equals, hint = line.partition(" = ")
            lines.append(click.style(before + equals, fg="blue") + hint)
    return "\n".join(lines)


def _draw(block: Block, console: Console) -> None:
    from rich.text import Text

    if isinstance(block, Table):
        _draw_table(block, console)
    elif isinstance(block, Warning):
        console.print(Text.assemble(("warning: ", "yellow"), printable(block.text)))
    elif isinstance(block, Problem):
        click.echo(show_problem(block))
    else:
        for line in _lines(block):
            console.print(Text(line))


def _draw_table(table: Table, console: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    has_headings = bool(table.headings)
    if table.title:
        console.print(Text(printable(table.title), style="bold"))
    drawn = RichTable(
        box=box.SIMPLE_HEAD if has_headings else None,
        show_header=has_headings,
        show_edge=False,
        pad_edge=False,
        header_style="bold cyan",
        padding=(0, 1 if has_headings else 2, 0, 0),
    )
    for place, (name, flush_right) in enumerate(table.columns):
        drawn.add_column(
            Text(name),
            justify="right" if flush_right else "left",
            no_wrap=flush_right,
            overflow="fold",
            style=None if has_headings or place else "bold",
        )
    for place, row in enumerate(table.rows):
        if row is None:
            drawn.add_row()
        else:
            style = "dim" if place in table.faint else None
            drawn.add_row(*(Text(printable(cell)) for cell in row), style=style)
    console.print(drawn)


def to_markdown(blocks: Iterable[Block]) -> str:
    """Render blocks as Markdown for a comment on GitHub."""
    return "\n\n".join(map(_in_markdown, blocks))


def _in_markdown(block: Block) -> str:
    if isinstance(block, Table):
        if not block.headings:
            return "\n".join(
                [f"**{_escape(block.title)}**", "", *(f"- {_escape(row[0])}" for row in block.rows if row)]
            )
        lines = [f"**{_escape(block.title)}**", ""] if block.title else []
        lines.append("| " + " | ".join(heading.removesuffix(">") for heading in block.headings) + " |")
        lines.append(
            "|" + "|".join("--:" if heading.endswith(">") else "--" for heading in block.headings) + "|"
        )
        lines += ["| " + " | ".join(map(_escape, row)) + " |" for row in block.rows if row is not None]
        return "\n".join(lines)
    return f"> ⚠ {_escape(block.text)}" if isinstance(block, Warning) else _escape(str(block))


def _escape(text: str) -> str:
    """Escape all markup except backquotes, which our messages put around names."""
    pieces = printable(text).split("`")
    plain = [_SPECIAL.sub(r"\\\g<0>", piece) for piece in pieces[::2]]
    code = [piece.replace("|", r"\|") for piece in pieces[1::2]]
    pieces[::2], pieces[1::2] = plain, code
    marked = "`".join(pieces)
    return marked.replace("  ", "&nbsp;&nbsp;") if marked.startswith("  ") else marked


def print_json(document: Any) -> None:
    """Print a report, or other values, as JSON. Secrets in URLs are removed, since outputs end up in logs."""
    click.echo(json.dumps(to_json(document), indent=2))


def to_json(value: Any) -> Any:
    """Convert a value to JSON values: dataclasses and named tuples to their `as_json()`, or their fields."""
    if hasattr(value, "as_json"):
        return to_json(value.as_json())
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(each) for each in value]
    return redacted_urls(value) if isinstance(value, str) else value
