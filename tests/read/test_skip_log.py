"""`errors: {log: …}`: one line of JSON for every skip."""

from __future__ import annotations

import json
import multiprocessing

import pytest
from reading import corrupt, names, reader_of
from shardmaking import write_source

from wdspec.base.errors import UsageError
from wdspec.read.error_budget import append_line
from wdspec.spec.load import load


def spec_of(shards, log):
    return {
        "dataset": [{"name": "pages", "shards": shards, "order": "sequential", "shuffle": 0}],
        "errors": {"skip": True, "log": str(log)},
        "batch": 10,
    }


def test_a_skip_is_logged_with_its_source_cause_and_place(tmp_path):
    shards = write_source(tmp_path, "a", shards=2)
    corrupt(tmp_path / "a-000.tar", sample=3)
    log = tmp_path / "new folder" / "skips.jsonl"
    first = reader_of(spec_of(shards, log)).batch(0)
    assert names(first)[:4] == ["a0000000", "a0000001", "a0010000", "a0010001"]
    [line] = log.read_text().splitlines()
    record = json.loads(line)
    assert record["source"] == "pages"
    assert (record["code"], record["cause"]) == ("D108", "ShardError")
    assert record["url"] == str(tmp_path / "a-000.tar")
    assert record["offset"] == 3 * 4 * 512
    assert "header" in record["message"]


def test_a_skip_in_a_user_function_is_logged_with_its_place_too(tmp_path, caplog):
    shards, log = write_source(tmp_path, "a", shards=1), tmp_path / "skips.jsonl"
    spec = {**spec_of(shards, log), "map": "picks:fails_on_some"}
    spec["errors"]["skip"] = ["map"]
    reader_of(spec).batch(0)
    first = json.loads(log.read_text().splitlines()[0])
    assert first == {
        "source": "pages",
        "code": "D203",
        "cause": "KeyError",
        "message": "KeyError: 'no'",
        "url": str(tmp_path / "a-000.tar"),
        "key": "a0000003",
    }
    assert "url " + first["url"] in caplog.text
    assert "key a0000003" in caplog.text


def test_secrets_are_not_logged(tmp_path):
    log = tmp_path / "skips.jsonl"
    good = write_source(tmp_path, "a", shards=1)
    bad = "pipe:curl -f -s 'http://u:hush@127.0.0.1:1/x?token=hush' -H 'Authorization: Bearer hushhushhush'"
    reader_of(spec_of([bad, good], log)).batch(0)
    assert "hush" not in log.read_text()
    assert "127.0.0.1:1/x" in log.read_text()


def _write(path, worker):
    for number in range(50):
        append_line(str(path), {"worker": worker, "number": number, "text": "x" * 20_000})


def test_lines_of_several_processes_are_never_mixed(tmp_path):
    path = tmp_path / "skips.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write, args=(path, worker)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(record["worker"], record["number"]) for record in records} == {
        (worker, number) for worker in range(4) for number in range(50)
    }


def test_a_file_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "bad.tar").write_bytes(b"x" * 512)
    reader = reader_of(spec_of([str(tmp_path / "bad.tar"), write_source(tmp_path, "a", shards=1)], tmp_path))
    with pytest.raises(UsageError, match=r"skips cannot be written to `.*` \(`errors.log`\): Is a directory"):
        reader.batch(0)


def test_the_path_is_relative_to_the_spec(tmp_path):
    (tmp_path / "spec.yaml").write_text(
        "dataset: [{shards: a.tar, errors: {log: own.jsonl}}]\nerrors: {skip: true, log: logs/skips.jsonl}\n"
    )
    spec = load(tmp_path / "spec.yaml")
    assert spec.errors.log == str(tmp_path / "logs/skips.jsonl")
    assert spec.sources[0].errors.log == str(tmp_path / "own.jsonl")
