"""`epoch: pass` with batches by cost: each sample comes once, on any number of ranks, and after a resume."""

from __future__ import annotations

import json
import random
from collections import Counter
from io import BytesIO
from itertools import chain, pairwise, takewhile

import numpy as np
import pytest
from shardmaking import write_shard

import wdspec
from wdspec.jobs.engine import LocalEngine
from wdspec.jobs.stats import StatsJob

LENGTHS = {}


def array(length: int) -> bytes:
    out = BytesIO()
    np.save(out, np.arange(length))
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("passes")
    draw = random.Random(1)
    for source, count in (("a", 61), ("b", 23)):
        for shard in range(3):
            samples = []
            for number in range(count + shard):
                key = f"{source}{shard}{number:03d}"
                LENGTHS[key] = min(300, max(1, round(draw.lognormvariate(4, 0.8))))
                facts = {"n": LENGTHS[key], "name": draw.choice(["de", "en", None])}
                fields = {"npy": array(LENGTHS[key]), "json": json.dumps(facts).encode()}
                samples.append((key, fields))
            write_shard(folder / f"{source}-{shard}.tar", samples)
    return folder


KINDS = {
    "padded": {"cost": "json.n", "max_cost": 800, "window": 40, "collate": {"npy": "pad"}},
    "sums": {"cost": "npy.length", "max_cost": 500, "padded": False, "collate": {"npy": "pad"}},
    "balanced": {"cost": "json.n", "max_cost": 900, "balance": "json.n", "window": 30, "ragged": "list"},
    "dropped": {"cost": "json.n", "max_cost": 90, "overlong": "drop", "window": 25, "ragged": "list"},
    "alone": {"cost": "json.n", "max_cost": 90, "overlong": "alone", "window": 25, "ragged": "list"},
    "packed": {"window": 30, "pack": {"fields": "npy", "length": 320}},
    "split": {"window": 30, "pack": {"fields": "npy", "length": 64}, "overlong": "split"},
    "concatenated": {"window": 30, "pack": {"fields": "npy", "length": 64, "method": "concatenate"}},
    "limited": {
        "cost": "npy.length",
        "max_cost": 500,
        "padded": False,
        "window": 40,
        "limits": {"1": 5, "json.n / 2": 220},
        "ragged": "list",
    },
    "groups": {"size": 3, "group_by": "ceil(json.n / 60)", "group_wait": 30, "ragged": "list"},
    "merged groups": {
        "size": 5,
        "group_by": "json.name",
        "group_wait": 40,
        "incomplete": "merge",
        "window": 10,
        "ragged": "list",
    },
    "groups by cost": {
        "cost": "json.n",
        "max_cost": 700,
        "group_by": "json.name",
        "group_wait": 40,
        "limits": {"json.n / 2": 150},
        "ragged": "list",
    },
    "full groups": {
        "size": 4,
        "group_by": "json.n > 60",
        "group_wait": 30,
        "incomplete": "drop",
        "ragged": "list",
    },
}


def spec_of(folder, batch, ranks=6, workers=2, **more):
    sources = [{"name": name, "shards": f"{folder}/{name}-{{0..2}}.tar"} for name in "ab"]
    elastic = {"ranks": ranks, "workers": workers}
    return {"dataset": sources, "elastic": elastic, "batch": batch, "epoch": "pass", **more}


def read(spec, ranks=1, state=None, stop=None, workers=0):
    """The batches of each step over all ranks, and the merged state."""
    canonical = spec["elastic"]["ranks"] // ranks
    loaders = [wdspec.loader(spec, num_workers=workers, rank=rank, world_size=ranks) for rank in range(ranks)]
    try:
        for loader in loaders if state is not None else ():
            loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        steps = []
        while stop is None or len(steps) < stop:
            step = [batch for each in iterators for _ in range(canonical) if (batch := next(each, None))]
            if not step:
                break
            assert len(step) == spec["elastic"]["ranks"], "every canonical rank gives a batch"
            steps.append(step)
        return steps, wdspec.merge_states([loader.state_dict() for loader in loaders])
    finally:
        for loader in loaders:
            loader.close()


