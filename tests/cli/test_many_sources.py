"""Reports about very many sources: the largest ones, those in trouble, and how many others there are; JSON has all."""

import json
import re

import pytest
from commandline import within
from shardmaking import write_source

from wdspec.base import amounts
from wdspec.cli.output import LARGEST

LARGE = ("s040", "s050")


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["name,shards,weight"]
    for number in range(100):
        name = f"s{number:03}"
        write_source(".", name, shards=1, samples=8 if name in LARGE else 2)
        lines.append(f"{name},{name}-000.tar,{10 if name in LARGE else 1}")
    (tmp_path / "sources.csv").write_text("\n".join(lines))
    (tmp_path / "spec.yaml").write_text('dataset: "@sources.csv"\nbatch: 8\nepoch: 4800\n')
    return "spec.yaml"


def sources_in(table):
    return [line.split()[0] for line in table.splitlines() if line.startswith("s0")]


@pytest.mark.parametrize("command", ["explain", "simulate", "stats"])
def test_a_table_shows_the_largest_sources_and_how_many_more_there_are(spec, command):
    text, _ = within(command, spec)
    tables = [block for block in text.split("\n\n") if "more, in --format json" in block]
    assert tables
    for table in tables:
        shown = sources_in(table)
        assert {*LARGE} <= {*shown}
        assert len(shown) == LARGEST
        rows = 200 if "txt" in table else 100  # a row for each of the two fields
        assert table.splitlines()[-1].startswith(f"… and {rows - LARGEST} more")


def test_a_source_with_a_warning_is_shown_among_the_largest(spec, tmp_path):
    (tmp_path / "s070-000.tar").unlink()
    text, _ = within("explain", spec, code=1)
    assert "W501" in text
    assert "s070" in sources_in(next(block for block in text.split("\n\n") if "share" in block))


def test_the_first_shards_are_those_of_the_largest_sources(spec):
    text, _ = within("explain", spec)
    slots = next(block for block in text.split("\n\n") if block.startswith("rank"))
    assert len(slots.splitlines()) == 1 + LARGEST


def test_a_page_shows_the_largest_sources_and_how_many_more_there_are(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(amounts, "LARGEST", 3)  # each has three charts
    for package in ("jinja2", "matplotlib"):
        pytest.importorskip(package)
    within("preview", spec, "-n", "1", "--samples", "1")
    page = (tmp_path / "preview.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'<a href="#source-1-\d+">(\w+)</a>', page))
    assert {*LARGE} <= shown
    assert len(shown) == 3
    assert len(re.findall(r'<section aria-labelledby="source-', page)) == 3
    assert "and 97 more sources" in page


def test_json_has_all_sources(spec):
    text, _ = within("explain", spec, "--format", "json")
    assert len(json.loads(text)["sources"]) == 100


def test_explain_says_what_a_worker_needs_to_read_them(spec):
    text, _ = within("explain", spec)
    [memory] = [line for line in text.splitlines() if line.startswith("memory")]
    assert "(100 are read in turn; of local files and copies, at most about 80 are open)" in memory
    assert "26.2 MB in the buffers of its open shards" in memory


def test_explain_says_what_is_requested_from_stores(tmp_path):
    sources = [{"name": f"s{n:03d}", "shards": f"http://h.example/{n}-{{0..1}}.tar"} for n in range(1000)]
    path = tmp_path / "remote.yaml"
    path.write_text(json.dumps({"dataset": sources, "batch": 8}), encoding="utf-8")
    text, _ = within("explain", str(path))
    [memory] = [line for line in text.splitlines() if line.startswith("memory")]
    assert "stores are asked for 67.1 kB or more at a time, over about 20 connections per host" in memory
    assert "134 MB in the buffers of its open shards" in memory
