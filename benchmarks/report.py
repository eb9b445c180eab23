"""The results of `python -m benchmarks`, as tables in markdown, a page, and a plot."""

from __future__ import annotations

import os
import platform
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.rows import ROWS, TARGETS, WHY, Target
from benchmarks.tables import Asked, Table, grid

Runs = Sequence[Mapping[str, Any]]
Rates = Mapping[str, Mapping[str, Runs]]
"""Row → contender → its runs."""
RATE, COST = "samples_per_second", "processor_us_per_sample"


def machine() -> str:
    """Its cores, and how busy it is, in words."""
    model = platform.processor() or platform.machine()
    try:
        intro = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(line.partition(": ")[2] for line in intro.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass  # no Linux, or a processor that has no such line
    busy = f", at a load of {os.getloadavg()[0]:.1f} when it began" if hasattr(os, "getloadavg") else ""
    return (
        f"{os.cpu_count()} cores of {model} ({platform.system()}, Python {platform.python_version()}){busy}"
    )


def median(runs: Runs, figure: str) -> float | None:
    """Over the runs; None where one failed."""
    if not runs or any("error" in run for run in runs):
        return None
    return statistics.median(run[figure] for run in runs)


def rate_table(row: str, found: Mapping[str, Runs]) -> Table:
    """One row's contenders."""
    reference = ROWS[row].reference
    peer, cost = (median(found.get(reference, ()), figure) for figure in (RATE, COST))
    limit = next((median(runs, RATE) for name, runs in found.items() if name.startswith("limit")), None)
    columns = ["", "samples/s", "spread", f"by {reference}'s", "by the limit's", "processor, µs a sample"]
    columns += [f"{reference}'s by it", "first item, s", "peak MiB"]
    lines = []
    for name, runs in found.items():
        rate = median(runs, RATE)
        if rate is None:
            error = next((run["error"] for run in runs if "error" in run), "")
            lines.append([name, error, *[""] * (len(columns) - 2)])
            continue
        rates, spent = [run[RATE] for run in runs], _cost(runs)
        lines.append(
            [
                name,
                f"{rate:,.0f}",
                f"{min(rates) / rate - 1:+.0%} … {max(rates) / rate - 1:+.0%}",
                f"{rate / peer:.3g}x" if peer else "",
                f"{rate / limit:.2g}" if limit else "",
                f"{spent:,.1f}",
                f"{cost / spent:.3g}x" if cost else "",
                f"{median(runs, 'first_item_seconds'):.2f}",
                f"{median(runs, 'memory_mib'):,.0f}",
            ]
        )
    return Table(ROWS[row].title, columns, lines)


def ratio(target: Target, rates: Rates) -> Asked | None:
    """The result of a target; None if it was not measured."""
    than_row = target.than_row or target.row
    own, other = rates.get(target.row, {}).get(target.who, ()), rates.get(than_row, {}).get(target.than, ())
    if (own_rate := median(own, RATE)) is None or (other_rate := median(other, RATE)) is None:
        return None
    by_clock = target.by == "the clock"
    found = own_rate / other_rate if by_clock else target.cores * _cost(other) / _cost(own)
    than = target.than + (f" of {than_row}" if target.than_row else "")
    spread = ", on two cores" if target.cores == 2 else ", by the clock" if by_clock else ""
    return Asked(
        f"{target.row}: {target.who} by {than}{spread}",
        found,
        target.least,
        why=WHY.get((target.row, target.than), ""),
    )


def write_page(path: Path, results: Mapping[str, Any]) -> None:
    """Write the page of docs, and its plot.

    Args:
        results: `rates`, `tables` (row → tables as JSON), and the `machine` as text.
    """
    rates: Rates = results["rates"]
    others = [Table.of_json(each) for tables in results["tables"].values() for each in tables]
    asked = [found for target in TARGETS if (found := ratio(target, rates)) is not None]
    asked += [each for table in others for each in table.asked]
    why = [f"- {each.what}: {each.why}" for each in asked if each.why and not each.met]
    turns = sorted({len(runs) for row in rates.values() for runs in row.values()})
    intro = (
        f"Made by `python -m benchmarks` on {date.today():%d %B %Y}, on {results['machine']}. Other work may have "
        "shared it, so targets use the processor time of all processes together, and the clock only where stated; "
        "rates and first items suffer. All contenders read the same tars, in separate processes that took "
        f"turns; medians of {' or '.join(map(str, turns))} runs. Other formats were written beforehand. "
        '"First item" includes imports; memory is the sum of the peaks of all processes, with shared memory. '
        "wdspec crops JPEGs with its defaults, with DCT scaling."
    )
    lines = ["# Results of `python -m benchmarks`", "", *textwrap.wrap(intro, 120)]
    if rates:
        plot(path.with_suffix(".svg"), rates)
        lines += ["", f"![webdataset's processor time by each one's]({path.with_suffix('.svg').name})"]
    if asked:
        lines += ["", "## Targets", ""]
        lines += grid(["", "target", "measured", ""], [each.cells() for each in asked])
    if why:
        lines += ["", "Why some targets are not met:", "", *why]
    for row, contenders in rates.items():
        lines += ["", f"## {row}", "", *rate_table(row, contenders).markdown()]
    for row, tables in results["tables"].items():
        lines += ["", f"## {row}"]
        for table in tables:
            lines += ["", *Table.of_json(table).markdown()]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def plot(path: Path, rates: Rates) -> None:
    """Draw a bar for each contender and row: the processor time of the reference, divided by its own."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "wdspec"
    from matplotlib import pyplot

    bars = []
    for row, found in reversed(rates.items()):
        reference = ROWS[row].reference
        peer = median(found.get(reference, ()), COST)
        for name, runs in reversed(found.items()):
            if peer and median(runs, COST) and name != reference and not name.startswith("limit"):
                bars.append((f"{row}: {name}", peer / _cost(runs)))
    figure, axes = pyplot.subplots(figsize=(9, 0.6 + 0.27 * len(bars)))
    axes.barh(
        [name for name, _ in bars],
        [value for _, value in bars],
        color=["#1f5fa8" if "wdspec" in name else "#c8ccd2" for name, _ in bars],
    )
    axes.axvline(1, color="#24292f", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel(
        "processor time of a sample: webdataset's (or that of one source) by that of the contender"
    )
    for place, (_, value) in enumerate(bars):
        axes.text(value, place, f" {value:.2g}" if value < 10 else f" {value:.0f}", va="center", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _cost(runs: Runs) -> float:
    """Processor time of a sample, µs; never nothing."""
    return max(median(runs, COST) or 0, 1e-3)
