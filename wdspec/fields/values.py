"""Values of fields, of any library: whether one is an array or an image, its sides, and its type and shape in words."""

from __future__ import annotations

from typing import Any, NamedTuple


class Audio(NamedTuple):
    """A recording, as the decoders of audio return it. Batches check that their recordings have one rate."""

    samples: Any
    """float32 in -1..1 of shape (channels, samples): an array or a tensor."""
    rate: int
    """Samples per second of each channel."""


def is_array(value: Any) -> bool:
    """Whether a value is an array or a tensor."""
    return getattr(value, "shape", None) is not None and getattr(value, "dtype", None) is not None


def is_image(value: Any) -> bool:
    """Whether a value is an image of Pillow."""
    return hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple)


def sides_of(value: Any) -> tuple[int, ...] | None:
    """The sides of an array, or the height and width of an image; None for other values."""
    if is_array(value):
        return tuple(int(side) for side in value.shape)
    return value.size[::-1] if is_image(value) else None


def describe(value: Any) -> str:
    """Describe a value by its type and size: `(224, 224, 3) uint8`, `PIL image of 480 x 640`, `list of 3`, `int`."""
    if is_array(value):
        return describe_shape(value.shape, value.dtype)
    if is_image(value):
        return f"PIL image of {value.size[1]} x {value.size[0]}"
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, (tuple, list)) else name


def describe_shape(shape: Any, dtype: Any) -> str:
    """Describe an array: `(224, 224, 3) uint8`."""
    return f"({', '.join(map(str, shape))}) {type_in_words(dtype)}"


def type_in_words(dtype: Any) -> str:
    """The name of the type of numbers: `float32`."""
    return str(dtype).removeprefix("torch.")
