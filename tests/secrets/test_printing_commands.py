"""No command that prints of a spec shows a secret of it, however its file writes it."""

import itertools
import json
import os
import time
from unittest import mock

import pytest
import yaml
from canaries import PLACES, Collected, located, tar, variables
from servers.echo import EchoServer

import wdspec
from wdspec.base.redaction import mask, masked_line
from wdspec.cli.main import GROUPS
from wdspec.jobs.process import output_of
from wdspec.spec.language.locations import OutputOptions
from wdspec.urls.urls import ShardUrl

CANARY = "CnQ7zXk93bTd"
COMMANDS = [
    "validate SPEC",
    "validate SPEC --format sarif",
    "fmt --diff SPEC",
    "fmt SPEC --check",
    "resolve SPEC",
    "config SPEC",
    "find host SPEC",
    "find http* SPEC --format json",
    "config SPEC --format json --origin",
    "explain SPEC --slots 4",
    "price SPEC --prices own/prices.yaml",
    "explain SPEC --format json",
    "simulate SPEC",
    "diff SPEC OTHER",
    "diff SPEC OTHER --format json",
    "lock SPEC -o made.lock.json",
    "croissant SPEC",
    "head SPEC -n 1",
    "batch SPEC --step 1",
    "check SPEC --jobs 0",
    "check SPEC --against OTHER --same-keys --jobs 0",
    "dedup SPEC --jobs 0 -o lists",
    "check SPEC --jobs 0 --report report.json",
    "preview SPEC -o page.html -n 1 --samples 2",
    "doctor SPEC",
    "convert SPEC",
    "state own/state.json",
    "cache ls SPEC",
    "cache verify SPEC",
    "cache prefetch SPEC --jobs 0",
    "validate SPEC --format junit",
    "validate SPEC --format github",
    "validate SPEC --format json",
    "validate SPEC --set batch=x",
    "lock SPEC --check -o made.lock.json",
    "lock SPEC --hash -o hashed.lock.json",
    "check SPEC --jobs 0 --against OTHER",
    "stats SPEC --jobs 0",
    "process SPEC --jobs 0 --output out",
    "bench SPEC --seconds 0.1 --workers 0",
    "cache prune SPEC --size 0",
    "ls URL",
    "split URL -o part-%d.tar --maxcount 1",
    "cat URL -o whole.tar",
    "sort URL -o sorted.tar",
    "create own/SPEC.recipe -o new-%d.tar --shards 1",
]
SLOW = [command for command in COMMANDS if command.startswith("bench")]
WITHOUT_SPEC = {"demo", "report", "rule", "schema"}
"""Commands that read no spec; records, which `report` reads, are masked when they are written."""
WRITTEN = {
    "json": json.dumps,
    "lines": lambda spec: json.dumps(spec, indent=2).replace("//", "\\/\\/"),
    "single": lambda spec: yaml.safe_dump(spec, default_style="'", width=1000),
    "folded": lambda spec: yaml.safe_dump(spec, width=20),
    "double": lambda spec: yaml.safe_dump(spec, default_style='"', width=20),
}
SPEC_PLACES = [place for place in PLACES if place not in ("netrc", "proxy")]


def written(own, place, host, form, end):
    """The two specs that differ in a shard, and have a mistake on the line of the secret and after it."""
    for name, shard in (("SPEC", "a.tar"), ("OTHER", "b.tar")):
        url = located(place, CANARY, host, end).replace("a.tar", shard)
        spec = {
            **variables(place, CANARY)[0],
            "epoch": {"batches": 2},
            "batch": 2,
            "errors": {"retry": 0.1},
            "cache": str(own.parent / "copies"),
            "dataset": [{"shuffle": 0, "shards": [url, url], "weight": 1}],
        }
        if place == "rewrite":
            spec["rewrite"] = [{"from": "gs://bucket/", "to": f"http://user:{CANARY}@{host}/"}]
        (own / f"{name}.json").write_text(WRITTEN[form](spec))
    with mock.patch.dict(os.environ, variables(place, CANARY)[1]):
        (own / "state.json").write_text(json.dumps(wdspec.loader(spec, num_workers=0).state_dict()))
    (own / "SPEC.recipe").write_text(f"{url}\n")
    (own / "prices.yaml").write_text("stores: {'http://': {bytes: 1 per GB}}\n")
    return url


