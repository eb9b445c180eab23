"""One source as one slot reads it, compared with reading all of it in order and shuffling by hand."""

import gc
import itertools
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.base.errors import ShardError
from wdspec.fields.samples import SampleFields
from wdspec.formats import blocks
from wdspec.planning.order import Delays, ShardOrder
from wdspec.planning.plan import SourcePlan
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.lanes import Lanes
from wdspec.read.lean import LeanStream
from wdspec.read.source import SourceStream, StreamState
from wdspec.spec.spec import Errors
from wdspec.urls.urls import ShardUrl


class Shard:
    """The samples (shard, 0), (shard, 1), …; sample n lies at offset 10·n."""

    is_copy = False
    unjoined = 0

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
    """Opens shards of n samples; those in `broken` cannot be opened."""

    fields = SampleFields()

    def __init__(self, sizes, broken):
        self.sizes, self.broken = sizes, broken

    def __call__(self, piece, **_):
        number = int(piece.shard.text)
        if number in self.broken:
            raise ShardError("broken")
        return Shard(piece, self.sizes[number])

    def when_due(self, share):
        return None

    def ahead(self):
        return SimpleNamespace(expect=lambda following, count: list(following(count)), close=lambda: None)


def source_of(sizes, size=1, *, slots=1, interleave=1, order="shuffled", drops=(), broken=()):
    """A source whose samples with an index in `drops` are dropped."""
    return SimpleNamespace(
        plan=SourcePlan(
            name="s",
            shards=[ShardUrl(str(n), "") for n in range(len(sizes))],
            share=1,
            order=ShardOrder(4, "s", len(sizes), slots, order),
            delays=Delays(4, "s", size),
            samples=None,
            interleave=interleave,
        ),
        parts=SimpleNamespace(open=Opener(sizes, broken), drops_decoded=False, selection=None),
        budget=ErrorBudget(Errors(skip=True), "s"),
        process=lambda slot: lambda raw, ordinal: None if raw[1] in drops else raw,
    )


def stream_of(source, slot=0, state=StreamState()):  # noqa: B008
    return SourceStream(source, slot, state)


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
    """The samples that the slot reads, pass by pass, each sorted by release."""
    plan, opener = source.plan, source.parts.open
    order, first, turn = plan.order, 0, 0
    while True:
        passes, entries = order.passes_at(slot, turn), []
        while order.passes_at(slot, turn) == passes and len(entries) < 500:
            entries.append(order.entry(slot, turn))
            turn += 1
        shards = [
            [(e.shard, i) for i in range(opener.sizes[e.shard]) if i % order.split == e.residue]
            for e in entries
            if e.shard not in opener.broken
        ]
        raws = list(in_turn(shards, plan.interleave))
        releases = plan.delays.releases(plan.delays.key(slot), first, len(raws)).tolist()
        for place in sorted(range(len(raws)), key=lambda place: (releases[place], place)):
            if source.process(slot)(raws[place], 0) is not None:
                yield raws[place]
        first += len(raws)


sources = st.builds(
    source_of,
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.sampled_from((1, 2, 5, 16, 90)),
    slots=st.integers(1, 4),
    interleave=st.sampled_from((1, 1, 2, 5)),
    order=st.sampled_from(("shuffled", "sequential", "resampled")),
    drops=st.sampled_from(((), (0,), (1, 2))),
)


def fruitful(source):
    """Whether any sample can be yielded."""
    return max(source.parts.open.sizes) > 3


@given(source=sources.filter(fruitful), slot=st.integers(0, 3))
@settings(deadline=None, max_examples=150)
def test_it_delivers_shards_in_plan_order_sorted_by_release(source, slot):
    slot %= source.plan.order.slots
    wanted = 60
    read = list(itertools.islice(iter(stream_of(source, slot)), wanted))
    assert read == list(itertools.islice(expected(source, slot), wanted))


@given(source=sources.filter(fruitful), slot=st.integers(0, 3), stop=st.integers(0, 120))
@settings(deadline=None, max_examples=150)
def test_a_restored_stream_yields_the_same_rest_and_packs_the_same(source, slot, stop):
    slot %= source.plan.order.slots
    stream = stream_of(source, slot)
    reading = iter(stream)
    for _ in range(stop):
        next(reading)
        assert bytes(stream.pack()) == stream.state.pack()
    state = StreamState.from_numbers(json.loads(json.dumps(stream.state.numbers())))
    again = stream_of(source, slot, state)
    assert bytes(again.pack()) == state.pack()
    rest = list(itertools.islice(reading, 80))
    assert list(itertools.islice(iter(again), 80)) == rest


