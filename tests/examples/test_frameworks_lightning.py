"""examples/frameworks/with_lightning.py goes on exactly: after kill -9, at epochs' ends, on two devices, resized."""

import pytest
from frameworkjobs import (
    STEPS_OF_AN_EPOCH,
    Job,
    assert_exact,
    documented,
    make_spec,
    run_and_kill,
    skip_without,
    unbroken_run,
)

EPOCHS = 4
STEPS = EPOCHS * STEPS_OF_AN_EPOCH

skip_without("lightning")


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
def test_a_job_killed_at_random_steps_resumes_exactly(spec, expected):
    def start(number):
        return train(spec, f"run-{number}", workers=number, every=7)

    runs = run_and_kill(start, STEPS, times=2, furthest=35)
    assert_exact(runs, expected, [1] * len(runs), most_replayed=7)


@pytest.mark.parametrize("devices", [(2, 1), pytest.param((2, 1, 2), marks=pytest.mark.long)], ids=str)
def test_a_killed_job_resumes_with_other_numbers_of_devices(spec, expected, devices):
    runs = []
    for number, count in enumerate(devices):
        with train(spec, f"run-{number}", devices=count) as run:
            if number == len(devices) - 1:
                run.finish()
            else:
                run.run_to(max(runs[-1].steps()) + 20 if runs else 12)
        runs.append(run)
    assert_exact(runs, expected, list(devices), most_replayed=5)


@pytest.mark.long
def test_sigterm_saves_after_the_last_step_and_the_end_of_an_epoch_starts_the_next(spec, expected):
    with train(spec, "first") as first:
        first.run_to(13)
        first.terminate()
    with train(spec, "second", epochs=2) as second:
        second.finish()
    with train(spec, "third", workers=0) as third:
        third.finish()
    assert_exact([first, second, third], expected, [1, 1, 1], most_replayed=0)
