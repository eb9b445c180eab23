"""Progress bars on standard error, if it is a terminal; otherwise only notes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from wdspec.base.redaction import printable

T = TypeVar("T")


class Progress:
    """Work in progress, with a bar of rich or without one."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task = bar, task

    def advance(self, count: int = 1, **fields: Any) -> None:
        """Add to the work done; `fields` are shown in their columns."""
        if self._bar is not None:
            self._bar.update(self._task, advance=count, **fields)

    def note(self, text: str) -> None:
        """Print a line above the bar, or on standard error without a bar; unprintable characters are escaped."""
        if self._bar is not None:
            self._bar.console.print(printable(text), markup=False, highlight=False)
        else:
            print(printable(text), file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Whether to draw bars: on a terminal that can, and only for the first rank."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and os.environ.get("RANK", "0") == "0"


@contextmanager
def progress(
    what: str, total: float | None, *, drawn: bool = True, **fields: tuple[str, Any]
) -> Iterator[Progress]:
    """Show the progress of work while the context lasts.

    Args:
        what: the name of the work.
        total: its units; None if unknown.
        drawn: False for work so short that a bar would only flicker.
        fields: further columns: name -> (format of the value, the first value).
    """
    if not drawn or not is_terminal():
        yield Progress()
        return
    from rich import progress as rich
    from rich.console import Console

    columns: list[Any] = [what, rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()]
    for name, (form, _) in fields.items():
        columns.append(rich.TextColumn(form.replace("{", f"{{task.fields[{name}]", 1)))
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        first = {name: value for name, (_, value) in fields.items()}
        yield Progress(bar, bar.add_task("", total=total, **first))


def with_progress(
    items: Iterable[T], what: str, size: Callable[[T], int] = lambda item: 1, total: int | None = None
) -> Iterator[T]:
    """The items, with a bar that counts them or their sizes."""
    with progress(what, total) as bar:
        for item in items:
            yield item
            bar.advance(size(item))
