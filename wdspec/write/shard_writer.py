"""`ShardWriter`: writing samples into numbered shards of limited size.

`open_writer` chooses the writer of one shard, by format or name; `by_count` and `by_size` compute how many samples each
shard gets so that all are about equally large.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, BinaryIO, NamedTuple

from wdspec.base.errors import UsageError
from wdspec.formats.compression import compression_of, format_of
from wdspec.spec.language.values import SUFFIXES
from wdspec.stores.outputs import OpenedOutput, is_output
from wdspec.write.record_writer import RecordWriter
from wdspec.write.tar_writer import TarWriter
from wdspec.write.writer import SampleWriter, Target


def open_writer(target: Target, *, name: str = "", **options: Any) -> SampleWriter:
    """Open the writer for a shard. On failure, an `Output` given as the target is aborted.

    Args:
        target: a path, a URL, a file or an `Output`.
        name: of the shard, if the target has none.
        options: of `TarWriter`, `RecordWriter` or `ParquetWriter`. ``format`` is ``tar``, ``cbor``, ``msgpack``,
            ``jsonl``, ``parquet``, or one of tar's dialects; without it the name decides.

    Raises:
        UsageError: this kind of shard does not have an option; and what the writers raise.
    """
    try:
        return _create_writer(target, name, options)
    except BaseException:
        if is_output(target):
            target.abort()
        raise


def _create_writer(target: Target, name: str, options: dict[str, Any]) -> SampleWriter:
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
        if format == "arrow":
            raise UsageError("wdspec reads Arrow files, but writes Parquet; name the shard `.parquet`")
        return RecordWriter(target, format, **options)
    except TypeError as error:
        raise UsageError(f"a writer of {format} does not accept these options: {error}") from error


class Written(NamedTuple):
    """A complete shard."""

    name: str
    samples: int
    size: int
    """Bytes, before compression."""


class ShardWriter:
    """Writes samples into shards `pattern % 0`, `pattern % 1`, …; each one appears when it is complete.

    The first sample of a shard opens it, so no shard is empty. Several processes can write at once, each with its own
    pattern; two writers of one name are an error.

    Args:
        pattern: a path or URL with one ``%d`` (``%06d``) for the number of the shard. The suffix sets the format:
            ``.parquet``, or tar, ``.cbors``, ``.msgpack``, ``.jsonl``, each also compressed (``.tar.gz``,
            ``.jsonl.zst``).
        maxcount: the limit of samples in a shard.
        maxsize: the limit of bytes in a shard, before compression. A larger sample gets its own shard.
        post: called with the name of each complete shard.
        start_shard: number of the first shard.
        verbose: whether to report each shard on standard error.
        opener: name of a shard → binary file to write it to. The file is closed when the shard is complete; if it is
            to be discarded, its method ``discard()`` or ``abort()`` is called instead, if there is one.
        writer: further arguments of `TarWriter` (or `RecordWriter`): ``encoder``, ``compress``, ``format``, …

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
        **writer: Any,
    ) -> None:
        if maxcount < 1 or maxsize <= 0:
            raise UsageError(
                f"a shard has at least one sample, which maxcount={maxcount}, maxsize={maxsize} exclude"
            )
        self.pattern = os.fspath(pattern)
        check_pattern(self.pattern)
        self.maxcount = maxcount
        """The limit of samples in a shard."""
        self.maxsize = maxsize
        """The limit of bytes in a shard."""
        self._post = post
        self._verbose = verbose
        self._opener = opener
        self._options = writer
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
        """The name of the current shard. It is opened when its first sample is written."""
        return self.pattern % self._number

    @property
    def shard(self) -> int:
        """The number of the shard after the current one."""
        return self._number + 1

    @property
    def count(self) -> int:
        """The samples in the current shard."""
        return self._writer.count if self._writer else 0

    @property
    def size(self) -> int:
        """The bytes in the current shard, before compression."""
        return self._writer.size if self._writer else 0

    def write(self, sample: Mapping[str, Any]) -> int:
        """Write a sample, into the next shard if the current one is full.

        Returns:
            The size of the sample in the (uncompressed) shard, in bytes.

        Raises:
            FieldError: the sample cannot be written (see `SampleWriter.write`); other samples are not affected.
            UsageError: another writer uses the same name, or has replaced the shard.
            OSError: the bytes cannot be written, and the current shard is lost.
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
        """Finish the current shard, if there is one. The next sample starts another."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not writer.count:  # its first sample could not be written
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
            UsageError: another writer has replaced one of the shards.
        """
        self._closed = True
        self.next_stream()
        complete, self._complete = self._complete, []
        for writer in complete:
            writer.check_kept()

    def abort(self) -> None:
        """Discard the current shard, and keep the complete ones."""
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
        writer = open_writer(name, since=self._started, **self._options)
        if self._started is None:
            self._started = writer.born
        return writer


def check_pattern(pattern: str) -> None:
    """Raise UsageError if a pattern does not give each number its own name."""
    try:
        distinct = pattern % 1 != pattern % 2
    except (TypeError, ValueError):
        distinct = False
    if not distinct:
        raise UsageError(
            f"{pattern!r} is not a pattern for names of shards; write one `%d` or `%06d` for the number (and `%%` for "
            "a percent sign)"
        )


def by_count(samples: int, *, shards: int | None = None, most: int | None = None) -> list[int]:
    """Return the number of samples of each shard, which differ by one at most.

    Args:
        samples: total number of samples.
        shards: number of shards (fewer if there are fewer samples).
        most: the limit of samples in a shard, if `shards` is not given.
    """
    if not samples:
        return []
    number = shards if shards is not None else -(-samples // most) if most else 1
    number = min(number, samples)
    return [(samples * (n + 1)) // number - (samples * n) // number for n in range(number)]


def by_size(sizes: Sequence[int], *, shards: int | None = None, most: float | None = None) -> list[int]:
    """Return the number of samples of each shard, so that shards have about the same size and keep the order.

    Shards end at the sample nearest to their equal share, so with `shards` none differs from it by more than the size
    of a sample. With `most`, the number of shards is raised until all are within the limit.

    Args:
        sizes: bytes of each sample.
        shards: number of shards.
        most: the limit of bytes in a shard, if `shards` is not given. A larger sample gets its own shard.
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
        # Up to the sample nearest to this shard's share of the total.
        while end < last and (totals[end - 1] + totals[end]) / 2 <= share:
            end += 1
        if n == number:
            end = len(sizes)
        counts.append(end - begin)
        begin = end
    return counts


def check_limits(shards: int | None, maxcount: int | None, maxsize: float | None) -> None:
    """Raise UsageError for more than one option for the size of shards."""
    if sum(limit is not None for limit in (shards, maxcount, maxsize)) > 1:
        raise UsageError(
            "use only one of --shards, --maxcount and --maxsize, as each sets the size of shards"
        )
