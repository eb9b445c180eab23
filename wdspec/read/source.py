"""One source as one slot reads it: `SourceStream`, an endless iterator of samples shuffled by delays.

`StreamState` is where it is: counters only, no samples. The state of a slot is those of its sources.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.base.amounts import pluralize
from wdspec.base.errors import ShardError
from wdspec.planning.order import Delays, ReleaseOrder, Stretch
from wdspec.read.lanes import Lane, Lanes
from wdspec.read.transform import LiveSource, Sample

log = logging.getLogger("wdspec")

FIRST = 16
"""The number of samples to read before the first is yielded; it doubles each time, up to a block."""
PATIENCE = 64
"""The number of shards without a sample after which to log a warning; the error waits until all were tried."""

_LAYOUT = struct.Struct("<6q")
_LAST = struct.Struct("<q")
_LAST_AT = 2 * 8
"""Offset of `last`."""
_TRIPLE = struct.Struct("<3q")
SIZE = _LAYOUT.size
"""Bytes of one packed `StreamState` without lanes and stretches."""

Columns = npt.NDArray[np.int64]


class StreamState(NamedTuple):
    """Where a slot is in a source. Samples that were read and not yielded yet are read again from here."""

    turn: int = 0
    """The next turn of the slot to start."""
    ordinal: int = 0
    """The number of raw samples that the slot read before this point; all of them were yielded or dropped."""
    last: int = -1
    """Ordinal of the last sample yielded; -1: none of this pass, or all in the order of reading."""
    end: int = 0
    """Ordinal at which the pass of the slot ends, once it is read to its end and the rest is yielded; otherwise 0."""
    lanes: tuple[Lane, ...] = ()
    """The open shards, the next one to read first."""
    stretches: tuple[Stretch, ...] = ()
    """Samples that keep the sizes they started with instead of those of the plan; ascending."""

    def given(self, slot: int, delays: Delays) -> int:
        """Return the number of samples of the source that the slot has yielded or dropped."""
        out = ReleaseOrder(delays, delays.key(slot), self.ordinal, self.last, self.stretches).out
        return self.ordinal + sum(not self.end or ordinal < self.end for ordinal in out)

    @staticmethod
    def given_by(numbers: Columns, slots: Sequence[int], delays: Delays) -> npt.NDArray[np.int64]:
        """Return `given` for many slots, shape (slots,). The states must not have stretches.

        Args:
            numbers: the first five `numbers` of each slot, shape (slots, 5).

        Raises:
            ValueError: no slot can be in such a state.
        """
        ordinal, coded, end = numbers[:, 1], numbers[:, 2], numbers[:, 3]
        last = np.where(coded % 2, ordinal - (coded + 1) // 2, ordinal + coded // 2 - 1)
        ends = np.where(end, ordinal + end - 1, 0)
        (held,) = np.nonzero(coded)
        if len(held):
            ordinal = ordinal.copy()
            ordinal[held] += delays.count_out(
                [slots[at] for at in held.tolist()], ordinal[held], last[held], ends[held]
            )
        return ordinal

    def pack(self) -> bytes:
        """Return the state in bytes: little-endian 64-bit integers in the order of the fields, with counts of lists."""
        packed = _LAYOUT.pack(*self[:4], len(self.lanes), len(self.stretches))
        return packed + b"".join(_TRIPLE.pack(*each) for each in (*self.lanes, *self.stretches))

    def numbers(self) -> list[int]:
        """Return the state for JSON: turn, ordinal, last, end, number of lanes, then three per lane and stretch.

        To keep the numbers small, turns of lanes count back from `turn`; `last` counts from `ordinal`, forward as 2, 4,
        … and backward as 1, 3, …; `end` counts from `ordinal`, with 1 for the same. 0 means none.
        """
        after = self.last - self.ordinal
        last = 0 if self.last < 0 else 2 * after + 2 if after >= 0 else -2 * after - 1
        lanes = ((self.turn - turn, offset, sample) for turn, offset, sample in self.lanes)
        lists = (number for each in (*lanes, *self.stretches) for number in each)
        end = self.end and self.end - self.ordinal + 1
        return [self.turn, self.ordinal, last, end, len(self.lanes), *lists]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> StreamState:
        """Return the state from JSON: the inverse of `numbers`.

        Raises:
            ValueError: these are not the numbers of a state.
        """
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers) or len(numbers) < 5:
            raise ValueError(f"{str(numbers)[:60]} is not a place in a source")
        turn, ordinal, last, end, lanes, *rest = numbers
        triples = list(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
        if lanes > len(triples):
            raise ValueError(f"{len(triples)} lanes of {lanes}")
        return cls(
            turn,
            ordinal,
            -1 if not last else ordinal - (last + 1) // 2 if last % 2 else ordinal + last // 2 - 1,
            end and ordinal + end - 1,
            tuple((turn - back, offset, sample) for back, offset, sample in triples[:lanes]),
            tuple(Stretch(*each) for each in triples[lanes:]),
        )

    def for_plan_with_other_sizes(self, slot: int, delays: Delays, lanes: int) -> StreamState:
        """Return the state for a plan with other delays or lanes. Samples in progress finish with the given ones.

        The new ones apply from the first sample that cannot have been yielded yet, so none is lost or repeated.
        """
        if self.last < 0:
            if not any(offset or sample for _, offset, sample in self.lanes):  # nothing was read
                return StreamState(min((lane[0] for lane in self.lanes), default=self.turn), self.ordinal)
            return self._replace(stretches=())
        until = delays.next_free(delays.key(slot), self.last, self.stretches)
        if until <= self.ordinal:  # nothing is in progress
            return self._replace(last=-1, stretches=())
        kept = [stretch for stretch in self.stretches if stretch.until < until]
        in_progress = (
            self.stretches[len(kept)] if len(kept) < len(self.stretches) else Stretch(0, delays.size, lanes)
        )
        return self._replace(stretches=(*kept, in_progress._replace(until=until)))

    def restart(self) -> StreamState:
        """Return the state for a source that is read in another way: at the start of the first open shard."""
        turn = min((lane[0] for lane in self.lanes), default=self.turn)
        return StreamState(turn, max(self.ordinal, self.last + 1))


def write_last(packed: bytearray, last: int) -> None:
    """Advance a packed state to the next sample yielded; nothing else changes from sample to sample."""
    _LAST.pack_into(packed, _LAST_AT, last)


def pack_slot(states: list[StreamState]) -> bytes:
    """Return the state of one slot: the states of its sources in the order of the plan."""
    return b"".join(map(StreamState.pack, states))


def split_places(state: bytes | None, count: int) -> tuple[bytes | None, list[StreamState]]:
    """Return the state of the lowest part of a slot, and the places of the `count` parts above it that have one."""
    if not state or not count:
        return state, [StreamState()] * count
    states = unpack_slot(state)
    return pack_slot(states[:-count]), states[-count:]


def unpack_slot(data: bytes) -> list[StreamState]:
    """Return the states of the sources of a slot: the inverse of `pack_slot`."""
    states, at = [], 0
    while at < len(data):
        turn, ordinal, last, end, lanes, stretches = _LAYOUT.unpack_from(data, at)
        at += SIZE
        start, at = at, at + (lanes + stretches) * _TRIPLE.size
        triples = list(_TRIPLE.iter_unpack(data[start:at]))
        rest = tuple(Stretch(*each) for each in triples[lanes:])
        states.append(StreamState(turn, ordinal, last, end, tuple(triples[:lanes]), rest))
    return states


class RestartPoint(NamedTuple):
    """A place from which reading can start again."""

    ordinal: int
    """Ordinal of the first raw sample to read from there."""
    turn: int
    lanes: tuple[Lane, ...]
    ends_pass: bool = False
    """Whether a pass of the slot has ended there."""


class SourceStream:
    """The samples of one source in the order of one slot.

    Iterating yields finished samples forever. `state` is the state after the last sample yielded. A stream built from
    it yields the same rest; samples that were read and not yielded yet are read again.

    No attribute is a `cached_property`, as in `Stream`.
    """

    def __init__(self, source: LiveSource, slot: int, state: StreamState) -> None:
        plan = source.plan
        self._source, self._plan = source, plan
        self._delays, self._key, self._block = plan.delays, plan.delays.key(slot), plan.delays.block
        self._process = self._finish = source.process(slot)
        self._stretches = state.stretches
        width = next((each.lanes for each in state.stretches if each.until > state.ordinal), plan.interleave)
        self._watch = _EmptyPassWatch(source, slot)
        self._lanes = Lanes(source, slot, state.turn, state.lanes, width, self._note_ended)
        self._read = state.ordinal
        """The number of raw samples read: the ordinal of the next one."""
        self._noted = self._read
        """How many of them the lanes have noted, if samples are yielded in the order of reading."""
        self._last, self._end = state.last, state.end
        self._buffer: dict[int, Any] = {}
        """The raw samples not yielded yet, by ordinal, ascending."""
        self._restarts = deque([RestartPoint(state.ordinal, *self._lanes.position)])
        """Where reading can start again, ascending; the first one is for the oldest sample in the buffer."""
        self._packed: tuple[RestartPoint, bytearray] | None = None
        self._samples = self._iterate_ordered() if self._is_ordered else self._iterate_shuffled()

    @property
    def state(self) -> StreamState:
        """The state after the last sample yielded or dropped."""
        if self._is_ordered:
            self._note_run()
            turn, lanes = self._lanes.position
            return StreamState(turn, self._read, lanes=lanes)
        restart = self._find_restart()
        if restart.ends_pass:
            return StreamState(restart.turn, restart.ordinal, lanes=restart.lanes)
        stretches = tuple(each for each in self._stretches if each.until > min(restart.ordinal, self._last))
        return StreamState(restart.turn, restart.ordinal, self._last, self._end, restart.lanes, stretches)

    def pack(self) -> bytes | bytearray:
        """Return `state` in bytes, valid until the next call."""
        if self._is_ordered or self._stretches or self._end:
            return self.state.pack()
        restart = self._find_restart()
        if self._packed is None or self._packed[0] is not restart:
            self._packed = restart, bytearray(self.state.pack())
        elif not restart.ends_pass:
            write_last(self._packed[1], self._last)
        return self._packed[1]

    def __iter__(self) -> Iterator[Any]:
        return self._samples

    def take(self, count: int) -> list[Any]:
        """Return the next samples."""
        return list(islice(self._samples, count))

    def set_skipping(self, skipping: bool) -> None:
        """Set whether the following samples belong to a skipped step, and need not be decoded."""
        self._process = self._source.skipping(self._finish) if skipping else self._finish

    def close(self) -> None:
        """Close the open shards, and forget the samples that were read and not yielded."""
        self._lanes.close()
        self._samples = iter(())  # a generator of its own would keep it until the next collection of garbage

    @property
    def _is_ordered(self) -> bool:
        """Whether samples are yielded in the order of reading, and the buffer is empty."""
        return self._delays.size == 1 and self._last < 0

    def _iterate_ordered(self) -> Iterator[Sample]:
        """Yield each sample as it is read."""
        lanes, watch = self._lanes, self._watch
        while True:
            while (run := lanes.run()) is not None:
                for raw in run:
                    self._read += 1
                    sample = self._process(raw, self._read)
                    if sample is not None:
                        watch.has_sample = True
                        yield sample
                self._note_run()
                lanes.end_run()
            lanes.begin_pass(self._plan.interleave)

    def _note_run(self) -> None:
        self._lanes.note_read(self._read - self._noted)
        self._noted = self._read

    def _iterate_shuffled(self) -> Iterator[Sample]:
        """Yield each sample when it is due."""
        buffer, take, watch = self._buffer, self._buffer.pop, self._watch
        for ordinals, ended in self._read_runs():
            for ordinal in ordinals:
                self._last = ordinal
                sample = self._process(take(ordinal), ordinal + 1)
                if sample is not None:
                    watch.has_sample = True
                    if ended and not buffer:
                        self._end_pass()
                    yield sample
        yield from self._iterate_ordered()

    def _read_runs(self) -> Iterator[tuple[list[int], bool]]:
        """Read one pass of the slot after the other into the buffer, as long as samples are shuffled.

        Yields:
            After each block: the ordinals of the samples that are due, in order, and whether the pass has been read to
            its end. The last ones of a pass follow in the order of their releases. The caller yields these samples,
            and calls `_end_pass` with the last one of a pass.
        """
        buffer, watch = self._buffer, self._watch
        while not self._is_ordered:
            releases = ReleaseOrder(self._delays, self._key, self._read, self._last, self._stretches)
            start, ended = self._read, False
            while not ended:
                wanted = self._plan_read(self._read - start)
                raws = self._lanes.read(wanted)
                first, self._read = self._read, self._read + len(raws)
                ended = len(raws) < wanted
                buffer.update(zip(range(first, self._read), raws, strict=True))
                raws.clear()
                if releases.out or self._end:
                    self._forget(releases.out, first, ended)
                if not watch.has_sample:
                    watch.check(next(iter(buffer), self._read))
                yield releases.upto(self._read), ended
            rest = releases.rest(self._read)
            self._end = self._read if rest else 0
            yield rest, True
            self._finish_pass()

    def _finish_pass(self) -> None:
        """Continue with the next pass, after all samples of this one were yielded."""
        if not self._restarts[-1].ends_pass:
            self._end_pass()
        self._last, self._end, self._stretches, self._noted = -1, 0, (), self._read
        self._restarts = deque([self._restarts[-1]._replace(ends_pass=False)])

    def _end_pass(self) -> None:
        """Note that all samples of the pass were yielded: later states start with the next pass."""
        self._lanes.begin_pass(self._plan.interleave)
        self._restarts = deque([RestartPoint(self._read, *self._lanes.position, ends_pass=True)])

    def _plan_read(self, far: int) -> int:
        """Return how many samples to read next, `far` samples after the start, and note a restart point if this is one.

        Restart points are at multiples of a block, so that states do not depend on where reading started.
        """
        block, at = self._block, self._read
        wanted = min(block - at % block, max(FIRST, far))
        for number, stretch in enumerate(self._stretches):
            if at < stretch.until:
                wanted = min(wanted, stretch.until - at)
                break
            if at == stretch.until:
                following = self._stretches[number + 1 :]
                self._lanes.widen(following[0].lanes if following else self._plan.interleave)
        if at % block == 0 and at > self._restarts[-1].ordinal:
            self._find_restart()  # drops old ones, which would accumulate if no state is saved
            self._restarts.append(RestartPoint(at, *self._lanes.position))
        return wanted

    def _find_restart(self) -> RestartPoint:
        """Return the last restart point that is not after a sample in the buffer."""
        oldest, restarts = next(iter(self._buffer), self._read), self._restarts
        while len(restarts) > 1 and restarts[1].ordinal <= oldest:
            restarts.popleft()
        return restarts[0]

    def _forget(self, out: set[int], first: int, ended: bool) -> None:
        """Drop samples that were read again and had been yielded before the state was saved."""
        for ordinal in range(first, self._read):
            if ordinal in out:
                out.remove(ordinal)
                del self._buffer[ordinal]
                self._watch.has_sample = True
        if ended and (self._last >= self._read or self._end not in (0, self._read)):
            raise ShardError(
                f"sample {max(self._last, self._end - 1)} was read before the state was saved, and now a pass of the "
                f"slot ends with sample {self._read - 1}: the shards have changed, so the run cannot resume exactly; "
                "restore them or start a new run",
                source=self._source.plan.name,
                url=self._watch.url(max(0, self._lanes.next_turn - 1)),
            )

    def _note_ended(self, turn: int, was_empty: bool) -> None:
        """Note the end of a shard. May raise."""
        is_out = was_empty or self._is_ordered
        self._watch.note_ended(turn, self._lanes.next_turn, None if is_out else self._read + self._block)


class _EmptyPassWatch:
    """Detects that a slot has read every part of every shard of a source without yielding a sample.

    A shard counts as soon as none of its samples can be in the buffer.
    """

    def __init__(self, source: LiveSource, slot: int) -> None:
        self._plan, self._parts, self._budget, self._slot = source.plan, source.parts, source.budget, slot
        self.has_sample = False
        """Whether a sample was yielded, or one yielded earlier was read again, since a shard last ended."""
        self._fruitful = 0
        """Turns before this one had started when a sample was last yielded, so it may have been one of theirs."""
        self._pending: deque[tuple[int, int]] = deque()
        """(ordinal, turn) of shards that ended since then. Their samples are before the ordinal."""
        self._barren: set[tuple[int, int]] = set()
        """The parts of shards whose samples were all dropped since then."""

    def note_ended(self, turn: int, next_turn: int, before: int | None) -> None:
        """Note the end of a shard.

        Args:
            next_turn: the slot's next turn to start.
            before: an ordinal after all its samples; None if none of them is in the buffer.

        Raises:
            ShardError: a whole pass yielded nothing.
        """
        if self.has_sample:
            self.has_sample = False
            self._fruitful = next_turn
            self._pending.clear()
            self._barren.clear()
        if turn < self._fruitful:
            return
        if before is None:
            self._count(turn)
        else:
            self._pending.append((before, turn))

    def check(self, oldest: int) -> None:
        """Count the shards whose samples are all before the oldest one in the buffer. Raises as `note_ended`."""
        while self._pending and self._pending[0][0] <= oldest:
            self._count(self._pending.popleft()[1])

    def url(self, turn: int) -> str:
        """Return the URL of the shard of a turn."""
        return self._plan.shards[self._plan.order.entry(self._slot, turn).shard].text

    def _count(self, turn: int) -> None:
        order, barren, budget = self._plan.order, self._barren, self._budget
        barren.add(order.entry(self._slot, turn)[1:])
        causes = {**budget.all_dropped, **budget.skipped}
        why = ", ".join(f"{name} {n}" for name, n in causes.items()) or "its shards have no samples"
        if len(barren) == order.per_pass:
            from wdspec.read.near_misses import explain_nothing

            shard = self._plan.shards[order.entry(self._slot, turn).shard]
            remedy = explain_nothing(self._parts, shard, causes) or (
                "check `where`, `subset`, `keys`, `select`, `overlong`, `extensions`, `missing` and the shards"
            )
            raise ShardError(
                f"the source yielded nothing in a whole pass ({pluralize(order.per_pass, 'shard')}, or parts of them; "
                f"dropped or skipped: {why}, counted each time that they were read); {remedy}",
                source=budget.source,
                url=self.url(turn),
            )
        if len(barren) == PATIENCE:
            log.warning(
                "source %r has yielded nothing from %d of its %d shards (dropped or skipped: %s); reading continues",
                budget.source,
                PATIENCE,
                order.per_pass,
                why,
            )
