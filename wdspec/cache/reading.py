"""Samples read from a copy: if the copy is damaged, the shard is read from its store."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any, BinaryIO, TypeVar

from wdspec.base.errors import ShardError, WdspecError, log_fields
from wdspec.base.process import PerProcess
from wdspec.cache.shard_cache import CopyFile
from wdspec.formats.compression import Compression
from wdspec.formats.decompress import decompress
from wdspec.formats.samples import RawSamples

log = logging.getLogger("wdspec")

_T = TypeVar("_T")

_PIECE = 1024 * 1024
_faithful: PerProcess[set[str]] = PerProcess(set)
"""Copies with the same fault as the object in their store."""


def is_faithful(path: str) -> bool:
    """Whether the store is known to have the same bytes as a copy, including its errors."""
    return path in _faithful.value


def hold_for_faithful(path: str) -> None:
    """Stop comparing faults of this copy with its store."""
    _faithful.value.add(path)


def read_in_its_place(copy: CopyFile | None, error: WdspecError, read: Callable[[], _T]) -> _T:
    """Return what `read` returns, which reads an object from its store after reading a copy has failed.

    The copy is deleted if it is wdspec's. If the store has the same fault, the copy is trusted from then on.

    Args:
        copy: what was read, which may be closed; None if it was no copy.
        error: why that failed. The path of the copy is added to it, and the error of the store if that cannot be read.
        read: reads the object, and raises the same if it has the same fault.

    Raises:
        WdspecError: `error`, unless `read` returns.
    """
    if copy is None or is_faithful(path := str(copy.name)):
        raise error from error.__cause__
    error.at(copy=path)
    log.warning(
        "a copy is damaged, so its object is read from the store again: %s", error, extra=log_fields(error)
    )
    try:
        found = read()
    except (WdspecError, OSError) as cause:
        if isinstance(cause, WdspecError) and cause.message == error.message:
            hold_for_faithful(path)
        else:
            error.at(store=f"cannot be read in its place: {cause}")
        raise error from error.__cause__
    copy.discard()
    return found


class CopySamples(RawSamples):
    """The samples of a shard from its copy; from the first fault of the copy on, from the store.

    The bytes before the fault must be the same in the store. If the store's bytes have no such fault, the copy is
    deleted if it is wdspec's. If they have it, the shard itself is damaged, which is reported as for any shard. Errors
    about a copy name it.

    Args:
        samples_of: the samples of an open shard, as it is stored; takes `offset`, `index`, `on_error` as `RawSamples`.
        copy: the file, not read yet.
        fetch: opens the shard at its store.
        on_error: as for `RawSamples`.
    """

    is_copy = True

    def __init__(
        self,
        samples_of: Callable[..., RawSamples],
        copy: CopyFile,
        raw: BinaryIO,
        fetch: Callable[[], BinaryIO],
        *,
        offset: int,
        index: int,
        on_error: Callable[[ShardError], None],
    ) -> None:
        self._samples_of, self._copy, self._fetch, self._report_to = samples_of, copy, fetch, on_error
        self._path = str(copy.name)
        self._fault: ShardError | None = None
        self._start = {"offset": offset, "index": index}
        self._given = 0
        self.next_offset, self.next_index = offset, index
        self._samples: RawSamples | None = None
        try:
            self._samples = samples_of(raw, **self._start, on_error=self._on_copy_error)
        except ShardError as error:  # its first bytes are damaged
            raw.close()
            if is_faithful(self._path):
                raise
            error.at(copy=self._path)
            self._fault = error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._samples is not None:
            try:
                for sample in self._count(self._samples):
                    self._given += 1
                    yield sample
                return
            except GeneratorExit:  # at exit, the names below may already be None
                raise
            except _DamagedCopyError as damage:
                self._fault = damage.error
                self._samples.close()
        try:
            self._samples = self._reopen()
        except (WdspecError, OSError) as error:
            assert self._fault is not None
            lead = "" if isinstance(error, _OtherBytesError) else "the store cannot be read in its place: "
            self._fault.message += f"; and {lead}{error}"
            self._fault.__cause__ = error  # a login that is refused is no damage
            self.broken = self._fault
            self._report_to(self._fault)
            return
        # From the same start as before, or duplicate keys would not be noticed again.
        for sample in islice(self._count(self._samples), self._given, None):
            self._settle()
            yield sample
        self._settle()

    @property
    def compression(self) -> Compression | None:
        return None if self._samples is None else self._samples.compression

    def kinds(self) -> Mapping[str, str] | None:
        return None if self._samples is None else self._samples.kinds()

    def close(self) -> None:
        if self._samples is not None:
            self._samples.close()
        if not self._copy.closed:
            self._copy.close()

    def _count(self, samples: RawSamples) -> Iterator[dict[str, Any]]:
        for sample in samples:
            if samples.next_index > self.next_index:
                self.next_offset, self.next_index = samples.next_offset, samples.next_index
            yield sample
        self.next_offset, self.next_index = samples.next_offset, samples.next_index
        self.broken = samples.broken

    def _on_copy_error(self, error: ShardError) -> None:
        error.at(copy=self._path)
        if is_faithful(self._path):
            self._report_to(error)
        else:
            raise _DamagedCopyError(error)

    def _on_store_error(self, error: ShardError) -> None:
        if self._fault is not None and error.message == self._fault.message:
            hold_for_faithful(self._path)
            self._fault = None
        self._report_to(error)

    def _settle(self) -> None:
        """Blame the copy: the store's bytes do not have the fault."""
        if self._fault is not None:
            self._fault = None
            self._copy.discard()

    def _reopen(self) -> RawSamples:
        """The same samples from the store; bytes read before are compared."""
        log.warning(
            "a copy is damaged, so its shard is read from the store again: %s",
            self._fault,
            extra=log_fields(self._fault),
        )
        if self.next_offset:
            with (
                closing(decompress(self._fetch())) as there,
                closing(decompress(_file(self._path))) as here,
            ):
                self._compare(there, here, self.next_offset)
        return self._samples_of(self._fetch(), **self._start, on_error=self._on_store_error)

    def _compare(self, there: BinaryIO, here: BinaryIO, size: int) -> None:
        """Compare the bytes read before. Deletes the copy and raises if they differ."""
        at = 0
        rest = [b"", b""]
        while at < size:
            for number, file in enumerate((there, here)):
                if not rest[number]:
                    rest[number] = file.read(min(_PIECE, size - at))
            most = min(map(len, rest))
            if not most or rest[0][:most] != rest[1][:most]:
                self._copy.discard()
                remedy = (
                    "delete the copy, and resume"
                    if os.path.exists(self._path)
                    else "the copy is deleted; resume"
                )
                raise _OtherBytesError(
                    f"within {_PIECE} bytes of byte {at} the store has other bytes than the copy {self._path}, of "
                    f"which samples have been read: the copy is damaged, or the object has changed; {remedy} from a "
                    "saved state"
                )
            rest = [each[most:] for each in rest]
            at += most


class _OtherBytesError(ShardError):
    """The bytes of which samples have been read are not those of the store."""


def _file(path: str) -> BinaryIO:
    return open(path, "rb", buffering=0)


class _DamagedCopyError(Exception):
    def __init__(self, error: ShardError) -> None:
        super().__init__(str(error))
        self.error = error
