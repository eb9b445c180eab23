"""Draws the curves of docs/order.md as SVG, by hand: two panels of lines need no plotting library."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape

import numpy as np
from shuffle_quality import delayed, measure, reservoir

BLUE, ORANGE, GREEN, GREY, INK = "#1f5fa8", "#d9622b", "#2e8b57", "#c8ccd2", "#24292f"
DASHED = "6 4"
SIZES = (100, 180, 320, 560, 1000, 1800, 3200, 5000)
"""Samples held, on the x axis of the second panel."""
WIDTH, HEIGHT = 430, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 58, 52


@dataclass
class Panel:
    """Axes over 10**x_decades[0] … 10**x_decades[1] and 0 … 1, and what is drawn in them."""

    title: str
    x_title: str
    x_decades: tuple[float, float]
    left: float
    shapes: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Where a value is, in pixels from the left."""
        low, high = self.x_decades
        return self.left + LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, fraction: float) -> float:
        """Where a fraction is, in pixels from the top."""
        return HEIGHT - BOTTOM - fraction * (HEIGHT - TOP - BOTTOM)

    def text(self, x: float, y: float, text: str, color: str = INK, more: str = "") -> None:
        """Text, by default from x on to the right."""
        self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" {more}>{escape(text)}</text>')

    def line(self, xs: list[float], fractions: list[float], color: str, dash: str = "") -> None:
        """A line through points in the units of the axes."""
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, fractions, strict=True))
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2.2"{dashes}/>'
        )

    def axes(self, x_ticks: list[int]) -> None:
        """Grid, ticks and titles."""
        first, last = self.x(10 ** self.x_decades[0]), self.x(10 ** self.x_decades[1])
        for fraction in (0, 0.2, 0.4, 0.6, 0.8, 1):
            y = self.y(fraction)
            self.shapes.append(
                f'<path d="M{first:.1f} {y:.1f}H{last:.1f}" stroke="{GREY}" stroke-width="0.7"/>'
            )
            self.text(first - 8, y + 4, f"{fraction:.0%}", more='text-anchor="end"')
        for tick in x_ticks:
            x = self.x(tick)
            self.shapes.append(
                f'<path d="M{x:.1f} {self.y(0):.1f}V{self.y(1):.1f}" stroke="{GREY}" stroke-width="0.7"/>'
            )
            self.text(x, self.y(0) + 18, f"{tick:,}", more='text-anchor="middle"')
        self.text((first + last) / 2, HEIGHT - 12, self.x_title, more='text-anchor="middle"')
        words = self.title.split("\n")
        for number, line in enumerate(words):
            self.text(self.left + 12, 22 + 18 * number, line, more='font-weight="600"' if not number else "")


def draw(quick: bool = False) -> str:
    """The two panels as one SVG document.

    Args:
        quick: draws from next to no samples.
    """
    panels = (
        [_apart(20_000), _same_shard(SIZES[:2], 1, 2000)]
        if quick
        else [_apart(400_000), _same_shard(SIZES, 4)]
    )
    shapes = "\n".join(shape for panel in panels for shape in panel.shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" '
        f'width="{2 * WIDTH}" height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif" font-size="12.5">\n'
        f'<rect width="{2 * WIDTH}" height="{HEIGHT}" fill="white"/>\n{shapes}\n</svg>\n'
    )


def _apart(count: int) -> Panel:
    panel = Panel(
        "Neighbours in a shard\nhow many come out at most so far apart",
        "samples between them in the stream",
        (0.6, 4),
        left=0,
    )
    panel.axes([10, 100, 1000, 10_000])
    distances = np.unique(np.geomspace(4, 10_000, 120).astype(int)).tolist()
    for shuffle, color, dash, label, at in (
        (delayed, BLUE, "", "delays, 1,000 held", (15, 0.72)),
        (reservoir, ORANGE, DASHED, "reservoir of 1,000", (15, 0.64)),
    ):
        found = measure(shuffle, 1000, 10_000, count=count)[0]
        panel.line(distances, [found.within(distance) for distance in distances], color, dash)
        x, y = panel.x(at[0]), panel.y(at[1])
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        panel.shapes.append(
            f'<path d="M{x - 32:.1f} {y - 4:.1f}h26" stroke="{color}" stroke-width="2.2"{dashes}/>'
        )
        panel.text(x, y, label, color)
    return panel


def _same_shard(sizes: tuple[int, ...], offsets: int, count: int = 0) -> Panel:
    panel = Panel(
        "Followed by a sample of the same shard\nsolid: delays, dashed: reservoirs",
        "samples held",
        (2, math.log10(5000)),
        left=WIDTH,
    )
    panel.axes([100, 200, 500, 1000, 2000, 5000])
    for shard, interleave, color, label, at in (
        (10_000, 1, BLUE, "shards of 10,000", (1350, 0.975)),
        (1000, 1, GREEN, "shards of 1,000", (1600, 0.52)),
        (100, 1, ORANGE, "shards of 100", (345, 0.31)),
        (10_000, 16, INK, "shards of 10,000, 16 in turn", (104, 0.014)),
    ):
        for shuffle, dash in ((delayed, ""), (reservoir, DASHED)):
            found = [measure(shuffle, size, shard, interleave, offsets, count) for size in sizes]
            fractions = [float(np.mean([each.same_shard for each in of_size])) for of_size in found]
            panel.line(list(sizes), fractions, color, dash)
        panel.text(panel.x(at[0]), panel.y(at[1]), label, color)
    return panel
