"""Progress bars on standard error, where that is a terminal; elsewhere nothing but the notes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from wdspec.redaction import printable

T = TypeVar("T")


class Progress(Protocol):
    """Work under way."""

    def advance(self, count: int = 1, **fields: Any) -> None:
        """So much more is done; `fields` are shown in the columns made for them."""

    def note(self, text: str) -> None:
        """Prints a line above the bar, or on standard error where there is none; what cannot be printed is escaped."""


class _Silent:
    def advance(self, count: int = 1, **fields: Any) -> None:
        pass

    def note(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)


class _Bar:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def advance(self, count: int = 1, **fields: Any) -> None:
        self._bar.update(self._task, advance=count, **fields)

    def note(self, text: str) -> None:
        self._bar.console.print(printable(text), markup=False, highlight=False)


def is_terminal() -> bool:
    """Whether bars are drawn: a terminal that can, and of several ranks the first."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and os.environ.get("RANK", "0") == "0"


@contextmanager
def progress(
    what: str, total: float | None, *, drawn: bool = True, **fields: tuple[str, Any]
) -> Iterator[Progress]:
    """Shows how far work is, while the context lasts.

    Args:
        what: names the work.
        total: units of it; None where that is not known.
        drawn: False for work so short that a bar would only flicker.
        fields: further columns: name -> (format of the value, the first value).
    """
    if not drawn or not is_terminal():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    texts = [TextColumn(form.replace("{", f"{{task.fields[{name}]", 1)) for name, (form, _) in fields.items()]
    columns: tuple[Any, ...] = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), *texts)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task("", total=total, **{name: first for name, (_, first) in fields.items()}))


def with_progress(items: Iterable[T], what: str, size: Callable[[T], int] = lambda item: 1) -> Iterator[T]:
    """The items, with a bar that counts them, or their sizes."""
    with progress(what, None) as bar:
        for item in items:
            yield item
            bar.advance(size(item))
