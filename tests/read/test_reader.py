"""The engine: states, windows, filters, policies, shares."""

import logging
import re
from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs import Listed
from shardmaking import write_shard, write_source

import wdspec
from wdspec.planning.topology import Seat, Topology
from wdspec.read.source import SIZE
from wdspec.spec.load import load


def reader_of(spec, topology=Topology(1, 1), rank=0):  # noqa: B008
    seat = Seat(rank, topology.ranks)
    return Listed.of(load(spec)).run(seat, topology.workers).reader()


def names(samples):
    return [sample["__key__"] for sample in samples]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {name: write_source(folder, name, n, m) for name, n, m in [("a", 3, 17), ("b", 1, 5), ("c", 7, 3)]}


@given(
    seed=st.integers(0, 9),
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    shuffle=st.sampled_from((0, 3, 20, 100)),
    order=st.sampled_from(("shuffled", "resampled", "sequential")),
    ranks=st.integers(1, 3),
    workers=st.integers(1, 3),
    b=st.integers(1, 5),
    stop=st.integers(0, 40),
    drops=st.booleans(),
)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_reader_restored_at_any_batch_resumes_exactly(
    shards, seed, weights, shuffle, order, ranks, workers, b, stop, drops
):
    spec = {
        "seed": seed,
        "dataset": [
            {"name": name, "shards": shards[name], "weight": w, "shuffle": shuffle, "order": order}
            for name, w in zip("abc", weights, strict=False)
        ],
        "batch": b,
    }
    if drops:
        spec["defaults"] = {"select": "picks:most"}
    topology = Topology(ranks, workers)
    whole = reader_of(spec, topology, ranks - 1)
    table, expected = {}, []
    for number in range(stop + 15):
        batch = names(whole.batch(number))
        if number < stop:
            table.update(whole.states(number))
        else:
            expected.append(batch)
    lanes = (
        len(weights) if order == "sequential" else sum(max(1, round(8 * w / sum(weights))) for w in weights)
    )
    assert all(len(state) <= SIZE * len(weights) + 24 * lanes for state in table.values())
    for _ in range(2):
        restored = reader_of(spec, topology, ranks - 1)
        restored.restore(table)
        assert [names(restored.batch(number)) for number in range(stop, stop + 15)] == expected


@pytest.mark.parametrize("draw", ["even", "random", "round_robin"])
def test_realised_shares_on_the_real_engine(shards, draw):
    weights = {"a": 5, "b": 3, "c": 2}
    spec = {
        "dataset": [{"name": n, "shards": shards[n], "weight": w} for n, w in weights.items()],
        "mix": {"draw": draw},
        "batch": 7,
    }
    topology = Topology(3, 2)
    readers = [reader_of(spec, topology, rank) for rank in range(3)]
    exact = np.array([1 / 3] * 3 if draw == "round_robin" else [0.5, 0.3, 0.2])
    slots = {slot: np.zeros(3) for slot in range(6)}
    job = np.zeros(3)
    for number in range(200):
        whole = np.zeros(3)
        for rank, reader in enumerate(readers):
            counts = Counter(sample["__source__"] for sample in reader.batch(number))
            drawn = np.array([counts[name] for name in "abc"])
            slots[topology.slot(rank, number % 2)] += drawn
            whole += drawn
        job += whole
        if draw != "random":
            assert np.abs(whole - 21 * exact).max() < 3, "every global batch"
            assert np.abs(job - (number + 1) * 21 * exact).max() <= 6, "the job: one sample a slot"
    for total in slots.values():
        assert np.abs(total - total.sum() * exact).max() < (8 if draw != "random" else 80), "every slot"


def test_unbatched_shares_are_exact_too(shards):
    spec = {"dataset": [{"name": n, "shards": shards[n], "weight": w} for n, w in (("a", 2), ("b", 1))]}
    reader = reader_of(spec)
    drawn = Counter(reader.batch(number)[0]["__source__"] for number in range(300))
    assert drawn == {"a": 200, "b": 100}


