"""examples/frameworks/with_dcp.py: 4 processes killed, 2 that go on and are killed, 4 that go on to the end."""

from frameworkjobs import STEPS_OF_AN_EPOCH, Job, assert_exact, documented, make_spec, unbroken_run

EPOCHS = 2
EVERY = 5


def test_four_processes_killed_then_two_then_four(tmp_path):
    spec = make_spec(tmp_path)
    spec.write_text(spec.read_text().replace("{ranks: 2, workers: 2}", "{ranks: 4, workers: 2}"))
    arguments = ["--spec", spec, "--every", EVERY, "--epochs", EPOCHS, "--workers", 1, "--keys"]

    def start(name, processes):
        options = {"--checkpoints": tmp_path / "saved", "--nproc-per-node": processes}
        return Job(tmp_path / name, [[*documented("with_dcp.py", options), *arguments, tmp_path / name]])

    with start("four", 4) as four:
        four.run_to(13)
    with start("two", 2) as two:
        two.run_to(27)
    with start("four-again", 4) as again:
        again.finish()
    expected = unbroken_run(spec, EPOCHS * STEPS_OF_AN_EPOCH)
    assert_exact([four, two, again], expected, [4, 2, 4], most_replayed=EVERY)
