"""Decoding images: bytes → numpy array, torch tensor or Pillow image, optionally rescaled.

The table of decoders (`ImageSpec`) and docs/decoders.md list the results. Arrays are writable and C-contiguous, tensors
contiguous. Images of 16 bits keep them in the float and 16-bit decoders, and are scaled to 8 bits in the others; in a
16-bit decoder, an 8-bit value v becomes 257·v, so that white stays white. Only the first frame of an animation is read,
and the format is recognized by the bytes, not by the name.

`rgb8+upright` first rotates and mirrors the image as its EXIF orientation says (for TIFF and AVIF, Pillow always does).

JPEGs are read by simplejpeg if it is installed (`wdspec[fast]`): it gives the same pixels as Pillow in less time. It
reads baseline and progressive files, in grey, or in colour if the decoder has colours. Pillow reads all others, and all
files in which simplejpeg finds an error, so that results do not depend on what is installed. `rgb8+pillow` excludes
simplejpeg.

JPEGs that will be smaller are decoded at a half, a quarter or an eighth of their size, unless `dct_scaling=false`.
libjpeg computes such an image from some of the frequencies of each block, which is faster than to compute all pixels
and average them. The result is then resized to the same size as before; the mean difference is less than one grey level
(docs/decoders.md has numbers).
"""

from __future__ import annotations

import importlib
import io
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from wdspec.fields.codecs.framing import NEAREST, Fit, Framing, Size
from wdspec.fields.scale import MAX_PIXELS, Numbers, scaled_size
from wdspec.spec.language.decoder_options import option_values, split_decoder
from wdspec.spec.language.decoders import BY_NAME, IMAGE_FORMATS

SPARE = 1.5
"""A reduced image is at least this many times as large as the result; otherwise the difference is visible."""


class Reduction:
    """How much to reduce an image while it is decoded, and the remaining steps. Both depend on the size of the image.

    Args:
        fits: the steps for an image of a size (width, height).
    """

    def __init__(self, fits: Callable[[Size], list[Fit]]) -> None:
        self._fits = fits
        self.fits: list[Fit] | None = None
        """The steps for the reduced image; None while its size is not known."""

    def __call__(self, size: Size) -> int:
        """Return 1, 2, 4 or 8, for an image of a size (width, height)."""
        by, self.fits = choose_reduction(size, self._fits(size))
        return by


