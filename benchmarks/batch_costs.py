"""Batches by cost, packing and groups: throughput compared with plain batches, fill, planning, balance, agreement.

    python -m benchmarks.batch_costs            # three minutes
    python -m benchmarks.batch_costs --quick    # checks that it runs

Throughput is processor time of one process, in turns with plain batches: the median of the ratios of pairs.
Both read the same shards and collate in the same way, so the ratio is what measuring and planning take. A packed row is
compared with plain batches whose function of `collate` joins the same samples to a row without padding.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import wdspec
from wdspec.planning.windows import WindowRules, balance, gather_groups, permute, plan_window

LENGTHS = {"web": (5.8, 1.1), "chat": (6.5, 1.0), "long": (7.5, 0.9)}
"""Parameters of log-normal lengths, in tokens."""
ROW, WINDOW, MOST = 8192, 1000, 4096
"""Length of a packed row; samples of a window; the longest sample of a shard."""


def join(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate plain samples to a row: what a packed batch has, without padding and without a plan."""
    columns = {name: [sample[name] for sample in samples] for name in samples[0]}
    arrays = [torch.from_numpy(values) for values in columns["npy"]]
    columns["npy"] = torch.cat(arrays)[None]
    columns["position_ids"] = torch.cat([torch.arange(len(values)) for values in arrays])[None]
    columns["cu_seqlens"] = torch.tensor(
        [0, *np.cumsum([len(values) for values in arrays])], dtype=torch.int32
    )
    return columns


def write_shards(folder: Path, shards: int, samples: int) -> None:
    """Write shards of texts, arrays of tokens and JSON, of log-normal lengths."""
    draw = np.random.default_rng(1)
    for shard in range(shards):
        writers = {
            kind: wdspec.ShardWriter(f"{folder}/{kind}-{shard}-%d.tar", verbose=0)
            for kind in ("txt", "npy", "json")
        }
        lengths = np.clip(draw.lognormal(6.5, 1.0, samples), 16, MOST).astype(int)
        for number, length in enumerate(lengths.tolist()):
            array = io.BytesIO()
            np.save(array, np.arange(length, dtype=np.int64))
            text = "a sentence of words, " * (length // 21 + 1)
            facts = {"text": text[:length], "lang": int(draw.integers(8)), "n": length}
            values = {
                "txt": text[:length].encode(),
                "npy": array.getvalue(),
                "json": json.dumps(facts).encode(),
            }
            for kind, writer in writers.items():
                writer.write({"__key__": f"{shard}-{number:06d}", kind: values[kind]})
        for writer in writers.values():
            writer.close()


ROWS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "text, padded": (
        "txt",
        {"cost": "txt.length", "max_cost": 32768, "collate": {"txt": "list"}},
        {"collate": {"txt": "list"}},
    ),
    "text, sums": (
        "txt",
        {"cost": "txt.length", "max_cost": 32768, "padded": False, "collate": {"txt": "list"}},
        {"collate": {"txt": "list"}},
    ),
    "text, groups": (
        "txt",
        {"size": 32, "group_by": "ceil(txt.length / 500)", "incomplete": "merge", "collate": {"txt": "list"}},
        {"collate": {"txt": "list"}},
    ),
    "JSON, by a number in it": ("json", {"cost": "json.n", "max_cost": 32768}, {}),
    "JSON, groups": ("json", {"size": 32, "group_by": "json.lang"}, {}),
    "arrays, padded": (
        "npy",
        {"cost": "npy.length", "max_cost": 32768, "collate": {"npy": "pad"}},
        {"collate": {"npy": "pad"}},
    ),
    "arrays, packed": (
        "npy",
        {
            "pack": {
                "fields": "npy",
                "length": ROW,
                "position_ids": "position_ids",
                "cu_seqlens": "cu_seqlens",
            }
        },
        {"collate": "benchmarks.batch_costs:join"},
    ),
}
"""Name → the fields of the shards, the batches by cost, and the plain ones."""


def spec_of(folder: Path, fields: str, batch: dict[str, Any]) -> dict[str, Any]:
    return {"dataset": [{"name": "a", "shards": f"{folder}/{fields}-*.tar"}], "batch": batch}


def spend(batches: Iterator[dict[str, Any]], samples: int) -> float:
    """Return the processor seconds per sample when reading at least this many samples."""
    seen, start = 0, time.process_time()
    while seen < samples:
        seen += len(next(batches)["__key__"])
    return (time.process_time() - start) / seen


