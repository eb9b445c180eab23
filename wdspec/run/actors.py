"""Ray actors as workers: `loader: {kind: ray}`. Ray places them on the nodes of a cluster.

An actor is what a worker process is: it gets tasks and sends back batches, in turn, so order and states are those of
processes. It owns nothing: the states of its slots come back with each batch. If it dies, or its node, another one gets
the tasks that it did not finish, with the states before them; where no CPU is free for it, it shares one.

                 task (states of slots, the first time) ─▶ actor 0 on node A ─▶ batches, states ─┐
    trainer ─────task ───────────────────────────────────▶ actor 1 on node B ─▶ …                ├─▶ in order
        ▲        budget: bytes requested, and not handed over                                    │
        └────────────────────────────────────────────────────────────────────────────────────────┘

Batches wait in Ray's object stores, which would write them to disks if they were full. So there is a budget of bytes
that are requested and not handed over: a quarter of the store of this node, divided among its ranks. The size of the
next batches is estimated by the last ones.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import cycle
from typing import Any, NoReturn
from urllib.parse import urlsplit

import numpy as np

from wdspec.base.amounts import pluralize
from wdspec.base.errors import UsageError, WdspecError, install_command
from wdspec.base.process import Owner
from wdspec.run.out_of_band import Lender, PackedParcel
from wdspec.run.remote import RemoteReader, Setup, pickle_run
from wdspec.run.run import Run
from wdspec.run.steps import Step, Work
from wdspec.run.tasks import Delivery, Pace, Task, WorkerSteps, check_requests, deal_steps

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError, TaskCancelledError
    from ray.experimental import internal_kv
except ModuleNotFoundError as cause:
    raise UsageError(
        f"`loader: {{kind: ray}}` needs {cause.name}: {install_command('wdspec[ray]')}"
    ) from None

log = logging.getLogger("wdspec")

SECONDS = 0.1
"""Work per delivery to aim for: a call of an actor costs all processes together 2 ms."""
BYTES = 1 << 23
"""Approximate size of a delivery of several batches, at most."""
AHEAD = 2
"""Tasks requested from each actor, as many as torch's DataLoader requests from each worker."""
PART_OF_STORE = 4
"""Which part of the object store of this node may have what is requested and not handed over: a quarter."""
TRIES = 3
"""How often an actor may die without a batch in between, until this is an error."""
PLACED_WITHIN = 600.0
"""Seconds to wait for a place for actors; a cluster may have to start nodes."""
REPLACED_WITHIN = 1.0
"""Seconds to wait for a free CPU for an actor that takes the place of one that died; then it shares one."""
_NOTICE_AFTER = 10.0
"""Seconds after which the log says what is waited for, and between two such lines."""
_ANSWERS_WITHIN = 10.0
"""Seconds to wait for an answer of the cluster."""
_FADES = 0.9
"""By how much the largest recent delivery counts less after each other one."""


