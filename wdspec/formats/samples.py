"""What the readers of all formats have in common: the samples of one shard, undecoded, from any of them on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from wdspec.base.errors import ShardError
from wdspec.formats.compression import Compression
from wdspec.formats.decompress import DecompressedFile

LOST = "; what follows in this shard cannot be read"


class RawSamples(ABC):
    """The samples of one uncompressed shard. Iterating (once) yields dicts: `__key__`, the constants, the fields.

    Args:
        file: positioned anywhere if seekable, else at the start; `read(n)` may return less than n bytes.
        field_of: name in the shard -> name to store the value under, or None when it is unwanted.
        offset, index: `next_offset` and `next_index` of an earlier reader, to go on from there.
        stride, residue: only samples with `index % stride == residue` are delivered.
        on_error: called with each ShardError. If it raises, reading ends so. If it returns, the sample at
            fault is dropped and reading goes on with the next one where that can be found; else the rest of the
            shard is lost, as the error's message says. Without it errors are raised.
        may_be_empty: whether a shard without anything in it is read as such; else it is an error.
        constants: added to every sample; `__url__` and `__source__` among them also go into errors.
        on_read: called with the number of bytes of each piece that is read.
    """

    is_copy = False
    """Whether it is read from a finished copy of the shard."""
    broken: ShardError | None = None
    """What the rest of the shard is lost by, where that was reported and not raised."""

    def __init__(
        self,
        file: BinaryIO,
        *,
        field_of: Callable[[str], str | None] = str.lower,
        offset: int = 0,
        index: int = 0,
        stride: int = 1,
        residue: int = 0,
        on_error: Callable[[ShardError], None] | None = None,
        may_be_empty: bool = False,
        constants: Mapping[str, Any] | None = None,
        on_read: Callable[[int], object] | None = None,
    ) -> None:
        self._file = file
        self._field_of = field_of
        self._stride = stride
        self._residue = residue
        self._on_error = on_error
        self._may_be_empty = may_be_empty
        self._refusal: BaseException | None = None
        self._constants = dict(constants or {})
        self._on_read = on_read
        self.next_offset = offset
        """After each yield: byte offset of the next sample, in the uncompressed shard."""
        self.next_index = index
        """After each yield: index in the shard of the next sample, whichever stride."""

    @abstractmethod
    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    @property
    def compression(self) -> Compression | None:
        """How the shard is compressed, as its first bytes say."""
        return self._file.compression if isinstance(self._file, DecompressedFile) else None

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _report(self, error: ShardError, **place: Any) -> None:
        """Raises the error, or leaves it to the policy, which may raise too."""
        self._placed(error, **place)
        try:
            if self._on_error is None:
                raise error
            self._on_error(error)
        except BaseException as refusal:
            self._refusal = refusal
            raise

    def _report_end(self, error: ShardError, **place: Any) -> None:
        """Reports what the rest of the shard is lost by, unless it is a refusal that was raised already."""
        if error is self._refusal:
            raise error
        error.message += LOST
        self._report(error, **place)
        self.broken = error

    def _placed(self, error: ShardError, **place: Any) -> ShardError:
        error.at(source=self._constants.get("__source__"), url=self._constants.get("__url__"), **place)
        return error


def no_field(name: str) -> None:
    """The `field_of` of those who want no fields, only to count."""


class Unread:
    """In place of the bytes of a file that was skipped: how many they are."""

    __slots__ = ("_size",)

    def __init__(self, offset: int, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size
