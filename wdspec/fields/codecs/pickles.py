"""Reading and writing pickles, which run code in the data: only with ``allow: [pickle]``, and refused otherwise."""

from __future__ import annotations

import io
import pickle
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.user_code import is_security_enforced
from wdspec.spec.language.decoders import library

REFUSED = (
    "it would be stored as a pickle, which runs code when it is read; use json, npy or msgpack, or pass "
    "`allow_pickle=True` (and write `allow: [pickle]` to read it)"
)


def read_pickle(data: bytes) -> Any:
    """Read any Python object. May raise anything."""
    _check_allowed()
    return pickle.loads(data)


def read_numpy_objects(data: bytes) -> Any:
    """Like `arrays.read_numpy`, also with arrays of objects."""
    import numpy as np

    _check_allowed()
    loaded = np.load(io.BytesIO(data), allow_pickle=True)
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            return dict(loaded)
    return loaded


def read_torch_objects(data: bytes) -> Any:
    """Read a `torch.save` file with any content, on the CPU."""
    _check_allowed()
    return library("torch", "reading pth").load(io.BytesIO(data), map_location="cpu", weights_only=False)


def _check_allowed() -> None:
    """Raise UsageError if the program has set `enforce_security`, perhaps after the decoder was made."""
    if is_security_enforced():
        raise UsageError("a pickle can run code hidden in the data, which WDS_SECURE=1 forbids")


def write_pickle(value: Any) -> bytes:
    """Write a pickle that Python 3.8 and later can read."""
    return pickle.dumps(value, protocol=4)


def write_torch_objects(value: Any) -> bytes:
    """Write a `torch.save` file, which may contain pickles."""
    out = io.BytesIO()
    library("torch", "writing pth").save(value, out)
    return out.getvalue()


def refuse_to_write(value: Any) -> bytes:
    """Raise TypeError: pickles are not allowed."""
    raise TypeError(REFUSED)
