"""Parcels: values sent to another process, with small tensors inside the pickle, and large ones in lent memory.

torch creates a file in shared memory and a descriptor for every tensor it sends, which costs both processes together
0.7 ms, whatever the size, and 1.1 to 1.5 ms per megabyte, mostly for new pages. As bytes through a pipe, 16 KB take
0.1 ms and 512 KB 0.7 ms. So smaller tensors are sent as bytes. Each arrives with its own memory: keeping one keeps no
other tensor alive.

Larger tensors, and what is sent together if it is as large, are in blocks of a `Ring`, shared memory that the sender
uses again. torch sends the memory once, so it has no name in the file system that could remain; later only the number
of the block is sent. Each tensor that arrives is a lease: when neither it nor a view of it is left, the receiver marks
the block, and the sender may write to it again. A receiver that keeps its tensors gets new blocks, or torch's way if
there are too many.
"""

from __future__ import annotations

import ctypes
import io
import os
import pickle
import secrets
import weakref
from collections.abc import Sequence
from itertools import count
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

from wdspec.base.process import PerProcess
from wdspec.fields.deferred import EncodedImages
from wdspec.fields.memory import LARGE, Array, Block, Pool

INLINE = LARGE
"""Size in bytes from which on a tensor is sent in shared memory."""
_MARKS = 64
"""Bytes after the memory of a block, one for each lease since it was free."""
_LENT, _RETURNED, _GONE = 0, 1, 2
"""Marks: the receiver uses the block, no longer uses it, or has left it to a forked process for good."""

BlockId = tuple[int, int]
"""A ring, and the number of one of its blocks."""


class Parcel:
    """A value to send to another process. It is pickled at once, so that an error is raised where the value is made.

    It is opened on request, so that its bytes are still in the processor's cache when they are used. But a parcel with
    shared memory is opened on arrival, since the sender keeps the memory and its descriptors until then.
    """

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
        try:
            pickler.dump(value)
        except BaseException:
            for block in pickler.blocks:  # nobody receives these leases
                block.give_up()
            raise
        self._data: bytes | memoryview = file.getvalue()
        self._start: int | None = None
        """Where its bytes are in the memory of all that are sent together."""
        self._opened: tuple[Any] | None = None
        self.size = len(self._data) + pickler.shared
        """Size in bytes, including shared memory."""
        self.is_encoded = pickler.is_encoded
        """Whether it has images that the receiver is to decode."""

    def open(self) -> Any:
        """Return the value; call it once, since shared memory is handed over."""
        return pickle.loads(self._data) if self._opened is None else self._opened[0]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.size > len(self._data) and self._start is None:
            self._opened, self._data = (pickle.loads(self._data),), b""


def share(parcels: Sequence[Parcel]) -> Parcel | None:
    """Move the bytes of parcels that are sent together into lent memory; None if they are few, or no block is left.

    A pipe would take them in pieces of 64 KiB, for each of which the receiver wakes up.
    """
    movable = [parcel for parcel in parcels if parcel.size == len(parcel._data)]
    size = sum(parcel.size for parcel in movable)
    memory = ring.value.take(size) if size >= INLINE else None
    if memory is None:
        return None
    at = 0
    for parcel in movable:
        memory[at : at + parcel.size] = np.frombuffer(parcel._data, np.uint8)
        parcel._data, parcel._start = b"", at
        at += parcel.size
    return Parcel(torch.from_numpy(memory))


def place(parcels: Sequence[Parcel], shared: Parcel) -> None:
    """Give parcels that arrived the bytes that `share` moved."""
    memory = memoryview(shared.open().numpy())
    for parcel in parcels:
        if parcel._start is not None:
            parcel._data = memory[parcel._start : parcel._start + parcel.size]


class _SharedBlock(Block):
    """A block of shared memory, which is free when its receiver has returned all leases, too."""

    def __init__(self, size: int, id: BlockId) -> None:
        self.id = id
        self._storage: Any = torch.UntypedStorage._new_shared(size + _MARKS)
        whole = _bytes_of(self._storage)
        super().__init__(whole[:size])
        self.start = self.memory.ctypes.data
        """Its address in this process."""
        self._marks = whole[size:]
        self._marks[:] = _LENT
        self._leases = 0
        self._is_known = False
        """Whether the receiver has the memory."""

    @property
    def is_free(self) -> bool:
        if not super().is_free or (self._marks[: self._leases] != _RETURNED).any():
            return False
        self._marks[: self._leases] = _LENT
        self._leases = 0
        return True

    @property
    def is_gone(self) -> bool:
        """Whether it must not be used again."""
        return bool((self._marks[: self._leases] == _GONE).any())

    def give_up(self) -> None:
        """Never use it again."""
        self._marks[:] = _GONE

    def add_lease(self) -> tuple[BlockId, int, Any] | None:
        """Return what the receiver needs for one more lease; None if there are too many."""
        if self._leases == _MARKS:
            return None
        self._leases += 1
        storage, self._is_known = (None if self._is_known else self._storage), True
        return self.id, self._leases - 1, storage


