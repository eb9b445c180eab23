"""`max_passes` and `on_exhausted`: shares that change when a source has been read often enough."""

import itertools
import json
import random
import re
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import read_ranks
from shardmaking import write_shard

import wdspec
from wdspec.planning.shares import limit_passes


def spec_of(sources, schedule=None, **more):
    return wdspec.load(
        {
            "seed": 1,
            "dataset": [{"name": name, "shards": f"{name}.tar", **keys} for name, keys in sources.items()],
            **({"mix": {"schedule": schedule}} if schedule else {}),
            **more,
        }
    )


@st.composite
def mixes(draw):
    names = "abcd"[: draw(st.integers(2, 4))]
    sources = {}
    for name in names:
        keys = {"weight": draw(st.integers(1, 9)), "samples": draw(st.integers(1, 400))}
        if name != names[-1] and draw(st.booleans()):
            keys |= {"max_passes": draw(st.sampled_from([0.5, 1, 2, 3.7])), "on_exhausted": "drop"}
        sources[name] = keys
    return sources, draw(st.integers(1, 32))


@given(mixes())
def test_shares_match_a_simulation_batch_by_batch(mix):
    """A slow oracle: add up the shares of each batch, and drop a source before it would exceed its passes."""
    sources, size = mix
    spec = spec_of(sources)
    weights = {name: Fraction(keys["weight"]) for name, keys in sources.items()}
    caps = {
        name: Fraction(str(keys["max_passes"])) * keys["samples"]
        for name, keys in sources.items()
        if "max_passes" in keys
    }
    whole = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    limits, exhausted = limit_passes(spec, {0: whole}, size)
    drawn, out = dict.fromkeys(sources, Fraction(0)), []
    current = None
    for batch in range(300):
        while True:
            total = sum(weight for name, weight in weights.items() if name not in out)
            shares = {name: Fraction(0) if name in out else weights[name] / total for name in sources}
            over = [
                name
                for name in sorted(caps)
                if name not in out and drawn[name] + shares[name] * size > caps[name]
            ]
            # All that have no room for a batch at this point leave together, as long as they end at the same batch.
            if not over:
                break
            out += over
        current = max(start for start in limits if start <= batch)
        assert limits[current] == shares
        drawn = {name: drawn[name] + shares[name] * size for name in sources}
    assert [each.source for each in exhausted if each.start < 300] == out
    assert all(drawn[name] <= cap for name, cap in caps.items())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("passes")
    for name in "ab":
        for shard in range(4):
            write_shard(
                folder / f"{name}-{shard}.tar", [(f"{name}{shard}{n:02d}", {"cls": b"1"}) for n in range(20)]
            )
    return folder


def run_of(folder, then, batch=8, **more):
    return {
        "seed": 2,
        "elastic": {"ranks": 4, "workers": 1},
        "dataset": [
            {
                "name": "a",
                "shards": f"{folder}/a-{{0..3}}.tar",
                "weight": 1,
                "samples": 80,
                "max_passes": 2,
                "on_exhausted": then,
            },
            {"name": "b", "shards": f"{folder}/b-{{0..3}}.tar", "weight": 1},
        ],
        "batch": {"global_size": batch},
        "epoch": {"batches": 15},
        **more,
    }


def test_other_sources_replace_an_exhausted_one_and_resume_exactly(folder):
    spec = run_of(folder, "drop")
    whole, _ = read_ranks(spec, 1, 60)
    assert len(whole) == 60
    counts = [Counter(key[0] for key in batch) for batch in whole]
    assert all(count == {"a": 4, "b": 4} for count in counts[:40])  # 2 passes over 80 samples
    assert all(count == {"b": 8} for count in counts[40:])
    assert set(Counter(key for batch in whole for key in batch if key[0] == "a").values()) == {2}
    for steps, first, second in ((33, 4, 2), (40, 2, 4), (47, 1, 2)):
        start, state = read_ranks(spec, first, steps)
        rest, _ = read_ranks(spec, second, 60 - steps, state)
        assert start + rest == whole


def test_a_run_stops_on_all_ranks_at_the_same_step(folder):
    spec = run_of(folder, "stop")
    for world in (1, 2, 4):
        found, state = read_ranks(spec, world, 100)
        assert len(found) == 40
        again, _ = read_ranks(spec, world, 100, state)
        assert again == []
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        lengths = [(len(loader), sum(1 for _ in loader)) for _ in range(4)]
        numbers = [loader.epoch]
        loader.set_epoch(5)
    assert lengths == [(15, 15), (15, 15), (10, 10), (0, 0)]
    assert numbers == [3]


