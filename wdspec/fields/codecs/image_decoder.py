"""Images: bytes → numpy array, torch tensor or Pillow image, rescaled on the way if asked.

What each decoder gives is in its row (`ImageSpec`), and in docs/decoders.md. Arrays are writable and C-contiguous,
tensors contiguous. Pictures of 16 bits keep them in the float and 16-bit decoders, and are scaled to 8 bits in the
others; in a 16-bit decoder an 8-bit value v becomes 257·v, so that white stays white. Of an animation the first frame
counts, and the format goes by the bytes, not by the name.

`rgb8+upright` turns and mirrors the picture as its EXIF orientation says, before anything else (TIFF and AVIF, whose
orientation is no afterthought, Pillow turns in any case). `rgb8+pillow` keeps simplejpeg out.
JPEGs that are to be smaller are decoded smaller (`reduction`), unless `dct_scaling=false`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from wdspec.fields.codecs.framing import Fit, Framing, Size
from wdspec.fields.codecs.image_files import (
    Reduction,
    colours_of_16_bits,
    fitted_array,
    grey_of_16_bits,
    has_16_bits,
    mode_of_8_bits,
    open_deep_image,
    open_image,
    read_jpeg,
    with_channels,
)
from wdspec.fields.scale import Numbers, scaled_size
from wdspec.spec.language.decoder_options import option_values, split_decoder
from wdspec.spec.language.decoders import BY_NAME

Array = np.ndarray[Any, Any]
_WHITE = np.float32(255)


LABELS = frozenset({"seg", "mask"})
"""Parts of a field's name, between dots, that mark an image of labels: rescaled by nearest neighbour."""


def image_decoder(decoder: str, field: str, suffix: str) -> ImageDecoder:
    """The reader of a field, by the name of its decoder, its own name and its suffix."""
    parts = {*field.lower().split("."), *suffix.split(".")}
    return ImageDecoder(decoder, nearest=bool(LABELS & parts))


class ImageDecoder:
    """Decodes images after one spec of the table.

    Args:
        spec: a name of the table, perhaps with options: ``rgb8+upright``.
        nearest: rescale by nearest neighbour, as labels need, instead of smoothly. Palette images always do.
    """

    def __init__(self, spec: str, nearest: bool = False) -> None:
        self.spec = spec
        self.nearest = nearest
        base, options = split_decoder(spec)
        image = BY_NAME[base].image
        assert image is not None, f"{base} is an image decoder"
        self._container, self._mode, self._dtype = image
        self._framing = Framing.of(spec)
        self._upright = "upright" in options
        self._reduces = option_values(spec).get("dct_scaling", True) and not nearest
        self._fast = self._container != "pil" and "pillow" not in options
        self._finish = _FINISH[self._container, self._dtype]

    def __call__(self, data: bytes, factor: float | None = None, numbers: Numbers | None = None) -> Any:
        """Decodes an image, rescaled by a factor unless that is None, and framed as the options say.

        Args:
            numbers: the sample's own, from which `random_resized_crop` draws.

        Raises:
            Exception: whatever Pillow has against the data, and ValueError for an image, or a result, of
                more than `scale.MAX_PIXELS` pixels, for samples without an agreed range, or for no image at all.
        """
        # Only a JPEG with EXIF may need turning; looking for these letters takes 1 µs for 10 KB.
        as_stored = not (self._upright and b"Exif\0" in data)
        fits_of = partial(self._fits, factor=factor, numbers=numbers)
        reduction = Reduction(fits_of) if self._reduces and as_stored else None
        if self._fast and as_stored:
            values = read_jpeg(data, self._mode, reduction)
            if values is not None:
                fits = _steps(reduction) or fits_of((values.shape[1], values.shape[0]))
                if fits:
                    values = np.array(fitted_array(values, fits, self.nearest))
                return self._finish(values)
        if self._dtype != "uint8":
            return self._deep(data, fits_of, reduction)
        with open_image(data, reduction) as image:
            turned = self._turned(image)
            fits = _steps(reduction) or fits_of(turned.size)
            result = mode_of_8_bits(turned, self._mode, fits, self.nearest)
            return result if self._container == "pil" else self._finish(np.array(result))

    def _deep(self, data: bytes, fits_of: Callable[[Size], list[Fit]], reduction: Reduction | None) -> Any:
        """As `__call__`, with all 16 bits of a picture that has them."""
        image, low = open_deep_image(data, reduction)
        with image:
            turned = self._turned(image)
            fits = _steps(reduction) or fits_of(turned.size)
            if low is not None:
                with low:
                    turned_low = self._turned(low)
                    values = colours_of_16_bits(turned, turned_low, self._mode, fits, self.nearest)
            elif has_16_bits(turned):
                values = with_channels(grey_of_16_bits(turned, fits, self.nearest), self._mode)
            else:
                return self._finish(np.array(mode_of_8_bits(turned, self._mode, fits, self.nearest)))
        if self._dtype == "uint16":
            return np.rint(values).astype(np.uint16)
        values /= 65535.0
        return _tensor(values) if self._container == "torch" else values

    def _turned(self, image: Image.Image) -> Image.Image:
        if not self._upright:
            return image
        turned = ImageOps.exif_transpose(image)
        turned.format = image.format
        return turned

    def _fits(self, size: tuple[int, int], factor: float | None, numbers: Numbers | None) -> list[Fit]:
        """The steps from an image of a size (width, height) to the one wanted: `scale`, then what the options say."""
        scaled = scaled_size(size, factor)
        fits = [] if scaled == size else [Fit(scaled)]
        return fits if self._framing is None else [*fits, *self._framing.fits(scaled, numbers)]

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec, "nearest": self.nearest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # the state is its arguments

    def __repr__(self) -> str:
        return f"ImageDecoder({self.spec!r}, nearest={self.nearest})"


def _steps(reduction: Reduction | None) -> list[Fit] | None:
    """The steps from a reduced picture on, if it is one that may be."""
    return None if reduction is None else reduction.fits


def _to_floats(values: Array) -> Array:
    result: Array = np.divide(values, _WHITE, dtype=np.float32)
    return result


def _tensor(values: Array) -> Any:
    """An array as a tensor, channels first."""
    import torch

    return torch.from_numpy(values if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1)))


def _float_tensor(values: Array) -> Any:
    import torch

    if values.ndim == 2:
        return torch.from_numpy(_to_floats(values))
    # Dividing and moving the channels in one go takes a third of the time of doing one after the other.
    result = np.empty((values.shape[2], *values.shape[:2]), np.float32)
    np.divide(values.transpose(2, 0, 1), _WHITE, out=result, dtype=np.float32)
    return torch.from_numpy(result)


_FINISH: dict[tuple[str, str], Callable[[Array], Any]] = {
    ("pil", "uint8"): lambda values: values,
    ("numpy", "uint8"): lambda values: values,
    ("numpy", "uint16"): lambda values: values * np.uint16(257),
    ("numpy", "float32"): _to_floats,
    ("torch", "uint8"): _tensor,
    ("torch", "float32"): _float_tensor,
}
"""(container, dtype) → what makes it of an array of bytes, HW or HWC."""
