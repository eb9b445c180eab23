"""What the first and last bytes of an image file say: its mode and size, and whether it is whole. Decodes nothing."""

from __future__ import annotations

import io
import struct
import warnings
from typing import NamedTuple

from PIL import Image

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_MODES = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_FRAME = struct.Struct(">HHB")
_JPEG_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of frames; the others among them are those of tables."""


class ImageHead(NamedTuple):
    """An image as its header has it."""

    mode: str
    """`RGB`, `L`, `CMYK`, `I;16`, …"""
    width: int
    height: int
    is_cut: bool
    """Whether the file ends before its format does."""


def image_head(data: bytes) -> ImageHead | None:
    """The head of an image file; None where it is none that can be told without decoding."""
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(_PNG) and len(data) > 29:
        width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
        mode = "I;16" if depth == 16 and kind == 0 else _PNG_MODES.get(kind, "?")
        return ImageHead(mode, width, height, b"IEND" not in data[-64:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of images that may be bombs: only the header is read
            with Image.open(io.BytesIO(data)) as image:
                is_cut = data[:4] == b"RIFF" and len(data) < int.from_bytes(data[4:8], "little") + 8
                return ImageHead(image.mode, *image.size, is_cut)
    except Exception:  # whatever Pillow says of it, decoding says it better
        return None


def _jpeg(data: bytes) -> ImageHead | None:
    at, end = 2, len(data) - 9
    while at < end:
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker not in _FRAMES:
            at += 2 + (data[at + 2] << 8 | data[at + 3])
        else:
            height, width, parts = _FRAME.unpack_from(data, at + 5)
            # Data of the image never holds the marker of the end; some writers put other things behind it.
            return ImageHead(_JPEG_MODES.get(parts, "?"), width, height, data.rfind(b"\xff\xd9", at) < 0)
    return None
