"""`LanceTable`: a fragment of a Lance data set, in parts of some thousand rows.

The store (`stores/lance.py`) has opened the fragment with Lance's library, which reads only the needed columns. Parts
that follow one another are one scan, which reads ahead a little. Deleted rows are not there; rows are numbered without
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, overload
from weakref import WeakSet

from wdspec.base.errors import ShardError, UnusableStoreError, UsageError, WdspecError, find_lack
from wdspec.base.process import PerProcess
from wdspec.base.redaction import redact
from wdspec.formats.blocks import REFETCH
from wdspec.formats.tables import BATCH_BYTES, BATCH_ROWS, Group, TableFile
from wdspec.spec.language.decoders import library

USER = "a Lance data set"
"""What needs the library, for its error."""
_AHEAD = 16 * 1024 * 1024
"""Bytes that a scan reads ahead at most."""
_IN_LIBRARY = re.compile(r",? ?\S*/rust/\S+\.rs:\d+:\d+")
"""Places in the code of the library, which its messages end with."""
_NUMBER = re.compile(r"\(os error (\d{1,4})\)")
"""The number of an error of the operating system in its messages."""


_process: int | None = None
"""The process that has used the library, this one or one that it was forked from."""
_inherited: list[Any] = []


def keep_after_fork(parents: Any) -> None:
    """In a forked child, keep the parent's objects of the library: freeing them there corrupts the memory."""
    _inherited.append(parents)


_tables: PerProcess[WeakSet[LanceTable]] = PerProcess(WeakSet, lambda tables: keep_after_fork([*tables]))
"""The open fragments of this process."""


class LanceTable:
    """An open fragment. See `Table`. The place of a row in states and errors is its number.

    Args:
        file: has the fragment as `fragment` of its file.
        fetch_ahead: not used.

    Raises:
        ValueError: the file is no fragment.
        ShardError: it is damaged.
    """

    group_name = "part"

    def __init__(self, file: TableFile, fetch_ahead: Callable[[BinaryIO], BinaryIO] | None = None) -> None:
        self._file = file
        self._fragment: Any = getattr(file.file, "fragment", None)
        if self._fragment is None:
            raise ValueError("a Lance data set is a folder with the suffix `.lance`, and this is a file")
        self._explain: Callable[[str], ShardError | None] = getattr(file.file, "explain", lambda text: None)
        try:
            with reporting():
                self.schema = self._fragment.schema
                self.size = self._fragment.count_rows()
                bytes_of_row = size_of(self._fragment.metadata) / max(1, self._fragment.physical_rows)
        except WdspecError:
            raise
        except ValueError as error:
            raise ShardError(f"a damaged fragment: {error}; {REFETCH}", code="D121") from error
        step = max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1.0, bytes_of_row))))
        self.groups: Sequence[Group] = _Parts(range(0, self.size, step), self.size)
        self._scan: Iterator[Any] = iter(())
        self._next: tuple[int, Sequence[str]] | None = None
        _tables.value.add(self)

    def batches(self, number: int, paths: Sequence[str]) -> Iterator[Any]:
        group = self.groups[number]
        if self._next != (number, paths):
            self._scan = self._start(group.first, paths)
        self._next = None  # an error ends the scan
        with self._reporting():
            batch = next(self._scan, None)
        if batch is not None:
            batch.validate(full=True)
            self._file.note(batch.nbytes)
            self._next = number + 1, paths
            yield batch

    def requested(self, paths: Sequence[str]) -> None:
        """It is unknown."""

    def close(self) -> None:
        """End the scan, in the process that has started it."""
        if self in _tables.value:
            self._scan = iter(())

    def _start(self, first: int, paths: Sequence[str]) -> Iterator[Any]:
        """Scan the rest of the fragment in batches that are its parts."""
        names = [path if path in self.schema.names else path.rpartition(".")[0] for path in paths]
        # An error of a scan ends the process if it quotes damaged text that has a NUL
        with self._reporting():
            self._fragment.take([0], columns=names)
        found: Iterator[Any] = self._fragment.scanner(
            columns=names,
            offset=first,
            batch_size=self.groups[0].rows,
            strict_batch_size=True,
            batch_readahead=2,
            io_buffer_size=_AHEAD,
            blob_handling="all_binary",
        ).to_batches()
        return found

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise errors of the store as ours, and ValueError for damage."""
        try:
            with reporting():
                yield
        except GeneratorExit:  # at exit, names of this module may be gone
            raise
        except WdspecError:
            raise
        except ValueError as error:
            if (found := self._explain(str(error))) is not None:
                raise found from None
            raise


class _Parts(Sequence[Group]):
    """The parts of a fragment.

    Args:
        starts: the first row of each.
        end: the number of rows.
    """

    def __init__(self, starts: range, end: int) -> None:
        self._starts, self._end = starts, end

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, at: int) -> Group: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Group]: ...
    def __getitem__(self, at: int | slice) -> Group | Sequence[Group]:
        if isinstance(at, slice):
            return _Parts(self._starts[at], self._end)
        start = self._starts[at]
        return Group(start, start, min(self._starts.step, self._end - start))


def size_of(metadata: Any) -> int:
    """Return the bytes of the files of a fragment, as far as the data set knows them."""
    return sum(file.file_size_bytes or 0 for file in metadata.files)


def explain(error: BaseException) -> str:
    """Return the message of an error of the library, without places in its code and secrets."""
    text = " ".join(_IN_LIBRARY.sub("", str(error)).split())[:300].rstrip(" ,:")
    return redact(text) or type(error).__name__


@contextmanager
def reporting() -> Iterator[None]:
    """Raise ValueError for what the library raises, also for its panics, which are no Exceptions.

    Raises:
        UnusableStoreError: the machine lacks something that the library needs.
        WdspecError: our own errors.
    """
    try:
        yield
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except WdspecError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            number = _NUMBER.search(str(error))
            if (lack := find_lack(error if number is None else OSError(int(number[1]), ""))) is not None:
                raise UnusableStoreError(f"the data set cannot be read ({explain(error)}); {lack}") from None
            raise ValueError(explain(error)) from None
        raise


def open_library() -> Any:
    """Return Lance's library.

    Raises:
        UsageError: it is not installed, or this process was forked from one that has used it.
    """
    global _process
    import warnings

    if _process not in (None, os.getpid()):
        raise UsageError(
            "Lance's library cannot be used in a process that was forked from one that has used it; start processes "
            "with `multiprocessing_context='spawn'`, as wdspec's own loader does"
        )
    lance = library("lance", USER)
    warnings.filterwarnings("ignore", message="lance is not fork-safe")  # the error above says more
    _process = os.getpid()
    return lance