def compare(
    folder: Path, fields: str, by_cost: dict[str, Any], plain: dict[str, Any], samples: int, pairs: int
) -> list[float]:
    """Return processor time per sample of plain batches and of those by cost, in µs, and the median ratio of pairs."""
    with wdspec.loader(spec_of(folder, fields, by_cost), num_workers=0) as costed:
        batches = iter(costed)
        sizes = [len(next(batches)["__key__"]) for _ in range(200)]
        size = max(1, round(sum(sizes) / len(sizes)))
        with wdspec.loader(spec_of(folder, fields, {"size": size, **plain}), num_workers=0) as even:
            others = iter(even)
            spend(others, samples), spend(batches, samples)
            spent = [(spend(others, samples), spend(batches, samples)) for _ in range(pairs)]
    ratios = sorted(a / b for a, b in spent)
    return [
        *(1e6 * float(np.median(column)) for column in zip(*spent, strict=True)),
        ratios[len(ratios) // 2],
        size,
    ]


def plan_windows(quick: bool) -> None:
    """Print how full batches are, and how long planning takes, for lengths of three kinds."""
    draw, windows = np.random.default_rng(2), 2 if quick else 50
    print("\nplanning of windows of 1,000         fill  useful  µs a sample")
    for name, rules in {
        "packed, rows of 8,192": WindowRules(ROW, padded=False),
        "padded, max_cost 16,384": WindowRules(16384),
    }.items():
        for kind, (mean, sigma) in LENGTHS.items():
            fills, useful, times = [], [], []
            for _ in range(windows):
                costs = np.clip(draw.lognormal(mean, sigma, WINDOW), 1, ROW).astype(int).astype(float)
                start = time.process_time()
                batches = plan_window(costs, np.zeros((WINDOW, 0)), rules)
                times.append((time.process_time() - start) / WINDOW * 1e6)
                sizes = [costs[list(batch)] for batch in batches]
                spent = [len(each) * each.max() if rules.padded else each.sum() for each in sizes]
                fills.append(sum(spent) / len(batches) / rules.max_cost)
                useful.append(costs.sum() / sum(spent) if rules.padded else fills[-1])
            found = np.mean(fills), np.mean(useful), np.median(times)
            print(f"{name:24} {kind:10} {found[0]:6.3f} {found[1]:7.3f} {found[2]:12.2f}")


def balance_ranks(quick: bool) -> None:
    """Print the mean over the greatest vision cost of 64 ranks, with packs permuted and balanced."""
    draw, ranks = np.random.default_rng(3), 8 if quick else 64
    levels: dict[str, list[float]] = {"permuted": [], "balanced": []}
    for window in range(1 if quick else 4):
        orders: dict[str, list[list[float]]] = {name: [] for name in levels}
        for rank in range(ranks):
            images = np.where(draw.random(WINDOW) < 0.4, draw.lognormal(6.5, 0.8, WINDOW), 0)
            texts = draw.lognormal(5.8, 1.0, WINDOW)
            costs = np.clip(images + texts, 1, 16384)
            batches = plan_window(costs, np.zeros((WINDOW, 0)), WindowRules(16384, padded=False))
            weights = [float(images[list(batch)].sum()) for batch in batches]
            orders["permuted"].append([weights[at] for at in permute(len(weights), rank * 1000 + window)])
            orders["balanced"].append([weights[at] for at in balance(weights, window * 40)])
        for name, found in orders.items():
            levels[name] += [float(np.mean(step) / max(step)) for step in zip(*found, strict=False)]
    print(f"\nvision cost, mean / max over {ranks} ranks")
    for name, found in levels.items():
        print(f"{name:24} {np.mean(found):.2f}")


def agree_on_groups(quick: bool) -> None:
    """Print the share of ranks that take the group that most ranks take at a step."""
    shares = {"equal": np.ones(20), "skewed": np.exp(-0.5 * ((np.arange(20) - 10) / 3) ** 2)}
    steps = 20 if quick else 300
    print("\n20 groups: ranks of 8 and of 64 that take the same one  (in brackets: without an agreement)")
    for kind, weights in shares.items():
        for size in (16, 64):
            for ahead in (1000, 4000):
                found = [
                    agreement(ranks, weights / weights.sum(), size, *how, steps)
                    for ranks in ((2,) if quick else (8, 64))
                    for how in ((ahead, True), (0, False))
                ]
                cells = (
                    f"{one:4.0%} ({other:.0%})" for one, other in zip(found[::2], found[1::2], strict=True)
                )
                print(f"{kind:10} batches of {size}, window {ahead:,}: {'  '.join(cells)}", flush=True)


def agreement(ranks: int, shares: Any, size: int, ahead: int, is_common: bool, steps: int) -> float:
    """Return the mean share of ranks that take the group that most of them take."""
    draw, taken = np.random.default_rng(5), []
    for rank in range(ranks):
        found: list[int] = []
        while len(found) < steps:
            values = draw.choice(len(shares), size=10_000, p=shares).tolist()
            samples = ((1, (), 0, value) for value in values)
            rules = WindowRules(max_size=size)
            key = 0 if is_common else rank
            batches = gather_groups(samples, rules, "drop", lambda left: None, ahead, key, len(found))
            found += [batch[0][3] for batch in batches]
        taken.append(found[:steps])
    return float(np.mean([np.bincount(step).max() / ranks for step in np.array(taken).T]))


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument(
        "--rows", nargs="*", help="texts in the names of the rows of throughput to run, and no more"
    )
    found = options.parse_args()
    samples, pairs = (200, 1) if found.quick else (8000, 15)
    if not found.rows:
        plan_windows(found.quick)
        balance_ranks(found.quick)
        agree_on_groups(found.quick)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder, 2, 500 if found.quick else 2000)
        print("\nthroughput                 size  plain µs  by cost µs  ratio")
        for row, (fields, by_cost, plain) in ROWS.items():
            if found.rows and not any(text in row for text in found.rows):
                continue
            before, after, ratio, size = compare(folder, fields, by_cost, plain, samples, pairs)
            print(f"{row:26} {size:4} {before:9.2f} {after:11.2f} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
