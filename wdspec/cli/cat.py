"""`wdspec cat`: concatenate shards."""

from __future__ import annotations

from functools import partial
from itertools import islice

import click

from wdspec.base.progress import with_progress
from wdspec.cli.shard_files import ShardFiles, Target, fields_options, reading, writing


@click.command()
@reading
@partial(writing, default="-")
@fields_options
@click.option("--skip", type=click.IntRange(min=0), default=0, metavar="N", help="Skip the first N samples.")
@click.option("-n", "count", type=click.IntRange(min=0), metavar="N", help="Write at most N samples.")
def cat(
    files: ShardFiles, target: Target, extensions: str | None, skip: int, count: int | None, decode: bool
) -> None:
    """Concatenate the samples of SHARDS into one shard.

    SHARDS are paths or URLs as in a spec, with braces, globs, folders and @files. Damaged shards and repeated keys are
    errors.

    \b
    wdspec cat 'a-{000..003}.tar' -n 10 | tar tf -
    wdspec cat 'a-*.tar' -o all.tar.gz --extensions 'jpg cls'
    """
    end = None if count is None else skip + count
    samples = islice(files.chosen_samples(extensions, decode), skip, end)
    target.write(with_progress(samples, "samples"), files.key, files=files)
