"""Samples of token files: windows of bytes as wdspec reads them, positioned reads, and a mapping of the file.

    .venv/bin/python benchmarks/tokens.py     # half a minute, 512 MB in a temporary folder

Samples have 2,048 tokens of uint16 (4 KiB) and become int64 arrays. Files are in the page cache, and processor time a
sample is measured; contenders take turns, and the least of the turns counts. `random` reads samples of the whole file
in any order, `in order` from start to end; `8 shards in turn` is what a shuffled source of wdspec does.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from wdspec.formats.tokens import TokenSamples
from wdspec.spec.language.options import TokenOptions

LENGTH, SHARDS = 2048, 8
SIZE = 2 * LENGTH
TURNS = 7


def by_mapping(paths: Sequence[str], places: Sequence[tuple[int, int]]) -> None:
    """Read samples, (file, number) of each, through mappings."""
    maps = [np.memmap(path, "<u2", "r") for path in paths]
    for shard, number in places:
        maps[shard][number * LENGTH : (number + 1) * LENGTH].astype(np.int64)


def by_positioned_reads(paths: Sequence[str], places: Sequence[tuple[int, int]]) -> None:
    """The same, with a system call for each sample."""
    files = [os.open(path, os.O_RDONLY) for path in paths]
    for shard, number in places:
        np.frombuffer(os.pread(files[shard], SIZE, number * SIZE), "<u2").astype(np.int64)
    for file in files:
        os.close(file)


def by_windows(paths: Sequence[str], places: Sequence[tuple[int, int]]) -> None:
    """As many samples in the order in which wdspec reads them: all shards in turn."""
    options = TokenOptions(length=LENGTH, dtype="uint16")
    readers: list[Any] = []
    for path in paths:
        file = open(path, "rb", buffering=0)  # noqa: SIM115  # closed by the reader
        readers.append(TokenSamples(file, options, open))  # no sidecar file
    lanes = [iter(each) for each in readers]
    for _ in range(len(places) // len(lanes)):
        for lane in lanes:
            next(lane)
    for each in readers:
        each.close()


def measure(read: Callable[..., None], paths: Sequence[str], places: Sequence[tuple[int, int]]) -> float:
    started = time.process_time()
    read(paths, places)
    return (time.process_time() - started) / len(places) * 1e6


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=16_384, help="in each of the eight files")
    samples = parser.parse_args().samples
    with tempfile.TemporaryDirectory() as name:
        paths = [str(Path(name) / f"{shard}.bin") for shard in range(SHARDS)]
        for path in paths:
            np.random.default_rng(0).integers(0, 50_000, samples * LENGTH, "u2").tofile(path)
        wanted = [(shard, number) for number in range(samples) for shard in range(SHARDS)]
        mixed = list(wanted)
        random.Random(0).shuffle(mixed)
        cases: dict[str, tuple[Callable[..., None], list[tuple[int, int]]]] = {
            "windows, 8 shards in turn (wdspec)": (by_windows, wanted),
            "a mapping, 8 shards in turn": (by_mapping, wanted),
            "a mapping, random": (by_mapping, mixed),
            "positioned reads, random": (by_positioned_reads, mixed),
        }
        least = dict.fromkeys(cases, float("inf"))
        for _ in range(TURNS):
            for case, (read, places) in cases.items():
                least[case] = min(least[case], measure(read, paths, list(islice(places, 30_000))))
    print("| samples of 2,048 tokens | µs a sample |\n|--|--:|")
    for case, found in least.items():
        print(f"| {case} | {found:.2f} |")


if __name__ == "__main__":
    main()
