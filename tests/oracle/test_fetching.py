"""Random specs whose samples name objects: the loader gives what the reference model gives, also after a resume."""

import json
import random

import pytest
from oracle import fuzz
from oracle.record import data_folder


@pytest.fixture(scope="module", autouse=True)
def folder():
    """The data, as the working directory."""
    with data_folder() as path:
        yield path


REFERENCES = (
    ("json.lang", "objects/"),
    ("{json.lang}", "objects/"),
    ("objects/{json.lang}", "./"),
    ('lists/{json.lang}{fields["labels.npy"]}.txt', "./"),  # a list of objects
    ("lists/{json.lang}{labels}.txt", "./"),
)

PICTURE = {"url": "{json.lang}.png", "root": "pictures/"}
"""Each language has one of another size, and one has none."""

PART = {"url": "sounds/{json.lang}.wav", "root": "./", "seconds": ["json.score / 4", "json.score / 4 + 0.5"]}
"""One of eleven ends too late."""


def draw(seed):
    """A random trial whose samples name objects if they have JSON; its spec may not be valid."""
    trial = fuzz.draw_trial(seed)
    rng = random.Random(f"fetch {seed}")
    url, root = rng.choice(REFERENCES)
    entry = {"url": url, "root": root, "missing": rng.choice(("skip", "none", "none"))}
    is_part = rng.random() < 0.25  # part of a recording
    batch = trial.spec.get("batch")
    if isinstance(batch, dict) and "cost" in batch and "pack" not in batch and rng.random() < 0.7:
        batch["cost"] = rng.choice(
            ('default(fields["object.png"].width, 9)', 'fields["object.png"].pixels / 4')
        )
        entry |= PICTURE
        trial.spec.setdefault("defaults", {})["fetch"] = {"object.png": entry}
    elif '"json' in json.dumps(trial.spec):
        entry |= PART if is_part else {}
        trial.spec.setdefault("defaults", {})["fetch"] = {"object.bin" if is_part else "object.txt": entry}
    return trial


def check(seeds, least):
    """Check those trials of seeds that fetch something."""
    found = fuzz.run(seeds, draw=draw, having='"fetch": {"')
    assert not found["failures"], "see what was printed above"
    assert found["counts"]["checked"] >= least, found["counts"]


def test_random_specs_that_fetch_objects_give_what_the_model_gives():
    check(range(8), 2)


@pytest.mark.parametrize("batch", [3, {"cost": "txt.length + 1", "max_cost": 90, "window": 8}])
@pytest.mark.parametrize(
    ("name", "entry"),
    [
        (
            "object.txt",
            {"url": "json.messages[:].role", "root": "roles/", "missing": "none"},
        ),  # maps of a list
        ("object.txt", {"url": "roles/{json.messages[:].role}", "root": "./", "missing": "none"}),
        ("object.bin", PART | {"missing": "skip"}),
    ],
)
def test_maps_of_lists_and_parts_of_recordings_are_those_of_the_model(name, entry, batch):
    source = {
        "name": "rich",
        "shards": "rich-{000..001}.tar",
        "extensions": "txt json",
        "fetch": {name: entry},
    }
    more = {
        "errors": {"skip": "decode", "max_rate": 1},
        "where": 'json.messages.length > 2 and "user" in json.messages[:].role',
    }
    spec = {"seed": 5, "dataset": [source | more], "batch": batch, "epoch": {"batches": 5}}
    check_on_other_topologies(spec)


def check_on_other_topologies(spec):
    """Read a spec on one and two ranks, with threads, and from states of other ranks."""
    legs = [
        fuzz.Leg(2),
        fuzz.Leg(1, 2, threads=True),
        fuzz.Leg(1, origin=0, cut=4),
        fuzz.Leg(2, origin=2, cut=9),
    ]
    trial = fuzz.Trial(spec | {"elastic": {"ranks": 2, "workers": 2}}, legs=legs)
    assert fuzz.is_valid(trial)
    assert fuzz.check(trial) is None


SIZED = [
    {"cost": 'default(fields["object.png"].width, 9)', "max_cost": 60, "window": 8},
    {"group_by": 'default(fields["object.png"].width, 1)', "size": 2, "window": 16, "group_wait": 40},
    {
        "cost": 'fields["object.png"].pixels',
        "max_cost": 500,
        "window": 8,
        "overlong": "alone",
        "balance": 'fields["object.png"].height',
    },
]


@pytest.mark.parametrize(  # each pair of values
    ("batch", "url", "missing", "epoch"),
    [
        (SIZED[0], "{json.lang}.png", "skip", {"batches": 5}),
        (SIZED[0], "{json.lang}.bad", "none", "pass"),
        (SIZED[1], "{json.lang}.png", "none", "pass"),
        (SIZED[1], "{json.lang}.bad", "skip", {"batches": 5}),
        (SIZED[2], "{json.lang}.bad", "skip", "pass"),
        (SIZED[2], "{json.lang}.png", "none", {"batches": 5}),
    ],
)
def test_batches_by_the_sizes_of_pictures_are_those_of_the_model(batch, url, missing, epoch):
    batch = {key: value for key, value in batch.items() if key != "balance" or epoch != "pass"}
    source = {
        "name": "a",
        "shards": "a-{000..003}.tar",
        "extensions": "txt json",
        "fetch": {"object.png": PICTURE | {"url": url, "missing": missing}},
        "errors": {"skip": "decode", "max_rate": 1},
    }
    spec = {"seed": 5, "dataset": [source], "batch": batch, "epoch": epoch}
    check_on_other_topologies(spec)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_many_random_specs_that_fetch_objects_give_what_the_model_gives(first):
    check(range(first, first + 50), 15)
