"""Random numbers of user functions belong to the sample: they survive resume and changes of topology."""

import doctest
import itertools

import numpy as np
import pytest
from shardmaking import write_source

import wdspec
from wdspec.base.errors import UsageError
from wdspec.read import randomness


@pytest.fixture
def spec(tmp_path):
    return {
        "seed": 9,
        "elastic": {"ranks": 2, "workers": 2},
        "dataset": [
            {"name": "a", "shards": write_source(tmp_path, "a", 3, 20), "weight": 2, "shuffle": 30},
            {"name": "b", "shards": write_source(tmp_path, "b", 2, 10), "weight": 1, "shuffle": 0},
        ],
        "map": "picks:jitter",
        "epoch": 60,
    }


def seen(spec, workers=0, rank=0, world_size=1, **arguments):
    with wdspec.loader(spec, num_workers=workers, rank=rank, world_size=world_size, **arguments) as loader:
        return [(sample["__key__"], sample["noise"]) for sample in loader]


def test_every_topology_draws_the_same_numbers_for_a_sample(spec):
    alone = seen(spec)
    assert seen(spec, workers=2) == alone
    assert sorted(seen(spec, rank=0, world_size=2) + seen(spec, 1, rank=1, world_size=2)) == sorted(alone)
    assert len({noise for _, noise in alone}) == len(alone)


def test_numbers_survive_resume(spec):
    pipeline = wdspec.compile(spec)
    expected = [sample["noise"] for sample in wdspec.compile(spec)]
    first = [sample["noise"] for sample in itertools.islice(pipeline, 20)]
    again = wdspec.compile(spec)
    again.load_state_dict(pipeline.state_dict())
    assert first + [sample["noise"] for sample in again] == expected


def test_another_seed_or_pass_draws_different_numbers(spec):
    spec["epoch"] = 200
    noise = {}
    for key, number in seen(spec):
        noise.setdefault(key, set()).add(number)
    assert any(len(numbers) > 1 for numbers in noise.values())
    other = {number for _, number in seen({**spec, "seed": 10})}
    assert not other & set().union(*noise.values())


def test_each_call_restarts_its_stream_and_names_separate_streams(spec):
    spec["map"] = "picks:jitter_by_name"
    for sample in itertools.islice(wdspec.compile(spec), 10):
        first, again, crop, flip = sample["draws"]
        assert first == again
        assert len({first, crop, flip}) == 3


def test_numbers_are_uniform_over_samples(spec):
    spec["epoch"] = 3000
    numbers = np.array([noise for _, noise in seen(spec)])
    assert abs(numbers.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.08


def test_select_can_use_random_numbers(spec):
    for source in spec["dataset"]:
        source["select"] = "picks:coin"
    assert seen(spec) == seen(spec, workers=2)


def test_the_numbers_of_a_sample_are_pinned(spec):
    del spec["dataset"][1], spec["elastic"]
    assert [(key, round(noise, 6)) for key, noise in seen(spec)[:3]] == [
        ("a0000000", 0.642597),
        ("a0020001", 0.809241),
        ("a0020000", 0.05014),
    ]


def test_an_error_outside_a_function_says_where_it_works(spec):
    with pytest.raises(UsageError, match="inside the functions that `map` and `select` name"):
        wdspec.sample_rng({"__key__": "x"})
    list(itertools.islice(wdspec.compile(spec), 3))
    with pytest.raises(UsageError, match="inside the functions"):
        wdspec.sample_rng({"__key__": "x"})


@pytest.mark.parametrize(
    ("function", "says"),
    [("rng_of_another_shard", "elsewhere.tar while a sample of"), ("rng_in_a_thread", "threads")],
)
def test_misuse_inside_a_function_is_reported(spec, function, says):
    spec["map"] = f"picks:{function}"
    with pytest.raises(UsageError, match=says):
        next(iter(wdspec.compile(spec)))


def test_the_example_in_its_docstring_runs():
    result = doctest.testmod(randomness, optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed
