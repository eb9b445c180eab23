"""What runs what the data says: the only way to pickle here, open by ``allow: [pickle]`` alone; and the refusals."""

from __future__ import annotations

import io
import pickle
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.spec.language.decoders import library

REFUSED = (
    "it would be stored as a pickle, which runs code when it is read; use json, npy or msgpack, or consent by "
    "`allow_pickle=True` (and by `allow: [pickle]` where it is read)"
)


def read_pickle(data: bytes) -> Any:
    """Any Python object; raises whatever it likes."""
    return pickle.loads(data)


def read_numpy_objects(data: bytes) -> Any:
    """As `numpy_files.read_numpy`, with arrays of objects."""
    import numpy as np

    loaded = np.load(io.BytesIO(data), allow_pickle=True)
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            return dict(loaded)
    return loaded


def read_torch_objects(data: bytes) -> Any:
    """A `torch.save` file of anything, on the CPU."""
    return library("torch", "reading pth").load(io.BytesIO(data), map_location="cpu", weights_only=False)


def write_pickle(value: Any) -> bytes:
    """A pickle that every Python from 3.8 on can read."""
    return pickle.dumps(value, protocol=4)


def write_torch_objects(value: Any) -> bytes:
    """A `torch.save` file, which may hold pickles."""
    out = io.BytesIO()
    library("torch", "writing pth").save(value, out)
    return out.getvalue()


def refuse_to_read(name: str, secure: bool, data: bytes) -> Any:
    """Raises UsageError, which no error policy skips: pickles are not allowed, or forbidden altogether."""
    consent = "which WDS_SECURE=1 forbids;" if secure else "so it needs your consent, `allow: [pickle]`; or"
    raise UsageError(
        f"a pickle can run code hidden in the data, {consent} leave it out by `extensions`, or keep the bytes by "
        f"`decode: {{{name}: raw}}`"
    )


def refuse_to_write(value: Any) -> bytes:
    """Raises TypeError: pickles are not allowed."""
    raise TypeError(REFUSED)
