"""examples/frameworks/with_torchrun.py resumes exactly: after kill -9, after SIGTERM, on two nodes, resized."""

import pytest
import torch
from frameworkjobs import (
    SCRIPTS,
    STEPS_OF_AN_EPOCH,
    Job,
    assert_exact,
    documented,
    free_port,
    make_spec,
    run_and_kill,
    unbroken_run,
)

EVERY = 10
EPOCHS = 6
STEPS = EPOCHS * STEPS_OF_AN_EPOCH


@pytest.fixture
def spec(tmp_path):
    return make_spec(tmp_path)


@pytest.fixture
def expected(spec):
    return unbroken_run(spec, STEPS)


def script(spec, keys, checkpoint="run.pt", workers=1):
    folder = spec.parent
    return [
        *(SCRIPTS / "with_torchrun.py", "--spec", spec, "--checkpoint", folder / checkpoint),
        *("--every", EVERY, "--epochs", EPOCHS, "--keys", folder / keys, "--workers", workers),
    ]


def torchrun(*options):
    return ["-m", "torch.distributed.run", *options]


def alone(spec, keys, processes, **options):
    launch = documented("with_torchrun.py", {"--nproc-per-node": processes})
    arguments = script(spec, keys, **options)[1:]  # of an option given twice, the last counts
    return Job(spec.parent / keys, [[*launch, *arguments]])


def two_nodes(spec, keys, processes=1, **options):
    """Two agents with separate working directories and caches."""
    folders = [spec.parent / name for name in ("node-0", "node-1")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    launch = torchrun("--nnodes", 2, "--nproc-per-node", processes, "--rdzv-backend", "c10d")
    meeting = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", keys)
    elsewhere = rf"([ab]-\d\.tar)=pipe:cat '{spec.parent}'/\1"
    variables = [{"WDS_REWRITE": elsewhere, "WDS_CACHE": str(folder / "cache")} for folder in folders]
    command = [*launch, *meeting, *script(spec, keys, **options)]
    return Job(spec.parent / keys, [command] * 2, folders, variables)


@pytest.mark.long
def test_a_job_killed_at_random_steps_resumes_exactly(spec, expected):
    runs = run_and_kill(lambda number: alone(spec, f"run-{number}", 2), STEPS, times=2, furthest=40)
    assert_exact(runs, expected, [2] * len(runs), most_replayed=EVERY)

    with alone(spec, "unbroken", 2, checkpoint="unbroken.pt") as job:
        job.finish()
    broken, unbroken = (
        torch.load(spec.parent / name, weights_only=True) for name in ("run.pt", "unbroken.pt")
    )
    assert broken["data"] == unbroken["data"]
    assert all(torch.equal(broken["model"][name], value) for name, value in unbroken["model"].items())


def test_two_nodes_killed_then_one_of_two_terminated_then_one_process(spec, expected):
    with two_nodes(spec, "killed", workers=2) as first:
        first.run_to(17)
    with two_nodes(spec, "terminated", workers=1) as second:
        second.run_to(max(first.steps()) + 15)
        second.processes[1].terminate()  # torchrun passes it on to the training process and its workers
        second.run_to_words("stopped after step")
    with alone(spec, "single", 1, workers=0) as third:
        third.finish()
    assert_exact([first, second, third], expected, [2, 2, 1], most_replayed=EVERY)
    assert min(third.steps()) == max(second.steps()) + 1
    for node in ("node-0", "node-1"):
        copies = list((spec.parent / node / "cache").rglob("*.tar"))
        assert copies
        for copy in copies:
            assert copy.read_bytes() == (spec.parent / copy.name).read_bytes()


@pytest.mark.long
def test_a_job_killed_many_times_and_resized_resumes_exactly(spec, expected):
    def start(number):
        return alone(spec, f"run-{number}", 1 + number % 2, workers=number % 3)

    runs = run_and_kill(start, STEPS, times=6, furthest=12)
    assert_exact(runs, expected, [1 + number % 2 for number in range(len(runs))], most_replayed=EVERY)


@pytest.mark.long
def test_a_node_of_two_is_killed_and_the_job_continues_on_other_numbers_of_nodes(tmp_path):
    """2 nodes of 2 processes, then 1 of 2, then 3 of 1: docs/cluster.md."""
    spec = make_spec(tmp_path, shards=(12, 12))
    text = (
        spec.read_text()
        .replace("{ranks: 2, workers: 2}", "{ranks: 12}")
        .replace("global_size: 8", "global_size: 24")
    )
    spec.write_text(text.replace("{0..4}", "{0..11}").replace("b-{0..2}", "b-{0..11}"))
    expected = unbroken_run(spec, STEPS)
    with two_nodes(spec, "two-by-two", processes=2) as first:
        first.run_to(17)
        first.kill_node(1)
    with alone(spec, "one-by-two", 2) as second:
        second.run_to(max(first.steps()) + 20)
    with several_nodes(spec, "three-by-one", 3) as third:
        third.finish()
    assert_exact([first, second, third], expected, [4, 2, 3], most_replayed=EVERY)


def several_nodes(spec, keys, nodes):
    """Agents of one process each."""
    launch = torchrun("--nnodes", nodes, "--nproc-per-node", 1, "--rdzv-backend", "c10d")
    meeting = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", keys)
    return Job(spec.parent / keys, [[*launch, *meeting, *script(spec, keys)]] * nodes)
