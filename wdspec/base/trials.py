"""Whether the first samples fit what the spec says of them: a run warns once if they do not.

A spec can be wrong in a way that no single sample shows: a misspelled field that samples may lack, or another format of
boxes. What sees the values holds a `Trial`, and notes for each sample whether it fits. `collect` makes `check`,
`explain` and `head` give the same messages for the few samples that they read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from wdspec.base.errors import warn_user

SAMPLES = 20
"""Samples after which a run warns."""
FEWEST = 3
"""Fewer samples are too few to judge by."""


@dataclass
class _Count:
    """The samples of a trial, and what does not fit in them."""

    samples: int = 0
    wrong: Counter[str] = field(default_factory=Counter)


current_source: ContextVar[str] = ContextVar("current_source", default="")
"""The name of the source whose sample is made, for warnings of a run."""


class Trial:
    """Counts the first samples that do not fit, and warns once.

    Args:
        describe: (samples, what did not fit in them → how many) → the message.
        least: the part of the samples that do not fit, from which on to warn.
    """

    def __init__(self, describe: Callable[[int, Counter[str]], str], least: float = 1.0) -> None:
        self._describe, self._least = describe, least
        self._count = _Count()

    @property
    def is_over(self) -> bool:
        """Whether samples no longer count."""
        return self._count.samples >= SAMPLES and _collected.get() is None

    @property
    def has_fit(self) -> bool:
        """Whether one of the first samples fits."""
        count = self._count if (collected := _collected.get()) is None else collected.get(self, self._count)
        return count.samples > count.wrong.total()

    def note(self, wrong: str | None) -> None:
        """Note a sample, and what does not fit in it; None if it fits."""
        if self.is_over:
            return
        collected = _collected.get()
        count = self._count if collected is None else collected.setdefault(self, _Count())
        count.samples += 1
        if wrong is not None:
            count.wrong[wrong] += 1
        if collected is None and count.samples == SAMPLES and (message := self.judge(count)):
            warn_user(f"`{source}`: {message}" if (source := current_source.get()) else message)

    def judge(self, count: _Count) -> str:
        """Return the message about some samples; empty if enough of them fit."""
        is_wrong = count.samples >= FEWEST and count.wrong.total() >= self._least * count.samples
        return self._describe(count.samples, count.wrong) if is_wrong else ""


_collected: ContextVar[dict[Trial, _Count] | None] = ContextVar("collected", default=None)


@contextmanager
def collect() -> Iterator[list[str]]:
    """Count the samples that are read meanwhile apart, without warnings; at the end, the list gets the messages."""
    messages: list[str] = []
    counts: dict[Trial, _Count] = {}
    token = _collected.set(counts)
    try:
        yield messages
    finally:
        _collected.reset(token)
        messages += dict.fromkeys(filter(None, (trial.judge(count) for trial, count in counts.items())))
