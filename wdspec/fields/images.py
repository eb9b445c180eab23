"""Images: bytes → numpy array, torch tensor or Pillow image, rescaled on the way if asked.

| spec | container | dtype | shape |
|--|--|--|--|
| ``l8 rgb8 rgba8`` | numpy | uint8 | HW, HWC, HWC |
| ``l rgb rgba`` | numpy | float32 in 0..1 | HW, HWC, HWC |
| ``torchl8 torchrgb8 torchrgba8`` | torch | uint8 | HW, CHW, CHW |
| ``torchl torchrgb=torch torchrgba`` | torch | float32 in 0..1 | HW, CHW, CHW |
| ``pill pilrgb=pil pilrgba`` | Pillow, mode L, RGB, RGBA | | |

Arrays are writable and C-contiguous, tensors contiguous. EXIF orientation is not applied, of an animation the
first frame counts, and the format goes by the bytes, not by the name.
"""

from __future__ import annotations

import importlib
import io
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from wdspec.fields.pixels import has_16_bits, mode_of_8_bits, values_of_16_bits
from wdspec.fields.scale import MAX_PIXELS, scaled_size


class ImageSpec(NamedTuple):
    """What an image decoder's name stands for."""

    container: str
    """``numpy``, ``torch`` or ``pil``."""
    mode: str
    """Pillow's name of the channels: ``L``, ``RGB`` or ``RGBA``."""
    is_float: bool
    """Whether values are float32 in 0..1 rather than uint8."""


IMAGE_SPECS: dict[str, ImageSpec] = {
    "torch": ImageSpec("torch", "RGB", True),
    "pil": ImageSpec("pil", "RGB", False),
    **{f"{mode.lower()}8": ImageSpec("numpy", mode, False) for mode in ("L", "RGB", "RGBA")},
    **{mode.lower(): ImageSpec("numpy", mode, True) for mode in ("L", "RGB", "RGBA")},
    **{f"torch{mode.lower()}8": ImageSpec("torch", mode, False) for mode in ("L", "RGB", "RGBA")},
    **{f"torch{mode.lower()}": ImageSpec("torch", mode, True) for mode in ("L", "RGB", "RGBA")},
    **{f"pil{mode.lower()}": ImageSpec("pil", mode, False) for mode in ("L", "RGB", "RGBA")},
}

# Pillow's own list takes in h5, fits, mpg, ps and eps, and it would start Ghostscript for the last two.
_PLUGINS = {
    "Jpeg": ("JPEG", ("jpg", "jpeg", "jpe", "jfif")),
    "Png": ("PNG", ("png", "apng")),
    "Gif": ("GIF", ("gif",)),
    "Bmp": ("BMP", ("bmp", "dib")),
    "Ppm": ("PPM", ("ppm", "pgm", "pbm", "pnm")),
    "Tiff": ("TIFF", ("tif", "tiff")),
    "WebP": ("WEBP", ("webp",)),
    "Jpeg2K": ("JPEG2000", ("jp2", "j2k", "jpx")),
    "Avif": ("AVIF", ("avif",)),
}

IMAGE_SUFFIXES: dict[str, str] = {
    suffix: name.lower() for name, suffixes in _PLUGINS.values() for suffix in suffixes
}
"""Suffixes that an image decoder takes by default → the format's name for messages."""


class ImageDecoder:
    """Decodes images after one spec of the table.

    Args:
        spec: a name of the table.
        nearest: rescale by nearest neighbour, as labels need, instead of smoothly. Palette images always do.
    """

    def __init__(self, spec: str, nearest: bool = False) -> None:
        self.spec = spec
        self.nearest = nearest
        self._container, self._mode, self._float = IMAGE_SPECS[spec]

    def __call__(self, data: bytes, factor: float | None = None) -> Any:
        """Decodes an image, rescaled by a factor unless that is None.

        Raises:
            Exception: whatever Pillow has against the data, and ValueError for an image, or a result, of
                more than `MAX_PIXELS` pixels, for samples without an agreed range, or for no image at all.
        """
        with open_image(data) as image:
            size = scaled_size(image.size, factor)
            if self._float and has_16_bits(image):
                values = _with_channels(values_of_16_bits(image, size, self.nearest), self._mode)
                return _to_torch(values) if self._container == "torch" else values
            image = mode_of_8_bits(image, self._mode, size, self.nearest)
            if self._container == "pil":
                return image
            values = np.array(image, dtype=np.float32 if self._float else np.uint8)
        if self._float:
            values /= 255.0
        return _to_torch(values) if self._container == "torch" else values

    def __repr__(self) -> str:
        return f"ImageDecoder({self.spec!r}, nearest={self.nearest})"


def open_image(data: bytes) -> Image.Image:
    """Opens an image and reads all of its pixels, or raises; see `ImageDecoder`."""
    if not ImageFile.LOAD_TRUNCATED_IMAGES:
        return _load(io.BytesIO(data), data)
    # Somebody has told Pillow to paint what is missing of an image grey. That is a setting of the whole
    # process which we neither touch nor obey: reads beyond the end fail by our own doing, and damaged PNGs
    # by their CRC.
    image = _load(_NoMore(data), data)
    if image.format == "PNG":
        with Image.open(io.BytesIO(data), formats=("PNG",)) as again:
            again.verify()
    return image


class _NoMore(io.BytesIO):
    """A file that fails to be read at its end, once `strict`."""

    strict = False

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if self.strict and not data and size:
            raise OSError("image file is truncated")
        return data


def _load(file: io.BytesIO, data: bytes) -> Image.Image:
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
    image.load()
    return image


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    """The formats that this Pillow can read; `Image.init` would import forty plugins instead of these."""
    found = []
    for plugin, (name, _) in _PLUGINS.items():
        try:
            importlib.import_module(f"PIL.{plugin}ImagePlugin")
        except ImportError:
            continue
        if name in Image.OPEN:
            found.append(name)
    return tuple(found)


def _with_channels(values: np.ndarray[Any, Any], mode: str) -> np.ndarray[Any, Any]:
    """Grey float values as HW, HW3, or HW4 with opaque alpha."""
    if mode == "L":
        return values
    result = np.ones((*values.shape, len(mode)), np.float32)
    result[:, :, :3] = values[:, :, None]
    return result


def _to_torch(values: np.ndarray[Any, Any]) -> Any:
    """An array as a tensor, channels first."""
    import torch

    return torch.from_numpy(values if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1)))
