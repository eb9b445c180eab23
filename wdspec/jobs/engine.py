"""Engines run the tasks of a job: in processes or threads of this machine, on a Dask or Ray cluster, or on the ranks of
a launcher (`torchrun.py`).
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from glob import glob
from itertools import islice
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from wdspec.base.errors import UsageError, install_command
from wdspec.base.redaction import printable
from wdspec.base.workers import end_with_parent
from wdspec.storage.ahead import SIDES, side_by_side

W = TypeVar("W")
R = TypeVar("R")

KILLED = (
    "the process that worked on it was killed, perhaps because memory ran out; see `dmesg` or the scheduler's log, and "
    "use fewer processes"
)

NO_GPUS = (
    "`map_batches` has `gpus`, and the engine {engine} cannot give each process its own; use --engine ray or local, or "
    "write `gpus: 0`, with which processes see the GPUs that their launcher gave them"
)

PATIENCE = 10.0
"""Seconds to wait for the first answer of a cluster."""

TRIES = 3
"""How often Ray repeats the task of an actor that was killed."""

MOST_SUBMITTED = 1000
"""Tasks that wait or run in Ray; more would only make it slower to find those that have ended."""


class Engine(Protocol):
    """Runs tasks in any order."""

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, as they finish.

        Args:
            do: runs one task and raises no Exception; a function of a module, as other processes import it.
            works: the tasks, which can be pickled.
            lost: returns the outcome of a task whose process ended, given the reason.
        """
        ...

    def use_gpus(self, gpus: float) -> None:
        """Give each process its own GPUs, which are all that it sees; called before `run`.

        Args:
            gpus: the GPUs of a process, or the part of one.

        Raises:
            UsageError: the engine cannot, or there are too few.
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
        self._lanes: list[Lane] = []
        self._devices: Sequence[str | None] = []
        """What CUDA_VISIBLE_DEVICES is in each process; empty to leave it as it is."""

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, as they finish."""
        if not self._jobs:
            for work in works:
                yield work, do(work)
            return
        left = iter(works)
        devices = self._devices or [None] * self._jobs
        self._lanes = [Lane(each) for each in devices[: min(self._jobs, len(works))]]
        running: dict[Future[R], tuple[Lane, W]] = {}

        def submit_next(lane: Lane) -> None:
            work = next(left, None)
            if work is not None:
                running[lane.submit(do, work)] = lane, work

        for lane in self._lanes:
            submit_next(lane)
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                lane, work = running.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    outcome = lost(KILLED)
                submit_next(lane)
                yield work, outcome
        self.close()

    def use_gpus(self, gpus: float) -> None:
        """Run as many processes as there are GPUs for, at most. Without processes, this one uses the GPUs it sees."""
        if self._jobs:
            self._devices = divide_gpus(list_gpus(), gpus)
            self._jobs = min(self._jobs, len(self._devices))

    def close(self) -> None:
        """Terminate the processes."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            lane.stop()


class Lane:
    """A process that runs one task at a time. The next task after it was killed, also while idle, starts another one.

    Args:
        devices: the GPUs that it sees, as in CUDA_VISIBLE_DEVICES; None for those that this process sees.
    """

    def __init__(self, devices: str | None = None) -> None:
        self._devices = devices
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=_prepare_lane, initargs=(self._devices,)
        )

    def submit(self, do: Callable[[W], R], work: W) -> Future[R]:
        """Run a task. Its result is BrokenProcessPool if the process is killed meanwhile."""
        with interrupts_blocked():
            try:
                return self._pool.submit(do, work)
            except BrokenProcessPool:
                self._pool.shutdown()
                self._pool = self._start()
                return self._pool.submit(do, work)

    def stop(self) -> None:
        """Terminate the process, and wait: Python does not wait safely for a closing pool when it exits."""
        for process in list((self._pool._processes or {}).values()):
            process.terminate()
        self._pool.shutdown()


def _prepare_lane(devices: str | None) -> None:
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    if os.environ.setdefault("OMP_NUM_THREADS", "1") == "1" and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # as in workers of a loader: the processes share the cores
    warnings.formatwarning = _in_a_line
    end_with_parent()


def _in_a_line(message: Warning | str, *_: Any, **__: Any) -> str:
    """Format a warning as one line, without its location: that is in the code that runs the tasks of this process."""
    return printable(f"warning: {' '.join(str(message).split())}") + "\n"


def list_gpus() -> list[str]:
    """The GPUs that this process may use: those in CUDA_VISIBLE_DEVICES, or else the numbers of all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [each.strip() for each in visible.split(",") if each.strip() not in ("", "-1")]
    return [str(number) for number in range(len(glob("/dev/nvidia[0-9]*")))]


def divide_gpus(found: Sequence[str], gpus: float) -> list[str]:
    """Divide GPUs among processes: the ones that each sees, as in CUDA_VISIBLE_DEVICES.

    Raises:
        UsageError: there are fewer than one process needs.
    """
    if gpus >= 1:
        each = int(gpus)
        divided = [",".join(found[at : at + each]) for at in range(0, len(found) - each + 1, each)]
    else:
        divided = [device for _ in range(int(1 / gpus)) for device in found]
    if not divided:
        raise UsageError(
            f"`map_batches` has `gpus: {gpus:g}`, but this machine has {len(found)}; write `gpus: 0` in an environment "
            "to run on the processor"
        )
    return divided


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT for the processes that are started in this context.

    A terminal sends Ctrl-C to all processes; this one ends the others, which would only print tracebacks.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _TerminatedError(BaseException):
    """The process received SIGTERM. User functions do not catch this, as they may do with exceptions."""


