"""Draws of a `map` from torch, numpy and `random` depend on the sample, and the global state is restored."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from shardmaking import write_source

import wdspec
from wdspec.read.randomness import GlobalGenerators
from wdspec.testing import assert_resumable

CODE = """
import random
from random import gauss as early

import numpy as np
import torch

def draw_torch(sample):
    return {**sample, "drawn": float(torch.rand(1)), "pair": float(torch.randn(1))}

def draw_numpy(sample):
    return {**sample, "drawn": float(np.random.rand()), "pair": float(np.random.randn())}

def draw_python(sample):
    return {**sample, "drawn": random.random(), "pair": early(0, 1)}

def draw_seldom(sample):
    odd = int(sample["cls"]) % 5 == 3
    return {**sample, "drawn": random.random() if odd else 0.0, "pair": 0.0}

class Own:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, sample):
        return {**sample, "drawn": self.rng.random((3, 4)), "pair": 0.0}

def half(sample):
    return random.random() < 0.5

def decode(data):
    return [random.random(), float(torch.rand(1)), np.random.randn()]

def mix(values):
    return torch.tensor(values) + torch.rand(1) + random.random() + np.random.rand()

def whole(samples):
    return {"__key__": [sample["__key__"] for sample in samples], "drawn": torch.randperm(len(samples))}

def draw_gauss(sample):
    return {**sample, "drawn": random.gauss(0, 1), "pair": 0.0}

def seed_again(sample):
    random.seed(7)
    return {**sample, "drawn": random.random(), "pair": 0.0}

def only_seed(sample):
    random.seed(7)
    return {**sample, "drawn": 0.0, "pair": 0.0}

def staged(samples):
    for sample in samples:
        yield {**sample, "drawn": random.random(), "pair": random.gauss(0, 1)}

def joined(samples):
    return {"__key__": [sample["__key__"] for sample in samples], "drawn": random.random()}

def fail_at_low(sample):
    if random.random() < 0.3:
        raise ValueError("low")
    return {**sample, "drawn": 0.0, "pair": 0.0}
