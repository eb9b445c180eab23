"""Files of tensors: safetensors, and those of `torch.save` as far as they can be read without unpickling."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

from wdspec.decoders.libraries import library
from wdspec.errors import UsageError
from wdspec.fields.codecs.pickles import REFUSED, write_torch_objects

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
