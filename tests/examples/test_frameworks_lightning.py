"""examples/frameworks/with_lightning.py goes on exactly: after kill -9, at epochs' ends, on two devices, resized."""

import pytest
from frameworkjobs import (
    STEPS_OF_AN_EPOCH,
    Job,
    assert_exact,
    documented,
    make_spec,
    run_and_kill,
    unbroken_run,
)

EPOCHS = 4
STEPS = EPOCHS * STEPS_OF_AN_EPOCH

pytest.importorskip("lightning")


@pytest.fixture
def spec(tmp_path):
    return make_spec(tmp_path)


@pytest.fixture
def expected(spec):
    return unbroken_run(spec, STEPS)


def train(spec, keys, devices=1, workers=1, every=5, epochs=EPOCHS):
    folder = spec.parent
    documented_options = {"--checkpoints": folder / "checkpoints", "--devices": devices}
    command = [
        *documented("with_lightning.py", documented_options),
        *(
            "--spec",
            spec,
            "--every",
            every,
            "--epochs",
            epochs,
            "--keys",
            folder / keys,
            "--workers",
            workers,
        ),
    ]
    return Job(folder / keys, [command])


@pytest.mark.long
def test_a_job_killed_at_random_steps_goes_on_exactly(spec, expected):
    def start(number):
        return train(spec, f"run-{number}", workers=number, every=7)

    runs = run_and_kill(start, STEPS, times=2, furthest=35)
    assert_exact(runs, expected, [1] * len(runs), most_replayed=7)


def test_two_devices_then_one_then_two(spec, expected):
    with train(spec, "first", devices=2) as first:
        first.run_to(12)
    with train(spec, "second", devices=1) as second:
        second.run_to(max(first.steps()) + 20)
    with train(spec, "third", devices=2) as third:
        third.finish()
    assert_exact([first, second, third], expected, [2, 1, 2], most_replayed=5)


@pytest.mark.long
def test_sigterm_saves_after_the_last_step_and_an_epochs_end_begins_the_next(spec, expected):
    with train(spec, "first") as first:
        first.run_to(13)
        first.terminate()
    with train(spec, "second", epochs=2) as second:
        second.finish()
    with train(spec, "third", workers=0) as third:
        third.finish()
    assert_exact([first, second, third], expected, [1, 1, 1], most_replayed=0)
