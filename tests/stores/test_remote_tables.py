"""Tables from a real web server: only the needed ranges are requested, and everything else is as from a disk."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wdspec
from wdspec.testing import assert_resumable

ROWS = 3000


@pytest.fixture(scope="module")
def table(nginx):
    drawn = random.Random(0)
    table = pa.table(
        {
            "text": [drawn.randbytes(200).hex() for _ in range(ROWS)],
            "big": [drawn.randbytes(4000) for _ in range(ROWS)],
            "label": range(ROWS),
        }
    )
    for name in ("a-0", "a-1"):
        pq.write_table(table, nginx.root / f"{name}.parquet", row_group_size=500)
        (nginx.root / "plain").mkdir(exist_ok=True)
        pq.write_table(table, nginx.root / "plain" / f"{name}.parquet", row_group_size=500)
    return table


def spec_of(server, place="", **source):
    shards = f"{server.url}/{place}a-{{0..1}}.parquet"
    return {
        "dataset": [{"name": "a", "shards": shards, "order": "sequential", "shuffle": 0, **source}],
        "epoch": 2 * ROWS,
    }


@pytest.mark.parametrize("place", ["", "plain/"])
@pytest.mark.parametrize("largest", [64 * 1024 * 1024, 1024])
def test_rows_match_the_file(nginx, table, place, largest, monkeypatch):
    """`plain/` is served without ranges; with a small `LARGEST`, row groups are read bit by bit."""
    monkeypatch.setattr("wdspec.formats.parquet.LARGEST", largest)
    found = list(wdspec.compile(spec_of(nginx, place, extensions="text label")))
    assert [sample["text"] for sample in found] == 2 * table["text"].to_pylist()
    assert [sample["label"] for sample in found] == 2 * list(range(ROWS))


def test_only_the_ranges_of_the_needed_columns_are_requested(nginx, table):
    before = len(nginx.requests())
    with wdspec.loader(spec_of(nginx, extensions="label"), num_workers=0) as loader:
        assert len(list(loader)) == 2 * ROWS
        read = loader.stats().sources["a"].bytes
    size = (nginx.root / "a-0.parquet").stat().st_size
    assert read < 0.05 * 2 * size
    assert len(nginx.requests()) - before <= 2 * 9


def test_rows_can_come_from_a_cache(nginx, table, tmp_path):
    spec = {**spec_of(nginx), "cache": str(tmp_path)}
    for _ in range(2):
        assert [each["label"] for each in wdspec.compile(spec)] == 2 * list(range(ROWS))
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_a_run_resumes_within_a_remote_row_group(nginx, table):
    spec = {**spec_of(nginx, extensions="label"), "batch": 100, "epoch": 1200}
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0))