def test_a_dropped_sample_uses_up_no_draw(shards):
    spec = {
        "dataset": [
            {"name": "a", "shards": shards["a"], "weight": 1, "select": "picks:few"},
            {"name": "b", "shards": shards["b"], "weight": 1},
        ],
        "batch": 10,
    }
    reader = reader_of(spec)
    drawn = Counter(sample["__source__"] for number in range(20) for sample in reader.batch(number))
    assert drawn == {"a": 100, "b": 100}
    assert reader.budgets["a"].dropped["select"] > 100


def test_a_source_without_samples_is_an_error_and_not_an_endless_loop(shards):
    spec = {"dataset": [{"name": "a", "shards": shards["a"], "select": "picks:none"}]}
    with pytest.raises(wdspec.ShardError, match=r"nothing in a whole pass.*select \d+.*source a"):
        reader_of(spec).batch(0)


def test_if_shards_may_be_empty_a_source_of_only_empty_ones_is_still_an_error(tmp_path):
    write_shard(tmp_path / "a-0.tar", [])
    write_shard(tmp_path / "a-1.tar", [("k", {"txt": b"x"})])
    source = {"name": "a", "shards": f"{tmp_path}/a-{{0..1}}.tar", "empty": "allow"}
    spec = {"dataset": [source], "batch": 4}
    for topology in (Topology(1, 1), Topology(2, 2)):
        assert names(reader_of(spec, topology).batch(0)) == ["k"] * 4
    spec["dataset"][0]["shards"] = f"{tmp_path}/a-0.tar"
    with pytest.raises(wdspec.ShardError, match="its shards have no samples"):
        reader_of(spec).batch(0)


def test_more_slots_than_shards_read_different_samples(tmp_path):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 1, 40)}], "batch": 5}
    topology = Topology(2, 4)
    first = [
        set(names(reader_of(spec, topology, rank).batch(number))) for rank in range(2) for number in range(4)
    ]
    assert len(set.union(*first)) == 40


def corrupt(path, sample, member=0):
    """Breaks a header: `samples` have two members of one header and one data block each."""
    data = bytearray(path.read_bytes())
    data[(sample * 4 + member * 2) * 512 + 3] ^= 0xFF
    path.write_bytes(bytes(data))


def damaged(tmp_path, **errors):
    shards = write_source(tmp_path, "a", 3, 10)
    corrupt(tmp_path / "a-001.tar", 4, 1)
    source = {"name": "a", "shards": shards, "shuffle": 0, "order": "sequential", **errors}
    return {"dataset": [source], "batch": 5}


def test_by_default_damage_raises_with_its_place(tmp_path):
    reader = reader_of(damaged(tmp_path))
    with pytest.raises(wdspec.ShardError) as caught:
        deque(map(reader.batch, range(6)), maxlen=0)
    assert caught.value.place == {
        "source": "a",
        "url": f"{tmp_path}/a-001.tar",
        "offset": (4 * 4 + 2) * 512,
        **{k: v for k, v in caught.value.place.items() if k not in ("source", "url", "offset")},
    }


def test_damage_can_be_skipped_and_counted_without_merging_samples(tmp_path, caplog):
    reader = reader_of(damaged(tmp_path, errors="skip"))
    with caplog.at_level(logging.WARNING, "wdspec"):
        seen = [sample for number in range(4) for sample in reader.batch(number)]
    assert names(seen) == [f"a000{i:04d}" for i in range(10)] + [f"a001{i:04d}" for i in range(4)] + [
        f"a002{i:04d}" for i in range(6)
    ]
    assert all({"txt", "cls"} <= set(sample) for sample in seen)
    assert sum(reader.budgets["a"].skipped.values()) == 1
    assert "a-001.tar" in caplog.text


def test_exceeding_the_budget_raises_with_a_summary(tmp_path):
    reader = reader_of(damaged(tmp_path, errors={"skip": True, "max_count": 2}))
    with pytest.raises(wdspec.ShardError, match=r"3 errors exceed the budget of 2 \(max_count\).*D108 3"):
        deque(map(reader.batch, range(30)), maxlen=0)


def test_a_missing_shard_is_skipped_only_if_the_spec_allows_it(tmp_path):
    spec = {"dataset": [{"name": "a", "shards": [write_source(tmp_path, "a", 2, 5), f"{tmp_path}/gone.tar"]}]}
    spec["batch"] = 20
    with pytest.raises(wdspec.MissingShardError, match=r"gone.tar"):
        reader_of(spec).batch(0)
    spec["errors"] = "skip"
    assert len(reader_of(spec).batch(0)) == 20


