"""examples/frameworks/with_dcp.py: processes are killed, and more or fewer of them resume to the end."""

import pytest
from frameworkjobs import STEPS_OF_AN_EPOCH, Job, assert_exact, documented, make_spec, unbroken_run

EPOCHS = 2
EVERY = 5


@pytest.mark.parametrize("processes", [(2, 1), pytest.param((4, 2, 4), marks=pytest.mark.long)], ids=str)
def test_a_killed_job_resumes_with_other_numbers_of_processes(tmp_path, processes):
    spec = make_spec(tmp_path)
    spec.write_text(spec.read_text().replace("{ranks: 2, workers: 2}", "{ranks: 4, workers: 2}"))
    arguments = ["--spec", spec, "--every", EVERY, "--epochs", EPOCHS, "--workers", 1, "--keys"]

    def start(name, processes):
        options = {"--checkpoints": tmp_path / "saved", "--nproc-per-node": processes}
        return Job(tmp_path / name, [[*documented("with_dcp.py", options), *arguments, tmp_path / name]])

    runs = []
    for number, count in enumerate(processes):
        with start(f"run-{number}", count) as run:
            if number == len(processes) - 1:
                run.finish()
            else:
                run.run_to((13, 27)[number])
        runs.append(run)
    expected = unbroken_run(spec, EPOCHS * STEPS_OF_AN_EPOCH)
    assert_exact(runs, expected, list(processes), most_replayed=EVERY)
