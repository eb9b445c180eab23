"""`wdspec check --all` compared with reading the same shards as training does: samples per second of processor time.

    python benchmarks/checking.py            # a minute, 60 MB a case in a temporary folder
    python benchmarks/checking.py --quick    # next to nothing: checks that it runs

Reading is what `wdspec process` does without writing: raw samples, decoded by the steps of their source. Both sides
work in one process and take turns; the table shows medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from decoding import picture
from material import brace_pattern, facts, text_sample, write_shards

import wdspec
from wdspec.jobs.check.job import check_data
from wdspec.jobs.engine import LocalEngine
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.shard import Piece
from wdspec.read.transform import UserFunctions, parts_of
from wdspec.shards.shards import Shards, list_shards
from wdspec.spec.spec import Spec

PICTURE = picture(224, 224)


def decoded_picture(rng: Any, index: int) -> dict[str, bytes]:
    """A JPEG of 224×224, followed by a few unique bytes; a class and a json."""
    return {"jpg": PICTURE + rng.randbytes(8), "cls": str(index % 1000).encode(), "json": facts(index)}


CASES = {
    "13 KB jpg decoded, cls, json": (decoded_picture, "rgb8"),
    "13 KB jpg as bytes, cls, json": (decoded_picture, "auto"),
    "1 KB txt, json": (text_sample, "auto"),
}


def read(spec: Spec, shards: Shards) -> int:
    """Reads and decodes all samples."""
    count = 0
    for source in spec.sources:
        parts = parts_of(spec, shards)[source.name]
        process = parts.transform.build(
            ErrorBudget(parts.errors, source.name), 0, 0, UserFunctions(), parts.open
        )
        for shard in shards.lists[source.name]:
            with closing(parts.open(Piece(shard), on_error=print)) as opened:
                for raw in opened:
                    count += process(raw, opened.next_index) is not None
    return count


def timed(run: Callable[[], Any]) -> float:
    """Seconds of processor time."""
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    turns, megabytes, shards = (1, 0.2, 2) if quick else (7, 60, 8)
    print("| case | samples | reading alone, samples/s | check, samples/s | ratio |")
    print("|--|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for number, (case, (make, decode)) in enumerate(CASES.items()):
            write_shards(Path(folder), f"case{number}", make, megabytes, shards)
            source = {"shards": brace_pattern(Path(folder), f"case{number}", shards), "decode": decode}
            spec = wdspec.load({"dataset": [source]})
            listed = list_shards(spec)
            samples = read(spec, listed)
            sides: tuple[list[float], list[float]] = ([], [])
            runs = (lambda: read(spec, listed), lambda: check_data(spec, LocalEngine(0), most=None))  # noqa: B023
            for run in runs:
                run()
            for turn in range(turns):
                for side in (0, 1) if turn % 2 else (1, 0):
                    sides[side].append(timed(runs[side]))
            alone, checked = (samples / statistics.median(side) for side in sides)
            print(
                f"| {case} | {samples:,} | {alone:,.0f} | {checked:,.0f} | {checked / alone:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
