"""Random specs: the loader gives what the reference model gives, on every topology and after every resume."""

import collections
import json

import pytest
from oracle import fuzz, generator
from oracle.generator import HINTS, LEFT_OUT, Draw, list_paths, reason_to_leave_out
from oracle.record import data_folder

import wdspec

DRAWS = 600


@pytest.fixture(scope="module", autouse=True)
def folder():
    """The data, as the working directory."""
    with data_folder() as path:
        yield path


@pytest.fixture(scope="module")
def draws():
    """Some draws."""
    return [Draw(seed) for seed in range(DRAWS)]


def check(seeds):
    """Check the trials of seeds."""
    found = fuzz.run(seeds)
    assert not found["failures"], "see what was printed above"
    assert found["counts"]["checked"] >= 0.6 * len(seeds), found["counts"]


@pytest.mark.parametrize("first", [0, 10, *(pytest.param(n, marks=pytest.mark.long) for n in (20, 30))])
def test_random_specs_give_what_the_model_gives(first):
    check(range(first, first + 10))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_many_random_specs_give_what_the_model_gives(first):
    check(range(first, first + 100))


def check_reshuffled(seeds, least):
    """Check the trials of seeds whose epochs are passes that reshuffle."""
    found = fuzz.run(seeds, having='"reshuffle": true')
    assert not found["failures"], "see what was printed above"
    assert found["counts"]["checked"] >= least, found["counts"]


@pytest.mark.parametrize("first", [0, 50, *(pytest.param(n, marks=pytest.mark.long) for n in (100, 150))])
def test_random_passes_that_reshuffle_give_what_the_model_gives(first):
    check_reshuffled(range(first, first + 25), 2)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(10_000, 18_400, 700))
def test_many_random_passes_that_reshuffle_give_what_the_model_gives(first):
    check_reshuffled(range(first, first + 700), 60)


