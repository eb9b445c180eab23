"""Reading with Ray Data: `wdspec.ray.read` compared with `ray.data.read_webdataset`, and with a spec in one process.

    python benchmarks/ray_data.py             # 3 minutes, on two CPUs
    python benchmarks/ray_data.py --quick     # few samples: checks that it runs

The table has samples per second by the clock, as the work is done by other processes: medians of turns, in one cluster,
after a turn in which its workers start. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [sys.path[0], os.environ.get("PYTHONPATH", "")]
)  # of Ray's workers

import ray

import wdspec
import wdspec.ray
from benchmarks.samples import text


def small_sample(rng: Random, number: int) -> dict[str, Any]:
    return {"txt": f"a short text {rng.random()} " * 3, "cls": number}


def write(folder: str, make: Callable[[Random, int], dict[str, Any]], samples: int, shards: int) -> None:
    rng = Random(0)
    with wdspec.ShardWriter(f"{folder}/a-%06d.tar", maxcount=-(-samples // shards), verbose=0) as out:
        for number in range(samples):
            out.write({"__key__": f"sample{number:09d}", **make(rng, number)})


def count_rows(dataset: Any) -> int:
    return sum(batch.num_rows for batch in dataset.iter_batches(batch_size=1024, batch_format="pyarrow"))


def rate(read: Callable[[], int], samples: int) -> float:
    start = time.perf_counter()
    assert read() == samples
    return samples / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="400 samples and 1 turn")
    parser.add_argument("--turns", type=int, default=5, help="timed turns of each side (default: 5)")
    parser.add_argument("--samples", type=int, default=200_000, help="of each case (default: 200,000)")
    options = parser.parse_args()
    turns, samples = (1, 400) if options.quick else (options.turns, options.samples)
    ray.init("local", num_cpus=2, logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    print("| case | wdspec.ray.read | read_webdataset | ratio | wdspec.compile, one process | ratio |")
    print("|--|--:|--:|--:|--:|--:|")
    for name, make in (("100 B txt + cls", small_sample), ("0.7 KB txt + json", text)):
        with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
            write(folder, make, samples, 20)
            spec = {"dataset": [{"shards": f"{folder}/*.tar"}]}
            files = sorted(glob(f"{folder}/*.tar"))
            sides: list[Callable[[], int]] = [
                lambda spec=spec: count_rows(wdspec.ray.read(spec)),  # type: ignore[misc]
                lambda files=files: count_rows(ray.data.read_webdataset(files)),  # type: ignore[misc]
                lambda spec=spec: sum(  # type: ignore[misc]
                    1 for _ in wdspec.compile({**spec, "epoch": {"pass": "drop"}, "loader": {"workers": 0}})
                ),
            ]
            rates: list[list[float]] = [[], [], []]
            for turn in range(turns + 1):
                for side, found in zip(sides, rates, strict=True):
                    value = rate(side, samples)
                    if turn:  # the first one warms up
                        found.append(value)
        ours, theirs, one = (statistics.median(found) for found in rates)
        print(
            f"| {name} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f}x | {one:,.0f} | {ours / one:.2f}x |",
            flush=True,
        )
    ray.shutdown()


if __name__ == "__main__":
    main()
