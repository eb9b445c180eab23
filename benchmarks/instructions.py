"""Bytecode instructions per sample: a measure of speed without a clock, the same in every run.

    python benchmarks/instructions.py                  # the table, in seconds
    python benchmarks/instructions.py --append 0.2.0   # and adds a line for a release to benchmarks/history.csv

Only Python's instructions are counted, not the work of C code, so they measure layers and loops, and nothing else. They
differ between versions of Python; the test has those of 3.11.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.material import Fields, brace_pattern, facts, write_shards

HISTORY = Path(__file__).parent / "history.csv"
BATCH = 64
WARM, COUNTED = 10 * BATCH, 10 * BATCH


def text(rng: random.Random, index: int) -> Fields:
    return {"txt": rng.randbytes(100).hex().encode(), "json": facts(index)}


def counted(work: Callable[[], Any]) -> int:
    """Bytecode instructions that a piece of work takes."""
    total = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal total
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            total += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return total


def per_sample(items: Iterator[Any], size: int = 1) -> float:
    """Instructions per sample after the first ones, in items of `size` samples."""
    next(islice(items, WARM // size - 1, None))
    return counted(lambda: next(islice(items, COUNTED // size - 1, None))) / COUNTED


def rows(folder: Path) -> dict[str, float]:
    """What is counted → instructions a sample."""
    import wdspec
    from wdspec.run.parcels import Parcel

    names = {"a": 0.5, "b": 0.3, "c": 0.2}
    for name in names:
        write_shards(folder, name, text, 3.5, 2)
    urls = {name: brace_pattern(folder, name, 2) for name in names}
    raw = {"name": "a", "shards": urls["a"], "decode": "raw", "order": "sequential", "shuffle": 0}
    mixed = [{"name": name, "shards": urls[name], "probability": share} for name, share in names.items()]
    batches = {"dataset": mixed, "batch": BATCH}
    batch = next(iter(wdspec.compile(batches)))
    return {
        "raw, stages": per_sample(iter(wdspec.WebDataset(urls["a"]))),
        "raw, a spec": per_sample(iter(wdspec.compile({"dataset": [raw]}))),
        "3 sources, shuffled, decoded": per_sample(iter(wdspec.compile({"dataset": mixed}))),
        "the same in batches of 64": per_sample(iter(wdspec.compile(batches)), BATCH),
        "a batch of 64 handed over": counted(lambda: Parcel(([batch], {0: b""})).open()) / BATCH,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--append", metavar="RELEASE", help="add the figures to benchmarks/history.csv")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        found = rows(Path(folder))
    print("| | instructions a sample |\n|--|--:|")
    for name, figure in found.items():
        print(f"| {name} | {figure:.1f} |")
    if options.append:
        python = ".".join(map(str, sys.version_info[:2]))
        with open(HISTORY, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows(
                [options.append, python, name, f"{figure:.1f}"] for name, figure in found.items()
            )


if __name__ == "__main__":
    main()
