"""Arrays and tensors: npy (one array), npz (several by name), safetensors, and files of `torch.save`.

Arrays are writable. Files of `torch.save` are read as far as that is possible without unpickling. webdataset's own
format for lists of arrays, tenbin, is not supported on purpose; the errors say what to use.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.fields.codecs.pickles import REFUSED, write_torch_objects
from wdspec.fields.decode import ALLOW
from wdspec.formats.compression import check_size
from wdspec.formats.tokens import read_npy_header
from wdspec.spec.language.decoders import library

Array = np.ndarray[Any, Any]
_MAGIC = b"\x93NUMPY"


def read_numpy(data: bytes) -> Array | dict[str, Array | bytes]:
    """Read the array of an npy file, or the arrays of an npz file by name.

    Raises:
        ValueError: it is neither, or too short, or contains objects, which are pickles.
    """
    if data.startswith(_MAGIC):
        return _read_npy(data)
    if not data.startswith(b"PK"):
        raise ValueError(f"{len(data)} bytes that start with {data[:8]!r} are neither npy nor npz")
    arrays: dict[str, Array | bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # zipfile does not read more of a member than the directory says, so this limits the memory.
        check_size(sum(member.file_size for member in archive.infolist()))
        for name in archive.namelist():
            content = archive.read(name)
            arrays[name.removesuffix(".npy")] = _read_npy(content) if content.startswith(_MAGIC) else content
    return arrays


def _read_npy(data: bytes) -> Array:
    # numpy's own reader allocates what the header says before it checks the data, and takes 15 µs to parse a header.
    start = _HEADS.get(data[6:8])
    if start is None:
        file = io.BytesIO(data)
        shape, _, dtype = read_npy_header(file)  # version 3 has other letters, but the same shape
        _check_claim(shape, math.prod(shape) * dtype.itemsize, len(data) - file.tell())
        file.seek(0)
        whole: Array = np.lib.format.read_array(file, allow_pickle=False)
        _check_end(len(data) - file.tell())
        return whole
    begin = start + int.from_bytes(data[8:start], "little")
    shape, fortran, dtype, size = _header(data[:begin])
    available = len(data) - begin
    _check_claim(shape, size, available)
    _check_end(available - size)
    if not size:
        return np.zeros(shape, dtype)
    return np.ndarray(shape, dtype, data, begin, None, "F" if fortran else "C").copy("K")


def npy_shape(data: bytes) -> tuple[int, ...]:
    """Return the shape of the array of an npy file, from its header. Raises ValueError."""
    start = _HEADS.get(data[6:8]) if data.startswith(_MAGIC) else None
    if start is None:
        return np.shape(_read_npy(data))
    return _header(data[: start + int.from_bytes(data[8:start], "little")])[0]


_MOST_OF_NOTHING = 1 << 20
"""The most values of no bytes, such as empty texts. numpy allocates some bytes for them, too."""


def _check_claim(shape: tuple[int, ...], size: int, available: int) -> None:
    if size > available:
        raise ValueError(f"its header says {size:,} bytes of values, but {available:,} follow")
    if not size and math.prod(shape) > _MOST_OF_NOTHING:
        raise ValueError(f"its header says {math.prod(shape):,} values of no bytes")


def _check_end(left: int) -> None:
    if left:
        raise ValueError(
            f"{left:,} bytes follow the array: another array, or damage; write each array as its own field, or read it "
            "as `raw`"
        )


@lru_cache(maxsize=256)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, whether in Fortran order, dtype, and bytes of values."""
    shape: tuple[int, ...]
    if plain := _PLAIN_HEADER.fullmatch(head, 10):
        kind, order, sides = plain.groups()
        shape, fortran = tuple(map(int, filter(None, sides.split(b",")))), order == b"True"
        dtype = np.dtype(kind.decode())
    else:
        shape, fortran, dtype = read_npy_header(io.BytesIO(head))
    if dtype.hasobject:
        raise ValueError(f"it contains Python objects, which are pickles; if you trust it, add {ALLOW}")
    if any(side < 0 for side in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, fortran, dtype, math.prod(shape) * dtype.itemsize


_PLAIN_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:[iu][1248]|f[248]|c8|c16|b1))', 'fortran_order': (True|False), "
    rb"'shape': \((|\d{1,18},|\d{1,18}(?:, \d{1,18})+)\), \} *\n"
)
"""What numpy writes for an array of numbers. numpy takes 15 µs to parse it, and arrays differ in their lengths."""

_HEADS = {b"\x01\x00": 10, b"\x02\x00": 12}
"""Version of the npy format → where its header starts, after the magic and the length of the header."""


