"""`interleave`: shards of a source read in turn, each once per pass, and resumed exactly."""

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import corrupt, names, reader_of
from shardmaking import write_shard, write_source

import wdspec
from wdspec.planning.order import ShardOrder
from wdspec.planning.topology import Topology


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A source of 12 shards that differ in length, two of them empty."""
    folder = tmp_path_factory.mktemp("shards")
    for shard, length in enumerate((5, 0, 1, 9, 3, 17, 2, 0, 8, 30, 1, 4)):
        write_shard(
            folder / f"a-{shard:03d}.tar",
            [(f"{shard:03d}-{i:03d}", {"txt": b"x", "cls": b"1"}) for i in range(length)],
        )
    return folder


def source(folder, last=11, **options):
    options = {"shuffle": 0, "order": "sequential", "empty": "allow", **options}
    return {"dataset": [{"name": "a", "shards": f"{folder}/a-{{000..{last:03d}}}.tar", **options}]}


def flat(reader, batches, first=0):
    return [name for number in range(first, first + batches) for name in names(reader.batch(number))]


def in_turn(lengths, width):
    """One pass the slow, obvious way: (shard, sample) in order."""
    waiting, lanes, order = list(enumerate(lengths)), [], []
    while len(lanes) < width and waiting:
        lanes.append([*waiting.pop(0), 0])
    while lanes:
        lane = lanes.pop(0)
        while lane[2] == lane[1] and waiting:
            lane = [*waiting.pop(0), 0]
        if lane[2] < lane[1]:
            order.append((lane[0], lane[2]))
            lane[2] += 1
            lanes.append(lane)
    return order


@pytest.mark.parametrize("width", [2, 3, 5, 12, 40])
def test_shards_are_interleaved_sample_by_sample(folder, width):
    lengths = (5, 0, 1, 9, 3, 17, 2, 0, 8, 30, 1, 4)
    expected = [f"{shard:03d}-{i:03d}" for shard, i in in_turn(lengths, width)]
    assert flat(reader_of(source(folder, interleave=width)), 160) == expected * 2


@pytest.mark.parametrize("shuffle", [0, 30])
@pytest.mark.parametrize("topology", [Topology(1, 1), Topology(2, 2), Topology(1, 20)])
def test_every_sample_of_a_pass_appears_once(folder, topology, shuffle):
    spec = {**source(folder, interleave=4, shuffle=shuffle, order="shuffled"), "seed": 5}
    order = ShardOrder(5, "a", 12, topology.slots)
    seen = Counter()
    for rank in range(topology.ranks):
        reader = reader_of(spec, topology, rank)
        for worker in range(topology.workers):
            slot = topology.slot(rank, worker)
            parts = [order.entry(slot, turn)[1:] for turn in range(order.last_turn(slot, 0) + 1)]
            lengths = (5, 0, 1, 9, 3, 17, 2, 0, 8, 30, 1, 4)
            count = sum(len(range(residue, lengths[shard], order.split)) for shard, residue in parts)
            for m in range(count):
                seen.update(names(reader.batch(m * topology.workers + worker)))
    assert len(seen) == 80
    assert set(seen.values()) == {1}


@given(
    width=st.integers(2, 14),
    last=st.integers(8, 11),
    shuffle=st.sampled_from((0, 3, 20, 100)),
    order=st.sampled_from(("shuffled", "resampled", "sequential")),
    topology=st.sampled_from((Topology(1, 1), Topology(2, 2), Topology(3, 7))),
    stop=st.integers(0, 90),
    drops=st.booleans(),
)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_reader_restored_at_any_batch_resumes_exactly(
    folder, width, last, shuffle, order, topology, stop, drops
):
    options = {"select": "picks:most"} if drops else {}
    spec = {
        **source(folder, last, interleave=width, shuffle=shuffle, order=order, **options),
        "batch": 3,
        "seed": 2,
    }
    rank = topology.ranks - 1
    whole, table = reader_of(spec, topology, rank), {}
    for number in range(stop):
        whole.batch(number)
        table.update(whole.states(number))
    expected = [names(whole.batch(number)) for number in range(stop, stop + 40)]
    restored = reader_of(spec, topology, rank)
    restored.restore(table)
    for number, batch in enumerate(expected, stop):
        assert names(restored.batch(number)) == batch
        if number % 8 == 0:  # and so on from every state, not only from the first
            table.update(restored.states(number))
            again = reader_of(spec, topology, rank)
            again.restore({**table, **restored.table()})
            restored = again


def test_a_damaged_shard_ends_early_and_the_others_continue(tmp_path):
    shards = write_source(tmp_path, "a", 3, 6)
    corrupt(tmp_path / "a-001.tar", 2, 1)
    spec = {
        "dataset": [{"name": "a", "shards": shards, "shuffle": 0, "order": "sequential", "interleave": 3}],
        "errors": "skip",
    }
    reader = reader_of(spec)
    expected = [f"a{shard:03d}{i:04d}" for i in range(6) for shard in range(3) if shard != 1 or i < 2]
    assert flat(reader, 14) == expected
    assert reader.budgets["a"].skipped.total() == 1
    restored = reader_of(spec)
    first = reader_of(spec)
    flat(first, 9)
    restored.restore(first.table())
    assert flat(restored, 5, 9) == expected[9:]
    with pytest.raises(wdspec.ShardError, match=r"a-001.tar"):
        flat(reader_of({**spec, "errors": "raise"}), 14)


def test_a_missing_shard_is_skipped_only_if_the_spec_allows_it(tmp_path):
    shards = [write_source(tmp_path, "a", 2, 5), f"{tmp_path}/gone.tar"]
    spec = {"dataset": [{"name": "a", "shards": shards, "interleave": 3, "shuffle": 0}], "batch": 10}
    with pytest.raises(wdspec.MissingShardError, match=r"gone.tar"):
        reader_of(spec).batch(0)
    assert len(set(names(reader_of({**spec, "errors": "skip"}).batch(0)))) == 10


@pytest.mark.parametrize("shuffle", [0, 16, 1000])
def test_a_source_without_samples_is_an_error_and_not_an_endless_loop(folder, shuffle):
    spec = source(folder, interleave=5, shuffle=shuffle, select="picks:none")
    with pytest.raises(wdspec.ShardError, match=r"nothing in a whole pass.*select \d+.*source a"):
        reader_of(spec).batch(0)
    write_shard(folder / "empty.tar", [])
    spec["dataset"][0].update(shards=f"{folder}/empty.tar", select=None)
    with pytest.raises(wdspec.ShardError, match="its shards have no samples"):
        reader_of(spec).batch(0)


def test_a_rare_sample_in_one_of_many_shards_is_found(tmp_path):
    for shard in range(200):
        write_shard(tmp_path / f"r-{shard:03d}.tar", [("k", {"txt": b"x"})] if shard == 150 else [])
    spec = {
        "dataset": [
            {"name": "r", "shards": f"{tmp_path}/r-{{000..199}}.tar", "interleave": 8, "empty": "allow"}
        ]
    }
    assert flat(reader_of(spec), 5) == ["k"] * 5


def test_state_stays_under_half_a_kilobyte_with_many_lanes(tmp_path):
    shards = write_source(tmp_path, "a", 40, 3)
    spec = {"dataset": [{"name": "a", "shards": shards, "interleave": 32}], "batch": 5, "epoch": 500}
    pipeline = wdspec.compile(spec)
    for number, _ in enumerate(pipeline):
        state = json.loads(json.dumps(pipeline.state_dict()))
        (entry,) = state["ranks"].values()
        assert len(entry) < 512
        assert entry.startswith(f"{number + 1}.0.1.")
        if number == 70:
            kept = state
    rest = wdspec.compile(spec)
    rest.load_state_dict(kept)
    again = wdspec.compile(spec)
    expected = [batch["__key__"] for batch in again][71:]
    assert [batch["__key__"] for batch in rest] == expected


def test_another_width_is_an_order_change_that_can_be_allowed(tmp_path):
    shards = write_source(tmp_path, "a", 8, 6)

    def spec(width):
        return {
            "dataset": [{"name": "a", "shards": shards, "interleave": width, "shuffle": 0}],
            "batch": 4,
            "epoch": {"batches": 15},
        }

    pipeline = wdspec.compile(spec(4))
    iterator = iter(pipeline)
    first = [name for _ in range(3) for name in next(iterator)["__key__"]]
    state = pipeline.state_dict()
    for width in (1, 2, 6):
        other = wdspec.compile(spec(width))
        with pytest.raises(wdspec.UsageError, match=rf"sources.a.interleave: was 4, now {width}"):
            other.load_state_dict(state)
        other.load_state_dict(state, allow_changed=True)
        rest = [name for batch in other for name in batch["__key__"]]
        assert {*first, *rest} >= {f"a{shard:03d}{i:04d}" for shard in range(8) for i in range(6)}
