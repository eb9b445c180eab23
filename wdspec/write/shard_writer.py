"""`ShardWriter`: samples into numbered shards of at most so many samples or bytes.

Also which writer one shard gets, by the format asked for or by its name, and how many samples each shard gets so that
all are about as large, by pure arithmetic.
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
    """The writer for a shard. Where there can be none, an `Output` that was to take it is aborted.

    Args:
        target: a path, a URL, a file or an `Output`.
        name: what the shard is called, where the target does not say.
        options: of `TarWriter` or `RecordWriter`; ``format`` may be ``tar``, ``cbor``, ``msgpack`` or ``jsonl``, one of
            tar's dialects, or left out to go by the name.

    Raises:
        UsageError: an option that this kind of shard has not; and as for the writers.
    """
    try:
        return _made(target, name, options)
    except BaseException:
        if is_output(target):
            target.abort()
        raise


def _made(target: Target, name: str, options: dict[str, Any]) -> SampleWriter:
    name = name or (os.fspath(target) if isinstance(target, (str, os.PathLike)) else "")
    asked = options.get("format")
    if asked in SUFFIXES:
        del options["format"]
    format = format_of(name, asked if asked in SUFFIXES else "auto" if asked is None else "tar")
    if options.get("compress") is None:
        compression = compression_of(name)
        options["compress"] = compression.name if compression else False
    try:
        if format == "tar":
            return TarWriter(target, **options)
        options.pop("format", None)
        return RecordWriter(target, format, **options)
    except TypeError as error:
        raise UsageError(f"a writer of {format} cannot be made so: {error}") from error


class Written(NamedTuple):
    """A shard that is complete."""

    name: str
    samples: int
    size: int
    """Bytes, before compression."""


class ShardWriter:
    """Writes samples into shards `pattern % 0`, `pattern % 1`, …; each appears when it is complete.

    A shard is opened by its first sample, so that there are no empty ones, and none at all without samples. Several
    processes may write at once, each with a pattern of its own; two at one name are an error.

    Args:
        pattern: a path or URL with one ``%d`` (``%06d``) for the number of the shard. Its suffix says the format:
            tar, ``.cbors``, ``.msgpack``, ``.jsonl``, each also compressed (``.tar.gz``, ``.jsonl.zst``).
        maxcount: samples in a shard at most.
        maxsize: bytes in a shard at most, before compression; a sample that is larger gets a shard for itself.
        post: called with the name of each shard that is complete.
        start_shard: number of the first shard.
        verbose: whether each shard is reported on standard error.
        opener: name of a shard → binary file to write it to, which is closed when the shard is complete. One that is
            not to be kept is given to its ``discard()`` or ``abort()`` instead, where it has one.
        writer: further arguments of `TarWriter` (or `RecordWriter`): ``encoder``, ``compress``, ``format``, …

    Raises:
        UsageError: the pattern or another argument cannot be.

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
            raise UsageError(f"a shard holds at least one sample: maxcount={maxcount}, maxsize={maxsize}")
        self.pattern = os.fspath(pattern)
        check_pattern(self.pattern)
        self._most = maxcount
        self._room = maxsize
        self._post = post
        self._verbose = verbose
        self._opener = opener
        self._options = writer
        self._writer: SampleWriter | None = None
        self._born: int | None = None
        self._closed = False
        self._complete: list[SampleWriter] = []
        self.shard = start_shard
        """Number of the next shard."""
        self.total = 0
        """Samples written."""
        self.shards: list[Written] = []
        """The shards that are complete."""

    def write(self, sample: Mapping[str, Any]) -> int:
        """Writes a sample, into the next shard if the current one is full.

        Returns:
            The bytes that it takes in the (uncompressed) shard.

        Raises:
            FieldError: the sample cannot be written (see `SampleWriter.write`); those before and after can.
            UsageError: another writer is at the same name, or has written it meanwhile.
            OSError: the bytes cannot be written; the current shard is then lost.
        """
        if self._closed:
            raise UsageError("the writer is closed; open another one", url=self.pattern)
        writer = self._writer
        if writer is not None and writer.count >= self._most:
            self.next_stream()
            writer = None
        if writer is None:
            writer = self._writer = self._open()
        packed = writer.pack(sample)
        if writer.count and writer.size + len(packed.data) > self._room:
            self.next_stream()
            writer = self._writer = self._open()
        size = writer.put(packed)
        self.total += 1
        return size

    def next_stream(self) -> None:
        """Ends the current shard, if there is one; the next sample begins another."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not writer.count:  # its first sample could not be written
            writer.abort()
            return
        name = writer.name or self.pattern % self.shard
        writer.close()
        self._complete.append(writer)
        self.shard += 1
        self.shards.append(Written(name, writer.count, writer.size))
        if self._verbose:
            print(f"wrote {name}: {writer.count:,} samples, {writer.size / 1e6:,.1f} MB", file=sys.stderr)
        if self._post is not None:
            self._post(name)

    finish = next_stream

    def close(self) -> None:
        """Ends the current shard. Closing again does nothing.

        Raises:
            UsageError: another writer has replaced one of the shards meanwhile.
        """
        self._closed = True
        self.next_stream()
        complete, self._complete = self._complete, []
        for writer in complete:
            writer.check_kept()

    def abort(self) -> None:
        """Takes back the current shard; those that are complete stay."""
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
        name = self.pattern % self.shard
        if self._opener is not None:
            return open_writer(OpenedOutput(self._opener(name)), name=name, **self._options)
        writer = open_writer(name, since=self._born, **self._options)
        if self._born is None:
            self._born = writer.born
        return writer


def check_pattern(pattern: str) -> None:
    """Raises UsageError where a pattern does not give each number a name of its own."""
    try:
        distinct = pattern % 1 != pattern % 2
    except (TypeError, ValueError):
        distinct = False
    if not distinct:
        raise UsageError(
            f"{pattern!r} is no pattern for names of shards: it needs one `%d` or `%06d` for the number (and `%%` "
            "for a percent sign)"
        )


def by_count(samples: int, *, shards: int | None = None, most: int | None = None) -> list[int]:
    """The samples of each shard: equal but for one.

    Args:
        samples: in all.
        shards: how many shards to fill (fewer if there are fewer samples).
        most: samples in a shard at most, where `shards` is not given.
    """
    if not samples:
        return []
    number = shards if shards is not None else -(-samples // most) if most else 1
    number = min(number, samples)
    return [(samples * (n + 1)) // number - (samples * n) // number for n in range(number)]


def by_size(sizes: Sequence[int], *, shards: int | None = None, most: float | None = None) -> list[int]:
    """The samples of each shard, so that they have about as many bytes; consecutive samples stay together.

    Args:
        sizes: bytes of each sample.
        shards: how many shards to fill.
        most: bytes in a shard at most, where `shards` is not given; a sample that is larger gets its own.

    A cut is made at the sample boundary nearest to the equal share, so with `shards` none is off by more than a
    sample's size. With `most` the number of shards is raised until all fit.
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
        last = len(sizes) - (number - n)  # each later shard gets a sample too
        end = begin + 1
        share = total * n / number
        # Up to the boundary that is nearest to this shard's share of the total.
        while end < last and (totals[end - 1] + totals[end]) / 2 <= share:
            end += 1
        if n == number:
            end = len(sizes)
        counts.append(end - begin)
        begin = end
    return counts


def check_limits(shards: int | None, maxcount: int | None, maxsize: float | None) -> None:
    """Raises UsageError for more than one of the ways to say how large shards are."""
    if sum(limit is not None for limit in (shards, maxcount, maxsize)) > 1:
        raise UsageError("give one of --shards, --maxcount and --maxsize: each decides how large shards are")
