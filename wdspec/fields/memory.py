"""Memory of batches: blocks that are used again, and rows of a batch that values are written to.

A large batch in new memory costs more than filling it, since the system clears each page. A `Pool` lends blocks: a
block is free again once no array or tensor refers to it any more. `Rows` cuts the blocks of a batch into rows, so that
decoders of images of a fixed size write their results where the batch will be, and collating them copies nothing.
"""

from __future__ import annotations

import ctypes
import operator
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LARGE = 1 << 19
"""Size in bytes from which on memory comes from a pool."""
MOST_BLOCKS = 64
MOST_FREE = 4
"""Free blocks of about one size to keep."""


class Block:
    """Memory that is lent again and again, in one piece."""

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        """The bytes."""
        self._is_lent = False

    def lend(self, size: int) -> Array:
        """Return the first `size` bytes. The block is free again when they and all views of them are gone."""
        # Views of an array refer to its owner, so the owner has to be an object that notices when it is gone.
        memory: Any = self.memory
        owner: Any = (ctypes.c_ubyte * size).from_buffer(memory)
        self._is_lent = True
        weakref.finalize(owner, self._take_back).atexit = False
        lent: Array = np.frombuffer(owner, np.uint8)
        return lent

    def _take_back(self) -> None:
        self._is_lent = False

    @property
    def is_free(self) -> bool:
        """Whether nothing refers to it."""
        return not self._is_lent


class Pool:
    """Blocks of one reader."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array with undefined contents; a large one in a block."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = self.take(size) if size >= LARGE else None
        return np.empty(shape, dtype) if memory is None else memory.view(dtype).reshape(shape)

    def take(self, size: int) -> Array | None:
        """Return this many bytes; None if too many blocks are lent."""
        free = [block for block in self.blocks if block.is_free]
        fitting = [block for block in free if size <= block.memory.size <= 2 * size]
        if not fitting and len(self.blocks) >= MOST_BLOCKS:
            if not free:
                return None
            self.drop(free[0])
        if len(fitting) > MOST_FREE:
            self.drop(fitting.pop())
        block = fitting[0] if fitting else self.make(size)
        return block.lend(size)

    def make(self, size: int) -> Block:
        """Return a new block."""
        self.blocks.append(Block(np.empty(size, np.uint8)))
        return self.blocks[-1]

    def drop(self, block: Block) -> None:
        """Return a block to the system."""
        self.blocks.remove(block)

    def clear(self) -> None:
        """Return all blocks; those in use stay until the last view of them is gone."""
        for block in list(self.blocks):
            self.drop(block)


class Rows:
    """Rows of the batches of one reader, which decoders fill, and the memory of their other columns.

    Args:
        count: the number of samples of a batch; 0 if they are not stacked.
        others: fields that are not stacked.
    """

    is_sent = False
    """Whether a worker process of a loader fills the batches, and sends them."""

    def __init__(self, count: int = 0, others: frozenset[str] = frozenset()) -> None:
        self.pool = Pool()
        self._count, self._others = count, others
        self._batches: dict[tuple[Any, ...], tuple[Array, list[Any]]] = {}
        """The batch that is being filled by field, shape and type, and its rows so far, as they were handed out."""

    def __enter__(self) -> None:
        self._batches.clear()
        current.rows = current.last = self

    def __exit__(self, *exception: object) -> None:
        current.rows = None

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Enter the rows while this thread reads or collates a batch, which then goes on with its own."""
        outer = current.rows, current.last
        try:
            with self:
                yield
        finally:
            current.rows, current.last = outer

    def next(
        self, field: str, shape: tuple[int, ...], dtype: str, wrap: Callable[[Array], Any]
    ) -> tuple[Array, Any] | None:
        """Return an array for the next value of a field, and the value; None if the field is not stacked.

        Args:
            wrap: makes the value of the array, without a copy.
        """
        if not self.stacks(field):
            return None
        key = field, shape, dtype, wrap
        if key not in self._batches or len(self._batches[key][1]) == self._count:
            self._batches[key] = self.pool.empty((self._count, *shape), dtype), []
        memory, rows = self._batches[key]
        row = memory[len(rows)]
        rows.append(wrap(row))
        return row, rows[-1]

    def stacks(self, field: str) -> bool:
        """Whether a field is stacked."""
        return bool(self._count) and field not in self._others

    def take_batch(self, values: list[Any]) -> Array | None:
        """Return the array that these values are the consecutive rows of, once; None if they are not."""
        for memory, rows in self._batches.values():
            first = next((at for at, row in enumerate(rows) if row is values[0]), len(rows))
            end = first + len(values)
            if end <= len(rows) and all(map(operator.is_, rows[first:end], values)):
                rows[first:end] = [None] * len(values)  # stacked again, they are copied
                return memory[first:end]
        return None


class _Current(threading.local):
    rows: Rows | None = None
    """The rows of the batch that this thread is reading."""
    last: Rows | None = None
    """The same, also while it is collated."""

    @contextmanager
    def without_rows(self) -> Iterator[None]:
        """Decode values that are no rows of the batch."""
        rows, self.rows = self.rows, None
        try:
            yield
        finally:
            self.rows = rows


current = _Current()


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array with undefined contents for a column of the batch that this thread collates."""
    return np.empty(shape, dtype) if current.last is None else current.last.pool.empty(shape, dtype)


def take_batch(values: list[Any]) -> Array | None:
    """Return the array that these values are the consecutive rows of, if a decoder wrote them there."""
    return None if current.last is None else current.last.take_batch(values)
