"""Values as arrays of bytes, which Ray sends and lends without copying: their pickles, and the memory of large arrays.

Ray puts the arrays that an actor returns into shared memory of its node, and shows them to the receiver there. The
receiver is the only one, so it may write to them. They occupy that memory until all tensors and arrays over them are
gone. A training loop that keeps its batches would fill it up, so from a number of bytes on it gets copies (`Lender`).

The values of a delivery are pickled one by one, as they are made, and opened one by one, when they are asked for: all
together would not stay in the processor's cache, and Python would look for garbage among them.
"""

from __future__ import annotations

import ctypes
import pickle
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from wdspec.fields.deferred import EncodedImages
from wdspec.fields.memory import Array
from wdspec.run.parcels import Parcel, flat_bytes, is_plain, open_flat

LEAST = 1 << 12
"""Size in bytes from which on memory is sent beside the pickle."""
_ROOM, _MOST_ROOM = 1 << 16, 1 << 24
"""Bytes of memory for pickles at first, and to keep for the next delivery at most."""


class _Pickles:
    """The file of the pickles of one delivery after another, in the same memory: new pages would take as long."""

    def __init__(self) -> None:
        self._room = bytearray(_ROOM)
        self.end = 0

    def write(self, data: bytes) -> None:
        """Take a piece of a pickle."""
        start, self.end = self.end, self.end + len(data)
        if self.end > len(self._room):  # in a new object: the size of one that is in use cannot change
            self._room = self._room + bytes(max(start, self.end - len(self._room)))
        self._room[start : self.end] = data

    def take(self) -> memoryview:
        """Return all pickles since the last call, to be used until the next one is written."""
        taken = memoryview(self._room)[: self.end]
        if len(self._room) > _MOST_ROOM:
            self._room = bytearray(_ROOM)
        self.end = 0
        return taken


class Packer:
    """Packs the values of a delivery one by one."""

    def __init__(self) -> None:
        self._pickles = _Pickles()
        self._buffers: list[memoryview] = []

    def pack(self, value: Any) -> PackedParcel:
        """Pickle a value at once, so that an error is raised where it is made."""
        start, first = self._pickles.end, len(self._buffers)
        pickler = _Pickler(self._pickles, 5, buffer_callback=self._keep)
        try:
            pickler.dump(value)
        except BaseException:
            self._pickles.end = start
            del self._buffers[first:]
            raise
        beside = self._buffers[first:]
        end = self._pickles.end
        size = end - start + sum(each.nbytes for each in beside)
        return PackedParcel(start, end, 1 + first, len(beside), size, pickler.is_encoded)

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Take memory; return whether it stays in the pickle."""
        # Not a method of the pickler, which would then refer to itself, and keep all that it has pickled.
        memory = buffer.raw()
        if memory.nbytes < LEAST:
            return True
        self._buffers.append(memory)
        return False

    def take(self) -> list[Array]:
        """Return the arrays of all values since the last call, to be used until the next value is packed."""
        pieces = [self._pickles.take(), *self._buffers]
        self._buffers = []
        return [np.frombuffer(each, np.uint8) for each in pieces]


class PackedParcel(Parcel):
    """A value in arrays that are sent together: its pickle in the first one, and memory beside it in others.

    Args:
        start, end: of the pickle.
        first: number of the first array beside it.
        count: how many there are.
        size: bytes of all.
        is_encoded: whether it has images that the receiver is to decode.
    """

    __slots__ = ("_args", "_beside")

    def __init__(self, start: int, end: int, first: int, count: int, size: int, is_encoded: bool) -> None:
        self._args = start, end, first, count, size, is_encoded
        self.size, self.is_encoded = size, is_encoded

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedParcel, self._args

    def find(self, arrays: Sequence[Any]) -> None:
        """Take the bytes from the arrays, which have arrived."""
        start, end, first, count, *_ = self._args
        self._data, self._beside = memoryview(arrays[0]).cast("B")[start:end], arrays[first : first + count]

    def open(self) -> Any:
        """Return the value; call it once, since the memory is handed over."""
        data, beside, self._data, self._beside = self._data, self._beside, b"", ()
        return pickle.loads(data, buffers=beside)


class Lender:
    """Opens what arrives, and counts the bytes that are lent.

    Args:
        most: bytes to lend; beyond, they are copied.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lent: dict[int, int] = {}
        """Sizes of the loans."""

    @property
    def lent(self) -> int:
        """Bytes that are in use, or not opened yet."""
        return sum(list(self._lent.values()))

    def lend(self, arrays: Sequence[Array], parcels: Iterable[PackedParcel]) -> None:
        """Give parcels the arrays that arrived with them. Their values can be written."""
        size = sum(each.nbytes for each in arrays)
        if self.lent + size > self._most:
            memories: list[Any] = [bytearray(each) for each in arrays]
        else:
            loan = _Loan()
            self._lent[id(loan)] = size
            weakref.finalize(loan, self._lent.pop, id(loan), None).atexit = False
            memories = [_lend(each, loan) for each in arrays]
        for parcel in parcels:
            parcel.find(memories)


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

    is_encoded = False
    """Whether there are images to decode."""

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
