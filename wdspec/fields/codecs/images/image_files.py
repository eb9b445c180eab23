"""Files of pictures → Pillow images with all their pixels, or an error. The format goes by the bytes, not the name."""

from __future__ import annotations

import importlib
import io
import sys
from functools import lru_cache
from typing import Any

from PIL import Image, ImageFile, UnidentifiedImageError

from wdspec.decoders.image_formats import IMAGE_FORMATS
from wdspec.fields.codecs.images.reduction import Reduction
from wdspec.fields.scale import MAX_PIXELS

_NATIVE = "L" if sys.byteorder == "little" else "B"
_OTHER_BYTE = {"B": "L", "L": "B", "N": "B" if _NATIVE == "L" else "L"}
"""Byte order of 16-bit samples in Pillow's raw modes → the one under which Pillow takes the low byte for the high."""


def open_image(data: bytes, reduction: Reduction | None = None) -> Image.Image:
    """Opens an image and reads all of its pixels; those of a JPEG reduced, if there is something that says by how much.

    Raises:
        Exception: whatever Pillow has against the data, and ValueError for more than `MAX_PIXELS`, or no image.
    """
    image = _opened(io.BytesIO(data), data)
    _reduce(image, reduction)
    image.load()
    return image


def open_deep_image(
    data: bytes, reduction: Reduction | None = None
) -> tuple[Image.Image, Image.Image | None]:
    """As `open_image`, and for 16-bit colour, of which Pillow keeps the high bytes, an image of the low ones."""
    image = _opened(io.BytesIO(data), data)
    other = [_with_other_byte(tile) for tile in image.tile]
    _reduce(image, reduction)
    image.load()
    if not other or None in other:
        return image, None
    low = _opened(io.BytesIO(data), data)
    low.tile = other
    low.load()
    return image, low


def _reduce(image: Image.Image, reduction: Reduction | None) -> None:
    if reduction is None:
        return
    reduction.fits = None  # another reader may have begun with this file, and given it up
    if image.format in ("JPEG", "MPO") and (by := reduction(image.size)) > 1:
        image.draft(None, (image.width // by, image.height // by))


def _with_other_byte(tile: Any) -> Any:
    """The same part of a file, read so that 16-bit colours give their low bytes; None for other pixels."""
    codec, extents, offset, args = tile
    mode = args[0] if isinstance(args, tuple) and args else args
    kind, _, order = mode.partition(";16") if isinstance(mode, str) else ("", "", "")
    if kind not in ("RGB", "RGBA") or order not in _OTHER_BYTE:
        return None
    other = f"{kind};16{_OTHER_BYTE[order]}"
    return codec, extents, offset, (other, *args[1:]) if isinstance(args, tuple) else other


def _opened(file: io.BytesIO, data: bytes) -> ImageFile.ImageFile:
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        file = _checked(data)
    try:
        image = Image.open(file, formats=_formats())
    except UnidentifiedImageError as cause:
        what = f"{len(data):,} bytes that begin with {data[:8]!r}" if data else "an empty file"
        raise ValueError(f"{what}: damaged, or no image of a kind that is read") from cause
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width}×{height} is more than {MAX_PIXELS:,} pixels; read it as `raw`")
    if isinstance(file, _NoMore):
        file.strict = True
    return image


class _NoMore(io.BytesIO):
    """A file that fails to be read at its end, once `strict`."""

    strict = False

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if self.strict and not data and size:
            raise OSError("image file is truncated")
        return data


def _checked(data: bytes) -> io.BytesIO:
    """A file for Pillow when the process has set it to paint what is missing of an image grey.

    That is a setting of the whole process which we neither touch nor obey: reads beyond the end fail by our own
    doing, and damaged PNGs by their CRC.
    """
    if data.startswith(b"\x89PNG"):
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            image.verify()
    return _NoMore(data)


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    """The formats that this Pillow can read; `Image.init` would import forty plugins instead of these."""
    found = []
    for format in IMAGE_FORMATS:
        try:
            importlib.import_module(f"PIL.{format.plugin}ImagePlugin")
        except ImportError:
            continue
        if format.pillow in Image.OPEN:
            found.append(format.pillow)
    return tuple(found)
