"""Positions of a pass: each in one slot, in equal batches, found again in O(log n)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wdspec
from wdspec.planning.passes import PassSegment, ShardCount, SourceCount, plan_pass
from wdspec.planning.topology import Topology


def counted(*sources):
    return tuple(SourceCount.of(map(ShardCount, shards)) for shards in sources)


sources_of_shards = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=3)
topologies = st.builds(Topology, st.integers(1, 4), st.integers(1, 5))


@given(
    sources_of_shards.filter(lambda s: any(map(any, s))),
    topologies,
    st.integers(1, 6),
    st.booleans(),
    st.data(),
)
def test_the_batches_of_a_pass_cover_every_position_once(sources, topology, b, drop, data):
    counts = counted(*sources)
    total = sum(map(sum, sources))
    limit = data.draw(st.none() | st.integers(1, 40))
    samples = min(total, limit or total)
    size = b * topology.ranks
    if drop and samples < size:
        with pytest.raises(wdspec.UsageError, match="shorter than one global batch"):
            plan_pass(counts, topology, b, "drop", limit)
        return
    finite = plan_pass(counts, topology, b, "drop" if drop else "pad", limit)
    assert finite.samples == samples
    assert finite.batches == (samples // size if drop else -(-samples // size))
    covered = []
    for number in range(finite.batches):
        m, k = divmod(number, topology.workers)
        for rank in range(topology.ranks):
            first, stop = finite.slot_range(rank, k)
            assert first + (m + 1) * b <= stop
            covered += range(first + m * b, first + (m + 1) * b)
    assert sorted(covered) == list(range(finite.batches * size))
    read = [
        (segment.source, position)
        for rank in range(topology.ranks)
        for k in range(topology.workers)
        for segment in finite.segments(*finite.slot_range(rank, k))
        for position in range(segment.first, segment.stop)
    ]
    whole = [(source, position) for source, shards in enumerate(sources) for position in range(sum(shards))]
    assert read == whole[: min(samples, finite.batches * size)]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any))
def test_a_position_is_found_in_its_shard(shards):
    (count,) = counted(shards)
    places = [(turn, index) for turn, samples in enumerate(shards) for index in range(samples)]
    assert [count.find(position) for position in range(count.samples)] == places
    assert [count.length(turn) for turn in range(len(shards))] == shards


def test_reading_starts_at_the_last_restart_point():
    count = SourceCount.of([ShardCount(100, ((10, 512), (40, 2048))), ShardCount(5)])
    assert [count.mark(0, index) for index in (0, 9, 10, 39, 40, 99)] == [
        (0, 0), (0, 0), (10, 512), (10, 512), (40, 2048), (40, 2048),
    ]  # fmt: skip
    assert count.mark(1, 4) == (0, 0)


def test_segments_omit_sources_without_samples():
    finite = plan_pass(counted([2], [0, 0], [1, 3]), Topology(1, 1), 2, "pad", None)
    assert list(finite.segments(1, 100)) == [PassSegment(0, 1, 2), PassSegment(2, 0, 4)]


def test_zero_samples_are_an_error():
    with pytest.raises(wdspec.UsageError, match="no samples"):
        plan_pass(counted([0]), Topology(1, 1), 2, "pad", None)


def test_a_large_batch_of_mostly_padding_is_rejected():
    with pytest.raises(
        wdspec.UsageError, match=r"320 samples would be padded to one batch of 100,000.* 320 per rank"
    ):
        plan_pass(counted([320]), Topology(1, 1), 100_000, "pad", None)
    with pytest.raises(wdspec.UsageError, match="40 per rank are enough for all samples"):
        plan_pass(counted([320]), Topology(8, 1), 5000, "pad", None)
    for samples, ranks, size in ((10, 8, 64), (320, 1, 4096), (10_000, 1, 100_000), (100_001, 1, 100_000)):
        assert plan_pass(counted([samples]), Topology(ranks, 2), size, "pad", None).samples == samples