@pytest.mark.parametrize("size", [1, 16, 90, 300])
@pytest.mark.parametrize("interleave", [1, 3, 8])
def test_a_resumed_stream_rereads_at_most_the_longest_delay_and_a_block(size, interleave):
    source = source_of([400] * 9, size, interleave=interleave)
    stream = stream_of(source)
    reading, delays = iter(stream), source.plan.delays
    for count in range(1, 3000):
        next(reading)
        if count % 37 == 0:
            state = stream.state
            assert state.ordinal <= count
            assert count - state.ordinal <= delays.longest + (delays.block if size > 1 else 0)


NUMBERS = ((16, 1), (90, 1), (90, 4), (300, 8), (1, 1), (1, 3))
FAST_CHANGES = [(before, NUMBERS[(n + by) % 6]) for n, before in enumerate(NUMBERS) for by in (1, 4)]
CHANGES = [
    pytest.param(*change, marks=[] if change in FAST_CHANGES else pytest.mark.long)
    for change in itertools.product(NUMBERS, repeat=2)
]


@pytest.mark.parametrize(("before", "now"), CHANGES)
def test_changed_delays_and_lanes_repeat_and_lose_nothing(before, now):
    """Each pass gives all samples once, wherever the numbers change, and whatever is resumed between."""
    sizes = [5, 800, 300, 0, 700, 1, 400, 250, 900, 100, 450]
    old, new = (source_of(sizes, size, interleave=lanes) for size, lanes in (before, now))
    for stop in (0, 1, 700, 2500, sum(sizes) - 1, sum(sizes)):
        stream = stream_of(old)
        seen = list(itertools.islice(iter(stream), stop))
        as_it_was = list(itertools.islice(iter(stream_of(old)), stop + 20))
        state = stream.state.for_plan_with_other_sizes(0, old.plan.delays, old.plan.interleave)
        for further in (3, 200, 2 * sum(sizes)):
            stream = stream_of(new, 0, StreamState.from_numbers(state.numbers()))
            seen += itertools.islice(iter(stream), further)
            state = stream.state
        for begin in (0, sum(sizes)):
            assert len(set(seen[begin : begin + sum(sizes)])) == sum(sizes)
        assert state.stretches == (), "started stretches are over"
        if 0 < stop < 2500 and before[1] == now[1]:
            assert len(set(as_it_was[stop:]) & set(seen[stop : stop + 20 + 4 * max(before[0], now[0])])) == 20


def test_changing_both_and_back_before_any_sample_changes_nothing():
    sizes, numbers = [300] * 9, {True: (200, 3), False: (50, 1)}
    sources = {which: source_of(sizes, size, interleave=lanes) for which, (size, lanes) in numbers.items()}
    stream = stream_of(sources[True])
    reading = iter(stream)
    list(itertools.islice(reading, 500))
    state, which = stream.state, True
    for _ in range(4):
        plan, which = sources[which].plan, not which
        state = state.for_plan_with_other_sizes(0, plan.delays, plan.interleave)
    rest = list(itertools.islice(iter(stream_of(sources[True], 0, state)), 2000))
    assert rest == list(itertools.islice(reading, 2000))


@pytest.mark.parametrize("sizes", [[30] * 20, [30, 1, 0, 7, 30, 30, 2, 45, 9, 30, 0, 0, 16, 3]])
@pytest.mark.parametrize("width", [1, 3, 7, 8, 12])
@pytest.mark.parametrize("at_a_time", [1, 13, 64, 1000])
def test_changing_the_lane_count_is_independent_of_block_size(sizes, width, at_a_time):
    """Also where all shards end together: none is given up beyond those that are too many."""

    def read(at_a_time):
        lanes = Lanes(source_of(sizes), 0, 0, (), 8, lambda turn, nothing_read: None)
        found = lanes.read(50)
        lanes.widen(width)
        while True:
            raws = lanes.read(at_a_time)
            found += raws
            if len(raws) < at_a_time:
                return found

    found = read(at_a_time)
    assert len(set(found)) == len(found) == sum(sizes), "all in one go, to the end of the pass"
    assert found == read(1)