class Actors(WorkerSteps):
    """Reads steps in Ray actors.

    Args:
        run: what to read.
        workers: number of actors, at least 1.
        ahead: tasks requested from each actor, at most.
        timeout: seconds to wait for a delivery; 0 waits forever.
        pins: whether deliveries are copied into page-locked memory.

    Raises:
        UsageError: no Ray cluster answers, or `ahead` or `timeout` is not a valid number.
    """

    def __init__(
        self, run: Run, workers: int, ahead: int = AHEAD, timeout: float = 0, pins: bool = False
    ) -> None:
        check_requests(ahead, timeout)
        super().__init__(run, workers)
        self._tasks.pace = Pace(SECONDS, BYTES)
        self._setup, self._run_data = replace(Setup.of(run), workers=workers), pickle_run(run)
        self._workers, self._ahead, self._timeout, self._pins = workers, ahead, timeout, pins
        join_cluster()
        self.budget = _choose_budget()
        """Bytes that may be requested and not handed over."""
        self._lender = Lender(self.budget)
        self._run: Any = None
        """The run in Ray's object store."""
        self._driver = ""
        """The job and the node when the actors were started; others after `ray.shutdown`, which ended them."""
        self._seats: list[_Seat] = []
        self._newest: object = None
        """Stands for the iteration that requests now; an older one may be closed later."""
        self._finalizer: weakref.finalize[..., Actors] | None = None
        self._size = 0.0
        """Bytes of a delivery, estimated; 0 if unknown."""

    def read(self, work: Work) -> Iterator[Step]:
        """Yield the steps in order.

        Raises:
            UsageError: a node cannot read the spec as the trainer would, or there is no room for the actors.
            WdspecError: an actor could not read something; its place has the node.
            RuntimeError: actors died again and again, or nothing arrived in time.
        """
        self._begin(work)
        deliveries = self._deliver()
        try:
            yield from deal_steps(deliveries, self._tasks, self.tally)
        finally:
            deliveries.close()

    def close(self) -> None:
        """End the actors."""
        self.tally.settle()
        if self._finalizer is not None:
            self._finalizer()
        self._seats, self._run = [], None

    def _deliver(self) -> Generator[Delivery]:
        """Yield the deliveries for the tasks in order; the actors take turns."""
        self._start()
        self._cancel()  # what an older iteration has requested
        self._newest = number = object()
        tasks, turns = iter(self._tasks), cycle(self._seats)
        sent: deque[_Seat] = deque()
        """The actors whose deliveries are due, in order."""
        try:
            while True:
                while self._has_room(len(sent)) and (task := next(tasks, None)) is not None:
                    seat = next(turns)
                    seat.send(task)
                    sent.append(seat)
                if not sent:
                    return
                self._fetch_ahead()
                delivery = self._take(sent.popleft())
                yield delivery
        finally:
            if self._newest is number:
                self._cancel()

    def _cancel(self) -> None:
        """Cancel all that was requested."""
        for seat in self._seats:
            seat.cancel()

    def _has_room(self, sent: int) -> bool:
        """Whether one more delivery may be requested. One always may, as the loop waits for it."""
        if not self._size:
            return sent < self._workers
        return not sent or (sent < self._workers * self._ahead and (sent + 1) * self._size <= self.budget)

    def _fetch_ahead(self) -> None:
        """Let Ray bring to this node what has been read elsewhere."""
        waiting = [pending.result for seat in self._seats for pending in seat.pending]
        ray.wait(waiting, num_returns=len(waiting), timeout=0)

    def _take(self, seat: _Seat) -> Delivery:
        """Return the next delivery of an actor; from another one, if it died."""
        deaths = 0
        while True:
            try:
                head, *arrays = ray.get(seat.pending[0].result, timeout=self._timeout or None)
                break
            except GetTimeoutError:
                self.close()
                raise RuntimeError(
                    f"no batch came within {self._timeout:g} s (`loader: {{timeout: …}}`) from {seat}; check whether "
                    "the store, network or mount of the shards hangs there"
                ) from None
            except (RayTaskError, TaskCancelledError):
                self.close()
                raise
            except RayError as error:
                deaths += 1
                self._replace(seat, error, deaths)
        delivery: Delivery
        delivery, states = pickle.loads(head)
        self._size = max(delivery.size, 1, self._size * _FADES)
        self._lender.lend(arrays, [each for each in delivery.parcels if isinstance(each, PackedParcel)])
        seat.receive(states)
        return delivery.pin_memory() if self._pins else delivery

    def _replace(self, seat: _Seat, error: Exception, deaths: int) -> None:
        """Let another actor read what one that died did not deliver.

        Raises:
            WdspecError: it ended itself, since a read hung; or the new actor cannot read there.
            RuntimeError: too many have died.
        """
        try:
            if (reason := seat.last_words()) is not None:
                raise reason from None
            if deaths == TRIES:
                raise RuntimeError(
                    f"{seat} died, and so did those that took its place, {TRIES} times in a row; usually memory was "
                    "short: use fewer workers, a smaller `shuffle` or smaller batches. The next iteration resumes "
                    f"here, with new actors. Ray says: {error}"
                ) from error
            log.warning("%s died; another one reads its tasks again (%d)", seat, len(seat.pending))
            seat.start(self._setup, self._run)
            if not ray.wait([seat.placed], timeout=REPLACED_WITHIN)[0]:
                log.warning("no CPU is free for %s, which shares one with others", seat)
                seat.start(self._setup, self._run, cpus=0)
            self._await_start([seat])
            seat.send_again()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """Start the actors, and wait until each has compared its node with this one."""
        join_cluster()
        context = ray.get_runtime_context()
        driver = f"{context.get_job_id()} at {context.get_node_id()}"
        if self._driver != driver and self._finalizer is not None:
            self._finalizer.detach()
            self._seats = []
        if self._seats:
            return
        self._driver = driver
        self._run = ray.put(np.frombuffer(self._run_data, np.uint8))
        self._seats = [_Seat(number) for number in range(self._workers)]
        # No actor is detached, so Ray ends them with the job, however this process ends.
        self._finalizer = weakref.finalize(self, _end, self._seats, Owner())
        try:
            for seat in self._seats:
                seat.start(self._setup, self._run)
            self._await_start(self._seats)
        except BaseException:
            self.close()
            raise

    def _await_start(self, seats: list[_Seat]) -> None:
        """Wait until actors are ready.

        Raises:
            UsageError: a node differs from this one, or there is no room for all.
            RuntimeError: an actor cannot start.
        """
        began = time.monotonic()
        waiting = [seat.placed for seat in seats]
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_NOTICE_AFTER)
            if waiting:
                room = _describe_room(len(waiting), len(seats))
                if time.monotonic() - began > PLACED_WITHIN:
                    raise UsageError(f"{room}; add nodes, or write fewer workers (`loader: {{workers: …}}`)")
                log.warning("%s; waiting up to %g s for room", room, PLACED_WITHIN)
        for seat in seats:
            seat.note_start()


