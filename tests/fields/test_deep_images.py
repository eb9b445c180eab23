"""Images of 16 bits per channel, compared with the numbers they were made from."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from wdspec.fields.codecs.image_decoder import ImageDecoder

DEEP = np.random.default_rng(3).integers(0, 65536, (5, 7, 4), dtype=np.uint16)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(values: np.ndarray[Any, Any]) -> bytes:
    """A PNG of 16 bits of HW3 or HW4 values, which Pillow cannot write."""
    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def tiff(values: np.ndarray[Any, Any], order: str) -> bytes:
    """An uncompressed TIFF of 16-bit RGB, big- or little-endian."""
    height, width, _ = values.shape
    data = values.astype(f"{order}u2").tobytes()
    short, long = f"{order}HHIHxx", f"{order}HHII"
    entries = [
        struct.pack(short, 256, 3, 1, width),
        struct.pack(short, 257, 3, 1, height),
        struct.pack(long, 258, 3, 3, 8),
        struct.pack(short, 259, 3, 1, 1),
        struct.pack(short, 262, 3, 1, 2),
        struct.pack(long, 273, 4, 1, 14),
        struct.pack(short, 277, 3, 1, 3),
        struct.pack(short, 278, 3, 1, height),
        struct.pack(long, 279, 4, 1, len(data)),
    ]
    start = (b"MM" if order == ">" else b"II") + struct.pack(f"{order}HI", 42, 14 + len(data))
    directory = struct.pack(f"{order}H", len(entries)) + b"".join(entries) + struct.pack(f"{order}I", 0)
    return start + struct.pack(f"{order}HHH", 16, 16, 16) + data + directory


FILES = {
    "png rgb": (png(DEEP[..., :3]), DEEP[..., :3]),
    "png rgba": (png(DEEP), DEEP),
    "tiff big-endian": (tiff(DEEP[..., :3], ">"), DEEP[..., :3]),
    "tiff little-endian": (tiff(DEEP[..., :3], "<"), DEEP[..., :3]),
}


@pytest.mark.parametrize("name", FILES)
def test_deep_colours_are_exact(name: str) -> None:
    data, values = FILES[name]
    assert np.array_equal(ImageDecoder("rgb16")(data), values[..., :3])
    assert np.array_equal(ImageDecoder("rgb")(data), values[..., :3].astype(np.float32) / np.float32(65535))
    assert np.array_equal(
        ImageDecoder("torchrgb")(data).numpy().transpose(1, 2, 0), ImageDecoder("rgb")(data)
    )
    alpha = values[..., 3] if values.shape[2] == 4 else np.full((5, 7), 65535)
    assert np.array_equal(ImageDecoder("rgba16")(data), np.dstack([values[..., :3], alpha]))
    assert np.abs(ImageDecoder("rgb8")(data) - values[..., :3] / 257).max() < 1
    grey = values[..., :3] @ [0.299, 0.587, 0.114]
    assert np.abs(ImageDecoder("l16")(data) - grey).max() <= 0.51


def test_deep_grey_is_exact_in_16_bit_and_float_specs() -> None:
    file = io.BytesIO()
    Image.fromarray(DEEP[..., 0]).save(file, "PNG")
    data = file.getvalue()
    assert np.array_equal(ImageDecoder("l16")(data), DEEP[..., 0])
    assert np.array_equal(ImageDecoder("rgb16")(data), np.dstack([DEEP[..., 0]] * 3))
    assert np.array_equal(ImageDecoder("rgba16")(data)[..., 3], np.full((5, 7), 65535))
    assert np.array_equal(ImageDecoder("l8")(data), np.rint(DEEP[..., 0] / 257))


def test_white_stays_white() -> None:
    for name, (_, values) in FILES.items():
        data = (
            png(np.full_like(values, 65535))
            if name.startswith("png")
            else tiff(np.full_like(values, 65535), ">")
        )
        assert ImageDecoder("l")(data).max() <= 1
        assert ImageDecoder("l16")(data).min() == 65535


@pytest.mark.parametrize("spec", ["l16", "rgb16", "rgba16", "rgb", "torchrgba", "l"])
def test_deep_colours_are_rescaled_channel_by_channel(spec: str) -> None:
    flat = np.broadcast_to(np.array([1000, 40000, 65535, 20000], np.uint16), (6, 8, 4))
    result = np.asarray(ImageDecoder(spec)(png(flat), 2.0))
    assert result.size == {"l": 1, "r": 3, "t": 4}[spec[0]] * 12 * 16 + (12 * 16 if spec == "rgba16" else 0)
    plain = np.asarray(ImageDecoder(spec)(png(flat)))
    assert np.allclose(sorted(set(result.ravel().tolist())), sorted(set(plain.ravel().tolist())), rtol=1e-3)


def test_a_damaged_deep_image_is_an_error() -> None:
    data = FILES["png rgb"][0]
    with pytest.raises(Exception, match=r"\w"):
        ImageDecoder("rgb16")(data[:-60])
