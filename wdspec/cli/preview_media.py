"""Values of samples as a browser shows them: images, sounds, texts, and the descriptions of `wdspec head`.

Images are scaled down and sounds are cut, so that a page with many samples stays small.
"""

from __future__ import annotations

import base64
import io
import json
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.cli.samples import ValueMeaning, describe_value, excerpt
from wdspec.spec.language.decoders import FORMAT_OF

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 192
"""Longer side of an image on the page, in pixels."""
_SEEN = 96
"""Small images are enlarged up to this longer side, in pixels."""
FRAMES = 4
"""Maximum number of frames to show of a video, and of images of a list."""
SECONDS = 3
"""Maximum length of a decoded sound, in seconds."""
TEXT = 600
"""Maximum number of characters to show of a text."""
_SOUNDS = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "m4a": "audio/mp4",
}
_VIDEOS = {
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "mov": "video/mp4",
    "webm": "video/webm",
    "mkv": "video/webm",
}
_STARTS = (
    (0, b"\xff\xd8\xff", "jpg"),
    (0, b"\x89PNG", "png"),
    (0, b"GIF8", "gif"),
    (8, b"WEBP", "webp"),
    (8, b"WAVE", "wav"),
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (8, b"M4A ", "m4a"),
    (4, b"ftyp", "mp4"),
    (0, b"\x1aE\xdf\xa3", "webm"),
)
"""What files start with: offset, bytes, extension. A column such as `image` does not name a format."""
_TEXTS = frozenset(
    ("txt", "text", "json", "jsonl", "cls", "cls2", "index", "inx", "id", "csv", "yaml", "yml", "md")
)
_BOXES = frozenset(("box", "boxes", "bbox", "bboxes"))
_CHANNELS = (1, 3, 4)
_SMALLEST = 8
"""An array with a shorter side, in pixels, is not shown as an image."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Medium:
    """An image or a sound on a page."""

    kind: str
    """`image`, `audio` or `video`."""
    data: str
    """A `data:` URL."""
    alt: str = ""


@dataclass(frozen=True)
class ShownValue:
    """One field of one sample."""

    name: str
    meaning: ValueMeaning
    media: tuple[Medium, ...] = ()
    text: str = ""
    """The value as text, if it is readable."""
    is_left_out: bool = False
    """Whether its media did not fit on the page."""

    @property
    def preview(self) -> str:
        """The description of a value without media and text."""
        is_opaque = self.media or self.text or self.meaning.type in ("bytes", "bytearray", "memoryview")
        return "" if is_opaque else self.meaning.preview


class MediaBudget:
    """Limits the bytes of media on a page."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, media: Sequence[Medium]) -> tuple[Medium, ...]:
        """The media, or nothing if they no longer fit."""
        needed = sum(len(medium.data) for medium in media)
        if needed > self.left:
            return ()
        self.left -= needed
        return tuple(media)


class BoxFormat(NamedTuple):
    """The numbers of boxes."""

    kind: str = "xyxy"
    """One of `BOX_FORMATS`."""
    relative: bool = True
    """Whether they are fractions of width and height."""


def list_values(
    sample: dict[str, Any], budget: MediaBudget, formats: Mapping[str, BoxFormat] | None = None
) -> list[ShownValue]:
    """The fields of a sample as a page shows them; boxes are drawn on its image if it has only one.

    Args:
        sample: the sample.
        budget: limits the media.
        formats: field → the format of its boxes; by default, two corners as fractions of the image.
    """
    fields = {str(name): value for name, value in sample.items() if not str(name).startswith("__")}
    pictures = {name: images for name, value in fields.items() if (images := list(_images(name, value)))}
    formats = formats or {}
    boxes = next(
        (
            (found, formats.get(name, BoxFormat()))
            for name, value in fields.items()
            if (found := _boxes(name, value, name in formats)) is not None
        ),
        None,
    )
    if boxes is not None and len(pictures) == 1:
        for name, ((image, _), *_) in pictures.items():
            _draw_boxes(image, *boxes, _size_of(fields[name]))
    shown = []
    for name, value in fields.items():
        meaning = describe_value(value)
        media = [
            _picture(image, f"{name} of {sample.get('__key__', 'a sample')}{of}")
            for image, of in pictures.get(name, ())
        ]
        if not media and (sound := _sound(name, value)) is not None:
            media = [sound]
            if not isinstance(value, bytes):
                meaning = _describe_sound(*value)
        taken = budget.take(media)
        shown.append(ShownValue(name, meaning, taken, _text(name, value), len(taken) < len(media)))
    return shown


