"""Every engine keeps one contract: equal bytes, whole shards or none, failures by name, killed workers, resume."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import pytest
from click.testing import CliRunner
from offlinejobs import write_job
from servers.dask_cluster import dask_cluster
from shardmaking import write_source

from wdspec.cli.cache import cache
from wdspec.cli.check import check
from wdspec.cli.dedup import dedup
from wdspec.cli.lock import lock
from wdspec.cli.main import main
from wdspec.cli.process import process
from wdspec.cli.stats import stats
from wdspec.jobs import torchrun
from wdspec.jobs.process import ProcessJob

SHARDS = [f"a-00{number}.tar" for number in range(4)]
MORE = """
    def deadly_once(sample):
        mark = pathlib.Path(__file__).parent / "killed-once"
        if sample["cls"] == 13 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        return double(sample)

    def bad(sample):
        if sample["cls"] == 33:
            os.kill(os.getpid(), 9)
        return double(thirteen(sample))

    def hold_rank_1(sample):
        mark = pathlib.Path(__file__).parent / "held"
        while os.environ.get("RANK") == "1":
            mark.touch()
            time.sleep(0.05)
        while not mark.exists():
            time.sleep(0.05)
        return double(sample)
"""
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


@contextmanager
def ray_cluster() -> Iterator[str]:
    """The address of a cluster with one CPU on each of two nodes."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.fixture(autouse=True)
