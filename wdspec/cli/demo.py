"""`wdspec demo`: create a small project, then check, explain and read it.

The project has three collections of generated images, and a spec that mixes them.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import click
from PIL import Image, ImageDraw

from wdspec.advice.explanation import Explanation, explain_spec
from wdspec.base.errors import install_command
from wdspec.base.progress import is_terminal, progress
from wdspec.cli.explain import ExplainReport
from wdspec.cli.output import Row, Table, number, percent, show, size
from wdspec.cli.problems import summary
from wdspec.cli.samples import first_samples
from wdspec.spec.load import check, load
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

defaults:                           # for every source that does not override them
  extensions: png cls json          # the files of a sample to read; others are never read
  rename: {image: png, label: cls}  # the names in your training code
  decode: {image: rgb8}             # height x width x 3, 0..255; cls and json are decoded by their names

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
epoch: 2048                         # samples; the next epoch continues where this one stops
loader: {workers: 0}                # reading processes
"""
MARK = ".wdspec-demo"
"""The file that marks a folder as created by `wdspec demo`."""
_NEXT = """\
What to try next:
  wdspec head {spec}
  wdspec resolve {spec}
  wdspec explain {spec} --ranks 2 --workers 4
  wdspec explain {spec} --set 'epoch={{batches: 100}}'

Train from it:
  import wdspec
  with wdspec.loader({spec!r}, num_workers=2) as loader:
      for batch in loader: print(batch["image"].shape, batch["label"])"""


@click.command()
@click.argument("folder", default="wdspec-demo")
@click.option("--force", is_flag=True, help="Write into the folder even if it contains other files.")
def demo(folder: str, force: bool) -> None:
    """Create a small spec with shards in FOLDER (default: ./wdspec-demo), check and explain it, and read one epoch.

    The data is generated; nothing is downloaded.
    """
    if not force:
        _check_folder(folder)
    os.environ.pop("WDSPEC_ENV", None)  # meant for other specs
    os.makedirs(folder, exist_ok=True)
    save(os.path.join(folder, MARK), b"`wdspec demo` created this folder, and may overwrite it.\n")
    shards, samples, written = write_project(folder)
    file = os.path.join(folder, "spec.yaml")
    show(f"wrote {folder}: spec.yaml and {shards} shards with {samples:,} samples, {size(written)}")

    show("", f"$ wdspec validate {file}", summary(1, Counter(problem.severity for problem in check(file)[1])))
    show("", f"$ wdspec explain {file}")
    explanation = explain_spec(load(file), ranks=None, workers=None, slots=1)
    show(*ExplainReport(explanation).blocks())

    has_torch = importlib.util.find_spec("torch") is not None
    show("", "reading an epoch" + ("" if has_torch else ", unbatched, since torch is not installed"))
    total = explanation.plan.epoch_samples or 0
    drawn: Counter[str] = Counter()
    if has_torch:
        import torch  # noqa: F401  # so that only reading is measured
    began = time.perf_counter()
    for names in _with_progress(_batches(file) if has_torch else _singles(file, total), total):
        drawn.update(names)
    seconds = time.perf_counter() - began
    click.echo()
    show(
        _shares_table(explanation, drawn),
        f"{drawn.total():,} samples in {seconds:.2g} s: {number(drawn.total() / seconds)} samples/s",
    )
    show("", _NEXT.format(spec=file))
    if not has_torch:
        show("", f"Batches need torch: {install_command('wdspec[torch]')}")


@dataclass(frozen=True)
class Collection:
    """Shards with one kind of image."""

    name: str
    shards: int
    per_shard: int
    draw: Callable[[random.Random], tuple[Image.Image, int, dict[str, str | int]]]
    """Returns an image, its class and its metadata."""


def write_project(folder: str) -> tuple[int, int, int]:
    """Write `spec.yaml` and the shards, with the same bytes every time. Each file is written atomically.

    Returns:
        Shards, samples and bytes written.
    """
    shards = samples = size = 0
    for collection in COLLECTIONS:
        source = random.Random(f"{_SEED} {collection.name}")
        for shard in range(collection.shards):
            path = os.path.join(folder, "shards", f"{collection.name}-{shard:06d}.tar")
            with TarWriter(LocalOutput(path)) as writer:
                for index in range(shard * collection.per_shard, (shard + 1) * collection.per_shard):
                    image, label, facts = collection.draw(source)
                    key = f"{collection.name}/{index:05d}"
                    writer.write({"__key__": key, "png": image, "cls": label, "json": facts})
            shards, samples, size = shards + 1, samples + writer.count, size + writer.size
    save(os.path.join(folder, "spec.yaml"), SPEC.encode())
    return shards, samples, size


def _digit(source: random.Random) -> tuple[Image.Image, int, dict[str, str | int]]:
    """A seven-segment digit: it needs no font, so it looks the same everywhere."""
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


def _check_folder(folder: str) -> None:
    """Refuse a folder with files that are not from `wdspec demo`, or have been edited."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise click.UsageError(f"{folder} is a file; name a folder")
    if not os.path.exists(folder) or not os.listdir(folder):
        return
    if not os.path.exists(os.path.join(folder, MARK)):
        raise click.UsageError(
            f"{folder} is not empty, and not from `wdspec demo`; name another folder, or use --force"
        )
    file = os.path.join(folder, "spec.yaml")
    if os.path.exists(file):
        with open(file, encoding="utf-8", errors="replace") as spec:
            if spec.read() != SPEC:
                raise click.UsageError(
                    f"{file} has been edited; name another folder, or overwrite it with --force"
                )


def _batches(file: str) -> Iterator[list[str]]:
    """The sources of the samples of each batch."""
    from wdspec.api import loader

    with loader(file, rank=0, world_size=1) as batches:
        for batch in batches:
            yield batch["__source__"]


def _singles(file: str, count: int) -> Iterator[list[str]]:
    for sample in first_samples(load(file), count):
        yield [sample["__source__"]]


def _with_progress(pieces: Iterable[list[str]], total: int) -> Iterator[list[str]]:
    """Show a bar on a terminal, else a line for each quarter."""
    if is_terminal():
        with progress("samples", total) as bar:
            for piece in pieces:
                yield piece
                bar.advance(len(piece))
        return
    done = quarters = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        if done * 4 // total > quarters:
            quarters = done * 4 // total
            click.echo(f"  {done:,} of {total:,} samples")


def _shares_table(explanation: Explanation, drawn: Counter[str]) -> Table:
    """The shares of the spec next to those of the epoch."""
    rows: list[Row] = []
    for source in explanation.plan.sources:
        share, count = float(source.share), drawn[source.name]
        difference = count - share * drawn.total()
        parts = percent(share), percent(count / drawn.total())
        rows.append((source.name, *parts, f"{count:,}", f"{difference:+.1f}"))
    return Table(("source", "share>", "realised>", "samples>", "difference>"), rows)
