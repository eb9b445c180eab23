"""`wdspec split`: split shards into shards of another size."""

from __future__ import annotations

from collections.abc import Sequence

import click

from wdspec.base.progress import with_progress
from wdspec.cli import shard_files
from wdspec.write.shard_writer import by_count, check_limits


@click.command()
@shard_files.reading
@shard_files.writing
@click.option(
    "--shards",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write N shards. The input is read twice.",
)
@shard_files.limit_options
@shard_files.fields_options
def split(
    files: shard_files.ShardFiles,
    target: shard_files.Target,
    number: int | None,
    maxcount: int | None,
    maxsize: int | None,
    extensions: str | None,
    decode: bool,
) -> None:
    """Write the samples of SHARDS, in order, to shards of another size (or format).

    \b
    wdspec split big.tar -o 'small-%06d.tar' --maxcount 1000
    wdspec split 'old-{000..999}.tar' -o 'new-%04d.tar' --maxsize 1GB
    """
    check_limits(number, maxcount, maxsize)
    if (number, maxcount, maxsize) == (None, None, None):
        raise click.UsageError(
            "pass --shards, --maxcount or --maxsize, or use `wdspec cat` for a single shard"
        )
    target.check_several()
    counts: Sequence[int] = ()
    if number is not None:
        with shard_files.os_errors_reported():
            total = sum(1 for _ in with_progress(files.samples(lambda suffix: None), "counting samples"))
        counts = by_count(total, shards=number)
    samples = with_progress(files.chosen_samples(extensions, decode), "samples")
    target.write(samples, files.key, files=files, counts=counts, maxcount=maxcount, maxsize=maxsize)
