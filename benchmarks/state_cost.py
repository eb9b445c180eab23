"""The cost of states for the training process, per batch.

    python -m benchmarks.state_cost            # a minute
    python -m benchmarks.state_cost --quick    # a few batches: checks that it runs

Two loaders read the same tiny samples through one worker process; in one of them, all code for states is
removed: workers send none, and the training process keeps none. The processor time of the training process is compared
(`time.thread_time`, so waiting for the worker does not count), in turns. The cost for the worker of packing the states
of each batch is timed in this process. `state_dict()` is timed separately, and so is `json.dumps` of its result.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wdspec
from benchmarks.material import brace_pattern, text_sample, write_shards
from benchmarks.tables import Asked, Table, show
from wdspec.planning.past import Changes
from wdspec.planning.topology import Seat
from wdspec.run import tasks
from wdspec.run.loader import Loader
from wdspec.run.parcels import Bundle, Parcel
from wdspec.run.run import make_run
from wdspec.run.steps import Work
from wdspec.run.tasks import Delivery, TaskReader
from wdspec.shards.shards import list_readable_shards, plan_shards
from wdspec.spec.language.steps import StepRanges


class StatelessParcel(Parcel):
    """A step without its states."""

    def __init__(self, value: Any, bundle: Bundle | None = None) -> None:
        super().__init__((value[0], {}, *value[2:]), bundle)


class StatelessDataset(TaskReader):
    """Sends only batches."""

    def __getitem__(self, task: Any) -> Delivery:
        tasks.Parcel = StatelessParcel  # type: ignore[misc]  # in the worker
        return super().__getitem__(task)


def without_state(loader: Loader) -> Iterator[Any]:
    """The batches of an epoch, with nothing noted."""
    processes: Any = loader.stream.steps
    processes._loader.dataset.__class__ = StatelessDataset  # before the workers start
    for items, *_ in processes.read(
        Work(0, loader.run.plan.timeline.end(0), 1, dict, Changes(), StepRanges())
    ):
        yield items[-1]


def seconds(batches: Iterator[Any], count: int) -> float:
    """This thread's processor time for `count` batches, after the first, which starts the worker."""
    next(batches)
    start = time.thread_time()
    for _ in range(count):
        next(batches)
    return time.thread_time() - start


def packing(spec: dict[str, Any], batches: int) -> float:
    """Microseconds a batch that a worker takes to pack the states of the slots that it read."""
    checked = wdspec.load(spec)
    shards = list_readable_shards(checked)
    reader = make_run(plan_shards(checked, shards, 1, 0), checked, shards, Seat()).reader()
    times = []
    for number in range(batches):
        reader.batch(number)
        start = time.perf_counter()
        reader.states(number)
        times.append(time.perf_counter() - start)
    reader.close()
    return statistics.median(times) * 1e6


def measure(spec: dict[str, Any], batches: int, turns: int) -> dict[str, float]:
    """Microseconds a batch, with and without state, and of `state_dict()`; the size of the state."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(turns):
        for stateful in (True, False) if turn % 2 else (False, True):
            with wdspec.loader(spec, num_workers=1) as loader:
                run = iter(loader) if stateful else without_state(loader)
                times[stateful].append(seconds(run, batches) / batches * 1e6)
                if stateful:
                    saved = time.perf_counter()
                    state = loader.state_dict()
                    saving = (time.perf_counter() - saved) * 1e6
                    saved = time.perf_counter()
                    for _ in range(10):
                        text = json.dumps(loader.state_dict())
                    again = (time.perf_counter() - saved) * 1e5
    slots = loader.plan.topology.slots
    each = len(json.dumps(state["ranks"])) / max(1, slots * len(state["sources"]))
    return {
        "with": statistics.median(times[True]),
        "without": statistics.median(times[False]),
        "packing": packing(spec, batches),
        "first state_dict": saving,
        "state_dict and JSON": again,
        "bytes": len(text),
        "bytes a slot and source": each,
    }


def tables(quick: bool) -> Iterator[Table]:
    # Enough batches that a worker sends several of them in a bundle.
    batches, turns = 1500, 1 if quick else 5
    topologies = [(1, 1, 1), (200, 1, 1), (5, 16, 8)]
    lines, asked = [], []
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        write_shards(Path(folder), "text", text_sample, 0.2 if quick else 4, shards=8)
        urls = brace_pattern(Path(folder), "text", shards=8)
        for sources, ranks, workers in topologies[: 1 if quick else None]:
            spec = {
                "dataset": [{"name": f"s{n}", "shards": urls, "decode": "raw"} for n in range(sources)],
                "defaults": {"shuffle": 100, "extensions": "json"},
                "elastic": {"ranks": ranks, "workers": workers},
                "batch": 1,
            }
            m = measure(spec, batches, turns)
            carried = m["with"] - m["without"]
            lines.append(
                [
                    f"{sources}, {ranks} x {workers}",
                    *(f"{each:.1f}" for each in (m["with"], m["without"], carried, m["packing"])),
                    *(f"{m[name]:.0f}" for name in ("first state_dict", "state_dict and JSON")),
                    f"{m['bytes']:,}",
                    f"{m['bytes a slot and source']:.0f}",
                ]
            )
            what = f"state: carrying it, {sources} source{'s' * (sources > 1)}, a batch"
            asked.append(Asked(what, max(carried, 0), 50, False, " µs"))
    yield Table(
        "what carrying the state costs, processor time of the training process for a batch of one tiny sample, µs",
        [
            "sources, canonical ranks x workers",
            "with state",
            "without",
            "carrying it",
            "packing it, in the worker",
            "first `state_dict()`",
            "later, with JSON",
            "state, bytes",
            "a slot and source",
        ],
        lines,
        asked,
    )


if __name__ == "__main__":
    show(tables, __doc__)
