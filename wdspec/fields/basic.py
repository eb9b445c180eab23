"""The decoders for fields that are no images, named like the extension each one reads by default."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

from wdspec.fields.json_text import read_json

MAX_DECOMPRESSED = 1 << 30
"""Bytes to which one compressed field may grow (1 GiB); beyond, it is taken for a decompression bomb."""


def read_text(data: bytes) -> str:
    """UTF-8 text, byte for byte: neither a newline nor a byte order mark is dropped."""
    return data.decode("utf-8")


def read_numpy(data: bytes) -> Any:
    """The array of an npy file, or the arrays of an npz file by name; objects, being pickles, are refused."""
    import numpy as np

    if data.startswith(b"\x93NUMPY"):
        return np.load(io.BytesIO(data), allow_pickle=False)
    if not data.startswith(b"PK"):
        raise ValueError(f"{len(data)} bytes that begin with {data[:8]!r} are neither npy nor npz")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # zipfile gives no more of a member than the directory promises, so this bounds the memory.
        _check_size(sum(member.file_size for member in archive.infolist()))
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


def read_torch(data: bytes) -> Any:
    """A `torch.save` file, on the CPU. It may hold any pickle: ``allow: [pickle]`` consents to that."""
    import torch

    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)


def gunzip(data: bytes) -> bytes:
    """Decompresses a gzip field, of one member or several.

    Raises:
        ValueError: it grows beyond `MAX_DECOMPRESSED`. (OSError, EOFError, zlib.error: it is no whole gzip
            file.)
    """
    stream = zlib.decompressobj(31)
    result = stream.decompress(data, MAX_DECOMPRESSED + 1)
    _check_size(len(result))
    if stream.eof and not stream.unused_data:
        return result
    if not data:
        raise EOFError("the file is empty")
    # Several members, padding or an error: rare, and gzip's own reader knows the rules.
    result = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_DECOMPRESSED + 1)
    _check_size(len(result))
    return result


def _check_size(size: int) -> None:
    if size > MAX_DECOMPRESSED:
        raise ValueError(f"it decompresses to more than {MAX_DECOMPRESSED:,} bytes; read it as `raw`")


BASIC: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript"), read_text),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count", "class"), int),
    **dict.fromkeys(("json", "jsn"), read_json),
    **dict.fromkeys(("npy", "npz"), read_numpy),
}
"""Decoders that are safe on any data."""

PICKLES: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("pkl", "pickle", "pyd"), pickle.loads),
    "pth": read_torch,
}
"""Decoders that run what the data says: used only under ``allow: [pickle]``."""
