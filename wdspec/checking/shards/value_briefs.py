"""Large values in short, as soon as they are decoded: what is held to be looked at later would cost its memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wdspec.checking.shards.image_heads import ImageHead, image_head

_IMAGE_PARTS = (1, 3, 4)


class Brief(NamedTuple):
    """An array, a tensor, an image, or the file of one."""

    kind: str | tuple[Any, Any]
    """Its type, or its shape and dtype."""
    size: int | None
    """Bytes of a file; None for what was decoded."""
    head: ImageHead | None
    """Of the file of an image."""
    is_finite: bool


def is_large(value: Any) -> bool:
    """Whether a value is one to be held in short."""
    return (hasattr(value, "shape") and hasattr(value, "dtype")) or (
        hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple)
    )


def brief(value: Any, file: Any) -> Any:
    """A value in short, or as it is.

    Args:
        value: as its source delivers it.
        file: that of an image, if it is one.
    """
    head = image_head(file) if type(file) is bytes else None
    if type(value) is bytes:
        return value if head is None else Brief("bytes", len(value), head, True)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        shape, dtype = value.shape, value.dtype
        return Brief((shape, dtype), None, head, head is not None or _is_finite(value))
    if hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
        return Brief(f"PIL image of {value.size[1]} x {value.size[0]}", None, head, True)
    return value


def _is_finite(value: Any) -> bool:
    """Whether all elements are numbers; so of images, which were whole numbers, without a look."""
    kind = str(value.dtype)
    if "float" not in kind and "complex" not in kind:
        return True
    shape = value.shape
    if len(shape) == 3 and (shape[0] in _IMAGE_PARTS or shape[-1] in _IMAGE_PARTS):
        return True
    total = value.sum()
    return bool(np.isfinite(complex(total)))
