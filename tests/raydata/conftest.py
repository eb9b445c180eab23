import os
import signal

import pytest

pytest.importorskip("ray", reason="ray is not installed")


@pytest.fixture(scope="package")
def two_cpus():
    """A Ray cluster of two CPUs in this process, for all tests of this folder."""
    import ray

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = dict(os.environ)
    os.environ.update(RAY_worker_niceness="0")  # else other tests starve Ray's workers
    ray.init("local", num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    for number, handler in handlers.items():  # Ray installs its own
        signal.signal(number, handler)
    yield
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)