def leaks(folder, caplog, place, form, end, commands):
    seen = Collected(folder, caplog)
    own = folder / "own"
    own.mkdir()
    found = []
    environment = variables(place, CANARY)[1]
    with EchoServer(tar(4)) as server, caplog.at_level("DEBUG", logger="wdspec"):
        url = written(own, place, server.host, form, end)
        for command in commands:
            if "lock SPEC --check" in command and not (folder / "made.lock.json").exists():
                continue
            named = {"SPEC": "own/SPEC.json", "OTHER": "own/OTHER.json", "URL": url}
            words = [named.get(word, word) for word in command.split()]
            seen.command(*words, **environment)
            late = time.monotonic() + 120
            while (left := seen.leaks(CANARY)) and all("/.wdspec/parts/" in each for each in left):
                assert time.monotonic() < late, left  # an answer that is given up goes away soon
                time.sleep(0.01)
            found += [(command, leak) for leak in left]
            wrong = [text for text in seen.texts if "Usage:" in text]
            assert not wrong, wrong  # it did not run, so it could not leak
            seen.texts.clear()
    return found


def test_every_command_that_reads_is_in_the_list():
    listed = {command.split()[0] for command in COMMANDS}
    assert listed | WITHOUT_SPEC == {*itertools.chain(*GROUPS.values())}


FORMS = list(WRITTEN)
CASES = [(place, form, end) for end in ("shard", "403/plain") for place in SPEC_PLACES for form in FORMS]


@pytest.mark.parametrize(
    ("place", "form", "end"),
    [
        ("slash", "json", "shard"),
        ("bare", "lines", "403/plain"),
        ("quoted", "json", "shard"),
        ("vars", "json", "403/plain"),
    ],
    ids=str,
)
def test_no_command_shows_a_secret(place, form, end, tmp_path, caplog):
    fast = [command for command in COMMANDS if command not in SLOW]
    assert leaks(tmp_path, caplog, place, form, end, fast) == []


@pytest.mark.long
@pytest.mark.parametrize(("place", "form", "end"), CASES, ids=str)
def test_no_command_shows_a_secret_in_any_place(place, form, end, tmp_path, caplog):
    assert leaks(tmp_path, caplog, place, form, end, COMMANDS) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [place for place in SPEC_PLACES if place != "environment variable"])
def test_no_excerpt_of_a_file_shows_a_secret(place, form, tmp_path):
    """Each line of the file with the caret at it, and in a difference to another text."""
    written(tmp_path, place, "127.0.0.1:1", form, "shard")
    text = (tmp_path / "SPEC.json").read_text()
    lines = text.split("\n")
    assert CANARY in text.replace("\\\n", "")
    assert CANARY not in mask(text)
    assert [len(line) for line in mask(text).split("\n")] == list(map(len, lines))
    for number, line in enumerate(lines):
        shown = masked_line(tuple(lines), number)
        assert len(shown) == len(line)
        assert CANARY not in shown


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://host/d/a.tar#sig=SECRET", "a.tar"),
        ("http://host/a.tar?sig=SECRET#x", "a.tar"),
        ("s3://bucket/a#1.tar", "a#1.tar"),
        ("d/a#1.tar", "a#1.tar"),
    ],
)
def test_the_name_of_an_output_has_no_part_of_a_url_that_may_be_a_secret(url, name):
    assert output_of(OutputOptions(dir="/out"), ShardUrl(url, "")) == f"/out/{name}"
