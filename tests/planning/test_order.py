from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdspec.planning.order import ShardOrder


@given(st.integers(1, 60), st.integers(1, 40), st.sampled_from(("shuffled", "sequential")), st.integers(0, 5))
def test_every_part_of_every_pass_is_assigned_exactly_once(shards, slots, kind, seed):
    order = ShardOrder(seed, "a", shards, slots, kind)
    turns = -(-3 * order.per_pass // slots)
    dealt = Counter(order.entry(slot, turn) for slot in range(slots) for turn in range(turns))
    for passes in range(2):
        for shard in range(shards):
            for residue in range(order.split):
                assert dealt[passes, shard, residue] == 1


@given(st.integers(1, 20), st.integers(1, 64))
def test_slots_never_read_the_same_samples_at_the_same_time(shards, slots):
    order = ShardOrder(1, "a", shards, slots)
    assert order.per_pass >= slots
    first = [order.entry(slot, 0)[1:] for slot in range(slots)]
    assert len(set(first)) == slots


def test_passes_differ_and_do_not_depend_on_other_sources():
    order = ShardOrder(1, "a", 50, 1)
    first, second = ([order.entry(0, p * 50 + i).shard for i in range(50)] for p in range(2))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first != [ShardOrder(1, "b", 50, 1).entry(0, i).shard for i in range(50)]
    assert first != [ShardOrder(2, "a", 50, 1).entry(0, i).shard for i in range(50)]


def test_sequential_order_is_the_listed_order():
    order = ShardOrder(1, "a", 5, 1, "sequential")
    assert [order.entry(0, i).shard for i in range(7)] == [0, 1, 2, 3, 4, 0, 1]


def test_a_slot_of_a_sequential_source_reaches_every_part_of_a_shard():
    for shards, slots in [(5, 16), (1, 6), (3, 7), (4, 32)]:
        order = ShardOrder(1, "a", shards, slots, "sequential")
        parts = {order.entry(0, turn)[1:] for turn in range(40 * order.per_pass)}
        visited = {shard for shard, _ in parts}
        assert parts == {(shard, residue) for shard in visited for residue in range(order.split)}


def test_resampled_draws_with_replacement():
    order = ShardOrder(1, "a", 10, 2, "resampled")
    drawn = Counter(order.entry(slot, i).shard for slot in range(2) for i in range(5000))
    assert len(drawn) == 10
    assert all(850 < n < 1150 for n in drawn.values())
    assert (
        len({order.entry(0, i).shard for i in range(5)}) < 5
        or len({order.entry(1, i).shard for i in range(5)}) < 5
    )


@pytest.mark.parametrize("kind", ["shuffled", "resampled", "sequential"])
@pytest.mark.parametrize(("shards", "slots"), [(1, 1), (2, 2), (2, 4), (4, 4), (6, 4), (40, 8), (3, 7)])
def test_every_slot_reaches_every_part_of_every_shard(kind, shards, slots):
    order = ShardOrder(1, "a", shards, slots, kind)
    for slot in range(slots):
        met = {order.entry(slot, turn)[1:] for turn in range(30 * order.per_pass)}
        assert len(met) == order.per_pass


@pytest.mark.parametrize(("shards", "slots"), [(2, 2), (5, 4), (6, 4), (3, 7), (12, 12)])
def test_a_sequential_pass_keeps_the_listed_order_for_any_assignment(shards, slots):
    order = ShardOrder(1, "a", shards, slots, "sequential")
    turns = 6 * order.per_pass // slots
    entries = sorted(order.entry(slot, turn) for slot in range(slots) for turn in range(turns))
    whole = [entry for entry in entries if entry.passes < 5]
    assert whole == [(p, s, r) for p in range(5) for s in range(shards) for r in range(order.split)], (
        "every entry of a pass is dealt once"
    )
    for slot in range(slots):
        for p in range(5):
            last = order.last_turn(slot, p)
            assert order.passes_at(slot, last) <= p < order.passes_at(slot, last + 1)


@pytest.mark.parametrize("kind", ["shuffled", "resampled", "sequential"])
def test_a_million_shards_cost_nothing_until_used(kind):
    order = ShardOrder(1, "a", 1_000_000, 1024, kind)
    entries = [order.entry(slot, turn) for slot in (0, 511, 1023) for turn in (0, 10_000)]
    assert all(0 <= entry.shard < 1_000_000 for entry in entries)
    assert entries[1].passes == 10_000 * 1024 // 1_000_000
