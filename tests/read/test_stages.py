"""`stage`: a function from iterator to iterator, n → m samples; it resumes exactly on any topology."""

import logging
import random

import numpy as np
import pytest
import torch
from shardmaking import write_source

import wdspec
from wdspec.base.errors import SpecError, UsageError
from wdspec.jobs.process import ProcessJob
from wdspec.testing import assert_resumable

CODE = """
import random
import numpy as np
import torch

def sorted_by_length(samples, hold=6):
    held = []
    for sample in samples:
        held.append(sample)
        if len(held) == hold:
            held.sort(key=lambda each: (each["cls"] % 7, each["__key__"]))
            yield from held
            held = []
    yield from sorted(held, key=lambda each: (each["cls"] % 7, each["__key__"]))

def jittered(sample):
    return {**sample, "cls": sample["cls"] + 100 * random.randrange(9)}

def doubled(samples):
    for sample in samples:
        yield sample
        if sample["cls"] % 2:
            yield {**sample, "cls": -sample["cls"]}

def divided(samples):
    for sample in samples:
        yield {**sample, "cls": 1 / 0}

def halved(samples):
    for sample in samples:
        if sample["cls"] % 2:
            yield sample

def drawn(samples):
    for sample in samples:
        yield {**sample, "x": random.random() + float(torch.rand(1))}

def drawn_after(samples):
    for sample in samples:
        yield sample
        if random.random() + float(torch.rand(1)) + np.random.rand() < 1.5:
            yield {**sample, "cls": -sample["cls"]}

def drawn_pairs_after(samples):
    for sample in samples:
        yield {**sample, "x": 0.0}
        yield {**sample, "x": random.gauss(0, 1) + np.random.randn() + float(torch.randn(1))}

def shuffled(samples):
    held = []
    for sample in samples:
        held.append(sample)
        if len(held) > 4:
            yield held.pop(random.randrange(len(held)))
    random.shuffle(held)
    for sample in held:
        yield sample
    if random.random() < 0.5:
        yield sample

def drawn_first(samples):
    x = random.random()
    for sample in samples:
        yield {**sample, "x": x}

class DrawnAtTheCall:
    def __call__(self, samples):
        x = random.random()
        return ({**sample, "x": x + np.random.rand()} for sample in samples)

def early(samples):
    yield next(samples)

def nothing(samples):
    for sample in samples:
        pass
    return iter(())

def wrong(samples):
    for sample in samples:
        yield sample["cls"]

class Counting:
    def __init__(self, start):
        self.start = start

    def __call__(self, samples):
        for place, sample in enumerate(samples, self.start):
            yield {**sample, "place": place}
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "stages_of_tests.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)


def spec(folder, stage, **more):
    sources = [{"name": n, "shards": write_source(folder, n, 5, 9), "shuffle": 8} for n in "ab"]
    batching = {"batch": 4, "epoch": {"batches": 9}, "elastic": {"ranks": 2, "workers": 2}}
    return {"dataset": sources, "stage": stage, **batching, **more}


def stage(name, **more):
    return {"call": f"stages_of_tests:{name}", "every": 10, **more}


def rows(items):
    return [row for batch in items for row in zip(batch["__key__"], batch["cls"].tolist(), strict=True)]


def values(items):
    return [
        tuple(row)
        for batch in items
        for row in zip(
            batch["__key__"], batch["cls"].tolist(), batch.get("x", batch["cls"]).tolist(), strict=True
        )
    ]


@pytest.mark.parametrize("name", ["sorted_by_length", "doubled", "halved", "drawn"])
def test_a_stage_resumes_exactly_on_any_topology(tmp_path, name):
    document = spec(tmp_path, stage(name))
    every = name == "sorted_by_length"
    stops = None if every else [1, 6]
    assert_resumable(
        lambda: wdspec.compile(document, rank=0, world_size=1), batches=8, stops=stops, live=every
    )
    whole = rows(wdspec.compile(document, rank=0, world_size=1))
    halves = [rows(wdspec.compile(document, rank=rank, world_size=2)) for rank in range(2)]
    assert sorted(whole) == sorted(halves[0] + halves[1])
    if every:
        with wdspec.loader(document, rank=0, world_size=1, num_workers=2) as loader:
            assert rows(loader) == whole


DRAWING = ["drawn_after", "drawn_pairs_after", "shuffled", "drawn_first", "DrawnAtTheCall"]


@pytest.mark.parametrize(
    ("name", "maps"),
    [
        *((name, ["stages_of_tests:jittered"]) for name in DRAWING),
        (DRAWING[0], []),
        *(pytest.param(name, [], marks=pytest.mark.long) for name in DRAWING[1:]),
    ],
)
def test_a_stage_can_draw_random_numbers_at_any_time(tmp_path, name, maps):
    document = spec(tmp_path, stage(name), batch=3, epoch={"batches": 12}, defaults={"map": maps})

    def read(seed, rank=0, world_size=1, workers=0):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        items = []
        with wdspec.loader(document, rank=rank, world_size=world_size, num_workers=workers) as loader:
            for batch in loader:
                items.append(batch)
                random.random(), np.random.rand(), torch.rand(1)
        return values(items)

    whole = read(1)
    assert read(2) == whole
    assert read(1, workers=1) == read(1, workers=2) == whole
    assert sorted(read(1, 0, 2) + read(3, 1, 2)) == sorted(whole)
    assert_resumable(
        lambda: wdspec.compile(document, rank=0, world_size=1), batches=8, stops=[1, 2, 6], live=False
    )


@pytest.mark.parametrize("name", DRAWING)
def test_a_stage_does_not_change_the_draws_of_the_training_loop(tmp_path, name):
    def draws():
        return random.random(), np.random.randn(), float(torch.rand(1))

    def seed():
        random.seed(1), np.random.seed(1), torch.manual_seed(1)

    seed()
    expected = [draws() for _ in range(6)]
    stream = iter(wdspec.compile(spec(tmp_path, stage(name)), rank=0, world_size=1))
    seed()
    assert [(next(stream), draws())[1] for _ in range(6)] == expected


def test_nothing_is_lost_or_repeated_at_restart_points(tmp_path):
    plain = rows(wdspec.compile(spec(tmp_path, None, epoch={"batches": 20}), rank=0, world_size=1))
    staged = rows(
        wdspec.compile(
            spec(tmp_path, stage("sorted_by_length", every=12), epoch={"batches": 20}), rank=0, world_size=1
        )
    )
    assert sorted(staged[: 3 * 48]) == sorted(plain[: 3 * 48])
    assert staged != plain


def test_samples_read_again_are_reported(tmp_path, caplog):
    document = spec(tmp_path, stage("sorted_by_length"))
    pipeline = wdspec.compile(document, rank=0, world_size=1)
    stream = iter(pipeline)
    for _ in range(3):
        next(stream)
    again = wdspec.compile(document, rank=0, world_size=1)
    again.load_state_dict(pipeline.state_dict())
    with caplog.at_level(logging.INFO, "wdspec"):
        next(iter(again))
    assert "resumes from its last point: slot 1 processes" in caplog.text


def test_arguments_and_classes(tmp_path):
    document = spec(tmp_path, stage("Counting", args={"start": 5}), elastic={"ranks": 1, "workers": 1})
    assert next(iter(wdspec.compile(document)))["place"].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("early", UsageError, "ended before its input"),
        ("nothing", UsageError, "yielded nothing for 240 samples"),
        ("wrong", SpecError, "yielded a int, not a sample"),
        ("missing", SpecError, "has no `missing`"),
        ("divided", ZeroDivisionError, r"division by zero \[stage \w+:divided\]"),
    ],
)
def test_errors_of_a_stage_are_reported(tmp_path, name, error, said):
    with pytest.raises(error, match=said):
        rows(wdspec.compile(spec(tmp_path, stage(name)), rank=0, world_size=1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stage": 3}, "expected the name of a function"),
        ({"stage": {"call": "m:f", "evry": 3}}, "did you mean `every`"),
        ({"stage": {"call": "m:f", "every": 0}}, "E204"),
        ({"stage": "m:f", "epoch": "pass"}, "E312"),
    ],
)
def test_mistakes_are_found_on_load(changes, said):
    with pytest.raises(SpecError, match=said):
        wdspec.load({"dataset": [{"shards": "a.tar"}], "batch": 4, **changes})


def test_draws_of_the_training_loop_are_unchanged(tmp_path):
    stream = iter(wdspec.compile(spec(tmp_path, stage("drawn")), rank=0, world_size=1))
    random.seed(3)
    next(stream)
    seen = random.random()
    random.seed(3)
    assert random.random() == seen


def test_shards_are_not_processed_by_a_stage(tmp_path):
    document = spec(tmp_path, stage("drawn"), output=str(tmp_path / "out"))
    with pytest.raises(UsageError, match="`process` handles each sample separately"):
        ProcessJob.of(wdspec.load(document))
