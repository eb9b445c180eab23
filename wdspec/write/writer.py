"""The base class of all writers that write one shard: it compresses, counts, closes and discards."""

from __future__ import annotations

import atexit
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, BinaryIO, ClassVar, NamedTuple, TypeVar
from weakref import WeakSet

from wdspec.base.errors import FieldError, UsageError, WdspecError, warn_user
from wdspec.base.process import Owner
from wdspec.base.redaction import redact
from wdspec.fields.encode import EncodeSample, FieldEncoder
from wdspec.formats.compression import compression_of
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import Output, StreamOutput, is_output

Self = TypeVar("Self", bound="SampleWriter")
Target = str | os.PathLike[str] | BinaryIO | Output
"""A path or URL, an open file, or an output."""

OF_THE_READER = frozenset({"__key__", "__url__", "__source__", "__local_path__"})
"""Entries that say where a sample was read. Readers always set them."""


class RepeatedKeyError(FieldError):
    """A shard already has a sample with the key."""


class Packed(NamedTuple):
    """A sample as the bytes of a shard."""

    key: str
    data: bytes


class SampleWriter(ABC):
    """Writes samples into one shard, which appears under its name only when it is closed.

    It is a context manager: if an exception leaves the `with` block, the shard is discarded.

    Args:
        target: a path or URL (see `Storage.output`), or an open binary file, which stays open.
        compress: see `compression_of`.
        overwrite, since: see `Storage.output`.
    """

    end: ClassVar[bytes] = b""
    """Bytes that follow the last sample."""

    def __init__(
        self, target: Target, compress: bool | str | None, *, overwrite: bool, since: int | None
    ) -> None:
        self.name = os.fspath(target) if isinstance(target, (str, os.PathLike)) else ""
        """The path or URL of the shard as it was passed; empty for an open file."""
        compression = compression_of(self.name, compress)
        self._compressor = compression.compressor() if compression else None
        self._output = _output(target, overwrite, since)
        self._owner = Owner()
        self._open, self._failed = True, False
        self._taken = 0
        self._keys: set[str] = set()
        self.count = 0
        """The number of samples written."""
        _unclosed.add(self)

    @abstractmethod
    def pack(self, sample: Mapping[str, Any]) -> Packed:
        """Return a sample as the bytes to write, without writing them. Raises FieldError."""

    def write(self, sample: Mapping[str, Any]) -> int:
        """Write a sample: all of it, or nothing if it cannot be encoded.

        Returns:
            The size of the sample in the (uncompressed) shard, in bytes.

        Raises:
            FieldError: the key is invalid or was written before, or a field cannot be encoded. The error names the key
                and the field.
            OSError: the bytes cannot be written. The shard is lost.
        """
        return self.put(self.pack(sample))

    def put(self, packed: Packed) -> int:
        """Write a sample that `pack` has packed; see `write`."""
        if packed.key in self._keys:
            raise RepeatedKeyError(
                "this shard already has a sample with the same key; give each sample its own key, such as a number",
                key=packed.key,
            )
        self._store(packed)
        self._keys.add(packed.key)
        self.count += 1
        return len(packed.data)

    def _store(self, packed: Packed) -> None:
        """Write a sample whose key is new, or keep it until more samples can be written together."""
        self._write(packed.data)

    @property
    def size(self) -> int:
        """The size that the (uncompressed) shard would have if it were closed now, in bytes."""
        return self._taken + (len(self.end) if self._open else 0)

    @property
    def born(self) -> int | None:
        """The time when writing started, by the clock of the file system; None if it is not known."""
        return getattr(self._output, "born", None)

    def check_kept(self) -> None:
        """Raise UsageError if the shard is a local file that another writer has replaced."""
        check = getattr(self._output, "check_kept", None)
        if check is not None:
            check()

    def close(self) -> None:
        """Finish the shard and make it appear, complete and durable. Closing again does nothing.

        Raises:
            OSError: the shard cannot be written, and does not appear.
            WdspecError: an earlier write failed.
        """
        if self._failed:
            raise WdspecError("the shard was discarded when a write failed", url=self.name or None)
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
        self._keys = set()  # a ShardWriter keeps all its writers, and a million keys take 100 MB

    def abort(self) -> None:
        """Discard the shard, so that nothing appears. After `close`, this does nothing."""
        if self._open:
            self._open = False
            self._output.abort()

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("the writer is closed; open a new one")

    def _write(self, data: bytes) -> None:
        """Write bytes. If that fails, discard the shard, because it is not known how much was written."""
        self._check_open()
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
            try:  # noqa: SIM105 - when Python exits, `contextlib` may no longer exist either
                self.report_loss()
            except (AttributeError, TypeError):  # Python exits, and names used here no longer exist
                pass

    @property
    def is_of_parent(self) -> bool:
        """Whether this writer is a copy from a fork: the parent process still writes the shard."""
        return self._owner.is_other

    def report_loss(self) -> None:
        """Discard a shard that was not closed, and warn that its samples are lost."""
        is_open = self._open
        self.abort()
        if is_open and not self.is_of_parent and self.count:
            warn_user(
                f"the writer of {redact(self.name) or 'a shard'} was not closed, so its {self.count:,} samples are "
                "lost; use `with`, or call `close()`"
            )


_unclosed: WeakSet[SampleWriter] = WeakSet()


@atexit.register
def _report_losses() -> None:
    """Warn about open writers before Python exits: their `__del__` may run too late to print, or never."""
    for writer in list(_unclosed):
        if not writer.is_of_parent:
            writer.report_loss()


def key_of(sample: Mapping[str, Any]) -> str:
    """Return the key of a sample. Raises FieldError if the key is missing or is not a str."""
    key = sample.get("__key__")
    if isinstance(key, str) and key:
        return key
    found = "the sample has no `__key__`" if key is None else f"`__key__` is {key!r:.60}"
    found += "" if key is None or isinstance(key, str) else ", which is not a str"
    raise FieldError(f"{found}; give each sample a unique str, such as '000042'", key=key)


def list_values(sample: Mapping[str, Any], keep_meta: bool) -> dict[str, Any]:
    """Return the key and the values to write, sorted by name. Raises FieldError if there is no valid key."""
    values: dict[str, Any] = {"__key__": key_of(sample)}
    for field in sorted(sample):
        if field[:1] != "_" or (keep_meta and field not in OF_THE_READER):
            values[field] = sample[field]
    return values


def to_plain(field: str, value: Any, encode: EncodeSample, key: str) -> Any:
    """Return a value that its format cannot contain as bytes, by the encoder of its field. Without an encoder, arrays
    and tensors of numbers become arrays, and scalars numbers.

    Raises:
        FieldError: it cannot be encoded.
    """
    if not (isinstance(encode, FieldEncoder) and encode.has_encoder(field)):
        if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "numpy"):
            value = value.numpy()
        if getattr(getattr(value, "dtype", None), "kind", None) in tuple("iufb"):
            return value if value.ndim else value.item()
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
    return encode({"__key__": key, field: value})[field]


def size_of(value: Any) -> int:
    """The approximate size of a value in memory, in bytes."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    return sum(map(size_of, value)) if isinstance(value, (list, tuple)) else getattr(value, "nbytes", 8)


def check_fields(sample: Mapping[str, Any]) -> None:
    """Raise FieldError if the name of a field is not a str."""
    for name in sample:
        if not isinstance(name, str):
            raise FieldError(
                f"the name of a field is {name!r:.60}, which is not a str; use a name like a file extension",
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
