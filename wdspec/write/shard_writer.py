"""`ShardWriter`: writes samples into numbered shards of limited size.

`open_writer` chooses the writer for one shard, by format or name. `by_count` and `by_size` compute the number of
samples per shard so that all shards are about the same size.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, BinaryIO, NamedTuple

from wdspec.base.amounts import pluralize
from wdspec.base.errors import UsageError, WdspecError
from wdspec.formats.compression import compression_of, format_of
from wdspec.spec.language.values import SUFFIXES
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import OpenedOutput, Output, is_output
from wdspec.write.record_writer import RecordWriter
from wdspec.write.tar_writer import TarWriter
from wdspec.write.writer import SampleWriter, Target

_OF_FIELDS = ("encoder", "keep_meta", "allow_pickle")
"""Options about the encoding of fields, which token ids do not need."""


def open_writer(
    target: Target, *, name: str = "", open_output: Callable[[str], Output] | None = None, **options: Any
) -> SampleWriter:
    """Open the writer for a shard. If that fails and the target is an `Output`, the output is aborted.

    Args:
        target: a path, a URL, a file or an `Output`.
        name: the name of the shard, if the target has none.
        open_output: see `TokenWriter`.
        options: arguments of `TarWriter`, `RecordWriter` or `ParquetWriter`. ``format`` is ``tar``, ``cbor``,
            ``msgpack``, ``jsonl``, ``parquet``, or a tar dialect. By default, the name determines the format.

    Raises:
        UsageError: the writer does not have one of the options; see also the errors of the writers.
    """
    try:
        return _create_writer(target, name, open_output, options)
    except BaseException:
        if is_output(target):
            target.abort()
        raise


def _create_writer(
    target: Target, name: str, open_output: Callable[[str], Output] | None, options: dict[str, Any]
) -> SampleWriter:
    name = name or (os.fspath(target) if isinstance(target, (str, os.PathLike)) else "")
    requested = options.get("format")
    if requested in SUFFIXES:
        del options["format"]
        format = requested
    else:
        format = format_of(name) if requested is None else "tar"
    if options.get("compress") is None:
        compression = compression_of(name)
        options["compress"] = compression.name if compression else False
    try:
        if format == "tar":
            return TarWriter(target, **options)
        options.pop("format", None)
        if format == "parquet":
            from wdspec.write.parquet_writer import ParquetWriter  # numpy is needed only here

            return ParquetWriter(target, **options)
        if format == "tokens":
            from wdspec.write.token_writer import TokenWriter

            plain = {key: value for key, value in options.items() if key not in _OF_FIELDS}
            return TokenWriter(target, name, open_output=open_output, **plain)
        check_writable(format)
        return RecordWriter(target, format, **options)
    except TypeError as error:
        raise UsageError(f"a writer of {format} does not accept these options: {error}") from error


_ONLY_READ = {"arrow": "Arrow files", "mds": "shards of MDS", "lance": "Lance data sets"}


def check_writable(format: str) -> None:
    """Raise UsageError for a format that is only read."""
    if format in _ONLY_READ:
        raise UsageError(f"wdspec reads {_ONLY_READ[format]}, but writes Parquet; name the shard `.parquet`")


class Written(NamedTuple):
    """A complete shard."""

    name: str
    samples: int
    size: int
    """Bytes, before compression."""


class ShardWriter:
    """Writes samples into shards `pattern % 0`, `pattern % 1`, …; each shard appears when it is complete.

    A shard is opened for its first sample, so no shard is empty. Several processes can write at the same time, each
    with its own pattern. Two writers for the same name are an error.

    Args:
        pattern: a path or URL with one ``%d`` (``%06d``) for the number of the shard. The suffix determines the
            format: ``.parquet``, or ``.tar``, ``.cbors``, ``.msgpack`` or ``.jsonl``, optionally compressed, such as
            ``.tar.gz`` or ``.jsonl.zst``. ``.bin`` and ``.npy`` are token files, of samples with one list of ids.
        maxcount: maximum number of samples in a shard.
        maxsize: maximum number of bytes in a shard, before compression. A larger sample gets its own shard.
        post: function that is called with the name of each complete shard.
        start_shard: number of the first shard.
        verbose: whether to report each shard on standard error; 0 for no reports.
        opener: function from the name of a shard to the binary file to write it to. The file is closed when the shard
            is complete. To discard a shard, its method ``discard()`` or ``abort()`` is called instead, if it has one.
        writer: further arguments of `TarWriter`, `RecordWriter` or `ParquetWriter`: ``encoder``, ``compress``,
            ``format``, …

    Raises:
        UsageError: the pattern or another argument is invalid.

    Example:
        >>> import os, tempfile, wdspec
        >>> folder = tempfile.mkdtemp()
        >>> with wdspec.ShardWriter(folder + "/a-%06d.tar", maxcount=4, verbose=0) as writer:
        ...     for n in range(10):
        ...         writer.write({"__key__": f"{n:04d}", "cls": n})
        >>> sorted(os.listdir(folder))
        ['a-000000.tar', 'a-000001.tar', 'a-000002.tar']
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        maxcount: int = 100_000,
        maxsize: float = 3e9,
        post: Callable[[str], Any] | None = None,
        start_shard: int = 0,
        verbose: int = 1,
        opener: Callable[[str], BinaryIO] | None = None,
        overwrite: bool | None = None,
        **writer: Any,
    ) -> None:
        if maxcount < 1 or maxsize <= 0:
            raise UsageError(
                f"maxcount={maxcount} and maxsize={maxsize} leave no room for a sample; choose larger limits"
            )
        self.pattern = os.fspath(pattern)
        check_pattern(self.pattern)
        self.maxcount = maxcount
        """Maximum number of samples in a shard."""
        self.maxsize = maxsize
        """Maximum number of bytes in a shard."""
        self._post = post
        self._verbose = verbose
        self._opener = opener
        self._overwrite = overwrite
        self._options = {"overwrite": overwrite is not False, **writer}
        self._end_of_earlier = 0
        """The number after the last shard of an earlier run."""
        self._writer: SampleWriter | None = None
        self._started: int | None = None
        self._closed = False
        self._complete: list[SampleWriter] = []
        self._number = start_shard
        self.total = 0
        """The number of samples written."""
        self.shards: list[Written] = []
        """The complete shards."""

    @property
    def fname(self) -> str:
        """The name of the current shard, which is opened when its first sample is written."""
        return self.pattern % self._number

    @property
    def shard(self) -> int:
        """The number of the shard that follows the current one."""
        return self._number + 1

    @property
    def count(self) -> int:
        """The number of samples in the current shard."""
        return self._writer.count if self._writer else 0

    @property
    def size(self) -> int:
        """The size of the current shard in bytes, before compression."""
        return self._writer.size if self._writer else 0

    def write(self, sample: Mapping[str, Any]) -> int:
        """Write a sample. If the current shard is full, the sample goes into the next one.

        Returns:
            The size of the sample in the (uncompressed) shard, in bytes.

        Raises:
            FieldError: the sample cannot be written (see `SampleWriter.write`); other samples are not affected.
            UsageError: another writer uses the same name, or has replaced the shard.
            OSError: the bytes cannot be written. The current shard is lost.
        """
        if self._closed:
            raise UsageError("the writer is closed; open a new one", url=self.pattern)
        writer = self._writer
        if writer is not None and writer.count >= self.maxcount:
            self.next_stream()
            writer = None
        if writer is None:
            writer = self._writer = self._open()
        packed = writer.pack(sample)
        if writer.count and writer.size + len(packed.data) > self.maxsize:
            self.next_stream()
            writer = self._writer = self._open()
        size = writer.put(packed)
        self.total += 1
        return size

    def next_stream(self) -> None:
        """Finish the current shard, if one is open. The next sample starts another."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not writer.count:  # the first sample of this shard could not be written
            writer.abort()
            return
        name = writer.name or self.fname
        writer.close()
        self._complete.append(writer)
        self._number += 1
        self.shards.append(Written(name, writer.count, writer.size))
        if self._verbose:
            print(f"wrote {name}: {writer.count:,} samples, {writer.size / 1e6:,.1f} MB", file=sys.stderr)
        if self._post is not None:
            self._post(name)

    finish = next_stream

    def close(self) -> None:
        """Finish the current shard. Closing again does nothing.

        Raises:
            UsageError: another writer has replaced one of the shards, or shards of an earlier run are left.
        """
        self._closed = True
        self.next_stream()
        complete, self._complete = self._complete, []
        for writer in complete:
            writer.check_kept()
        self._remove_earlier()

    def abort(self) -> None:
        """Discard the current shard and keep the complete ones."""
        self._closed = True
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _open(self) -> SampleWriter:
        name = self.fname
        if self._opener is not None:
            return open_writer(OpenedOutput(self._opener(name)), name=name, **self._options)
        if self._started is None:
            self._end_of_earlier = _find_end(self.pattern, self._number)
        writer = open_writer(name, since=self._started, **self._options)
        if self._started is None:
            self._started = writer.born
        return writer

    def _remove_earlier(self) -> None:
        """Delete the shards of a longer earlier run that would stand among the new ones, or raise an error."""
        earlier = range(self._number, self._end_of_earlier)
        if not earlier or not self.shards:
            return
        if not self._overwrite:
            raise UsageError(
                f"this run wrote {self.pattern % (self._number - 1)} as its last shard, but an earlier run has left "
                f"{pluralize(len(earlier), 'shard')} after it, up to {self.pattern % earlier[-1]}; delete them, or "
                "pass overwrite=True to delete them automatically"
            )
        storage = Storage.of(Environment.read())
        for number in earlier:
            storage.delete(self.pattern % number)


def _find_end(pattern: str, start: int) -> int:
    """Return the number after the last of the shards that exist, from a number on without a gap.

    It asks for few names: it doubles the distance until one does not exist, and then halves the interval.
    """
    storage = Storage.of(Environment.read())

    def exists(number: int) -> bool:
        try:
            return storage.is_written(pattern % number)
        except (WdspecError, OSError):  # a command, or a store where one may write but not read
            return False

    step = 1
    while exists(start + step - 1):
        step *= 2
    low, high = start + step // 2, start + step - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if exists(middle) else (low, middle)
    return low


def check_pattern(pattern: str) -> None:
    """Raise UsageError if a pattern does not give each number its own name."""
    try:
        distinct = pattern % 1 != pattern % 2
    except (TypeError, ValueError):
        distinct = False
    if not distinct:
        raise UsageError(
            f"{pattern!r} is not a pattern for the names of shards; write one `%d` or `%06d` for the number (and `%%` "
            "for a percent sign)"
        )


def by_count(samples: int, *, shards: int | None = None, most: int | None = None) -> list[int]:
    """Return the number of samples of each shard. They differ by at most one.

    Args:
        samples: total number of samples.
        shards: number of shards (fewer if there are fewer samples).
        most: maximum number of samples in a shard, if `shards` is not given.
    """
    if not samples:
        return []
    number = shards if shards is not None else -(-samples // most) if most else 1
    number = min(number, samples)
    return [(samples * (n + 1)) // number - (samples * n) // number for n in range(number)]


def by_size(sizes: Sequence[int], *, shards: int | None = None, most: float | None = None) -> list[int]:
    """Return the number of samples of each shard, so that shards are about the same size. Samples keep their order.

    Each shard ends at the sample boundary nearest to an equal division. So with `shards`, no shard differs from an
    equal part by more than the size of one sample. With `most`, the number of shards is increased until all are within
    it.

    Args:
        sizes: the size of each sample in bytes.
        shards: number of shards.
        most: maximum number of bytes in a shard, if `shards` is not given. A larger sample gets its own shard.
    """
    if not sizes:
        return []
    if shards is not None:
        return _cut(sizes, min(shards, len(sizes)))
    if not most:
        return [len(sizes)]
    number = max(1, -int(-sum(sizes) // most))
    while number < len(sizes):
        counts = _cut(sizes, number)
        ends = list(accumulate(counts, initial=0))
        sums = [sum(sizes[a:b]) for a, b in pairwise(ends)]
        over = [total for total, count in zip(sums, counts, strict=True) if total > most and count > 1]
        if not over:
            return counts
        number += max(1, number // 50)
    return [1] * len(sizes)


def _cut(sizes: Sequence[int], number: int) -> list[int]:
    totals = list(accumulate(sizes))
    total = totals[-1]
    counts, begin = [], 0
    for n in range(1, number + 1):
        last = len(sizes) - (number - n)  # leave a sample for each later shard
        end = begin + 1
        share = total * n / number
        # Ends at the sample boundary nearest to this shard's part of the total.
        while end < last and (totals[end - 1] + totals[end]) / 2 <= share:
            end += 1
        if n == number:
            end = len(sizes)
        counts.append(end - begin)
        begin = end
    return counts


def check_limits(shards: int | None, maxcount: int | None, maxsize: float | None) -> None:
    """Raise UsageError if more than one option sets the size of shards, or one of them is 0."""
    if maxsize == 0:
        raise UsageError("--maxsize 0 leaves no room for a sample; choose a larger limit, such as 1GB")
    if sum(limit is not None for limit in (shards, maxcount, maxsize)) > 1:
        raise UsageError(
            "use only one of --shards, --maxcount and --maxsize: each of them sets the size of shards"
        )
