"""`python -m benchmarks`: it runs, everybody reads what the row says, and the page has what was found."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.contenders import BATCH, CONTENDERS, ROWS  # noqa: E402 - as the command finds it
from benchmarks.report import table, write_page  # noqa: E402
from benchmarks.samples import make_data  # noqa: E402


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    make_data(folder, 0.03)
    return folder


@pytest.mark.parametrize(
    "row", [name for name, row in ROWS.items() if not row.workers and row.data != "jpg400"]
)
def test_everybody_reads_the_rows_without_workers(data, row):
    for name, contender in CONTENDERS.items():
        if row in contender.rows and contender.package in ("", "webdataset"):
            counts = contender.rows[row](ROWS[row], data)
            found = next(counts)
            if "limit" not in name:
                assert found == (1 if ROWS[row].kind == "raw" else BATCH), name


def test_a_quick_run_prints_a_table_and_writes_the_page(tmp_path):
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    asked = ["--rows", "raw-text", "--contenders", "wdspec, a spec", "limit: cat"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", *asked, "--json", figures, "--page", page],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert [line.split(" |")[0] for line in lines[2:]] == ["| wdspec, a spec", "| limit: cat"]
    assert all(line in page.read_text() for line in lines)
    assert "<svg" in page.with_suffix(".svg").read_text()
    assert "samples_per_second" in figures.read_text()


def test_a_contender_that_fails_is_told_in_the_table_and_ratios_are_of_medians(tmp_path):
    def run(rate):
        return {
            "samples_per_second": rate,
            "processor_us_per_sample": 1e6 / rate,
            "first_item_seconds": 0.1,
            "memory_mib": 100.0,
        }

    found = {
        "wdspec, a spec": [run(900), run(1000), run(5000)],
        "webdataset": [run(100), run(50), run(200)],
        "litdata, converted": [{"error": "no module"}],
        "limit: cat": [run(10_000)],
    }
    ours, _, failed, _ = table("raw-text", found)[3:]
    assert ours.startswith("| wdspec, a spec | 1,000 | -10% … +400% | 10.0x | 0.1 | 1,000.0 | 10.0x |")
    assert failed.startswith("| litdata, converted | no module |")
    write_page(tmp_path / "page.md", {"raw-text": found}, {"others": "do not fit"})
    assert "others, which do not fit" in (tmp_path / "page.md").read_text()
