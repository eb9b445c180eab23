"""What mixing costs: five sources against the same shards as one source, samples a second in one process.

    python benchmarks/mixing.py            # the table (three minutes, 250 MB in a temporary folder)
    python benchmarks/mixing.py --quick    # 2 MB and 2 turns: checks that it runs, says nothing about speed

A case and the one source take turns; a ratio is the median, over the turns, of its rate by that of the one source
just before. Rates are by processor time, so that other work on the machine counts less. Below the table stands what a
draw costs by itself.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from material import Fields, brace_pattern, picture_sample, text_sample, write_shards

import wdspec
from wdspec.planning.draws import Draws
from wdspec.planning.topology import Topology

SHARES = (0.4, 0.25, 0.2, 0.1, 0.05)
SHARDS = 4
PASSES = 5
"""Of each case, the first untimed. Windows are read ahead, so a single pass times another part of the reading."""


def cases(folder: Path, count: int) -> dict[str, Mapping[str, Any]]:
    """Name of the case -> spec; the first is the one source."""
    names = [f"s{i}" for i in range(len(SHARES))]
    urls = [brace_pattern(folder, name, SHARDS) for name in names]
    common: dict[str, Any] = {"defaults": {"decode": "raw"}, "epoch": PASSES * count}
    mixed = {
        **common,
        "dataset": [
            {"name": name, "shards": url, "probability": share}
            for name, url, share in zip(names, urls, SHARES, strict=True)
        ],
    }
    alone = {**common, "dataset": [{"name": "all", "shards": urls}]}
    steps = [
        {"at": at, "shares": dict(zip(names, shares, strict=True))}
        for at, shares in ((0, SHARES), (count * PASSES // 2, SHARES[::-1]))
    ]
    sources = [{"name": name, "shards": url} for name, url in zip(names, urls, strict=True)]
    return {
        "one source": alone,
        "five sources": mixed,
        "five, draw: random": {**mixed, "mix": {"draw": "random"}},
        "five, shares by a schedule": {**common, "dataset": sources, "mix": {"schedule": steps}},
        "one source, interleave: 4": {**common, "dataset": [{**alone["dataset"][0], "interleave": 4}]},
    }


def turn(spec: Mapping[str, Any], warm: int) -> float:
    """Samples a second of one epoch, from the sample `warm` on."""
    gc.collect()
    count, start = 0, 0.0
    for _ in wdspec.compile(spec):
        if count == warm:
            start = time.process_time()
        count += 1
    return (count - 1 - warm) / (time.process_time() - start)


def measure(name: str, make: Callable[[Any, int], Fields], megabytes: float, turns: int) -> None:
    """Prints the rows of one kind of sample."""
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as text:
        folder = Path(text)
        count = sum(
            write_shards(folder, f"s{i}", make, megabytes * share, SHARDS) for i, share in enumerate(SHARES)
        )
        rates: dict[str, list[float]] = {}
        ratios: dict[str, list[float]] = {}
        for _ in range(turns):
            (_, alone), *others = cases(folder, count).items()
            for case, spec in others:
                base = turn(alone, count)
                rates.setdefault("one source", []).append(base)
                rates.setdefault(case, []).append(turn(spec, count))
                ratios.setdefault(case, []).append(rates[case][-1] / base)
    for case, found in rates.items():
        ratio = f"{statistics.median(ratios[case]):.2f}" if case in ratios else ""
        print(f"| {name} | {case} | {statistics.median(found):,.0f} | {ratio} |", flush=True)


def draw_cost(sources: int, per_slot: int, turns: int) -> float:
    """Seconds of the processor for one draw, as a slot takes them."""
    weights = [1 + 37 * i % 101 for i in range(sources)]
    draws = Draws([Fraction(w, sum(weights)) for w in weights], 1, Topology(8, 4), per_slot)
    rows = max(1, draws.block // per_slot)
    best = float("inf")
    for _ in range(turns):
        start = time.process_time()
        for i in range(20):
            draws.batches(3, 2, i * rows, rows).ravel().tolist()
        best = min(best, (time.process_time() - start) / (20 * rows * per_slot))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 MB and 2 turns")
    parser.add_argument("--turns", type=int, default=7, help="timed turns of each case (default: 7)")
    parser.add_argument("--megabytes", type=float, default=200, help="data for each kind (default: 200)")
    options = parser.parse_args()
    turns, megabytes = (2, 2.0) if options.quick else (options.turns, options.megabytes)

    print("| samples | case | samples/s | of one source |")
    print("|--|--|--:|--:|")
    measure("1 KB txt + json", text_sample, megabytes / 4, turns)
    measure("40 KB jpg + cls + json", picture_sample, megabytes, turns)
    sizes = (1, 8, 64, 256)
    print(f"\n| µs a draw, batch of | {' | '.join(str(b) for b in sizes)} |")
    print(f"|--|{'--:|' * len(sizes)}")
    for sources in (2, 5, 50):
        costs = [f"{draw_cost(sources, b, turns) * 1e6:.2f}" for b in sizes]
        print(f"| {sources} sources | {' | '.join(costs)} |")


if __name__ == "__main__":
    main()
