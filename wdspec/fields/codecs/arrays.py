"""Files of numpy: npy is one array, npz several by name. What is read is writable.

Files of tensors: safetensors, and those of `torch.save` as far as they can be read without unpickling.

webdataset's own format for lists of arrays, which is left out on purpose: errors that say what to use.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.fields.codecs.pickles import REFUSED, write_torch_objects
from wdspec.formats.compression import check_size
from wdspec.spec.language.decoders import library

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
    # numpy's own reader makes room for whatever the header promises before it looks for the data, and takes 15 µs to
    # parse a header, which in a dataset is most often the same one.
    start = _HEADS.get(data[6:8])
    if start is None:
        file = io.BytesIO(data)
        whole: Array = np.lib.format.read_array(file, allow_pickle=False)
        _check_end(len(data) - file.tell())
        return whole
    begin = start + int.from_bytes(data[8:start], "little")
    shape, fortran, dtype, size = _header(data[:begin])
    there = len(data) - begin
    if size > there:
        raise ValueError(f"it promises {size:,} bytes of values, and {there:,} follow")
    _check_end(there - size)
    if not size:
        return np.zeros(shape, dtype)
    values = np.frombuffer(data, dtype, size // dtype.itemsize, begin)
    array: Array = values.reshape(shape, order="F" if fortran else "C").copy(order="K")
    return array


def _check_end(left: int) -> None:
    if left:
        raise ValueError(
            f"{left:,} bytes follow the array: another one, or damage; write each array as a field, or read it as `raw`"
        )


@lru_cache(maxsize=256)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether in Fortran's order, dtype, and bytes of values."""
    file = io.BytesIO(head)
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are pickles; if you trust it, add `allow: [pickle]`")
    if any(side < 0 for side in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, fortran, dtype, math.prod(shape) * dtype.itemsize


_HEADS = {b"\x01\x00": 10, b"\x02\x00": 12}
"""Version of the npy format → where its header begins, after the magic and the header's length."""


def write_npy(value: Any) -> bytes:
    """One array, or what makes one: a tensor, a list, a number. Raises TypeError for an array of objects."""
    out = io.BytesIO()
    np.lib.format.write_array(out, _array(value), allow_pickle=False)
    return out.getvalue()


def write_npz(value: Any) -> bytes:
    """Arrays by name, compressed. Raises TypeError for what is no dict of arrays."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"npz holds arrays by name; give a dict of str to array, not {type(value).__name__}")
    out = io.BytesIO()
    # Not np.savez: it takes the names as arguments, and so has no room for one called `file`.
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
            f"{type(value).__name__} makes an array of objects, which npy stores as a pickle; give it a dtype"
        )
    return array


_SAFE_TORCH = (2, 10)
"""Data could make `weights_only` run code before 2.6 (CVE-2025-32434), and again before 2.10 (CVE-2026-24747)."""


def read_safetensors(data: bytes) -> dict[str, Any]:
    """The numpy arrays of a safetensors file by name.

    Raises:
        ValueError: a tensor is of a type that numpy has not, such as bfloat16. (SafetensorError: the data is bad.)
    """
    loads = library("safetensors.numpy", "reading safetensors").load
    try:
        return loads(data)  # type: ignore[no-any-return]  # of an untyped library
    except KeyError as cause:
        raise ValueError(f"numpy has no type {cause}; decode it by `torch_safetensors`") from cause


def read_torch_safetensors(data: bytes) -> dict[str, Any]:
    """The torch tensors of a safetensors file by name; raises SafetensorError."""
    library("torch", "the decoder torch_safetensors")
    loads = library("safetensors.torch", "reading safetensors").load
    return loads(data)  # type: ignore[no-any-return]  # of an untyped library


def read_torch(data: bytes) -> Any:
    """A `torch.save` file of tensors and plain containers, on the CPU (`weights_only`: nothing is unpickled).

    Raises:
        ValueError: it holds other things too, or is no such file.
        UsageError: no torch, or one that cannot do this safely.
    """
    torch = library("torch", "reading pth")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _SAFE_TORCH:
        raise UsageError(
            f"reading pth without pickle needs torch 2.10 or later, and this is {torch.__version__} "
            "(CVE-2026-24747); if you trust the data, add `allow: [pickle]`"
        )
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as cause:
        raise ValueError(
            "it holds more than tensors and plain containers, or is no torch file; "
            f"if you trust it, add `allow: [pickle]` ({str(cause).strip().splitlines()[0][:100]})"
        ) from cause


def write_safetensors(value: Any) -> bytes:
    """Tensors (or arrays) by name. Raises TypeError for what is no dict of them."""
    import numpy as np

    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"safetensors holds tensors by name; give a dict, not {type(value).__name__}")
    if all(isinstance(item, np.ndarray) for item in value.values()):
        save = library("safetensors.numpy", "writing safetensors").save
        arrays = {name: np.ascontiguousarray(item) for name, item in value.items()}
        return save(arrays)  # type: ignore[no-any-return]  # of an untyped library
    torch = library("torch", "writing tensors")
    save = library("safetensors.torch", "writing safetensors").save
    tensors = {name: torch.as_tensor(item).contiguous() for name, item in value.items()}
    return save(tensors)  # type: ignore[no-any-return]  # of an untyped library


def write_torch(value: Any) -> bytes:
    """A `torch.save` file that can be read without unpickling: tensors and plain containers.

    Raises:
        TypeError: it holds anything else.
    """
    data = write_torch_objects(value)
    try:
        read_torch(data)
    except ValueError as error:
        raise TypeError(f"{REFUSED}; without that, pth holds tensors and plain containers only") from error
    return data


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