"""
KINDS = ["draw_torch", "draw_numpy", "draw_python", "draw_seldom"]


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "drawing_in_maps.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)


def spec(folder, function, **more):
    source = {"shards": write_source(folder, "a", 4, 9), "map": f"drawing_in_maps:{function}"}
    return {
        "dataset": [source],
        "batch": 4,
        "epoch": {"batches": 6},
        "elastic": {"ranks": 2, "workers": 2},
        **more,
    }


def drawn(items):
    return [
        (key, a, b)
        for batch in items
        for key, a, b in zip(batch["__key__"], batch["drawn"], batch["pair"], strict=True)
    ]


@pytest.mark.parametrize("function", KINDS)
def test_draws_are_the_same_in_every_topology_and_after_a_resume(tmp_path, function):
    document = spec(tmp_path, function)
    whole = drawn(wdspec.compile(document, rank=0, world_size=1))
    parts = [drawn(wdspec.compile(document, rank=rank, world_size=2)) for rank in range(2)]
    assert sorted(whole) == sorted(parts[0] + parts[1])
    assert_resumable(
        lambda: wdspec.compile(document, rank=0, world_size=1), batches=6, live=False, stops=[2, 5]
    )
    if function != "draw_seldom":
        assert len({a for _, a, _ in whole}) == len(whole)


@pytest.mark.parametrize("function", KINDS)
def test_draws_of_the_training_loop_are_unchanged(tmp_path, function):
    def draws():
        return float(torch.rand(1)), np.random.randn(), random.random(), random.gauss(0, 1), np.random.rand()

    def seed():
        torch.manual_seed(5)
        np.random.seed(5)
        random.seed(5)
        np.random.randn()  # half a pair is kept for the next
        random.gauss(0, 1)

    seed()
    expected = [draws() for _ in range(4)]
    stream = iter(wdspec.compile(spec(tmp_path, function), rank=0, world_size=1))
    seed()
    seen = []
    for _ in range(4):
        next(stream)
        seen.append(draws())
    assert seen == expected


LOOP = {
    "random": lambda seed: random.random(),
    "bits": lambda seed: random.getrandbits(40),
    "gauss": lambda seed: random.gauss(0, 1),
    "shuffle": lambda seed: random.sample(range(400), 400),
    "seed": lambda seed: random.seed(seed),
    "numpy": lambda seed: np.random.rand(),
    "numpy pair": lambda seed: np.random.randn(),
    "numpy seed": lambda seed: np.random.seed(seed),
    "numpy seed of several words": lambda seed: np.random.seed([seed, 1]),
    "torch": lambda seed: float(torch.rand(1)),
    "torch pair": lambda seed: float(torch.randn(1)),
    "torch seed": lambda seed: torch.manual_seed(seed) and None,
}
"""What a training loop does with the global generators."""
LENDERS = {
    **{
        name: {"map": f"drawing_in_maps:{name}"} for name in (*KINDS, "draw_gauss", "seed_again", "only_seed")
    },
    "stage": {"stage": {"call": "drawing_in_maps:staged", "every": 8}},
    "collate": {"batch": {"size": 4, "collate": "drawing_in_maps:joined"}},
}


@pytest.mark.parametrize("name", LENDERS)
def test_every_training_loop_draws_as_without_a_loader(tmp_path, name):
    document = spec(tmp_path, "draw_python", epoch={"batches": 600}, elastic={"ranks": 1, "workers": 1})
    del document["dataset"][0]["map"]
    document.update(LENDERS[name])
    choose = random.Random(name)
    steps = [
        [(choose.choice(list(LOOP)), choose.randrange(2)) for _ in range(choose.randrange(4))]
        for _ in range(500)
    ]

    def draws(step):
        return [LOOP[draw](seed) for draw, seed in step]

    def seed():
        random.seed(1), np.random.seed(1), torch.manual_seed(1)

    seed()
    expected = [draws(step) for step in steps]
    stream = iter(wdspec.compile(document, rank=0, world_size=1))
    seed()
    for step, want in zip(steps, expected, strict=True):
        assert draws(step) == want
        next(stream)


def test_a_cached_numpy_normal_is_kept_when_the_loop_reseeds(tmp_path):
    stream = iter(wdspec.compile(spec(tmp_path, "draw_torch"), rank=0, world_size=1))
    np.random.seed(5)
    pair = np.random.randn(), np.random.randn()
    next(stream)
    np.random.seed(5)
    first = np.random.randn()
    next(stream)
    assert (first, np.random.randn()) == pair


@pytest.mark.parametrize("name", ["draw_python", "draw_gauss", "seed_again"])
def test_the_first_sample_does_not_depend_on_what_the_training_loop_drew(tmp_path, name):
    first = []
    for prepare in (
        lambda: None,
        lambda: random.gauss(0, 1),
        lambda: random.seed(3),
        lambda: random.random(),
    ):
        random.seed(1)
        prepare()
        first.append(drawn([next(iter(wdspec.compile(spec(tmp_path, name), rank=0, world_size=1)))]))
    assert all(each == first[0] for each in first)


@pytest.mark.parametrize(
    "change",
    [
        {"defaults": {"decode": {"cls": "drawing_in_maps:decode"}}},
        {"batch": {"size": 4, "collate": {"cls": "drawing_in_maps:mix"}}},
        {"batch": {"size": 4, "accumulate": True, "collate": "drawing_in_maps:whole"}},
    ],
    ids=["decode", "collate a field", "collate"],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_draws_of_decoders_and_collate_are_the_same_after_a_resume(tmp_path, change, workers):
    random.seed(1)
    before = random.getstate()
    document = {**spec(tmp_path, "draw_torch"), **change}
    del document["dataset"][0]["map"]

    def run(rank=0, world_size=1):
        return wdspec.loader(document, num_workers=workers, rank=rank, world_size=world_size)

    assert_resumable(run, batches=6, live=False, stops=[3])
    if document["batch"] != 4:
        return
    ranks = [[tuple(values) for batch in run(rank, 2) for values in batch["cls"]] for rank in range(2)]
    both = [tuple(values) for batch in run() for values in batch["cls"]]
    assert sorted(both) == sorted(ranks[0] + ranks[1])
    assert len({values[0] for values in both}) == len(both)
    assert random.getstate() == before


def test_randomly_dropped_and_failed_samples_are_counted_once(tmp_path):
    keys = []
    for seed in (1, 2):
        random.seed(seed)
        document = spec(tmp_path, "draw_python")
        document["dataset"][0].update(select="drawing_in_maps:half")
        pipeline = wdspec.compile(document, rank=0, world_size=1)
        keys.append([key for key, _, _ in drawn(pipeline)])
        document = spec(tmp_path, "fail_at_low", errors={"skip": ["map"]})
        keys[-1] += [key for key, _, _ in drawn(wdspec.compile(document, rank=0, world_size=1))]
    assert keys[0] == keys[1]


def test_random_is_seeded_on_first_use():
    generators = GlobalGenerators()
    with generators:
        generators.seed(1)
        assert not generators.has_strayed()
        random.random()
        assert generators.has_strayed()
        generators.seed(1)
        first = random.random()
        assert not generators.has_strayed()
        generators.seed(1)
        assert random.random() == first


LATE = """
from wdspec.read.randomness import GlobalGenerators

generators = GlobalGenerators()
with generators:
    for number in (7, 8):
        generators.seed(number)
        import torch

        drawn = torch.rand(1).item()
        if generators.has_strayed():  # process the sample again
            generators.seed(number)
            drawn = torch.rand(1).item()
        assert not generators.has_strayed()
        print(drawn)
print(torch.rand(1).item())
"""


def test_torch_is_seeded_for_the_sample_whose_function_imports_it():
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, timeout=280, check=True
    )
    found = [float(line) for line in done.stdout.split()]
    generators = GlobalGenerators()
    expected = []
    with generators:
        for number in (7, 8):
            generators.seed(number)
            expected.append(torch.rand(1).item())
    assert found == [*expected, torch.rand(1, generator=torch.Generator()).item()]


def test_a_private_generator_is_named_as_the_likely_cause(tmp_path):
    document = spec(tmp_path, "Own")
    with pytest.raises(AssertionError) as caught:
        assert_resumable(lambda: wdspec.compile(document, rank=0, world_size=1), batches=4, live=False)
    said = str(caught.value)
    assert "has the right samples with other values: ['drawn'], torch.float64 of shape (8, 3, 4)" in said
    assert "has other numbers in 8 of its 8 rows, first in row 0; most likely a function of the spec" in said
    assert "wdspec.sample_rng(sample)" in said
