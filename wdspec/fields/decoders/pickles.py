"""The readers that run what the data says: the only door to pickle here, and open only by ``allow: [pickle]``."""

from __future__ import annotations

import io
import pickle
from typing import Any

from wdspec.fields.decoders.optional_libraries import library


def read_pickle(data: bytes) -> Any:
    """Any Python object; raises whatever it likes."""
    return pickle.loads(data)


def read_numpy_objects(data: bytes) -> Any:
    """As `arrays.read_numpy`, with arrays of objects."""
    import numpy as np

    loaded = np.load(io.BytesIO(data), allow_pickle=True)
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            return dict(loaded)
    return loaded


def read_torch_objects(data: bytes) -> Any:
    """A `torch.save` file of anything, on the CPU."""
    return library("torch", "reading pth").load(io.BytesIO(data), map_location="cpu", weights_only=False)