def test_len_is_exact_in_every_epoch_with_skipped_steps_and_after_the_stop(folder):
    with wdspec.loader(run_of(folder, "stop", skip="31..34"), num_workers=0, rank=0, world_size=1) as loader:
        lengths = [(len(loader), sum(1 for _ in loader)) for _ in range(5)]
    assert lengths == [(15, 15), (15, 15), (6, 6), (0, 0), (0, 0)]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_names_the_source_after_all_earlier_batches(folder, workers):
    spec = run_of(folder, "error", epoch={"batches": 1000}, elastic={"ranks": 1, "workers": 2})
    with wdspec.loader(spec, num_workers=workers, rank=0, world_size=1) as loader:
        batches = iter(loader)
        assert len([next(batches) for _ in range(40)]) == 40
        with pytest.raises(wdspec.UsageError, match=r"step 40 would exceed `max_passes`.*source a"):
            next(batches)


def test_a_run_without_batches_stops(folder):
    spec = run_of(folder, "stop", batch=4, elastic={"ranks": 1, "workers": 1}) | {
        "batch": None,
        "epoch": None,
    }
    found = [sample["__key__"] for sample in wdspec.compile(spec)]
    assert Counter(key[0] for key in found)["a"] == 160
    with pytest.raises(wdspec.UsageError, match="would exceed"):
        list(wdspec.compile(run_of(folder, "error", elastic={"ranks": 1}) | {"batch": None, "epoch": None}))


def test_schedules_and_random_caps_stay_within_their_limits(folder):
    draw = random.Random(5)
    for _ in range(20):
        at = draw.randrange(20, 400, 20)
        schedule = [
            {"at": 0, "shares": {"a": 1, "b": 3}},
            {"at": at, "shares": {"a": 3, "b": 1}, "ramp": "linear"},
        ]
        passes = draw.choice([0.5, 1, 1.5, 3])
        sources = {"a": {"samples": 80, "max_passes": passes, "on_exhausted": "drop"}, "b": {}}
        spec = spec_of(sources, schedule, batch={"size": 4})
        plan = wdspec.plan(spec.model_copy(update={"dataset": spec.dataset}), ranks=1, workers=1)
        batches = plan.exhausted[0].start
        drawn = plan.mean_shares(batches)[0] * batches * 4
        assert 80 * Fraction(str(passes)) - 4 < drawn <= 80 * Fraction(str(passes))


def test_a_limit_below_the_first_windows_is_reported_with_what_helps(folder):
    spec = run_of(folder, "error") | {"batch": {"cost": "txt.length", "max_cost": 8, "window": 400}}
    says = "is less than the first windows of all ranks would take, 800 samples; .* use a smaller window or a smaller"
    with pytest.raises(wdspec.UsageError, match=says):
        wdspec.plan(spec)


def test_shares_cannot_be_set_and_all_sources_cannot_be_dropped(folder):
    loader = wdspec.loader(run_of(folder, "drop"), num_workers=0, rank=0, world_size=1)
    with loader, pytest.raises(wdspec.UsageError, match=r"cannot be set in a spec with `max_passes`"):
        loader.set_shares({"a": 1})
    spec = run_of(folder, "drop")
    spec["dataset"][1] |= {"samples": 80, "max_passes": 1, "on_exhausted": "drop"}
    with pytest.raises(wdspec.UsageError, match=r"`max_passes` times at batch \d+; set `on_exhausted: stop`"):
        wdspec.plan(spec)
    spec["batch"] = {"cost": "txt.length", "max_cost": 8, "window": 4}
    with pytest.raises(
        wdspec.UsageError, match=r"`max_passes` times at window \d+; set `on_exhausted: error`"
    ):
        wdspec.plan(spec)


@pytest.mark.parametrize("then", ["error", "stop", "drop"])
def test_a_limit_below_the_first_batch_is_reported_at_the_start(folder, then):
    spec = run_of(folder, then, batch=400)
    says = r"`max_passes: 2` of 80 samples is less than the first global batch would take, 200 samples"
    if then == "drop":
        with pytest.warns(UserWarning, match=says + ", so `a` is never read"):
            batches, _ = read_ranks(spec, 1, 2)
        assert {key[0] for batch in batches for key in batch} == {"b"}
    else:
        with pytest.raises(wdspec.UsageError, match=says):
            wdspec.plan(spec)
        with pytest.raises(wdspec.UsageError, match=says):
            wdspec.loader(spec, num_workers=0, rank=0, world_size=1)


def test_explain_and_states_show_the_limit(folder, tmp_path):
    from commandline import wdspec as program

    (tmp_path / "s.yaml").write_text(json.dumps(run_of(folder, "drop")))
    shown, _ = program("explain", "s.yaml", folder=tmp_path)
    assert "`a` is exhausted at batch 40: other sources only; `max_passes: 2` of 80 samples are 160" in shown


