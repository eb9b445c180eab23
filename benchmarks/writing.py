"""wdspec compared with webdataset: samples per second written into shards, in one process, taking turns.

    python benchmarks/writing.py            # the table (a minute, under 1 GB in a temporary folder)
    python benchmarks/writing.py --quick    # 2 MB and 2 turns: checks that it runs, says nothing about speed

Both write the same samples, encoded with their own tables, into shards of 2,000. Ours are also synced to the disk and
renamed into place within that time.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import webdataset
from material import picture_sample, text_sample

import wdspec

PER_SHARD = 2000


def samples_of(make: Any, megabytes: float) -> list[dict[str, Any]]:
    """Samples with bytes, and with values to encode, of `megabytes` in total."""
    rng, samples, size = random.Random(0), [], 0.0
    while size < megabytes * 1e6:
        fields = make(rng, len(samples))
        size += sum(map(len, fields.values()))
        values = {"cls": len(samples), "json": {"index": len(samples), "split": "train"}}
        samples.append({"__key__": f"sample{len(samples):09d}", **fields, **values})
    return samples


def turn(writer: Callable[..., Any], samples: list[dict[str, Any]], folder: str) -> float:
    """Seconds to write all samples."""
    gc.collect()
    start = time.perf_counter()
    with writer(f"{folder}/a-%06d.tar", maxcount=PER_SHARD, verbose=0) as out:
        for sample in samples:
            out.write(sample)
    return time.perf_counter() - start


def measure(samples: list[dict[str, Any]], turns: int) -> tuple[float, float]:
    """Median samples a second of wdspec and of webdataset."""
    seconds: dict[Any, list[float]] = {wdspec.ShardWriter: [], webdataset.ShardWriter: []}
    for number in range(turns + 1):
        for writer in list(seconds)[:: 1 if number % 2 else -1]:
            with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
                taken = turn(writer, samples, folder)
                assert len(list(Path(folder).glob("*.tar"))) >= 1
            if number:  # the first turn warms up
                seconds[writer].append(taken)
    ours, theirs = (len(samples) / statistics.median(taken) for taken in seconds.values())
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 MB and 2 turns")
    parser.add_argument("--turns", type=int, default=5, help="timed turns of each side (default: 5)")
    parser.add_argument("--megabytes", type=float, default=60, help="data for each case (default: 60)")
    options = parser.parse_args()
    turns, megabytes = (2, 2.0) if options.quick else (options.turns, options.megabytes)
    print("| case | MB | samples | wdspec samples/s | webdataset samples/s | ratio |")
    print("|--|--:|--:|--:|--:|--:|")
    for name, make in (
        ("1 KB txt + json + cls", text_sample),
        ("40 KB jpg (as bytes) + json + cls", picture_sample),
    ):
        samples = samples_of(make, megabytes)
        ours, theirs = measure(samples, turns)
        print(
            f"| {name} | {megabytes:.0f} | {len(samples):,} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f}x |",
            flush=True,
        )


if __name__ == "__main__":
    main()