def keys_of(batch):
    """The keys of the samples of a batch, without padding."""
    return tuple(key for key, is_real in zip(batch["__key__"], batch["__mask__"], strict=True) if is_real)


def all_keys(steps):
    return [[keys_of(batch) for batch in step] for step in steps]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_delivers_every_sample_exactly_once(folder, kind):
    batch = KINDS[kind]
    steps, _ = read(spec_of(folder, batch))
    keys = Counter(key for step in all_keys(steps) for keys in step for key in keys)
    if kind == "dropped":
        assert keys == Counter({key: 1 for key, length in LENGTHS.items() if length <= 90})
    elif kind in ("split", "concatenated"):
        assert set(keys) == set(LENGTHS)
        assert sum(batch["__tokens__"] for batch in chain(*steps)) == sum(LENGTHS.values())
    elif kind == "full groups":
        assert max(keys.values()) == 1
        assert {made["__size__"] for made in chain(*steps)} <= {0, 4}
    else:
        assert keys == Counter(dict.fromkeys(LENGTHS, 1))
    for made in chain(*steps):
        assert made["__size__"] == len(keys_of(made))
        if not made["__size__"]:
            assert made["__cost__"] == 0
            assert list(made["__mask__"]) == [False]
            assert made.get("__tokens__", 0) == 0
        elif kind != "alone":
            assert made["__cost__"] <= batch.get("max_cost", batch.get("pack", {}).get("length", np.inf))
    assert any(made["__size__"] for made in steps[-1]), "the pass ends when the last slot runs dry"


