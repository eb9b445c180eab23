"""examples/frameworks/with_accelerate.py resumes exactly after kill -9, also with another number of processes."""

from frameworkjobs import (
    SCRIPTS,
    STEPS_OF_AN_EPOCH,
    Job,
    assert_exact,
    documented,
    make_spec,
    skip_without,
    unbroken_run,
)

EPOCHS = 3

skip_without("accelerate")


def test_two_processes_killed_then_one(tmp_path):
    spec = make_spec(tmp_path)
    options = ["--spec", spec, "--every", 5, "--epochs", EPOCHS, "--workers", 1, "--keys"]
    launch = documented("with_accelerate.py", {"--checkpoints": tmp_path / "states"})
    script = launch[launch.index(SCRIPTS / "with_accelerate.py") :]
    with Job(tmp_path / "first", [[*launch, *options, tmp_path / "first"]]) as first:
        first.run_to(17)
    assert len(list((tmp_path / "first").glob("*.txt"))) == 2
    with Job(tmp_path / "second", [[*script, *options, tmp_path / "second"]]) as second:
        second.finish()
    assert_exact([first, second], unbroken_run(spec, EPOCHS * STEPS_OF_AN_EPOCH), [2, 1], most_replayed=5)
