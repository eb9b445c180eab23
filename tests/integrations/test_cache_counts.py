"""Counts of the cache in `stats()` and as metrics, fields of log records, and several logs of stats."""

import json
import logging
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from servers.counting import CountingServer
from servers.fixtures import missing
from shardmaking import write_source

import wdspec
from wdspec.cache.index import Index

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served(tmp_path):
    write_source(tmp_path / "served", "a", 12, 10)
    with CountingServer(tmp_path / "served") as server:
        yield server


def spec_of(served, **cache):
    names = sorted(path.name for path in served.folder.rglob("*.tar"))
    return {
        "dataset": [{"name": "a", "shards": [f"{served.url}/{name}" for name in names], "interleave": 1}],
        "batch": {"size": 10},
        "cache": cache,
        "epoch": {"batches": 12},
    }


def stats_of(spec, workers=0):
    with wdspec.loader(spec, num_workers=workers) as loader:
        for _ in loader:
            pass
    return loader.stats()  # a worker that reads ahead would still change the cache


@pytest.mark.parametrize("workers", [0, 1])
def test_evictions_and_bytes_are_counted_in_each_process(served, tmp_path, workers):
    size = next(served.folder.rglob("*.tar")).stat().st_size
    stats = stats_of(spec_of(served, dir=str(tmp_path / "c"), size=7 * size), workers)
    assert stats.cache_evictions > 0
    assert 0 < stats.cache_used <= 7 * size
    assert stats.cache_used == Index(str(tmp_path / "c")).used
    assert stats.flat()["cache_evictions"] == stats.cache_evictions


def test_shards_for_which_there_is_no_room_are_bypasses(served, tmp_path):
    for size in (0, 2000):
        stats = stats_of(spec_of(served, dir=str(tmp_path / "c"), size=size))
        assert stats.cache_bypasses >= 4
        assert stats.cache_evictions == 0


def test_without_a_cache_there_is_nothing_to_count(served):
    stats = stats_of({**spec_of(served), "cache": False})
    assert stats.cache_used is None
    assert not any(name.startswith("cache_used") for name in stats.flat())


def test_a_skip_is_logged_with_fields_for_json_logs(served, caplog, tmp_path):
    url = f"{served.url}/none.tar"
    spec = spec_of(served, dir=str(tmp_path / "c"))
    spec["dataset"][0]["shards"].append(url)
    with caplog.at_level(logging.WARNING, "wdspec"):
        stats_of({**spec, "errors": "skip"})
    [record, *_] = [each for each in caplog.records if each.getMessage().startswith("skipped")]
    assert (record.source, record.url, record.code) == ("a", url, "D101")


def test_a_damaged_field_is_logged_with_its_key(tmp_path, caplog):
    shards = write_source(tmp_path, "a", 1, 3)
    spec = {"dataset": [{"name": "a", "shards": shards, "decode": {"txt": "json"}}], "errors": "skip"}
    with caplog.at_level(logging.WARNING, "wdspec"), pytest.raises(wdspec.WdspecError):
        list(wdspec.compile({**spec, "epoch": "pass", "errors": {"max_count": 2}}))
    records = [each for each in caplog.records if hasattr(each, "key")]
    assert {record.code for record in records} == {"D202"}
    assert all(record.key and record.url.endswith(".tar") for record in records)


def test_stats_can_be_logged_to_files_and_the_logger_at_once(tmp_path, caplog):
    shards = write_source(tmp_path, "a", 1, 10)
    with wdspec.loader({"dataset": [{"shards": shards}], "batch": {"size": 5}}, num_workers=0) as loader:
        for file in ("one.jsonl", "two.jsonl"):
            loader.log_stats(str(tmp_path / file), every=1e-9)
        with caplog.at_level(logging.INFO, "wdspec"):
            loader.log_stats(every=1e-9)
            next(iter(loader))
    assert "batches, " in caplog.text
    for file in ("one.jsonl", "two.jsonl"):
        assert json.loads((tmp_path / file).read_text().splitlines()[0])["batches"] == 0


def test_prometheus_accepts_the_alert_rules():
    if shutil.which("promtool") is None:
        missing("promtool", "apt-get install prometheus")
    rules = ROOT / "examples" / "telemetry" / "alerts.yaml"
    done = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 rules found" in done.stdout


def test_the_alert_rules_ask_only_for_metrics_of_the_page():
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    names = set(re.findall(r"wdspec_\w+_total", (ROOT / "examples/telemetry/alerts.yaml").read_text()))
    assert len(names) == 8
    assert all(f"`{name}`" in page for name in names)
