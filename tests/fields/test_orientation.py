"""`rgb8+upright`: images rotated by their EXIF orientation."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from wdspec.base.errors import SpecError
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.fields.samples import SampleFields
from wdspec.spec.language.decoders import IMAGES

IMAGE_SPECS = {name: row.image for row in IMAGES for name in row.names}

PICTURE = np.kron(np.arange(6, dtype=np.uint8).reshape(2, 3) * 40, np.ones((16, 16), np.uint8))
"""32×48: six flat blocks, all different, so that each of the eight orientations is another picture."""
SEEN = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(np.transpose(a), 2),
    8: np.rot90,
}
"""Orientation → how the stored picture is to be shown."""


def turned(orientation: int | None, kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    Image.fromarray(PICTURE).save(file, kind, exif=exif, **({"quality": 100} if kind == "JPEG" else {}))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", SEEN)
def test_images_are_rotated_only_on_request(orientation: int, kind: str) -> None:
    data = turned(orientation, kind)
    stored, upright = ImageDecoder("l8")(data), ImageDecoder("l8+upright")(data)
    assert np.abs(stored.astype(int) - PICTURE).max() <= 2
    assert np.array_equal(upright, SEEN[orientation](stored))
    assert upright.flags.writeable
    assert upright.flags.c_contiguous


@pytest.mark.parametrize("orientation", [None, 0, 9])
def test_images_without_a_valid_orientation_stay(orientation: int | None) -> None:
    data = turned(orientation)
    assert np.array_equal(ImageDecoder("l8+upright")(data), ImageDecoder("l8")(data))


@pytest.mark.parametrize("spec", IMAGE_SPECS)
def test_every_spec_rotates_and_then_rescales(spec: str) -> None:
    result = ImageDecoder(f"{spec}+upright")(turned(6), 0.5)
    if IMAGE_SPECS[spec].container == "pil":
        assert result.size == (16, 24)
    else:
        assert tuple(result.shape[:2] if IMAGE_SPECS[spec].container == "numpy" else result.shape[-2:]) == (
            24,
            16,
        )


def test_a_rotated_sixteen_bit_image_keeps_its_depth() -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (4, 6), dtype=np.uint16)
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(deep).save(file, "PNG", exif=exif)
    assert np.array_equal(ImageDecoder("l16+upright")(file.getvalue()), np.rot90(deep))
    assert np.array_equal(ImageDecoder("l8+upright")(file.getvalue()), np.rot90(np.rint(deep / 257)))


def test_the_option_works_wherever_decoders_are_allowed() -> None:
    raw = {"jpg": turned(6), "left.jpg": turned(6)}
    for options in ({"names": ("l8+upright",)}, {"fields": {"jpg": "l8+upright"}}):
        sample = SampleFields(**options)(raw)  # type: ignore[arg-type]
        assert sample is not None
        assert sample["jpg"].shape == sample["left.jpg"].shape == (48, 32)
    with pytest.raises(SpecError, match="no option 'uprigth'"):
        SampleFields(names=("l8+uprigth",))
    with pytest.raises(SpecError, match="no option 'upright'"):
        SampleFields(names=("json+upright",))
