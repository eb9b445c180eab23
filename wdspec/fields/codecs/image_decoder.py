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
(docs/decoders.md has numbers). Of JPEGs that are cropped, rows below the crop are not decoded, which changes no pixel
of the crop. With `roi_decoding`, only the crop is decoded of JPEGs that are not reduced.
"""

from __future__ import annotations

import importlib
import io
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
from PIL import Image, ImageFile, ImageOps, TiffImagePlugin, UnidentifiedImageError

from wdspec.base.errors import FieldError, UsageError
from wdspec.fields import memory
from wdspec.fields.codecs.color_jitter import ColorJitter
from wdspec.fields.codecs.framing import Framing, Size
from wdspec.fields.codecs.nvimgcodec import Box, read_region
from wdspec.fields.codecs.resizing import NEAREST, Fit, Steps, resize
from wdspec.fields.deferred import EncodedImage, is_deferred
from wdspec.fields.scale import MAX_PIXELS, Numbers, scaled_size
from wdspec.spec.language.decoder_options import Normalization, option_values
from wdspec.spec.language.decoders import BY_NAME, IMAGE_FORMATS, split_decoder

MOST_OF_IMAGE = 0.5
"""A larger part of an image is not decoded alone, which would take as long as all of it."""
SPARE = 1.5
"""A reduced image is at least this many times as large as the result; otherwise the difference is visible."""


_BLOCK_ROWS = 32
"""Rows of the largest blocks of a JPEG."""
_LEAST_SAVING = 17 / 16
"""If fewer rows could be left out, all are decoded, since the file is copied to change its header."""
_BASELINE, _RESTARTS, _END = 0xC0, b"\xff\xdd\x00\x04", b"\xff\xd9"
"""Of JPEGs: the marker of files with one scan, the start of the segment for restart markers, and the last marker."""
_LEFT_OVER = re.compile("Corrupt JPEG data: [0-9]+ extraneous bytes before marker 0xd9")


class Reduction:
    """How much of an image to decode, and the remaining steps. Both depend on the size of the image.

    Args:
        fits: the steps for an image of a size (width, height).
        scales: whether it may be decoded at a smaller size.
        crops: whether only a part of it may be decoded.
    """

    def __init__(self, fits: Callable[[Size], list[Fit]], scales: bool = True, crops: bool = False) -> None:
        self._fits, self._scales, self._crops = fits, scales, crops
        self.fits: list[Fit] | None = None
        """The steps for what is decoded; None while the size of the image is not known."""

    def __call__(self, size: Size) -> int:
        """Return by how much to reduce an image of a size (width, height): 1, 2, 4 or 8."""
        fits = self._fits(size)
        by, self.fits = choose_reduction(size, fits) if self._scales else (1, fits)
        return by

    def count_rows(self, size: Size, by: int) -> int:
        """Return how many rows of an image of a size (width, height) are needed, from the top, if it is reduced."""
        if not self.fits:
            return size[1]
        first = self.fits[0]
        if first.crop is not None:
            bottom: float = max(0, first.crop[3])
        elif first.part is not None:
            _, top, _, end = first.part
            bottom = end + 3 * max(1.0, (end - top) / first.size[1]) + 1  # filters use pixels around it
        else:
            return size[1]
        # The last row depends on the one below it where colours have fewer rows than brightness.
        rows = math.ceil((bottom + 2) * by / _BLOCK_ROWS) * _BLOCK_ROWS
        return rows if rows * _LEAST_SAVING <= size[1] else size[1]

    def read_part(self, data: bytes, mode: str, size: Size) -> Array | None:
        """Return the only part of a JPEG that is needed, as `read_jpeg` does; None if all of it has to be decoded."""
        if not self._crops or not self.fits or mode not in ("L", "RGB"):
            return None
        crop, most = self.fits[0].crop, size[0] * size[1] * MOST_OF_IMAGE
        if crop is None or not _is_inside(crop, size) or (crop[2] - crop[0]) * (crop[3] - crop[1]) > most:
            return None
        values = read_region(data, mode, crop)
        if values is not None:
            self.fits = [replace(self.fits[0], crop=None), *self.fits[1:]]
        return values


def _is_inside(box: Box, size: Size) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= size[0] and box[3] <= size[1]


def reduce_size(size: Size, by: int) -> Size:
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
    # Pixels around a crop are used, too: in a reduced image, they share pixels with the crop.
    part = (left / by, top / by, right / by, bottom / by)
    return by, [replace(first, crop=None, part=part), *fits[1:]]


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
        raise ValueError(_describe_unknown(data)) from cause
    if (pixels := image.width * image.height) > MAX_PIXELS:
        raise ValueError(f"{image.width}×{image.height} is more than {MAX_PIXELS:,} pixels; read it as `raw`")
    if (
        image.format == "TIFF"
        and pixels
        and len(image.getbands()) < getattr(image, "tag_v2", {}).get(_BANDS, 1) > 4
    ):
        raise ValueError(_describe_unknown(data))
    if isinstance(file, _NoMore):
        file.strict = True
    return image


_BANDS, _BITS, _KIND = 277, 258, 339
"""Tags of TIFF."""


def _describe_unknown(data: bytes) -> str:
    """Say what is in a file that cannot be read as an image, and what to do."""
    if layout := _find_layout(data):
        return f"a TIFF of {layout} is not supported; decode it with a user function, or as `raw`"
    what = f"{len(data):,} bytes that start with {data[:8]!r}" if data else "an empty file"
    return f"{what}: damaged, or not an image of a supported format"


def _find_layout(data: bytes) -> str:
    """Return the pixels of a TIFF that is not usual, such as `5 bands of uint8`; "" for other files."""
    if data[:4] not in (b"II*\0", b"MM\0*"):
        return ""
    try:
        tags = TiffImagePlugin.ImageFileDirectory_v2(data[:8])
        file = io.BytesIO(data)
        file.seek(tags.next)
        tags.load(file)
        bands, bits = int(tags.get(_BANDS, 1)), int(tags.get(_BITS, (1,))[0])
        kind = {1: "uint", 2: "int", 3: "float"}[int(tags.get(_KIND, (1,))[0])]
    except Exception:  # whatever Pillow raises for damaged tags
        return ""
    is_usual = kind == "uint" and bits <= 16 and bands in (1, 3, 4)
    return "" if is_usual else f"{bands} band{'s' if bands > 1 else ''} of {kind}{bits}"


def image_size(data: bytes, extension: str = "") -> tuple[int, int]:
    """Return (width, height) of an image, from its header, before its Exif orientation is applied.

    Raises:
        Exception: as `open_image`.
    """
    at = _find_frame(data)
    if at is not None:
        return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
    if (size := _find_canvas(data)) is not None:
        return size
    return _open(io.BytesIO(data), data, extension).size


def _find_frame(data: bytes) -> int | None:
    """Return where the frame header of a JPEG is, which has its size; None if it is not a JPEG."""
    at = 2 if data.startswith(b"\xff\xd8\xff") else len(data)
    while at + 9 < len(data) and data[at] == 0xFF:  # the segments before it (ITU-T T.81, B.2.2)
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return at
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _find_canvas(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) of a WebP from its first chunk (RFC 9649), or None. Pillow needs all of its bytes."""
    kind, bits = data[12:16], int.from_bytes(data[21:25], "little")
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L" and data[20] == 0x2F:
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        sides = int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
        return sides if all(sides) else None
    return None


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
        reduction: decides how much of the image to decode.
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
        if reduction is not None and by == 1:
            part = reduction.read_part(data, "L" if mode == "GRAY" else mode, (width, height))
            if part is not None:
                return part
        rows = height if reduction is None else reduction.count_rows((width, height), by)
        if rows < height:
            top = _read_top(module, data, mode, (width, height), by, rows)
            if top is not None:
                return top
        wide, high = reduce_size((width, height), by)
        values: Array = module.decode_jpeg(data, mode, min_height=high, min_width=wide, min_factor=by)
        if values.shape[:2] != (high, wide):
            return None
        return values.reshape(high, wide) if mode == "GRAY" else values
    except UsageError:
        raise
    except (ValueError, RuntimeError, OverflowError):
        return None


