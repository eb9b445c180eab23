"""Shares that change, and batches of one source: pure functions of J, exact within each segment."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shardmaking import write_shard, write_source

import wdspec
from wdspec.planning.draws import Draws
from wdspec.planning.plan import make_plan
from wdspec.planning.topology import Topology
from wdspec.shards.listing import list_texts
from wdspec.spec.load import load
from wdspec.storage.storage import Storage
from wdspec.testing import assert_resumable


def planned(topology=Topology(1, 1), **spec):  # noqa: B008
    spec.setdefault("dataset", [{"name": n, "shards": f"{n}-{{0..9}}.tar"} for n in "abc"])
    loaded = load(spec)
    listed = {s.name: list_texts(s.shards, s.base, Storage()) for s in loaded.sources}
    return make_plan(loaded, listed, topology)


def by_batch(plan, batches, first=0):
    """The sources of global batches, as an array of shape (batches, G), computed in one go for each slot."""
    draws, topology = plan.draws(), plan.topology
    m = -(-(first + batches) // topology.workers)
    slots = {
        (c, k): draws.batches(c, k, 0, m) for c in range(topology.ranks) for k in range(topology.workers)
    }
    return np.array(
        [
            np.concatenate(
                [slots[c, J % topology.workers][J // topology.workers] for c in range(topology.ranks)]
            )
            for J in range(first, first + batches)
        ]
    )


SCHEDULE = [
    {"at": 0, "shares": {"a": 1}},
    {"at": 1000, "shares": {"a": 1, "b": 1, "c": 2}},
    {"at": 5000, "shares": {"b": 0.7, "c": 0.3}},
]


@pytest.mark.parametrize("topology", [Topology(1, 1), Topology(2, 3), Topology(4, 2)])
@pytest.mark.parametrize("unit", ["sample", "batch"])
def test_shares_change_at_the_first_batch_at_or_after_each_step(topology, unit):
    plan = planned(topology, batch=12, mix={"schedule": SCHEDULE, "unit": unit})
    drawn = by_batch(plan, 600)
    size = 12 * topology.ranks
    first, second = -(-1000 // size), -(-5000 // size)
    assert [segment.start for segment in plan.schedule] == [0, first, second]
    assert (drawn[:first] == 0).all()
    in_batches = 1 if unit == "sample" else size
    for begin, end, shares in ((first, second, (0.25, 0.25, 0.5)), (second, 600, (0, 0.7, 0.3))):
        counts = np.bincount(drawn[begin:end].ravel(), minlength=3)
        off = np.abs(counts - (end - begin) * size * np.array(shares)).max()
        assert off <= in_batches * max(2, topology.workers if unit == "batch" else topology.slots)
    assert not (drawn[second:] == 0).any()


def test_a_segment_draws_like_a_run_that_starts_there():
    topology, shares = Topology(2, 3), [Fraction(1, 3), Fraction(2, 3)]
    fresh, later = (Draws(shares, 5, topology, 4, start=start) for start in (0, 7))
    for number in range(40):
        m, k = divmod(number, 3)
        then, k_then = divmod(number + 7, 3)
        assert sorted(fresh.batches(1, k, m, 1)[0]) == sorted(later.batches(1, k_then, then, 1)[0])


@given(
    st.lists(st.integers(1, 4000), max_size=4, unique=True),
    st.sampled_from(("even", "random")),
    st.sampled_from(("sample", "batch")),
    st.sampled_from((Topology(1, 1), Topology(2, 3), Topology(3, 4))),
    st.integers(1, 9),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_a_batch_is_the_same_in_any_range_of_batches(ats, draw, unit, topology, b, data):
    names = "abc"
    steps = [
        {"at": at, "shares": dict(zip(names, data.draw(st.permutations((0, 1, 5))), strict=True))}
        for at in (0, *sorted(ats))
    ]
    draws = planned(topology, batch=b, mix={"schedule": steps, "draw": draw, "unit": unit}).draws()
    rank, k = topology.ranks - 1, topology.workers - 1
    whole = draws.batches(rank, k, 0, 400)
    start, count = data.draw(st.integers(0, 350)), data.draw(st.integers(1, 50))
    assert (draws.batches(rank, k, start, count) == whole[start : start + count]).all()


def test_the_last_step_between_the_same_two_batches_wins():
    steps = [{"at": at, "shares": {name: 1}} for at, name in ((0, "a"), (1, "b"), (2, "c"))]
    plan = planned(batch=10, mix={"schedule": steps})
    assert [segment.start for segment in plan.schedule] == [0, 1]
    assert by_batch(plan, 2).tolist() == [[0] * 10, [1] * 10]
    assert [source.name for source in plan.sources] == ["a", "c"]


def test_a_schedule_can_name_a_nested_mix():
    dataset = [
        {
            "name": "in",
            "dataset": [
                {"name": "x", "shards": "x.tar", "weight": 3},
                {"name": "y", "shards": "y.tar", "weight": 1},
            ],
        },
        {"name": "z", "shards": "z.tar"},
    ]
    steps = [{"at": 0, "shares": {"in": 2, "z": 2}}, {"at": 8, "shares": {"z": 1}}]
    plan = planned(dataset=dataset, mix={"schedule": steps})
    assert [segment.shares for segment in plan.schedule] == [
        (Fraction(3, 8), Fraction(1, 8), Fraction(1, 2)),
        (0, 0, 1),
    ]
    assert plan.mean_shares(16) == (Fraction(3, 16), Fraction(1, 16), Fraction(3, 4))
    assert plan.mean_shares(4) == plan.schedule[0].shares


def test_buffer_and_interleave_use_the_maximum_share_of_a_source():
    plan = planned(batch=4, mix={"schedule": SCHEDULE}, defaults={"shuffle": 2000})
    assert [source.delays.size for source in plan.sources] == [2000, 1400, 1000]
    assert [source.interleave for source in plan.sources] == [8, 6, 4]


@pytest.mark.parametrize("draw", ["even", "random", "round_robin"])
def test_all_ranks_use_the_same_source_in_a_single_source_batch(draw):
    topology = Topology(4, 3)
    drawn = by_batch(planned(topology, batch=5, mix={"unit": "batch", "draw": draw}), 300)
    assert drawn.shape == (300, 20)
    assert (drawn == drawn[:, :1]).all()
    for k in range(3):
        counts = np.bincount(drawn[k::3, 0], minlength=3)
        assert np.abs(counts - 100 / 3).max() < (2 if draw != "random" else 30)


def test_single_source_batches_alternate_with_several_workers():
    plan = planned(
        Topology(1, 2),
        batch=5,
        mix={"unit": "batch"},
        dataset=[{"name": n, "shards": f"{n}.tar"} for n in "ab"],
    )
    assert by_batch(plan, 8)[:, 0].tolist() in ([0, 1] * 4, [1, 0, 0, 1] * 2, [0, 1, 1, 0] * 2, [1, 0] * 4)


RAMP = [
    {"at": 0, "shares": {"a": 3, "b": 1}},
    {"at": 6400, "shares": {"b": 1, "c": 1}, "ramp": "linear"},
    {"at": 9600, "shares": {"c": 1}},
]


@pytest.mark.parametrize("topology", [Topology(1, 1), Topology(2, 3)])
def test_a_ramp_is_linear_from_the_step_before(topology):
    size = 8 * topology.ranks
    plan = planned(topology, batch=8, mix={"schedule": RAMP})
    drawn = by_batch(plan, 9600 // size)
    begin, end = np.array([0.75, 0.25, 0]), np.array([0, 0.5, 0.5])
    for first in range(0, 6400, 800):  # an eighth of the ramp
        counts = np.bincount(drawn[first // size : (first + 800) // size].ravel(), minlength=3)
        middle = (first + 400) / 6400
        # Eight parts, whose draws are within a batch of their shares.
        assert abs(counts - 800 * (begin + (end - begin) * middle)).max() <= 8 * 3 * topology.workers
    assert (by_batch(plan, 4, first=6400 // size) != 0).all()
    total = np.bincount(drawn[: 6400 // size].ravel(), minlength=3)
    assert abs(total - 6400 * (begin + end) / 2).max() <= 64 * 3


MIXES = [
    ((0.5, 0.49, 0.01), (0.8, 0.19, 0.01)),
    ((0.5, 0.5, 0), (0.5, 0.4, 0.02)),
    ((0.9, 0.1, 0), (0.3, 0.3, 0.35)),
]
RUNS = [(Topology(8, 4), 1, 500), (Topology(1, 8), 8, 128), (Topology(1, 1), 1, 200)]


def scheduled(topology, b, batches, mix, ramp, seed):
    """A plan that goes from one mix to another: by a ramp, or back and forth every other batch."""
    one, other = (dict(zip("abc", shares, strict=True)) for shares in mix)
    size = b * topology.ranks
    steps = [{"at": 0, "shares": one}, {"at": batches * size, "shares": other, "ramp": "linear"}]
    if not ramp:
        steps = [{"at": J * size, "shares": (one, other)[J // 2 % 2]} for J in range(0, batches, 2)]
    return planned(topology, batch=b, seed=seed, mix={"schedule": steps})


@pytest.mark.parametrize("ramp", [True, False], ids=["ramp", "steps"])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(("topology", "b", "batches"), RUNS)
def test_shares_that_change_often_are_right_on_average(topology, b, batches, mix, ramp):
    size, off = b * topology.ranks, []
    for seed in range(10):
        plan = scheduled(topology, b, batches, mix, ramp, seed)
        due = np.array([float(share) * batches * size for share in plan.mean_shares(batches)])
        off.append(np.bincount(by_batch(plan, batches).ravel(), minlength=3) - due)
    mean, error = np.mean(off, axis=0), np.std(off, axis=0) / len(off) ** 0.5
    assert (np.abs(mean) < 1 + 4 * error).all()
    assert np.abs(off).max() < 4 * (topology.slots * len(plan.schedule)) ** 0.5, "parts do not add up"


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(("topology", "b", "batches"), [(Topology(2, 3), 8, 200), (Topology(4, 2), 1, 1000)])
def test_every_part_of_a_ramp_stays_within_the_bounds_of_a_run(topology, b, batches, mix):
    plan = scheduled(topology, b, batches, mix, True, 5)
    draws, (ranks, workers) = plan.draws(), (topology.ranks, topology.workers)
    for segment, after in zip(plan.schedule, [*plan.schedule[1:], None], strict=True):
        end = batches if after is None else after.start
        shares = np.array([float(share) for share in segment.shares])
        job = np.zeros(3)
        along = np.zeros((ranks, workers, 3))
        for number in range(segment.start, end):
            m, k = divmod(number, workers)
            drawn = [np.bincount(draws.batches(c, k, m, 1)[0], minlength=3) for c in range(ranks)]
            off = np.array(drawn) - b * shares
            along[:, k] += off
            job += off.sum(axis=0)
            assert np.abs(along).max() < 4, "a slot, after any number of batches"
            assert np.abs(off.sum(axis=0)).max() < 4, "a global batch"
            assert np.abs(job).max() < 4 * topology.slots, "the job"


def test_a_ramp_has_no_more_parts_than_samples_and_its_shares_sum_to_1():
    plan = planned(batch=None, mix={"schedule": [RAMP[0], {**RAMP[1], "at": 5}]})
    assert [segment.start for segment in plan.schedule] == [0, 1, 2, 3, 4, 5]
    assert all(sum(segment.shares) == 1 for segment in plan.schedule)
    assert plan.schedule[0].shares == (Fraction(27, 40), Fraction(11, 40), Fraction(1, 20))


def test_a_run_resumes_within_a_ramp(tmp_path):
    shards = {name: write_source(tmp_path, name, 3, 40) for name in "ab"}
    spec = {
        "dataset": [{"name": name, "shards": shards[name], "shuffle": 20} for name in "ab"],
        "mix": {
            "schedule": [
                {"at": 0, "shares": {"a": 1}},
                {"at": 200, "shares": {"b": 1}, "ramp": "linear"},
            ]
        },
        "batch": 4,
        "epoch": {"batches": 20},
    }
    assert_resumable(lambda: wdspec.loader(spec), batches=60, stops=[0, 7, 20, 33, 49, 50, 59])


def measured(**means):
    return [{"name": n, "shards": f"{n}-{{0..9}}.tar", "mean_cost": mean} for n, mean in means.items()]


def test_steps_may_count_batches():
    steps = [{"at": 0, "shares": {"a": 1}}, {"at": {"batches": 10}, "shares": {"b": 1}}]
    plan = planned(Topology(4, 1), batch=12, mix={"schedule": steps})
    assert [segment.start for segment in plan.schedule] == [0, 10]


def test_steps_of_different_units_are_in_the_order_of_their_samples(tmp_path):
    """Shards are listed before the number of samples in a batch is known, and need only the shares."""
    for name in "ab":
        write_shard(tmp_path / f"{name}.tar", [("0", {"txt": b"x"})])
    steps = [(0, {"a": 1}), (1000, {"b": 1}), ({"batches": 450}, {"a": 1})]
    spec = {
        "dataset": [{"name": name, "shards": str(tmp_path / f"{name}.tar")} for name in "ab"],
        "mix": {"schedule": [{"at": at, "shares": shares} for at, shares in steps]},
        "batch": 10,
    }
    assert [each.start for each in wdspec.plan(spec, ranks=1, workers=1).schedule] == [0, 100, 450]
    spec["mix"]["schedule"][2]["at"] = {"batches": 50}
    with pytest.raises(wdspec.UsageError, match="put the steps in order"):
        wdspec.plan(spec, ranks=1, workers=1)


@pytest.mark.parametrize("ramp", ["none", "linear"])
def test_steps_in_tokens_begin_where_the_mean_tokens_of_samples_say(ramp):
    steps = [
        {"at": 0, "shares": {"a": 1}},
        {"at": {"tokens": 80_000}, "shares": {"b": 1}, "ramp": ramp},
        {"at": {"tokens": 320_000}, "shares": {"a": 1, "b": 1}},
        {"at": {"samples": 2000}, "shares": {"a": 1}},
        {"at": {"tokens": 700_000}, "shares": {"b": 1}},
    ]
    plan = planned(batch=10, mix={"schedule": steps}, dataset=measured(a=100, b=300))
    # 100 tokens per sample, or 200 on a ramp; then 300; then 200, up to sample 2,000; then 100
    first = 400 if ramp == "linear" else 800
    second = first + 800
    tokens = 320_000 + (2000 - second) * 200
    last = 2000 + (700_000 - tokens) / 100
    starts = [segment.start for segment in plan.schedule]
    assert {0, first / 10, second / 10, 200, last / 10} <= set(starts)
    assert (len(starts) == 5) == (ramp == "none")


def test_the_length_of_samples_of_token_files_is_their_number_of_tokens():
    dataset = [{"name": n, "shards": f"{n}-{{0..9}}.bin", "tokens": {"length": 2048}} for n in "ab"]
    steps = [{"at": 0, "shares": {"a": 1}}, {"at": {"tokens": 2_048_000}, "shares": {"b": 1}}]
    plan = planned(batch=10, mix={"schedule": steps}, dataset=dataset)
    assert [segment.start for segment in plan.schedule] == [0, 100]


def test_steps_in_tokens_need_means_and_an_order():
    steps = [{"at": 0, "shares": {"a": 1}}, {"at": {"tokens": 10}, "shares": {"b": 1}}]
    with pytest.raises(wdspec.UsageError, match=r"needs the mean number of tokens.*mean_cost"):
        planned(batch=10, mix={"schedule": steps})
    mixed = [steps[0], {"at": {"batches": 50}, "shares": {"b": 1}}, {**steps[1], "shares": {"a": 1}}]
    with pytest.raises(wdspec.UsageError, match="put the steps in order"):
        planned(batch=10, mix={"schedule": mixed}, dataset=measured(a=100, b=100))
