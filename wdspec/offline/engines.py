"""Who does the tasks: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from wdspec.base.errors import UsageError
from wdspec.base.workers import end_with_parent

W = TypeVar("W")
R = TypeVar("R")

KILLED = (
    "the process that worked on it was killed; was memory short? `dmesg` or the scheduler's log may say, and fewer "
    "processes at a time need less"
)

PATIENCE = "10s"
"""For the first answer of a scheduler."""


class Engine(Protocol):
    """Does tasks in any order."""

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Iterator[tuple[W, R]]:
        """Each task with its outcome, as they come.

        Args:
            do: does one task and raises no Exception; of a module, as other processes import it.
            works: the tasks; they pickle.
            lost: makes the outcome of a task whose process ended, of why.
        """
        ...

    def close(self) -> None:
        """Gives up what is still under way."""
        ...


class LocalEngine:
    """Processes of this machine, each alone in its pool: one that is killed takes no other's task with it.

    Args:
        jobs: how many; 0 works in this process.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._lanes: list[ProcessPoolExecutor] = []

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Iterator[tuple[W, R]]:
        """Each task with its outcome, as they come."""
        if not self._jobs:
            for work in works:
                yield work, do(work)
            return
        left = iter(works)
        self._lanes = [_lane() for _ in range(min(self._jobs, len(works)))]
        running: dict[Future[R], tuple[int, W]] = {}

        def begin(lane: int) -> None:
            work = next(left, None)
            if work is not None:
                running[self._lanes[lane].submit(do, work)] = lane, work

        for lane in range(len(self._lanes)):
            begin(lane)
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                lane, work = running.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    outcome = lost(KILLED)
                    self._lanes[lane].shutdown(wait=False)
                    self._lanes[lane] = _lane()
                begin(lane)
                yield work, outcome
        self.close()

    def close(self) -> None:
        """Ends the processes."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            processes = list((lane._processes or {}).values())
            lane.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
        for lane in lanes:
            lane.shutdown(wait=True)


def _lane() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent)


class DaskEngine:
    """The workers of a Dask cluster; wdspec and the user's modules must be installed there.

    Args:
        scheduler: its address, such as `tcp://host:8786`.

    Raises:
        UsageError: dask.distributed is not installed, or nobody answers at the address.
    """

    def __init__(self, scheduler: str) -> None:
        try:
            self._dask: Any = importlib.import_module("distributed")
        except ModuleNotFoundError:
            raise UsageError("the dask engine needs dask.distributed: `pip install 'wdspec[dask]'`") from None
        try:
            self._client: Any = self._dask.Client(scheduler, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no Dask scheduler answers at `{scheduler}`: {error}; start one with `dask scheduler`, and its "
                f"workers with `dask worker {scheduler}`"
            ) from None

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Iterator[tuple[W, R]]:
        """Each task with its outcome, as they come."""
        futures = {self._client.submit(do, work, pure=False): work for work in works}
        for future in self._dask.as_completed(list(futures), loop=self._client.loop):
            work = futures.pop(future)
            error = None if future.status == "finished" else future.exception()
            yield work, future.result() if error is None else lost(_why(error))
            future.release()

    def close(self) -> None:
        """Leaves the cluster; tasks not begun are forgotten there."""
        self._client.close()


def _why(error: BaseException) -> str:
    name = type(error).__name__
    return KILLED if name == "KilledWorker" else f"{name}: {error}"