@pytest.mark.parametrize(
    ("sizes", "slots", "often"),
    [
        ((10, 20, 30, 40, 50, 60, 70, 80), 1, {2: 360}),
        ((40,) * 8, 8, {2: 320}),
        ((10, 20, 30, 40, 50, 60, 70, 80), 8, {1: 96, 2: 178, 3: 76, 4: 10}),
    ],
)
def test_samples_are_read_as_often_as_the_page_about_selection_says(tmp_path, sizes, slots, often):
    for number, size in enumerate(sizes):
        write_shard(tmp_path / f"a-{number}.tar", [(f"{number}-{key}", {"txt": b""}) for key in range(size)])
    write_shard(tmp_path / "b.tar", [("b", {"txt": b""})])
    passes = {"samples": sum(sizes), "max_passes": 2, "on_exhausted": "drop"}
    spec = {
        "seed": 1,
        "dataset": [
            {"name": "a", "shards": str(tmp_path / "a-*.tar"), "weight": 1, **passes},
            {"name": "b", "shards": str(tmp_path / "b.tar"), "weight": 1},
        ],
        "batch": {"global_size": 8},
        "elastic": {"ranks": 2 if slots > 1 else 1, "workers": max(1, slots // 2)},
        "epoch": {"batches": sum(sizes) // 2 + 20},
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        read = Counter(key for batch in loader for key in batch["__key__"] if key != "b")
    assert Counter(read.values()) == often


def test_a_changed_run_says_how_often_a_source_will_be_read_and_the_advice_is_right(folder):
    spec = run_of(folder, "drop")
    spec["dataset"][0]["weight"], spec["dataset"][1]["weight"] = 7, 1
    begun, state = read_ranks(spec, 2, 16)  # 112 samples of a
    changed = run_of(folder, "drop")  # counts them as 64

    def go_on():
        with wdspec.loader(changed, num_workers=0, rank=0, world_size=1) as loader:
            with pytest.warns(
                UserWarning, match="1.4 passes before the spec changed, and counts as read 0.8"
            ) as warned:
                loader.load_state_dict(state, allow_changed=True)
            batches = itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), 44)
            after = [batch["__key__"] for batch in batches]
        return Counter(key for batch in (*begun, *after) for key in batch if key[0] == "a"), str(
            warned[-1].message
        )

    counts, said = go_on()
    assert sum(counts.values()) == 112 + 160 - 64
    assert said.endswith("it will be read 2.6 in all; for 2 passes in all, write `max_passes: 1.4`")
    changed["dataset"][0]["max_passes"] = 1.4
    counts, said = go_on()
    assert len(counts) == 80
    assert {*counts.values()} == {2}  # nothing is lost or repeated
    assert said.endswith("with `max_passes: 1.4` it will be read 2 in all")


def test_the_advice_counts_what_is_left_of_open_windows(folder):
    spec = run_of(folder, "drop")
    spec["batch"] = {"cost": "cls", "max_cost": 4, "window": 16}
    spec["dataset"][0]["weight"], spec["dataset"][1]["weight"] = 7, 1
    begun, state = read_ranks(spec, 1, 12)  # of four windows with 14 samples of a each
    spec["dataset"][0]["weight"] = 1
    seen = Counter(key for keys in begun for key in keys if key[0] == "a")
    assert 0 < sum(seen.values()) < 50

    def advice():
        with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
            with pytest.warns(UserWarning, match="0.7 passes before the spec changed") as warned:
                loader.load_state_dict(state, allow_changed=True)
            batches = itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), 120)
            after = Counter(key for batch in batches for key in batch["__key__"] if key[0] == "a")
        return str(warned[-1].message), sum((seen + after).values())

    said, read = advice()
    predicted, fits = re.search(r"be read ([\d.]+) in all; .*`max_passes: ([\d.]+)`", said).groups()
    assert abs(read - float(predicted) * 80) <= 8
    spec["dataset"][0]["max_passes"] = float(fits)
    _, read = advice()
    assert 152 <= read <= 160


def test_a_change_within_the_first_step_counts_nothing(folder, recwarn):
    spec = run_of(folder, "drop")
    spec["batch"] = {"cost": "cls", "max_cost": 4, "window": 16}
    _, state = read_ranks(spec, 1, 3)  # three of the four batches of step 0
    spec["dataset"][0]["weight"] = 2
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        loader.load_state_dict(state, allow_changed=True)
    assert not [each for each in recwarn if "passes" in str(each.message)]


def test_a_change_that_reads_as_often_as_max_passes_says_is_silent(folder, recwarn):
    spec = run_of(folder, "drop")
    _, state = read_ranks(spec, 2, 16)
    spec["dataset"][1]["shuffle"] = 10
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        loader.load_state_dict(state, allow_changed=True)
    assert not [each for each in recwarn if "passes" in str(each.message)]
