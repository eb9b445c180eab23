"""Samples per second with a spec's defaults, compared with another checkout of wdspec: the cost of a change.

    git worktree add ../before COMMIT
    python benchmarks/other_checkout.py ../before            # the table, in some minutes
    python benchmarks/other_checkout.py ../before --quick    # 2 MB and 2 turns: checks that it runs

Each turn is a separate process for each of the two, one after the other; they alternate which goes first.
Rates are by processor time, so that other work on the machine counts less; a ratio is the median of those of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from material import brace_pattern, picture_sample, text_sample, write_shards

SHARES = (0.4, 0.25, 0.2, 0.1, 0.05)
SHARDS = 10
READ = """
import itertools, json, sys, time
import wdspec
spec, warm, count = json.loads(sys.argv[1])
samples = iter(wdspec.compile(spec))
next(itertools.islice(samples, warm - 1, warm))
start = time.process_time()
next(itertools.islice(samples, count - 1, count))
print(count / (time.process_time() - start), wdspec.__file__)
"""


def cases(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of the case, and its dataset."""
    urls = [brace_pattern(folder, f"s{n}", SHARDS) for n in range(len(SHARES))]
    yield "one source", {"dataset": [{"name": "all", "shards": urls}]}
    yield (
        "five sources",
        {
            "dataset": [
                {"name": f"s{n}", "shards": url, "probability": share}
                for n, (url, share) in enumerate(zip(urls, SHARES, strict=True))
            ]
        },
    )


def rate(checkout: Path, spec: dict[str, Any], warm: int, count: int) -> float:
    """Samples a second of the processor."""
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps([spec, warm, count])],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found, file = done.stdout.split()
    assert Path(file).is_relative_to(checkout), file
    return float(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the root of another checkout")
    parser.add_argument("--quick", action="store_true", help="2 MB and 2 turns")
    parser.add_argument("--turns", type=int, default=9, help="timed turns of each case (default: 9)")
    options = parser.parse_args()
    turns, megabytes = (2, 2.0) if options.quick else (options.turns, 200.0)
    here, other = Path(__file__).resolve().parents[1], options.other.resolve()
    print("| samples | case | samples/s here | samples/s there | ratio |\n|--|--|--:|--:|--:|")
    for name, make, size in (
        ("1 KB txt + json", text_sample, megabytes / 4),
        ("40 KB jpg + cls + json", picture_sample, megabytes),
    ):
        with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
            counts = [
                write_shards(Path(folder), f"s{n}", make, size * share, SHARDS)
                for n, share in enumerate(SHARES)
            ]
            for case, dataset in cases(Path(folder)):
                spec = {**dataset, "defaults": {"decode": "raw"}, "epoch": 10 * sum(counts)}
                found: dict[Path, list[float]] = {here: [], other: []}
                for turn in range(turns):
                    for checkout in (here, other) if turn % 2 else (other, here):
                        found[checkout].append(rate(checkout, spec, sum(counts), 3 * sum(counts)))
                ratio = statistics.median(a / b for a, b in zip(found[here], found[other], strict=True))
                ours, theirs = (statistics.median(found[each]) for each in (here, other))
                print(f"| {name} | {case} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