class Ring(Pool):
    """Blocks of shared memory of a process that sends."""

    def __init__(self) -> None:
        super().__init__()
        self._number = secrets.randbits(63)
        self._count = count()
        self._dropped: list[BlockId] = []

    def take(self, size: int) -> Array | None:
        for block in [block for block in self.blocks if isinstance(block, _SharedBlock) and block.is_gone]:
            self.drop(block)
        try:
            return super().take(size)
        except RuntimeError:  # no shared memory is left, or no descriptor
            return None

    def make(self, size: int) -> Block:
        self.blocks.append(_SharedBlock(size, (self._number, next(self._count))))
        return self.blocks[-1]

    def drop(self, block: Block) -> None:
        super().drop(block)
        if isinstance(block, _SharedBlock):
            self._dropped.append(block.id)

    def report_dropped(self) -> list[BlockId]:
        """Return the blocks dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def find(self, tensor: torch.Tensor) -> tuple[_SharedBlock, int] | None:
        """Return the block that a tensor is in, and where it starts there; None if it is elsewhere."""
        for block in self.blocks:
            if isinstance(block, _SharedBlock):
                start = tensor.data_ptr() - block.start
                if 0 <= start < block.memory.size:
                    return block, start
        return None


ring: PerProcess[Ring] = PerProcess(Ring)
"""The blocks of this process as a sender."""


class _Received:
    """The blocks of other processes in this one."""

    def __init__(self) -> None:
        self.blocks: dict[BlockId, Array] = {}
        self.senders: dict[int, int] = {}
        """Ring → the process that it belongs to."""
        self.leases: dict[int, tuple[BlockId, Array]] = {}
        """Lease → its block and its mark."""
        self._count = count()

    def open(
        self, id: BlockId, mark: int, storage: Any, sender: int, start: int, size: int, dropped: list[BlockId]
    ) -> Any:
        """Return a part of a block as an object with a buffer, which returns the lease when it is gone.

        Args:
            storage: the memory of the block, if it was not sent before.
            dropped: blocks that the sender does not use any more.
        """
        for other in dropped:
            self.blocks.pop(other, None)
        if storage is not None:
            self.blocks[id] = _bytes_of(storage)
            self.senders[id[0]] = sender
        memory: Any = self.blocks[id]
        owner = (ctypes.c_ubyte * size).from_buffer(memory, start)
        lease = next(self._count)
        at = memory.size - _MARKS + mark
        self.leases[lease] = id, memory[at : at + 1]
        weakref.finalize(owner, self._return, lease).atexit = False
        return owner

    def _return(self, lease: int) -> None:
        # Otherwise it was given up, or belongs to the process that forked this one.
        if lease in self.leases and self is _received.value:
            self.leases.pop(lease)[1][0] = _RETURNED

    def leave_to_child(self) -> None:
        """Give up the blocks in use, before a fork: the child may keep their tensors for as long as it runs."""
        for lease in list(self.leases):
            id, mark = self.leases.pop(lease)
            mark[0] = _GONE
            self.blocks.pop(id, None)

    def forget(self, sender: int) -> None:
        """Let go of the blocks of a process that has ended."""
        rings = {ring for ring, process in self.senders.items() if process == sender}
        for id in [id for id in self.blocks if id[0] in rings]:
            del self.blocks[id]
        for each in rings:
            del self.senders[each]


_received: PerProcess[_Received] = PerProcess(_Received)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lambda: _received.value.leave_to_child())


def forget_sender(process: int) -> None:
    """Let go of the shared memory of a worker that has ended; tensors in it stay valid."""
    _received.value.forget(process)


class _Pickler(ForkingPickler):
    """Pickles for another process as torch does, but small plain tensors by value, and large ones in blocks."""

    shared = 0
    """Bytes of tensors in shared memory."""
    blocks: tuple[_SharedBlock, ...] = ()
    """The blocks that were lent."""
    is_encoded = False
    """Whether there are images to decode."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            self.is_encoded |= isinstance(value, EncodedImages)
            return NotImplemented
        if type(value) is torch.Tensor and (value.is_conj() or value.is_neg()):
            # torch would send the memory without the flag that it holds the conjugate or negative.
            return _identity, (value.resolve_conj().resolve_neg(),)
        if type(value) is not torch.Tensor or not _is_plain(value):
            self.shared += value.numel() * value.element_size()
            return NotImplemented
        if value.nbytes < INLINE:
            data: Any = _flat(value).numpy()
            return _tensor, (pickle.PickleBuffer(data), value.dtype, tuple(value.shape), value.stride())
        self.shared += value.nbytes
        return self._lend(value) or NotImplemented

    def _lend(self, value: torch.Tensor) -> tuple[Any, ...] | None:
        """Return how to open a tensor in a block, where it is copied unless it is there; None if no block is left."""
        found, copy = ring.value.find(value), None
        if found is None:
            copy = ring.value.take(value.nbytes)
            if copy is None:
                return None
            torch.from_numpy(copy).copy_(_flat(value))
            found = ring.value.find(torch.from_numpy(copy))
            assert found is not None, "it is in a block of the ring"
        block, start = found
        lease = block.add_lease()
        if lease is None:
            return None
        self.blocks += (block,)
        facts = (*lease, os.getpid(), start, value.nbytes, ring.value.report_dropped())
        return _open_tensor, (*facts, value.dtype, tuple(value.shape), value.stride())


def _identity(value: torch.Tensor) -> torch.Tensor:
    return value


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no more than the values in one piece of memory, in any order."""
    return (
        tensor.layout is torch.strided
        and tensor.numel() > 0
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_quantized)
        and (
            tensor.is_contiguous()
            or sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            == tensor.numel()
        )
    )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a plain tensor, as they are in memory."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _bytes_of(storage: Any) -> Array:
    """Return the bytes of a storage of torch."""
    values: Array = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return values


def _tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...], steps: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor over these bytes, without a copy."""
    return torch.frombuffer(data, dtype=dtype).as_strided(shape, steps)


def _open_tensor(
    id: BlockId,
    mark: int,
    storage: Any,
    sender: int,
    start: int,
    size: int,
    dropped: list[BlockId],
    dtype: torch.dtype,
    shape: tuple[int, ...],
    steps: tuple[int, ...],
) -> torch.Tensor:
    """Return a tensor in a block; the block is used again when the tensor and all views of it are gone."""
    return _tensor(_received.value.open(id, mark, storage, sender, start, size, dropped), dtype, shape, steps)