class _Pending:
    """A task of an actor, and Ray's reference to its result."""

    def __init__(self, task: Task, result: Any) -> None:
        self.task, self.result = task, result


class _Seat:
    """A worker of the loader: the actor that reads for it now, what it was asked for, and the states of its slots."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.pending: deque[_Pending] = deque()
        self.placed: Any = None
        """Ray's reference to the name of the node that has the actor."""
        self._started: Any = None
        """Ray's reference to why the actor cannot read."""
        self._actor: Any = None
        self._node = ""
        self._states: dict[int, bytes] = {}
        """The states after the last delivery."""

    def __str__(self) -> str:
        return f"actor {self._number}{f' on node {self._node}' if self._node else ''}"

    def start(self, setup: Setup, run: Any, cpus: int = 1) -> None:
        """Start an actor in place of the present one, if any; without `cpus`, on any node at once."""
        self.end()
        # Workers on all nodes, rather than as many as fit on the first one.
        options = {"num_cpus": cpus, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(**options)(_actor_class()).remote()
        self.placed = self._actor.place.remote()
        self._started = self._actor.start.remote(pickle.dumps(replace(setup, worker=self._number)), run)

    def note_start(self) -> None:
        """Take the answer of an actor that was started. Raises why it cannot read."""
        try:
            self._node = ray.get(self.placed)
            refusal = self._await_answer()
        except RayTaskError as error:
            raise RuntimeError(f"{self} could not start. Ray says: {error}") from error
        except RayError:
            return  # it died, as its tasks will say, so another one will take its place
        if isinstance(refusal, str):
            raise UsageError(f"node {self._node} cannot read this spec as the trainer would: {refusal}")
        if refusal is not None:
            raise pickle.loads(refusal)

    def _await_answer(self) -> Any:
        """Return why the actor cannot read; None if it can. Raises UsageError if it says nothing."""
        began = time.monotonic()
        while time.monotonic() - began < PLACED_WITHIN:
            try:
                return ray.get(self._started, timeout=_NOTICE_AFTER)
            except GetTimeoutError:
                log.warning("%s looks for what the spec names; waiting up to %g s", self, PLACED_WITHIN)
        raise UsageError(f"{self} does not answer; check whether the folders that the spec names hang there")

    def send(self, task: Task) -> None:
        """Request a task."""
        if task.slot_states is not None:
            self._states = dict(task.slot_states)
        self.pending.append(_Pending(task, self._actor.read.remote(pickle.dumps(task))))

    def send_again(self) -> None:
        """Request the tasks that were not delivered from a new actor, which has no states yet."""
        tasks, self.pending = [each.task for each in self.pending], deque()
        for number, task in enumerate(tasks):
            self.send(task if number else task._replace(slot_states=self._states))

    def receive(self, states: dict[int, bytes]) -> None:
        """Note the states that came with the delivery of the first task."""
        self.pending.popleft()
        self._states.update(states)

    def cancel(self) -> None:
        """Cancel what was requested. An actor ends the task that it reads."""
        if ray.is_initialized():  # else it would start
            for each in self.pending:
                ray.cancel(each.result)
        self.pending.clear()

    def last_words(self) -> WdspecError | None:
        """Why the actor ended itself, if it did."""
        data = internal_kv._internal_kv_get(_key_of(self._actor._actor_id.hex()))
        return pickle.loads(data) if data else None

    def end(self) -> None:
        """End the actor."""
        if self._actor is not None and ray.is_initialized():  # else it would start
            with suppress(RayError, ValueError):  # it has ended
                ray.kill(self._actor)
        self._actor = None


def _end(seats: list[_Seat], owner: Owner) -> None:
    """End the actors, unless this process was forked from the one that started them."""
    if not owner.is_other:
        for seat in seats:
            seat.end()


def _key_of(actor: str) -> bytes:
    """The key under which an actor says why it ended itself."""
    return f"wdspec:{actor}".encode()


def _actor_class() -> type:
    """Return the class of actors. Ray sends a class of a function as code, so nodes without wdspec can say so."""

    class WdspecReader:
        def place(self) -> str:
            """Return the name of the node."""
            import platform

            import ray

            return f"{ray.util.get_node_ip_address()} ({platform.node()})"

        def start(self, setup: bytes, run: Any) -> bytes | str | None:
            """Compare the node with the trainer's, and return why it cannot read: an error, or a text."""
            import pickle
            import sys

            try:
                from wdspec.base.errors import WdspecError
                from wdspec.run import actors
            except ImportError as error:
                return f"{sys.executable} there has no wdspec like that of the trainer: {error}; install the same"
            try:
                self._reader = actors.start_reader(pickle.loads(setup), run, self.place())
            except WdspecError as error:
                return pickle.dumps(error)
            return None

        def read(self, task: bytes) -> list[Any]:
            """Return the delivery for a task."""
            arrays: list[Any] = self._reader.read(task)
            return arrays

    return WdspecReader


def start_reader(setup: Setup, run: Any, node: str) -> RemoteReader:
    """Return the reader of an actor; called there."""
    key = _key_of(ray.get_runtime_context().get_actor_id())

    def leave(error: WdspecError) -> NoReturn:
        internal_kv._internal_kv_put(key, pickle.dumps(error))
        os._exit(1)

    reader = RemoteReader(setup, run, node, leave)
    gc.freeze()  # as in worker processes: collections take less time
    return reader


def join_cluster(starts: bool = True) -> None:
    """Connect to the Ray cluster of `RAY_ADDRESS`, or else to one that runs on this machine, unless this was done.

    Args:
        starts: whether to start Ray on this machine if there is none.

    Raises:
        UsageError: no cluster answers, or the address is that of Ray's client.
    """
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("ray://"):
        raise UsageError(
            f"RAY_ADDRESS={address} is for Ray's client, which shares no memory with the cluster: start training on a "
            "node of it (`ray job submit`), or add this machine with `ray start --address=HOST:6379`"
        )
    with _signals_kept():
        connect(address or ("" if starts else "auto"), f"at RAY_ADDRESS={address}" if address else "here")
    log.info("workers are Ray actors: %s", describe_cluster()[0])


def connect(address: str, where: str, **options: Any) -> None:
    """Connect to a Ray cluster.

    Args:
        address: `host:port`, `ray://host:port`, `auto`, or `local` to start one; if it is empty, Ray uses one that runs
            on this machine, or starts it.
        where: the same in words, for the error.
        options: those of `ray.init`.

    Raises:
        UsageError: no cluster answers.
    """
    try:
        if address not in ("", "auto", "local"):  # Ray itself would try for minutes
            place = urlsplit(address if "://" in address else f"//{address}")
            port = place.port or (10001 if place.scheme == "ray" else 6379)
            socket.create_connection((place.hostname or "", port), _ANSWERS_WITHIN).close()
        ray.init(address or None, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"no Ray cluster answers {where}: {error}; start one with `ray start --head`, and add nodes with "
            "`ray start --address=HOST:PORT`"
        ) from None


def describe_cluster() -> tuple[str, float]:
    """Return what the cluster has, in words, and its free CPUs."""
    total, free = ray.cluster_resources().get("CPU", 0), ray.available_resources().get("CPU", 0)
    nodes = sum(node["Alive"] for node in ray.nodes())
    address = ray.get_runtime_context().gcs_address
    return f"{address}, {pluralize(nodes, 'node')}, {total:g} CPUs, {free:g} free", free


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the handlers of signals of this process: Ray installs its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # else it is not one of Python
                signal.signal(number, handler)


def _choose_budget() -> int:
    """Bytes that may be requested and not handed over: this rank's part of the object store of this node."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    here = ray.get_runtime_context().get_node_id()
    sizes = [
        node["Resources"].get("object_store_memory", 0) for node in ray.nodes() if node["NodeID"] == here
    ]
    return int(sum(sizes) / PART_OF_STORE / max(1, int(ranks) if ranks.isdecimal() else 1))


def _describe_room(missing: int, actors: int) -> str:
    total, free = ray.cluster_resources().get("CPU", 0), ray.available_resources().get("CPU", 0)
    return (
        f"{missing} of {actors} actors have not started: the Ray cluster has {total:g} CPUs, of which {free:g} are "
        "free, and each actor needs one"
    )
