"""The engine for the ranks of a launcher, such as torchrun or srun, which share a folder.

    rank 0:  TorchrunEngine ──tasks──▶ `NAME.in`  ──▶ workers of all ranks: `serve`
                            ◀─outcomes─ `NAME.out` ◀──

Each worker has two files, to which messages are only appended, each by one process. Appending and opening again is what
also works on NFS, which caches the names in a folder for up to a minute. Both sides send a beat every few seconds, so
that each finds out when the other has ended.

Giving rank r every R-th task instead would save half of these lines. But the job would then take 1.8 to 2.5 times the
ideal time if one rank is half as fast (1.0 to 1.3 here), and 2.7 times it if one shard in 20 is ten times as long (1.3
here), and the tasks of a killed rank would not be done.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import uuid4

from wdspec.base.errors import UsageError
from wdspec.base.files import LockFile
from wdspec.jobs.engine import KILLED, NO_GPUS, Engine, Lane
from wdspec.planning.topology import find_seat
from wdspec.spec.files import reason_of

W = TypeVar("W")
R = TypeVar("R")

BEAT = 1.0
"""Seconds between beats, and between looks for new workers."""
SILENCE = 60.0
"""After this many seconds without a message, the other side has ended."""
POLL = 0.02
"""Seconds between two looks at a file; rank 0 takes a millisecond more for each worker."""
TRIES = 4
"""How many workers may end with a task before it counts as killed."""
OVER = "over"
"""The last message to a worker."""


@contextmanager
def using_ranks(folder: str, jobs: int) -> Iterator[Callable[[], Engine] | None]:
    """On rank 0, give the function that returns the engine. On other ranks, work until rank 0 ends, and give None.

    Args:
        folder: a folder that all ranks share; created if needed.
        jobs: number of workers, each a process, of this rank.

    Raises:
        UsageError: this process has no rank, the folder cannot be written, or another job uses it.
    """
    seat = find_seat()
    if seat.is_assumed:
        raise UsageError(
            "the torchrun engine runs on the ranks of a launcher, but RANK and WORLD_SIZE (or SLURM_PROCID and "
            "SLURM_NTASKS) are not set; start it with `torchrun -m wdspec …` or `srun wdspec …`"
        )
    try:
        os.makedirs(folder, exist_ok=True)
        lock = LockFile(os.path.join(folder, "lock"))
        is_taken = seat.rank == 0 and not lock.try_acquire()
    except OSError as error:
        raise UsageError(f"cannot write to `{folder}`, which all ranks share: {reason_of(error)}") from None
    if is_taken:
        raise UsageError(f"another job uses `{folder}`; give each job its own folder")
    names = [f"{seat.rank}-{job}-{uuid4().hex[:8]}" for job in range(jobs)]
    with ThreadPoolExecutor(jobs, "wdspec-serve") as pool:
        over = threading.Event()
        own = [pool.submit(serve, folder, over, name) for name in names]
        if seat.rank:
            for each in own:
                each.result()
            yield None
            return
        engine = TorchrunEngine(folder, own, seat.world_size)
        try:
            yield lambda: engine
        finally:
            engine.end()
            lock.release()


class _Messages:
    """A file of messages. One process appends, another one reads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read = 0
        self._lock = threading.Lock()

    def append(self, message: object) -> None:
        data = pickle.dumps(message)
        with self._lock, open(self.path, "ab", opener=_open_existing) as file:
            file.write(len(data).to_bytes(8, "big") + data)

    def read_new(self) -> list[Any]:
        """The messages since the last call, without one that is still being written."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:  # the folder is cached, or the worker has ended
            return []
        found, at = [], 0
        while (end := at + 8 + int.from_bytes(data[at : at + 8], "big")) <= len(data) and at + 8 <= len(data):
            found.append(pickle.loads(data[at + 8 : end]))
            at = end
        self._read += at
        return found


def _open_existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


class _Worker:
    """What rank 0 knows of a worker."""

    def __init__(self, folder: str, name: str) -> None:
        self.rank = name.partition("-")[0]
        path = os.path.join(folder, name)
        self._inbox, self._outbox = _Messages(path + ".in"), _Messages(path + ".out")
        self._outbox.read_new()  # of earlier jobs; the worker may have ended long ago
        self.heard = float("-inf")
        self.tasks: list[int] = []
        """The numbers of its tasks: the one that it works on, then perhaps one that waits."""

    @property
    def is_silent(self) -> bool:
        """Whether it has ended, or has not answered yet."""
        return time.monotonic() - self.heard > SILENCE

    def send(self, message: object) -> None:
        with suppress(OSError):  # a worker that does not get it is found silent
            self._inbox.append(message)

    def receive(self) -> list[Any]:
        """The new outcomes."""
        found = self._outbox.read_new()
        if found:
            self.heard = time.monotonic()
        return [message for message in found if message is not None]


def _take_back(worker: _Worker, running: dict[int, tuple[W, int]], waiting: deque[tuple[W, int]]) -> list[W]:
    """Take back the tasks of a silent worker, to give them to another one. Return those that have no tries left."""
    failed = []
    for place, number in enumerate(worker.tasks):
        if number in running:
            work, tries = running.pop(number)
            left = tries - (place == 0)  # the first one may have killed it
            if left:
                waiting.appendleft((work, left))
            else:
                failed.append(work)
    worker.tasks.clear()
    return failed


class TorchrunEngine:
    """The workers whose files are in a folder. A thread meets new ones and sends beats until `end`.

    Args:
        folder: the folder that all ranks share.
        own: the workers of this rank. Their errors are raised.
        ranks: number of ranks.
    """

    def __init__(self, folder: str, own: Sequence[Future[None]], ranks: int) -> None:
        self._folder, self._own, self._ranks = folder, own, ranks
        self._workers: dict[str, _Worker] = {}
        self._last = 0
        """Number of the last task."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._meet, name="wdspec-torchrun", daemon=True)
        self._thread.start()

    def run(
        self, do: Callable[[W], R], works: Sequence[W], lost: Callable[[str], R]
    ) -> Generator[tuple[W, R]]:
        """Yield each task with its outcome, as they finish. The task of a silent worker is given to another one."""
        waiting = deque((work, TRIES) for work in works)
        running: dict[int, tuple[W, int]] = {}
        while waiting or running:
            workers = list(self._workers.values())
            for worker in workers:
                for number, is_done, outcome in worker.receive():
                    if number in worker.tasks:
                        worker.tasks.remove(number)
                    if number in running:
                        work, _ = running.pop(number)
                        yield work, outcome if is_done else lost(outcome)
                if worker.is_silent:
                    for work in _take_back(worker, running, waiting):
                        yield work, lost(KILLED)
            self._hand_out(do, [worker for worker in workers if not worker.is_silent], running, waiting)
            for own in self._own:
                if own.done():
                    own.result()
            time.sleep(POLL + 0.001 * len(workers))

    def _hand_out(
        self,
        do: Callable[[W], R],
        workers: Sequence[_Worker],
        running: dict[int, tuple[W, int]],
        waiting: deque[tuple[W, int]],
    ) -> None:
        """Send waiting tasks to workers that have fewer than two."""
        # A second task hides the time that messages take; the last ones go to whoever is free.
        for most in (1, 2):
            for worker in workers:
                if len(worker.tasks) < most and len(waiting) > (most - 1) * len(workers):
                    work, tries = waiting.popleft()
                    self._last += 1
                    worker.tasks.append(self._last)
                    running[self._last] = work, tries
                    worker.send((self._last, do, work))

    def use_gpus(self, gpus: float) -> None:
        """Raise UsageError: launchers give their ranks GPUs in different ways."""
        raise UsageError(NO_GPUS.format(engine="torchrun"))

    def close(self) -> None:
        """Forget the tasks that are still running; they end with `end`."""

    def end(self) -> None:
        """End the workers, also those of ranks that are still starting."""
        self._ended.set()
        self._thread.join()
        met: set[str] = set()
        deadline = time.monotonic() + SILENCE
        while len(met) < self._ranks and time.monotonic() < deadline:
            self._greet()
            for worker in self._workers.values():
                worker.receive()
                if worker.heard > float("-inf"):
                    met.add(worker.rank)
                    worker.send(OVER)
            time.sleep(POLL)

    def _meet(self) -> None:
        while not self._ended.is_set():
            self._greet()
            self._ended.wait(BEAT)

    def _greet(self) -> None:
        with suppress(OSError):  # such as ESTALE of NFS; the next look finds the new workers
            for entry in os.listdir(self._folder):
                name, kind = os.path.splitext(entry)
                if kind == ".out" and name not in self._workers:
                    self._workers[name] = _Worker(self._folder, name)
        for worker in self._workers.values():
            worker.send(None)


