"""`wdspec sort`: sort samples by key, with bounded memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from wdspec.base.progress import with_progress
from wdspec.cli.shard_files import ShardFiles, Target, limit_options, reading, writing
from wdspec.cli.spec_options import read_bytes
from wdspec.write.sort import sorted_samples

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
    help="Size of the samples held in memory; the rest is kept on disk.",
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
    """Sort the samples of SHARDS by key (by code point).

    Unless all samples fit into --memory, they need space in the temporary folder (TMPDIR).

    \b
    wdspec sort 'unsorted-*.tar' -o 'sorted-%06d.tar' --maxcount 10000
    """
    order: Callable[[dict[str, Any]], Any] = _natural if natural else _plain
    samples = with_progress(files.samples(), "reading samples")
    ordered = sorted_samples(samples, memory or 1, order, reverse)
    target.write(ordered, files.key, maxcount=maxcount, maxsize=maxsize)


def _plain(sample: dict[str, Any]) -> str:
    key: str = sample["__key__"]
    return key


def _natural(sample: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Sort numbers by value, and before text."""
    parts = _NUMBER.split(sample["__key__"])
    return [(0, int(part), part) if place % 2 else (1, 0, part) for place, part in enumerate(parts)]