def _suffix(name: str) -> str:
    return name.rsplit(".", 1)[-1].lower()


def format_of(name: str, data: bytes) -> str:
    """The extension that says what a file is: that of its name, or by its first bytes if the name says nothing."""
    suffix = _suffix(name)
    if suffix in FORMAT_OF or suffix in _SOUNDS or suffix in _VIDEOS or suffix in _TEXTS:
        return suffix
    return next((found for at, start, found in _STARTS if data[at : at + len(start)] == start), suffix)


def as_array(value: Any) -> Array | None:
    """Convert an array or tensor to numpy; return None for other values."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__array__")):
        return None
    try:
        array = np.asarray(value)
    except Exception:  # a nested tensor, a tensor on a device, another library: only described
        return None
    return array if array.dtype.kind in "buif" else None


def _images(name: str, value: Any) -> Iterator[tuple[Image, str]]:
    """The images of a value, scaled down, each with its position in a video or a list."""
    try:
        if isinstance(value, bytes) and (suffix := format_of(name, value)) in FORMAT_OF:
            yield _small(_open(value, FORMAT_OF[suffix].pillow)), ""
        elif hasattr(value, "mode") and hasattr(value, "thumbnail"):
            yield _small(value.copy()), ""
        elif (
            isinstance(value, (tuple, list))
            and value
            and (array := as_array(value[0])) is not None
            and array.ndim == 4
        ):
            yield from _frames(array)
        elif type(value) is list:
            for at, each in enumerate(value[:FRAMES]):
                if not isinstance(each, (str, list, dict)):
                    yield from ((image, f", item {at}{of}") for image, of in _images(name, each))
        elif (array := as_array(value)) is not None:
            if array.ndim == 4:
                yield from _frames(array)
            elif (picture := _pixels(array)) is not None:
                yield _small(picture), ""
    except ImportError:
        raise
    except Exception:  # not an image after all: only described
        return


def _open(data: bytes, kind: str) -> Image:
    from PIL import Image

    image = Image.open(io.BytesIO(data), formats=[kind])  # some other formats start programs
    image.draft("RGB", (SIDE, SIDE))
    return image


def _frames(film: Array) -> Iterator[tuple[Image, str]]:
    """Some images of an array of frames."""
    places = sorted({round(at) for at in np.linspace(0, len(film) - 1, FRAMES)}) if len(film) else []
    for place in places:
        picture = _pixels(film[place])
        if picture is not None:
            yield _small(picture), f", {place + 1} of {len(film)}"


def _pixels(array: Array) -> Image | None:
    """Convert an array (H, W), (H, W, C) or (C, H, W) to an image; return None for other arrays."""
    from PIL import Image

    if array.ndim == 3 and array.shape[0] in _CHANNELS and array.shape[-1] not in _CHANNELS:
        array = np.moveaxis(array, 0, -1)
    if array.ndim not in (2, 3) or min(array.shape[:2]) < _SMALLEST:
        return None
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        return None
    array = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    return Image.fromarray(_eight_bits(array))


def _eight_bits(array: Array) -> npt.NDArray[np.uint8]:
    """Convert values to 8 bits; values other than bytes and fractions are scaled to their range."""
    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    if array.dtype.kind != "f" or low < 0 or high > 1:
        values = (values - low) / ((high - low) or 1)
    return (values * 255).round().astype(np.uint8)


def _small(image: Image) -> Image:
    if image.mode not in ("L", "RGB", "RGBA", "P", "1"):
        image = image.convert("RGB")
    image.thumbnail((SIDE, SIDE))
    larger = _SEEN // max(image.size)
    return image.resize((image.width * larger, image.height * larger), 0) if larger > 1 else image


def _picture(image: Image, alt: str) -> Medium:
    file = io.BytesIO()
    if image.mode in ("RGB", "L"):
        image.save(file, "JPEG", quality=78)
        return Medium("image", _data_url("image/jpeg", file.getvalue()), alt)
    image.save(file, "PNG")
    return Medium("image", _data_url("image/png", file.getvalue()), alt)


def _boxes(name: str, value: Any, is_known: bool) -> Array | None:
    if not is_known and _suffix(name) not in _BOXES:
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 2 and array.shape[1] == 4 and len(array) else None


def _size_of(value: Any) -> tuple[int, int] | None:
    """Width and height of a decoded image; None for others, whose pixels no step has counted."""
    array = as_array(value)
    if array is None or array.ndim not in (2, 3):
        size = getattr(value, "size", None)
        return size if isinstance(size, tuple) and len(size) == 2 else None
    is_first = array.ndim == 3 and array.shape[0] in _CHANNELS and array.shape[-1] not in _CHANNELS
    height, width = array.shape[1:] if is_first else array.shape[:2]
    return width, height


def _draw_boxes(image: Image, boxes: Array, form: BoxFormat, size: tuple[int, int] | None) -> None:
    """Draw boxes on an image that was scaled from `size`, if they are within it.

    Args:
        image: the image.
        boxes: (N, 4).
        form: what their numbers are.
        size: width and height that boxes in pixels refer to.
    """
    from PIL import ImageDraw

    if form.kind != "xyxy":
        first, sides = boxes[:, :2], boxes[:, 2:]
        first = first - sides / 2 if form.kind == "cxcywh" else first
        boxes = np.concatenate([first, first + sides], axis=1)
    if not form.relative:
        if size is None:
            return
        boxes = boxes / np.array([*size] * 2)
    if boxes.min() < -0.01 or boxes.max() > 1.01:
        return
    pen = ImageDraw.Draw(image)
    for left, top, right, bottom in boxes.clip(0, 1) * np.array([image.width, image.height] * 2):
        if left <= right and top <= bottom:
            pen.rectangle(
                (left, top, right, bottom), outline=255 if image.mode == "L" else (255, 64, 0), width=2
            )


def _sound(name: str, value: Any) -> Medium | None:
    """An audio or video file as it is, or the start of a decoded sound (samples, rate)."""
    if isinstance(value, bytes):
        suffix = format_of(name, value)
        kind = _SOUNDS.get(suffix) or _VIDEOS.get(suffix)
        what = "audio" if suffix in _SOUNDS else "video"
        return None if kind is None else Medium(what, _data_url(kind, value), name)
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int) and value[1] > 0):
        return None
    samples, rate = as_array(value[0]), value[1]
    if samples is None or samples.dtype.kind != "f" or samples.ndim not in (1, 2) or not samples.size:
        return None
    mono = samples if samples.ndim == 1 else samples.mean(axis=0)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((np.clip(mono[: SECONDS * rate], -1, 1) * 32767).astype("<i2").tobytes())
    return Medium("audio", _data_url("audio/wav", file.getvalue()), name)


def _describe_sound(samples: Any, rate: int) -> ValueMeaning:
    """The samples of a decoded sound, its rate and its length."""
    meaning = describe_value(samples)
    seconds = samples.shape[-1] / rate
    return ValueMeaning(meaning.type, f"{meaning.size} at {rate:,} Hz, {seconds:.3g} s", meaning.preview)


def _text(name: str, value: Any) -> str:
    array = as_array(value)
    if isinstance(value, str):
        text = value
    elif array is not None and array.ndim == 1 and array.dtype.kind in "iu":  # such as token ids
        text = " ".join(map(str, array[:TEXT].tolist()))
    elif isinstance(value, bytes) and _suffix(name) in _TEXTS:
        text = value[: 4 * TEXT].decode("utf-8", "replace")
    elif isinstance(value, (dict, list)):
        try:
            is_flat = isinstance(value, list) and not any(isinstance(part, (dict, list)) for part in value)
            text = json.dumps(
                excerpt(value),
                ensure_ascii=False,
                indent=None if is_flat else 1,
                default=lambda inner: describe_value(inner).type,
            )
        except (TypeError, ValueError):
            return ""
    else:
        return ""
    return text if len(text) <= TEXT else f"{text[:TEXT]}…"


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
