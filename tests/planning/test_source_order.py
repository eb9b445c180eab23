"""The place of a source in its list affects neither the order nor digests and states."""

import json
import random

import golden
import pytest
from shardmaking import UNEVEN, write_uneven_sources

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_uneven_sources(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def permuted(value, rng):
    """A spec with the sources of every list in another order, and the entries of maps that are read by name."""
    if isinstance(value, dict):
        value = {key: permuted(each, rng) for key, each in value.items()}
        for key in ("dataset", "shares", "tags"):
            if isinstance(value.get(key), (list, dict)):
                items = list(value[key].items() if isinstance(value[key], dict) else value[key])
                items = [*items[1:], items[0]] if rng.random() < 0.5 else items[::-1]
                value[key] = dict(items) if isinstance(value[key], dict) else items
        return value
    return [permuted(each, rng) for each in value] if isinstance(value, list) else value


def source(name, **options):
    return {
        "name": name,
        "shards": f"{name}-{{000..{UNEVEN[name][0] - 1:03d}}}.tar",
        "extensions": "txt",
        **options,
    }


def mix_of(names, options=None, **mix):
    return {"dataset": [source(name, **(options or {})) for name in names], "mix": mix}


KINDS = {
    "probabilities": {
        "dataset": [source("c", probability=0.5), *(source(x, probability=0.25) for x in "fa")]
    },
    "by shards": {"dataset": [source("b"), source("f", upsample=2), source("d")], "mix": {"by": "shards"}},
    "by samples": {
        "dataset": [source(name, samples=UNEVEN[name][0] * UNEVEN[name][1]) for name in "fcad"],
        "mix": {"by": "samples", "cap": 60, "temperature": 2},
    },
    "all equal": mix_of("fcead", by="equal"),
    "all equal, batch by batch": mix_of("fcead", by="equal", unit="batch"),
    "at random, batch by batch": mix_of("fce", {"weight": 2}, draw="random", unit="batch"),
    "turns, batch by batch": mix_of("fce", draw="round_robin", unit="batch"),
    "nested twice": {
        "dataset": [
            source("f", weight=1),
            {
                "name": "x",
                "weight": 2,
                "dataset": [source("e"), {"name": "y", "dataset": [source("c"), source("a")]}],
            },
            source("b", weight=1, tags={"z": 1, "lang": "en"}),
        ],
        "fields": ["txt", "noise"],
    },
    "a part of a pass": {
        "dataset": [source("d"), source("a", shuffle=5), source("c")],
        "epoch": "pass",
        "limit": 70,
    },
    "a pass that drops": {"dataset": [source("d"), source("a")], "epoch": {"pass": "drop"}},
}


def check(spec):
    spec = json.loads(json.dumps(spec))
    expected = golden.observed(spec)
    for seed in range(2):  # the first reverses lists, the second rotates them
        other = permuted(spec, random.Random(seed))
        assert golden.observed(other) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [3, 4])
def test_every_kind_of_mix_is_independent_of_the_order_of_its_sources(kind, batch):
    check(
        {
            "seed": 3,
            "elastic": {"ranks": 2, "workers": 3},
            "map": "picks:jitter",
            "batch": batch,
            **KINDS[kind],
        }
    )


@pytest.mark.parametrize("number", range(0, golden.SPECS, 4))
def test_random_specs_are_independent_of_the_order_of_their_sources(number):
    check(golden.spec_number(number))


def test_permuting_moves_sources():
    moved = [permuted(kind, random.Random(0))["dataset"] != kind["dataset"] for kind in KINDS.values()]
    assert all(moved)
