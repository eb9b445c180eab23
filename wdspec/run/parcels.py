"""Parcels: values sent to another process, with small tensors inside the pickle, and large ones in lent memory.

torch creates a file in shared memory and a descriptor for every tensor it sends, which costs both processes together
0.7 ms, whatever the size, and 1.1 to 1.5 ms per megabyte, mostly for new pages. As bytes through a pipe, 16 KB take
0.1 ms and 512 KB 0.7 ms. So smaller tensors are sent as bytes. Each arrives with its own memory: keeping one keeps no
other tensor alive.

Larger tensors are in blocks of a `Ring`, shared memory that the sender uses again. So are the bytes of parcels that are
sent together (a `Bundle`), if a pipe would take them in several pieces: the pickler writes them there. torch sends the
memory once, so it has no name in the file system that could remain; later only the number of the block is sent. Each
tensor that arrives is a lease: when neither it nor a view of it is left, the receiver marks the block, and the sender
may write to it again. A receiver that keeps its tensors gets new blocks, or torch's way if there are too many.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import secrets
import weakref
from collections.abc import Iterable
from itertools import count
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

from wdspec.base.process import PerProcess
from wdspec.fields.deferred import EncodedImages
from wdspec.fields.memory import LARGE, Array, Block, Pool

INLINE = LARGE
"""Size in bytes from which on a tensor is sent in shared memory."""
_PIPE = 1 << 16
"""Bytes that a pipe takes at once."""
_LARGE_PICKLE = 1 << 22
_ROOMS = 1 << 19, 5 << 19
"""Sizes of most bundles: with more sizes, more blocks would be kept to be used again."""
_MARKS = 64
"""Bytes after the memory of a block, one for each lease since it was free."""
_LENT, _RETURNED, _GONE = 0, 1, 2
"""Marks: the receiver uses the block, no longer uses it, or has left it to a forked process for good."""

BlockId = tuple[int, int]
"""A ring, and the number of one of its blocks."""


class Lease(NamedTuple):
    """A part of a block that a receiver may use."""

    block: BlockId
    mark: int
    """Which mark of the block it has."""
    storage: Any
    """The memory of the block, if it was not sent before."""
    sender: int
    """The process that the block belongs to."""
    start: int
    size: int
    dropped: list[BlockId]
    """Blocks that the sender does not use any more."""


class Parcel:
    """A value to send to another process. It is pickled at once, so that an error is raised where the value is made.

    It is opened on request, so that its bytes are still in the processor's cache when they are used. But a parcel with
    shared memory is opened on arrival, since the sender keeps the memory and its descriptors until then.

    Args:
        value: the value.
        bundle: where to write the bytes.
    """

    __slots__ = ("_data", "_opened", "_place", "is_encoded", "size")

    def __init__(self, value: Any, bundle: Bundle | None = None) -> None:
        pickler = _pickler.value
        self._data: bytes | memoryview
        self._data, self._place = pickler.pickle(value, bundle)
        self._opened: tuple[Any] | None = None
        self.size = pickler.size + pickler.shared
        """Size in bytes, including shared memory."""
        self.is_encoded = pickler.is_encoded
        """Whether it has images that the receiver is to decode."""

    def open(self) -> Any:
        """Return the value; call it once, since shared memory is handed over."""
        return pickle.loads(self._data) if self._opened is None else self._opened[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self._data, self._place, self.size, self.is_encoded)

    def take_from(self, memory: memoryview) -> None:
        """Take the bytes from the memory of a bundle, if they are there."""
        if self._place is not None:
            self._data = memory[self._place[0] : self._place[1]]
            self._open_shared(self._place[1] - self._place[0])

    def _open_shared(self, size: int) -> None:
        if self.size > size:
            self._opened, self._data = (pickle.loads(self._data),), b""


def _arrive(data: bytes, place: tuple[int, int] | None, size: int, is_encoded: bool) -> Parcel:
    """Return a parcel as it arrives."""
    parcel = Parcel.__new__(Parcel)
    parcel._data, parcel._place, parcel.size, parcel.is_encoded = data, place, size, is_encoded
    parcel._opened = None
    if place is None:
        parcel._open_shared(len(data))
    return parcel


class Bundle:
    """Memory for the bytes of parcels that are sent together: a block of the ring, which is lent until all are opened.

    A pipe would take them in pieces of 64 KiB, for each of which the receiver wakes up.

    Args:
        size: bytes to have room for. If a pipe takes as many at once, all parcels are sent through it.
    """

    def __init__(self, size: int) -> None:
        step = 1 << max(0, size.bit_length() - 3)
        room = next((room for room in _ROOMS if size <= room), -(-size // step) * step)
        self._memory = ring.value.take(room) if size >= _PIPE else None
        self.room = memoryview(b"") if self._memory is None else self._memory.data
        self.end = 0
        """Bytes that have been written to it."""
        self.size = 0
        """Bytes of all parcels, also of those that had no room."""

    def lend(self) -> Parcel | None:
        """Return a parcel by which the receiver finds the others; None if it needs none."""
        if self._memory is None or not self.end:
            return None
        found = ring.value.find(self._memory.ctypes.data)
        assert found is not None, "it is in a block of the ring"
        lease = found[0].lease(found[1], self.end)
        assert lease is not None, "it is the first one"
        return Parcel(lease)


def unbundle(parcels: Iterable[Parcel], lease: Parcel) -> None:
    """Give parcels that arrived the bytes that are in the memory of their bundle."""
    memory = memoryview(_received.value.open(lease.open())).cast("B")
    for parcel in parcels:
        parcel.take_from(memory)


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

    def lease(self, start: int, size: int) -> Lease | None:
        """Return what the receiver needs to use a part of it; None if there are too many leases."""
        if self._leases == _MARKS:
            return None
        self._leases += 1
        storage, self._is_known = (None if self._is_known else self._storage), True
        dropped = ring.value.report_dropped()
        return Lease(self.id, self._leases - 1, storage, os.getpid(), start, size, dropped)


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

    def clear(self) -> None:
        """Keep the blocks when a reader closes: what it has read and not sent yet may be in them."""

    def report_dropped(self) -> list[BlockId]:
        """Return the blocks dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def find(self, address: int) -> tuple[_SharedBlock, int] | None:
        """Return the block that has the memory at an address, and where that is in it; None if it is elsewhere."""
        for block in self.blocks:
            if isinstance(block, _SharedBlock):
                start = address - block.start
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

    def open(self, lease: Lease) -> Any:
        """Return a part of a block as an object with a buffer, which returns the lease when it is gone."""
        id, mark, storage, sender, start, size, dropped = lease
        for other in dropped:
            self.blocks.pop(other, None)
        if storage is not None:
            self.blocks[id] = _bytes_of(storage)
            self.senders[id[0]] = sender
        memory: Any = self.blocks[id]
        owner = (ctypes.c_ubyte * size).from_buffer(memory, start)
        number = next(self._count)
        at = memory.size - _MARKS + mark
        self.leases[number] = id, memory[at : at + 1]
        weakref.finalize(owner, self._return, number).atexit = False
        return owner

    def _return(self, lease: int) -> None:
        # Otherwise it was given up, or belongs to the process that forked this one.
        if self is _received.value and (lent := self.leases.pop(lease, None)) is not None:
            lent[1][0] = _RETURNED

    def leave_to_child(self) -> None:
        """Give up the blocks in use, before a fork: the child may keep their tensors for as long as it runs."""
        for lease in list(self.leases):
            if (lent := self.leases.pop(lease, None)) is not None:  # it may be returned meanwhile
                lent[1][0] = _GONE
                self.blocks.pop(lent[0], None)

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
    """Pickles for another process as torch does, but small plain tensors by value, and large ones in blocks.

    It is its own file. A process has one, since making it takes as long as pickling a small batch.
    """

    def __init__(self) -> None:
        super().__init__(self, pickle.HIGHEST_PROTOCOL)
        self._bundle: Bundle | None = None
        self._pieces: list[bytes] = []
        self.size = self.shared = 0
        """Bytes that were pickled, and of tensors in shared memory."""
        self._blocks: list[_SharedBlock] = []
        """The blocks that were lent."""
        self.is_encoded = False
        """Whether there are images to decode."""

    def pickle(self, value: Any, bundle: Bundle | None) -> tuple[bytes, tuple[int, int] | None]:
        """Return the bytes; or where they are in the bundle, if it has room."""
        self.size, self.shared, self.is_encoded = 0, 0, False
        self._bundle, self._start = bundle, 0 if bundle is None else bundle.end
        self._pieces, self._blocks = [], []
        try:
            self.dump(value)
        except BaseException:
            self._leave_bundle()
            for block in self._blocks:  # nobody receives these leases
                block.give_up()
            raise
        finally:
            pieces, room = self._pieces, self._bundle
            self._pieces, self._blocks, self._bundle = [], [], None
            self.clear_memo()
        if bundle is not None:
            bundle.size += self.size
        if self.size > _LARGE_PICKLE:  # its table of objects has grown, and clearing it takes time
            _pickler.value = _Pickler()
        if room is not None:
            return b"", (self._start, room.end)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), None

    def write(self, data: Any) -> None:
        """Take a piece of the bytes."""
        data = data if type(data) is bytes else pickle.PickleBuffer(data).raw()
        size, bundle = len(data), self._bundle
        self.size += size
        if bundle is not None:
            end = bundle.end + size
            if end <= len(bundle.room):
                bundle.room[bundle.end : end] = data
                bundle.end = end
                return
            self._leave_bundle()
        self._pieces.append(bytes(data))

    def _leave_bundle(self) -> None:
        """Take back what was written to the bundle."""
        if self._bundle is not None:
            if self._bundle.end > self._start:
                self._pieces.append(bytes(self._bundle.room[self._start : self._bundle.end]))
            self._bundle.end, self._bundle = self._start, None

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            self.is_encoded |= isinstance(value, EncodedImages)
            return NotImplemented
        if type(value) is torch.Tensor and (value.is_conj() or value.is_neg()):
            # torch would send the memory without the flag that it holds the conjugate or negative.
            return _identity, (value.resolve_conj().resolve_neg(),)
        if type(value) is not torch.Tensor or not is_plain(value):
            self.shared += value.numel() * value.element_size()
            return NotImplemented
        if value.nbytes < INLINE:
            data: Any = flat_bytes(value).numpy()
            return open_flat, (pickle.PickleBuffer(data), value.dtype, tuple(value.shape), value.stride())
        self.shared += value.nbytes
        return self._lend(value) or NotImplemented

    def _lend(self, value: torch.Tensor) -> tuple[Any, ...] | None:
        """Return how to open a tensor in a block, where it is copied unless it is there; None if no block is left."""
        found, copy = ring.value.find(value.data_ptr()), None
        if found is None:
            copy = ring.value.take(value.nbytes)
            if copy is None:
                return None
            torch.from_numpy(copy).copy_(flat_bytes(value))
            found = ring.value.find(copy.ctypes.data)
            assert found is not None, "it is in a block of the ring"
        block, start = found
        lease = block.lease(start, value.nbytes)
        if lease is None:
            return None
        self._blocks.append(block)
        return _open_tensor, (lease, value.dtype, tuple(value.shape), value.stride())


_pickler: PerProcess[_Pickler] = PerProcess(_Pickler)


def _identity(value: torch.Tensor) -> torch.Tensor:
    return value


def is_plain(tensor: torch.Tensor) -> bool:
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


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a plain tensor, as they are in memory."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _bytes_of(storage: Any) -> Array:
    """Return the bytes of a storage of torch."""
    values: Array = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return values


def open_flat(data: Any, dtype: torch.dtype, shape: tuple[int, ...], steps: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor over these bytes, without a copy."""
    return torch.frombuffer(data, dtype=dtype).as_strided(shape, steps)


def _open_tensor(
    lease: Lease, dtype: torch.dtype, shape: tuple[int, ...], steps: tuple[int, ...]
) -> torch.Tensor:
    """Return a tensor in a block; the block is used again when the tensor and all views of it are gone."""
    return open_flat(_received.value.open(lease), dtype, shape, steps)
