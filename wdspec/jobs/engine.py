"""Engines: what runs the tasks of a job. Processes or threads of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from wdspec.base.errors import UsageError
from wdspec.base.workers import end_with_parent
from wdspec.storage.ahead import SIDES

W = TypeVar("W")
R = TypeVar("R")

KILLED = (
    "the process that worked on it was killed; was memory short? `dmesg` or the scheduler's log may say, and fewer "
    "processes at a time need less"
)

PATIENCE = "10s"
"""How long to wait for the first answer of a scheduler."""


class Engine(Protocol):
    """Runs tasks in any order."""

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Each task with its outcome, as they come.

        Args:
            do: does one task and raises no Exception; of a module, as other processes import it.
            works: the tasks; they pickle.
            lost: makes the outcome of a task whose process ended, from the reason.
        """
        ...

    def close(self) -> None:
        """Give up the tasks that are still running."""
        ...


class LocalEngine:
    """Processes of this machine, each in a pool of its own, so that one that is killed loses only its own task.

    Args:
        jobs: how many; with 0 this process works itself.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._lanes: list[ProcessPoolExecutor] = []

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Each task with its outcome, as they come."""
        if not self._jobs:
            for work in works:
                yield work, do(work)
            return
        left = iter(works)
        self._lanes = [_start_lane() for _ in range(min(self._jobs, len(works)))]
        running: dict[Future[R], tuple[int, W]] = {}

        def submit_next(lane: int) -> None:
            work = next(left, None)
            if work is not None:
                running[self._lanes[lane].submit(do, work)] = lane, work

        for lane in range(len(self._lanes)):
            submit_next(lane)
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                lane, work = running.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    outcome = lost(KILLED)
                    self._lanes[lane].shutdown(wait=False)
                    self._lanes[lane] = _start_lane()
                submit_next(lane)
                yield work, outcome
        self.close()

    def close(self) -> None:
        """End the processes."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            processes = list((lane._processes or {}).values())
            lane.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
        for lane in lanes:
            lane.shutdown(wait=True)


def _start_lane() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent)


class ThreadEngine:
    """Threads of this process, for tasks that only wait for stores. Outcomes come in the order of the tasks."""

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Each task with its outcome, in order. Closing this starts no more tasks."""
        with ThreadPoolExecutor(SIDES, "wdspec-stat") as pool:
            try:
                yield from zip(works, pool.map(do, works), strict=True)
            finally:
                pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Nothing runs outside of `run`."""


class DaskEngine:
    """The workers of a Dask cluster; wdspec and the modules with user functions must be installed there.

    Args:
        scheduler: its address, such as `tcp://host:8786`.

    Raises:
        UsageError: dask.distributed is not installed, or no scheduler answers at the address.
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
    ) -> Generator[tuple[W, R]]:
        """Each task with its outcome, as they come."""
        futures = {self._client.submit(do, work, pure=False): work for work in works}
        for future in self._dask.as_completed(list(futures), loop=self._client.loop):
            work = futures.pop(future)
            error = None if future.status == "finished" else future.exception()
            yield work, future.result() if error is None else lost(_explain(error))
            future.release()

    def close(self) -> None:
        """Leave the cluster, which forgets the tasks that have not started."""
        self._client.close()


def _explain(error: BaseException) -> str:
    name = type(error).__name__
    return KILLED if name == "KilledWorker" else f"{name}: {error}"
