"""One source as one slot reads it, against reading all of it in order and shuffling by hand."""

import itertools
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.errors import ShardError
from wdspec.planning.plan import SourcePlan
from wdspec.planning.shard_order import ShardOrder
from wdspec.planning.stream_state import StreamState
from wdspec.planning.windows import Windows
from wdspec.reading.error_budget import Budget
from wdspec.reading.interleave import InterleavedStream
from wdspec.reading.source_stream import SourceStream
from wdspec.spec.language.models import Errors
from wdspec.urls.sequence import ShardUrl


class Shard:
    """The samples (shard, 0), (shard, 1), …; sample n lies at offset 10·n."""

    def __init__(self, piece, samples):
        assert piece.offset == 10 * piece.index
        self.piece, self.samples = piece, samples
        self.next_offset, self.next_index = piece.offset, piece.index

    def __iter__(self):
        for index in range(self.piece.index, self.samples):
            self.next_offset, self.next_index = 10 * (index + 1), index + 1
            if index % self.piece.stride == self.piece.residue:
                yield int(self.piece.shard.text), index

    def close(self):
        pass


class Opener:
    """Opens shards of so many samples; those in `broken` cannot be opened."""

    def __init__(self, sizes, broken):
        self.sizes, self.broken = sizes, broken

    def __call__(self, piece, **_):
        number = int(piece.shard.text)
        if number in self.broken:
            raise ShardError("broken")
        return Shard(piece, self.sizes[number])

    def ahead(self):
        return SimpleNamespace(expect=list, close=lambda: None)


def source_of(sizes, window=1, *, slots=1, interleave=1, order="shuffled", drops=(), broken=()):
    """A source whose samples with an index in `drops` are dropped."""
    return SimpleNamespace(
        plan=SourcePlan(
            name="s",
            shards=[ShardUrl(str(n), "") for n in range(len(sizes))],
            share=1,
            order=ShardOrder(4, "s", len(sizes), slots, order),
            windows=Windows(4, "s", window),
            samples=None,
            interleave=interleave,
        ),
        parts=SimpleNamespace(open=Opener(sizes, broken)),
        budget=Budget(Errors(skip=True), "s"),
        process=lambda slot: lambda raw, ordinal: None if raw[1] in drops else raw,
    )


def stream_of(source, slot=0, state=StreamState()):  # noqa: B008
    return (InterleavedStream if source.plan.interleave > 1 else SourceStream)(source, slot, state)


def in_turn(shards, width):
    """The samples of shards, `width` at a time, one by one; a shard that ends makes room for the next."""
    waiting = [list(shard) for shard in shards]
    lanes, waiting = waiting[:width], waiting[width:]
    while lanes:
        lane = lanes.pop(0)
        while not lane and waiting:
            lane = waiting.pop(0)
        if lane:
            yield lane.pop(0)
            lanes.append(lane)


def expected(source, slot):
    """What the slot reads, pass by pass, with windows that end with their pass."""
    plan, opener = source.plan, source.parts.open
    order, number = plan.order, 0
    for passes in itertools.count():
        turns = [t for t in range(order.last_turn(slot, passes) + 1) if order.passes_at(slot, t) == passes]
        entries = [order.entry(slot, turn) for turn in turns]
        shards = [
            [(e.shard, i) for i in range(opener.sizes[e.shard]) if i % order.split == e.residue]
            for e in entries
            if e.shard not in opener.broken
        ]
        raws = list(in_turn(shards, plan.interleave))
        while raws:
            window = raws[: plan.windows.length(slot, number)] if plan.windows.size > 1 else raws
            raws = raws[len(window) :]
            for i in plan.windows.order(slot, number, len(window)):
                if source.process(slot)(window[i], 0) is not None:
                    yield window[i]
            number += 1


sources = st.builds(
    source_of,
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.sampled_from((1, 2, 5, 16, 90)),
    slots=st.integers(1, 4),
    interleave=st.sampled_from((1, 1, 2, 5)),
    order=st.sampled_from(("shuffled", "sequential")),
    drops=st.sampled_from(((), (0,), (1, 2))),
)


def fruitful(source):
    """Whether every slot gets samples of every pass, so that nothing is given up as empty."""
    return min(source.parts.open.sizes) > 3 * source.plan.order.split


@given(source=sources.filter(fruitful), slot=st.integers(0, 3))
@settings(deadline=None, max_examples=150)
def test_it_is_windows_of_shards_in_the_order_of_the_plan(source, slot):
    slot %= source.plan.order.slots
    read = list(itertools.islice(iter(stream_of(source, slot)), 60))
    assert read == list(itertools.islice(expected(source, slot), 60))


@given(source=sources.filter(fruitful), stop=st.integers(0, 50))
@settings(deadline=None, max_examples=150)
def test_from_its_state_it_gives_the_same_rest_and_packs_the_same(source, stop):
    stream = stream_of(source)
    reading = iter(stream)
    for _ in range(stop):
        next(reading)
        assert bytes(stream.pack()) == stream.state.pack()
    state = StreamState.from_numbers(json.loads(json.dumps(stream.state.numbers())))
    again = stream_of(source, 0, state)
    assert bytes(again.pack()) == state.pack()
    rest = list(itertools.islice(reading, 40))
    assert list(itertools.islice(iter(again), 40)) == rest


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("window", [1, 20])
def test_a_source_that_gives_nothing_ends_after_a_pass_with_what_was_left_out(window, interleave):
    source = source_of([3, 3], window, interleave=interleave, broken=(0, 1))
    with pytest.raises(ShardError, match=r"nothing in a whole pass .*left out: ShardError \d+.*source s"):
        next(iter(stream_of(source)))


def test_a_window_that_comes_out_shorter_than_it_was_is_noticed():
    stream = stream_of(source_of([50], 40))
    next(iter(stream))
    with pytest.raises(ShardError, match=r"a window of \d+ samples now has 20: the shards changed"):
        next(iter(stream_of(source_of([20], 40), 0, stream.state)))
