"""Fixtures and options of all tests."""

import gc
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import settings
from servers.fixtures import azure, gcs, nginx, proxy, s3, sshd

from wdspec.base.process import KeyedValues

# Several runners share the cores, and threads of OpenMP that wait for each other take half of the time of training.
# torch reads this when it is imported, and programs that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("patient", deadline=None)  # a loaded machine may take any time for an example
settings.load_profile("patient")

__all__ = ["azure", "gcs", "nginx", "proxy", "s3", "sshd"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples first: they take longest, and at the end all runners but one would wait for them."""
    items.sort(key=lambda item: "examples" not in item.path.parts)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are imported and collected: nearly all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collection: a million objects, which take 0.6 s each time.

    Collect rarely: tests leave little behind, and by default, an eighth of their time goes into collecting it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(autouse=True)
def no_connections_are_kept() -> Iterator[None]:
    """Let go of the connections to servers: each process that a later test forks would free them all."""
    yield
    if requests := sys.modules.get("wdspec.stores.http_requests"):
        requests._managers.value = KeyedValues()


_VARIABLES = re.compile(
    "WDS|AIS_|USE_AIS|RANK|WORLD_SIZE|LOCAL_|MASTER_|SLURM_|.*_ENDPOINT|.*_(?i:proxy)|PATH|HOME"
)
"""Variables that wdspec or torch.distributed reads; libraries set others when they are imported."""


@pytest.fixture(autouse=True)
def process_is_restored(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that changes the process for the tests that run after it."""
    before, last = state_of_process(), next(reversed(sys.modules))
    yield
    after = state_of_process()
    changed = [name for name, value in before.items() if after[name] != value]
    assert not changed, f"the test did not restore {', '.join(changed)}"
    fakes = [
        f"{module}.{name}"
        for module in takewhile(lambda each: each != last, [*reversed(sys.modules)])  # imported since
        if module.startswith("wdspec")
        for name, value in vars(sys.modules[module]).items()
        if getattr(value, "__module__", None) == request.module.__name__
    ]
    assert not fakes, f"modules that the test imported keep what it replaced meanwhile: {fakes}"


def state_of_process() -> dict[str, Any]:
    """What results of other tests can depend on; libraries count from their import on."""
    state: dict[str, Any] = {
        "variables": {name: value for name, value in os.environ.items() if _VARIABLES.match(name)},
        "working directory": os.getcwd(),
        "handlers of signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }
    if method := multiprocessing.get_start_method(allow_none=True):  # the first use sets the default
        state["start method"] = method
    if "numpy.random" in sys.modules:
        state["numpy's generator"] = sys.modules["numpy.random"].get_bit_generator()
    if torch := sys.modules.get("torch"):
        state["torch's defaults"] = (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
        )
        state["torch.distributed"] = torch.distributed.is_available() and torch.distributed.is_initialized()
    return state