def _read_top(module: Any, data: bytes, mode: str, size: Size, by: int, rows: int) -> Array | None:
    """Return a JPEG as `read_jpeg` does, but below some rows with undefined pixels; None if it has to be read whole.

    The array has all rows, since the ways to resize a part depend on the size of the image.
    libjpeg reads as many rows as the header says, and warns that bytes are left over. The first warning is the one that
    is reported, so there was no damage before. A file without its end is left to Pillow, which rejects it.
    """
    at = _find_frame(data)
    if at is None or data[at + 1] != _BASELINE or data.find(_RESTARTS, 0, 1 << 16) >= 0 or data[-2:] != _END:
        return None
    short = b"".join((data[: at + 5], rows.to_bytes(2, "big"), data[at + 7 :]))
    wide, high = reduce_size((size[0], rows), by)
    wanted = {"min_height": high, "min_width": wide, "min_factor": by}
    if module.decode_jpeg_header(short, **wanted)[:2] != (high, wide):
        return None
    whole = reduce_size(size, by)[1]
    values = np.empty((whole, wide) if mode == "GRAY" else (whole, wide, len(mode)), np.uint8)
    try:
        module.decode_jpeg(short, mode, buffer=values, **wanted)
    except ValueError as error:
        if not _LEFT_OVER.fullmatch(str(error)):
            return None
    return values


_GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""Pillow's weights of red, green and blue in grey (ITU-R 601-2)."""


def has_16_bits(image: Image.Image) -> bool:
    """Whether an image is grey with 16 bits per sample (Pillow reads 16-bit colour with 8).

    Pillow reads deep PGMs, and before release 11 also 16-bit PNGs, in mode I with values in 0..65535.
    """
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def grey_of_16_bits(image: Image.Image, fits: Sequence[Fit], nearest: bool) -> Array:
    """Return a 16-bit grey image as float32 in 0..65535, HW, after all steps."""
    return _resize_deep(np.asarray(image).astype(np.float32), fits, nearest)


def colours_of_16_bits(
    high: Image.Image, low: Image.Image, mode: str, fits: Sequence[Fit], nearest: bool
) -> Array:
    """Return high and low bytes of 16-bit colours as float32 in 0..65535, HW or HWC by the mode, after all steps."""
    values = np.asarray(high).astype(np.float32) * 256 + np.asarray(low)
    if mode == "L":
        return _resize_deep((values[:, :, :3] @ _GREY).clip(0, 65535), fits, nearest)
    channels = [_resize_deep(values[:, :, i], fits, nearest) for i in range(min(len(mode), values.shape[2]))]
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


def bytes_of_8_bits(image: Image.Image, mode: str, fits: Sequence[Fit], nearest: bool) -> Array:
    """Return the pixels of an image after all steps as a writable array of bytes, HW or HWC by the mode.

    16 bits are scaled to 8, while Pillow's conversion would clip them. Alpha is dropped or kept, never applied.

    Raises:
        ValueError: the samples are 32-bit integers or floats, whose range is not defined.
    """
    if has_16_bits(image):
        grey = np.rint(grey_of_16_bits(image, fits, nearest) / 65535.0 * 255).astype(np.uint8)
        return np.array(Image.fromarray(grey).convert(mode))
    if image.mode in ("I", "F"):
        raise ValueError(
            f"the range of its {getattr(image, 'tag_v2', {}).get(_BITS, (32,))[0]}-bit "
            f"{'integers' if image.mode == 'I' else 'floats'} is not defined; decode it with a "
            "user function, or as `raw`"
        )
    if mode != "RGBA":
        # Otherwise the conversion would allocate a transparent colour, or warn that it cannot.
        image.info.pop("transparency", None)
    # Adjacent indices of a palette are not similar colours.
    nearest = nearest or image.mode in ("P", "PA")
    if image.mode != mode:
        image = image.convert(mode)
    return resize(np.array(image), fits, nearest)


def _resize_deep(values: Array, fits: Sequence[Fit], nearest: bool) -> Array:
    return resize(values, fits, nearest).clip(0, 65535) if fits else values


_WHITE, _WHITE_16 = np.float32(255), np.float32(65535)
FLIP = 3
"""The number of a sample that decides whether its images are flipped; others decide its scale, clips and crops."""


LABELS = frozenset({"seg", "mask"})
"""Parts of the name of a field, between dots, that mark images of labels, which are rescaled by nearest neighbour."""


def image_decoder(decoder: str, field: str, suffix: str) -> ImageDecoder:
    """Return the decoder of a field, given the name of the decoder, of the field and its suffix."""
    parts = {*field.lower().split("."), *suffix.split(".")}
    return ImageDecoder(decoder, bool(LABELS & parts), field, suffix.rpartition(".")[2])


