"""Decoding fields: JPEG by simplejpeg compared with Pillow and webdataset, and small fields compared with webdataset.

    python benchmarks/decoding.py            # two tables (a minute)
    python benchmarks/decoding.py --quick    # few turns: checks that it runs, says nothing about speed

Both take turns on the same bytes; the tables show medians of processor time for each field. JPEGs are noise of many
scales, which compresses about as photographs do (0.25 bytes per pixel at quality 90).
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from PIL import Image
from webdataset.autodecode import Decoder as TheirDecoder
from webdataset.autodecode import ImageHandler

from wdspec.fields.codecs.image_decoder import ImageDecoder, simplejpeg
from wdspec.fields.samples import SampleFields
from wdspec.planning.keys import uniform

SIZES = {"224×224": (224, 224), "500×375": (500, 375), "1920×1080": (1920, 1080)}
SPECS = ("rgb8", "rgb", "torchrgb8", "torchrgb")


def picture(width: int, height: int) -> bytes:
    """A JPEG of noise of many scales."""
    rng = np.random.default_rng(width)
    total = np.zeros((height, width, 3), np.float32)
    for step in (1, 4, 16, 64):
        small = rng.normal(0, 5 * step**0.5, (height // step + 2, width // step + 2, 3)).clip(-127, 127) + 128
        layer = Image.fromarray(small.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
        total += np.asarray(layer, np.float32) - 128
    file = io.BytesIO()
    Image.fromarray((total + 128).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def medians(sides: list[Callable[[], Any]], turns: int, seconds: float) -> list[float]:
    """Microseconds of processor time for one call of each side, taking turns."""
    times: list[list[float]] = [[] for _ in sides]
    for side in sides:
        side()
    for _ in range(turns):
        for record, side in zip(times, sides, strict=True):
            calls, start = 0, time.process_time()
            while True:
                side()
                calls += 1
                passed = time.process_time() - start
                if passed >= seconds:
                    break
            record.append(passed / calls * 1e6)
    return [statistics.median(record) for record in times]


def jpeg_rows(turns: int, seconds: float) -> None:
    """One row for each size and decoder."""
    print("| JPEG | decoder | simplejpeg, µs | Pillow, µs | ratio | webdataset, µs | ratio |")
    print("|--|--|--:|--:|--:|--:|--:|")
    for size, (width, height) in SIZES.items():
        data = picture(width, height)
        for spec in SPECS:
            ours, pillows = ImageDecoder(spec), ImageDecoder(f"{spec}+pillow")
            theirs = partial(ImageHandler(spec), ".jpg", data)
            fast, slow, peer = medians([partial(ours, data), partial(pillows, data), theirs], turns, seconds)
            print(
                f"| {size}, {len(data) / 1000:.0f} KB | `{spec}` | {fast:,.0f} | {slow:,.0f} | {slow / fast:.2f} "
                f"| {peer:,.0f} | {peer / fast:.2f} |",
                flush=True,
            )


def reduced_rows(turns: int, seconds: float) -> None:
    """One row for each way to make a picture smaller: decoded whole, and at a part of its size."""
    print("\n| 1920×1080 to 224 | all pixels, µs | by DCT scaling, µs | ratio |\n|--|--:|--:|--:|")
    data = picture(*SIZES["1920×1080"])
    for options in ("random_resized_crop=224", "resize=256+center_crop=224"):
        keys = count()
        decoders = [ImageDecoder(f"rgb8+{options}{more}") for more in ("+dct_scaling=false", "")]

        def decode(decoder: ImageDecoder, keys: Iterator[int] = keys) -> Any:
            return decoder(data, None, partial(uniform, next(keys)))

        whole, reduced = medians([partial(decode, decoder) for decoder in decoders], turns, 4 * seconds)
        print(f"| `rgb8+{options}` | {whole:,.0f} | {reduced:,.0f} | {whole / reduced:.2f} |", flush=True)


def field_rows(turns: int, seconds: float) -> None:
    """One row for each kind of sample."""
    array = io.BytesIO()
    np.save(array, np.arange(64, dtype=np.float32))
    facts = json.dumps({"index": 7, "caption": "picture number 7", "size": [640, 480]}).encode()
    samples = {
        "cls": {"cls": b"7"},
        "cls, txt, json": {"cls": b"7", "txt": b"picture number 7", "json": facts},
        "npy of 64 floats": {"npy": array.getvalue()},
    }
    print("\n| fields of a sample | wdspec, µs | webdataset, µs | ratio |\n|--|--:|--:|--:|")
    for name, fields in samples.items():
        sample = {"__key__": "0001", "__url__": "a.tar", **fields}
        ours, theirs = SampleFields(), TheirDecoder([])
        mine, peer = medians([partial(ours, sample), partial(theirs, sample)], turns, seconds)
        print(f"| {name} | {mine:.2f} | {peer:.2f} | {peer / mine:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns")
    parser.add_argument("--turns", type=int, default=7, help="timed turns of each side (default: 7)")
    options = parser.parse_args()
    if simplejpeg() is None:
        raise SystemExit("simplejpeg is not installed: pip install '.[fast]'")
    warnings.simplefilter("ignore")  # webdataset hands torch arrays that it may not write to
    turns, seconds = (2, 0.001) if options.quick else (options.turns, 0.1)
    jpeg_rows(turns, seconds)
    reduced_rows(turns, seconds)
    field_rows(turns, seconds)


if __name__ == "__main__":
    main()
