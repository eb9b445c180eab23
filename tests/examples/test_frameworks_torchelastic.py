"""Nodes that come and go under torchrun --nnodes 1:2: one is killed, the other continues alone, a new one joins."""

import time

import pytest
from frameworkjobs import SCRIPTS, Job, free_port, make_spec, unbroken_run


def wait_until(happened, job, timeout=280):
    limit = time.monotonic() + timeout
    while not happened():
        assert time.monotonic() < limit, job.said()
        assert job.runs(), job.said()
        time.sleep(0.05)


@pytest.mark.long
def test_after_an_agent_is_killed_the_other_continues_alone_until_a_new_one_joins(tmp_path):
    spec, keys = make_spec(tmp_path), tmp_path / "keys"
    meeting = (
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{free_port()}",
        "--rdzv-id",
        "elastic",
    )
    # With less patience a busy machine takes an agent for dead, and two jobs train at once.
    patience = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=10"
    (tmp_path / "slowly.py").write_text(
        "import time\ndef read(sample):\n    time.sleep(0.005)\n    return sample\n"
    )
    spec.write_text(f"{spec.read_text()}map: slowly:read\n")
    # Without it torch 2.13 publishes the address of the store in the first round alone, and late agents wait for it.
    slowly = [{"PYTHONPATH": str(tmp_path), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}]
    agent = [
        *("-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", 1, "--max-restarts", 9),
        *(*meeting, "--rdzv-conf", patience, "--monitor-interval", 0.3),
        *(SCRIPTS / "with_torchrun.py", "--spec", spec, "--checkpoint", tmp_path / "run.pt"),
        *("--every", 10, "--epochs", 400, "--workers", 0, "--keys", keys),
    ]

    def parts():
        """(step, number of samples) of each part that ranks noted, in the order of the files."""
        return [(step, part.total()) for step, found in first.steps().items() for part in found]

    def furthest(samples):
        return max((step for step, size in parts() if size == samples), default=-1)

    with Job(keys, [agent], variables=slowly) as first:
        time.sleep(2)  # it is to hold the meeting place
        with Job(tmp_path / "second", [agent], variables=slowly) as second:
            wait_until(lambda: furthest(4) >= 12, first)
            second.kill()
        alone = furthest(4)
        wait_until(lambda: furthest(8) >= alone + 12, first)
        with Job(tmp_path / "third", [agent], variables=slowly):
            together = furthest(8)
            wait_until(lambda: furthest(4) >= together + 12, first)
            first.kill()
    steps = first.steps()
    last = max(steps) - 1  # the last one may be half written
    spec.write_text(spec.read_text().replace("map: slowly:read", ""))
    expected = unbroken_run(spec, last + 1)
    for step in range(last + 1):
        assert all(part <= expected[step] and part.total() in (4, 8) for part in steps[step]), step
        assert set().union(*steps[step]) == set(expected[step]), step