class ImageDecoder:
    """Decodes images by one decoder of the table.

    Args:
        spec: the name of a decoder, optionally with options: ``rgb8+upright``.
        nearest: whether to rescale by nearest neighbour, as labels need. Images with a palette always do.
        field: the name of the field.
        extension: of the files; some formats are not recognized without it.
    """

    def __init__(self, spec: str, nearest: bool = False, field: str = "", extension: str = "") -> None:
        self.spec = spec
        self.nearest = nearest
        self.field = field
        self.extension = extension
        base, options = split_decoder(spec)
        image = BY_NAME[base].image
        assert image is not None, f"{base} is an image decoder"
        self._container, self._mode, self._dtype = image
        self._framing = Framing.of(spec)
        self._upright = "upright" in options
        self._reduces = option_values(spec).get("dct_scaling", True) and not nearest
        self._crops = "roi_decoding" in options
        self._fast = self._container != "pil" and "pillow" not in options
        self._hflip: float = option_values(spec).get("hflip", 0)
        self._jitter = None if nearest else ColorJitter.of(spec)  # labels have no colours
        self._normalization: Normalization | None = option_values(spec).get("normalize")
        self._device: str | None = option_values(spec).get("device")
        self._is_fixed = self._framing is not None and self._framing.is_fixed

    def __call__(self, data: bytes, factor: float | None = None, numbers: Numbers | None = None) -> Any:
        """Decode an image, rescale it by a factor unless that is None, and apply the options.

        Args:
            numbers: the random numbers of the sample, for `random_resized_crop`.

        Raises:
            Exception: errors of Pillow, and ValueError for an image or result of more than `scale.MAX_PIXELS` pixels,
                for samples whose range is not defined, and if it is not an image.
        """
        if self._device is not None and is_deferred(self.field):
            return self._defer(data, factor, numbers)
        values = self._pixels(data, partial(self._fits, factor=factor, numbers=numbers))
        if self._is_flipped(numbers):
            values = values[:, ::-1]
        if self._jitter is not None:
            values = self._jitter(values, 255 if values.dtype == np.uint8 else 65535, numbers)
        return self._finish(values)

    def _is_flipped(self, numbers: Numbers | None) -> bool:
        if not self._hflip:
            return False
        if numbers is None:
            raise UsageError(
                "`hflip` needs random numbers, which only samples of a spec have; otherwise use a transform of a "
                "library"
            )
        return numbers(FLIP) < self._hflip

    def _defer(self, data: bytes, factor: float | None, numbers: Numbers | None) -> EncodedImage:
        """Return an image that the training process decodes."""
        size = image_size(data, self.extension)
        fits = self._fits(size, factor, numbers)
        box = fits[0].crop if fits and fits[0].crop is not None and _is_inside(fits[0].crop, size) else None
        return EncodedImage(data, Steps(fits, self._is_flipped(numbers), box), self)

    def decode_batch(self, images: Sequence[EncodedImage], places: Sequence[Mapping[str, Any]]) -> Any:
        """Return the batch of images that were deferred: a tensor on the device of the decoder.

        Args:
            images: those of decoders like this one, for files of any extension.
            places: of the samples, for messages.

        Raises:
            FieldError: an image cannot be decoded.
        """
        import torch

        def read(at: int) -> Array:
            try:
                data, steps, decoder = images[at]
                values = cast(ImageDecoder, decoder)._pixels(data, lambda size: steps.fits)
            except Exception as cause:
                message = f"cannot decode image {at + 1} of a batch: {type(cause).__name__}: {cause}"
                raise FieldError(message, **(places[at] if places else {}), field=self.field) from cause
            return values[:, ::-1] if steps.is_flipped else values

        if self._device == "cpu":
            rows = memory.Rows(len(images))
            with rows.nested():
                values = [self._finish(read(at)) for at in range(len(images))]
            return torch.from_numpy(rows.take_batch(values))
        if not torch.cuda.is_available():
            raise UsageError(
                "`device=cuda` in `decode` needs a GPU, and torch finds none (`torch.cuda.is_available()`); remove the "
                "option, or write `device=cpu`"
            )
        from wdspec.fields.codecs.on_device import read_batch

        device = torch.device("cuda", torch.cuda.current_device())
        labels = [at for at, image in enumerate(images) if cast(ImageDecoder, image.decoder).nearest]
        files, steps = [image.data for image in images], [image.steps for image in images]
        return self.finish_batch(read_batch(files, steps, self._mode, device, read, labels))

    def finish_batch(self, pixels: Any) -> Any:
        """Return a tensor of pixels, NCHW as float32 from 0 to 255, as the batch that `_finish` would give."""
        torch = importlib.import_module("torch")
        if self._dtype == "uint8":
            pixels = pixels.to(torch.uint8)
        else:
            pixels = pixels / 255
            if self._normalization is not None:
                means, deviations = (pixels.new_tensor(each).view(-1, 1, 1) for each in self._normalization)
                pixels = (pixels - means) / deviations
        if self._mode == "L":
            return pixels[:, 0]
        return pixels if self._container == "torch" else pixels.permute(0, 2, 3, 1).contiguous()

    def _pixels(self, data: bytes, fits_of: Callable[[Size], list[Fit]]) -> Array:
        """Return the pixels after resizing, HW or HWC: bytes, or 16 bits as floats in 0..65535."""
        # Only JPEGs with EXIF may have to be rotated. Searching takes 1 µs for 10 KB.
        as_stored = not (self._upright and b"Exif\0" in data)
        reduction = Reduction(fits_of, self._reduces, self._crops) if as_stored else None
        if self._fast and as_stored:
            values = read_jpeg(data, self._mode, reduction)
            if values is not None:
                fits = _steps(reduction) or fits_of((values.shape[1], values.shape[0]))
                return resize(values, fits, self.nearest)
        if self._dtype != "uint8":
            return self._deep(data, fits_of, reduction)
        with open_image(data, reduction, self.extension) as image:
            turned = self._turn(image)
            fits = _steps(reduction) or fits_of(turned.size)
            return bytes_of_8_bits(turned, self._mode, fits, self.nearest)

    def _deep(self, data: bytes, fits_of: Callable[[Size], list[Fit]], reduction: Reduction | None) -> Array:
        """Like `_pixels`, with all 16 bits if the image has them."""
        image, low = open_deep_image(data, reduction, self.extension)
        with image:
            turned = self._turn(image)
            fits = _steps(reduction) or fits_of(turned.size)
            if low is not None:
                with low:
                    return colours_of_16_bits(turned, self._turn(low), self._mode, fits, self.nearest)
            if has_16_bits(turned):
                return with_channels(grey_of_16_bits(turned, fits, self.nearest), self._mode)
            return bytes_of_8_bits(turned, self._mode, fits, self.nearest)

    def _finish(self, values: Array) -> Any:
        """Return bytes, HW or HWC, as the value; in the row of a batch if all images get the same size."""
        if self._container == "pil":
            return Image.fromarray(values)
        wrap: Callable[[Array], Any] = _itself
        if self._container == "torch":
            wrap = importlib.import_module("torch").from_numpy
            if values.ndim == 3:
                values = values.transpose(2, 0, 1)
        rows = memory.current.rows if self._is_fixed else None
        row = None if rows is None else rows.next(self.field, values.shape, self._dtype, wrap)
        if row is None and self._dtype == "uint8":
            return wrap(np.ascontiguousarray(values))
        if row is None:
            array = np.empty(values.shape, self._dtype)
            row = array, wrap(array)
        is_deep = values.dtype != np.uint8
        if self._dtype == "uint8":
            np.copyto(row[0], values)
        elif self._dtype == "uint16":
            if is_deep:
                np.rint(values, out=row[0], casting="unsafe")
            else:
                np.multiply(values, np.uint16(257), out=row[0], dtype=np.uint16)
        else:
            # Dividing and moving the channels in one step takes a third of the time of two steps.
            np.divide(values, _WHITE_16 if is_deep else _WHITE, out=row[0], dtype=np.float32)
            if self._normalization is not None:
                self._normalize(row[0], self._normalization)
        return row[1]

    def _normalize(self, values: Array, normalization: Normalization) -> None:
        """Normalize floats in place."""
        means, deviations = (np.array(each, np.float32) for each in normalization)
        if self._container == "torch" and values.ndim == 3:
            means, deviations = means.reshape(-1, 1, 1), deviations.reshape(-1, 1, 1)
        elif values.ndim == 3:
            # numpy is slow with a last axis of three.
            count = values.shape[1] * 3 // means.size
            values, means, deviations = (
                values.reshape(len(values), -1),
                np.tile(means, count),
                np.tile(deviations, count),
            )
        values -= means
        values /= deviations

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
        return {
            "spec": self.spec,
            "nearest": self.nearest,
            "field": self.field,
            "extension": self.extension,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # the state is its arguments

    def __repr__(self) -> str:
        return f"ImageDecoder({self.spec!r}, nearest={self.nearest})"


def _itself(values: Array) -> Array:
    return values


def _steps(reduction: Reduction | None) -> list[Fit] | None:
    """Return the steps for a reduced image, if it can be reduced."""
    return None if reduction is None else reduction.fits
