"""`map_batches`: full batches in order, one object in each process, a result for each sample, or a clear error."""

import json
import signal
import sys
import textwrap
from importlib.util import find_spec

import pytest
from click.testing import CliRunner
from offlinejobs import write_job

import wdspec
from wdspec.cli.head import head
from wdspec.cli.process import process
from wdspec.cli.stats import stats
from wdspec.jobs.engine import divide_gpus

FUNCTIONS = """
    import os, random
    import numpy as np
    import torch

    class Model:
        made = 0

        def __init__(self, scale=1):
            Model.made += 1
            self.scale = scale
            self.bias = torch.rand(1).item()

        def __call__(self, samples):
            values = torch.tensor([sample["cls"] for sample in samples])
            scores = (values * self.scale).tolist()
            keys = " ".join(sample["__key__"] for sample in samples)
            return [
                {**sample, "score.cls": score, "batch.txt": keys, "made.cls": Model.made}
                for sample, score in zip(samples, scores, strict=True)
            ]

    class Drawing(Model):
        def __call__(self, samples):
            drawn = f"{self.bias} {random.random()} {np.random.random()} {torch.rand(1).item()}"
            return [{"drawn.txt": drawn} for sample in samples]

    def drop_odd(samples, also=-1):
        return [None if s["cls"] % 2 or s["cls"] == also else s for s in samples]

    def too_few(samples):
        return samples[1:]

    def one(samples):
        return samples[0]

    def of_text(samples):
        return ["text" for sample in samples]

    def thirteen(samples):
        if any(sample["cls"] == 13 for sample in samples):
            raise ValueError("thirteen brings bad luck")
        return samples
"""
PLACES = """
    import os

    def where(samples):
        text = f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}"
        return [{"where.txt": text} for sample in samples]

    def deadly_once(samples):
        mark = os.path.join(os.path.dirname(__file__), "killed-once")
        if samples[0]["cls"] == 20 and not os.path.exists(mark):
            open(mark, "x").close()
            os.kill(os.getpid(), 9)
        return where(samples)
"""