def serve(folder: str, over: threading.Event, name: str) -> None:
    """Work on the tasks that rank 0 sends, in another process, until it says that the job is over.

    Args:
        folder: the folder that all ranks share.
        over: set when one of the workers of this rank hears that.
        name: of this worker; its rank, a dash and what makes it unique.

    Raises:
        UsageError: nothing comes from rank 0.
    """
    path = os.path.join(folder, name)
    inbox, outbox = _Messages(path + ".in"), _Messages(path + ".out")
    tasks: deque[tuple[int, Any, Any]] = deque()
    for each in (inbox, outbox):
        open(each.path, "xb").close()
    lane, future, number = Lane(), Future[Any](), 0
    is_idle = True
    heard, beat = time.monotonic(), float("-inf")
    try:
        while not over.is_set():
            for message in inbox.read_new():
                heard = time.monotonic()
                if message == OVER:
                    over.set()
                elif message is not None:
                    tasks.append(message)
            if not is_idle and future.done():
                try:
                    outbox.append((number, True, future.result()))
                except BrokenProcessPool:
                    outbox.append((number, False, KILLED))
                is_idle = True
            if is_idle and tasks:
                number, do, work = tasks.popleft()
                future = lane.submit(do, work)
                is_idle = False
            if time.monotonic() - beat > BEAT:
                beat = time.monotonic()
                outbox.append(None)
            if time.monotonic() - heard > SILENCE:
                raise UsageError(
                    f"rank 0 has written nothing to `{folder}` for {SILENCE:g} seconds; look for its error, and check "
                    "that all nodes share this folder"
                )
            wait([] if is_idle else [future], POLL)
            if is_idle:
                time.sleep(POLL)
    finally:
        lane.stop()
        for each in (inbox, outbox):
            with suppress(OSError):
                os.remove(each.path)
