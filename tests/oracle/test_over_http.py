"""Random specs whose shards, tables and partners come from a server through a cache that is too small for all of them.

Where bytes come from affects no sample: the loader gives what the reference model gives, which reads the files.
"""

import json
import re
from dataclasses import asdict

import pytest
from oracle import fuzz
from oracle.record import data_folder
from servers.counting import CountingServer

REMOTE = r"(?=[a-z][a-z0-9-]*\.(tar|jsonl|parquet|arrow|mds|npy|bin|idx|csv)$)"
"""Matches the names of files of the data folder that are read over HTTP."""


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Read every second leg of a trial from a server of the data folder."""
    plain = fuzz.spec_of

    def spec_of(trial, leg):
        spec = plain(trial, leg)
        if next(number for number, each in enumerate(trial.legs) if each is leg) % 2:
            rule = {"from": REMOTE, "to": f"{server.url}/"}
            spec["rewrite"] = [rule, *spec.get("rewrite", [])]
            spec["cache"] = {"dir": str(tmp_path / "copies"), "size": "120kB"}
        return spec

    monkeypatch.setattr(fuzz, "spec_of", spec_of)
    with data_folder() as folder, CountingServer(folder) as server:
        yield server


def check(server, seeds):
    found = fuzz.run(seeds)
    assert not found["failures"], "see what was printed above"
    assert found["counts"]["checked"] >= 0.6 * len(seeds), found["counts"]
    assert server.fetched


FEATURES = {
    "join": '"join"',
    "lookup": '"lookup"',
    "fetch": '"fetch"',
    "skipped errors": '"errors"',
    "threads": '"threads": true',
    "reshuffle": '"reshuffle": true',
    "costs": '"(cost|pack)"',
    "tokens": '"tokens": {',
}
"""What the JSON of a trial has."""


@pytest.fixture(scope="module")
def drawn():
    """The JSON of some trials, by seed."""
    return {seed: json.dumps(asdict(fuzz.draw_trial(seed))) for seed in range(700, 860)}


@pytest.mark.parametrize("feature", FEATURES)
def test_shards_from_a_server_through_a_small_cache_give_what_the_model_gives(served, drawn, feature):
    seeds = [seed for seed, trial in drawn.items() if re.search(FEATURES[feature], trial)]
    check(served, seeds[:2])


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(2000, 2600, 100))
def test_many_specs_over_http_give_what_the_model_gives(served, first):
    check(served, range(first, first + 100))
