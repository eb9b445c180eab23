"""Resuming at sample 1,000,000 compared with a fresh start: seconds to the first batch, and bytes read for it.

    python -m benchmarks.resume_time            # two minutes, 500 MB in a temporary folder
    python -m benchmarks.resume_time --quick    # at sample 2,000: checks that it runs

A program is timed from the start of Python to the first batch; a loader from `wdspec.loader` to the first batch:
the spec is checked, shards are listed, workers start. The shards are uncompressed tars of tiny samples on a local
disk, in the page cache; the state is that of a real run up to there, whose time is that of skipping: reading and
dropping all earlier samples. The bytes show that a resume reads only the held samples of each source again (in blocks
of 256 KB).
"""

from __future__ import annotations

import io
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import wdspec
from benchmarks.material import brace_pattern, write_shards
from benchmarks.rows import BATCH
from benchmarks.tables import Asked, Table, show
from wdspec.stores import local as local_store

WHY = "what was held is read again, up to 3.6 times `shuffle` samples; a fresh loader reads a few hundred"
"""Of a process that has all its modules, and needs no worker."""


def small_sample(rng: random.Random, index: int) -> dict[str, bytes]:
    """One field of 400 bytes: with its header and padding, 1 KB in the shard."""
    return {"txt": rng.randbytes(200).hex().encode()}


class CountedFile(io.FileIO):
    """A local file that counts the bytes read from all of its kind."""

    total = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        CountedFile.total += len(data)
        return data


def first_batch(spec: dict[str, Any], workers: int, state: str | None) -> float:
    """Seconds to the first batch; without workers of processor time, which other programs do not change."""
    clock = time.perf_counter if workers else time.process_time
    start = clock()
    with wdspec.loader(spec, num_workers=workers) as loader:
        if state is not None:
            loader.load_state_dict(json.loads(state))
        next(iter(loader))
        return clock() - start


PROGRAM = """
import json, sys, wdspec
with wdspec.loader(json.loads(sys.argv[1]), num_workers=1) as loader:
    if sys.argv[2]:
        loader.load_state_dict(json.loads(sys.argv[2]))
    next(iter(loader))
    print("there", flush=True)
"""


def program_first_batch(spec: dict[str, Any], state: str | None) -> float:
    """Seconds from starting Python to the first batch, through one worker."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(spec), state or ""]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        return time.perf_counter() - start


def bytes_of_first_batch(spec: dict[str, Any], state: str | None) -> int:
    """Bytes read from shards for the first batch, in this process."""
    original = local_store.open_file
    local_store.open_file = CountedFile  # type: ignore[assignment]
    CountedFile.total = 0
    try:
        first_batch(spec, 0, state)
    finally:
        local_store.open_file = original
    return CountedFile.total


def state_after(spec: dict[str, Any], samples: int) -> tuple[str, float]:
    """The state of a run after `samples` samples, and the processor time to get there."""
    start = time.process_time()
    with wdspec.loader(spec, num_workers=0) as loader:
        for _, _batch in zip(range(samples // BATCH), loader, strict=False):
            pass
        return json.dumps(loader.state_dict()), time.process_time() - start


def tables(quick: bool) -> Iterator[Table]:
    samples, megabytes, turns = (2_000, 3, 1) if quick else (1_000_000, 500, 7)
    lines, asked = [], []
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        count = write_shards(Path(folder), "small", small_sample, megabytes, shards=5)
        urls = brace_pattern(Path(folder), "small", shards=5)
        size = megabytes * 1e3 / count
        for sources in (1,) if quick else (1, 3):
            spec = {
                "dataset": [{"name": f"s{n}", "shards": urls} for n in range(sources)],
                "defaults": {"shuffle": 1000},
                "batch": BATCH,
                "epoch": {"batches": 10**6},
            }
            state, skipping = state_after(spec, samples)
            read = [bytes_of_first_batch(spec, text) / 1e3 for text in (None, state)]
            longest = sum(source.delays.longest for source in wdspec.plan(spec).sources) * size
            sides: dict[str, Callable[[str | None], float]] = {
                "program, 1 worker": partial(program_first_batch, spec),
                "loader, 1 worker": partial(first_batch, spec, 1),
                "loader, no worker": partial(first_batch, spec, 0),
            }
            for name, timed in list(sides.items())[2 if quick else 0 :]:
                times: tuple[list[float], list[float]] = ([], [])
                for _ in range(turns):
                    times[0].append(timed(None))
                    times[1].append(timed(state))
                fresh, resumed = (statistics.median(side) for side in times)
                what = f"{sources} source{'s' * (sources > 1)}, {name}"
                cells = [f"{fresh:.4f}", f"{resumed:.4f}", f"{resumed / fresh:.2f}", f"{skipping:.2f}"]
                cells += [
                    f"{skipping / resumed:,.0f}x",
                    f"{read[0]:,.0f}",
                    f"{read[1]:,.0f}",
                    f"{longest:,.0f}",
                ]
                lines.append([what, *cells])
                ratio = resumed / fresh
                asked.append(Asked(f"resume: {what}, by a fresh start", ratio, 2, False, why=WHY))
            asked.append(Asked(f"resume: skipping by it, {what}", skipping / resumed, 100))
    yield Table(
        f"the first batch of {BATCH} from a state at sample {samples:,}, `shuffle: 1000`, medians of {turns} turns",
        [
            "",
            "fresh, s",
            "resumed, s",
            "ratio",
            "reading up to there, s",
            "by resuming",
            "fresh, KB read",
            "resumed, KB read",
            "the longest delays of all sources, KB",
        ],
        lines,
        asked,
    )


if __name__ == "__main__":
    show(tables, __doc__)
