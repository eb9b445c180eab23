"""Values as arrays of bytes, which Ray sends and lends without copying: a pickle, and the memory of large arrays.

Ray puts the arrays that an actor returns into shared memory of its node, and shows them to the receiver there. The
receiver is the only one, so it may write to them. They occupy that memory until all tensors and arrays over them are
gone. A training loop that keeps its batches would fill it up, so from a number of bytes on it gets copies (`Lender`).
"""

from __future__ import annotations

import ctypes
import gc
import io
import pickle
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from wdspec.fields.deferred import EncodedImages
from wdspec.fields.memory import Array
from wdspec.run.parcels import flat_bytes, is_plain, open_flat

LEAST = 1 << 12
"""Size in bytes from which on memory is sent beside the pickle."""


def pack(value: Any) -> tuple[list[Array], bool]:
    """Return a value as arrays of bytes, the pickle first, and whether it has images to decode."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    arrays = [np.frombuffer(each, np.uint8) for each in (file.getbuffer(), *pickler.buffers)]
    return arrays, pickler.is_encoded


class Lender:
    """Opens what arrives, and counts the bytes that are lent.

    Args:
        most: bytes to lend; beyond, values are copied.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lent: dict[int, int] = {}
        """Sizes of the loans."""

    @property
    def lent(self) -> int:
        """Bytes that are in use."""
        return sum(list(self._lent.values()))

    def open(self, arrays: Sequence[Array]) -> Any:
        """Return the value that was packed as these arrays. Its arrays and tensors can be written."""
        data: Any = arrays[0]
        buffers = arrays[1:]
        size = sum(each.nbytes for each in arrays)
        if self.lent + size > self._most:
            return _open(data, [bytearray(each) for each in buffers])
        loan = _Loan()
        self._lent[id(loan)] = size
        weakref.finalize(loan, self._lent.pop, id(loan), None).atexit = False
        return _open(data, [_lend(each, loan) for each in buffers])


def _open(data: Any, buffers: Sequence[Any]) -> Any:
    """Return the value of a pickle, without looking for garbage meanwhile.

    It may have thousands of lists and maps. As each counts as possible garbage, Python would look through all objects
    of the process again and again, which took half of the processor time here.
    """
    looks = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(data, buffers=buffers)
    finally:
        if looks:
            gc.enable()


class _Loan:
    """What arrived together. Ray keeps all of it until no array of it is in use."""


def _lend(array: Array, loan: _Loan) -> Any:
    """Return the memory of an array, which can be written, and keeps the loan."""
    memory: Any = (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)
    memory.owner, memory.loan = array, loan
    return memory


class _Pickler(pickle.Pickler):
    """Pickles tensors as torch does, but the memory of plain ones beside the pickle, as for arrays.

    torch itself would copy it into the pickle, or send a file of shared memory, which other machines do not have.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5, buffer_callback=self._keep)
        self.buffers: list[memoryview] = []
        self.is_encoded = False

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Take a buffer; return whether it stays in the pickle."""
        memory = buffer.raw()
        if memory.nbytes < LEAST:
            return True
        self.buffers.append(memory)
        return False

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            self.is_encoded |= isinstance(value, EncodedImages)
            return NotImplemented
        if type(value) is torch.Tensor and value.device.type == "cpu":
            value = value.resolve_conj().resolve_neg()
        if type(value) is not torch.Tensor or not is_plain(value):
            return NotImplemented
        data: Any = flat_bytes(value).numpy()
        return open_flat, (pickle.PickleBuffer(data), value.dtype, tuple(value.shape), value.stride())
