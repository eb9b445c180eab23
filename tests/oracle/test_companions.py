"""Random specs whose sources have companions: the loader gives what the reference model gives, also after a resume."""

import json
import random
from pathlib import Path

import pytest
from oracle import fuzz
from oracle.features import base, switch_on
from oracle.record import data_folder

import wdspec


@pytest.fixture(scope="module", autouse=True)
def folder():
    """The data, as the working directory."""
    with data_folder() as path:
        yield path


def check(seeds, least, having=""):
    """Check the trials of seeds."""
    found = fuzz.run(seeds, draw=fuzz.draw_trial_with_companions, having=having)
    assert not found["failures"], "see what was printed above"
    assert found["counts"]["checked"] >= least, found["counts"]


def test_random_specs_with_companions_give_what_the_model_gives():
    check(range(6), 3)


PASSES = json.loads(Path(__file__).with_name("passes_with_companions.json").read_text())
"""Trials of each kind of pass. They were drawn once: what a seed draws changes with every new key."""


@pytest.mark.parametrize("kind", PASSES)
def test_companions_of_a_pass_are_the_same_after_a_resume(kind):
    trial = fuzz.Trial(**PASSES[kind])
    assert fuzz.is_valid(trial)
    assert fuzz.check(trial) is None


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("having", ['"reshuffle": true', '"pass"'])
@pytest.mark.parametrize("first", range(2000, 3000, 200))
def test_many_random_passes_with_companions_give_what_the_model_gives(first, having):
    check(range(first, first + 200), 15, having)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_random_specs_with_companions_give_what_the_model_gives(first):
    check(range(first, first + 100), 40)


def _dear(max_cost):
    """A trial of a few samples, nine of ten of which have a companion, which more than doubles their cost."""
    source = {
        "name": "a",
        "shards": "tiny-000.tar",
        "shuffle": 0,
        "companions": {"others": {"source": "one", "chance": 0.9}},
        "map": [{"call": "oracle_functions:tell_companions", "sets": ["txt"]}],
    }
    spec = {
        "dataset": [source],
        "companions": {"one": {"shards": "a-{000..004}.tar"}},
        "defaults": {"extensions": "txt json"},
        "batch": {"cost": "txt.length", "max_cost": max_cost, "window": 8, "overlong": "drop"},
        "elastic": {"ranks": 1, "workers": 1},
        "epoch": {"batches": 5},
    }
    return fuzz.Trial(spec, steps=8)


def test_a_run_ends_where_costs_of_companions_drop_a_whole_pass():
    """The model reads on, and knows that the run may end there."""
    trial = _dear(16)
    with pytest.raises(wdspec.ShardError, match=r"yielded nothing in a whole pass .* overlong"):
        next(iter(wdspec.loader(trial.spec, num_workers=0)))
    right = fuzz.Right(trial, trial.legs[0], trial.legs[0])
    assert right.items(0, trial.legs[0], 0), "the next passes keep some"
    assert right.model.barren == {"a"}
    assert fuzz.check(trial) is None


def test_a_run_that_ends_although_a_pass_has_kept_samples_is_a_difference():
    trial = _dear(40)
    right = fuzz.Right(trial, trial.legs[0], trial.legs[0])
    reading = fuzz.Reading(error="ShardError: the source yielded nothing in a whole pass (1 shard)")
    found = fuzz._compare(trial, 0, 0, reading, right)
    assert found.kind == "error"
    assert not right.model.barren


def _fetch_beside(draft):
    switch_on(draft, "companions", "fetch")
    draft.spec["companions"]["near"] |= {
        "fetch": {"more.txt": {"url": "json.lang", "root": "objects/", "missing": "skip"}}
    }


def _stage(draft):
    switch_on(draft, "companions", "stage")


def _tokens(draft):
    switch_on(draft, "companions", "window")
    draft.batch(cost='fields["ids.npy"].length + 1')
    draft.each(mean_cost=9)
    draft.spec["epoch"] = {"tokens": 300}


PAIRS = {"fetch": _fetch_beside, "stage": _stage, "an epoch of tokens": _tokens}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
@pytest.mark.parametrize("pair", PAIRS)
def test_companions_with_another_feature_give_what_the_model_gives(pair, seed):
    draft = base("mixed")
    PAIRS[pair](draft)
    trial = fuzz.Trial(draft.spec, steps=8)
    assert not any(problem.is_error for problem in wdspec.validate(draft.spec)), wdspec.validate(draft.spec)
    found = fuzz.run(
        [seed], draw=lambda seed: fuzz.add_legs(random.Random(f"{pair} {seed}"), trial), shrinks=False
    )
    assert not found["failures"], "see what was printed above"
    assert found["counts"] == {"drawn": 1, "checked": 1}
    spec = wdspec.load(draft.spec)
    assert all(source.companions for source in spec.sources)
