"""Where commands write shards: refused if it is there, whole or not at all, with a bar on a terminal."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from wdspec.base.errors import UsageError, WdspecError
from wdspec.cli.support.json_output import print_json
from wdspec.cli.support.spec_options import form_option, read_bytes
from wdspec.cli.support.tables import counted, size
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.write.shard_writer import ShardWriter, Written, open_writer
from wdspec.write.writer import SampleWriter

OUTPUT = (
    "The shard to write, or with %06d for the number the shards; `-` is standard output. The suffix says the "
    "format (.tar, .cbors, .msgpack, .jsonl) and compression (.gz, .bz2, .xz, .zst)."
)
_UNLIMITED = 1 << 62

maxcount_option = click.option(
    "--maxcount", type=click.IntRange(min=1), metavar="N", help="At most N samples in a shard."
)
maxsize_option = click.option(
    "--maxsize", metavar="SIZE", callback=read_bytes, help="At most so many bytes in a shard, such as 1GB."
)


@dataclass(frozen=True)
class Target:
    """What a command was told about where to write, and how to report it."""

    output: str
    force: bool
    form: str

    @contextmanager
    def open(
        self, key: str, maxcount: int | None = None, maxsize: int | None = None
    ) -> Iterator[SampleWriter | ShardWriter]:
        """What writes the shard, or the shards; says what was written when they are whole.

        Left by an exception, it takes back what it has written so far, unless it may have replaced something.

        Args:
            key: where names of members split; for tars only.
            maxcount, maxsize: see `ShardWriter`; only for an output with a `%d`.
        """
        if self.output == "-" and sys.stdout.isatty():
            raise UsageError("a shard on a terminal is of no use; redirect the output, or give a path to -o")
        if maxcount is not None or maxsize is not None:
            check_several(self.output)
        options: dict[str, Any] = {"overwrite": self.force, **({} if key == "first_dot" else {"key": key})}
        writer: SampleWriter | ShardWriter
        with os_errors_reported():
            if "%" in self.output:
                limits = maxcount or _UNLIMITED, maxsize or _UNLIMITED
                writer = ShardWriter(self.output, *limits, verbose=0, **options)
            else:
                writer = open_writer(self.output, **options)
            try:
                with writer:
                    yield writer
            except BaseException:
                if isinstance(writer, ShardWriter) and not self.force:
                    for shard in writer.shards:
                        try:
                            Storage.of(Environment.read()).delete(shard.name)
                        except Exception as error:  # whatever a store raises; the first error is what counts
                            click.echo(f"{shard.name} stays there: {error}", err=True)
                raise
        if isinstance(writer, ShardWriter):
            tell(writer.shards, self.output, self.form)
        else:
            tell([Written(writer.name, writer.count, writer.size)], self.output, self.form)


def next_shard(writer: SampleWriter | ShardWriter) -> None:
    """The next sample begins a shard, where there may be several."""
    if isinstance(writer, ShardWriter):
        writer.next_stream()


def writing(command: Callable[..., Any], default: str | None = None) -> Callable[..., Any]:
    """Gives a command the options `-o`, `--force` and `--format`, and passes them as ``target``."""
    wanted: dict[str, Any] = {"required": True} if default is None else {"default": default}

    @click.option("-o", "--output", metavar="PATH", help=OUTPUT, **wanted)
    @click.option("--force", is_flag=True, help="Replace shards that are there.")
    @form_option
    @functools.wraps(command)
    def with_target(output: str, force: bool, form: str, **others: Any) -> Any:
        return command(target=Target(output, force, form), **others)

    return with_target


@contextmanager
def os_errors_reported() -> Iterator[None]:
    """What the operating system refuses (no space, no permission) becomes an error for users."""
    try:
        yield
    except (WdspecError, BrokenPipeError):
        raise
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else None
        raise WdspecError(f"cannot write: {error.strerror or error}", location=where) from error


def tell(made: list[Written], output: str, form: str) -> None:
    """Says what was written: a line on standard error, or JSON on standard output."""
    samples, total = sum(shard.samples for shard in made), sum(shard.size for shard in made)
    if form == "json" and output != "-":
        shards = [{"name": s.name, "samples": s.samples, "bytes": s.size} for s in made]
        print_json({"samples": samples, "bytes": total, "shards": shards})
        return
    what = counted(len(made), "shard") if output != "-" else "standard output"
    click.echo(f"wrote {counted(samples, 'sample')} ({size(total)}) to {what}", err=True)


def check_several(output: str) -> None:
    """Raises UsageError for an output that is one shard where there may be several."""
    if "%" not in output:
        raise UsageError(f"`{output}` is the name of one shard; put %06d where their numbers belong")