def test_restart_points_do_not_accumulate_without_state_requests():
    stream = stream_of(source_of([5000] * 4, 20, order="resampled"))
    list(itertools.islice(iter(stream), 10_000))
    assert len(stream._restarts) < 20


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("size", [1, 20])
@pytest.mark.parametrize("order", ["shuffled", "sequential", "resampled"])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_source_that_yields_nothing_ends_and_reports_what_was_dropped(size, interleave, order, slots):
    source = source_of([3, 3], size, interleave=interleave, broken=(0, 1), order=order, slots=slots)
    with pytest.raises(ShardError, match=r"nothing in a whole pass .*dropped or skipped: D\d+ \d+.*source s"):
        next(iter(stream_of(source)))
    source = source_of([30, 30, 0], size, interleave=interleave, drops=range(30), order=order, slots=slots)
    with pytest.raises(ShardError, match=r"nothing in a whole pass"):
        next(iter(stream_of(source)))


@pytest.mark.parametrize("size", [1, 20, 500])
@pytest.mark.parametrize("order", ["shuffled", "sequential", "resampled"])
@pytest.mark.parametrize("slots", [1, 2, 4, 5])
@pytest.mark.parametrize("interleave", [1, 2, 8])
def test_one_good_shard_is_found_by_every_slot(size, order, slots, interleave):
    """Whatever the slot is dealt of a pass: only when it has met every part of every shard there is nothing."""
    source = source_of([7] * 5, size, interleave=interleave, broken=(0, 1, 3, 4), order=order, slots=slots)
    for slot in range(slots):
        found = list(itertools.islice(iter(stream_of(source, slot)), 40))
        assert {shard for shard, _ in found} == {2}


@pytest.mark.parametrize("order", ["shuffled", "resampled"])
@pytest.mark.parametrize("size", [1, 5, 18, 60])
def test_samples_yielded_before_a_state_count(size, order):
    """One good sample in a shard: after a resume there, the rest of the shard yields nothing."""
    source = source_of([9], size, order=order, drops={*range(9)} - {3})
    stream = stream_of(source)
    for _ in itertools.islice(iter(stream), 300):
        again = stream_of(source, 0, stream.state)
        assert next(iter(again)) == (0, 3)


def test_a_source_that_yields_nothing_for_long_warns_once(caplog):
    source = source_of([2] * 100, 20, drops=range(2))
    with pytest.raises(ShardError):
        next(iter(stream_of(source)))
    warnings = [
        record.getMessage() for record in caplog.records if "reading continues" in record.getMessage()
    ]
    assert warnings == [warnings[0]]
    assert "has yielded nothing from 64 of its 100 shards" in warnings[0]


def test_a_shard_that_became_too_short_is_detected():
    stream = stream_of(source_of([50], 40))
    reading = iter(stream)
    while stream.state.last < 30:
        next(reading)
    with pytest.raises(
        ShardError, match=r"sample \d+ was read before .* ends with sample 19: the shards have changed"
    ):
        next(iter(stream_of(source_of([20], 40), 0, stream.state)))


def lean(source, slot=0, state=StreamState()):  # noqa: B008
    return LeanStream(source, slot, state)


@pytest.mark.parametrize("open_stream", [stream_of, lean])
def test_a_shard_that_grew_after_its_pass_was_read_to_the_end_is_detected(open_stream):
    stream = open_stream(source_of([50], 40))
    reading = iter(stream)
    while not stream.state.end:
        next(reading)
    with pytest.raises(
        ShardError, match=r"sample 49 was read before .* ends with sample 54: the shards have changed"
    ):
        next(iter(open_stream(source_of([55], 40), 0, stream.state)))


