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


def draw(seed):
    """A random trial whose samples name objects if they have JSON; its spec may not be valid."""
    trial = fuzz.draw_trial(seed)
    rng = random.Random(f"fetch {seed}")
    url, root = rng.choice(REFERENCES)
    entry = {"url": url, "root": root, "missing": rng.choice(("skip", "none", "none"))}
    if '"json' in json.dumps(trial.spec):
        trial.spec.setdefault("defaults", {})["fetch"] = {"object.txt": entry}
    return trial


def check(seeds, least):
    """Check those trials of seeds that fetch something."""
    found = fuzz.run(seeds, draw=draw, having='"fetch": {"')
    assert not found["failures"], "see what was printed above"
    assert found["counts"]["checked"] >= least, found["counts"]


def test_random_specs_that_fetch_objects_give_what_the_model_gives():
    check(range(8), 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_many_random_specs_that_fetch_objects_give_what_the_model_gives(first):
    check(range(first, first + 50), 15)
