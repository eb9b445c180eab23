"""`wdspec ls`: list the samples or members of shards, or their totals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.redaction import printable
from wdspec.cli.output import Row, Table, join_names, print_json, show, size
from wdspec.cli.shard_files import ShardFiles, fields_of, reading
from wdspec.cli.spec_options import form_option
from wdspec.urls.urls import ShardUrl


@click.command()
@reading
@click.option(
    "--members", is_flag=True, help="List the members of tars: name, size, type, and offset of the data."
)
@click.option("-s", "--summary", is_flag=True, help="Show one line for each shard: samples, bytes, fields.")
@form_option
def ls(files: ShardFiles, members: bool, summary: bool, form: str) -> int:
    """List the samples of SHARDS: keys, fields, sizes.

    Every shard is read to the end. If a shard is damaged, the samples before the damage are listed, and the error is
    printed to standard error. Exit code: 1 if a shard is damaged.
    """
    if members and summary:
        raise click.UsageError("--members and --summary cannot be combined")
    rows: list[dict[str, Any]] = []
    errors: list[str] = []
    for shard in files.listed():
        try:
            if summary:
                rows.append(row := {"url": shard.text, "samples": 0, "bytes": 0, "fields": {}})
                _summarize(files, shard, row)
            else:
                for row in _members(files, shard) if members else _samples(files, shard):
                    rows.append(row)  # one by one, to keep those before an error
        except ShardError as error:
            errors.append(str(error.at(url=shard.text)))
    if form == "json":
        name = "members" if members else "shards" if summary else "samples"
        print_json({name: rows, **({"errors": errors} if errors else {})})
    elif members:
        show(Table(("member", "bytes>", "type", "at byte>", "shard"), [_member_row(row) for row in rows]))
    elif summary:
        show(Table(("shard", "samples>", "bytes>", "fields"), [_summary_row(row) for row in rows]))
    else:
        show(Table(("key", "bytes>", "fields", "shard"), [_sample_row(row) for row in rows]))
    for text in errors:
        click.echo(printable(text), err=True)
    return 1 if errors else 0


def _samples(files: ShardFiles, shard: ShardUrl) -> Iterator[dict[str, Any]]:
    for sample in files.samples_of(shard):
        fields = {name: _bytes(value) for name, value in fields_of(sample).items()}
        yield {
            "key": sample["__key__"],
            "url": sample["__url__"],
            "bytes": sum(fields.values()),
            "fields": fields,
        }


def _summarize(files: ShardFiles, shard: ShardUrl, row: dict[str, Any]) -> None:
    """Counts the samples of a shard in its row."""
    for sample in files.samples_of(shard):
        fields = fields_of(sample)
        row["samples"] += 1
        row["bytes"] += sum(map(_bytes, fields.values()))
        for name in fields:
            row["fields"][name] = row["fields"].get(name, 0) + 1


def _members(files: ShardFiles, shard: ShardUrl) -> Iterator[dict[str, Any]]:
    from wdspec.formats.compression import format_of
    from wdspec.formats.tar.headers import to_text
    from wdspec.formats.tar.members import iter_members

    if format_of(shard.text, files.format) != "tar":
        raise UsageError("only tars have members; omit --members", url=shard.text)
    file = files.opened(shard)
    try:
        for member in iter_members(file, may_be_empty=True):
            yield {
                "name": to_text(member.name),
                "bytes": member.file_size,
                "type": _TYPES.get(member.type, "file" if member.is_file else repr(member.type)),
                "offset": member.data_offset,
                "url": shard.text,
            }
    finally:
        file.close()


_TYPES = {
    b"1": "hard link",
    b"2": "symbolic link",
    b"3": "device",
    b"4": "device",
    b"5": "directory",
    b"6": "fifo",
}


def _bytes(value: Any) -> int:
    """The size of a field; for a value in a record, the size of its text."""
    if isinstance(value, bytes):
        return len(value)
    return len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else repr(value))


def _sample_row(row: dict[str, Any]) -> Row:
    return row["key"], f"{row['bytes']:,}", ", ".join(row["fields"]), row["url"]


def _summary_row(row: dict[str, Any]) -> Row:
    fields = join_names(
        (name if count == row["samples"] else f"{name} ({count:,})" for name, count in row["fields"].items()),
        12,
    )
    return row["url"], f"{row['samples']:,}", f"{size(row['bytes'])}", fields


def _member_row(row: dict[str, Any]) -> Row:
    return row["name"], f"{row['bytes']:,}", row["type"], f"{row['offset']:,}", row["url"]
