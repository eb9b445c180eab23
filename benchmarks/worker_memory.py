"""The peak memory of a worker: five sources of 40 KB samples, `shuffle: 1000`, streamed; one slot a worker, and eight.

    python -m benchmarks.worker_memory            # a minute, 120 MB in a temporary folder
    python -m benchmarks.worker_memory --quick    # next to nothing: checks that it runs

The private memory of a worker is measured while it reads from a web server on this machine. The target is the sum of
1.3 times the average size of the shuffle buffers, the bytes that may be fetched ahead, and 150 MB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import wdspec
from benchmarks.material import brace_pattern, picture_sample, write_shards
from benchmarks.slow_server import SlowServer
from benchmarks.tables import Asked, Table, show
from wdspec.stores.read_ahead import BUDGET

SOURCES, SHUFFLE, BATCH, SHARDS = 5, 1000, 64, 24
OVERHEAD = 150e6


def most_held(spec: dict[str, Any], batches: int) -> float:
    """The peak private memory of a loader's only worker, in bytes, after any of `batches` batches."""
    most, process = 0.0, psutil.Process()
    others = set(process.children(recursive=True))  # the server among them
    with wdspec.loader(spec, num_workers=1) as loader:
        for _ in zip(range(batches), loader, strict=False):
            for worker in set(process.children(recursive=True)) - others:
                most = max(most, worker.memory_full_info().uss)
    return most


def tables(quick: bool) -> Iterator[Table]:
    lines, asked = [], []
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as text:
        folder = Path(text)
        megabytes = 3.0 if quick else 120.0
        samples = write_shards(folder, "raw", picture_sample, megabytes, SHARDS)
        size = megabytes * 1e6 / samples
        with SlowServer(folder, 0, 1e9) as server:
            urls = brace_pattern(server.url, "raw", SHARDS)
            for slots in (1,) if quick else (1, 8):
                spec = {
                    "defaults": {"decode": "raw", "shuffle": 50 if quick else SHUFFLE},
                    "dataset": [
                        {"name": f"s{n}", "shards": f"{urls}?{n}", "weight": 1} for n in range(SOURCES)
                    ],
                    "elastic": {"ranks": 1, "workers": slots},
                    "batch": BATCH,
                    "epoch": {"batches": 10**6},
                }
                found = most_held(spec, 4 if quick else 8 + slots * 5 * SHUFFLE // BATCH)
                windows = slots * SHUFFLE * size
                allowed = 1.3 * windows + BUDGET + OVERHEAD
                lines.append(
                    [f"{slots}", *(f"{each / 1e6:,.0f}" for each in (windows, BUDGET, allowed, found))]
                )
                what = f"memory: a worker with {slots} slot{'s' * (slots > 1)}"
                asked.append(Asked(what, found / 1e6, round(allowed / 1e6), False, " MB"))
    yield Table(
        f"memory of a worker, {SOURCES} sources of 40 KB samples, `shuffle: {SHUFFLE}`, streamed, MB",
        ["slots a worker", "held for shuffling, on average", "fetched ahead, at most", "target", "measured"],
        lines,
        asked,
    )


if __name__ == "__main__":
    show(tables, __doc__)
