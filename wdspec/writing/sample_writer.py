"""What all writers of one shard have in common: opening, closing, taking back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from wdspec.errors import FieldError, WdspecError
from wdspec.writing.sink import Sink

Self = TypeVar("Self", bound="SampleWriter")

OF_THE_READER = frozenset({"__key__", "__url__", "__source__", "__local_path__"})
"""Entries that say where a sample was read, and that every reader makes anew."""


class Packed(NamedTuple):
    """A sample as it lies in a shard."""

    key: str
    data: bytes


class SampleWriter:
    """Writes samples into one shard, which appears under its name when it is closed, and not before.

    A context manager: leaving it by an exception takes back what was written.
    """

    end: ClassVar[bytes] = b""
    """What comes after the last sample."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._keys: set[str] = set()
        self.count = 0
        """Samples written."""

    def pack(self, sample: Mapping[str, Any]) -> Packed:
        """The bytes of a sample in the shard; nothing is written yet. Raises FieldError."""
        raise NotImplementedError

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
        self._sink.write(packed.data)
        self._keys.add(packed.key)
        self.count += 1
        return len(packed.data)

    @property
    def size(self) -> int:
        """Bytes that the (uncompressed) shard would have if it were closed now."""
        return self._sink.taken + (len(self.end) if self._sink.open else 0)

    @property
    def name(self) -> str:
        """The path or URL of the shard, as it was given."""
        return self._sink.name

    @property
    def born(self) -> int | None:
        """When writing began, by the clock of the file system; None where that is not known."""
        return self._sink.born

    def check_kept(self) -> None:
        """Raises UsageError for a shard that is complete and that somebody else has replaced since."""
        self._sink.check_kept()

    def close(self) -> None:
        """Ends the shard and makes it appear, complete and durable. Closing again does nothing.

        Raises:
            OSError: it could not be written; nothing appears.
            WdspecError: an earlier write had failed.
        """
        if self._sink.failed:
            raise WdspecError(
                "the shard was lost when a write failed: nothing of it is left", url=self.name or None
            )
        if self._sink.open:
            if self.end:
                self._sink.write(self.end)
            self._sink.commit()
            self._keys = set()  # a ShardWriter keeps its writers to the end, and a million keys take 100 MB

    def abort(self) -> None:
        """Takes back all that was written: nothing appears. Does nothing after `close`."""
        self._sink.abort()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        sink = getattr(self, "_sink", None)
        if sink is not None and sink.open:
            sink.abort()
            if self.count:
                warnings.warn(
                    f"a writer of {sink.name or 'a shard'} was not closed, so what it wrote is lost; "
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