def test_at_least_three_of_five_specs_are_valid(draws):
    valid = sum(
        not any(problem.is_error for problem in wdspec.validate(draw.spec)) for draw in draws[: DRAWS // 4]
    )
    print(f"{valid / (DRAWS // 4):.1%} of the specs are valid")
    assert valid >= 0.6 * (DRAWS // 4)


def test_every_key_of_the_schema_is_drawn_or_left_out_for_a_reason(draws):
    missing = {path for path in list_paths() if reason_to_leave_out(path) is None}
    for seed in range(10 * DRAWS):  # rare keys
        missing -= (draws[seed] if seed < DRAWS else Draw(seed)).paths
        if not missing:
            break
    assert missing == set()


def test_hints_and_reasons_are_about_keys_of_the_schema():
    assert {*HINTS, *LEFT_OUT} <= list_paths()
    assert all(LEFT_OUT.values())


def test_a_new_key_enters_the_draws_by_itself(monkeypatch):
    schema = json.loads(json.dumps(generator.load_schema()))
    schema["$defs"]["Batch"]["properties"]["newest"] = {"enum": ["first", "second"]}
    schema["$defs"]["SourceEntry"]["properties"]["newer"] = {"type": "integer", "minimum": 3}
    monkeypatch.setattr(generator, "load_schema", lambda: schema)
    specs = [Draw(seed).spec for seed in range(150)]
    assert {spec["batch"]["newest"] for spec in specs if "newest" in (spec.get("batch") or {})} == {
        "first",
        "second",
    }
    assert any("newer" in source for spec in specs for source in spec["dataset"])


FEATURES = {
    "pass": lambda spec: fuzz.is_pass(spec),
    "sums": lambda spec: spec.get("batch", {}).get("padded") is False,
    "limits": lambda spec: "limits" in spec.get("batch", {}),
    "size_multiple": lambda spec: "size_multiple" in spec.get("batch", {}),
    "max_size": lambda spec: "max_size" in spec.get("batch", {}),
    "overlong alone": lambda spec: spec.get("batch", {}).get("overlong") == "alone",
    "groups": lambda spec: "group_by" in spec.get("batch", {}),
    **{
        f"pack {method}": lambda spec, method=method: (
            spec.get("batch", {}).get("pack", {}).get("method") == method
        )
        for method in ("best_fit", "in_order", "concatenate")
    },
    "truncate": lambda spec: spec.get("batch", {}).get("overlong") == "truncate",
    "split": lambda spec: spec.get("batch", {}).get("overlong") == "split",
    "stage": lambda spec: "stage" in spec,
    "stage and windows": lambda spec: "stage" in spec and "window" in spec.get("batch", {}),
    **{
        f"max_passes {then}": lambda spec, then=then: f'"on_exhausted": "{then}"' in json.dumps(spec)
        for then in ("drop", "error", "stop")
    },
    "schedule": lambda spec: "schedule" in spec.get("mix", {}),
    "ramp": lambda spec: '"ramp": "linear"' in json.dumps(spec),
    "nested": lambda spec: any("dataset" in source for source in spec["dataset"]),
    **{
        key: lambda spec, key=key: f'"{key}"' in json.dumps(spec)
        for key in (
            *(
                "where",
                "subset",
                "keys",
                "exclude",
                "select",
                "missing",
                "join",
                "lookup",
                "repeat",
                "tokens",
            ),
            *("draw", "unit", "order", "accumulate", "global_size", "to_tuple", "skip", "limit", "shares_in"),
        )
    },
    **{
        ending: lambda spec, ending=ending: ending in json.dumps(spec)
        for ending in ("parquet", "arrow", "jsonl", "mds", "lance")
    },
    "damage": lambda spec: '"broken"' in json.dumps(spec),
    "small data": lambda spec: len(spec["dataset"]) == 1 and spec["dataset"][0]["name"] in ("c", "tiny"),
}


def test_every_feature_is_frequent(draws):
    counts = collections.Counter(
        name for draw in draws for name, has_feature in FEATURES.items() if has_feature(draw.spec)
    )
    assert {name for name in FEATURES if counts[name] < DRAWS / 120} == set(), counts


def test_the_training_loop_sets_shares_and_skips_steps_in_many_trials():
    trials = [fuzz.draw_trial(seed) for seed in range(200)]
    assert sum(bool(trial.live) for trial in trials) > 20
    assert sum(bool(trial.skips) for trial in trials) > 20
    assert sum(any(leg.change for leg in trial.legs) for trial in trials) > 20
    assert sum(any(leg.threads for leg in trial.legs) for trial in trials) > 20


def test_a_trial_that_fails_is_shrunk():
    spec = {
        "dataset": [
            {"name": "a", "shards": "a-{000..004}.tar", "weight": 2},
            {"name": "c", "shards": "c-000.tar", "weight": 1},
        ],
        "batch": {"size": 2, "ragged": "error"},
        "elastic": {"ranks": 2, "workers": 2},
    }
    trial = fuzz.Trial(spec, legs=[fuzz.Leg(), fuzz.Leg(ranks=2)])
    failure = fuzz.Failure("items", 0, "differs")

    def fake(candidate):
        return failure if any(each["name"] == "a" for each in candidate.spec["dataset"]) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuzz, "check", fake)
        smallest, _ = fuzz.shrink(trial, failure)
    assert smallest.spec == {"dataset": [{"name": "a", "shards": "a-{000..004}.tar"}]}
    assert len(smallest.legs) == 1


ONCE_WRONG = {
    "a change between two epochs, of which the next one would have had no batch": {
        "spec": {
            "dataset": [
                {
                    "subset": {"part": "80%"},
                    "keys": "@some.txt",
                    "shuffle": 2,
                    "interleave": 2,
                    "repeat": 2.5,
                    "name": "c",
                    "shards": ["c-000.tar"],
                }
            ],
            "seed": 32,
            "batch": {
                "size": 4,
                "ragged": "list",
                "window": 5,
                "group_by": "json.score > 4",
                "group_wait": 12,
                "incomplete": "keep",
            },
            "epoch": {"pass": "drop", "reshuffle": True},
            "elastic": {"ranks": 2, "workers": 2},
            "defaults": {"extensions": ["txt", "json"]},
        },
        "legs": [{}, {"origin": 0, "cut": 4, "change": "order 5"}],
        "steps": 30,
    },
    "windows of which no sample is left": {
        "spec": {
            "dataset": [{"name": "tiny", "shards": "tiny-000.tar"}],
            "batch": {"cost": "txt.length", "max_cost": 90, "window": 14, "ragged": "list"},
            "defaults": {
                "fetch": {"image": {"url": "{json.lang}.gone", "root": "pictures/", "missing": "skip"}}
            },
        },
        "legs": [{}],
        "steps": 4,
    },
    "a source that was added within a section, which does not read it, before a second change": {
        "spec": {
            "dataset": [
                {"errors": {"skip": "shard decode"}, "name": "broken", "shards": ["broken-003.tar"]},
                {"name": "a", "shards": "a-{000..004}.tar"},
            ],
            "batch": {"size": 1, "group_by": "txt.length > 20", "group_wait": 20},
        },
        "legs": [
            {},
            {"origin": 0, "cut": 8, "change": "source_added 1"},
            {"origin": 1, "cut": 11, "change": "weight 3"},
        ],
        "steps": 24,
    },
    "a source whose share is 0 from the first step": {
        "spec": {
            "dataset": [
                {"name": "rows", "shards": "rows-{000..002}.jsonl"},
                {"name": "nulls", "shards": "nulls-{000..001}.parquet", "where": "json.lang != 'fr'"},
            ]
        },
        "legs": [{}],
        "steps": 4,
        "live": [[0, {"rows": 1, "nulls": 0}, 0]],
    },
    "the lanes of a source after two changes": {
        "spec": {"dataset": [{"shuffle": 0, "interleave": 1, "name": "b", "shards": "b-{000..011}.tar"}]},
        "legs": [
            {},
            {"origin": 0, "cut": 2, "change": "interleave 2"},
            {"origin": 1, "cut": 3, "change": "seed 0"},
        ],
        "steps": 8,
    },
    "the number of a window that starts again": {
        "spec": {
            "dataset": [{"name": "c", "shards": "c-000.tar"}],
            "batch": {"ragged": "list", "cost": "before_map(txt.length)", "max_size": 3, "window": 14},
        },
        "legs": [{}, {"origin": 0, "cut": 18, "change": "batch 5"}],
        "steps": 22,
    },
    "a stage with batches of the same size": {
        "spec": {
            "dataset": [{"name": "c", "shards": "c-000.tar"}],
            "stage": {"call": "oracle_functions:double"},
            "batch": {"global_size": 6, "ragged": "list"},
            "elastic": {"ranks": 2},
        },
        "legs": [
            {},
            {"origin": 0, "cut": 11, "change": "order 3"},
            {"origin": 1, "cut": 14, "change": "plain 5"},
        ],
        "steps": 22,
    },
    "a section of a stage that starts again twice": {
        "spec": {
            "dataset": [
                {"name": "tiny", "shards": "tiny-000.tar"},
                {"name": "a", "shards": [f"a-{shard:03d}.tar" for shard in range(5)]},
            ],
            "stage": {"call": "oracle_functions:drop_short", "every": 7},
            "batch": {"window": 5, "pack": {"fields": "ids.npy", "length": 64, "method": "in_order"}},
        },
        "legs": [
            {},
            {"origin": 0, "cut": 23, "change": "where 5"},
            {"origin": 1, "cut": 25, "change": "order 7"},
        ],
        "steps": 30,
    },
    "shares of costs that were set before a change": {
        "spec": {
            "dataset": [
                {"weight": 2, "mean_cost": 12, "name": "a", "shards": "a-{000..004}.tar"},
                {"weight": 5, "mean_cost": 20, "name": "tiny", "shards": "tiny-000.tar"},
                {"weight": 5, "mean_cost": 12, "name": "e", "shards": "e-{000..001}.tar"},
            ],
            "mix": {"shares_in": "cost"},
            "batch": {"ragged": "list", "cost": "txt.length / 3 + 1", "max_size": 3, "window": 20},
        },
        "legs": [{}, {"origin": 0, "cut": 9, "change": "shuffle 7"}],
        "steps": 12,
        "live": [[1, {"a": 2, "tiny": 1, "e": 2}, 0]],
    },
    "samples that a part of a copy leaves out are not measured": {
        "spec": {
            "dataset": [
                {
                    "repeat": 0.3,
                    "expect": {"fields": {"txt": {"length": [1, 38]}}},
                    "name": "b",
                    "shards": "b-{000..011}.tar",
                }
            ],
            "batch": {"cost": "oracle_functions:cost", "max_cost": 60},
            "epoch": "pass",
            "elastic": {"ranks": 2, "workers": 3},
        },
        "steps": 4,
    },
    **{
        f"tags in a window after a stage, {name}": {
            "spec": {
                "dataset": [{**source, "name": "a", "shards": "a-{000..004}.tar"}],
                "stage": {"call": "oracle_functions:double", "every": 3},
                "batch": {"window": 5, "pack": {"fields": "ids.npy", "length": 64}},
            },
            "legs": [{}, {"origin": 0, "cut": 2, "change": "tags 6"}],
            "steps": 8,
        }
        for name, source in (
            ("which is finished", {}),
            ("which starts again", {"map": {"call": "oracle_functions:add_size"}}),
        )
    },
    "two changes between which a slot with an open window reads nothing": {
        "spec": {
            "dataset": [{"name": "a", "shards": "a-{000..004}.tar", "shuffle": 20}],
            "batch": {"window": 14, "cost": "txt.length", "max_cost": 90, "ragged": "list"},
            "elastic": {"ranks": 1, "workers": 2},
        },
        "legs": [
            {},
            {"origin": 0, "cut": 9, "change": "order 0"},
            {"origin": 1, "cut": 10, "change": "order 0"},
        ],
        "steps": 20,
    },
    "a window of two sections of a stage, of which only the second has a source that was added": {
        "spec": {
            "dataset": [{"name": "a", "shards": "a-{000..004}.tar"}],
            "stage": {"call": "oracle_functions:by_key", "args": {"hold": 5}, "every": 4},
            "batch": {"window": 9, "cost": "txt.length", "max_cost": 90, "ragged": "list"},
        },
        "legs": [
            {},
            {"origin": 0, "cut": 7, "change": "source_added 0"},
            {"origin": 1, "cut": 9, "change": "draw 0"},
        ],
        "steps": 24,
    },
    "two changes of a plain mix between which a slot reads nothing": {
        "spec": {
            "dataset": [
                {"name": "a", "shards": "a-{000..004}.tar", "order": "sequential", "shuffle": 0},
                {"name": "raw", "shards": "e-{000..001}.tar"},
            ],
            "mix": {"by": "equal"},
            "batch": {"size": 2, "ragged": "list"},
            "elastic": {"ranks": 2, "workers": 3},
            "defaults": {"shuffle": 2, "interleave": 3, "extensions": "txt"},
        },
        "legs": [
            {},
            {"origin": 0, "cut": 2, "change": "weight 8"},
            {"origin": 1, "cut": 3, "change": "seed 2"},
        ],
        "steps": 12,
    },
    "a key of the mix that changes no share": {
        "spec": {
            "dataset": [
                {"probability": 0.7, "name": "a", "shards": ["a-003.tar"]},
                {"probability": 0.3, "name": "inner", "dataset": [{"shards": "e-{000..001}.tar"}]},
            ],
            "batch": {"window": 20, "pack": {"fields": "ids.npy", "length": 64}},
        },
        "legs": [{}, {"origin": 0, "cut": 8, "change": "weight 8"}],
        "live": [[0, {"a": 2, "inner": 2}, 1]],
    },
}


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_trials_that_once_failed_give_what_the_model_gives(name):
    trial = fuzz.Trial(**ONCE_WRONG[name])
    assert fuzz.is_valid(trial)
    assert fuzz.check(trial) is None