@given(source=sources.filter(fruitful), slot=st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_a_lean_stream_delivers_shards_in_plan_order_sorted_by_release(source, slot):
    slot %= source.plan.order.slots
    assert list(itertools.islice(lean(source, slot), 60)) == list(
        itertools.islice(expected(source, slot), 60)
    )


@given(
    source=sources.filter(fruitful),
    slot=st.integers(0, 3),
    stop=st.integers(0, 120),
    kinds=st.permutations((LeanStream, SourceStream)),
)
@settings(deadline=None, max_examples=60)
def test_each_kind_of_stream_resumes_from_the_states_of_both(source, slot, stop, kinds):
    slot %= source.plan.order.slots
    for first, then in (kinds, (LeanStream, LeanStream)):
        stream = first(source, slot, StreamState())
        list(itertools.islice(stream, stop))
        state = StreamState.from_numbers(stream.state.numbers())
        rest = then(source, slot, state)
        for _ in range(40):
            if first is then:
                assert bytes(stream.pack()) == bytes(rest.pack())
            assert next(iter(stream)) == next(iter(rest))


@given(
    source=sources.filter(fruitful), slot=st.integers(0, 3), stops=st.lists(st.integers(0, 120), min_size=2)
)
@settings(deadline=None, max_examples=40)
def test_a_state_of_a_lean_stream_counts_the_samples_that_were_yielded(source, slot, stops):
    slot %= source.plan.order.slots
    stream, drawn, skipped = lean(source, slot), 0, source.process(slot)((0, 0), 0) is None
    for stop in stops if not skipped else ():
        drawn += len(list(itertools.islice(stream, stop)))
        given_ = stream.state.given(slot, source.plan.delays)
        assert given_ >= drawn
        if not any(source.process(slot)((0, index), 0) is None for index in range(12)):
            assert given_ == drawn


@pytest.mark.parametrize(("before", "now"), [((16, 1), (2, 2)), ((3, 2), (12, 1))])
def test_changed_sizes_of_a_lean_stream_repeat_and_lose_nothing(before, now):
    sizes = [5, 80, 30, 0, 70, 1, 40, 25, 90, 10, 45]
    old, new = (source_of(sizes, size, interleave=lanes) for size, lanes in (before, now))
    for stop in (0, 1, 70, 250, sum(sizes) - 1, sum(sizes)):
        stream = lean(old)
        seen = list(itertools.islice(stream, stop))
        state = stream.state.for_plan_with_other_sizes(0, old.plan.delays, old.plan.interleave)
        for further in (3, 20, 2 * sum(sizes)):
            stream = lean(new, 0, StreamState.from_numbers(state.numbers()))
            seen += itertools.islice(stream, further)
            state = stream.state
        for begin in (0, sum(sizes)):
            assert len(set(seen[begin : begin + sum(sizes)])) == sum(sizes)


def iterate_lean(monkeypatch, fitting):
    """Yield for each sample of a lean stream how many must be read for it, and how many are read.

    About `fitting` samples of the stream fill a window.
    """
    read = []
    iterate = Shard.__iter__
    monkeypatch.setattr(
        Shard, "__iter__", lambda self: (read.append(sample) or sample for sample in iterate(self))
    )
    monkeypatch.setattr("wdspec.read.lean.window_bytes", lambda: fitting * 64)  # two integers
    source = source_of([1000], 8)
    released = source.plan.delays.releases(source.plan.delays.key(0), 0, 300).tolist()
    order = sorted(range(300), key=released.__getitem__)
    for place, found in enumerate(itertools.islice(lean(source), 200)):
        assert found == (0, order[place])
        yield max(order[: place + 1]) + 1, len(read)


def test_a_large_sample_of_a_lean_stream_is_read_when_it_is_due(monkeypatch):
    for due, read in iterate_lean(monkeypatch, 0):
        assert read == due


@pytest.mark.parametrize(("fitting", "most"), [(5, 6), (1000, 16)])
def test_small_samples_of_a_lean_stream_are_read_as_many_at_a_time_as_fill_a_window_or_a_block(
    monkeypatch, fitting, most
):
    ahead = [read - due for due, read in iterate_lean(monkeypatch, fitting)]
    assert most - 2 <= max(ahead) < most
    assert min(ahead) >= 0


def test_samples_are_not_kept_alive_by_the_shards_that_they_are_from(monkeypatch):
    held = [{"__key__": "a", "bin": b"x"}, {"__key__": "b", "bin": b"y"}]
    monkeypatch.setattr(Shard, "__iter__", lambda self: iter(held))
    source = source_of([2], 2)
    source.process = lambda slot: lambda raw, ordinal: raw
    read = list(itertools.islice(lean(source), 2))
    assert sorted(read, key=lambda sample: sample["__key__"]) == [
        {"__key__": "a", "bin": b"x"},
        {"__key__": "b", "bin": b"y"},
    ]
    assert held == [{}, {}]


@pytest.mark.parametrize(("count", "chunk"), [(1, 256), (256, 256), (512, 128), (1000, 65.5), (5000, 32)])
def test_windows_share_their_bytes_and_grow_again(count, chunk):
    gc.collect()  # streams of other tests
    streams = [lean(source_of([3], 2)) for _ in range(count)]
    assert blocks._windows.value.chunk == chunk * 1024
    for stream in streams:
        stream.close()
        stream.close()
    assert blocks._windows.value.chunk == 256 * 1024
