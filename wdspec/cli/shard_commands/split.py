"""`wdspec split`: the samples of some shards in others, of so many samples or bytes."""

from __future__ import annotations

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
    as_bytes,
    check_several,
    force_option,
    output_option,
    report_option,
    system_errors_told,
    tell,
    with_progress,
)


@click.command()
@shards_argument
@output_option
@click.option(
    "--shards", "number", type=click.IntRange(min=1), metavar="N", help="Fill N shards; reads twice."
)
@click.option("--maxcount", type=click.IntRange(min=1), metavar="N", help="At most N samples in a shard.")
@click.option("--maxsize", metavar="SIZE", help="At most so many bytes in a shard, such as 1GB.")
@click.option(
    "--extensions", metavar="TEXT", help="Only these fields, as `extensions` in a spec: 'jpg;png cls'."
)
@decode_option
@format_option
@key_option
@force_option
@report_option
def split(
    shards: tuple[str, ...],
    output: str,
    number: int | None,
    maxcount: int | None,
    maxsize: str | None,
    extensions: str | None,
    decode: bool,
    input_format: str,
    key: str,
    force: bool,
    form: str,
) -> None:
    """Write the samples of SHARDS, in order, into shards of another size (or format).

    \b
    wdspec split big.tar -o 'small-%06d.tar' --maxcount 1000
    wdspec split 'old-{000..999}.tar' -o 'new-%04d.tar' --maxsize 1GB
    """
    from wdspec.writing.shard_sizes import by_count, check_limits

    most = as_bytes(maxsize)
    check_limits(number, maxcount, most)
    if number is None and maxcount is None and most is None:
        raise click.UsageError("give --shards, --maxcount or --maxsize; or use `wdspec cat` for one shard")
    check_several(output)
    files = ShardFiles(shards, input_format, key)
    options: dict[str, Any] = {"key": key} if key != "first_dot" else {}
    with system_errors_told():
        counts: list[int] | None = None
        if number is not None:
            total = sum(1 for _ in with_progress(files.samples(lambda suffix: None), "counting samples"))
            counts = by_count(total, shards=number)
        with Outputs(output, force=force, maxcount=maxcount, maxsize=most, **options) as out:
            left = iter(counts or ())
            room = next(left, -1)
            for sample in with_progress(decoded(files.samples(wanted(extensions)), decode), "samples"):
                if room == 0:
                    out.next_shard()
                    room = next(left, -1)
                out.write(sample)
                room -= 1
    tell(out.made, output, form)