def windows_of(spec, ranks, workers, size):
    """The keys of the samples of each window of each slot, in the order of the pass."""
    plain = {**spec, "batch": 1, "elastic": {"ranks": 1, "workers": 1}, "defaults": {"shuffle": 0}}
    with wdspec.loader(plain, num_workers=0) as loader:
        keys = [key for batch in loader for key in batch["__key__"]]
    slots = ranks * workers
    ends = [slot * len(keys) // slots for slot in range(slots + 1)]
    for first, stop in pairwise(ends):
        yield from (keys[at : min(at + size, stop)] for at in range(first, stop, size))


@pytest.mark.parametrize("incomplete", ["keep", "merge", "drop"])
def test_groups_of_a_pass_match_a_plain_loop(folder, incomplete):
    batch = {
        "size": 4,
        "group_by": "json.n > 60",
        "group_wait": 25,
        "incomplete": incomplete,
        "ragged": "list",
    }
    spec = spec_of(folder, batch, 2, 3)
    expected = []
    for window in windows_of(spec, 2, 3, 25):
        groups = {False: [], True: []}
        for key in window:
            group = groups[LENGTHS[key] > 60]
            group.append(key)
            if len(group) == 4:
                expected.append(tuple(group))
                group.clear()
        rest = [*groups[False], *groups[True]]
        if incomplete == "keep":
            expected += [tuple(group) for group in groups.values() if group]
        elif incomplete == "merge":
            expected += [tuple(rest[at : at + 4]) for at in range(0, len(rest), 4)]
    found = [keys for step in all_keys(read(spec)[0]) for keys in step if keys]
    assert sorted(found) == sorted(expected)


def test_limits_of_a_pass_apply_to_windows_in_reading_order(folder):
    batch = KINDS["limited"]
    spec = spec_of(folder, batch, 2, 3)
    found = [keys for step in all_keys(read(spec)[0]) for keys in step if keys]
    at = {key: number for number, window in enumerate(windows_of(spec, 2, 3, 40)) for key in window}
    for keys in found:
        assert len(keys) <= 5
        assert sum(LENGTHS[key] for key in keys) <= min(500, 2 * 220)
        assert len({at[key] for key in keys}) == 1


@pytest.mark.parametrize("kind", ["padded", "groups", "packed"])
def test_a_dropped_remainder_is_the_steps_with_an_exhausted_slot(folder, kind):
    spec = spec_of(folder, KINDS[kind], 3, 2)
    whole = all_keys(read(spec)[0])
    full = list(takewhile(all, whole))
    assert 0 < len(full) < len(whole)
    assert all_keys(read({**spec, "epoch": {"pass": "drop"}})[0]) == full
    with wdspec.loader({**spec, "epoch": {"pass": "drop"}}, num_workers=0) as loader:
        assert len(loader) == 3 * len(full)


def test_a_remainder_of_all_samples_cannot_be_dropped(folder):
    spec = spec_of(folder, KINDS["padded"], 300, 1, epoch={"pass": "drop"})
    with pytest.raises(wdspec.UsageError, match="some slot has no batch"):
        read(spec)


@pytest.mark.parametrize("repeat", [2.5, 0.25, 3])
@pytest.mark.parametrize("kind", ["padded", "groups by cost"])
def test_repeat_delivers_some_samples_again(folder, kind, repeat, tmp_path):
    spec = spec_of(folder, KINDS[kind], 3, 2, stats=str(tmp_path / "stats.json"))
    spec["dataset"][0]["repeat"] = repeat
    spec["dataset"][1]["where"] = "json.n > 40"
    plain = {**spec, "batch": 7, "defaults": {"missing": "error"}, "fields": ["json"]}
    with wdspec.loader({**plain, "stats": None}, num_workers=0) as loader:
        expected = Counter(key for batch in loader for key in keys_of(batch))
    steps = all_keys(read(spec)[0])
    assert Counter(key for step in steps for keys in step for key in keys) == expected
    StatsJob(wdspec.load(spec), spec["stats"]).run(LocalEngine(0))
    assert all_keys(read(spec)[0]) == steps
    before, state = read(spec, 3, stop=2)
    assert all_keys([*before, *read(spec, 1, state)[0]]) == steps


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))]
)
def test_a_pass_resumes_on_other_ranks(folder, seed):
    draw = random.Random(seed)
    batch = dict(KINDS[draw.choice(list(KINDS))])
    if "window" in batch:
        batch["window"] = draw.choice([10, 30, 77])
    spec = spec_of(folder, batch, draw.choice([6, 12]), draw.choice([1, 2, 3]), seed=seed)
    steps = all_keys(read(spec)[0])
    for first, second, third in ((6, 3, 2), (2, 6, 1), (1, 2, 6)):
        one = draw.randrange(1, len(steps))
        two = draw.randrange(one, len(steps) + 1)
        before, state = read(spec, first, stop=one)
        middle, state = read(spec, second, json.loads(json.dumps(state)), stop=two - one)
        after, _ = read(spec, third, state) if two < len(steps) else ([], None)
        assert all_keys([*before, *middle, *after]) == steps


def test_workers_do_not_change_the_batches(folder):
    spec = spec_of(folder, KINDS["padded"], 2, 2)
    assert all_keys(read(spec, workers=2)[0]) == all_keys(read(spec)[0])


def test_the_next_pass_is_the_same(folder):
    with wdspec.loader(spec_of(folder, KINDS["packed"], 1, 1), num_workers=0) as loader:
        first = [keys_of(batch) for batch in loader]
        assert [keys_of(batch) for batch in loader] == first
        assert len(loader) == len(first)