def write_npy(value: Any) -> bytes:
    """Write an array, or a tensor, list or number as one. Raises TypeError for an array of objects."""
    out = io.BytesIO()
    np.lib.format.write_array(out, _array(value), allow_pickle=False)
    return out.getvalue()


def write_npz(value: Any) -> bytes:
    """Write a dict of arrays, compressed. Raises TypeError for other values."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(
            f"npz contains arrays by name; pass a dict of str to array, not {type(value).__name__}"
        )
    out = io.BytesIO()
    # Not np.savez: it takes the names as arguments, so none can be called `file`.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, item in value.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so the same bytes each time
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _array(item), allow_pickle=False)
    return out.getvalue()


def _array(value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asanyarray(value)
    if array.dtype.hasobject:
        raise TypeError(
            f"{type(value).__name__} becomes an array of objects, which npy stores as a pickle; give it a dtype"
        )
    return array


_SAFE_TORCH = (2, 10)
"""With `weights_only`, data could run code before 2.6 (CVE-2025-32434), and again before 2.10 (CVE-2026-24747)."""


def read_safetensors(data: bytes) -> dict[str, Any]:
    """Read the numpy arrays of a safetensors file by name.

    Raises:
        ValueError: numpy does not support the type of a tensor, such as bfloat16. (SafetensorError: invalid data.)
    """
    loads = library("safetensors.numpy", "reading safetensors").load
    try:
        return loads(data)  # type: ignore[no-any-return]  # of an untyped library
    except KeyError as cause:
        raise ValueError(f"numpy has no type {cause}; decode it with `torch_safetensors`") from cause


def read_torch_safetensors(data: bytes) -> dict[str, Any]:
    """Read the torch tensors of a safetensors file by name. Raises SafetensorError."""
    library("torch", "the decoder torch_safetensors")
    loads = library("safetensors.torch", "reading safetensors").load
    return loads(data)  # type: ignore[no-any-return]  # of an untyped library


def read_torch(data: bytes) -> Any:
    """Read a `torch.save` file of tensors and plain containers, on the CPU (`weights_only`: nothing is unpickled).

    Raises:
        ValueError: it contains other values, or is not such a file.
        UsageError: torch is not installed, or not safe in this version.
    """
    torch = library("torch", "reading pth")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _SAFE_TORCH:
        raise UsageError(
            f"reading pth without pickle needs torch 2.10 or later, and this is {torch.__version__} "
            f"(CVE-2026-24747); if you trust the data, add {ALLOW}"
        )
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as cause:
        raise ValueError(
            "it contains more than tensors and plain containers, or is not a torch file; "
            f"if you trust it, add {ALLOW} ({str(cause).strip().splitlines()[0][:100]})"
        ) from cause


def write_safetensors(value: Any) -> bytes:
    """Write a dict of tensors (or arrays). Raises TypeError for other values."""
    import numpy as np

    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"safetensors contains tensors by name; pass a dict, not {type(value).__name__}")
    if all(isinstance(item, np.ndarray) for item in value.values()):
        save = library("safetensors.numpy", "writing safetensors").save
        arrays = {name: np.ascontiguousarray(item) for name, item in value.items()}
        return save(arrays)  # type: ignore[no-any-return]  # of an untyped library
    torch = library("torch", "writing tensors")
    save = library("safetensors.torch", "writing safetensors").save
    tensors = {name: torch.as_tensor(item).contiguous() for name, item in value.items()}
    return save(tensors)  # type: ignore[no-any-return]  # of an untyped library


def write_torch(value: Any) -> bytes:
    """Write tensors and plain containers as a `torch.save` file that can be read without unpickling.

    Raises:
        TypeError: it contains other values.
    """
    data = write_torch_objects(value)
    try:
        read_torch(data)
    except ValueError as error:
        raise TypeError(f"{REFUSED}; without that, pth contains only tensors and plain containers") from error
    return data


def refusing_reader(decoder: str, field: str, suffix: str) -> Callable[[bytes], Any]:
    """Return a reader that raises UsageError, which no error policy skips."""
    return partial(_refuse_to_read, decoder)


def refusing_writer(extension: str) -> Callable[[Any], bytes]:
    """Return a writer that raises TypeError."""
    return _refuse_to_write


def _refuse_to_read(name: str, data: bytes) -> Any:
    raise UsageError(
        f"tenbin, a format of webdataset only, is not supported on purpose; keep the bytes with `decode: {{{name}: "
        "raw}` (in Python: `decode(only=…)`) and read them in `map`, or store arrays as npz or safetensors"
    )


def _refuse_to_write(value: Any) -> bytes:
    raise TypeError("tenbin is not supported on purpose; use npy, or npz for several arrays")
