"""Stages from shards to samples: the strict tar reader, and readers of records.

`tarfile_to_samples` turns shards into samples in one step. `url_opener`, `tar_file_expander` and `group_by_keys` do
the same in three, if you want to put something between them. All of them use a `ShardReader`.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, BinaryIO, TypeVar

from wdspec.base.errors import ShardError, UsageError
from wdspec.cache.shard_cache import path_of_copy
from wdspec.fields.samples import SampleFields
from wdspec.formats.decompress import decompress
from wdspec.formats.records import NOTHING, Record, RecordSamples, RecordSplitter, splitter_of
from wdspec.formats.tar.reader import TarSamples, splitter
from wdspec.read.shard import Piece, SampleReader
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.values import Format
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.urls import ShardUrl
from wdspec.webdataset.gopen import gopen as gopen
from wdspec.webdataset.handlers import ErrorHandler
from wdspec.webdataset.handlers import reraise_exception as reraise_exception
from wdspec.webdataset.stage import Stage, describe_type, item_stage, makes_stages
from wdspec.webdataset.stage import pipelinefilter as pipelinefilter

T = TypeVar("T")
Policy = Callable[[ShardError], None]
"""What a reader calls with an error of the data. Reading continues unless it raises."""


@dataclass(frozen=True)
class ShardReader:
    """How shards are read: with the environment and working directory of the process that created it."""

    storage: Storage
    base: str
    """The absolute directory of relative paths."""
    format: str = "tar"
    """The format of all shards, or ``auto`` to choose it by the name of each."""
    may_be_empty: bool = False
    """Whether shards may be empty."""
    lenient_end: bool = False
    """Whether a problem at the end of a tar causes only a warning."""
    fields: SampleFields = field(default_factory=lambda: SampleFields(names=("raw",), secure=False))

    @classmethod
    def here(
        cls,
        format: str = "tar",
        urls: Sequence[ShardUrl] = (),
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | None = None,
        url_to_name: Callable[[str], str] | None = None,
    ) -> ShardReader:
        """Create a reader for the environment and working directory of this process.

        Args:
            format: of the shards.
            urls: the shards, as far as known, to look for copies under their bare names in the cache.
            cache_dir, cache_size: override `WDS_CACHE` and `WDS_CACHE_SIZE`.
            url_to_name: see `WebDataset`.
        """
        environment = Environment.read()
        if cache_dir is not None:
            environment = replace(environment, cache_dir=os.fspath(cache_dir))
        if cache_size is not None:
            environment = replace(environment, cache_size=cache_size)
        storage = with_surveyed_caches({"": Storage.of(environment)}, {"": urls})[""]
        if storage.cache is not None and url_to_name is not None:
            names = replace(storage.cache.names, user_name=url_to_name)
            storage = replace(storage, cache=replace(storage.cache, names=names))
        return cls(storage, environment.directory, format)

    def copy_of(self, url: str) -> str | None:
        """Return the path of the cached copy of a shard; None if it is not cached."""
        copies = self.storage.resolve(ShardUrl(url, self.base)).copies if self.storage.cache else None
        return None if copies is None else path_of_copy(copies) or copies.path

    def __repr__(self) -> str:
        return f"ShardReader({self.base!r})"

    def open(self, url: str) -> BinaryIO:
        """Open the bytes of a shard."""
        return self.storage.open_watched(ShardUrl(url, self.base))

    def opener(self) -> SampleReader:
        """Return what opens the samples of a shard."""
        return SampleReader(
            "",
            self.storage,
            self.fields,
            KeyRule(),
            lenient_end=self.lenient_end,
            format=self.format,
            may_be_empty=self.may_be_empty,
        )


class DamagedShardError(ShardError, tarfile.ReadError):
    """A shard that cannot be read to its end. `except tarfile.ReadError` catches it, as with webdataset."""


_DAMAGE = {f"D{number}" for number in range(103, 120)}
"""Codes of damage (D103 to D119); before them are shards that are missing or cannot be opened."""


def _explain(error: ShardError, url: str) -> ShardError:
    """Say where, and let `tarfile.ReadError` catch damage."""
    if type(error) is ShardError and error.code in _DAMAGE:
        error.__class__ = DamagedShardError
    error.at(url=url)
    return error


class _Stop(Exception):  # noqa: N818  # not an error: it carries a handler's decision out of the reader
    pass


def read_with_handler(
    url: str, read: Callable[[Policy], Iterable[T]], handler: ErrorHandler
) -> Generator[T, None, bool]:
    """Read one shard, with a handler for its errors.

    Returns:
        Whether to continue with the next shard.
    """

    def decide(error: ShardError) -> None:
        if not handler(_explain(error, url)):
            raise _Stop

    try:
        yield from read(decide)
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except _Stop:
        return False
    except ShardError as error:
        return handler(_explain(error, url))
    return True


def piece_of(entry: Any, base: str = "") -> Piece:
    """Return the part of a shard that an entry of a shard list (a dict or a URL) describes."""
    if isinstance(entry, dict) and isinstance(entry.get("url"), str):
        return Piece(ShardUrl(entry["url"], base), entry.get("stride", 1), entry.get("residue", 0))
    if isinstance(entry, (str, os.PathLike)):
        return Piece(ShardUrl(os.fspath(entry), base))
    raise UsageError(
        f"{describe_type(entry)} is not a shard; pass URLs, or dicts with a `url` as SimpleShardList yields them"
    )


Rename = Callable[[str], str]
Selection = Callable[[str], bool]

_WHOLE_NAME = KeyRule(kind="regex", regex=r"(?s)(.*)()")
"""Makes each member a sample, with its whole name as the key."""
_DEFAULT_KEY = splitter(KeyRule())


@makes_stages
def tarfile_to_samples(
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
    reader: ShardReader | None = None,
    lenient_end: bool = False,
    may_be_empty: bool = False,
) -> Stage:
    """Return a stage from shards to raw samples: dicts of `__key__`, `__url__` and bytes by suffix.

    Samples are complete or not delivered; see `TarSamples` for what is an error. If a handler continues, the faulty
    sample is lost, or the rest of the shard if the next sample cannot be found.

    Args:
        handler: what to do about an error.
        select_files: which members to keep, by name after renaming.
        rename_files: the new name of each member, before it is grouped into samples.
        reader: how shards are opened; by default as the environment of this process says now.
        lenient_end: whether a tar without an end marker, or with too many zeros after it, causes only a warning.
        may_be_empty: whether shards may have no members.
    """
    reader = reader or ShardReader.here()
    reader = replace(
        reader,
        lenient_end=lenient_end or reader.lenient_end,
        may_be_empty=may_be_empty or reader.may_be_empty,
    )
    return read_tars(reader, handler, select_files, rename_files)


@item_stage
def read_tars(
    source: Iterator[Any],
    reader: ShardReader,
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
    empty_check: bool = False,
) -> Iterator[Any]:
    """Read raw samples with a reader.

    With `empty_check`, a pass without samples is an error, unless a handler may have left all of them out.
    """

    def read(entries: Iterator[Any]) -> Iterator[Any]:
        if select_files is None and rename_files is None:
            return _samples(entries, reader, handler)
        opened = url_opener(entries, handler, reader)
        members = tar_file_expander(opened, handler, select_files, rename_files)
        return group_by_keys(members, handler=handler)

    return _require_samples(source, read) if empty_check and handler is reraise_exception else read(source)


def _samples(source: Iterator[Any], reader: ShardReader, handler: ErrorHandler) -> Iterator[Any]:
    opener, base = reader.opener(), reader.base
    with closing(opener.ahead()) as ahead:

        def read(policy: Policy) -> Iterator[Any]:
            with closing(opener(piece, on_error=policy, ahead=ahead)) as shard:
                copy = reader.copy_of(piece.shard.text)
                if copy is None:
                    yield from shard
                else:
                    for sample in shard:
                        sample["__local_path__"] = copy
                        yield sample

        for entry, following in pairwise(chain(source, [None])):
            piece = piece_of(entry, base)
            coming = [] if following is None else [piece_of(following, base).shard]
            ahead.expect(partial(islice, coming))
            if not (yield from read_with_handler(piece.shard.text, read, handler)):
                return


def _require_samples(source: Iterator[Any], read: Callable[[Iterator[Any]], Iterator[Any]]) -> Iterator[Any]:
    """Yield the samples. It is an error if there are none, unless this process reads only pieces of shards."""
    pieces = 0

    def count_pieces() -> Iterator[Any]:
        nonlocal pieces
        for entry in source:
            pieces += piece_of(entry).stride > 1
            yield entry

    empty = True
    for sample in read(count_pieces()):
        empty = False
        yield sample
    if empty and not pieces:
        raise ShardError(
            "the shards contain no samples, or none for this process; look at them with `wdspec head`, or pass "
            "empty_check=False if this is intended"
        )


def url_opener(
    source: Iterable[Any], handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None
) -> Iterator[dict[str, Any]]:
    """Open shards: add a `stream` of bytes to each ``{"url": …}``. It is closed when the next shard is requested."""
    reader = reader or ShardReader.here()
    for entry in source:
        piece = piece_of(entry)
        url = piece.shard.text
        try:
            stream = reader.open(url)
        except ShardError as error:
            if handler(error.at(url=url)):
                continue
            return
        try:
            yield {
                "url": url,
                "stream": stream,
                "stride": piece.stride,
                "residue": piece.residue,
                "may_be_empty": reader.may_be_empty,
                "lenient_end": reader.lenient_end,
            }
        finally:
            stream.close()


def tar_file_expander(
    source: Iterable[dict[str, Any]],
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the members of open shards as dicts of `fname`, `data` and `__url__`, and ``{}`` at the end of a shard."""

    def read(policy: Policy) -> Iterator[dict[str, Any]]:
        members = TarSamples(
            decompress(entry["stream"]),
            field_of=lambda suffix: "data",
            key_rule=_WHOLE_NAME,
            on_error=policy,
            may_be_empty=entry.get("may_be_empty", False),
            lenient_end=entry.get("lenient_end", False),
            constants={"__url__": entry["url"]},
        )
        for member in members:
            name = member["__key__"]
            if rename_files is not None:
                name = rename_files(name)
            if select_files is None or select_files(name):
                part = entry.get("stride", 1), entry.get("residue", 0)
                yield {"fname": name, "data": member["data"], "__url__": entry["url"], "__part__": part}

    for entry in source:
        if not (yield from read_with_handler(entry["url"], read, handler)):
            return
        yield _ShardEnd()