def test_an_undecodable_field_is_reported_with_all_facts(tmp_path):
    write_shard(tmp_path / "x.tar", [("k1", {"cls": b"7"}), ("k2", {"cls": b"seven"})])
    spec = {"dataset": [{"name": "s", "shards": f"{tmp_path}/x.tar", "shuffle": 0}], "batch": 4}
    with pytest.raises(wdspec.FieldError, match=r"source s, url .*x.tar, key k2, field cls"):
        reader_of(spec).batch(0)
    spec["errors"] = {"skip": True, "max_rate": 0.001}
    reader = reader_of(spec)
    with pytest.raises(wdspec.ShardError, match=r"exceed the budget of 1 \(max_rate 0.001 of 1000 samples\)"):
        reader.batch(0)


def test_shards_that_changed_since_a_state_was_saved_are_detected(tmp_path):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 1, 30)}], "batch": 4}
    reader = reader_of(spec)
    reader.batch(0)
    table = reader.states(0)
    write_source(tmp_path, "a", 1, 20)
    again = reader_of(spec)
    again.restore(table)
    with pytest.raises(wdspec.ShardError, match=r"sample \d+ was read before .* the shards have changed"):
        again.batch(1)


def test_scale_is_the_same_for_every_reader(tmp_path):
    import io

    from PIL import Image

    def png(side):
        buffer = io.BytesIO()
        Image.new("L", (side, side)).save(buffer, "png")
        return buffer.getvalue()

    write_shard(tmp_path / "x.tar", [(f"k{i}", {"a.png": png(40), "seg.png": png(80)}) for i in range(20)])
    spec = {
        "dataset": [{"name": "s", "shards": f"{tmp_path}/x.tar", "scale": [0.5, 2.0], "decode": "l8"}],
        "batch": 1,
    }
    first, again = reader_of(spec), reader_of(spec)
    sizes = []
    for number in range(40):
        (sample,) = first.batch(number)
        assert abs(sample["seg.png"].shape[0] - 2 * sample["a.png"].shape[0]) <= 1
        sizes.append(sample["a.png"].shape[0])
        assert again.batch(number)[0]["a.png"].shape == sample["a.png"].shape
    assert min(sizes) < 30
    assert max(sizes) > 55
    assert len(set(sizes[:20])) > 10, "each sample has its own factor, and each pass another"


def test_maps_tags_fields_and_their_order(shards):
    spec = {
        "dataset": [
            {
                "name": "a",
                "shards": shards["a"],
                "map": ["picks:shout", {"call": "picks:Adder", "args": {"n": 5}}],
                "tags": {"lang": "en"},
            }
        ],
        "map": "picks:tag_length",
        "fields": "txt cls lang n",
        "batch": 2,
    }
    sample = reader_of(spec).batch(0)[0]
    assert list(sample) == ["__key__", "__url__", "__source__", "txt", "cls", "lang", "n"]
    assert sample["txt"].isupper()
    assert sample["n"] == len("en")
    assert sample["cls"] >= 5


@pytest.mark.parametrize(
    ("mapped", "says"),
    [
        ("picks:gives_none", "returned NoneType, not a dict; to drop samples use `select`"),
        ("picks:nothing_here", "has no `nothing_here`"),
        ("no_such_module:f", "cannot import `no_such_module`"),
        ("picks:NUMBER", "is a int, which cannot be called"),
        ("picks:Dumb", "objects cannot be called"),
    ],
)
def test_errors_about_maps_explain_what_is_wrong(shards, mapped, says):
    spec = {"dataset": [{"name": "a", "shards": shards["a"], "map": mapped}]}
    with pytest.raises(wdspec.WdspecError, match=says):
        reader_of(spec).batch(0)


def test_an_error_in_a_map_keeps_its_type_and_names_its_place(shards):
    spec = {"dataset": [{"name": "a", "shards": shards["a"], "map": "picks:fails"}]}
    with pytest.raises(ZeroDivisionError) as caught:
        reader_of(spec).batch(0)
    assert re.search(r"by zero \[source a, url .*/a-\d+\.tar, key a\d+\]$", str(caught.value))
