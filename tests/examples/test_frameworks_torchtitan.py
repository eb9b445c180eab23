"""examples/frameworks/with_torchtitan.py resumes exactly after kill -9, also with another number of processes.

torchtitan pins versions that contradict ours, so install it alone (docs/training.md has the command).
"""

from frameworkjobs import (
    STEPS_OF_AN_EPOCH,
    Job,
    assert_exact,
    documented,
    make_spec,
    skip_without,
    unbroken_run,
)

skip_without("torchtitan")
EVERY = 5
STEPS = 2 * STEPS_OF_AN_EPOCH


def test_two_processes_killed_then_one(tmp_path):
    spec = make_spec(tmp_path)

    def start(name, processes):
        options = {"--checkpoints": tmp_path / "saved", "--nproc-per-node": processes}
        arguments = ["--spec", spec, "--every", EVERY, "--steps", STEPS, "--workers", 1, "--keys"]
        command = [*documented("with_torchtitan.py", options), *arguments, tmp_path / name]
        return Job(tmp_path / name, [command])

    with start("two", 2) as two:
        two.run_to(28)  # in the second epoch
    with start("one", 1) as one:
        one.finish()
    assert "resuming from step 2" in one.said()
    assert_exact([two, one], unbroken_run(spec, STEPS), [2, 1], most_replayed=EVERY)


def test_a_batch_of_another_size_is_rejected(tmp_path):
    import pytest

    import wdspec
    from wdspec.integrations.torchtitan import SpecDataLoader

    config = SpecDataLoader.Config(spec=f"{make_spec(tmp_path)}#train", num_workers=0)
    built = config.build(dp_world_size=2, dp_rank=0, local_batch_size=4, seq_len=2048, tokenizer=None)
    assert built.loader.run.seat.world_size == 2
    built.close()
    with pytest.raises(wdspec.UsageError, match=r"has 8 samples per batch of a rank.*global_size: 4"):
        config.build(dp_world_size=1, dp_rank=0, local_batch_size=4)
