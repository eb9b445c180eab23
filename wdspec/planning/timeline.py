"""The timeline: which steps a stream has, as pure arithmetic. Everything about epochs and ends is asked here.

    epoch 0          epoch 1          epoch 2
    |────────────────|──── ✂✂✂ ───────|─────■                 ✂ skipped      ■ `on_exhausted: stop`
    J: 0 1 2 …       E                2E    stop

Steps are counted across epochs, and the count is never reset. A skipped step is part of its epoch and yields nothing.
If all remaining steps of an epoch are skipped, an iteration that starts there reads the next epoch, so that it is not
empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wdspec.spec.language.steps import StepRanges

NO_STEPS = StepRanges()


class EpochSpan(NamedTuple):
    """One epoch."""

    number: int
    """From 0."""
    first: int
    """J of its first step."""
    end: int
    """J of the step after its last one."""


@dataclass(frozen=True)
class Timeline:
    """The steps of a stream: where epochs start and end, and where the stream stops."""

    epoch_steps: int | None = None
    """E: steps of an epoch; None for an endless stream."""
    stop: int | None = None
    """J of the first step that `on_exhausted: stop` leaves out; None if the stream does not stop."""
    is_pass: bool = False
    """Whether each epoch is the same pass, which every iteration reads from its start. Not if it reshuffles."""
    start: tuple[int, int] | None = None
    """If epochs have different numbers of steps, the number of one, and J of its first step (`EpochTimeline`)."""

    def is_over(self, step: int) -> bool:
        """Whether the stream stops before step J."""
        return self.stop is not None and step >= self.stop

    def epoch(self, step: int) -> int:
        """Return the epoch of step J, from 0; the first empty one after the stop. An endless stream is epoch 0."""
        return self.place(step)[0]

    def first_step(self, epoch: int) -> int:
        """Return J of the first step of an epoch."""
        return epoch * (self.epoch_steps or 0)

    def begin(self, step: int) -> int:
        """Return J of the first step of the epoch of a step; 0 if it is endless."""
        return self.place(step)[1]

    def place(self, step: int) -> tuple[int, int]:
        """Return the number of the epoch of a step, and J of its first step."""
        if not self.epoch_steps:
            return 0, 0
        number = step // self.epoch_steps
        if self.stop is not None and step >= self.stop:
            number = -(-self.stop // self.epoch_steps)
        return number, step - step % self.epoch_steps

    def span(self, step: int) -> EpochSpan:
        """Return the epoch of a step, if epochs end."""
        number, first = self.place(step)
        return EpochSpan(number, first, first + (self.epoch_steps or 0))

    def from_start(self, number: int, first: int) -> Timeline:
        """Return the timeline if an epoch starts at a step, which changes nothing if all are of one length."""
        return self

    def end(self, step: int) -> int | None:
        """Return J of the first step after the epoch of a step, or where the stream stops; None if it is endless."""
        end = None if self.epoch_steps is None else (step // self.epoch_steps + 1) * self.epoch_steps
        if self.stop is not None:
            end = self.stop if end is None else min(end, self.stop)
        return None if end is None else max(step, end)

    def next(self, step: int) -> int:
        """Return J of the first step of the first epoch that starts at a step or later; the step itself if endless."""
        return step if self.epoch_steps is None else -(-step // self.epoch_steps) * self.epoch_steps

    def iteration(self, step: int, skipped: StepRanges = NO_STEPS) -> tuple[int, int | None]:
        """Return (J of its first step, J after its last one) of an iteration that resumes at a step.

        It starts at the step itself, or after the epoch of the step if all remaining steps of this epoch are skipped.
        """
        end = self.end(step)
        is_inside = skipped.ranges and end is not None and self.epoch_steps and step % self.epoch_steps
        if is_inside and end is not None and skipped.following(step) >= end:
            return end, self.end(end)
        return step, end

    def length(self, step: int, skipped: StepRanges = NO_STEPS) -> int:
        """Return the number of steps that the whole epoch of a step yields; 0 after the stream has stopped.

        Raises:
            TypeError: the stream is endless.
        """
        if self.epoch_steps is None:
            raise TypeError(
                "this stream is endless and has no length: set `epoch:` in the spec (samples or batches)"
            )
        if self.is_over(step):
            return 0
        first = self.epoch(step) * self.epoch_steps
        end = self.end(first)
        assert end is not None, "the epochs of this stream end"
        return end - first - skipped.within(first, end).count
