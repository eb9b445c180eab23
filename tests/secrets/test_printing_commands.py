"""No command that prints of a spec shows a secret of it, however its file writes it."""

import json
import time

import pytest
import yaml
from canaries import PLACES, Collected, located, tar
from servers.echo import EchoServer

import wdspec
from wdspec.base.redaction import mask, masked_line

CANARY = "CnQ7zXk93bTd"
COMMANDS = [
    "validate SPEC",
    "validate SPEC --format sarif",
    "fmt --diff SPEC",
    "fmt SPEC --check",
    "resolve SPEC",
    "explain SPEC --slots 4",
    "explain SPEC --format json",
    "simulate SPEC",
    "diff SPEC OTHER",
    "diff SPEC OTHER --format json",
    "lock SPEC -o made.lock.json",
    "croissant SPEC",
    "head SPEC -n 1",
    "batch SPEC --step 1",
    "check SPEC --jobs 0",
    "check SPEC --jobs 0 --report report.json",
    "preview SPEC -o page.html -n 1 --samples 2",
    "doctor SPEC",
    "convert SPEC",
    "state own/state.json",
    "cache ls SPEC",
]
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
            "epoch": {"batches": 2},
            "batch": 2,
            "errors": {"retry": 0.1},
            "cache": str(own.parent / "copies"),
            "dataset": [{"shuffle": 0, "shards": [url, url], "weight": 1}],
        }
        if place == "rewrite":
            spec["rewrite"] = [{"from": "gs://bucket/", "to": f"http://user:{CANARY}@{host}/"}]
        (own / f"{name}.json").write_text(WRITTEN[form](spec))
    (own / "state.json").write_text(json.dumps(wdspec.loader(spec, num_workers=0).state_dict()))


def leaks(folder, caplog, place, form, end):
    seen = Collected(folder, caplog)
    own = folder / "own"
    own.mkdir()
    found = []
    with EchoServer(tar(4)) as server, caplog.at_level("DEBUG", logger="wdspec"):
        written(own, place, server.host, form, end)
        for command in COMMANDS:
            words = command.replace("SPEC", "own/SPEC.json").replace("OTHER", "own/OTHER.json").split()
            seen.command(*words)
            late = time.monotonic() + 5
            while (left := seen.leaks(CANARY)) and all("/.wdspec/parts/" in each for each in left):
                assert time.monotonic() < late, left  # an answer that is given up goes away soon
                time.sleep(0.01)
            found += [(command, leak) for leak in left]
            assert not any("Usage:" in text for text in seen.texts), seen.texts  # what could not leak
            seen.texts.clear()
    return found


FORMS = list(WRITTEN)
CASES = [(place, form, end) for end in ("shard", "403/plain") for place in SPEC_PLACES for form in FORMS]


@pytest.mark.parametrize(
    ("place", "form", "end"),
    [("slash", "json", "shard"), ("bare", "lines", "403/plain"), ("quoted", "json", "shard")],
    ids=str,
)
def test_no_command_shows_a_secret(place, form, end, tmp_path, caplog):
    assert leaks(tmp_path, caplog, place, form, end) == []


@pytest.mark.long
@pytest.mark.parametrize(("place", "form", "end"), CASES, ids=str)
def test_no_command_shows_a_secret_in_any_place(place, form, end, tmp_path, caplog):
    assert leaks(tmp_path, caplog, place, form, end) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", SPEC_PLACES)
def test_no_excerpt_of_a_file_shows_a_secret(place, form, tmp_path):
    """Each line of the file with the caret at it, and in a difference to another text."""
    written(tmp_path, place, "127.0.0.1:1", form, "shard")
    text = (tmp_path / "SPEC.json").read_text()
    lines = text.split("\n")
    assert CANARY in text.replace("\\\n", "")
    assert CANARY not in mask(text)
    assert [len(line) for line in mask(text).split("\n")] == list(map(len, lines))
    for number, line in enumerate(lines):
        shown = masked_line(lines, number)
        assert len(shown) == len(line)
        assert CANARY not in shown
