"""wdspec beside webdataset: samples a second from the same local shards, in one process.

    python benchmarks/reading.py            # the table (a few minutes, under 1 GB in a temporary folder)
    python benchmarks/reading.py --quick    # 2 MB and 2 turns: checks that it runs, says nothing about speed

Each case is read once by both sides before the clock starts: that fills the page cache, and a checksum over
every byte of every field shows that both deliver the same. Then they take turns, timed. Both deliver
`bytes` objects: every byte has been read and copied, and the loop counts them.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import webdataset
from material import brace_pattern, picture_sample, text_sample, write_shards

import wdspec

Samples = Iterable[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One row of the table: how each side reads `samples` samples, and the ratio asked for."""

    name: str
    megabytes: float
    samples: int
    target: float
    ours: Callable[[], Samples]
    theirs: Callable[[], Samples]
    fluent: Callable[[], Samples]
    """Ours again, by the methods of pipelines instead of a spec."""


def raw(name: str, target: float, make: Any, folder: Path, megabytes: float) -> Case:
    """All members of one collection, as bytes, in the order of the shards."""
    samples = write_shards(folder, "raw", make, megabytes, shards=8)
    urls = brace_pattern(folder, "raw", shards=8)
    spec = {
        "dataset": [{"name": "raw", "shards": urls, "decode": "raw", "order": "sequential", "shuffle": 0}],
        "epoch": samples,
    }
    return Case(
        name,
        megabytes,
        samples,
        target,
        ours=lambda: wdspec.compile(spec),
        theirs=lambda: webdataset.WebDataset(urls, shardshuffle=False),
        fluent=lambda: wdspec.WebDataset(urls),
    )


def mixed(name: str, target: float, make: Any, folder: Path, megabytes: float) -> Case:
    """Three collections mixed 0.5 : 0.3 : 0.2, shuffled over 1000 samples, cls and json decoded."""
    shares = {"first": 0.5, "second": 0.3, "third": 0.2}
    counts = [write_shards(folder, n, make, megabytes * share, shards=8) for n, share in shares.items()]
    urls = {n: brace_pattern(folder, n, shards=8) for n in shares}
    spec = {
        "dataset": [{"name": n, "shards": urls[n], "probability": p} for n, p in shares.items()],
        "defaults": {"shuffle": 1000},
        "epoch": sum(counts),
    }

    def theirs() -> Samples:
        sources = [webdataset.WebDataset(u, shardshuffle=False) for u in urls.values()]
        return webdataset.DataPipeline(
            webdataset.RandomMix(sources, list(shares.values()), longest=True),
            webdataset.shuffle(1000),
            webdataset.decode(),
        )

    def fluent() -> Samples:
        sources = [wdspec.WebDataset(u) for u in urls.values()]
        return wdspec.RandomMix(sources, list(shares.values()), longest=True).shuffle(1000).decode()

    return Case(name, megabytes, sum(counts), target, lambda: wdspec.compile(spec), theirs, fluent)


def timed_turn(samples: Samples, expected: int) -> float:
    """Seconds to take all samples; the bytes of those fields that are bytes are counted on the way."""
    gc.collect()
    count = total = 0
    start = time.perf_counter()
    for sample in samples:
        count += 1
        for value in sample.values():
            if type(value) is bytes:
                total += len(value)
    seconds = time.perf_counter() - start
    assert count == expected, f"{count} samples, expected {expected}"
    return seconds


def checksum(samples: Samples) -> tuple[int, int]:
    """Number of samples, and a checksum over their keys and fields that does not depend on their order."""
    count = total = 0
    for sample in samples:
        count += 1
        fields = sorted((name, value) for name, value in sample.items() if not name.startswith("__"))
        text = repr((sample["__key__"], [(n, v) for n, v in fields if not isinstance(v, bytes)])).encode()
        for _, value in fields:
            if isinstance(value, bytes):
                text += zlib.crc32(value).to_bytes(4, "big")
        total = (total + zlib.crc32(text)) % 2**64
    return count, total


def measure(case: Case, turns: int, exact: bool) -> tuple[float, float, float]:
    """Median samples a second of wdspec (a spec, then methods) and of webdataset, taking turns."""
    readers = (case.ours, case.fluent, case.theirs)
    ours, fluent, theirs = [checksum(start()) for start in readers]
    assert ours[0] == fluent[0] == theirs[0] == case.samples, (ours, fluent, theirs, case.samples)
    assert fluent == theirs, f"{case.name}: methods and webdataset deliver different bytes"
    if exact:
        assert ours == theirs, f"{case.name}: the two sides deliver different bytes"
    seconds: tuple[list[float], ...] = ([], [], [])
    for turn in range(turns):
        sides = list(zip(seconds, readers, strict=True))
        for times, start in sides if turn % 2 == 0 else reversed(sides):
            times.append(timed_turn(start(), case.samples))
    spec, methods, peer = (case.samples / statistics.median(times) for times in seconds)
    return spec, methods, peer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 MB and 2 turns")
    parser.add_argument("--turns", type=int, default=7, help="timed turns of each side (default: 7)")
    parser.add_argument("--megabytes", type=float, default=210, help="data for each case (default: 210)")
    options = parser.parse_args()
    turns, megabytes = (2, 2.0) if options.quick else (options.turns, options.megabytes)

    plan = [
        (raw, "raw samples, 1 KB txt + json", 8, text_sample),
        (raw, "raw samples, 40 KB jpg + cls + json", 5, picture_sample),
        (mixed, "three sources mixed, shuffled, decoded", 4, picture_sample),
    ]
    print(
        "| case | MB | samples | spec samples/s | methods | webdataset samples/s | ratio | methods | asked |"
    )
    print("|--|--:|--:|--:|--:|--:|--:|--:|--:|")
    for kind, name, target, make in plan:
        with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
            case = kind(name, target, make, Path(folder), megabytes)
            # A mix keeps its shares, so at the end of an epoch a few samples were read twice or not at all.
            ours, fluent, theirs = measure(case, turns, exact=kind is raw)
        print(
            f"| {case.name} | {case.megabytes:.0f} | {case.samples:,} | {ours:,.0f} | {fluent:,.0f} | {theirs:,.0f} "
            f"| {ours / theirs:.1f}x | {fluent / theirs:.1f}x | {case.target:g}x |",
            flush=True,
        )


if __name__ == "__main__":
    main()
