"""The shares of both specs as bars, in an SVG file."""

from __future__ import annotations

import io

from wdspec.base.errors import UsageError
from wdspec.cli.diff.spec_diff import SpecDiff
from wdspec.stores.outputs import save

_MOST = 40


def draw(diff: SpecDiff, file: str) -> None:
    """Writes the chart; the sources whose shares differ most come first.

    Raises:
        UsageError: matplotlib is not installed, or the file is no SVG.
    """
    if not file.endswith(".svg"):
        raise UsageError(f"--chart draws SVG; name a file that ends in .svg, not {file}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--chart needs matplotlib: pip install 'wdspec[charts]'") from None
    shares = [
        (each.name, each.old.share if each.old else 0.0, each.new.share if each.new else 0.0)
        for each in diff.sources
        if not (each.new or each.old).nested  # type: ignore[union-attr]
    ]
    shares = sorted(shares, key=lambda row: -abs(row[1] - row[2]))[:_MOST][::-1]
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(shares)), layout="constrained")
    axes = figure.subplots()
    places = range(len(shares))
    for side, colour, shift, at in ((diff.old, "#9aa5b1", 0.2, 1), (diff.new, "#1f6feb", -0.2, 2)):
        bars = axes.barh(
            [place + shift for place in places],
            [100 * row[at] for row in shares],
            0.38,
            color=colour,
            label=side.label,
        )
        axes.bar_label(bars, fmt="%.2f %%", padding=3, fontsize=8)
    axes.set_yticks(list(places), [row[0] for row in shares])
    axes.set_xlabel("share of the samples, %")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    save(file, drawn.getvalue())
