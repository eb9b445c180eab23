"""The charts of a page: matplotlib's, as SVG that takes the page's colours, and the strip of an epoch as a picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wdspec.cli.preview.spec_preview import Distribution
from wdspec.cli.simulate.simulation import drawn_sources, simulate
from wdspec.planning.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SOURCES = 40
"""Sources of the mixture's chart, those with the largest shares."""
MOST_DRAWN = 1 << 20
"""Samples drawn to see what the shares come to."""
STRIP = 2_048
"""Samples of the strip at most."""
_INK = "#0a0b0c"
"""Stands for the page's own colour of text."""
_PADDING = (128, 128, 128)
_CLASSES = 20
"""Bars of a chart of classes."""


def palette(count: int) -> list[tuple[int, int, int]]:
    """Colours that many sources can be told apart by, as 8-bit RGB."""
    from matplotlib import colormaps

    table = colormaps["tab10" if count <= 10 else "tab20" if count <= 20 else "turbo"]
    places = range(count) if count <= 20 else np.linspace(0.05, 0.95, count)
    found = (table(place) for place in places)
    return [(round(255 * red), round(255 * green), round(255 * blue)) for red, green, blue, _ in found]


def mixture(plan: Plan) -> str:
    """The shares that the spec asks for beside what the first epoch (or a million samples) gives, as SVG."""
    size = plan.batching.global_size
    batches = max(1, min(plan.epoch_batches or MOST_DRAWN, MOST_DRAWN // size))
    found = simulate(plan, batches)
    asked, given = found.expected / max(1, found.expected.sum()), found.drawn / max(1, found.drawn.sum())
    order = np.argsort(-asked, kind="stable")[:MOST_SOURCES][::-1]
    colours = palette(len(plan.sources))
    figure = _figure(7, 0.6 + 0.42 * len(order))
    axes = figure.subplots()
    places = np.arange(len(order))
    bars = axes.barh(places, 100 * given[order], 0.6, color=[_hex(colours[n]) for n in order])
    axes.bar_label(bars, fmt="%.2f %%", padding=6, fontsize=8, color=_INK)
    axes.scatter(100 * asked[order], places, marker="|", s=220, color=_INK, zorder=3)
    axes.set_yticks(places, [plan.sources[n].name for n in order])
    axes.set_xlabel("% of the samples; the line is the share asked for")
    axes.margins(x=0.15)
    return _svg(figure, axes)


def distributions(found: Sequence[Distribution]) -> str:
    """Histograms and bars side by side, as SVG."""
    from matplotlib.ticker import MaxNLocator

    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure = _figure(3 * columns, 2.1 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, each in zip(grid, found, strict=False):
        axes.set_title(each.title, fontsize=9, color=_INK)
        if each.classes:
            most = sorted(each.classes.items(), key=lambda item: -item[1])[:_CLASSES]
            names = sorted((name for name, _ in most), key=int)
            axes.bar(names, [each.classes[name] for name in names], color="#4c8bf5")
            axes.tick_params(axis="x", labelrotation=90 if len(names) > 8 else 0)
        else:
            low, high = min(each.values), max(each.values)
            around = (low - 1, high + 1) if low == high else (low, high)
            axes.hist(each.values, bins=20 if low < high else 3, range=around, color="#4c8bf5")
            axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("" if each.classes else each.unit, fontsize=8)
    for axes in grid[len(found) :]:
        axes.set_visible(False)
    return _svg(figure, *grid)


def strip(plan: Plan) -> tuple[str, int, int]:
    """The first global batches as a picture, a square a sample, coloured by source; a column is a batch.

    Returns:
        a `data:` URL, how many batches, how many samples of each are shown.
    """
    from PIL import Image

    size = plan.batching.global_size
    batches = max(1, min(plan.epoch_batches or 64, 64, STRIP // min(size, STRIP)))
    if plan.batching.batched:
        drawn = drawn_sources(plan, batches)[:, :128]
    else:  # a step is a sample of each rank: columns of 32 say more
        batches = max(1, min(plan.epoch_batches or STRIP, STRIP // min(size, STRIP)))
        flat = drawn_sources(plan, batches).ravel()[:STRIP]
        drawn = np.full((-(-len(flat) // 32), 32), -1)
        drawn.ravel()[: len(flat)] = flat
    colours = np.array([*palette(len(plan.sources)), _PADDING, (255, 255, 255)], dtype=np.uint8)
    side = min(24, max(6, 900 // len(drawn)), max(6, 400 // drawn.shape[1]))
    picture = Image.fromarray(colours[drawn.T].repeat(side, axis=0).repeat(side, axis=1))
    file = io.BytesIO()
    picture.quantize(min(256, len(colours))).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode(), batches, drawn.shape[1]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure, *axes: Any) -> str:
    """The figure as an `svg` element without a background, whose texts and lines have the page's colour."""
    for each in axes:
        each.tick_params(colors=_INK, labelsize=8)
        each.xaxis.label.set_color(_INK)
        each.set_facecolor("none")
        for spine in each.spines.values():
            spine.set_color(_INK)
        each.spines[["top", "right"]].set_visible(False)
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "wdspec"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
