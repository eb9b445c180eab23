"""Shards on the command line: `ShardFiles` that a command reads, as raw samples, and the `Target` that it writes.

Raw samples are not decoded, and their fields are named as the files are. Existing outputs are refused, and a shard
appears only when it is complete.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import click

from wdspec.base.errors import FieldError, ShardError, UsageError, WdspecError
from wdspec.base.redaction import redact
from wdspec.cli.output import join_names, pluralize, print_json, size
from wdspec.cli.spec_options import form_option, read_bytes
from wdspec.fields.encode import JSON_VALUES
from wdspec.fields.samples import SampleFields
from wdspec.formats.decompress import decompress
from wdspec.formats.samples import no_field
from wdspec.formats.tar.reader import TarParts, TarSamples
from wdspec.read.shard import Piece, SampleReader
from wdspec.shards.listing import list_texts
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.values import SUFFIXES
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl, UrlSequence
from wdspec.write.shard_writer import ShardWriter, Written, open_writer
from wdspec.write.writer import RepeatedKeyError, SampleWriter

_ORIGIN = frozenset({"__key__", "__url__"})
"""Entries of a raw sample that are not fields."""

key_option = click.option(
    "--key",
    type=click.Choice(["first_dot", "last_dot"]),
    default="first_dot",
    show_default=True,
    help="How file names are split into key and field: at the first or the last dot.",
)


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument SHARDS and the options for reading them; pass ``files``."""

    @click.argument("shards", metavar="SHARDS...", nargs=-1, required=True)
    @click.option(
        "--input-format",
        type=click.Choice(["auto", *SUFFIXES]),
        default="auto",
        show_default=True,
        help="Format of the shards; auto detects it by name.",
    )
    @key_option
    @functools.wraps(command)
    def with_files(shards: tuple[str, ...], input_format: str, key: str, **others: Any) -> Any:
        return command(files=ShardFiles(shards, input_format, key), **others)

    return with_files


def fields_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--extensions` and `--decode`, for `ShardFiles.chosen_samples`."""
    extensions = click.option(
        "--extensions",
        metavar="TEXT",
        help="Keep only these fields, as `extensions` in a spec: 'jpg;png cls'.",
    )
    decode = click.option(
        "--decode",
        is_flag=True,
        help="Decode fields by their extension (except images). Required to write JSON lines.",
    )
    return extensions(decode(command))


@dataclass(frozen=True)
class ShardFiles:
    """Shards and how to read them."""

    texts: Sequence[str]
    """Paths and URLs as in a spec: braces, globs, directories, `@file`s, `a::b`."""
    format: str = "auto"
    key: str = "first_dot"
    storage: Storage = field(default_factory=lambda: Storage.of(Environment.read()))

    def listed(self) -> UrlSequence:
        """The shards, in order. Raises WdspecError if there are none."""
        return list_texts(self.texts, self.storage.environment.directory, self.storage)

    def samples(
        self, fields: Callable[[str], str | None] = str, *, yields_parts: bool = False
    ) -> Iterator[dict[str, Any]]:
        """The raw samples of all shards in order; `fields` as for `TarSamples`; with `yields_parts`, their parts."""
        for shard in self.listed():
            yield from self.samples_of(shard, fields, yields_parts=yields_parts)

    def explain_repeat(self, key: str) -> FieldError:
        """Return the error for a key that occurs twice in an output, with the shards that have it."""
        found = (
            shard.text
            for shard in self.listed()
            for raw in self.samples_of(shard, no_field, yields_parts=True)
            if raw["__key__"] == key
        )
        names = [f"`{redact(text)}`" for text in dict.fromkeys(found)]
        return FieldError(
            f"the key occurs more than once, in {join_names(names)}, and a shard has each key only once; leave out a "
            "shard that is listed twice, or if the samples differ, write each shard anew with other keys: `wdspec "
            "process` with a `map` that sets `__key__`",
            key=key,
        )

    def chosen_samples(self, extensions: str | None, decode: bool) -> Iterator[dict[str, Any]]:
        """The samples of all shards, with the fields and values that the options choose.

        Args:
            extensions: the fields to keep, as in a spec, in the spelling of the files; None keeps all.
            decode: whether to decode fields whose extension has a default decoder.
        """
        from wdspec.fields.extensions import Extensions

        chosen = Extensions([extensions]) if extensions is not None else None
        samples = self.samples(
            lambda suffix: suffix if chosen is None or chosen.field_of(suffix) is not None else None
        )
        if not decode:
            return samples
        fields = SampleFields()
        return (sample for raw in samples if (sample := fields(raw)) is not None)

    def samples_of(
        self, shard: ShardUrl, fields: Callable[[str], str | None] = str, *, yields_parts: bool = False
    ) -> Iterator[dict[str, Any]]:
        """The raw samples of one shard; `fields` as for `TarSamples`; with `yields_parts`, their parts.

        Raises:
            ShardError: it cannot be read, or is damaged.
        """
        key = KeyRule(kind="last_dot" if self.key == "last_dot" else "first_dot")
        of_tars = TarParts if yields_parts else TarSamples
        opener = SampleReader(
            *("", self.storage, SampleFields(), key),
            lenient_end=False,
            may_be_empty=True,
            format=self.format,
            of_tars=of_tars,
        )
        with closing(opener.samples(Piece(shard), fields, _raise, opener.ahead())) as samples:
            yield from samples

    def opened(self, shard: ShardUrl) -> BinaryIO:
        """Open the uncompressed bytes of a shard."""
        raw = self.storage.open_watched(shard)
        try:
            return decompress(raw)
        except BaseException:
            raw.close()
            raise


