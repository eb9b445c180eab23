"""States of earlier formats resume exactly. Each file in tests/support/states was written after 11 batches."""

import json
from itertools import islice
from pathlib import Path

import pytest

import wdspec
from wdspec.run.state import READABLE, VERSION, merge_states

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "support" / "states").glob("version-*.json"))
PLAIN = VERSION - 1
"""The version of states without windows or a stage. States with them are in the records of the oracle."""
ELASTIC = ["elastic={ranks: 2, workers: 2}"]


def loader(**more):
    return wdspec.loader(ROOT / "examples/specs/digits.yaml", split="train", overrides=ELASTIC, **more)


@pytest.fixture(scope="module")
def expected():
    with loader(num_workers=0) as fresh:
        return [batch["__key__"] for batch in islice(fresh, 24)][11:]


def test_each_readable_version_has_a_recorded_state():
    assert [json.loads(path.read_text())["version"] for path in FILES] == [
        version for version in READABLE if version <= PLAIN
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_run_resumes_from_it(path, expected):
    with loader(num_workers=0) as resumed:
        resumed.load_state_dict(json.loads(path.read_text()))
        assert [batch["__key__"] for batch in resumed] == expected
        assert resumed.state_dict()["version"] == PLAIN


def test_all_versions_describe_the_same_position():
    """After loading, both are written as the same state."""
    written = []
    for path in FILES:
        with loader(num_workers=0) as resumed:
            resumed.load_state_dict(json.loads(path.read_text()))
            written.append(resumed.state_dict())
    assert written[0] == written[-1]


def test_parts_of_several_versions_merge():
    """As when some ranks were restarted with a newer release."""
    parts = [json.loads(path.read_text()) for path in (FILES[0], FILES[-1])]
    for rank, part in enumerate(parts):
        part["ranks"] = {str(rank): part["ranks"][str(rank)]}
    merged = merge_states(parts)
    assert (merged["version"], sorted(merged["ranks"])) == (PLAIN, ["0", "1"])
    with loader(num_workers=0) as resumed:
        resumed.load_state_dict(merged)
