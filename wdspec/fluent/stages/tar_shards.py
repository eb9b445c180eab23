"""From shards to samples: the strict tar reader as stages.

`tarfile_to_samples` goes from shards to samples at once. `url_opener`, `tar_file_expander` and `group_by_keys` are
the same in three steps, for those who put something between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from itertools import chain, pairwise
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.stage import Stage, makes_stages, stage
from wdspec.fluent.stages.shard_reader import Policy, ShardReader, handled, piece_of
from wdspec.formats.decompress import decompressed
from wdspec.formats.tar.keys import splitter
from wdspec.formats.tar.reader import TarSamples
from wdspec.spec.language.samples import KeyRule

Rename = Callable[[str], str]
Selection = Callable[[str], bool]

_WHOLE_NAME = KeyRule(kind="regex", regex=r"(?s)(.*)()")
"""Takes each member for a sample of its own, with its whole name for a key."""
_DEFAULT_KEY = splitter(KeyRule())


@makes_stages
def tarfile_to_samples(
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
    reader: ShardReader | None = None,
) -> Stage:
    """A stage from shards to raw samples: dicts of `__key__`, `__url__` and bytes by suffix.

    A sample is whole or it is not delivered; see `TarSamples` for what is an error. A handler that continues loses
    the sample at fault, or what is left of the shard where its next sample cannot be found.

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
            ahead.expect([piece_of(following, base).shard] if following is not None else ())
            if not (yield from handled(piece.shard.text, read, handler)):
                return


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
            yield {
                "url": url,
                "stream": stream,
                "stride": piece.stride,
                "residue": piece.residue,
                "may_be_empty": reader.may_be_empty,
            }
        finally:
            stream.close()


def tar_file_expander(
    source: Iterable[dict[str, Any]],
    handler: ErrorHandler = reraise_exception,
    select_files: Selection | None = None,
    rename_files: Rename | None = None,
) -> Iterator[dict[str, Any]]:
    """The members of open shards as dicts of `fname`, `data` and `__url__`, and ``{}`` where a shard ends."""

    def read(policy: Policy) -> Iterator[dict[str, Any]]:
        members = TarSamples(
            decompressed(entry["stream"]),
            field_of=lambda suffix: "data",
            key_rule=_WHOLE_NAME,
            on_error=policy,
            may_be_empty=entry.get("may_be_empty", False),
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
        if not (yield from handled(entry["url"], read, handler)):
            return
        yield _ShardEnd()


class _ShardEnd(dict[str, Any]):
    """``{}`` where a shard ends. To code that takes each item for a member it is one without a name, passed over."""

    def __missing__(self, name: str) -> Any:
        return {"fname": "", "data": b""}[name]


def group_by_keys(
    source: Iterable[dict[str, Any]],
    keys: Callable[[str], tuple[str, str] | tuple[None, None]] | None = None,
    lcase: bool = True,
    suffixes: Collection[str] | None = None,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[dict[str, Any]]:
    """Groups adjacent members with the same key into samples.

    Args:
        source: members, as `tar_file_expander` gives; a ``{}`` ends a shard.
        keys: name of a member → key and suffix, or (None, None) for one that belongs to no sample; by default cut at
            the first dot.
        lcase: whether suffixes become lower case.
        suffixes: those to keep; by default all.

    Raises:
        ShardError: two members of one name in a sample, or a key that comes back after others, unless the handler
            says otherwise: then the first member stays, and the torn sample goes.
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
        if suffixes is None or suffix in suffixes:
            sample[suffix] = member["data"]


def _at_the_first_dot(name: str) -> tuple[str, str] | tuple[None, None]:
    parts = _DEFAULT_KEY(name.encode("utf-8", "surrogateescape"))
    if parts is None:
        return None, None
    key, suffix = (part.decode("utf-8", "surrogateescape") for part in parts)
    return key, suffix
