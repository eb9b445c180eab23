"""From shards to samples: the strict tar reader as stages.

`tarfile_to_samples` goes from shards to samples at once. `url_opener`, `tar_file_expander` and `group_by_keys` are
the same in three steps, for those who put something between them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from wdspec.cache.copies import find_copy
from wdspec.errors import ShardError, UsageError
from wdspec.fields.sample_fields import SampleFields
from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.stage import Stage, makes_stages, stage
from wdspec.formats.compression.decompressed_file import decompressed
from wdspec.formats.tar.sample_keys import splitter
from wdspec.formats.tar.tar_reader import TarSamples
from wdspec.reading.piece import Piece
from wdspec.reading.shard_opener import ShardOpener
from wdspec.spec.language.sample_options import KeyRule
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.sequence import ShardUrl

Rename = Callable[[str], str]
Selection = Callable[[str], bool]

_WHOLE_NAME = KeyRule(kind="regex", regex=r"(?s)(.*)()")
"""Takes each member for a sample of its own, with its whole name for a key."""
_DEFAULT_KEY = splitter(KeyRule())


@dataclass(frozen=True)
class ShardReader:
    """How URLs become samples: the storage of the environment, as it was in the parent."""

    storage: Storage
    base: str
    """Absolute directory that relative paths start at."""
    format: str = "tar"
    """Of all shards, or ``auto`` to go by the name of each."""
    fields: SampleFields = field(default_factory=lambda: SampleFields(names=("raw",), secure=False))

    @classmethod
    def here(
        cls,
        format: str = "tar",
        urls: Sequence[ShardUrl] = (),
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | None = None,
    ) -> ShardReader:
        """One for the environment and working directory of this process.

        Args:
            format: of the shards.
            urls: the shards, as far as known: copies under their bare names are looked for in the cache.
            cache_dir, cache_size: go before `WDS_CACHE` and `WDS_CACHE_SIZE`.
        """
        environment = Environment.read()
        if cache_dir is not None:
            environment = replace(environment, cache_dir=os.fspath(cache_dir))
        if cache_size is not None:
            environment = replace(environment, cache_size=cache_size)
        storage = with_surveyed_caches({"": Storage.of(environment)}, {"": urls})[""]
        return cls(storage, environment.directory, format)

    def copy_of(self, url: str) -> str | None:
        """The path of the copy of a shard in the cache; None where it is not cached."""
        copies = self.storage.resolve(ShardUrl(url, self.base)).copies if self.storage.cache else None
        if copies is None:
            return None
        found = find_copy(copies)
        if found is None:
            return copies.path
        with found:
            return os.fsdecode(found.name)

    def __repr__(self) -> str:
        return f"ShardReader({self.base!r})"

    def open(self, url: str) -> BinaryIO:
        """The bytes of a shard."""
        return self.storage.open(self.storage.resolve(ShardUrl(url, self.base)))

    def opener(self) -> ShardOpener:
        """Opens whole samples."""
        return ShardOpener("", self.storage, self.fields, KeyRule(), lenient_end=False, format=self.format)


class Stop(Exception):  # noqa: N818  # no error: it carries a handler's "stop" out of the reader
    pass


def policy_of(handler: ErrorHandler, url: str) -> Callable[[ShardError], None]:
    """What the tar reader does about an error: what the handler says."""

    def decide(error: ShardError) -> None:
        if not handler(error.at(url=url) and error):
            raise Stop

    return decide


@makes_stages
def tarfile_to_samples(
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
    reader: ShardReader | None = None,
) -> Stage:
    """A stage from shards to raw samples: dicts of `__key__`, `__url__` and bytes by suffix.

    A sample is whole or it is not delivered; see `TarSamples` for what is an error. A handler that continues loses
    the sample at fault, or the rest of the shard where its next sample cannot be found.

    Args:
        handler: what to do about an error.
        select_files: which members to keep, by name after renaming.
        rename_files: new name of each member, before it is grouped into samples.
        reader: how shards are opened; by default as this process's environment says now.
    """
    return read_tars(reader or ShardReader.here(), handler, select_files, rename_files)


@stage
def read_tars(
    source: Iterator[Any],
    reader: ShardReader,
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
    empty_check: bool = False,
) -> Iterator[Any]:
    """`tarfile_to_samples` with its reader given; `empty_check` makes a pass without samples an error.

    Not so where a handler may have left all of them out."""
    cut: list[Any] = []
    if empty_check:
        source = _noting_pieces(source, cut)
    if select_files is not None or rename_files is not None:
        opened = url_opener(source, handler, reader)
        members = tar_file_expander(opened, handler, select_files, rename_files)
        samples = group_by_keys(members, handler=handler)
    else:
        samples = _samples(source, reader, handler)
    return _checked(samples, cut) if empty_check and handler is reraise_exception else samples


def _samples(source: Iterator[Any], reader: ShardReader, handler: ErrorHandler) -> Iterator[Any]:
    opener, base = reader.opener(), reader.base
    with closing(opener.ahead()) as ahead:
        for entry, following in _and_next(source):
            piece = piece_of(entry, base)
            url = piece.shard.text
            ahead.expect([piece_of(following, base).shard] if following is not None else ())
            try:
                shard = opener(piece, on_error=policy_of(handler, url), ahead=ahead)
                with closing(shard):
                    copy = reader.copy_of(url)
                    if copy is None:
                        yield from shard
                    else:
                        for sample in shard:
                            sample["__local_path__"] = copy
                            yield sample
            except ShardError as error:
                if not handler(error.at(url=url) and error):
                    return
            except Stop:
                return


def _and_next(source: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Each entry with the one after it, None after the last."""
    for entry in source:
        for following in source:
            yield entry, following
            entry = following
        yield entry, None


