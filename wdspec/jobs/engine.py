"""Engines run the tasks of a job: in processes or threads of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from wdspec.base.errors import UsageError, install_command
from wdspec.base.workers import end_with_parent
from wdspec.storage.ahead import SIDES

W = TypeVar("W")
R = TypeVar("R")

KILLED = (
    "the process that worked on it was killed, perhaps for lack of memory; see `dmesg` or the scheduler's log, and use "
    "fewer processes"
)

PATIENCE = "10s"
"""Timeout for the first answer of a scheduler."""


class Engine(Protocol):
    """Runs tasks in any order."""

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, as they finish.

        Args:
            do: runs one task and raises no Exception; a function of a module, as other processes import it.
            works: the tasks, which can be pickled.
            lost: makes the outcome of a task whose process ended, from the reason.
        """
        ...

    def close(self) -> None:
        """Cancel the tasks that are still running."""
        ...


class LocalEngine:
    """Processes of this machine. Each has its own pool, so that a killed process loses only its task.

    Args:
        jobs: number of processes; 0 runs tasks in this process.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._lanes: list[ProcessPoolExecutor] = []

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, as they finish."""
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
                with _interrupts_blocked():
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
                    self._lanes[lane].shutdown()
                    self._lanes[lane] = _start_lane()
                submit_next(lane)
                yield work, outcome
        self.close()

    def close(self) -> None:
        """Terminate the processes."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            for process in list((lane._processes or {}).values()):
                process.terminate()
        for lane in lanes:
            lane.shutdown()  # and wait, as the exit of Python does not wait safely for a pool that closes itself


def _start_lane() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT for the processes that are started in this context.

    A terminal sends Ctrl-C to all processes; this one ends the others, which would only print tracebacks.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ThreadEngine:
    """Threads of this process, for tasks that only wait for stores. Outcomes come in the order of the tasks."""

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, in order. After closing this, no more tasks start."""
        with ThreadPoolExecutor(SIDES, "wdspec-stat") as pool:
            try:
                yield from zip(works, pool.map(do, works), strict=True)
            finally:
                pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Nothing runs outside of `run`."""


class DaskEngine:
    """The workers of a Dask cluster, which need wdspec and the modules with user functions.

    Args:
        scheduler: its address, such as `tcp://host:8786`.

    Raises:
        UsageError: dask.distributed is not installed, or no scheduler answers at the address.
    """

    def __init__(self, scheduler: str) -> None:
        try:
            self._dask: Any = importlib.import_module("distributed")
        except ModuleNotFoundError:
            command = install_command("wdspec[dask]")
            raise UsageError(f"the dask engine needs dask.distributed: {command}") from None
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
        """Yield each task with its outcome, as they finish."""
        futures = {self._client.submit(do, work, pure=False): work for work in works}
        for future in self._dask.as_completed(list(futures), loop=self._client.loop):
            work = futures.pop(future)
            error = None if future.status == "finished" else future.exception()
            yield work, future.result() if error is None else lost(_explain(error))
            future.release()

    def close(self) -> None:
        """Leave the cluster, which cancels the tasks that have not started."""
        self._client.close()


def _explain(error: BaseException) -> str:
    name = type(error).__name__
    return KILLED if name == "KilledWorker" else f"{name}: {error}"
