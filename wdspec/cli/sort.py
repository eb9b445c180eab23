"""`wdspec sort`: sorts samples by key with bounded memory, by merging sorted runs on disk."""

from __future__ import annotations

import heapq
import marshal
import os
import pickle
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from wdspec.base.errors import FieldError
from wdspec.base.progress import with_progress
from wdspec.cli.shard_files import ShardFiles, Target, limit_options, reading, writing
from wdspec.cli.spec_options import read_bytes
from wdspec.formats.compression import format_of
from wdspec.write.writer import size_of

Sample = dict[str, Any]
_MOST_RUNS = 64
"""Runs to merge at a time, as each needs an open file."""
_PREFIX = 8
"""Bytes for the length of each sample in the file of a run."""
_MARSHALED = frozenset({bytes, str, int, float, bool, type(None)})
_NUMBER = re.compile(r"(\d+)")


@click.command()
@reading
@writing
@limit_options
@click.option("--natural", is_flag=True, help="Compare numbers in keys by value: a2 before a10.")
@click.option("--reverse", is_flag=True, help="Sort in descending order.")
@click.option(
    "--memory",
    default="500MB",
    show_default=True,
    metavar="SIZE",
    callback=read_bytes,
    help="Maximum size of the samples to keep in memory; the rest is kept on disk.",
)
def sort(
    files: ShardFiles,
    target: Target,
    maxcount: int | None,
    maxsize: int | None,
    natural: bool,
    reverse: bool,
    memory: int,
) -> None:
    """Sort the samples of SHARDS by key (in the order of code points).

    Files of a sample that are apart in a tar, as in `a.jpg b.jpg a.txt b.txt`, are put together.

    If the samples do not fit into --memory, the command needs space for them in the temporary folder (TMPDIR).

    \b
    wdspec sort 'unsorted-*.tar' -o 'sorted-%06d.tar' --maxcount 10000
    """
    order: Callable[[Sample], Any] = _split_numbers if natural else _read_key
    samples = with_progress(files.samples(yields_parts=True), "reading samples")
    ordered = join_parts(sort_samples(samples, memory or 1, order, reverse), files)
    target.write(ordered, files.key, files=files, maxcount=maxcount, maxsize=maxsize)


def _read_key(sample: Sample) -> str:
    key: str = sample["__key__"]
    return key


def _split_numbers(sample: Sample) -> list[tuple[int, int, str]]:
    """The key in parts, so that numbers sort by value, and before text."""
    parts = _NUMBER.split(sample["__key__"])
    return [(0, int(part), part) if place % 2 else (1, 0, part) for place, part in enumerate(parts)]


def sort_samples(
    samples: Iterable[Sample], memory: int, order: Callable[[Sample], Any], reverse: bool = False
) -> Iterator[Sample]:
    """Sort samples by the values of `order`. The sort is stable.

    Args:
        samples: raw samples: names → bytes (or values of a record).
        memory: bytes of samples to keep in memory; more are written to files in the temporary folder.
        order: sample → sort key.
        reverse: whether the largest comes first.
    """
    with tempfile.TemporaryDirectory(prefix="wdspec-sort-") as folder:
        runs: list[str] = []
        held: list[Sample] = []
        size = 0
        for sample in samples:
            held.append(sample)
            size += 500 + size_of(sample)
            if size > memory:
                held.sort(key=order, reverse=reverse)
                runs.append(_spill(held, folder, len(runs)))
                held, size = [], 0
        held.sort(key=order, reverse=reverse)
        level = 0
        while len(runs) > _MOST_RUNS:
            level += 1
            merged: list[str] = []
            for start in range(0, len(runs), _MOST_RUNS):
                some = map(_read_back, runs[start : start + _MOST_RUNS])
                merged.append(
                    _spill(heapq.merge(*some, key=order, reverse=reverse), folder, len(merged), level)
                )
            runs = merged
        yield from heapq.merge(*map(_read_back, runs), iter(held), key=order, reverse=reverse)


def join_parts(samples: Iterable[Sample], files: ShardFiles) -> Iterator[Sample]:
    """Join consecutive samples with the same key of the same tar, whose files were apart.

    Raises:
        FieldError: both have the same field, so they are different samples.
    """
    before: Sample | None = None
    for sample in samples:
        if before is not None:
            if not _are_parts(before, sample, files.format):
                yield before
            elif repeated := before.keys() & sample.keys() - {"__key__", "__url__"}:
                key, url = sample["__key__"], sample["__url__"]
                if sum(shard.text == url for shard in files.listed()) > 1:
                    raise files.explain_repeat(key)
                raise FieldError(
                    f"the key occurs more than once, and each time with the field `{min(repeated)}`, so these are "
                    "different samples; give them different keys when packing",
                    url=url,
                    key=key,
                )
            else:
                sample = {**before, **sample}
        before = sample
    if before is not None:
        yield before


def _are_parts(first: Sample, second: Sample, format: str) -> bool:
    """Whether two samples may be parts of one: only the files of a tar can be apart."""
    url = first["__url__"]
    is_same = first["__key__"] == second["__key__"] and url == second["__url__"]
    return is_same and format_of(url, format) == "tar"


def _spill(samples: Iterable[Sample], folder: str, number: int, level: int = 0) -> str:
    """Write samples into a file of a private folder, and return its path."""
    path = os.path.join(folder, f"{level}-{number}")
    with open(path, "wb", buffering=1 << 20) as file:
        for sample in samples:
            # The file is private. marshal is three times as fast, but would store arrays as bytes.
            is_plain = all(type(value) in _MARSHALED for value in sample.values())
            try:
                data = marshal.dumps(sample) if is_plain else pickle.dumps(sample, pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # pickle passes on what objects raise
                raise FieldError(
                    "a value cannot be written to the temporary folder; increase --memory",
                    key=sample["__key__"],
                ) from error
            file.write(len(data).to_bytes(_PREFIX, "little"))
            file.write(data)
    return path


def _read_back(path: str) -> Iterator[Sample]:
    """Yield the samples of a file that `_spill` wrote in this process, and delete it at the end."""
    with open(path, "rb", buffering=1 << 20) as file:
        while head := file.read(_PREFIX):
            data = file.read(int.from_bytes(head, "little"))
            yield pickle.loads(data) if data.startswith(pickle.PROTO) else marshal.loads(data)
    os.unlink(path)
