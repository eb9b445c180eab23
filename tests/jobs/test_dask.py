"""The same job on a real Dask cluster gives the same bytes; its failures come back by name."""

from __future__ import annotations

import json
import os
import sys

import pytest
from click.testing import CliRunner
from offlinejobs import write_job
from servers.dask_cluster import dask_cluster

from wdspec.cli.check import check
from wdspec.cli.process import process


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A scheduler and two workers, started in the folder of the job; gives its address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with dask_cluster(tmp_path) as address:
        yield address


def run(address, *arguments, code=0):
    call = [*arguments, "--engine", "dask", "--scheduler", address, "--format", "json"]
    result = CliRunner().invoke(process, call)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_cluster_writes_what_this_machine_writes(cluster, tmp_path):
    file = write_job(tmp_path, map="functions:double")
    assert CliRunner().invoke(process, [file, "--jobs", "0", "--output", "here"]).exit_code == 0
    assert len(run(cluster, file, "--output", "there")["done"]) == 4
    for name in sorted(os.listdir("here")):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert len(run(cluster, file, "--output", "there")["there"]) == 4

    failed = run(cluster, file, "--set", "map=functions:thirteen", "--output", "bad", code=1)["failed"]
    assert [each["url"] for each in failed] == ["in/a-001.tar"]
    assert "thirteen brings bad luck" in failed[0]["cause"]
    assert sorted(os.listdir("bad")) == ["a-000.tar", "a-002.tar", "a-003.tar"]

    # On the same cluster, which takes seconds to start: a check finds there what it finds here.
    shard = tmp_path / "in" / "a-002.tar"
    shard.write_bytes(shard.read_bytes()[:3000])
    here = CliRunner().invoke(
        check, [file, "--all", "--format", "json", "--jobs", "0"], standalone_mode=False
    )
    call = [file, "--all", "--format", "json", "--engine", "dask", "--scheduler", cluster]
    there = CliRunner().invoke(check, call, standalone_mode=False)
    assert here.return_value == there.return_value == 1
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert "D107" in [each["code"] for each in json.loads(there.stdout)["problems"]]


def test_where_no_scheduler_answers_it_says_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("wdspec.jobs.engine.PATIENCE", "1s")
    result = CliRunner().invoke(process, ["job.yaml", "--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "dask scheduler" in str(result.exception)