def _noting_pieces(source: Iterator[Any], cut: list[Any]) -> Iterator[Any]:
    for entry in source:
        if piece_of(entry).stride > 1:
            cut.append(entry)
        yield entry


def _checked(samples: Iterator[Any], cut: list[Any]) -> Iterator[Any]:
    """The samples; none at all is an error, but not of a process that got pieces of shards only: they may be few."""
    empty = True
    for sample in samples:
        empty = False
        yield sample
    if empty and not cut:
        raise ShardError(
            "the shards hold no samples, or none that this process reads; look at them with `wdspec head`, or pass "
            "empty_check=False if that is meant"
        )


def piece_of(entry: Any, base: str = "") -> Piece:
    """What is to be read of an entry of a shard list, a dict or a URL; `base` is where relative paths start."""
    if isinstance(entry, dict) and isinstance(entry.get("url"), str):
        return Piece(ShardUrl(entry["url"], base), entry.get("stride", 1), entry.get("residue", 0))
    if isinstance(entry, (str, os.PathLike)):
        return Piece(ShardUrl(os.fspath(entry), base))
    raise UsageError(
        f"a {type(entry).__name__} came where shards are read; it takes URLs, or dicts with a `url`, as "
        "SimpleShardList yields"
    )


def url_opener(
    source: Iterable[Any], handler: ErrorHandler = reraise_exception, reader: ShardReader | None = None
) -> Iterator[dict[str, Any]]:
    """Opens shards: adds a `stream` of bytes to each ``{"url": …}``, closed when the next one is asked for."""
    reader = reader or ShardReader.here()
    for entry in source:
        piece = piece_of(entry)
        url = piece.shard.text
        try:
            stream = reader.open(url)
        except ShardError as error:
            if handler(error.at(url=url) and error):
                continue
            return
        try:
            yield {"url": url, "stream": stream, "stride": piece.stride, "residue": piece.residue}
        finally:
            stream.close()


def tar_file_expander(
    source: Iterable[dict[str, Any]],
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
) -> Iterator[dict[str, Any]]:
    """The members of open shards as dicts of `fname`, `data` and `__url__`, and ``{}`` where a shard ends."""
    for entry in source:
        url = entry["url"]
        constants = {"__url__": url}
        policy = policy_of(handler, url)
        try:
            members = TarSamples(
                decompressed(entry["stream"]),
                field_of=lambda suffix: "data",
                key_rule=_WHOLE_NAME,
                on_error=policy,
                constants=constants,
            )
            for member in members:
                name = member["__key__"]
                if rename_files is not None:
                    name = rename_files(name)
                if select_files is None or select_files(name):
                    yield {"fname": name, "data": member["data"], "__url__": url, "__part__": _part(entry)}
        except ShardError as error:
            if not handler(error.at(url=url) and error):
                return
        except Stop:
            return
        yield {}


def _part(entry: dict[str, Any]) -> tuple[int, int]:
    return entry.get("stride", 1), entry.get("residue", 0)


def group_by_keys(
    source: Iterable[dict[str, Any]],
    lcase: bool = True,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[dict[str, Any]]:
    """Groups adjacent members with the same key into samples.

    Args:
        source: members, as `tar_file_expander` gives; a ``{}`` ends a shard.
        lcase: whether suffixes become lower case.

    Raises:
        ShardError: two members of one name in a sample, or a key that comes back after others, unless the handler
            says otherwise: then the first member stays, and the torn sample goes.
    """
    sample: dict[str, Any] | None = None
    seen: set[str] = set()
    index, mine, torn = -1, True, False
    for member in source:
        if not member:
            if sample is not None and mine and not torn:
                yield sample
            sample, index, seen = None, -1, set()
            continue
        name = member["fname"]
        parts = _DEFAULT_KEY(name.encode("utf-8", "surrogateescape"))
        if parts is None:
            continue
        key, suffix = (part.decode("utf-8", "surrogateescape") for part in parts)
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
                    "a key that came before comes back after other keys", url=url, key=key, member=name
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
        sample[suffix] = member["data"]
    if sample is not None and mine and not torn:
        yield sample
