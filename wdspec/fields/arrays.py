"""Files of numpy: npy is one array, npz several by name. They come back writable."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from wdspec.fields.unpacking import check_size

Array = np.ndarray[Any, Any]
_MAGIC = b"\x93NUMPY"


def read_numpy(data: bytes) -> Array | dict[str, Array | bytes]:
    """The array of an npy file, or the arrays of an npz file by name.

    Raises:
        ValueError: it is neither, or shorter than it says, or holds objects, which are pickles.
    """
    if data.startswith(_MAGIC):
        return _read_npy(data)
    if not data.startswith(b"PK"):
        raise ValueError(f"{len(data)} bytes that begin with {data[:8]!r} are neither npy nor npz")
    arrays: dict[str, Array | bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # zipfile gives no more of a member than the directory promises, so this bounds the memory.
        check_size(sum(member.file_size for member in archive.infolist()))
        for name in archive.namelist():
            content = archive.read(name)
            arrays[name.removesuffix(".npy")] = _read_npy(content) if content.startswith(_MAGIC) else content
    return arrays


def _read_npy(data: bytes) -> Array:
    # numpy's own reader makes room for whatever the header promises, before it looks for the data.
    file = io.BytesIO(data)
    header = _HEADERS.get(np.lib.format.read_magic(file))
    if header is None:
        return _later_npy(data)
    shape, fortran, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are pickles; if you trust it, add `allow: [pickle]`")
    count = 1
    for side in shape:
        if side < 0:
            raise ValueError(f"its shape is {shape}")
        count *= side
    there = len(data) - file.tell()
    if count * dtype.itemsize > there:
        raise ValueError(f"it promises {count * dtype.itemsize:,} bytes of values, and {there:,} follow")
    if not count * dtype.itemsize:
        return np.zeros(shape, dtype)
    values = np.frombuffer(data, dtype, count, file.tell())
    array: Array = values.reshape(shape, order="F" if fortran else "C").copy(order="K")
    return array


def _later_npy(data: bytes) -> Array:
    array: Array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array


_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""Version of the npy format → reader of shape, whether in Fortran's order, and dtype."""
