"""The small project that `wdspec demo` writes: three collections of drawn pictures, and a spec that mixes them."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image, ImageDraw

from wdspec.stores.outputs import LocalOutput, save
from wdspec.write.tar_writer import TarWriter

SIDE = 32
_SEED = 20
_COLOURS = {
    "red": (214, 69, 65),
    "green": (63, 158, 95),
    "blue": (56, 103, 190),
    "yellow": (231, 184, 52),
    "violet": (136, 84, 168),
}
_PAPER = (250, 248, 242)
_SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
_SHAPES = ("circle", "square", "triangle")
_PATTERNS = ("stripes", "checks", "rings")

SPEC = """\
# A mix of three small collections. See what it means:   wdspec explain spec.yaml
wdspec: 1
name: demo
seed: 17                            # same seed, same order

defaults:                           # for every source that does not say otherwise
  extensions: png cls json          # the files of a sample that are wanted; others are never read
  rename: {image: png, label: cls}  # what your training calls them
  decode: {image: rgb8}             # height x width x 3, 0..255; cls and json go by their names

dataset:
  - name: digits
    shards: shards/digits-{000000..000003}.tar
    probability: 0.5                # half of all samples, however many shards there are
  - name: shapes
    shards: shards/shapes-{000000..000002}.tar
    probability: 0.3
  - name: patterns
    shards: shards/patterns-000000.tar
    probability: 0.2                # a small collection, read more often

batch: 32
epoch: 2048                         # samples; the next epoch goes on where this one stops
loader: {workers: 0}                # reading processes
"""


@dataclass(frozen=True)
class Collection:
    """Shards of one kind of picture."""

    name: str
    shards: int
    per_shard: int
    draw: Callable[[random.Random], tuple[Image.Image, int, dict[str, str | int]]]
    """Gives a picture, its class and what else is known of it."""


def write_project(folder: str) -> tuple[int, int, int]:
    """Writes `spec.yaml` and the shards; the same bytes each time, each file whole or not at all.

    Returns:
        Shards, samples and bytes written.
    """
    shards = samples = size = 0
    for collection in COLLECTIONS:
        source = random.Random(f"{_SEED} {collection.name}")
        for number in range(collection.shards):
            path = os.path.join(folder, "shards", f"{collection.name}-{number:06d}.tar")
            with TarWriter(LocalOutput(path)) as writer:
                for index in range(number * collection.per_shard, (number + 1) * collection.per_shard):
                    image, label, facts = collection.draw(source)
                    key = f"{collection.name}/{index:05d}"
                    writer.write({"__key__": key, "png": image, "cls": label, "json": facts})
            shards, samples, size = shards + 1, samples + writer.count, size + writer.size
    save(os.path.join(folder, "spec.yaml"), SPEC.encode())
    return shards, samples, size


def _digit(source: random.Random) -> tuple[Image.Image, int, dict[str, str | int]]:
    """A digit as pocket calculators show it: no font is needed, so it looks the same everywhere."""
    digit, angle, ink = source.randrange(10), source.randrange(-20, 21), source.randrange(20, 90)
    left, right, width = source.randrange(8, 11), source.randrange(20, 24), source.randrange(2, 5)
    top, bottom = source.randrange(4, 7), source.randrange(25, 28)
    middle = (top + bottom) // 2
    ends = {
        "a": (left, top, right, top),
        "b": (right, top, right, middle),
        "c": (right, middle, right, bottom),
        "d": (left, bottom, right, bottom),
        "e": (left, middle, left, bottom),
        "f": (left, top, left, middle),
        "g": (left, middle, right, middle),
    }
    image = Image.new("RGB", (SIDE, SIDE), _PAPER)
    draw = ImageDraw.Draw(image)
    for segment in _SEGMENTS[digit]:
        draw.line(ends[segment], fill=(ink, ink, ink), width=width)
    turned = image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=_PAPER)
    return turned, digit, {"kind": "digit", "text": str(digit), "angle": angle}


def _shape(source: random.Random) -> tuple[Image.Image, int, dict[str, str | int]]:
    shape, colour = source.choice(_SHAPES), source.choice(list(_COLOURS))
    image = Image.new("RGB", (SIDE, SIDE), _PAPER)
    radius = source.uniform(7, 13)
    x, y = source.uniform(radius, SIDE - radius), source.uniform(radius, SIDE - radius)
    draw = ImageDraw.Draw(image)
    if shape == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_COLOURS[colour])
    else:
        corners = 4 if shape == "square" else 3
        draw.regular_polygon((x, y, radius), corners, source.randrange(90), fill=_COLOURS[colour])
    return image, 10 + _SHAPES.index(shape), {"kind": "shape", "shape": shape, "colour": colour}


def _pattern(source: random.Random) -> tuple[Image.Image, int, dict[str, str | int]]:
    pattern, colour = source.choice(_PATTERNS), source.choice(list(_COLOURS))
    width = source.randrange(3, 7)
    image = Image.new("RGB", (SIDE, SIDE), _PAPER)
    middle = SIDE / 2
    red, green, blue = (min(255, part + source.randrange(-20, 21)) for part in _COLOURS[colour])
    for x in range(SIDE):
        for y in range(SIDE):
            steps = {
                "stripes": (x + y) // width,
                "checks": x // width + y // width,
                "rings": int(math.hypot(x - middle, y - middle)) // width,
            }[pattern]
            if steps % 2:
                image.putpixel((x, y), (red, green, blue))
    return image, 13 + _PATTERNS.index(pattern), {"kind": "pattern", "pattern": pattern, "width": width}


COLLECTIONS = (
    Collection("digits", 4, 200, _digit),
    Collection("shapes", 3, 200, _shape),
    Collection("patterns", 1, 120, _pattern),
)
