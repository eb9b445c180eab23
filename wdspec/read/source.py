"""One source as one slot reads it: an endless iterator of samples, shuffled by delays, with a state."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from wdspec.base.errors import ShardError
from wdspec.planning.delays import ReleaseOrder
from wdspec.planning.stream_state import Lane, StreamState, write_last
from wdspec.read.lanes import Lanes
from wdspec.read.transform import LiveSource, Sample, build_skipping

log = logging.getLogger("wdspec")

FIRST = 16
"""Samples read before the first ones are given; then twice as many at a time, up to a block."""
PATIENCE = 64
"""Shards without a sample after which a warning says so; the error waits until all were tried."""


class SourceStream:
    """The samples of one source in the order of one slot.

    Iterating gives finished samples forever. `state` describes the point after the last sample given; a stream
    built from it gives the same rest. Samples that were read and had not come out are read again.
    """

    def __init__(self, source: LiveSource, slot: int, state: StreamState) -> None:
        plan = source.plan
        self._plan, self._slot, self._budget = plan, slot, source.budget
        self._delays, self._key = plan.delays, plan.delays.key(slot)
        self._finish = self._process = source.process(slot)
        self._source = source
        self._stretches = state.stretches
        width = next((each.lanes for each in state.stretches if each.until > state.ordinal), plan.interleave)
        self._lanes = Lanes(source, slot, state.turn, state.lanes, width, self._note_ended)
        self._read = state.ordinal
        """Raw samples read: the ordinal of the next one."""
        self._noted = self._read
        """How many of them, where they come in order, the lanes were told of."""
        self._last, self._end = state.last, state.end
        self._held: dict[int, Any] = {}
        """The raw samples that did not come out yet, by ordinal, ascending."""
        self._marks = deque([_Mark(state.ordinal, *self._lanes.position)])
        """Where to begin to read again, ascending; the first one is that for the oldest sample held."""
        self._packed: tuple[_Mark, bytearray] | None = None
        self._gave = False
        """Whether a sample was given since a shard last ended, or one was read again that was given before."""
        self._fruitful = 0
        """Turns before this one had begun when a sample was last given, which may have been theirs."""
        self._ended: deque[tuple[int, int]] = deque()
        """(ordinal, turn) of the shards that ended since a sample was given: their samples lie before the ordinal."""
        self._barren: set[tuple[int, int]] = set()
        """The parts of shards whose samples all came out, or were dropped, since a sample was given."""

    @property
    def state(self) -> StreamState:
        """The state after the last sample given, or dropped."""
        if self._is_ordered:
            self._note_run()
            turn, lanes = self._lanes.position
            return StreamState(turn, self._read, lanes=lanes)
        mark = self._mark()
        if mark.ends_pass:
            return StreamState(mark.turn, mark.ordinal, lanes=mark.lanes)
        stretches = tuple(each for each in self._stretches if each.until > min(mark.ordinal, self._last))
        return StreamState(mark.turn, mark.ordinal, self._last, self._end, mark.lanes, stretches)

    def pack(self) -> bytes | bytearray:
        """`state` in bytes, which hold until this is called again."""
        if self._is_ordered or self._stretches or self._end:
            return self.state.pack()
        mark = self._mark()
        if self._packed is None or self._packed[0] is not mark:
            self._packed = mark, bytearray(self.state.pack())
        elif not mark.ends_pass:
            write_last(self._packed[1], self._last)
        return self._packed[1]

    def __iter__(self) -> Iterator[Sample]:
        return self._ordered() if self._is_ordered else self._shuffled()

    def set_skipping(self, skipping: bool) -> None:
        """Whether the samples from here on belong to a step that is skipped, so that they need not be finished."""
        self._process = self._finish
        if skipping:
            self._process = build_skipping(self._finish, self._budget, self._source.parts.chooses)

    def close(self) -> None:
        """Closes the open shards."""
        self._lanes.close()

    @property
    def _is_ordered(self) -> bool:
        """Whether samples come as they are read, and nothing that is held has to come out before."""
        return self._delays.size == 1 and self._last < 0

    def _ordered(self) -> Iterator[Sample]:
        """Nothing is held: each sample is given as it is read."""
        lanes = self._lanes
        while True:
            while (run := lanes.run()) is not None:
                for raw in run:
                    self._read += 1
                    sample = self._process(raw, self._read)
                    if sample is not None:
                        self._gave = True
                        yield sample
                self._note_run()
                lanes.end_run()
            lanes.begin_pass(self._plan.interleave)

    def _note_run(self) -> None:
        self._lanes.note_read(self._read - self._noted)
        self._noted = self._read

    def _shuffled(self) -> Iterator[Sample]:
        """Pass by pass of the slot; the last samples of each come out in the order of their releases."""
        held, take = self._held, self._held.pop
        while not self._is_ordered:
            releasing = ReleaseOrder(self._delays, self._key, self._read, self._last, self._stretches)
            begun = self._read
            ended = False
            while not ended:
                wanted = self._block(self._read - begun)
                raws = self._lanes.read(wanted)
                first, self._read = self._read, self._read + len(raws)
                ended = len(raws) < wanted
                held.update(zip(range(first, self._read), raws, strict=True))
                raws.clear()
                if releasing.out:
                    self._forget(releasing.out, first, ended)
                self._check_delivers()
                coming = releasing.upto(self._read)
                for ordinal in self._with_rest(coming, releasing) if ended else coming:
                    self._last = ordinal
                    sample = self._process(take(ordinal), ordinal + 1)
                    if sample is not None:
                        self._gave = True
                        if ended and not held:
                            self._end_pass()
                        yield sample
            if not self._marks[-1].ends_pass:
                self._end_pass()
            self._last, self._end, self._stretches, self._noted = -1, 0, (), self._read
            self._marks = deque([self._marks[-1]._replace(ends_pass=False)])
        yield from self._ordered()

    def _with_rest(self, coming: list[int], releasing: ReleaseOrder) -> Iterator[int]:
        """The ordinals that come out now, and then those that do because the pass has ended."""
        yield from coming
        rest = releasing.rest(self._read)
        self._end = self._read if rest else 0
        yield from rest

    def _end_pass(self) -> None:
        """All is out: a state made from here on begins with the next pass."""
        self._lanes.begin_pass(self._plan.interleave)
        self._marks = deque([_Mark(self._read, *self._lanes.position, ends_pass=True)])

    def _block(self, far: int) -> int:
        """How many samples to read next, `far` behind where reading began; notes the place, if it is one to begin at.

        Such places are at multiples of a block, so that states do not depend on where reading began.
        """
        block, at = self._delays.block, self._read
        wanted = min(block - at % block, max(FIRST, far))
        for number, stretch in enumerate(self._stretches):
            if at < stretch.until:
                wanted = min(wanted, stretch.until - at)
                break
            if at == stretch.until:
                following = self._stretches[number + 1 :]
                self._lanes.widen(following[0].lanes if following else self._plan.interleave)
        if at % block == 0 and at > self._marks[-1].ordinal:
            self._mark()  # drops those behind, or they would pile up where nobody asks for states
            self._marks.append(_Mark(at, *self._lanes.position))
        return wanted

    def _mark(self) -> _Mark:
        """The last place to begin at that is not behind a sample held."""
        oldest, marks = next(iter(self._held), self._read), self._marks
        while len(marks) > 1 and marks[1].ordinal <= oldest:
            marks.popleft()
        return marks[0]

    def _forget(self, out: set[int], first: int, ended: bool) -> None:
        """Drops what was read again but came out before the state was made."""
        for ordinal in range(first, self._read):
            if ordinal in out:
                out.remove(ordinal)
                del self._held[ordinal]
                self._gave = True
        if ended and (self._last >= self._read or self._end not in (0, self._read)):
            raise ShardError(
                f"sample {max(self._last, self._end - 1)} was read before the state was saved, and now a pass of the "
                f"slot ends with sample {self._read - 1}: the shards have changed, so the run cannot go on exactly; "
                "restore them or start afresh",
                source=self._budget.source,
                url=self._url(max(0, self._lanes.position[0] - 1)),
            )

    def _note_ended(self, turn: int, nothing_read: bool) -> None:
        """Notes a shard that has ended; counts it at once if nothing of it can be held, as nobody else may come by."""
        if self._gave:
            self._gave = False
            self._fruitful = self._lanes.position[0]
            self._ended.clear()
            self._barren.clear()
        if turn < self._fruitful:
            return
        if nothing_read or self._is_ordered:
            self._count_barren(turn)
        else:
            self._ended.append((self._read + self._delays.block, turn))

    def _check_delivers(self) -> None:
        """Raises when every part of every shard was read by this slot since it last gave a sample."""
        oldest = next(iter(self._held), self._read)
        while self._ended and self._ended[0][0] <= oldest and not self._gave:
            self._count_barren(self._ended.popleft()[1])

    def _count_barren(self, turn: int) -> None:
        order, barren, budget = self._plan.order, self._barren, self._budget
        barren.add(order.entry(self._slot, turn)[1:])
        causes = {**budget.dropped, **budget.skipped}
        why = ", ".join(f"{name} {n}" for name, n in causes.items()) or "its shards hold no samples"
        if len(barren) == order.per_pass:
            raise ShardError(
                f"the source delivered nothing in a whole pass ({order.per_pass} shards or parts of shards; left out: "
                f"{why}); check `select`, `extensions`, `missing` and the shards",
                source=budget.source,
                url=self._url(turn),
            )
        if len(barren) == PATIENCE:
            log.warning(
                "source %r has delivered nothing from %d of its %d shards (left out: %s); reading on",
                budget.source,
                PATIENCE,
                order.per_pass,
                why,
            )

    def _url(self, turn: int) -> str:
        return self._plan.shards[self._plan.order.entry(self._slot, turn).shard].text


class _Mark(NamedTuple):
    """A place to begin to read at."""

    ordinal: int
    turn: int
    lanes: tuple[Lane, ...]
    ends_pass: bool = False
