"""webdataset's own format for lists of arrays, which is left out on purpose: errors that say what to use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from wdspec.errors import UsageError


def refusing_reader(decoder: str, field: str, suffix: str) -> Callable[[bytes], Any]:
    """A reader that raises UsageError for each field: no error policy skips them, for they are all alike."""
    return partial(_refuse_to_read, decoder)


def refusing_writer(extension: str) -> Callable[[Any], bytes]:
    """A writer that raises TypeError for each value."""
    return _refuse_to_write


def _refuse_to_read(name: str, data: bytes) -> Any:
    raise UsageError(
        f"tenbin, a format of webdataset alone, is left out on purpose; keep the bytes by `decode: {{{name}: raw}}` "
        "and read them in `map`, or store arrays as npz or safetensors"
    )


def _refuse_to_write(value: Any) -> bytes:
    raise TypeError("tenbin is left out on purpose; use npy, or npz for several arrays")
