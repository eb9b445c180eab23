"""Batches of one source, schedules and interleaving: resumed exactly, on any legal topology."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import names, reader_of
from shardmaking import keys, write_shard, write_source

import wdspec
import wdspec.testing
from wdspec.planning.topology import Topology
from wdspec.spec.load import load


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {
        name: write_source(folder, name, n, m) for name, n, m in [("a", 6, 17), ("b", 1, 5), ("c", 13, 4)]
    }


@st.composite
def mixes(draw):
    """The `mix:` of three sources a, b and c."""
    mix = {
        "unit": draw(st.sampled_from(("sample", "batch"))),
        "draw": draw(st.sampled_from(("even", "random", "round_robin"))),
    }
    if draw(st.booleans()) and mix["draw"] != "round_robin":
        ats = sorted(draw(st.sets(st.integers(1, 400), max_size=3)))
        share = st.permutations((0, 1, 3)).map(lambda values: dict(zip("abc", values, strict=True)))
        mix["schedule"] = [{"at": at, "shares": draw(share)} for at in (0, *ats)]
    return mix


def spec_of(shards, mix, interleave, **options):
    widths = dict(zip("abc", interleave, strict=True))
    return {
        "seed": 11,
        "dataset": [
            {
                "name": name,
                "shards": shards[name],
                "interleave": widths[name],
                "shuffle": {"a": 40, "b": 0, "c": 0}[name],
                **({} if "schedule" in mix else {"weight": weight}),
                **({"select": "picks:most"} if name == "c" else {}),
            }
            for name, weight in (("a", 3), ("b", 1), ("c", 2))
        ],
        "mix": mix,
        "batch": 3,
        **options,
    }


widths = st.tuples(*[st.sampled_from((1, 2, 5))] * 3)


@given(
    mixes(),
    widths,
    st.sampled_from((Topology(1, 1), Topology(2, 3), Topology(3, 4))),
    st.integers(0, 60),
)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_reader_restored_at_any_batch_resumes_exactly(shards, mix, interleave, topology, stop):
    spec, rank = spec_of(shards, mix, interleave), topology.ranks - 1
    whole, table = reader_of(spec, topology, rank), {}
    for number in range(stop):
        whole.batch(number)
        table.update(whole.states(number))
    expected = [names(whole.batch(number)) for number in range(stop, stop + 20)]
    for _ in range(2):
        restored = reader_of(spec, topology, rank)
        restored.restore(table)
        assert [names(restored.batch(number)) for number in range(stop, stop + 20)] == expected


def run(spec, ranks, batches, state=None):
    """Global batches (sets of keys) read by `ranks` ranks, and the merged state after them, through JSON."""
    rows, states = [], []
    for rank in range(ranks):
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) as loader:
            if state is not None:
                loader.load_state_dict(state)
            seen = []
            while len(seen) < batches:
                seen += keys(itertools.islice(loader, batches - len(seen)))
            rows.append(seen)
            states.append(json.loads(json.dumps(loader.state_dict())))
    merged = wdspec.merge_states(states)
    return [sorted(itertools.chain.from_iterable(row)) for row in zip(*rows, strict=True)], merged


@given(
    mixes(),
    widths,
    st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.integers(1, 9)), min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changes_of_ranks_keep_the_order(shards, mix, interleave, legs):
    options = {"elastic": {"ranks": 4, "workers": 3}, "epoch": {"batches": 5}}
    spec = load(spec_of(shards, mix, interleave, **options))
    seen, state = [], None
    for ranks, batches in legs:
        part, state = run(spec, ranks, batches, state)
        seen += part
    assert seen == run(spec, 1, sum(batches for _, batches in legs))[0]


def test_worker_processes_give_the_same_batches(shards):
    schedule = [{"at": 0, "shares": {"a": 1}}, {"at": 40, "shares": {"a": 1, "b": 1, "c": 1}}]
    mix = {"unit": "batch", "schedule": schedule}
    spec = spec_of(shards, mix, (4, 1, 3), elastic={"ranks": 2, "workers": 4}, epoch={"batches": 26})
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        expected = keys(loader)
    with wdspec.loader(spec, num_workers=2, rank=0, world_size=1) as loader:
        seen = keys(itertools.islice(loader, 9))
        state = json.loads(json.dumps(loader.state_dict()))
    with wdspec.loader(spec, num_workers=4, rank=0, world_size=1) as loader:
        loader.load_state_dict(state)
        assert seen + keys(loader) == expected


def test_single_source_batches_allow_different_sources(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"a{i}", {"x.npy": npy((3,)), "cls": b"1"}) for i in range(8)])
    write_shard(tmp_path / "b.tar", [(f"b{i}", {"y.npy": npy((2, 2))}) for i in range(8)])
    spec = {
        "dataset": [
            {"name": "a", "shards": f"{tmp_path}/a.tar", "extensions": "x.npy cls", "weight": 1},
            {"name": "b", "shards": f"{tmp_path}/b.tar", "extensions": "y.npy", "weight": 1},
        ],
        "batch": 4,
        "epoch": 64,
    }
    with pytest.raises(wdspec.SpecError, match="E305"):
        wdspec.compile(spec)
    batches = list(wdspec.compile({**spec, "mix": {"unit": "batch"}}))
    shapes = {"a": {"x.npy": (4, 3), "cls": (4,)}, "b": {"y.npy": (4, 2, 2)}}
    for batch in batches:
        (source,) = set(batch["__source__"])
        fields = {name: tuple(value.shape) for name, value in batch.items() if not name.startswith("__")}
        assert fields == shapes[source]
    assert [batch["__source__"][0] for batch in batches].count("a") == 8


def npy(shape):
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.zeros(shape, dtype=np.float32))
    return buffer.getvalue()


def test_a_changed_schedule_is_detected_and_named(shards):
    def spec(share, **mix):
        steps = [{"at": 0, "shares": {"a": 1}}, {"at": 30, "shares": {"a": share, "b": 1, "c": 1}}]
        return spec_of(shards, {"schedule": steps, **mix}, (1, 1, 1), epoch={"batches": 20})

    pipeline = wdspec.compile(spec(2))
    state = pipeline.state_dict()
    with pytest.raises(wdspec.UsageError, match=r"schedule.batch 10.a: was 1/2, now 3/5"):
        wdspec.compile(spec(3)).load_state_dict(state)
    with pytest.raises(wdspec.UsageError, match="unit: added"):
        wdspec.compile(spec(2, unit="batch")).load_state_dict(state)


def test_shares_change_on_the_real_engine(shards):
    steps = [
        {"at": 0, "shares": {"a": 1}},
        {"at": 60, "shares": {"a": 1, "c": 1}},
        {"at": 120, "shares": {"b": 1}},
    ]
    reader = reader_of(spec_of(shards, {"schedule": steps}, (1, 1, 1)))
    sources = [sample["__source__"] for number in range(60) for sample in reader.batch(number)]
    assert set(sources[:60]) == {"a"}
    assert sorted(sources[60:120]) == ["a"] * 30 + ["c"] * 30
    assert set(sources[120:]) == {"b"}


def test_a_source_not_named_in_any_step_is_not_listed(shards):
    steps = [{"at": 0, "shares": {"a": 1}}]
    spec = spec_of({**shards, "b": "nowhere/*.tar"}, {"schedule": steps}, (1, 1, 1))
    assert {sample["__source__"] for sample in reader_of(spec).batch(0)} == {"a"}


def test_every_kind_of_mix_passes_the_public_check(shards):
    steps = [{"at": 0, "shares": {"a": 1}}, {"at": 30, "shares": {"a": 1, "b": 1, "c": 1}}]
    mixes = {"unit": "batch"}, {"schedule": steps}, {"draw": "random", "unit": "batch", "schedule": steps}
    for mix, interleave in zip(mixes, ((1, 1, 1), (4, 1, 2), (3, 1, 5)), strict=True):
        spec = spec_of(shards, mix, interleave, epoch={"batches": 10}, elastic={"ranks": 1, "workers": 2})
        wdspec.testing.assert_resumable(lambda spec=spec: wdspec.loader(spec, rank=0, world_size=1))
