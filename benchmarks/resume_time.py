"""Resuming at sample 1,000,000 beside starting afresh: seconds to the first batch, and bytes read for it.

    python benchmarks/resume_time.py            # the table (some minutes, 500 MB in a temporary folder)
    python benchmarks/resume_time.py --quick    # at sample 2,000: checks that it runs

A program is timed from the start of Python to the first batch; a loader from `wdspec.loader` to the first batch:
the spec is checked, shards are listed, workers start. The shards are uncompressed tars of tiny samples on a local
disk, in the page cache; the state is that of a real run up to there. A resume reads what was held of each
source again, and no more (but in blocks of 256 KB): the bytes say so.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from material import brace_pattern, write_shards

import wdspec
from wdspec.stores.local import local_store

BATCH = 64


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
    """Seconds from nothing to the first batch; without workers of processor time, which other programs leave alone."""
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


def state_after(spec: dict[str, Any], samples: int) -> str:
    """The state of a run after so many samples."""
    with wdspec.loader(spec, num_workers=0) as loader:
        for _, _batch in zip(range(samples // BATCH), loader, strict=False):
            pass
        return json.dumps(loader.state_dict())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="at sample 2,000, of small shards")
    quick = parser.parse_args().quick
    samples, megabytes, turns = (2_000, 3, 1) if quick else (1_000_000, 500, 9)
    print(
        "| sources | shuffle | timed | fresh, s | resumed, s | ratio | asked | fresh, KB read | resumed, KB read "
        "| the longest delays of all sources, KB |"
    )
    print("|--:|--:|--|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        count = write_shards(Path(folder), "small", small_sample, megabytes, shards=5)
        urls = brace_pattern(Path(folder), "small", shards=5)
        size = megabytes * 1e3 / count
        for sources, shuffle in [(1, 1000), (3, 1000), (1, 10_000)][: 1 if quick else None]:
            spec = {
                "dataset": [{"name": f"s{n}", "shards": urls} for n in range(sources)],
                "defaults": {"shuffle": shuffle},
                "batch": BATCH,
                "epoch": {"batches": 10**6},
            }
            state = state_after(spec, samples)
            read = [bytes_of_first_batch(spec, text) / 1e3 for text in (None, state)]
            longest = sum(source.delays.longest for source in wdspec.plan(spec).sources) * size
            sides: dict[str, Callable[[str | None], float]] = {
                "program, 1 worker": partial(program_first_batch, spec),
                "loader, 1 worker": partial(first_batch, spec, 1),
                "loader, no worker": partial(first_batch, spec, 0),
            }
            for name, timed in sides.items():
                times: tuple[list[float], list[float]] = ([], [])
                for _ in range(turns):
                    times[0].append(timed(None))
                    times[1].append(timed(state))
                fresh, resumed = (statistics.median(side) for side in times)
                print(
                    f"| {sources} | {shuffle} | {name} | {fresh:.4f} | {resumed:.4f} | {resumed / fresh:.2f} | < 2 "
                    f"| {read[0]:,.0f} | {read[1]:,.0f} | {longest:,.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