@pytest.fixture(autouse=True)
def _signal_handlers():
    """Ray installs its own."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job in the working directory; gives its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_job(tmp_path, map_batches="{call: 'batched:Model', batch: 4, args: {scale: 3}}")
    (tmp_path / "batched.py").write_text(textwrap.dedent(FUNCTIONS))
    (tmp_path / "places.py").write_text(textwrap.dedent(PLACES))
    sys.modules.pop("batched", None)
    yield tmp_path
    sys.modules.pop("batched", None)


def run(*arguments, **keys):
    """The result of `process`, with other keys of `map_batches`."""
    sets = [f"--set=map_batches.{key}={json.dumps(value)}" for key, value in keys.items()]
    if "args" in keys:
        sets.append("--set=map_batches.args.scale=null")
    return CliRunner().invoke(process, ["job.yaml", "--format", "json", *sets, *arguments])


def written(folder="out"):
    """All samples of a folder, in the order of the shards."""
    spec = {"dataset": [{"shards": f"{folder}/*.tar"}], "epoch": {"pass": "drop"}}
    return list(wdspec.compile(spec))


def test_batches_are_full_ordered_and_all_seen_by_one_object(job):
    assert run("--jobs", "0").exit_code == 0
    samples = written()
    assert [sample["cls"] for sample in samples] == list(range(40))
    assert [sample["score.cls"] for sample in samples] == [3 * n for n in range(40)]
    assert {sample["made.cls"] for sample in samples} == {1}
    for shard in range(4):
        keys = [f"a{shard:03}{n:04}" for n in range(10)]
        batches = [keys[0:4], keys[4:8], keys[8:10]]  # of one shard only, as the next one has other keys
        expected = [" ".join(batch) for batch in batches for _ in batch]
        assert [sample["batch.txt"] for sample in samples[shard * 10 :][:10]] == expected


def test_dropped_samples_do_not_split_batches(job):
    (job / "functions.py").write_text("def odd(sample):\n    return sample['cls'] % 2 == 1\n")
    assert run("--jobs", "0", "--set", "defaults.select=functions:odd").exit_code == 0
    first = written()[0]
    assert first["batch.txt"] == "a0000001 a0000003 a0000005 a0000007"


def test_random_numbers_do_not_depend_on_the_processes(job):
    for jobs, folder in ((0, "a"), (2, "b")):
        assert run("--jobs", str(jobs), "--output", folder, call="batched:Drawing", args={}).exit_code == 0
    drawn = [sample["drawn.txt"] for sample in written("a")]
    assert len(set(drawn)) == 12  # one for each batch
    assert [sample["drawn.txt"] for sample in written("b")] == drawn
    assert [sample["__key__"] for sample in written("a")][:2] == ["a0000000", "a0000001"]


def test_dropped_samples_are_counted_and_functions_take_arguments(job):
    result = run("--jobs", "0", call="batched:drop_odd", args={"also": 2})
    assert result.exit_code == 0, result.output
    assert sum(done["dropped"] for done in json.loads(result.stdout)["done"]) == 21
    assert [sample["cls"] for sample in written()] == [0, *range(4, 40, 2)]


def test_fields_are_selected_from_the_results(job):
    assert run("--jobs", "0", "--set", "fields=txt score.cls").exit_code == 0
    assert {name for name in written()[0] if name[0] != "_"} == {"txt", "score.cls"}
    result = run("--jobs", "0", "--set", "fields=txt missing", "--output", "other")
    assert result.exit_code == 1
    assert "the sample has no field `missing`" in result.stdout


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("too_few", "returned 3 samples for a batch of 4"),
        ("one", "returned dict, not a list"),
        ("of_text", "returned a list with str, not dict"),
    ],
)
def test_a_wrong_result_is_an_error_with_the_keys_of_the_batch(job, function, said):
    skips = ["--set", "errors.skip=map"]  # which does not skip mistakes
    result = run("--jobs", "0", *skips, call=f"batched:{function}", args={})
    assert result.exit_code == 1
    (failed,) = json.loads(result.stdout)["failed"]  # all four shards would
    cause = failed["cause"]
    assert f"`map_batches: batched:{function}` {said}; return a list with a sample for each one" in cause
    assert "a0000000 … a0000003 (4 samples)" in cause


def test_a_batch_that_fails_is_an_error_or_skipped(job):
    result = run("--jobs", "0", "--retries", "0", call="batched:thirteen", args={})
    (failed,) = json.loads(result.stdout)["failed"]
    assert failed["url"] == "in/a-001.tar"
    assert "thirteen brings bad luck" in failed["cause"]
    assert "a0010000 … a0010003" in failed["cause"]
    result = run("--jobs", "0", "--force", "--set", "errors.skip=map", call="batched:thirteen", args={})
    assert sum(done["skipped"] for done in json.loads(result.stdout)["done"]) == 4
    assert [sample["cls"] for sample in written()] == [n for n in range(40) if not 10 <= n < 14]


def test_a_class_that_cannot_be_built_is_an_error(job):
    for call, args, said in (
        ("batched:Missing", {}, "has no `Missing`"),
        ("batched:Model", {"scalle": 1}, "has no argument `scalle`"),
    ):
        result = run("--jobs", "0", call=call, args=args)
        assert said in json.loads(result.stdout)["failed"][0]["cause"]


def test_loaders_reject_it_and_other_commands_show_the_samples_before_it(job):
    for read in (wdspec.loader, wdspec.compile):
        with pytest.raises(wdspec.UsageError, match="`map_batches: batched:Model` is for `wdspec process`"):
            read("job.yaml")
    with wdspec.loader("job.yaml", overrides={"map_batches": None, "batch": 2}):
        pass
    (job / "job.yaml").write_text((job / "job.yaml").read_text() + "fields: score.cls\n")
    assert CliRunner().invoke(head, ["job.yaml", "-n", "1"], catch_exceptions=False).exit_code == 0
    measured = CliRunner().invoke(stats, ["job.yaml", "--lengths", "-o", "s.json"], catch_exceptions=False)
    assert measured.exit_code in (0, 2)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("5", "E202", "expected the name of a class"),
        ("{batch: 4}", "E206", "call"),
        ("{call: 'm:C', gpus: 1.5}", "E210", "1.5 GPUs are not whole GPUs"),
        ("{call: 'm:C', size: 4}", "E201", "size"),
    ],
)
def test_a_wrong_key_is_reported_before_anything_runs(tmp_path, text, code, said):
    (tmp_path / "spec.yaml").write_text(f"dataset: [{{shards: a.tar}}]\nmap_batches: {text}\n")
    problems = [problem for problem in wdspec.validate(tmp_path / "spec.yaml") if problem.is_error]
    assert [problem.code for problem in problems] == [code]
    assert said in str(problems[0])


def test_a_function_name_is_enough():
    spec = wdspec.load({"dataset": [{"shards": "a.tar"}], "map_batches": "m:C"})
    assert (spec.map_batches.call, spec.map_batches.batch, spec.map_batches.gpus) == ("m:C", 64, 0)


def test_gpus_are_distributed_over_processes():
    assert divide_gpus(["0", "1", "2", "3", "4"], 2) == ["0,1", "2,3"]
    assert divide_gpus(["3", "5"], 1) == ["3", "5"]
    assert divide_gpus(["3", "5"], 0.5) == ["3", "5", "3", "5"]
    assert divide_gpus(["GPU-a"], 0.3) == ["GPU-a"] * 3
    for few in ([], ["0"]):
        with pytest.raises(wdspec.UsageError, match=rf"but this machine has {len(few)}"):
            divide_gpus(few, 2)


def test_each_local_process_sees_its_own_gpus(job, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    result = run("--jobs", "4", call="places:where", args={}, gpus=1)
    assert result.exit_code == 0, result.output
    seen = {tuple(sample["where.txt"].split()) for sample in written()}
    assert {devices for _, devices in seen} <= {"3", "5"}
    assert len(seen) == len({process for process, _ in seen}) <= 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "this machine has 0" in str(run("--jobs", "2", call="places:where", args={}, gpus=1).exception)


def test_a_process_that_replaces_a_killed_one_sees_the_same_gpu(job, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    result = run("--jobs", "1", call="places:deadly_once", args={}, gpus=1)
    assert result.exit_code == 0, result.output
    assert {sample["where.txt"].split()[1] for sample in written()} == {"7"}
    assert len({sample["where.txt"].split()[0] for sample in written()}) > 1


def test_engines_without_gpus_name_an_alternative(job, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    result = run("--engine", f"torchrun:{job}/ranks", call="places:where", args={}, gpus=1)
    assert "the engine torchrun cannot give each process its own; use --engine ray or local" in str(
        result.exception
    )


@pytest.mark.long
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_ray_keeps_one_object_in_each_actor_with_its_own_gpus(job):
    import ray

    import wdspec.ray

    assert run("--jobs", "0", "--output", "here").exit_code == 0
    ray.init(
        "local", num_cpus=2, num_gpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False
    )
    try:
        rows = wdspec.ray.read("job.yaml", overrides={"map_batches.gpus": 1}).take_all()
        assert sorted(row["score.cls"] for row in rows) == [3 * n for n in range(40)]
        assert {row["made.cls"] for row in rows} == {1}
    finally:
        ray.shutdown()


@pytest.mark.long
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_process_on_ray_keeps_one_object_in_each_actor(job):
    from ray.cluster_utils import Cluster

    assert run("--jobs", "0", "--output", "here").exit_code == 0
    arguments = {"num_cpus": 2, "num_gpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    try:
        engine = ["--engine", f"ray:{cluster.address}"]
        assert run(*engine, "--output", "there", gpus=1).exit_code == 0
        for name in ("a-000.tar", "a-003.tar"):
            assert (job / "there" / name).read_bytes() == (job / "here" / name).read_bytes()
        assert run(*engine, "--output", "where", call="places:deadly_once", args={}, gpus=1).exit_code == 0
        seen = {tuple(sample["where.txt"].split()) for sample in written("where")}
        assert {devices for _, devices in seen} <= {"0", "1"}
        too_many = run(*engine, "--output", "none", call="places:where", args={}, gpus=3)
        assert "but the Ray cluster has 2" in str(too_many.exception)
    finally:
        cluster.shutdown()
