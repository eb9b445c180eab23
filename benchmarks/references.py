"""Objects that samples name (`fetch`), on a server that is 20 ms away: samples a second, and memory.

    python -m benchmarks.references

For each size of an object: `fetch`; a naive loop that requests each object when its sample comes; and the same objects
in a tar on the same server. One worker, which is this process; a budget of 64 MB. Each reading is a process of its own,
and three turns alternate between the kinds; a ratio is the median of those of the turns. The first samples are not
counted, as libraries are imported for them, and further samples follow the last one counted: what is read ahead is as
much at the end as at the start. The line of the server has 1 GB/s, which objects of 1 MB nearly fill. The processor
time is that of the reading process, which depends less on what else runs. The memory is what `fetch` uses beyond the
same loop over samples without objects, at most.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import resource
import statistics
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3

import wdspec
from benchmarks.slow_server import SlowServer
from wdspec.base.process import MEMORY_UNIT

LATENCY, RATE, MEMORY = 0.02, 1e9, 64_000_000
SECONDS, PASSES, TURNS = 4.0, 5, 3
UNCOUNTED = 100
"""Samples before those that are counted, and after them."""
COUNTS = {10_000: 4000, 100_000: 1500, 1_000_000: 300}
"""Bytes of an object → how many there are."""


def write_objects(folder: Path, size: int, count: int) -> None:
    """Write the objects, a tar with all of them, and the rows that name them."""
    base = os.urandom(size)
    with tarfile.open(folder / "all.tar", "w") as tar:
        for number in range(count):
            data = base[:-8] + number.to_bytes(8, "big")
            (folder / f"{number}.bin").write_bytes(data)
            info = tarfile.TarInfo(f"{number:06d}.bin")
            info.size = size
            tar.addfile(info, io.BytesIO(data))
    rows = ({"__key__": f"{number:06d}", "url": f"{number}.bin"} for number in range(count))
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def read(kind: str, folder: str, url: str, count: int, results: Any) -> None:
    """Read the samples for some seconds.

    Puts samples a second, seconds of processor time for a sample, and the peak of the memory in bytes.
    """
    source: dict[str, Any] = {"shards": f"{folder}/rows.jsonl", "shuffle": 0, "interleave": 1}
    if kind == "tar":
        source["shards"] = f"{url}/all.tar"
    if kind == "fetch":
        source["fetch"] = {"bin": {"url": "url", "root": url}}
    spec = {"dataset": [source], "epoch": PASSES * count + 2 * UNCOUNTED, "loader": {"fetch_memory": MEMORY}}
    pool, given = urllib3.PoolManager(), 0
    with wdspec.loader(spec, num_workers=0) as loader:
        for sample in loader:
            if kind == "naive":
                sample["bin"] = pool.request("GET", f"{url}/{sample['url']}").data
            given += 1
            if given == UNCOUNTED:
                start, processor = time.perf_counter(), time.process_time()
            elif given > UNCOUNTED and (
                given == PASSES * count + UNCOUNTED or time.perf_counter() - start > SECONDS
            ):
                break
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    given -= UNCOUNTED
    results.put(
        (given / seconds, processor / given, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MEMORY_UNIT)
    )


def measure(
    size: int, kinds: tuple[str, ...] = ("fetch", "naive", "tar", "rows")
) -> Iterator[dict[str, tuple[float, float, int]]]:
    """Measure the kinds of reading, with objects of a size, in turns."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        write_objects(Path(name), size, COUNTS[size])
        with SlowServer(Path(name), LATENCY, RATE) as server:
            for _ in range(TURNS):
                found = {}
                for kind in kinds:
                    results = context.Queue()
                    arguments = (kind, name, server.url, COUNTS[size], results)
                    process = context.Process(target=read, args=arguments)
                    process.start()
                    found[kind] = results.get(timeout=120)
                    process.join()
                yield found


def main() -> None:
    """Print a line for each size."""
    print(
        "bytes      fetch/s  naive/s  tar/s  fetch:naive  fetch:tar  ms of fetch  ms of tar  memory of fetch"
    )
    for size in COUNTS:
        turns = list(measure(size))
        fetch, naive, tar = (
            statistics.median(turn[kind][0] for turn in turns) for kind in ("fetch", "naive", "tar")
        )
        by_naive, by_tar = (
            statistics.median(turn["fetch"][0] / turn[kind][0] for turn in turns) for kind in ("naive", "tar")
        )
        of_fetch, of_tar = (
            statistics.median(turn[kind][1] for turn in turns) * 1e3 for kind in ("fetch", "tar")
        )
        memory = max(turn["fetch"][2] - turn["rows"][2] for turn in turns) / 1e6
        print(
            f"{size:9,} {fetch:9,.0f} {naive:8,.0f} {tar:6,.0f} {by_naive:12.1f} {by_tar:10.2f} "
            f"{of_fetch:12.3f} {of_tar:10.3f} {memory:13.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
