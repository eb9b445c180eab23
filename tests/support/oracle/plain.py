"""Batches as plain Python values, so that those of the model and of the program can be compared and stored."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return a value of a batch as JSON values; two are equal if and only if type, shape and contents are.

    Tensors and arrays become `[dtype, shape, numbers]` with the numbers flat, bytes their hex digits, `Padded` and
    other tuples `{"tuple": […]}`.
    """
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [plain(each) for each in value]}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), value.reshape(-1).tolist()]
    if isinstance(value, np.generic):
        return [str(value.dtype), [], [value.item()]]
    return value


def digest(value: Any) -> str:
    """Return a short hash of a plain value."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
