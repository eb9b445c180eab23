"""wdspec beside webdataset with `pipe:curl`: megabytes a second from a server far away, in one process.

    python benchmarks/remote.py            # three minutes, 500 MB in memory
    python benchmarks/remote.py --quick    # a few MB and one turn: checks that it runs, says nothing about speed

The server is a process of its own that waits 20 ms before it answers a request and sends 50 MB/s over all answers
together. Both sides read the same shards in order (ours with `--defaults` shuffled), in turns; samples stay bytes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import webdataset
from material import picture_sample, text_sample, write_shards
from slow_server import SlowServer

import wdspec

LATENCY, RATE = 0.020, 50e6
Samples = Iterable[dict[str, Any]]
SAMPLES = {"pictures": picture_sample, "texts": text_sample}
"""About 40 KB, and about 1 KB."""


def ours(urls: str, samples: int, defaults: bool) -> Samples:
    order = {} if defaults else {"order": "sequential", "shuffle": 0}
    spec = {"dataset": [{"name": "raw", "shards": urls, "decode": "raw", **order}], "epoch": samples}
    return wdspec.compile(spec)


def theirs(urls: str, samples: int) -> Samples:
    return webdataset.WebDataset(f"pipe:curl -s {urls}", shardshuffle=False)


def timed(start: Callable[[], Samples], expected: int) -> float:
    """Seconds to take all samples, making the reader included."""
    begin = time.perf_counter()
    reader = start()
    count = sum(1 for _ in reader)
    seconds = time.perf_counter() - begin
    if hasattr(reader, "close"):
        reader.close()  # what is read ahead of a next epoch
    assert count == expected, f"{count} samples, expected {expected}"
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few MB and one turn")
    parser.add_argument("--turns", type=int, default=5, help="timed turns of each side (default: 5)")
    parser.add_argument(
        "--defaults",
        action="store_true",
        help="ours shuffled, eight shards in turn, as specs have it by default",
    )
    options = parser.parse_args()
    turns = 1 if options.quick else options.turns
    cases = (
        [("pictures", 5, 2)]
        if options.quick
        else [("pictures", 5, 40), ("texts", 5, 40), ("pictures", 50, 6)]
    )

    print(
        "| samples | shards of | MB | wdspec MB/s | of the line's 50 | webdataset MB/s | ratio | server's CPU share |"
    )
    print("|--|--:|--:|--:|--:|--:|--:|--:|")
    for kind, size, shards in cases:
        with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as place:
            folder = Path(place)
            samples = write_shards(folder, "raw", SAMPLES[kind], size * shards, shards)
            megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
            with SlowServer(folder, LATENCY, RATE) as server:
                urls = f"{server.url}/raw-{{000000..{shards - 1:06d}}}.tar"
                readers = (partial(ours, urls, samples, options.defaults), partial(theirs, urls, samples))
                seconds: tuple[list[float], list[float]] = ([], [])
                begin, used = time.perf_counter(), server.cpu_seconds()
                for turn in range(turns):
                    sides = list(zip(seconds, readers, strict=True))
                    for times, start in sides if turn % 2 == 0 else reversed(sides):
                        times.append(timed(start, samples))
                share = (server.cpu_seconds() - used) / (time.perf_counter() - begin)
        own, peer = (megabytes / statistics.median(times) for times in seconds)
        print(
            f"| {kind} | {size} MB | {megabytes:.0f} | {own:.1f} | {own * 1e6 / RATE:.0%} | {peer:.1f} "
            f"| {own / peer:.2f}x | {share:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
