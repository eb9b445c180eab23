"""`python -m benchmarks`: it runs, all contenders read the samples of the row, and the page has the figures."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from speed import mostly_long

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.contenders import CONTENDERS  # noqa: E402 - as the command finds it
from benchmarks.places import served  # noqa: E402
from benchmarks.report import machine, rate_table, ratio, write_page  # noqa: E402
from benchmarks.rows import BATCH, BATCHED, ROWS, SPEC, TARGETS, WHY, Target  # noqa: E402
from benchmarks.samples import COLLECTIONS, make_data  # noqa: E402
from benchmarks.tables import Asked, Table  # noqa: E402

HERE = [name for name, row in ROWS.items() if not row.workers and not row.place]
HUNDREDS = ("50 sources", "500 sources", "1000 sources", "100 times")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    make_data(folder, 0.03, [name for name in COLLECTIONS if name != "jpg400"])
    return folder


def readers(row):
    for name, contender in CONTENDERS.items():
        if (
            row in contender.rows
            and contender.package in ("", "webdataset")
            and not any(many in name for many in HUNDREDS)
        ):
            yield name, contender.rows[row]


def expect_samples(row, data):
    for name, read in readers(row):
        found = list(islice(read(ROWS[row], data), 3))
        if "limit" not in name:
            assert found == [BATCH if ROWS[row].kind in BATCHED else 1] * 3, name


@pytest.fixture(autouse=True)
def _torch_threads():
    """Some contenders read with one thread of torch."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("row", mostly_long(HERE, HERE[:2]))
def test_all_contenders_run_the_rows_without_workers(data, row):
    assert {SPEC, "wdspec, 1 source"} & {name for name, _ in readers(row)}
    expect_samples(row, data)


def test_all_contenders_read_from_a_distant_server_and_from_a_cache(data, monkeypatch):
    with served("http", data, "jpg40") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        expect_samples("http-jpg", data)
        expect_samples("cached-jpg", data)


@pytest.mark.long
def test_all_contenders_read_from_an_object_store(data, monkeypatch):
    with served("s3", data, "jpg40") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name, read in readers("s3-jpg"):
            assert next(read(ROWS["s3-jpg"], data)) > 0, name


def test_targets_name_existing_rows_and_contenders():
    for target in TARGETS:
        assert target.row in CONTENDERS[target.who].rows
        assert (target.than_row or target.row) in CONTENDERS[target.than].rows
    assert WHY.keys() <= {(target.row, target.than) for target in TARGETS}


def test_a_quick_run_prints_tables_and_updates_page_and_figures(tmp_path):
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    before = {"text-0": {"webdataset": [run_of(100)]}}
    figures.write_text(json.dumps({"rates": before, "tables": {}}))
    asked = ["--rows", "raw-text", "draws", "--contenders", "wdspec, a spec", "limit: cat"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", *asked, "--json", figures, "--page", page],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert [line.split(" |")[0] for line in lines[2:4]] == ["| wdspec, a spec", "| limit: cat"]
    assert all(line in page.read_text() for line in lines)
    assert "<svg" in page.with_suffix(".svg").read_text()
    found = json.loads(figures.read_text())
    assert list(found["rates"]) == ["raw-text", "text-0"]
    assert found["rates"]["text-0"] == before["text-0"]
    assert f" {machine().partition(' (')[0]}" in page.read_text()


def run_of(rate):
    return {
        "samples_per_second": rate,
        "processor_us_per_sample": 1e6 / rate,
        "first_item_seconds": 0.1,
        "memory_mib": 100.0,
    }


def test_a_failing_contender_is_in_the_table_and_ratios_use_medians(tmp_path):
    found = {
        "wdspec, a spec": [run_of(900), run_of(1000), run_of(5000)],
        "webdataset": [run_of(100), run_of(50), run_of(200)],
        "litdata, converted": [{"error": "no module"}],
        "limit: cat": [run_of(10_000)],
    }
    ours, _, failed, _ = rate_table("raw-text", found).markdown()[4:]
    assert ours.startswith("| wdspec, a spec | 1,000 | -10% … +400% | 10x | 0.1 | 1,000.0 | 10x |")
    assert failed.startswith("| litdata, converted | no module |")
    write_page(
        tmp_path / "page.md",
        {"rates": {"raw-text": found}, "tables": {}, "machine": "a machine"},
    )
    text = (tmp_path / "page.md").read_text()
    assert "| raw-text: wdspec, a spec by webdataset | ≥ 18x | 10x | **not met** |" in text


def test_a_two_core_target_uses_shared_processor_time():
    rates = {"text-0": {SPEC: [run_of(1000)]}, "text-2": {SPEC: [run_of(900)]}}
    asked = ratio(Target("text-2", SPEC, 1.6, SPEC, "text-0", cores=2), rates)
    assert asked.found == pytest.approx(1.8)
    assert asked.met
    assert ratio(Target("text-2", SPEC, 1.6, "webdataset"), rates) is None


def test_tables_survive_a_json_round_trip():
    table = Table("title", ["", "s"], [["a", "1"]], [Asked("a", 1.0, 2.0, False, " s")])
    assert Table.of_json(json.loads(json.dumps(vars(table), default=vars))) == table
    assert table.asked[0].cells() == ["a", "≤ 2 s", "1 s", "met"]
