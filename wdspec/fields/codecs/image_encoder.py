"""Arrays, tensors and Pillow images → image files.

What goes in, as it comes out of the image decoders:

- numpy arrays HW or HWC with 1, 3 or 4 channels: uint8; bool (black and white); floats in 0..1; uint16 HW (png,
  tiff, ppm and jp2 keep all sixteen bits);
- torch tensors, the same as HW or CHW;
- Pillow images of any mode that the format can hold.

Formats that can be lossless are; ``jpg`` and ``avif`` are written at their best quality, so that rewriting a
collection costs as little as it can.
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
"""How far floats may lie outside of 0..1 by rounding; they are clipped."""


@dataclass(frozen=True)
class ImageEncoder:
    """Writes images in one format.

    Args:
        format: Pillow's name of it, such as ``JPEG``.
        options: for Pillow's `save`, such as ``{"quality": 90}``.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, value: Any) -> bytes:
        """The file for one image.

        Raises:
            TypeError, ValueError: it is no image, or none that the format can hold; says what would do.
        """
        image = self._suited(as_image(value))
        out = io.BytesIO()
        try:
            image.save(out, self.format, **self.options)
        except (OSError, KeyError) as error:
            raise ValueError(f"{self.format} cannot be written from mode {image.mode}: {error}") from error
        return out.getvalue()

    def _suited(self, image: Image.Image) -> Image.Image:
        """The image in a mode that the format has, where that loses nothing; ValueError where it would."""
        format = _FORMATS.get(self.format, _OTHER)
        wide = image.mode.startswith("I;16") or image.mode == "I"
        if wide and not format.wide:
            raise ValueError(
                f"{self.format} holds 8 bits a sample, the image has more; use png, or scale it to uint8"
            )
        if image.mode in ("RGBA", "LA", "PA") and not format.alpha:
            raise ValueError(f"{self.format} holds no alpha; use png, or drop the fourth channel")
        if image.mode == "P" and not format.palette:
            return image.convert("RGB")
        if image.mode == "1" and not (format.palette or self.format == "PPM"):
            return image.convert("L")
        return image


def image_encoder(extension: str) -> ImageEncoder:
    """What writes fields of an extension: JPEG where it names no format, as `img`."""
    format = FORMAT_OF.get(extension, FORMAT_OF["jpg"])
    return ImageEncoder(format.pillow, format.saving)


_FORMATS = {format.pillow: format for format in IMAGE_FORMATS}
_OTHER = ImageFormat("", "", (), palette=True)
"""What is taken for granted of formats that we know nothing of."""


def as_image(value: Any) -> Image.Image:
    """A value as a Pillow image; see the module's docstring for what is one.

    Raises:
        TypeError, ValueError: it is none; says what was seen and what would do.
    """
    from PIL import Image

    if isinstance(value, Image.Image):
        return value
    return Image.fromarray(_as_array(value))


def _as_array(value: Any) -> Any:
    """uint8, uint16 or bool as Pillow takes them: HW, HW3 or HW4."""
    import numpy as np

    is_tensor = type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")
    if is_tensor:
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"{type(value).__name__} is no image; give an array, a tensor, a Pillow image or bytes"
        )
    array = value
    if is_tensor and array.ndim == 3:
        if array.shape[0] not in (1, 3, 4):
            raise ValueError(
                f"a tensor of shape {array.shape} is no image: tensors are HW or CHW; `permute(2, 0, 1)`?"
            )
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        advice = "; `transpose(1, 2, 0)`?" if array.ndim == 3 and array.shape[0] in (1, 3, 4) else ""
        raise ValueError(f"an array of shape {array.shape} is no image: arrays are HW or HWC{advice}")
    if not array.size:
        raise ValueError(f"an array of shape {array.shape} has no pixels")
    return np.ascontiguousarray(_in_bits(array))


def _in_bits(array: Any) -> Any:
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
                f"float images lie in 0..1, this one in {low:.4g}..{high:.4g}; scale it, or use npy"
            )
        # Rounded, not cut off: what was uint8 before it was divided by 255 comes back.
        return np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8)
    raise TypeError(
        f"an array of {array.dtype} is no image; make it uint8 (0..255), uint16 or float (0..1), or use npy"
    )
