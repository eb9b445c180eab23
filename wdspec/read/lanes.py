"""The raw samples of one source in the order in which one slot reads them: a few shards in turn, sample by sample.

    turns of the slot:   0 1 2 3 4 | 5 …       pass ends at |, here with 3 lanes

    lanes:   0 ────────┐ 3 ─────── ·           when its shard ends, a lane takes the next turn. At the end of the
             1 ──┐ 2 ──── 4 ──┐ ·              pass it closes, the others are read to their ends, and the next
             …                                 pass starts with all lanes again

So every shard of a pass is read exactly once, and no sample is repeated before the pass of the slot is over. What a
lane reads depends on the shards alone. A position is the place of each lane, and the next turn.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import cycle, islice, repeat
from typing import TYPE_CHECKING, Any

from wdspec.base.errors import ShardError
from wdspec.formats.samples import RawSamples
from wdspec.read.randomness import note_pass
from wdspec.read.shard import Piece
from wdspec.read.transform import LiveSource

if TYPE_CHECKING:
    from wdspec.storage.ahead import Ahead
    from wdspec.storage.due import DueShards
    from wdspec.stores.local import LocalFiles

Lane = tuple[int, int, int]
"""(turn, offset, sample) of an open shard: its turn in the slot (`ShardOrder.entry`), the byte offset of its next
sample in the uncompressed shard (0 is the shard's start), and that sample's index in the shard."""


EXPECTED = 2
"""The least number of later shards that may be fetched ahead."""


class Lanes:
    """The shards that a slot reads in turn, opened when they are first read.

    Args:
        source: the source.
        slot: number of the slot.
        turn: the next turn to start.
        positions: of the lanes in progress, the one that is read next first.
        width: how many lanes to read.
        on_end: called at the end of each turn that started here, with the turn and whether it was empty; may raise.
    """

    def __init__(
        self,
        source: LiveSource,
        slot: int,
        turn: int,
        positions: Sequence[Lane],
        width: int,
        on_end: Callable[[int, bool], None],
    ) -> None:
        self._order, self._shards, self._slot = source.plan.order, source.plan.shards, slot
        self._open_shard = source.parts.selecting if source.parts.selection else source.parts.open
        self.ahead: Ahead | LocalFiles = source.parts.open.ahead()
        self._budget, self._on_end = source.budget, on_end
        self._draws = source.parts.open.fields.draws
        self._choose = source.parts.selection and source.parts.build_choice(source.budget)
        self.next_turn = turn
        """The slot's next turn to start."""
        self._width = width
        first = positions[0][0] if positions else turn
        self._last_turn = self._order.last_turn(slot, self._order.passes_at(slot, first))
        """The slot's last turn of the pass."""
        self._lanes = [_OpenLane(*position, is_new=False) for position in positions]
        """The next one to read first."""
        self._run: Callable[[], Any | None] | None = None
        """Returns the next sample of the next lane; None at the end of that lane's shard."""
        self.widen(width)

    def prepare(self, due: DueShards) -> None:
        """Have what the next sample needs opened and fetched."""
        opening = [
            self._shards[self._order.entry(self._slot, lane.turn).shard]
            for lane in self._lanes
            if lane.shard is None
        ]
        due.prepare(opening, len(self._lanes))

    @property
    def position(self) -> tuple[int, tuple[Lane, ...]]:
        """The next turn to start, and the places of the lanes in progress, the next one to read first."""
        return self.next_turn, tuple(lane.position for lane in self._lanes)

    def widen(self, width: int) -> None:
        """Read `width` shards in turn from here on; surplus lanes end with their shards."""
        self._width, self._run = width, None
        while len(self._lanes) < width and self.next_turn <= self._last_turn:
            self._lanes.append(self._new_lane())

    def read(self, most: int) -> list[Any]:
        """The next raw samples, fewer than `most` only at the end of the slot's pass.

        Each lane is read for its share in one go, which is faster, and the results are interleaved.
        """
        taken: list[Any] = []
        while len(taken) < most and self._lanes:
            taken += self._in_turn(most - len(taken))
        return taken

    def run(self) -> Iterator[Any] | None:
        """The raw samples one by one, up to where a shard ends; None at the end of the slot's pass.

        All in C: with many lanes it costs a twentieth of a microsecond a sample, with one lane nothing.
        """
        if not self._lanes:
            return None
        self._open_all()
        if self._run is None:
            self._run = map(next, cycle([lane.samples for lane in self._lanes]), repeat(None)).__next__
        return self._lanes[0].samples if len(self._lanes) == 1 else iter(self._run, None)

    def note_read(self, count: int) -> None:
        """Note how many samples of the last run were read since it was returned, or since the previous call."""
        width = len(self._lanes)
        for place, lane in enumerate(self._lanes):
            lane.taken += len(range(place, count, width))
        self._rotate(count)

    def end_run(self) -> None:
        """Note that the run has ended, and with it a shard."""
        self._run = None
        if not self._replace(0):
            del self._lanes[0]

    def _open_all(self) -> None:
        for lane in self._lanes:
            if lane.shard is None:
                self._open(lane)

    def _in_turn(self, most: int) -> list[Any]:
        """The next samples, fewer if lanes close."""
        width = len(self._lanes)
        taken: list[Any] = [None] * most
        ended: list[int] = []
        """Places in `taken` at which a lane was found at its end; they are filled in that order."""
        for place in range(width):
            self._take(place, place, taken, width, ended)
        closed: list[int] = []
        while ended:
            at = heappop(ended)
            place = at % width
            if self._replace(place, len(closed)):
                self._take(place, at, taken, width, ended)
            else:
                closed.append(place)
        if not closed:
            self._rotate(most)
            return taken
        order = [
            place for place in (*range(most % width, width), *range(most % width)) if place not in closed
        ]
        self._lanes = [self._lanes[place] for place in order]
        return [raw for raw in taken if raw is not None]

    def _take(self, place: int, at: int, taken: list[Any], width: int, ended: list[int]) -> None:
        """Put the samples of a lane into `taken` from a place on, at every `width`-th place."""
        lane = self._lanes[place]
        if lane.shard is None:
            self._open(lane)
        wanted = len(range(at, len(taken), width))
        found = list(islice(lane.samples, wanted))
        lane.taken += len(found)
        stop = at + len(found) * width
        taken[at:stop:width] = found
        if len(found) < wanted:
            heappush(ended, stop)

    def _replace(self, place: int, closed: int = 0) -> bool:
        """End a lane, and return whether the next turn took its place; otherwise the caller removes it.

        Args:
            place: the place of the lane.
            closed: places that the caller still has to remove.
        """
        lane = self._lanes[place]
        assert lane.shard is not None, "only an open lane ends"
        lane.shard.close()
        self._budget.unjoined += lane.shard.unjoined
        is_replaced = len(self._lanes) - closed <= self._width and self.next_turn <= self._last_turn
        if is_replaced:
            self._lanes[place] = self._new_lane()
        if lane.is_new:  # others may have yielded samples before the state that this resumes from
            self._on_end(lane.turn, not lane.taken)
        return is_replaced

    def begin_pass(self, width: int) -> None:
        """Continue with the next pass, after this one has ended, and read `width` shards in turn."""
        self._budget.passes += 1
        self._last_turn = self._order.last_turn(self._slot, self._order.passes_at(self._slot, self.next_turn))
        self.widen(width)

    def close(self) -> None:
        """Close the open shards."""
        self.ahead.close()
        self._run = None
        for lane in self._lanes:
            if lane.shard is not None:
                lane.samples = iter(())  # ends the generator that reads the shard
                lane.shard.close()

    def _rotate(self, count: int) -> None:
        """Make the lane that is next after `count` samples the first one."""
        at = count % len(self._lanes) if self._lanes else 0
        self._lanes = self._lanes[at:] + self._lanes[:at]

    def _new_lane(self) -> _OpenLane:
        self.next_turn += 1
        return _OpenLane(self.next_turn - 1)

    def _open(self, lane: _OpenLane) -> None:
        """Open the shard of a lane, and tell `Ahead` which shards come next."""
        entry = self._order.entry(self._slot, lane.turn)
        shard = self._shards[entry.shard]
        try:
            lane.shard = self._open_shard(
                Piece(shard, self._order.split, entry.residue, lane.offset, lane.sample, self._shards),
                on_error=lambda error: self._budget(error, "shard", url=shard.text),
                ahead=self.ahead,
                on_read=self._budget.note_bytes,
            )
            self._budget.note_opened(lane.shard.is_copy)
        except ShardError as error:
            self._budget(error, "shard", url=shard.text)
            lane.shard = _NoSamples(io.BytesIO())
        samples = self._with_pass(lane) if self._draws else lane.shard
        lane.samples = filter(self._choose, samples) if self._choose else iter(samples)
        # Shards of equal length end together, so that one for each lane may be needed at once.
        self.ahead.expect(
            lambda count: (
                self._shards[self._order.entry(self._slot, self.next_turn + n).shard] for n in range(count)
            ),
            max(EXPECTED, self._width),
        )

    def _with_pass(self, lane: _OpenLane) -> Iterator[Any]:
        assert lane.shard is not None, "it is open"
        return note_pass(lane.shard, self._order.reading(self._slot, lane.turn))


class _OpenLane:
    """One of the shards read in turn, open or about to be opened."""

    __slots__ = ("is_new", "offset", "sample", "samples", "shard", "taken", "turn")

    def __init__(self, turn: int, offset: int = 0, sample: int = 0, is_new: bool = True) -> None:
        self.turn, self.offset, self.sample = turn, offset, sample
        self.is_new = is_new
        """Whether it started here, not before the state that reading resumed from."""
        self.taken = 0
        """The number of samples read from it."""
        self.shard: RawSamples | None = None
        self.samples: Iterator[Any] = iter(())

    @property
    def position(self) -> Lane:
        """(turn, offset, index) of the next sample to be read."""
        if self.shard is None:
            return self.turn, self.offset, self.sample
        return self.turn, self.shard.next_offset, self.shard.next_index


class _NoSamples(RawSamples):
    """A shard that could not be opened and was skipped under the error policy."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())
