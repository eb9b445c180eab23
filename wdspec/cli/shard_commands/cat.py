"""`wdspec cat`: the samples of some shards, one after the other, as one shard."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from wdspec.cli.support.shard_files import (
    ShardFiles,
    decode_option,
    decoded,
    format_option,
    key_option,
    shards_argument,
    wanted,
)
from wdspec.cli.support.shard_outputs import (
    Outputs,
    force_option,
    report_option,
    system_errors_told,
    tell,
    with_progress,
)


@click.command()
@shards_argument
@click.option(
    "-o", "--output", default="-", metavar="PATH", help="The shard to write (default: standard output)."
)
@click.option(
    "--extensions", metavar="TEXT", help="Only these fields, as `extensions` in a spec: 'jpg;png cls'."
)
@click.option(
    "--skip", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N samples."
)
@click.option("-n", "count", type=click.IntRange(min=0), metavar="N", help="At most N samples.")
@decode_option
@format_option
@key_option
@force_option
@report_option
def cat(
    shards: tuple[str, ...],
    output: str,
    extensions: str | None,
    decode: bool,
    skip: int,
    count: int | None,
    input_format: str,
    key: str,
    force: bool,
    form: str,
) -> None:
    """Write the samples of SHARDS, whole and in order, into one shard.

    SHARDS are paths and URLs as in a spec: braces, globs, folders, @files. A damaged shard is an error, and so is a
    key that comes twice.

    \b
    wdspec cat 'a-{000..003}.tar' -n 10 | tar tf -
    wdspec cat 'a-*.tar' -o all.tar.gz --extensions 'jpg cls'
    """
    files = ShardFiles(shards, input_format, key)
    options: dict[str, Any] = {"key": key} if key != "first_dot" else {}
    with system_errors_told(), Outputs(output, force=force, **options) as out:
        samples = decoded(files.samples(wanted(extensions)), decode)
        for sample in with_progress(
            islice(samples, skip, None if count is None else skip + count), "samples"
        ):
            out.write(sample)
    tell(out.made, output, form)
