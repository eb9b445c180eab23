"""Formats of pictures: what Pillow calls them, which extensions they have, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ImageFormat(NamedTuple):
    """One format of picture files."""

    pillow: str
    """Pillow's name of it."""
    plugin: str
    """Pillow's module for it is ``PIL.<plugin>ImagePlugin``."""
    extensions: tuple[str, ...]
    saving: Mapping[str, Any] = {}
    """Options of Pillow's `save`: lossless where the format can be, else its best quality."""
    wide: bool = False
    """Whether it holds 16 bits a sample."""
    alpha: bool = False
    """Whether it holds alpha."""
    palette: bool = False
    """Whether it holds palettes, and black and white as such."""


# Pillow's own list takes in h5, fits, mpg, ps and eps, and it would start Ghostscript for the last two.
IMAGE_FORMATS = (
    ImageFormat("JPEG", "Jpeg", ("jpg", "jpeg", "jpe", "jfif"), {"quality": 100, "subsampling": 0}),
    ImageFormat("PNG", "Png", ("png", "apng"), wide=True, alpha=True, palette=True),
    ImageFormat("GIF", "Gif", ("gif",), alpha=True, palette=True),
    ImageFormat("BMP", "Bmp", ("bmp", "dib"), palette=True),
    ImageFormat("PPM", "Ppm", ("ppm", "pgm", "pbm", "pnm"), wide=True),
    ImageFormat(
        "TIFF",
        "Tiff",
        ("tif", "tiff"),
        {"compression": "tiff_adobe_deflate"},
        wide=True,
        alpha=True,
        palette=True,
    ),
    ImageFormat("WEBP", "WebP", ("webp",), {"lossless": True, "exact": True}, alpha=True),
    ImageFormat("JPEG2000", "Jpeg2K", ("jp2", "j2k", "jpx"), {"irreversible": False}, wide=True, alpha=True),
    ImageFormat("AVIF", "Avif", ("avif",), {"quality": 100, "subsampling": "4:4:4"}, alpha=True),
)

FORMAT_OF = {extension: format for format in IMAGE_FORMATS for extension in format.extensions}
"""Extension → format: what image decoders read."""

IMAGE_FIELDS = frozenset({*FORMAT_OF, "img", "image"})
"""What the last part of a field's name may be that surely holds a picture; `img` and `image` are written as JPEG."""
