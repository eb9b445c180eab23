"""A reader on its way from batch to batch, which can say after every item where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wdspec.planning.plan import Plan
from wdspec.planning.topology import Seat
from wdspec.running.blueprint import Blueprint
from wdspec.running.run_state import Position


class Walk:
    """Reads the batches J, J+stride, J+2·stride, … of a rank in this process.

    Leaving an iteration early, even between the items of one step, loses and repeats nothing.

    Args:
        blueprint, plan, seat: what is read.
        position: where to begin.
        stride: distance of the batches; more than 1 where several processes take turns.
    """

    def __init__(
        self, blueprint: Blueprint, plan: Plan, seat: Seat, position: Position, stride: int = 1
    ) -> None:
        self.plan = plan
        self.stride = stride
        self._assemble = blueprint.assemble
        self._several = blueprint.items_per_step(plan, seat) > 1
        self._reader = blueprint.reader(plan, seat)
        self.go_to(position)

    @property
    def number(self) -> int:
        """J of the step that the next item is of."""
        return self._number

    @property
    def given(self) -> int:
        """Items of that step already given."""
        return self._given

    @property
    def position(self) -> Position:
        """Where this stands, after the last item given."""
        table = self._reader.table()
        if self._items:  # inside a step that has been read whole
            for slot, state in self._before.items():
                if state is None:
                    del table[slot]
                else:
                    table[slot] = state
        return Position(self._number, table, self._given)

    def skip_to(self, number: int) -> None:
        """Goes on with batch J, of the slots as they stand; between steps only."""
        self._number = number

    def go_to(self, position: Position) -> None:
        """Goes on from there. Slots that stand there already keep their windows."""
        self._reader.restore(position.table)
        self._number, self._given = position.batch, position.given
        self._items: list[Any] = []
        self._before: dict[int, bytes | None] = {}

    def close(self) -> None:
        """Closes open shards; this walk is over."""
        self._reader.close()

    def until(self, end: int | None) -> Iterator[Any]:
        """The items of the batches before `end`; without end if None."""
        while end is None or self._number < end:
            if not self._items:
                if self._several:
                    self._before = self._reader.standing(self._number)
                self._items = self._assemble(self._reader.batch(self._number))
            items = self._items
            while self._given < len(items) - 1:
                self._given += 1
                yield items[self._given - 1]
            self._items, self._given = [], 0
            self._number += self.stride
            yield items[-1]
