"""examples/frameworks/with_accelerate.py goes on exactly after kill -9, also with another number of processes."""

import pytest
from frameworkjobs import SCRIPTS, STEPS_OF_AN_EPOCH, Job, assert_exact, make_spec, unbroken_run

EPOCHS = 3

pytest.importorskip("accelerate")


def test_two_processes_killed_then_one(tmp_path):
    spec = make_spec(tmp_path)
    script = [
        *(SCRIPTS / "with_accelerate.py", "--spec", spec, "--checkpoints", tmp_path / "states"),
        *("--every", 5, "--epochs", EPOCHS, "--workers", 1, "--keys"),
    ]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    with Job(tmp_path / "first", [[*launch, *script, tmp_path / "first"]]) as first:
        first.run_to(17)
    with Job(tmp_path / "second", [[*script, tmp_path / "second"]]) as second:
        second.finish()
    assert_exact([first, second], unbroken_run(spec, EPOCHS * STEPS_OF_AN_EPOCH), [2, 1], most_replayed=5)
