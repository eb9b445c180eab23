"""The base class of the readers of all formats: undecoded samples of one shard, starting with any of them."""

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
        file: at any position if seekable, otherwise at the start. `read(n)` may return less than n bytes.
        field_of: name in the shard → name to store the value under, or None if the value is not needed.
        offset, index: `next_offset` and `next_index` of an earlier reader, to resume from.
        stride, residue: yield only samples with `index % stride == residue`.
        on_error: called with each ShardError. If it raises, reading ends. If it returns, the faulty sample is dropped
            and reading continues with the next one; if that cannot be found, the rest of the shard is lost, as the
            message says. By default errors are raised.
        may_be_empty: whether an empty shard is allowed.
        constants: added to every sample; `__url__` and `__source__` are also added to errors.
        on_read: called with the number of bytes of each piece that is read.
    """

    is_copy = False
    """Whether it reads a complete cached copy of the shard."""
    unjoined = 0
    """Samples of partners (`join`) that the shard lacks, once it was read from start to end."""
    broken: ShardError | None = None
    """The error by which the rest of the shard is lost, if it was reported and not raised."""
    _refusal: BaseException | None = None

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
        self._stride, self._residue = stride, residue
        self._on_error = on_error
        self._may_be_empty = may_be_empty
        self._constants = dict(constants or {})
        self._on_read = on_read
        self.next_offset = offset
        """After each yield: the byte offset of the next sample in the uncompressed shard."""
        self.next_index = index
        """After each yield: the index of the next sample in the shard, independent of the stride."""

    @abstractmethod
    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    @property
    def compression(self) -> Compression | None:
        """The compression of the shard, as recognized by its first bytes."""
        return self._file.compression if isinstance(self._file, DecompressedFile) else None

    def kinds(self) -> Mapping[str, str] | None:
        """Return what the columns that are read are, by name (`Columns.kinds`); None for formats without columns.

        Raises:
            ShardError: this is not a table.
        """
        return None

    def requested(self) -> list[tuple[int, int]] | None:
        """Return the ranges of the file that reading its fields requests of a store; None if that is unknown.

        Raises:
            ShardError: this is a table, and cannot be read.
        """
        return None

    def count_unjoined(self) -> int:
        """Return `unjoined` of the whole shard, even if only its end was read. Its headers may be read for this."""
        return self.unjoined

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _report(self, error: ShardError, **place: Any) -> None:
        """Raise the error, or pass it to `on_error`, which may raise it too."""
        self._add_place(error, **place)
        try:
            if self._on_error is None:
                raise error
            self._on_error(error)
        except BaseException as refusal:
            self._refusal = refusal
            raise

    def _report_end(self, error: ShardError, **place: Any) -> None:
        """Report the error by which the rest of the shard is lost, unless `on_error` has raised it already."""
        if error is self._refusal:
            raise error
        error.message += LOST
        self._report(error, **place)
        self.broken = error

    def _add_place(self, error: ShardError, **place: Any) -> ShardError:
        error.at(source=self._constants.get("__source__"), url=self._constants.get("__url__"), **place)
        return error


def no_field(name: str) -> None:
    """Want no field: the `field_of` for counting samples. Tables do not read the column of keys then."""


def only_key(name: str) -> None:
    """Want no field, but the key of each sample: another `field_of`."""


def tar_error() -> ShardError:
    """Return the error for a tar that is read as another format."""
    message = "the shard is a tar, but is read as another format; name it `*.tar`, or set `format: tar`"
    return ShardError(message, code="D106", offset=0)


def page_error(start: bytes) -> ShardError:
    """Return the error for a page of a server, by its first bytes."""
    kind = "HTML or XML" if start.lstrip()[:1] == b"<" else "JSON"
    reason = "Does the URL lead to the file itself, and does the server need a login?"
    return ShardError(f"not a shard: its first bytes are {kind}. {reason}", code="D106", offset=0)


class Unread:
    """The number of bytes of a member that was not read, in their place."""

    __slots__ = ("_size",)

    def __init__(self, offset: int, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size