class _ShardEnd(dict[str, Any]):
    """``{}`` at the end of a shard. Code that expects a member finds one without a name, which is ignored."""

    def __missing__(self, name: str) -> Any:
        return {"fname": "", "data": b""}[name]


def group_by_keys(
    source: Iterable[dict[str, Any]],
    keys: Callable[[str], tuple[str, str] | tuple[None, None]] | None = None,
    lcase: bool = True,
    suffixes: Collection[str] | None = None,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[dict[str, Any]]:
    """Group adjacent members with the same key into samples.

    Args:
        source: members, as `tar_file_expander` yields them; a ``{}`` ends a shard.
        keys: name of a member → key and suffix, or (None, None) for one that belongs to no sample; by default, names
            are split at the first dot.
        lcase: whether to make suffixes lower case.
        suffixes: the suffixes to keep; by default all.

    Raises:
        ShardError: a sample has two members of one name, or its key has occurred before other keys. If the handler
            continues, the first member is kept, or the split sample is left out.
    """
    sample: dict[str, Any] | None = None
    seen: set[str] = set()
    index, mine, torn = -1, True, False
    for member in chain(source, [{}]):
        if not member:
            if sample is not None and mine and not torn:
                yield sample
            sample, index, seen = None, -1, set()
            continue
        name = member["fname"]
        key, suffix = (keys or _at_the_first_dot)(name)
        if key is None or suffix is None:
            continue
        url = member.get("__url__")
        if sample is None or sample["__key__"] != key:
            if sample is not None and mine and not torn:
                yield sample
            index += 1
            stride, residue = member.get("__part__", (1, 0))
            mine = index % stride == residue
            sample, torn = {"__key__": key, "__url__": url}, key in seen
            if torn:
                error = ShardError(
                    "the key has occurred before, and other keys since", url=url, key=key, member=name
                )
                if not handler(error):
                    return
            seen.add(key)
        suffix = suffix.lower() if lcase else suffix
        if suffix in sample:
            error = ShardError(f"duplicate member {suffix!r} in one sample", url=url, key=key, member=name)
            if not handler(error):
                return
            continue
        if suffixes is None or suffix in suffixes:
            sample[suffix] = member["data"]


def _at_the_first_dot(name: str) -> tuple[str, str] | tuple[None, None]:
    parts = _DEFAULT_KEY(name.encode("utf-8", "surrogateescape"))
    if parts is None:
        return None, None
    key, suffix = (part.decode("utf-8", "surrogateescape") for part in parts)
    return key, suffix


@makes_stages
def cbors_to_samples(handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None) -> Stage:
    """Return a stage from shards to the values of concatenated CBOR records, of any type.

    `WebDataset("x.cbors")`, by contrast, expects records that are samples, maps of field to value, and adds `__key__`
    and `__url__`.

    Args:
        handler: what to do about a damaged shard. If it continues, the rest of the shard is lost.
        reader: how shards are opened; by default as the environment of this process says now.
    """
    return read_records(reader or ShardReader.here(), "cbor", handler)


@makes_stages
def msgpacks_to_samples(
    handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None
) -> Stage:
    """Like `cbors_to_samples`, for concatenated MessagePack."""
    return read_records(reader or ShardReader.here(), "msgpack", handler)


@makes_stages
def jsonl_to_samples(handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None) -> Stage:
    """Like `cbors_to_samples`, for JSON lines."""
    return read_records(reader or ShardReader.here(), "jsonl", handler)


@item_stage
def read_records(
    source: Iterator[Any], reader: ShardReader, format: Format, handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """Yield the values of the records of shards."""
    split = _box(splitter_of(format))

    def read(policy: Policy) -> Iterator[Any]:
        with closing(reader.open(piece.shard.text)) as raw:
            records = RecordSamples(
                decompress(raw),
                split,
                field_of=str,
                stride=piece.stride,
                residue=piece.residue,
                on_error=policy,
                may_be_empty=reader.may_be_empty,
                constants={"__url__": piece.shard.text},
            )
            for box in records:
                yield box["value"]

    for entry in source:
        piece = piece_of(entry)
        if not (yield from read_with_handler(piece.shard.text, read, handler)):
            return


def _box(split: RecordSplitter) -> RecordSplitter:
    """Wrap each record in a map, as `RecordSamples` accepts only maps."""

    def split_and_box(piece: bytes, is_last: bool) -> Iterator[Record]:
        for record in split(piece, is_last):
            plain = record.value is NOTHING or record.fault
            yield record if plain else record._replace(value={"value": record.value})

    return split_and_box


_BASE_AND_EXTENSIONS = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)


def base_plus_ext(path: str) -> tuple[str, str] | tuple[None, None]:
    """Return key and suffix of a member: its name before and after the first dot; None if there is no dot."""
    match = _BASE_AND_EXTENSIONS.fullmatch(path)
    return (match[1], match[2]) if match else (None, None)


def valid_sample(sample: Any) -> bool:
    """Whether this is a sample: a dict that is not empty and not marked as `__bad__`."""
    return isinstance(sample, dict) and bool(sample) and not sample.get("__bad__", False)


def tarfile_samples(data: Iterable[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
    """Read samples like the stage `tarfile_to_samples`, as a function of the shards."""
    return tarfile_to_samples(*args, **kwargs)(data)


meta_prefix = meta_suffix = "__"
