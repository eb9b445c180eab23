"""What all writers of one shard have in common: compressing, counting, closing, taking back."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, BinaryIO, ClassVar, NamedTuple, TypeVar

from wdspec.base.errors import FieldError, UsageError, WdspecError
from wdspec.formats.compression import compression_of
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import Output, StreamOutput, is_output

Self = TypeVar("Self", bound="SampleWriter")
Target = str | os.PathLike[str] | BinaryIO | Output
"""A path or URL, an open file, or an output."""

OF_THE_READER = frozenset({"__key__", "__url__", "__source__", "__local_path__"})
"""Entries that say where a sample was read, and that every reader makes anew."""


class Packed(NamedTuple):
    """A sample as it lies in a shard."""

    key: str
    data: bytes


class SampleWriter(ABC):
    """Writes samples into one shard, which appears under its name when it is closed, and not before.

    A context manager: leaving it by an exception takes back what was written.

    Args:
        target: a path or URL, see `Storage.output`; or an open binary file, which is left open.
        compress: see `compression_of`.
        overwrite, since: see `Storage.output`.
    """

    end: ClassVar[bytes] = b""
    """What comes after the last sample."""

    def __init__(
        self, target: Target, compress: bool | str | None, *, overwrite: bool, since: int | None
    ) -> None:
        self.name = os.fspath(target) if isinstance(target, (str, os.PathLike)) else ""
        """The path or URL of the shard, as it was given; empty for a file that was opened elsewhere."""
        compression = compression_of(self.name, compress)
        self._compressor = compression.compressor() if compression else None
        self._output = _output(target, overwrite, since)
        self._open, self._failed = True, False
        self._taken = 0
        self._keys: set[str] = set()
        self.count = 0
        """Samples written."""

    @abstractmethod
    def pack(self, sample: Mapping[str, Any]) -> Packed:
        """The bytes of a sample in the shard; nothing is written yet. Raises FieldError."""

    def write(self, sample: Mapping[str, Any]) -> int:
        """Writes a sample: all of it, or after an error of encoding nothing.

        Returns:
            The bytes that it takes in the (uncompressed) shard.

        Raises:
            FieldError: the sample has no usable key, has one that was written before, or a field that cannot be
                encoded; names key and field.
            OSError: the bytes cannot be written; the shard is then lost.
        """
        return self.put(self.pack(sample))

    def put(self, packed: Packed) -> int:
        """Writes what `pack` has made of a sample; see `write`."""
        if packed.key in self._keys:
            raise FieldError(
                "this shard already has a sample with the same key; give each its own, for instance a number",
                key=packed.key,
            )
        self._write(packed.data)
        self._keys.add(packed.key)
        self.count += 1
        return len(packed.data)

    @property
    def size(self) -> int:
        """Bytes that the (uncompressed) shard would have if it were closed now."""
        return self._taken + (len(self.end) if self._open else 0)

    @property
    def born(self) -> int | None:
        """When writing began, by the clock of the file system; None where that is not known."""
        return getattr(self._output, "born", None)

    def check_kept(self) -> None:
        """Raises UsageError for a shard in a local file that is complete and that somebody else has replaced since."""
        check = getattr(self._output, "check_kept", None)
        if check is not None:
            check()

    def close(self) -> None:
        """Ends the shard and makes it appear, complete and durable. Closing again does nothing.

        Raises:
            OSError: it could not be written; nothing appears.
            WdspecError: an earlier write had failed.
        """
        if self._failed:
            raise WdspecError(
                "the shard was lost when a write failed: nothing of it is left", url=self.name or None
            )
        if not self._open:
            return
        if self.end:
            self._write(self.end)
        try:
            if self._compressor:
                self._output.write(self._compressor.flush())
            self._output.commit()
        except BaseException:
            self.abort()
            raise
        self._open = False
        self._keys = set()  # a ShardWriter keeps its writers to the end, and a million keys take 100 MB

    def abort(self) -> None:
        """Takes back all that was written: nothing appears. Does nothing after `close`."""
        if self._open:
            self._open = False
            self._output.abort()

    def _write(self, data: bytes) -> None:
        """Takes bytes. When that fails all that was written is forgotten, as its end is not known any more."""
        if not self._open:
            raise UsageError("the writer is closed; open another one")
        try:
            packed = self._compressor.compress(data) if self._compressor else data
            if packed:
                self._output.write(packed)
        except BaseException:
            self._failed = True
            self.abort()
            raise
        self._taken += len(data)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.abort()
            if self.count:
                warnings.warn(
                    f"a writer of {self.name or 'a shard'} was not closed, so what it wrote is lost; "
                    "use `with`, or call `close()`",
                    ResourceWarning,
                    stacklevel=2,
                )


def check_fields(sample: Mapping[str, Any]) -> None:
    """Raises FieldError for a name that is no text."""
    for name in sample:
        if not isinstance(name, str):
            raise FieldError(
                f"a field is called {name!r:.60}, which is no str; name it like a file's extension",
                key=sample.get("__key__"),
            )


def _output(target: Any, overwrite: bool, since: int | None) -> Output:
    if isinstance(target, (str, os.PathLike)):
        return Storage.of(Environment.read()).output(os.fspath(target), overwrite=overwrite, since=since)
    if is_output(target):
        return target
    if hasattr(target, "write"):
        return StreamOutput(target)
    raise UsageError(f"a writer needs a path, a URL or a binary file, not {type(target).__name__}")
