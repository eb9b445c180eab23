"""Shards named on the command line: those that a command reads, as raw samples, and those that it writes.

Raw samples have the spelling of their files and are not decoded. An output that is there is refused, and a shard
appears when it is complete.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from wdspec.write.shard_writer import ShardWriter, Written, open_writer
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


def fields_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--extensions` and `--decode`, for `ShardFiles.chosen_samples`."""
    extensions = click.option(
        "--extensions", metavar="TEXT", help="Only these fields, as `extensions` in a spec: 'jpg;png cls'."
    )
    decode = click.option(
        "--decode",
        is_flag=True,
        help="Decode fields by their extension first (not images); JSON lines need that.",
    )
    return extensions(decode(command))


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
        with closing(opener.samples(Piece(shard), fields, _raise, opener.ahead())) as samples:
            yield from samples

    def opened(self, shard: ShardUrl) -> BinaryIO:
        """The uncompressed bytes of a shard."""
        raw = self.storage.watched(shard)
        try:
            return decompressed(raw)
        except BaseException:
            raw.close()
            raise


def _raise(error: ShardError) -> None:
    raise error


def fields_of(sample: dict[str, Any]) -> dict[str, Any]:
    """The fields of a raw sample, without what says where it is from."""
    return {name: value for name, value in sample.items() if name not in ABOUT_RECORDS}


OUTPUT = (
    "The shard to write, or with %06d for the number the shards; `-` is standard output. The suffix says the "
    "format (.tar, .cbors, .msgpack, .jsonl) and compression (.gz, .bz2, .xz, .zst)."
)
_UNLIMITED = 1 << 62


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--maxcount` and `--maxsize`."""
    maxcount = click.option(
        "--maxcount", type=click.IntRange(min=1), metavar="N", help="At most N samples in a shard."
    )
    maxsize = click.option(
        "--maxsize",
        metavar="SIZE",
        callback=read_bytes,
        help="At most so many bytes in a shard, such as 1GB.",
    )
    return maxcount(maxsize(command))


@dataclass(frozen=True)
class Target:
    """Where a command writes, and how it reports that."""

    output: str
    force: bool
    form: str

    def check_several(self) -> None:
        """Raises UsageError for an output that is one shard where there may be several."""
        if "%" not in self.output:
            raise UsageError(f"`{self.output}` is the name of one shard; put %06d where their numbers belong")

    def write(
        self,
        samples: Iterable[dict[str, Any]],
        key: str,
        *,
        counts: Iterable[int] = (),
        maxcount: int | None = None,
        maxsize: int | None = None,
    ) -> None:
        """Write samples into the shard, or the shards, and report what was written.

        Stopped by an exception, it deletes what it has written so far, unless it may have replaced something.

        Args:
            samples: the samples.
            key: where names of members split; for tars only.
            counts: samples of each shard; without them, limits alone decide.
            maxcount, maxsize: see `ShardWriter`; only for an output with a `%d`.
        """
        if self.output == "-" and sys.stdout.isatty():
            raise UsageError("a shard on a terminal is of no use; redirect the output, or give a path to -o")
        if maxcount is not None or maxsize is not None:
            self.check_several()
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
                    following = iter(counts)
                    left = next(following, -1)
                    for sample in samples:
                        if left == 0:
                            if isinstance(writer, ShardWriter):
                                writer.next_stream()
                            left = next(following, -1)
                        writer.write(sample)
                        left -= 1
            except BaseException:
                if isinstance(writer, ShardWriter) and not self.force:
                    for shard in writer.shards:
                        try:
                            Storage.of(Environment.read()).delete(shard.name)
                        except Exception as error:  # whatever a store raises; the first error is what counts
                            click.echo(f"{shard.name} stays there: {error}", err=True)
                raise
        if isinstance(writer, ShardWriter):
            self._report(writer.shards)
        else:
            self._report([Written(writer.name, writer.count, writer.size)])

    def _report(self, shards: list[Written]) -> None:
        """A line on standard error, or JSON on standard output."""
        samples, total = sum(shard.samples for shard in shards), sum(shard.size for shard in shards)
        if self.form == "json" and self.output != "-":
            listed = [{"name": each.name, "samples": each.samples, "bytes": each.size} for each in shards]
            print_json({"samples": samples, "bytes": total, "shards": listed})
            return
        what = counted(len(shards), "shard") if self.output != "-" else "standard output"
        click.echo(f"wrote {counted(samples, 'sample')} ({size(total)}) to {what}", err=True)


def writing(command: Callable[..., Any], default: str | None = None) -> Callable[..., Any]:
    """Give a command the options `-o`, `--force` and `--format`; passes ``target``."""
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
    """Make what the operating system refuses (no space, no permission) an error for users."""
    try:
        yield
    except (WdspecError, BrokenPipeError):
        raise
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else None
        raise WdspecError(f"cannot write: {error.strerror or error}", location=where) from error
