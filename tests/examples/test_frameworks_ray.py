"""examples/frameworks/with_ray.py resumes exactly after kill -9 of everything, also with fewer processes."""

import pytest
from frameworkjobs import (
    STEPS_OF_AN_EPOCH,
    Job,
    assert_exact,
    documented,
    make_spec,
    skip_without,
    unbroken_run,
)

EPOCHS = 2

skip_without("ray")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_two_processes_killed_then_one(tmp_path):
    spec = make_spec(tmp_path)

    def start(name, processes):
        options = {"--checkpoints": tmp_path / "saved", "--processes": processes}
        arguments = (
            "--spec",
            spec,
            "--every",
            5,
            "--epochs",
            EPOCHS,
            "--workers",
            0,
            "--keys",
            tmp_path / name,
        )
        variables = [{"RAY_USAGE_STATS_ENABLED": "0"}]
        command = [*documented("with_ray.py", options), *arguments]
        return Job(tmp_path / name, [command], variables=variables)

    with start("two", 2) as two:
        two.run_to(13, timeout=180)
    with start("one", 1) as one:
        one.wait(timeout=180)
        assert one.processes[0].returncode == 0, one.said()
    assert_exact([two, one], unbroken_run(spec, EPOCHS * STEPS_OF_AN_EPOCH), [2, 1], most_replayed=5)