@pytest.mark.parametrize("kind", ["padded", "limited", "merged groups"])
def test_measured_costs_are_not_measured_again(folder, tmp_path, monkeypatch, kind):
    batch = KINDS[kind]
    spec = spec_of(folder, batch, stats=str(tmp_path / "stats.json"))
    expected = all_keys(read(spec_of(folder, batch))[0])
    StatsJob(wdspec.load(spec), spec["stats"]).run(LocalEngine(0))
    monkeypatch.setattr("wdspec.read.pass_count.measure_costs", None)
    assert all_keys(read(spec)[0]) == expected
    changed = {"group_by": "json.n"} if "group_by" in batch else {"cost": "json.n + 1"}
    with pytest.raises(TypeError):  # it has to be measured
        read({**spec, "batch": {**batch, **changed}})


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "costs.py").write_text(
        "def cost(sample):\n    return sample['json']['n'] + ('extra' in sample)\n"
        "def keep(sample):\n    return sample['json']['n'] > 30\n"
        "def fail_on_even_keys(sample):\n    return sample if int(sample['__key__']) % 2 else {}['even']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "is_measured"),
    [
        ({}, False),
        ({"fields": ["json", "extra"]}, True),
        ({"to_tuple": ["json", "__mask__"]}, True),
        ({"defaults": {"select": "costs:keep"}}, True),
        ({"defaults": {"expect": {"fields": {"json": {"type": "dict"}}}}}, False),
        ({"defaults": {"where": "json.n > 20"}}, True),
        ({"defaults": {"keys": "@keys.txt"}}, True),
        ({"seed": 5}, False),
        ({"batch": {"limits": {"json.n": 900}}}, True),
        ({"batch": {"group_by": "json.name"}}, True),
        ({"batch": {"balance": "json.weight"}}, True),
        ({"batch": {"window": 20, "max_size": 9}}, False),
        ({"batch": {"cost": "costs:cost"}}, True),
    ],
)
@pytest.mark.filterwarnings("ignore:the `stats`")
def test_costs_are_measured_again_if_they_can_differ(functions, tmp_path, monkeypatch, change, is_measured):
    monkeypatch.chdir(tmp_path)
    draw, samples = random.Random(2), []
    for number in range(40):
        facts = {"n": draw.randrange(1, 90), "name": draw.choice("ab")} | (
            {"weight": 1} if number % 5 else {}
        )
        samples.append(
            (f"{number:02}", {"json": json.dumps(facts).encode()} | ({"extra": b"x"} if number % 3 else {}))
        )
    write_shard(tmp_path / "a.tar", samples)
    (tmp_path / "keys.txt").write_text("".join(f"{number:02}\n" for number in range(0, 40, 3)))
    spec = {
        "dataset": [{"name": "a", "shards": "a.tar"}],
        "elastic": {"ranks": 1, "workers": 1},
        "batch": {"cost": "json.n", "max_cost": 300, "ragged": "list"},
        "fields": ["json"],
        "errors": {"skip": True, "max_rate": 1},
        "defaults": {"missing": "skip"},  # so that `fields` and `to_tuple` say which samples there are
        "epoch": "pass",
        "stats": "stats.json",
    }
    StatsJob(wdspec.load(spec), spec["stats"]).run(LocalEngine(0))
    changed = {**spec, **change, "batch": {**spec["batch"], **change.get("batch", {})}}
    changed["defaults"] = {**spec["defaults"], **change.get("defaults", {})}
    expected = read_batches({**changed, "stats": None})
    if not is_measured:
        monkeypatch.setattr("wdspec.read.pass_count.measure_costs", None)
    assert read_batches(changed) == expected


def read_batches(spec):
    with wdspec.loader(spec, num_workers=0) as loader:
        return [str(batch) for batch in loader]


def test_costs_are_measured_again_if_a_key_file_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = [(f"{number:02}", {"json": b'{"n": %d}' % (number + 1)}) for number in range(40)]
    write_shard(tmp_path / "a.tar", samples)
    (tmp_path / "keys.txt").write_text("01\n02\n03\n")
    spec = {
        "dataset": [{"name": "a", "shards": "a.tar", "keys": "@keys.txt"}],
        "elastic": {"ranks": 1, "workers": 1},
        "batch": {"cost": "json.n", "max_cost": 60},
        "epoch": "pass",
        "stats": "stats.json",
    }
    StatsJob(wdspec.load(spec), spec["stats"]).run(LocalEngine(0))
    (tmp_path / "keys.txt").write_text("".join(f"{number:02}\n" for number in range(30)))
    found = Counter(key for step in all_keys(read(spec)[0]) for keys in step for key in keys)
    assert found == Counter(f"{number:02}" for number in range(30))


def test_more_batches_than_planned_are_an_error(folder, tmp_path):
    spec = spec_of(folder, KINDS["padded"], 1, 1, stats=str(tmp_path / "stats.json"))
    StatsJob(wdspec.load(spec), spec["stats"]).run(LocalEngine(0))
    stats = json.loads((tmp_path / "stats.json").read_text())
    for of_source in stats["shards"].values():
        for shard in of_source.values():
            shard["costs"] = [1] * len(shard["costs"])
    (tmp_path / "stats.json").write_text(json.dumps(stats))
    with pytest.raises(wdspec.ShardError, match="other costs than when the pass was planned"):
        read(spec)