def _signal_handlers():
    """Ray installs its own."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def start_rank_1(folder, *arguments) -> BaseProcess:
    """Rank 1 in a process that is forked: a new one would import for a second."""

    def run() -> None:
        os.environ |= {"RANK": "1", "WORLD_SIZE": "2"}
        os.chdir(folder)
        main(["process", "job.yaml", *arguments])

    other = get_context("fork").Process(target=run)
    other.start()
    return other


class Place:
    """A folder with a job, and an engine to run it with."""

    def __init__(self, folder, engine):
        self.folder, self.engine = folder, engine
        self.is_ranks = engine[1].startswith("torchrun")

    def call(self, command, *arguments, code=0, engine=None):
        """The JSON that a command prints; with torchrun, another process is rank 1."""
        others = []
        if self.is_ranks and engine is None:
            others = [start_rank_1(self.folder, *self.engine)]
        with pytest.MonkeyPatch.context() as patch:
            if others:
                patch.setenv("RANK", "0")
                patch.setenv("WORLD_SIZE", "2")
            call = ["job.yaml", *arguments, *(self.engine if engine is None else engine)]
            result = CliRunner().invoke(command, [*call, "--format", "json"], standalone_mode=False)
        for other in others:
            other.join(200)
            assert other.exitcode == 0
        if isinstance(result.exception, KeyboardInterrupt) or code is None:
            return result
        assert (result.return_value or result.exit_code) == code, result.output
        return json.loads(result.stdout)

    def process(self, function, output, *arguments, **options):
        return self.call(
            process, "--set", f"map=functions:{function}", "--output", output, *arguments, **options
        )

    def shards(self, output):
        """The bytes of each shard in a folder."""
        names = [name for name in os.listdir(output) if name[0] != "."]
        return {name: (self.folder / output / name).read_bytes() for name in names}


@pytest.fixture(
    scope="module",
    params=["local", "dask", "torchrun", pytest.param("ray", marks=[pytest.mark.long, needs_ray])],
)
def place(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    write_job(folder, map="functions:double")
    with open(folder / "functions.py", "a") as file:
        file.write(textwrap.dedent(MORE))
    path = list(sys.path)
    sys.modules.pop("functions", None)
    with chdir(folder):
        if request.param == "dask":
            with dask_cluster(folder) as address:
                yield Place(folder, ["--engine", f"dask:{address}"])
        elif request.param == "ray":
            with ray_cluster() as address:
                yield Place(folder, ["--engine", f"ray:{address}"])
        elif request.param == "torchrun":
            yield Place(folder, ["--engine", f"torchrun:{folder / 'ranks'}"])
        else:
            yield Place(folder, ["--engine", "local", "--jobs", "2"])
    sys.path[:] = path
    sys.modules.pop("functions", None)


@pytest.fixture(scope="module")
def expected(place):
    """What one process writes."""
    place.process("double", "here", engine=["--jobs", "0"])
    return place.shards("here")


def test_an_engine_writes_what_one_process_writes(place, expected):
    assert len(place.process("double", "there")["done"]) == 4
    assert place.shards("there") == expected


def test_the_shard_of_a_killed_worker_is_done_again(place, expected):
    assert len(place.process("deadly_once", "again")["done"]) == 4
    assert place.shards("again") == expected


def test_failed_shards_are_reported_and_the_job_resumes(place, expected):
    failed = place.process("bad", "half", "--retries", "0", code=1)["failed"]
    causes = {each["url"]: each for each in failed}
    assert "thirteen brings bad luck" in causes["in/a-001.tar"]["cause"]
    assert "functions.py" in causes["in/a-001.tar"]["detail"]
    # Dask starts the task of a killed worker again, perhaps before the kernel has released the lock of its file.
    killed = ["the process that worked on it was killed"]
    killed += ["another writer is writing this file now"] if place.engine[1].startswith("dask") else []
    assert any(cause in causes["in/a-003.tar"]["cause"] for cause in killed)
    left = place.shards("half")
    # On Dask, a shard may be whole although its outcome was lost with the worker.
    assert (
        {*SHARDS} - {os.path.basename(url) for url in causes}
        <= {*left}
        <= {*SHARDS} - {"a-001.tar", "a-003.tar"}
    )
    assert left == {name: expected[name] for name in left}
    report = place.process("double", "half", "--changed", "keep")
    assert (len(report["there"]), len(report["done"])) == (len(left), 4 - len(left))
    assert place.shards("half") == expected


def test_ctrl_c_leaves_complete_shards_and_the_job_resumes(place, expected, monkeypatch):
    def interrupt(job, task, outcome):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProcessJob, "take", interrupt)
        place.process("slow", "stopped", code=None)
    if place.engine[1].startswith(("dask", "ray")):
        time.sleep(2)  # a task that a worker of the cluster has started may still end with its shard
    assert 1 <= len(place.shards("stopped")) <= 4
    for name in place.shards("stopped"):
        shutil.copy(place.folder / "here" / name, place.folder / "stopped" / name)
    place.process("double", "stopped", "--changed", "keep")
    assert place.shards("stopped") == expected


def test_check_and_stats_find_what_one_process_finds(place, tmp_path):
    with open("in/a-003.tar", "rb") as file:
        whole = file.read()
    try:
        (place.folder / "in" / "a-003.tar").write_bytes(whole[:3000])
        here = place.call(check, "--all", code=1, engine=["--jobs", "0"])
        assert place.call(check, "--all", code=1) == here
        assert "D107" in [each["code"] for each in here["problems"]]
    finally:
        (place.folder / "in" / "a-003.tar").write_bytes(whole)
    here = place.call(dedup, "--by", "cls", engine=["--jobs", "0"])
    assert place.call(dedup, "--by", "cls") == here
    assert here["sources"]["a"]["samples"] == 40
    place.call(stats, "-o", str(tmp_path / "here"), engine=["--jobs", "0"])
    place.call(stats, "-o", str(tmp_path / "there"))
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


def test_lock_and_prefetch_make_the_requests_of_one_process(place, tmp_path):
    local = ["--jobs", "2"]
    place.call(lock, "-o", str(tmp_path / "here"), engine=local)
    place.call(lock, "-o", str(tmp_path / "there"))
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()
    copies = [f"--set=sources.a.shards=pipe:cat {place.folder}/in/a-{{000..003}}.tar", "--set=cache=copies"]
    done = place.call(cache.commands["prefetch"], *copies)["shards"]
    assert {each["outcome"] for each in done} == {"fetched"}
    done = place.call(cache.commands["prefetch"], *copies, engine=local)["shards"]
    assert {each["outcome"] for each in done} == {"there"}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job in the working directory; gives its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_job(tmp_path, map="functions:double")
    with open(tmp_path / "functions.py", "a") as file:
        file.write(textwrap.dedent(MORE))
    sys.modules.pop("functions", None)
    yield tmp_path
    sys.modules.pop("functions", None)


def call(*arguments):
    return CliRunner().invoke(process, ["job.yaml", *arguments, "--format", "json"])


@needs_ray
def test_ray_prints_nothing_and_writes_what_one_process_writes(job, capfd):
    assert call("--jobs", "0", "--output", "here").exit_code == 0
    result = call("--engine", "ray:local", "--set", "map=functions:deadly_once", "--output", "there")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["done"]) == 4
    for name in SHARDS:
        assert (job / "there" / name).read_bytes() == (job / "here" / name).read_bytes()
    assert capfd.readouterr() == ("", "")
    assert result.stderr == ""


@pytest.mark.long
@needs_ray
def test_200_shards_equal_those_of_one_process_after_a_killed_worker(job):
    write_source(job / "in", "b", shards=200)
    spec = (job / "job.yaml").read_text()
    (job / "job.yaml").write_text(spec.replace("in/a-{000..003}.tar", "in/b-{000..199}.tar"))
    assert call("--jobs", "0", "--output", "here").exit_code == 0
    with ray_cluster() as address:
        engine = ["--engine", f"ray:{address}", "--set", "map=functions:deadly_once"]
        result = call(*engine, "--output", "there")
    assert result.exit_code == 0, result.output
    assert (job / "killed-once").exists()
    assert len(json.loads(result.stdout)["done"]) == 200
    for number in range(200):
        name = f"b-{number:03d}.tar"
        assert (job / "there" / name).read_bytes() == (job / "here" / name).read_bytes()


@pytest.mark.long
@needs_ray
def test_the_shards_of_a_lost_node_are_done_again(job):
    from ray.cluster_utils import Cluster

    assert call("--jobs", "0", "--output", "here").exit_code == 0
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        found = []
        engine = ["--engine", f"ray:{cluster.address}", "--set", "map=[functions:slow, functions:double]"]
        thread = threading.Thread(target=lambda: found.append(call(*engine, "--output", "there")))
        thread.start()
        while not os.path.exists("there/a-000.tar"):
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1)
        thread.join(120)
        assert len(json.loads(found[0].stdout)["done"]) == 4
    finally:
        cluster.shutdown()
    for name in SHARDS:
        assert (job / "there" / name).read_bytes() == (job / "here" / name).read_bytes()


def test_the_shards_of_a_lost_rank_are_done_by_the_others(job, monkeypatch):
    assert call("--jobs", "0", "--output", "here").exit_code == 0
    monkeypatch.setattr(torchrun, "SILENCE", 2.0)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    engine = ["--engine", f"torchrun:{job / 'ranks'}"]
    other = start_rank_1(job, *engine)

    def kill():
        while not (job / "held").exists():
            time.sleep(0.05)
        other.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    result = call(*engine, "--set", "map=functions:hold_rank_1", "--output", "there")
    thread.join()
    other.join()
    assert result.exit_code == 0, result.output
    for name in SHARDS:
        assert (job / "there" / name).read_bytes() == (job / "here" / name).read_bytes()
    # Its files remain. A later job does not wait for it.
    assert call(*engine, "--output", "later").exit_code == 0


def test_a_rank_without_an_answer_from_rank_0_says_what_to_check(job, monkeypatch):
    monkeypatch.setattr(torchrun, "SILENCE", 0.5)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = call("--engine", f"torchrun:{job / 'ranks'}")
    assert "rank 0 has written nothing" in str(result.exception)
    assert "all nodes share this folder" in str(result.exception)


def test_a_folder_that_cannot_be_listed_once_does_not_end_the_beats(job, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    listdir, failed = os.listdir, []

    def fail_once(path):
        if path == "ranks" and not failed:
            failed.append(path)
            raise OSError(errno.ESTALE, "Stale file handle")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", fail_once)
    result = call("--engine", "torchrun:ranks", "--output", "there")
    assert failed
    assert result.exit_code == 0, result.output


def test_a_folder_of_ranks_belongs_to_one_job(job, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with torchrun.using_ranks("ranks", 1):
        result = call("--engine", "torchrun:ranks")
    assert "give each job its own folder" in str(result.exception)
    (job / "file").touch()
    assert "cannot write to `file`" in str(call("--engine", "torchrun:file").exception)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--engine", "spark"], 2, "unknown engine `spark`; the engines are local, dask, ray, torchrun"),
        (["--engine", "local:8"], 2, "write --engine local"),
        (["--engine", "dask"], 2, "--engine dask:ADDRESS"),
        (["--engine", "torchrun"], 2, "--engine torchrun:FOLDER"),
        (["--engine", "torchrun:ranks"], 1, "RANK and WORLD_SIZE"),
        (["--engine", "torchrun:ranks", "--jobs", "0"], 2, "needs others"),
        (["--scheduler", "tcp://127.0.0.1:1"], 2, "only with --engine dask"),
        (["--engine", "ray", "--jobs", "2"], 2, "a Ray cluster uses all of its CPUs"),
        (["--engine", "dask", "--scheduler", "tcp://h:1", "--jobs", "2"], 2, "a Dask cluster uses all"),
        (["--engine", "dask:tcp://127.0.0.1:1"], 1, "start one with `dask scheduler`"),
        pytest.param(
            ["--engine", "ray:127.0.0.1:1"], 1, "start one with `ray start --head`", marks=needs_ray
        ),
        pytest.param(["--engine", "ray:ray://127.0.0.1:1"], 1, "no Ray cluster answers", marks=needs_ray),
        pytest.param(["--engine", "ray:127.0.0.1:x"], 1, "no Ray cluster answers", marks=needs_ray),
    ],
)
def test_the_error_for_an_unusable_engine_names_the_remedy(job, monkeypatch, arguments, code, message):
    monkeypatch.setattr("wdspec.jobs.engine.PATIENCE", 1.0)
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    result = call(*arguments)
    assert result.exit_code == code
    assert message in result.output + str(result.exception)


@pytest.mark.parametrize(("engine", "module"), [("ray:h:1", "ray"), ("dask:h:1", "distributed")])
def test_a_missing_library_is_reported_with_its_extra(job, monkeypatch, engine, module):
    monkeypatch.setitem(sys.modules, module, None)
    message = str(call("--engine", engine).exception)
    assert f"needs {module}" in message
    assert f"wdspec[{engine.partition(':')[0]}]" in message or f"[{engine.partition(':')[0]}]" in message
