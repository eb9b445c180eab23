"""Shards named on the command line, as raw samples: with the spelling that their files have, and not decoded.

Where commands write shards: refused if it is there, whole or not at all, with a bar on a terminal.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import click

from wdspec.base.errors import ShardError, UsageError, WdspecError
from wdspec.cli.report import counted, print_json, size
from wdspec.cli.spec_options import form_option, read_bytes
from wdspec.fields.samples import SampleFields
from wdspec.formats.decompress import decompressed
from wdspec.read.shard import Piece, ShardOpener
from wdspec.shards.listing import list_shards
from wdspec.spec.language.samples import KeyRule
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl, UrlSequence
from wdspec.write.choice import open_writer
from wdspec.write.shard_writer import ShardWriter, Written
from wdspec.write.writer import SampleWriter

ABOUT_RECORDS = frozenset({"__key__", "__url__"})
"""Entries of a raw sample that are no fields."""

key_option = click.option(
    "--key",
    type=click.Choice(["first_dot", "last_dot"]),
    default="first_dot",
    show_default=True,
    help="Where names of files split into key and field.",
)
extensions_option = click.option(
    "--extensions", metavar="TEXT", help="Only these fields, as `extensions` in a spec: 'jpg;png cls'."
)


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the argument SHARDS and the options that say how to read them; passes ``files``."""

    @click.argument("shards", metavar="SHARDS...", nargs=-1, required=True)
    @click.option(
        "--input-format",
        type=click.Choice(["auto", "tar", "cbor", "msgpack", "jsonl"]),
        default="auto",
        show_default=True,
        help="What the shards are; auto goes by their names.",
    )
    @key_option
    @functools.wraps(command)
    def with_files(shards: tuple[str, ...], input_format: str, key: str, **others: Any) -> Any:
        return command(files=ShardFiles(shards, input_format, key), **others)

    return with_files


decode_option = click.option(
    "--decode",
    is_flag=True,
    help="Decode fields by their extension first (not images); JSON lines need that.",
)


@dataclass(frozen=True)
class ShardFiles:
    """Shards and how to open them."""

    texts: Sequence[str]
    """Paths and URLs as in a spec: braces, globs, directories, `@file`s, `a::b`."""
    format: str = "auto"
    key: str = "first_dot"
    storage: Storage = field(default_factory=lambda: Storage.of(Environment.read()))

    def listed(self) -> UrlSequence:
        """The shards, in order. Raises WdspecError where there are none."""
        return list_shards(self.texts, self.storage.environment.directory, self.storage)

    def samples(self, fields: Callable[[str], str | None] = str) -> Iterator[dict[str, Any]]:
        """The raw samples of all shards, one after the other; `fields` as for `TarSamples`."""
        for shard in self.listed():
            yield from self.samples_of(shard, fields)

    def chosen_samples(self, extensions: str | None, decode: bool) -> Iterator[dict[str, Any]]:
        """The samples of all shards as options choose them.

        Args:
            extensions: which fields to keep, as in a spec, in the spelling of the files; None keeps all.
            decode: whether to give values instead of bytes where an extension has a decoder by default.
        """
        from wdspec.fields.extensions import Extensions

        asked = Extensions([extensions]) if extensions is not None else None
        samples = self.samples(
            lambda suffix: suffix if asked is None or asked.field_of(suffix) is not None else None
        )
        if not decode:
            return samples
        fields = SampleFields()
        return (sample for raw in samples if (sample := fields(raw)) is not None)

    def samples_of(
        self, shard: ShardUrl, fields: Callable[[str], str | None] = str
    ) -> Iterator[dict[str, Any]]:
        """The raw samples of one shard.

        Raises:
            ShardError: it cannot be read, or is damaged.
        """
        key = KeyRule(kind="last_dot" if self.key == "last_dot" else "first_dot")
        opener = ShardOpener("", self.storage, SampleFields(), key, lenient_end=False, format=self.format)
        with closing(opener.samples(Piece(shard), fields, _raised, opener.ahead())) as samples:
            yield from samples

    def opened(self, shard: ShardUrl) -> BinaryIO:
        """The uncompressed bytes of a shard."""
        raw = self.storage.watched(shard)
        try:
            return decompressed(raw)
        except BaseException:
            raw.close()
            raise


def _raised(error: ShardError) -> None:
    raise error


def fields_of(sample: dict[str, Any]) -> dict[str, Any]:
    """The fields of a raw sample, without what says where it is from."""
    return {name: value for name, value in sample.items() if name not in ABOUT_RECORDS}


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