def test_an_unmeasurable_cost_is_reported_before_the_pass(folder):
    with pytest.raises(wdspec.FieldError, match="there is no `nothing` in it"):
        read(spec_of(folder, {**KINDS["padded"], "cost": "json.nothing"}))


def test_unselected_samples_are_in_no_batch(folder):
    steps, _ = read(spec_of(folder, KINDS["padded"], defaults={"where": "json.n > 40"}))
    keys = sorted(key for step in all_keys(steps) for keys in step for key in keys)
    assert keys == sorted(key for key, length in LENGTHS.items() if length > 40)


def test_samples_that_cannot_be_measured_are_skipped(tmp_path):
    fields = [
        {"json": b"broken" if number % 10 == 3 else b'{"n": %d}' % (number + 1)} for number in range(50)
    ]
    write_shard(tmp_path / "a.tar", [(f"{number:02}", each) for number, each in enumerate(fields)])
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.tar", "errors": {"skip": True, "max_rate": 1}}],
        "elastic": {"ranks": 3, "workers": 1},
        "batch": {"cost": "json.n", "max_cost": 100, "window": 8},
        "epoch": "pass",
    }
    keys = sorted(key for step in all_keys(read(spec)[0]) for keys in step for key in keys)
    assert keys == [f"{number:02}" for number in range(50) if number % 10 != 3]


@pytest.mark.parametrize("method", ["concatenate", "best_fit"])
def test_a_sample_that_is_cut_and_cannot_be_decoded_is_skipped_once(tmp_path, functions, method):
    samples = [(f"{number}", {"npy": array(50)}) for number in range(8)]
    write_shard(tmp_path / "a.tar", samples)
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.tar"}],
        "map": "costs:fail_on_even_keys",
        "elastic": {"ranks": 1, "workers": 1},
        "batch": {"pack": {"fields": "npy", "length": 16, "method": method}, "overlong": "split"},
        "errors": {"skip": ["shard", "decode", "map"], "max_rate": 1},
        "epoch": "pass",
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        rows = list(loader)
        counts = loader.stats().sources["a"]
    assert sum(int(row["npy"].sum()) for row in rows) == 4 * sum(range(50))  # padding is 0
    assert (counts.delivered, counts.skipped) == (4, {"D203": 4})


def test_a_fraction_cannot_be_cut(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"{n}", {"npy": array(n + 1), "json": b"[]"}) for n in range(4)])
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.tar"}],
        "elastic": {"ranks": 1, "workers": 1},
        "batch": {
            "cost": "npy.length - 0.5 * (npy.length == 1)",
            "pack": {"fields": "npy", "length": 16, "method": "concatenate"},
        },
        "fields": ["npy"],
        "epoch": "pass",
    }
    with pytest.raises(wdspec.FieldError, match=r"is 0\.5, but `pack` cuts samples by whole elements"):
        read_batches(spec)
    assert "'__key__': ['1', '2', '3']" in read_batches({**spec, "errors": {"skip": True, "max_rate": 1}})[0]


def test_windows_without_a_batch_lose_no_sample_of_the_next_one(functions, tmp_path):
    numbers = [40] * 10 + [20] * 5 + [50] * 5 + [20] * 10 + [60] * 3
    samples = [
        (f"{at:02}", {"json": json.dumps({"n": number}).encode()}) for at, number in enumerate(numbers)
    ]
    write_shard(tmp_path / "a.tar", samples)
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.tar", "select": "costs:keep"}],
        "elastic": {"ranks": 1, "workers": 1},
        "batch": {"cost": "json.n", "max_cost": 100, "window": 5, "ragged": "list"},
        "epoch": "pass",
    }
    keys = [key for step in all_keys(read(spec)[0]) for keys in step for key in keys]
    assert sorted(keys) == [f"{at:02}" for at, number in enumerate(numbers) if number > 30]