def _raise(error: ShardError) -> None:
    raise error


def fields_of(sample: dict[str, Any]) -> dict[str, Any]:
    """The fields of a raw sample, without its origin."""
    return {name: value for name, value in sample.items() if name not in _ORIGIN}


OUTPUT = (
    "Shard to write, or shards with %06d for their number; `-` is standard output. The suffix selects the format "
    "(.tar, .cbors, .msgpack, .jsonl, .parquet) and the compression (.gz, .bz2, .xz, .zst)."
)
_UNLIMITED = 1 << 62


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--maxcount` and `--maxsize`."""
    maxcount = click.option(
        "--maxcount", type=click.IntRange(min=1), metavar="N", help="At most N samples in a shard."
    )
    maxsize = click.option(
        "--maxsize", metavar="SIZE", callback=read_bytes, help="At most SIZE bytes in a shard, such as 1GB."
    )
    return maxcount(maxsize(command))


@dataclass(frozen=True)
class Target:
    """Where a command writes shards, and how it reports them."""

    output: str
    force: bool
    form: str

    def check_several(self) -> None:
        """Raise UsageError if the output names a single shard."""
        if "%" not in self.output:
            raise UsageError(
                f"`{self.output}` names a single shard; put %06d in place of the number of a shard"
            )

    def write(
        self,
        samples: Iterable[dict[str, Any]],
        key: str,
        *,
        files: ShardFiles | None = None,
        counts: Iterable[int] = (),
        maxcount: int | None = None,
        maxsize: int | None = None,
    ) -> None:
        """Write samples to the shard or shards, and report what was written.

        After an exception, the shards written so far are deleted, except with `--force`, which may have replaced files.

        Args:
            samples: the samples.
            key: how names of members are split; for tars only.
            files: the shards that the samples are from, to name those with equal keys.
            counts: samples of each shard; if empty, only the limits apply.
            maxcount, maxsize: see `ShardWriter`; only for an output with `%d`.
        """
        if self.output == "-" and sys.stdout.isatty():
            raise UsageError(
                "a shard cannot be written to a terminal; redirect the output, or give a path with -o"
            )
        if maxcount is not None or maxsize is not None:
            self.check_several()
        options: dict[str, Any] = {
            "overwrite": self.force,
            "encoder": JSON_VALUES,
            **({} if key == "first_dot" else {"key": key}),
        }
        writer: SampleWriter | ShardWriter
        with os_errors_reported():
            if "%" in self.output:
                limits = (
                    _UNLIMITED if maxcount is None else maxcount,
                    _UNLIMITED if maxsize is None else maxsize,
                )
                writer = ShardWriter(self.output, *limits, verbose=0, **options)
            else:
                writer = open_writer(self.output, **options)
            try:
                with writer:
                    _write_samples(writer, samples, counts)
            except BaseException as error:
                if isinstance(writer, ShardWriter) and not self.force:
                    _delete_shards(writer.shards)
                if isinstance(error, RepeatedKeyError) and files is not None:
                    raise files.explain_repeat(error.place["key"]) from None
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
        what = pluralize(len(shards), "shard") if self.output != "-" else "standard output"
        click.echo(f"wrote {pluralize(samples, 'sample')} ({size(total)}) to {what}", err=True)


def _write_samples(
    writer: SampleWriter | ShardWriter, samples: Iterable[dict[str, Any]], counts: Iterable[int]
) -> None:
    """Write samples; a new shard begins when the number of samples in `counts` is reached."""
    following = iter(counts)
    left = next(following, -1)
    for sample in samples:
        if left == 0:
            if isinstance(writer, ShardWriter):
                writer.next_stream()
            left = next(following, -1)
        writer.write(sample)
        left -= 1


def _delete_shards(shards: Iterable[Written]) -> None:
    for shard in shards:
        try:
            Storage.of(Environment.read()).delete(shard.name)
        except Exception as error:  # any error of a store; the caller raises the first error
            click.echo(f"{shard.name} cannot be deleted: {error}", err=True)


def writing(command: Callable[..., Any], default: str | None = None) -> Callable[..., Any]:
    """Give a command the options `-o`, `--force` and `--format`; pass ``target``."""
    requirement: dict[str, Any] = {"required": True} if default is None else {"default": default}

    @click.option("-o", "--output", metavar="PATH", help=OUTPUT, **requirement)
    @click.option("--force", is_flag=True, help="Overwrite existing shards.")
    @form_option
    @functools.wraps(command)
    def with_target(output: str, force: bool, form: str, **others: Any) -> Any:
        return command(target=Target(output, force, form), **others)

    return with_target


@contextmanager
def os_errors_reported() -> Iterator[None]:
    """Turn errors of the operating system (no space, no permission) into errors for users."""
    try:
        yield
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except (WdspecError, BrokenPipeError):
        raise
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else None
        raise WdspecError(f"cannot write: {error.strerror or error}", location=where) from error
