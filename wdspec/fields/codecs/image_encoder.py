"""Encoding images: arrays, tensors and Pillow images → image files.

Values are those of the image decoders:

- numpy arrays HW or HWC with 1, 3 or 4 channels: uint8; bool (black and white); floats in 0..1; uint16 HW (png,
  tiff, ppm and jp2 keep all 16 bits);
- torch tensors with the same values, as HW or CHW;
- Pillow images of any mode that the format supports.

Formats are lossless if possible. ``jpg`` and ``avif`` are written in their best quality, so that rewriting a dataset
loses as little as possible.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wdspec.spec.language.decoders import FORMAT_OF, IMAGE_FORMATS, ImageFormat

if TYPE_CHECKING:
    from PIL import Image

_TOLERANCE = 1e-3
"""How far floats may exceed 0..1 by rounding. They are clipped."""


@dataclass(frozen=True)
class ImageEncoder:
    """Writes images in one format.

    Args:
        format: Pillow's name of the format, such as ``JPEG``.
        options: for Pillow's `save`, such as ``{"quality": 90}``.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, value: Any) -> bytes:
        """Return the file for one image.

        Raises:
            TypeError, ValueError: it is not an image, or the format does not support it; says what to do.
        """
        image = self._convert(as_image(value))
        out = io.BytesIO()
        try:
            image.save(out, self.format, **self.options)
        except (OSError, KeyError) as error:
            raise ValueError(f"{self.format} cannot be written from mode {image.mode}: {error}") from error
        return out.getvalue()

    def _convert(self, image: Image.Image) -> Image.Image:
        """Convert the image to a mode of the format, if that loses nothing; otherwise raise ValueError."""
        format = _FORMATS.get(self.format, _OTHER)
        wide = image.mode.startswith("I;16") or image.mode == "I"
        if wide and not format.wide:
            raise ValueError(
                f"{self.format} has 8 bits per sample, but the image has more; use png, or scale it to uint8"
            )
        if image.mode in ("RGBA", "LA", "PA") and not format.alpha:
            raise ValueError(f"{self.format} has no alpha; use png, or drop the fourth channel")
        if image.mode == "P" and not format.palette:
            return image.convert("RGB")
        if image.mode == "1" and not (format.palette or self.format == "PPM"):
            return image.convert("L")
        return image


def image_encoder(extension: str) -> ImageEncoder:
    """Return the encoder of an extension; JPEG if the extension is not a format, like `img`."""
    format = FORMAT_OF.get(extension, FORMAT_OF["jpg"])
    return ImageEncoder(format.pillow, format.saving)


_FORMATS = {format.pillow: format for format in IMAGE_FORMATS}
_OTHER = ImageFormat("", "", (), palette=True)
"""The assumptions about unknown formats."""


def as_image(value: Any) -> Image.Image:
    """Return a value as a Pillow image; see the docstring of the module for accepted values.

    Raises:
        TypeError, ValueError: it is not an image; says what it is and what to do.
    """
    from PIL import Image

    if isinstance(value, Image.Image):
        return value
    return Image.fromarray(_to_array(value))


def _to_array(value: Any) -> Any:
    """Return uint8, uint16 or bool as Pillow accepts them: HW, HW3 or HW4."""
    import numpy as np

    is_tensor = type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")
    if is_tensor:
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"{type(value).__name__} is not an image; pass an array, a tensor, a Pillow image or bytes"
        )
    array = value
    if is_tensor and array.ndim == 3:
        if array.shape[0] not in (1, 3, 4):
            raise ValueError(
                f"a tensor of shape {array.shape} is not an image, which is HW or CHW; use `permute(2, 0, 1)`?"
            )
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        advice = "; use `transpose(1, 2, 0)`?" if array.ndim == 3 and array.shape[0] in (1, 3, 4) else ""
        raise ValueError(f"an array of shape {array.shape} is not an image, which is HW or HWC{advice}")
    if not array.size:
        raise ValueError(f"an array of shape {array.shape} has no pixels")
    return np.ascontiguousarray(_to_bits(array))


def _to_bits(array: Any) -> Any:
    import numpy as np

    if array.dtype == np.uint8 or array.dtype == bool:
        if array.dtype == bool and array.ndim == 3:
            return array.astype(np.uint8) * np.uint8(255)
        return array
    if array.dtype == np.uint16:
        if array.ndim == 3:
            raise ValueError("16-bit colour cannot be written as an image; scale it to uint8, or use npy")
        return array
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):
            raise ValueError(
                f"float images are in 0..1, but this one is in {low:.4g}..{high:.4g}; scale it, or use npy"
            )
        # Rounding restores values that were uint8 before they were divided by 255.
        return np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8)
    raise TypeError(
        f"an array of {array.dtype} is not an image; make it uint8 (0..255), uint16 or float (0..1), or use npy"
    )
