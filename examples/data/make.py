"""Make the shards in this directory, byte for byte the same each time.

    python examples/data/make.py [--out DIRECTORY]

Needs `wdspec[test]`: scikit-learn brings the scans, Pillow and font-caladea the fonts. README.md says what is
in the shards. The scans come out the same with any version of these, the drawn digits with the FreeType named
there.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import importlib.util
import io
import json
import math
import random
import struct
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits

HELD_OUT_EVERY = 5
HELD_OUT_OF_EACH_DIGIT = 32
RENDERED_PER_FONT_AND_DIGIT = 5
RENDERED_SEED = 1797
CANVAS = 96  # glyphs are drawn this large, turned, and only then reduced to 12-20 pixels


class Sample(NamedTuple):
    """One sample before packing: `pixels` is a square uint8 array, ink is 255."""

    key: str
    label: int
    pixels: np.ndarray
    facts: dict[str, object]


def scans() -> Iterator[Sample]:
    """The 1,797 scans of the UCI digits in their original order, 8 x 8, the 17 grey levels spread over 0..255."""
    digits = load_digits()
    for index, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        pixels = (image.astype(np.int64) * 255 // 16).astype(np.uint8)
        facts = {"index": index, "origin": "scan", "font": None}
        yield Sample(f"{index:06d}", int(label), pixels, facts)


def split_scans(samples: Iterable[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Training and held-out scans, each in order.

    Every fifth scan of each digit is held out until there are 32 of it. Should one occur in training
    as well, this stops rather than make another split.
    """
    nth_of_its_digit: Counter[int] = Counter()
    training, held_out = [], []
    for sample in samples:
        nth_of_its_digit[sample.label] += 1
        rounds, rest = divmod(nth_of_its_digit[sample.label], HELD_OUT_EVERY)
        (held_out if rest == 0 and rounds <= HELD_OUT_OF_EACH_DIGIT else training).append(sample)
    shared = {pixel_hash(s.pixels) for s in training} & {pixel_hash(s.pixels) for s in held_out}
    if shared:
        raise SystemExit(f"{len(shared)} held-out pictures occur in training too; hold out others")
    return training, held_out


def pixel_hash(pixels: np.ndarray) -> str:
    """A hash of the pixels of an image, whatever file it is in."""
    return hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()


def fonts() -> dict[str, ImageFont.FreeTypeFont | ImageFont.ImageFont]:
    """The fonts by name: two that come with Pillow, and the four faces of Caladea."""
    package = importlib.util.find_spec("font_caladea")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("font-caladea is not installed: pip install -c constraints.txt -e '.[test]'")
    files = Path(package.submodule_search_locations[0]) / "files"
    basic = ImageFont.Layout.BASIC
    faces = {
        f"Caladea {face}": ImageFont.truetype(files / f"Caladea-{face}.ttf", CANVAS, layout_engine=basic)
        for face in ("Regular", "Bold", "Italic", "BoldItalic")
    }
    return {
        "Pillow bitmap": ImageFont.load_default_imagefont(),
        "Aileron": ImageFont.load_default(CANVAS),
        **faces,
    }


def rendered() -> Iterator[Sample]:
    """Drawn digits: every font, every digit, a few sizes, each slightly rotated."""
    rng = random.Random(RENDERED_SEED)
    index = 0
    for _ in range(RENDERED_PER_FONT_AND_DIGIT):
        for name, font in fonts().items():
            for label in range(10):
                side = 12 + int(rng.random() * 9)
                angle = round(rng.random() * 20 - 10, 1)
                facts = {"index": index, "origin": "drawn", "font": name, "angle": angle}
                yield Sample(f"r{index:05d}", label, draw(str(label), font, side, angle), facts)
                index += 1


def draw(
    text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, side: int, angle: float
) -> np.ndarray:
    """One glyph, rotated by `angle` degrees, cropped to its ink and centred in a square of `side` pixels."""
    left, top, right, bottom = (math.floor(v) for v in font.getbbox(text))
    glyph = Image.new("L", (right - left + 4, bottom - top + 4))
    ImageDraw.Draw(glyph).text((2 - left, 2 - top), text, fill=255, font=font)
    glyph = cut_to_ink(glyph)
    enlarge = CANVAS / glyph.height
    glyph = glyph.resize((max(1, round(glyph.width * enlarge)), CANVAS), Image.Resampling.BILINEAR)
    glyph = cut_to_ink(glyph.rotate(angle, Image.Resampling.BILINEAR, expand=True))
    reduce = side / max(glyph.size)
    glyph = glyph.resize(
        (max(1, round(glyph.width * reduce)), max(1, round(glyph.height * reduce))), Image.Resampling.BOX
    )
    square = Image.new("L", (side, side))
    square.paste(glyph, ((side - glyph.width) // 2, (side - glyph.height) // 2))
    return np.asarray(square)


def cut_to_ink(image: Image.Image) -> Image.Image:
    """The part of an image that is not black."""
    return image.crop(image.getbbox())


def png(pixels: np.ndarray) -> bytes:
    """A grey PNG whose data is stored, not compressed: compressors differ between machines."""
    height, width = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    stored = struct.pack("<BHH", 1, len(rows), len(rows) ^ 0xFFFF) + rows
    data = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(rows))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def tar(samples: Iterable[Sample], collection: str, split: str) -> bytes:
    """A webdataset shard: `png`, `cls` and `json` of one sample after the other, no times and no owners."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as shard:
        for sample in samples:
            facts = {"collection": collection, "split": split, **sample.facts}
            members = {
                "png": png(sample.pixels),
                "cls": str(sample.label).encode(),
                "json": json.dumps(facts, sort_keys=True).encode(),
            }
            for extension, data in members.items():
                member = tarfile.TarInfo(f"{sample.key}.{extension}")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
    return file.getvalue()


def write_collection(
    out: Path, name: str, split: str, samples: list[Sample], shards: int, compressed: bool
) -> None:
    """Write a collection as `shards` files of nearly equal size, in the order given."""
    for shard in range(shards):
        part = samples[len(samples) * shard // shards : len(samples) * (shard + 1) // shards]
        data = tar(part, name, split)
        # bzip2, because its output depends on its input alone; that of gzip depends on the zlib at hand.
        path = out / (f"{name}-{shard:06d}.tar" + (".bz2" if compressed else ""))
        path.write_bytes(bz2.compress(data) if compressed else data)


def make(out: Path) -> None:
    """Write all collections into the directory `out`."""
    out.mkdir(parents=True, exist_ok=True)
    training, held_out = split_scans(scans())
    half = len(training) // 2
    write_collection(out, "digits-a", "train", training[:half], shards=4, compressed=True)
    write_collection(out, "digits-b", "train", training[half:], shards=4, compressed=True)
    write_collection(out, "rendered", "train", list(rendered()), shards=4, compressed=False)
    write_collection(out, "val", "val", held_out, shards=4, compressed=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="where to write (default: here)"
    )
    make(parser.parse_args().out)
