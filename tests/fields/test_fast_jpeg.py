"""JPEG by simplejpeg agrees with Pillow within 1 grey level; Pillow is used if simplejpeg cannot or must not be."""

from __future__ import annotations

import io
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from wdspec.fields.codecs import image_decoder as jpeg
from wdspec.fields.codecs.image_decoder import ImageDecoder, Reduction
from wdspec.planning.keys import key64, uniform
from wdspec.spec.language.decoders import IMAGES

IMAGE_SPECS = {name: row.image for row in IMAGES for name in row.names}

simplejpeg = pytest.importorskip("simplejpeg")
RNG = np.random.default_rng(5)


def picture(width: int, height: int) -> Image.Image:
    """Saturated colours, sharp edges and noise."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([(x * 7) % 256, (y * 5) % 256, ((x // 8 + y // 8) % 2) * 255], axis=-1)
    return Image.fromarray((waves + RNG.normal(0, 25, waves.shape)).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


FILES = {
    **{f"{way}": encoded(picture(97, 65), subsampling=way) for way in ("4:4:4", "4:2:2", "4:2:0")},
    **{f"quality {q}": encoded(picture(64, 64), quality=q) for q in (5, 50, 100)},
    "progressive": encoded(picture(97, 65), progressive=True),
    "optimized": encoded(picture(31, 33), optimize=True),
    "restarts": encoded(picture(97, 65), restart_marker_rows=1),
    "grey": encoded(picture(97, 65).convert("L")),
    "one pixel": encoded(picture(1, 1)),
    "one row": encoded(picture(50, 1)),
    "exif": encoded(picture(20, 10), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"),
}
OTHERS = {"cmyk": encoded(picture(40, 30).convert("CMYK")), "rgb": encoded(picture(40, 30), keep_rgb=True)}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("spec", [spec for spec in IMAGE_SPECS if IMAGE_SPECS[spec].container != "pil"])
@pytest.mark.parametrize("factor", [None, 0.6])
def test_it_agrees_with_pillow_within_one_grey_level(spec: str, name: str, factor: float | None) -> None:
    mode = IMAGE_SPECS[spec].mode
    assert (jpeg.read_jpeg(FILES[name], mode) is not None) == (mode != "L" or name == "grey")
    fast, slow = (np.asarray(ImageDecoder(each)(FILES[name], factor)) for each in (spec, f"{spec}+pillow"))
    assert (fast.shape, fast.dtype) == (slow.shape, slow.dtype)
    level = {"uint8": 1, "uint16": 257, "float32": 1 / 255}[IMAGE_SPECS[spec].dtype]
    assert np.abs(fast.astype(float) - slow).max() <= level * 1.0001


@pytest.mark.parametrize("mode", ["l", "rgb", "rgba"])
def test_its_arrays_are_writable_and_contiguous(mode: str) -> None:
    for name in ("4:2:0", "grey"):
        array = ImageDecoder(f"{mode}8")(FILES[name])
        assert array.flags.writeable
        assert array.flags.c_contiguous


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("spec", ["rgb8", "l8", "rgba"])
def test_pillow_decodes_other_colour_spaces(spec: str, name: str) -> None:
    assert jpeg.read_jpeg(OTHERS[name], "RGB") is None
    assert np.array_equal(ImageDecoder(spec)(OTHERS[name]), ImageDecoder(f"{spec}+pillow")(OTHERS[name]))


def outcome(decoder: ImageDecoder, *arguments: Any) -> Any:
    try:
        return decoder(*arguments)
    except Exception as error:
        return str(error)


def test_pillow_decides_on_damaged_files() -> None:
    data = FILES["4:2:0"]
    damaged = [data[:n] for n in (0, 2, 3, 20, 200, len(data) // 2, len(data) - 2)] + [data + b"more"]
    for _ in range(100):
        flipped = bytearray(data)
        flipped[RNG.integers(2, len(data))] ^= 1 << RNG.integers(8)
        damaged.append(bytes(flipped))
    for each in damaged:
        fast, slow = outcome(ImageDecoder("rgb8"), each), outcome(ImageDecoder("rgb8+pillow"), each)
        assert type(fast) is type(slow)
        if isinstance(fast, str):
            assert fast == slow
        else:
            assert fast.shape == slow.shape
            assert np.abs(fast.astype(int) - slow).max() <= 1


LARGE = {
    **{way: encoded(picture(300, 400), subsampling=way) for way in ("4:4:4", "4:2:2", "4:2:0")},
    "grey": encoded(picture(300, 400).convert("L")),
    "odd": encoded(picture(301, 395), subsampling="4:2:0"),
    "stray bytes before its end": encoded(picture(300, 400))[:-2] + b"\0\0\0\xff\xd9",
}
WHOLE = {
    "progressive": encoded(picture(300, 400), progressive=True),
    "restarts": encoded(picture(300, 400), restart_marker_rows=1),
    "without an end": LARGE["4:2:0"][:-2],
}


def crop_of(data: bytes, options: str, number: int) -> Any:
    return outcome(ImageDecoder(f"rgb8+{options}"), data, None, partial(uniform, key64(3, number)))


@pytest.mark.parametrize("name", [*LARGE, *WHOLE])
@pytest.mark.parametrize(
    "options",
    [
        "random_resized_crop=16",
        "random_resized_crop=48+interpolation=bicubic",
        "random_resized_crop=200",
        "random_resized_crop=60+interpolation=lanczos",
        "random_resized_crop=90+resizer=pillow",
        "random_resized_crop=50+dct_scaling=false",
    ],
)
def test_skipping_rows_below_a_crop_changes_no_pixel(
    name: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, left_out = {**LARGE, **WHOLE}[name], []
    read = jpeg._read_top

    def read_top(module: Any, data: bytes, mode: str, size: Any, by: int, rows: int) -> Any:
        top = read(module, data, mode, size, by, rows)
        if top is not None:
            left_out.append(size[1] - rows)
            top[-(-rows // by) :] = 77
        return top

    monkeypatch.setattr(jpeg, "_read_top", read_top)
    found = [crop_of(data, options, number) for number in range(12)]
    monkeypatch.setattr(Reduction, "count_rows", lambda self, size, by: size[1])
    for number, crop in enumerate(found):
        whole = crop_of(data, options, number)
        assert np.array_equal(crop, whole) if isinstance(whole, np.ndarray) else crop == whole
    assert (len(left_out) > 3 and min(left_out) >= 16) if name in LARGE else not left_out


def test_damage_within_a_crop_is_found_if_rows_below_are_skipped() -> None:
    data = LARGE["4:2:0"]
    for number in range(80):
        flipped = bytearray(data)
        flipped[RNG.integers(2, len(data))] ^= 1 << RNG.integers(8)
        options = ("random_resized_crop=150", "random_resized_crop=16")[number % 2]
        fast, slow = (crop_of(bytes(flipped), options + more, number) for more in ("", "+pillow"))
        assert type(fast) is type(slow)
        if isinstance(fast, str):
            assert fast == slow
        else:
            assert np.abs(fast.astype(int) - slow).max() <= 1


def test_it_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "wdspec.fields.codecs.image_decoder.read_jpeg",
        lambda data, mode: pytest.fail("simplejpeg was used"),
    )
    assert ImageDecoder("rgb8+pillow")(FILES["4:2:0"]).shape == (65, 97, 3)
    assert ImageDecoder("pil")(FILES["4:2:0"]).size == (97, 65)


def test_everything_reads_the_same_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    jpeg.simplejpeg.cache_clear()
    try:
        assert jpeg.read_jpeg(FILES["4:2:0"], "RGB") is None
        assert ImageDecoder("rgb8")(FILES["4:2:0"]).shape == (65, 97, 3)
    finally:
        monkeypatch.undo()
        jpeg.simplejpeg.cache_clear()
