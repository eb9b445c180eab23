"""Simulated draws compared with drawing batch by batch and counting."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec import load
from wdspec.cli import simulate_draws as simulation
from wdspec.cli.simulate_draws import coverage, legal_runs, simulate
from wdspec.planning.order import Delays, ShardOrder
from wdspec.planning.passes import ShardCount, SourceCount
from wdspec.planning.plan import make_plan
from wdspec.planning.topology import Topology

SHARDS = {"a": 7, "b": 3, "c": 40}


def plan_of(topology, counts=None, **keys):
    sources = [{"name": name, "shards": f"{name}-{{1..{n}}}.tar"} for name, n in SHARDS.items()]
    spec = load({"dataset": sources, "seed": 4, **keys})
    return make_plan(spec, {name: range(n) for name, n in SHARDS.items()}, topology, counts)


def slowly(plan, batches):
    """The sources of every global batch, one after the other, as lists of (slot, sources)."""
    draws, topology = plan.draws(), plan.topology
    for batch in range(batches):
        k, m = plan.slot_of_step(batch)
        yield [(topology.slot(c, k), draws.batches(c, k, m, 1)[0].tolist()) for c in range(topology.ranks)]


@given(
    st.builds(Topology, st.integers(1, 5), st.integers(1, 5)),
    st.integers(1, 9),
    st.integers(1, 60),
    st.integers(1, 20),
    st.sampled_from(["even", "random", "round_robin"]),
)
@settings(deadline=None, max_examples=60)
def test_counts_match_drawing_batch_by_batch(topology, b, batches, epoch, draw):
    plan = plan_of(topology, batch=b, epoch={"batches": epoch}, mix={"draw": draw})
    found = simulate(plan, batches)
    by_slot = np.zeros((topology.slots, 3), dtype=int)
    rows = []
    for batch in slowly(plan, batches):
        for slot, sources in batch:
            by_slot[slot] += np.bincount(sources, minlength=3)
        rows.append(np.bincount([each for _, sources in batch for each in sources], minlength=3))
    assert found.drawn.tolist() == sum(rows).tolist()
    assert found.by_slot.tolist() == by_slot.tolist()
    assert found.batch_least.tolist() == np.min(rows, axis=0).tolist()
    assert found.batch_most.tolist() == np.max(rows, axis=0).tolist()
    assert found.by_epoch.tolist() == [
        np.sum(rows[at : at + epoch], axis=0).tolist() for at in range(0, batches, epoch)
    ]
    shares = np.array([float(source.share) for source in plan.sources])
    off = np.cumsum(rows, axis=0) - np.arange(1, batches + 1)[:, None] * shares * b * topology.ranks
    assert found.furthest == pytest.approx(np.abs(off).max(axis=0))
    assert found.expected == pytest.approx(shares * found.samples)


def test_the_block_size_of_counting_does_not_matter(monkeypatch):
    plan = plan_of(Topology(3, 4), batch=2, epoch={"batches": 37})
    at_once = simulate(plan, 100)
    monkeypatch.setattr(simulation, "AT_ONCE", 1)
    monkeypatch.setattr(simulation, "A_CALL", 1)
    steps = []
    piecemeal = simulate(plan, 100, advance=steps.append)
    for name, value in vars(at_once).items():
        assert np.array_equal(value, getattr(piecemeal, name)) or value == pytest.approx(
            getattr(piecemeal, name)
        )
    assert sum(steps) == 100
    assert len(steps) >= 25


@pytest.mark.parametrize("at_once", [1, 1 << 21])
def test_scheduled_shares_are_expected_batch_by_batch(monkeypatch, at_once):
    monkeypatch.setattr(simulation, "AT_ONCE", at_once)
    monkeypatch.setattr(simulation, "A_CALL", 1)
    steps = [
        {"at": 0, "shares": {"a": 0.5, "b": 0.5, "c": 0}},
        {"at": 800, "shares": {"a": 0, "b": 0.25, "c": 0.75}},
    ]
    plan = plan_of(Topology(2, 2), batch=8, mix={"schedule": steps}, epoch={"batches": 30})
    found = simulate(plan, 60)
    assert found.expected.tolist() == [400, 400 + 40, 120]
    assert found.drawn.tolist() == pytest.approx(found.expected.tolist(), abs=2)
    assert found.furthest.max() < 4


def test_single_source_batches_are_counted_whole():
    plan = plan_of(Topology(2, 2), batch=8, mix={"unit": "batch", "by": "equal"}, epoch={"batches": 30})
    found = simulate(plan, 60)
    assert (found.batch_least.tolist(), found.batch_most.tolist()) == ([0] * 3, [16] * 3)
    assert found.drawn.tolist() == [320] * 3


def test_sources_can_be_counted_together():
    plan = plan_of(Topology(2, 2), batch=8)
    alone, together = simulate(plan, 50), simulate(plan, 50, [[0, 2], [1]])
    assert together.drawn.tolist() == [alone.drawn[0] + alone.drawn[2], alone.drawn[1]]
    assert together.batch_most[0] <= alone.batch_most[0] + alone.batch_most[2]


def test_the_first_epoch_of_each_slot_is_counted_separately():
    plan = plan_of(Topology(2, 3), batch=8, epoch={"batches": 10})
    assert simulate(plan, 25).first_by_slot.tolist() == simulate(plan, 10).by_slot.tolist()
    assert simulate(plan, 7).first_by_slot.tolist() == simulate(plan, 7).by_slot.tolist()


@pytest.mark.parametrize(("remainder", "padding", "samples"), [("pad", 7, 161), ("drop", 0, 160)])
def test_every_pass_has_every_sample_once_and_counts_padding_separately(remainder, padding, samples):
    sizes = {"a": 10, "b": 11, "c": 140}
    counts = {name: SourceCount.of([ShardCount(size)]) for name, size in sizes.items()}
    plan = plan_of(Topology(2, 3), counts, batch=4, epoch={"pass": remainder})
    found = simulate(plan, 2 * plan.timeline.epoch_steps)
    assert found.by_epoch.sum(axis=1).tolist() == [samples, samples]
    assert found.padding == 2 * padding
    if remainder == "pad":
        assert found.by_epoch.tolist() == [[10, 11, 140]] * 2
    assert found.by_slot.sum() == 2 * samples


def test_legal_topologies_are_the_divisors():
    assert legal_runs(plan_of(Topology(12, 5))) == ([1, 2, 3, 4, 6, 12], [1, 5])


@given(
    shards=st.integers(1, 30),
    per_shard=st.integers(1, 40),
    slots=st.integers(1, 9),
    kind=st.sampled_from(["shuffled", "sequential"]),
    size=st.sampled_from([1, 16, 64, 200]),
    drawn=st.lists(st.integers(0, 700), min_size=9, max_size=9),
)
@settings(deadline=None, max_examples=150)
def test_shards_opened_by_a_slot_match_a_window_by_window_read(shards, per_shard, slots, kind, size, drawn):
    order = ShardOrder(1, "a", shards, slots, kind)
    per_shard *= order.split  # so that the parts of a shard are equal
    delays = Delays(1, "a", size)
    found = coverage(order, delays, np.array(drawn[:slots]), shards * per_shard)
    for slot in range(slots):
        read = _turns_read(order, delays, slot, drawn[slot], per_shard // order.split)
        # How much is held in one slot is an expectation.
        spread = (
            0 if size == 1 else math.ceil((delays.block + 3 * math.sqrt(size)) / (per_shard // order.split))
        )
        assert abs(found.slot_turns[slot] - read) <= spread
    assert found.passes == pytest.approx(sum(drawn[:slots]) / (shards * per_shard))
    assert 0 <= found.seen <= min(1, found.passes + 1e-9)
    assert found.shards_touched <= shards + 1e-9
    assert found.repeats == pytest.approx(sum(drawn[:slots]) - found.seen * shards * per_shard, abs=1e-6)


def _turns_read(order, delays, slot, drawn, per_turn):
    """Turns that a slot has opened when it has given `drawn` samples: what a stream does, without data."""
    first = turn = 0
    while True:
        turns = order.last_turn(slot, order.passes_at(slot, turn)) + 1 - turn
        count = turns * per_turn
        if drawn <= count:
            break
        first, turn, drawn = first + count, turn + turns, drawn - count
    if delays.size == 1 or not drawn:
        return turn + -(-drawn // per_turn)
    releases = np.sort(delays.releases(delays.key(slot), first, count)) - (first << 20)
    read = min(count, int(releases[drawn - 1] >> 20) + 1)
    return turn + -(-read // per_turn)


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 7), st.integers(0, 80))
def test_interleaved_shards_are_opened_one_after_another(width, shards, per_shard, drawn):
    drawn = min(drawn, shards * per_shard)
    groups = [range(shards)[at : at + width] for at in range(0, shards, width)]
    read = [shard for group in groups for _ in range(per_shard) for shard in group]
    found = coverage(
        ShardOrder(0, "a", shards, 1), Delays(0, "a", 1), np.array([drawn]), shards * per_shard, width
    )
    assert found.slot_turns.tolist() == [len(set(read[:drawn]))]


def test_samples_seen_in_a_partial_first_pass_equal_the_draws():
    found = coverage(ShardOrder(0, "a", 100, 4), Delays(0, "a", 16), np.array([50, 50, 60, 40]), 1000)
    assert (found.passes, found.seen, found.repeats) == pytest.approx((0.2, 0.2, 0))
    # About 15 of the samples read are buffered and half a block of 16 was read ahead: 73, 83 and 62, of 10 per shard.
    assert found.slot_turns.tolist() == [8, 8, 9, 7]
    assert found.shards_touched == pytest.approx(32)


def test_a_lagging_slot_leaves_part_of_the_source_unseen():
    order, delays = ShardOrder(0, "a", 10, 2), Delays(0, "a", 1)
    found = coverage(order, delays, np.array([100, 20]), 100)
    assert found.slot_passes.tolist() == [1, 0]
    # Of the first pass 0.7 was seen; the one slot then saw half of the second pass, whatever that holds.
    assert found.seen == pytest.approx(1 - 0.3 * 0.5)
    assert coverage(order, delays, np.array([50, 50]), 100).seen == pytest.approx(1)


def test_expected_shards_match_the_real_order():
    order = ShardOrder(3, "a", 500, 8)
    drawn = np.full(8, 800)  # 80 turns of 10 samples a slot: 62.5 of the first pass, the rest of the second
    found = coverage(order, Delays(3, "a", 1), drawn, 5000)
    entries = [order.entry(slot, turn) for slot in range(8) for turn in range(80)]
    assert found.shards_touched == pytest.approx(len({each.shard for each in entries}), abs=15)
    assert found.shards_touched == 500  # the whole first pass


def test_resampled_shards_appear_as_often_as_probability_predicts():
    order = ShardOrder(3, "a", 500, 8, "resampled")
    found = coverage(order, Delays(3, "a", 1), np.full(8, 800), 5000)
    seen = {order.entry(slot, turn).shard for slot in range(8) for turn in range(80)}
    assert found.shards_touched == pytest.approx(len(seen), abs=25)
    assert found.seen == pytest.approx(1 - (1 - 1 / 500) ** 640)


def test_a_million_shards_and_a_thousand_slots_take_no_time():
    order = ShardOrder(0, "a", 1_000_000, 1024)
    found = coverage(order, Delays(0, "a", 1000), np.full(1024, 1_500_000), 10**9)
    assert found.passes == pytest.approx(1.536)
    assert found.seen == 1


def test_an_even_mix_stays_within_the_promised_deviation():
    plan = plan_of(Topology(16, 8), batch={"global_size": 512}, mix={"by": "equal"})
    found = simulate(plan, 2000)
    assert (found.batch_most - found.batch_least).max() <= 3
    assert found.furthest.max() < 16 * 8
    assert np.abs(found.by_slot - found.samples / 128 * float(Fraction(1, 3))).max() < 8 + 4
