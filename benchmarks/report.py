"""What `python -m benchmarks` found, as tables in markdown, a page, and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.contenders import ROWS

Runs = Sequence[Mapping[str, Any]]
RATE, COST = "samples_per_second", "processor_us_per_sample"


def median(runs: Runs, figure: str) -> float | None:
    """Over the runs; None where one failed."""
    return (
        None
        if not runs or any("error" in run for run in runs)
        else statistics.median(run[figure] for run in runs)
    )


def table(row: str, found: Mapping[str, Runs]) -> list[str]:
    """One row's contenders, as lines."""
    peer, cost = (median(found.get("webdataset", ()), figure) for figure in (RATE, COST))
    limit = next((median(runs, RATE) for name, runs in found.items() if name.startswith("limit")), None)
    lines = [
        f"\n{ROWS[row].title}:\n",
        "| | samples/s | spread | by webdataset's | by the limit's | processor, µs a sample | webdataset's by it "
        "| first item, s | MiB |",
        "|--|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, runs in found.items():
        rate = median(runs, RATE)
        if rate is None:
            lines.append(
                f"| {name} | {next((run['error'] for run in runs if 'error' in run), '')} |" + " |" * 6
            )
            continue
        rates, spent = [run[RATE] for run in runs], max(median(runs, COST) or 0, 1e-3)
        lines.append(
            f"| {name} | {rate:,.0f} | {min(rates) / rate - 1:+.0%} … {max(rates) / rate - 1:+.0%} "
            f"| {f'{rate / peer:.1f}x' if peer else ''} | {f'{rate / limit:.2g}' if limit else ''} "
            f"| {spent:,.1f} | {f'{cost / spent:.1f}x' if cost else ''} | {median(runs, 'first_item_seconds'):.2f} "
            f"| {median(runs, 'memory_mib'):,.0f} |"
        )
    return lines


def write_page(path: Path, results: Mapping[str, Mapping[str, Runs]], refused: Mapping[str, str]) -> None:
    """The page of docs, and the plot beside it."""
    plot(path.with_suffix(".svg"), results)
    turns = max(len(runs) for found in results.values() for runs in found.values())
    lines = [
        "# Beside other loaders",
        "",
        f"Made by `python -m benchmarks` on {date.today():%d %B %Y}, on a machine with two cores that other work",
        "shared: ratios of processor time count, rates and first items suffer. All read the same tars, in processes of",
        f'their own that took turns; medians of {turns} runs. "First item" includes imports, MiB all processes. wdspec',
        "crops JPEGs by its defaults, with DCT scaling.",
        "",
        f"![rates beside webdataset's]({path.with_suffix('.svg').name})",
        *(line for row, found in results.items() for line in table(row, found)),
        "",
        "Not measured: " + "; ".join(f"{name}, which {why}" for name, why in refused.items()) + ".",
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def plot(path: Path, results: Mapping[str, Mapping[str, Runs]]) -> None:
    """A bar for each contender and row: webdataset's processor time by its own."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "wdspec"
    from matplotlib import pyplot

    bars = []
    for row, found in reversed(results.items()):
        peer = median(found.get("webdataset", ()), COST)
        for name, runs in reversed(found.items()):
            rate = median(runs, COST)
            if peer and rate and name != "webdataset" and not name.startswith("limit"):
                bars.append((f"{row}: {name}", peer / rate))
    figure, axes = pyplot.subplots(figsize=(9, 0.6 + 0.27 * len(bars)))
    axes.barh(
        [name for name, _ in bars],
        [ratio for _, ratio in bars],
        color=["#1f5fa8" if "wdspec" in name else "#c8ccd2" for name, _ in bars],
    )
    axes.axvline(1, color="#24292f", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("processor time of a sample: webdataset's by that of the contender")
    for place, (_, ratio) in enumerate(bars):
        axes.text(ratio, place, f" {ratio:.1f}", va="center", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
