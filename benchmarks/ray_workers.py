"""Workers on Ray compared with worker processes: processor time for a batch, and the time to the first batch.

    python benchmarks/ray_workers.py            # some minutes, on two CPUs
    python benchmarks/ray_workers.py --quick    # few batches: checks that it runs

One worker of each kind reads the same shards in turns. The first table has the processor time of all processes for a
batch of 64, in ms: of this process, the worker and, with `kind: ray`, all of Ray's own. The second one has seconds
from the call to the first batch, in a cluster that runs already, next to Ray Data's; medians of turns. Needs the extra
`ray`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [sys.path[0], os.environ.get("PYTHONPATH", "")]
)  # of Ray's workers

import numpy as np
import psutil
import ray

import wdspec
import wdspec.ray
from benchmarks.samples import Photographs, text

SIZE = 64
CASES: dict[str, tuple[Callable[[Random, int], dict[str, Any]], dict[str, Any]]] = {
    "texts of 0.7 KB": (text, {}),
    "JPEGs of 40 KB, cropped to 224×224": (
        Photographs(640, 480, 80, 16),
        {"extensions": "jpg", "decode": "rgb8+random_resized_crop=224"},
    ),
    "arrays of 3×224×224 bytes, 9.6 MB": (lambda rng, number: {"npy": array(number)}, {"decode": "npy"}),
}


def array(number: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.full((3, 224, 224), number % 256, np.uint8))
    return file.getvalue()


def write(folder: Path, make: Callable[[Random, int], dict[str, Any]], samples: int) -> str:
    rng = Random(0)
    folder.mkdir()
    with wdspec.ShardWriter(f"{folder}/a-%06d.tar", maxcount=-(-samples // 4), verbose=0) as out:
        for number in range(samples):
            out.write({"__key__": f"sample{number:09d}", **make(rng, number)})
    return f"{folder}/a-{{000000..000003}}.tar"


def spec_of(shards: str, kind: str, keys: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset": [{"shards": shards, "shuffle": 16, **keys}],
        "batch": SIZE,
        "loader": {"kind": kind, "workers": 1},
    }


def processor_times() -> dict[int, float]:
    """Seconds of this process and of all that it has started, by pid; actors that end do so at any time."""
    this, found = psutil.Process(), {}
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            found[process.pid] = sum(process.cpu_times()[:2])
    return found


def spend(batches: Iterator[Any], seconds: float) -> tuple[float, float]:
    """Return ms of processor time for a batch, of all processes and of this one."""
    count, before, until = 0, processor_times(), time.perf_counter() + seconds
    while count < 2 or time.perf_counter() < until:
        next(batches)
        count += 1
    spent = {pid: now - before.get(pid, 0) for pid, now in processor_times().items()}
    return 1e3 * sum(spent.values()) / count, 1e3 * spent[os.getpid()] / count


def show(title: str, columns: list[str], lines: list[list[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|--{'|--:' * (len(columns) - 1)}|")
    for line in lines:
        print(f"| {' | '.join(line)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few samples and 1 turn")
    parser.add_argument("--turns", type=int, default=5, help="timed turns of each side (default: 5)")
    parser.add_argument("--seconds", type=float, default=5, help="of each turn (default: 5)")
    options = parser.parse_args()
    turns, seconds = (1, 0.2) if options.quick else (options.turns, options.seconds)
    ray.init("local", num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as folder:
        costs, firsts = [], []
        for number, (case, (make, keys)) in enumerate(CASES.items()):
            shards = write(Path(folder, str(number)), make, 256 if options.quick else 2048)
            found: dict[str, list[tuple[float, float]]] = {"processes": [], "ray": []}
            first: dict[str, list[float]] = {"processes": [], "ray": [], "wdspec.ray.read": []}
            for _, kind in itertools.product(range(turns), found):
                start = time.perf_counter()
                workers = 0 if kind == "none" else 1
                with wdspec.loader(
                    spec_of(shards, kind.replace("none", "processes"), keys), num_workers=workers
                ) as loader:
                    batches = iter(loader)
                    next(batches)
                    first[kind].append(time.perf_counter() - start)
                    for _ in range(2 if options.quick else 20):  # until deliveries have their size
                        next(batches)
                    found[kind].append(spend(batches, seconds))
            for _ in range(turns):
                start = time.perf_counter()
                dataset = wdspec.ray.read(spec_of(shards, "processes", keys))
                next(iter(dataset.iter_batches(batch_size=SIZE)))
                first["wdspec.ray.read"].append(time.perf_counter() - start)
            middle = {
                kind: [statistics.median(each) for each in zip(*some, strict=True)]
                for kind, some in found.items()
            }
            costs.append(
                [case]
                + [f"{middle[kind][0]:,.2f}" for kind in found]
                + [f"{middle['ray'][0] / middle['processes'][0]:.2f}x"]
                + [f"{middle[kind][1]:,.2f}" for kind in ("processes", "ray")]
            )
            firsts.append([case, *(f"{statistics.median(some):.2f}" for some in first.values())])
    ray.shutdown()
    own = ["of these in the training process: 1 process", "1 actor"]
    show(
        "ms of processor time for a batch",
        ["batches of 64", "1 process", "1 actor", "ratio", *own],
        costs,
    )
    show(
        "Seconds to the first batch",
        ["batches of 64", "1 process", "1 actor", "Ray Data, wdspec.ray.read"],
        firsts,
    )


if __name__ == "__main__":
    main()