@contextmanager
def termination_ends_in_order() -> Iterator[None]:
    """Let SIGTERM end this context as an error would, so that engines are closed, and then exit with 143."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the processes have ended
        raise _TerminatedError

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except _TerminatedError:
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class ThreadEngine:
    """Threads of this process, for tasks that only wait for stores. Outcomes come in the order of the tasks.

    Args:
        threads: number of threads.
    """

    def __init__(self, threads: int = SIDES) -> None:
        self._threads = threads

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, in order. After closing this, no more tasks start."""
        with closing(side_by_side(do, works, self._threads)) as outcomes:
            yield from zip(works, outcomes, strict=True)

    def use_gpus(self, gpus: float) -> None:
        """Raise UsageError: threads share the GPUs of their process."""
        raise UsageError("threads cannot have GPUs of their own; use processes")

    def close(self) -> None:
        """Do nothing: nothing runs outside of `run`."""


class DaskEngine:
    """The workers of a Dask cluster, which need wdspec and the modules with user functions.

    Args:
        scheduler: its address, such as `tcp://host:8786`.

    Raises:
        UsageError: dask.distributed is not installed, or no scheduler answers at the address.
    """

    def __init__(self, scheduler: str) -> None:
        self._dask = _import("distributed", "dask")
        try:
            self._client: Any = self._dask.Client(scheduler, timeout=f"{PATIENCE:g}s", set_as_default=False)
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
            if error is None:
                yield work, future.result()
            else:
                yield work, lost(_explain(error, self._dask.KilledWorker))
            future.release()

    def use_gpus(self, gpus: float) -> None:
        """Raise UsageError: Dask does not divide GPUs among its workers."""
        raise UsageError(NO_GPUS.format(engine="dask"))

    def close(self) -> None:
        """Leave the cluster, which cancels the tasks that have not started."""
        self._client.close()


class RayEngine:
    """The workers of a Ray cluster, which need wdspec and the modules with user functions.

    Args:
        address: `host:port`, `ray://host:port`, or `local` for a new cluster that ends with the engine. If it is
            empty, Ray uses the cluster in RAY_ADDRESS or one that runs on this machine, or starts a new one.

    Raises:
        UsageError: Ray is not installed, or no cluster answers at the address.
    """

    def __init__(self, address: str) -> None:
        self._ray = _import("ray", "ray")
        self._gpus = 0.0
        self._actors: list[Any] = []
        # Ray prints what happens to workers on our standard output, and has no setting for it.
        importlib.import_module("ray._private.worker").__dict__["print_to_stdstream"] = _ignore
        from wdspec.run.actors import connect  # imports Ray

        where = f"at `{address}`" if address else "here"
        connect(address, where, log_to_driver=False, logging_level=logging.ERROR)

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, as they finish. Ray repeats the tasks of killed workers and lost nodes."""
        if self._gpus and not self._actors:
            self._actors = self._start_actors(len(works))
        free = deque(self._actors or [self._ray.remote(_call)] * MOST_SUBMITTED)
        left = iter(works)
        running: dict[Any, tuple[W, Any]] = {}
        while True:
            for work in islice(left, len(free)):
                place = free.popleft()
                call = place.call if self._actors else place
                running[call.remote(do, work)] = work, place
            if not running:
                return
            for ended in self._ray.wait(list(running))[0]:
                outcome = self._result(ended, lost)
                work, place = running.pop(ended)
                free.append(place)
                yield work, outcome

    def _result(self, ended: Any, lost: Callable[[str], R]) -> R:
        errors = self._ray.exceptions
        killed = (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.RayActorError,
        )
        try:
            outcome: R = self._ray.get(ended)
        except errors.RayError as error:
            return lost(_explain(getattr(error, "cause", None) or error, killed))
        return outcome

    def _start_actors(self, most: int) -> list[Any]:
        """Start actors with GPUs, each for many tasks: a task with GPUs would end its process, and its model."""
        found = self._ray.cluster_resources().get("GPU", 0)
        count = min(most, int(found / self._gpus))
        if not count:
            raise UsageError(
                f"`map_batches` has `gpus: {self._gpus:g}`, but the Ray cluster has {found:g}; write `gpus: 0` in an "
                "environment to run on processors"
            )
        options = {"num_gpus": self._gpus, "max_restarts": -1, "max_task_retries": TRIES}
        actor = self._ray.remote(**options)(_Actor)
        return [actor.remote() for _ in range(count)]

    def use_gpus(self, gpus: float) -> None:
        """Run tasks in actors that have GPUs, as many as the cluster has GPUs for."""
        self._gpus = gpus

    def close(self) -> None:
        """Leave the cluster, which ends the tasks; a cluster that the engine started ends, too."""
        self._ray.shutdown()


def _call(do: Callable[[W], R], work: W) -> R:
    return do(work)


class _Actor:
    """A process of Ray that has GPUs."""

    def call(self, do: Callable[[W], R], work: W) -> R:
        return do(work)


def _ignore(*values: Any, **options: Any) -> None:
    pass


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        command = install_command(f"wdspec[{extra}]")
        raise UsageError(f"the {extra} engine needs {module}: {command}") from None


def _explain(error: BaseException, killed: type[BaseException] | tuple[type[BaseException], ...]) -> str:
    return KILLED if isinstance(error, killed) else f"{type(error).__name__}: {error}"