def reduced_size(size: Size, by: int) -> Size:
    """Return width and height of a reduced image; partial blocks at its edges count as whole ones."""
    return -(-size[0] // by), -(-size[1] // by)


def choose_reduction(size: Size, fits: list[Fit]) -> tuple[int, list[Fit]]:
    """Return by how much to reduce an image of a size (width, height), and the remaining steps.

    It is not reduced unless the first step averages pixels, which must not happen to labels.
    """
    if not fits or not fits[0].antialias or fits[0].smooth == NEAREST:
        return 1, fits
    first = fits[0]
    left, top, right, bottom = first.part or first.crop or (0, 0, *size)
    spare = min((right - left) / first.size[0], (bottom - top) / first.size[1]) / SPARE
    by = next((by for by in (8, 4, 2) if by <= spare), 1)
    if by == 1 or left < 0 or top < 0 or right > size[0] or bottom > size[1]:
        return 1, fits
    part = (left / by, top / by, right / by, bottom / by)
    if first.crop is None:
        return by, [replace(first, part=part), *fits[1:]]
    # Pixels outside the crop do not count, except those in the same reduced pixel.
    crop = (math.floor(part[0]), math.floor(part[1]), math.ceil(part[2]), math.ceil(part[3]))
    inside = (part[0] - crop[0], part[1] - crop[1], part[2] - crop[0], part[3] - crop[1])
    return by, [replace(first, crop=crop, part=inside), *fits[1:]]


_NATIVE = "L" if sys.byteorder == "little" else "B"
_OTHER_BYTE = {"B": "L", "L": "B", "N": "B" if _NATIVE == "L" else "L"}
"""Byte order of 16-bit samples in Pillow's raw modes → the other one, with which Pillow reads the low bytes."""


def open_image(data: bytes, reduction: Reduction | None = None, extension: str = "") -> Image.Image:
    """Open an image and read all of its pixels; a JPEG may be reduced.

    Args:
        extension: of the file; some formats are not recognized without it.

    Raises:
        Exception: errors of Pillow, and ValueError for more than `MAX_PIXELS`, or if it is not an image.
    """
    image = _open(io.BytesIO(data), data, extension)
    _reduce(image, reduction)
    image.load()
    return image


def open_deep_image(
    data: bytes, reduction: Reduction | None = None, extension: str = ""
) -> tuple[Image.Image, Image.Image | None]:
    """Like `open_image`; also return an image of the low bytes of 16-bit colour, whose high bytes Pillow reads."""
    image = _open(io.BytesIO(data), data, extension)
    other = [_read_low_bytes(tile) for tile in image.tile]
    _reduce(image, reduction)
    image.load()
    if not other or None in other:
        return image, None
    low = _open(io.BytesIO(data), data, extension)
    low.tile = other
    low.load()
    return image, low


def _reduce(image: Image.Image, reduction: Reduction | None) -> None:
    if reduction is None:
        return
    reduction.fits = None  # another reader may have tried this file before
    if image.format in ("JPEG", "MPO") and (by := reduction(image.size)) > 1:
        image.draft(None, (image.width // by, image.height // by))


def _read_low_bytes(tile: Any) -> Any:
    """Return a tile that reads the low bytes of 16-bit colours; None for other pixels."""
    codec, extents, offset, args = tile
    mode = args[0] if isinstance(args, tuple) and args else args
    kind, _, order = mode.partition(";16") if isinstance(mode, str) else ("", "", "")
    if kind not in ("RGB", "RGBA") or order not in _OTHER_BYTE:
        return None
    other = f"{kind};16{_OTHER_BYTE[order]}"
    return codec, extents, offset, (other, *args[1:]) if isinstance(args, tuple) else other


def _open(file: io.BytesIO, data: bytes, extension: str) -> ImageFile.ImageFile:
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        file = _strict_file(data)
    try:
        image = Image.open(file, formats=_find_formats(extension))
    except UnidentifiedImageError as cause:
        what = f"{len(data):,} bytes that start with {data[:8]!r}" if data else "an empty file"
        raise ValueError(f"{what}: damaged, or not an image of a supported format") from cause
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width}×{height} is more than {MAX_PIXELS:,} pixels; read it as `raw`")
    if isinstance(file, _NoMore):
        file.strict = True
    return image


class _NoMore(io.BytesIO):
    """A file whose reads at the end fail if `strict` is set."""

    strict = False

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if self.strict and not data and size:
            raise OSError("image file is truncated")
        return data


def _strict_file(data: bytes) -> io.BytesIO:
    """Return a file for Pillow if this process set it to accept truncated images.

    This is a setting of the whole process, which we neither change nor follow: reads after the end fail in our file,
    and damaged PNGs fail by their CRC.
    """
    if data.startswith(b"\x89PNG"):
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            image.verify()
    return _NoMore(data)


@lru_cache
def _find_formats(extension: str) -> tuple[str, ...]:
    """Return the formats that this Pillow can read, and a file with an extension may have.

    `Image.init` would import forty plugins.
    """
    found = []
    for format in IMAGE_FORMATS:
        if format.vague and extension not in format.extensions:
            continue
        try:
            importlib.import_module(f"PIL.{format.plugin}ImagePlugin")
        except ImportError:
            continue
        if format.pillow in Image.OPEN:
            found.append(format.pillow)
    return tuple(found)


Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def simplejpeg() -> Any:
    """Return the module, or None if it is not installed."""
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


def read_jpeg(data: bytes, mode: str, reduction: Reduction | None = None) -> Array | None:
    """Read pixels as a writable uint8 array, HW or HWC; return None if Pillow has to read them.

    Args:
        mode: ``L``, ``RGB`` or ``RGBA``.
        reduction: decides how much to reduce the image.
    """
    module = simplejpeg()
    if module is None or not data.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, space, _ = module.decode_jpeg_header(data)
        if space not in ("YCbCr", "Gray") or height * width > MAX_PIXELS:
            return None
        if mode == "L":
            # Pillow computes grey from RGB, which differs from the Y of the file for saturated colours, and is faster.
            if space != "Gray":
                return None
            mode = "GRAY"
        by = 1 if reduction is None else reduction((width, height))
        wide, high = reduced_size((width, height), by)
        values: Array = module.decode_jpeg(data, mode, min_height=high, min_width=wide, min_factor=by)
        if values.shape[:2] != (high, wide):
            return None
        return values.reshape(high, wide) if mode == "GRAY" else values
    except (ValueError, RuntimeError, OverflowError):
        return None


_GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""Pillow's weights of red, green and blue in grey (ITU-R 601-2)."""


def fit(image: Image.Image, fits: Sequence[Fit], nearest: bool) -> Image.Image:
    """Apply all steps to an image."""
    for fit in fits:
        image = fit(image, nearest)
    return image


def fitted_array(values: Array, fits: Sequence[Fit], nearest: bool) -> Image.Image:
    """Apply all steps to an array of bytes, HW or HWC. If the first one is a crop, only its pixels become an image."""
    first = fits[0]
    if first.crop is not None:
        left, top, right, bottom = first.crop
        if left >= 0 and top >= 0 and right <= values.shape[1] and bottom <= values.shape[0]:
            values = values[top:bottom, left:right]
            fits = [replace(first, crop=None), *fits[1:]]
    return fit(Image.fromarray(values), fits, nearest)


def has_16_bits(image: Image.Image) -> bool:
    """Whether an image is grey with 16 bits per sample (Pillow reads 16-bit colour with 8).

    Pillow reads deep PGMs, and before release 11 also 16-bit PNGs, in mode I with values in 0..65535.
    """
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def grey_of_16_bits(image: Image.Image, fits: Sequence[Fit], nearest: bool) -> Array:
    """Return a 16-bit grey image as float32 in 0..65535, HW, after all steps."""
    return _resize(np.asarray(image).astype(np.float32), fits, nearest)


def colours_of_16_bits(
    high: Image.Image, low: Image.Image, mode: str, fits: Sequence[Fit], nearest: bool
) -> Array:
    """Return high and low bytes of 16-bit colours as float32 in 0..65535, HW or HWC by the mode, after all steps."""
    values = np.asarray(high).astype(np.float32) * 256 + np.asarray(low)
    if mode == "L":
        return _resize((values[:, :, :3] @ _GREY).clip(0, 65535), fits, nearest)
    channels = [_resize(values[:, :, i], fits, nearest) for i in range(min(len(mode), values.shape[2]))]
    if len(channels) < len(mode):
        channels.append(np.full_like(channels[0], 65535))
    return np.stack(channels, axis=2)


def with_channels(grey: Array, mode: str) -> Array:
    """Return grey values in 0..65535 as HW, HW3, or HW4 with opaque alpha."""
    if mode == "L":
        return grey
    result = np.full((*grey.shape, len(mode)), 65535, np.float32)
    result[:, :, :3] = grey[:, :, None]
    return result


def mode_of_8_bits(image: Image.Image, mode: str, fits: Sequence[Fit], nearest: bool) -> Image.Image:
    """Return an image in mode L, RGB or RGBA after all steps, independent of its file.

    16 bits are scaled to 8, while Pillow's conversion would clip them. Alpha is dropped or kept, never applied.

    Raises:
        ValueError: the samples are 32-bit integers or floats, whose range is not defined.
    """
    if has_16_bits(image):
        grey = np.rint(grey_of_16_bits(image, fits, nearest) / 65535.0 * 255).astype(np.uint8)
        return Image.fromarray(grey).convert(mode)
    if image.mode in ("I", "F"):
        raise ValueError(
            f"the range of its 32-bit {'integers' if image.mode == 'I' else 'floats'} is not defined; decode it with a "
            "user function, or as `raw`"
        )
    if mode != "RGBA":
        # Otherwise the conversion would allocate a transparent colour, or warn that it cannot.
        image.info.pop("transparency", None)
    # Adjacent indices of a palette are not similar colours.
    nearest = nearest or image.mode in ("P", "PA")
    image = image.convert(mode)
    return fit(image, fits, nearest)


def _resize(values: Array, fits: Sequence[Fit], nearest: bool) -> Array:
    if not fits:
        return values
    resized = fit(Image.fromarray(values), fits, nearest)
    return np.array(resized, dtype=np.float32).clip(0, 65535)


_WHITE = np.float32(255)


LABELS = frozenset({"seg", "mask"})
"""Parts of the name of a field, between dots, that mark images of labels, which are rescaled by nearest neighbour."""


def image_decoder(decoder: str, field: str, suffix: str) -> ImageDecoder:
    """Return the decoder of a field, given the name of the decoder, of the field and its suffix."""
    parts = {*field.lower().split("."), *suffix.split(".")}
    return ImageDecoder(decoder, nearest=bool(LABELS & parts), extension=suffix.rpartition(".")[2])


class ImageDecoder:
    """Decodes images by one decoder of the table.

    Args:
        spec: the name of a decoder, optionally with options: ``rgb8+upright``.
        nearest: whether to rescale by nearest neighbour, as labels need. Images with a palette always do.
        extension: of the files; some formats are not recognized without it.
    """

    def __init__(self, spec: str, nearest: bool = False, extension: str = "") -> None:
        self.spec = spec
        self.nearest = nearest
        self.extension = extension
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
        """Decode an image, rescale it by a factor unless that is None, and apply the options.

        Args:
            numbers: the random numbers of the sample, for `random_resized_crop`.

        Raises:
            Exception: errors of Pillow, and ValueError for an image or result of more than `scale.MAX_PIXELS` pixels,
                for samples whose range is not defined, and if it is not an image.
        """
        # Only JPEGs with EXIF may have to be rotated. Searching takes 1 µs for 10 KB.
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
        with open_image(data, reduction, self.extension) as image:
            turned = self._turn(image)
            fits = _steps(reduction) or fits_of(turned.size)
            result = mode_of_8_bits(turned, self._mode, fits, self.nearest)
            return result if self._container == "pil" else self._finish(np.array(result))

    def _deep(self, data: bytes, fits_of: Callable[[Size], list[Fit]], reduction: Reduction | None) -> Any:
        """Like `__call__`, with all 16 bits if the image has them."""
        image, low = open_deep_image(data, reduction, self.extension)
        with image:
            turned = self._turn(image)
            fits = _steps(reduction) or fits_of(turned.size)
            if low is not None:
                with low:
                    turned_low = self._turn(low)
                    values = colours_of_16_bits(turned, turned_low, self._mode, fits, self.nearest)
            elif has_16_bits(turned):
                values = with_channels(grey_of_16_bits(turned, fits, self.nearest), self._mode)
            else:
                return self._finish(np.array(mode_of_8_bits(turned, self._mode, fits, self.nearest)))
        if self._dtype == "uint16":
            return np.rint(values).astype(np.uint16)
        values /= 65535.0
        return _tensor(values) if self._container == "torch" else values

    def _turn(self, image: Image.Image) -> Image.Image:
        if not self._upright:
            return image
        turned = ImageOps.exif_transpose(image)
        turned.format = image.format
        return turned

    def _fits(self, size: tuple[int, int], factor: float | None, numbers: Numbers | None) -> list[Fit]:
        """Return the steps for an image of a size (width, height): `scale`, then the options."""
        scaled = scaled_size(size, factor)
        fits = [] if scaled == size else [Fit(scaled)]
        return fits if self._framing is None else [*fits, *self._framing.fits(scaled, numbers)]

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec, "nearest": self.nearest, "extension": self.extension}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # the state is its arguments

    def __repr__(self) -> str:
        return f"ImageDecoder({self.spec!r}, nearest={self.nearest})"


def _steps(reduction: Reduction | None) -> list[Fit] | None:
    """Return the steps for a reduced image, if it can be reduced."""
    return None if reduction is None else reduction.fits


def _to_floats(values: Array) -> Array:
    result: Array = np.divide(values, _WHITE, dtype=np.float32)
    return result


def _tensor(values: Array) -> Any:
    """Return an array as a tensor, channels first."""
    import torch

    return torch.from_numpy(values if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1)))


def _float_tensor(values: Array) -> Any:
    import torch

    if values.ndim == 2:
        return torch.from_numpy(_to_floats(values))
    # Dividing and moving the channels in one step takes a third of the time of two steps.
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
"""(container, dtype) → function from an array of bytes, HW or HWC, to the value."""
