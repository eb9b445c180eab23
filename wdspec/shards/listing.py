"""The shards of a source, listed once, in the parent, and frozen.

Braces stay arithmetic and cost no I/O; globs, directories and `@file`s are looked up, once.

What a glob or a directory holds, spelt as the spec spells it.

Also where a rule sends it elsewhere: `gs://b/*.tar`, read from `/data/b/`, holds `gs://b/x.tar`. So resume
states and digests do not depend on where the bytes come from.

`@file` lists: one URL a line, blank lines and lines that begin with `#` skipped.
"""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import cast
from urllib.parse import unquote

from wdspec.base.errors import ShardError, UrlError, WdspecError, warn_user
from wdspec.base.redaction import redacted
from wdspec.formats.compression import TAR_SUFFIXES
from wdspec.spec.spec import Source
from wdspec.storage.environment import Resolution
from wdspec.storage.storage import Storage
from wdspec.stores.local import translate_error
from wdspec.urls.braces import Braces
from wdspec.urls.urls import (
    AIS_PREFIX,
    Part,
    ShardRun,
    ShardUrl,
    UrlSequence,
    is_relative,
    kind_of,
    local_path,
    magic_start,
    parse_shards,
    path_of_file_url,
    quoted_for,
    row_of,
    scheme_of,
    tidy_path,
)


def found_in_store(text: str, prefix: str, base: str, storage: Storage) -> Sequence[str]:
    """The texts that an expanded one stands for: itself, or what the glob or directory holds, sorted.

    Args:
        text: a URL, a glob or a directory.
        prefix: stands before it literally.
        base: absolute directory that relative paths start at.

    Raises:
        MissingShardError: the directory does not exist.
        ShardError: nothing found, a store that cannot be listed, or a rule that changes the names in it.
    """
    kind = kind_of(text)
    if kind == "url":
        return (text,)
    start = magic_start(text) if kind == "glob" else len(text)
    head, tail = text[:start], text[start:]
    url = ShardUrl(prefix + text, base)
    resolution = storage.resolve(url)
    try:
        root = _root(resolution, tail)
        names = storage.list(root, _unquoted(url, tail))
        if not names:
            raise ShardError(_nothing(root.removeprefix(AIS_PREFIX), tail), code="D101")
        scheme = scheme_of(url.text)
        spelt = [head + quoted_for(scheme, name) for name in names]
        for spelling, name in zip(spelt, names, strict=True) if resolution.rule else ():
            # What was found under a rewritten name must be what its spelling in the spec leads to.
            if storage.resolve(ShardUrl(prefix + spelling, base)).location != root + name:
                raise _misspelt(resolution)
    except ShardError as error:
        raise error.at(url=url.text) from None
    return spelt


def _root(resolution: Resolution, tail: str) -> str:
    """The local directory or the location in which a glob or directory is looked up, with its `/`.

    A rule may send the directory elsewhere, but must leave alone what comes after it.
    """
    path = local_path(resolution.location)
    place = resolution.location if path is None else path
    ending = tail if path is None else tidy_path("/" + _unquoted(resolution.url, tail))
    if not place.endswith(ending):
        raise _misspelt(resolution)
    return place[: len(place) - len(ending)] if path is None else place[: len(place) - len(ending) + 1]


def _misspelt(resolution: Resolution) -> ShardError:
    return ShardError(
        f"the rule {resolution.rule} changes names that a glob or directory must find, so what is found "
        "cannot be spelt as in the spec; write the shards out with braces, or let the rule change only the "
        "directory",
        location=resolution.location,
    )


def _nothing(root: str, tail: str) -> str:
    if tail:
        return f"no file in `{root}` matches `{tail}`; correct the pattern or the directory"
    where = f"among the {len(os.listdir(root))} entries of" if os.path.isdir(root) else "in"
    return (
        f"no shards {where} the directory `{root}`: the names of shards end in "
        f"{', '.join(TAR_SUFFIXES)}; for others write a glob such as `*.dat`, for those in "
        "directories within it `**/*.tar`"
    )


def _unquoted(url: ShardUrl, text: str) -> str:
    return unquote(text, errors="surrogateescape") if scheme_of(url.text) == "file" else text


MAX_BYTES = 256 * 2**20
MAX_LINE = 64 * 2**10
_BOM = b"\xef\xbb\xbf"


def lines_of_list(location: str, storage: Storage) -> Iterator[tuple[int, str]]:
    """The number, from 1, and the text of each line that holds a URL, without the white space around it.

    Names that are not UTF-8 survive as ``surrogateescape`` has it.

    Raises:
        MissingShardError, ShardError: it does not exist, cannot be read, is no text, or is too large;
            ``line`` says where.
    """
    size = 0
    with storage.open_location(location) as raw, io.BufferedReader(cast(io.RawIOBase, raw)) as file:
        for number in count(1):
            try:
                line = file.readline(MAX_LINE + 1)
            except ShardError:
                raise
            except OSError as error:
                raise translate_error(error, location) from None
            if not line:
                return
            size += len(line)
            if fault := _fault(line, size, first=number == 1):
                message = f"{fault}; what `@` names must be a text file with one URL a line"
                raise ShardError(message, location=location, line=number)
            if number == 1:
                line = line.removeprefix(_BOM)
            text = line.strip(b" \t\r\n").decode("utf-8", "surrogateescape")
            if text and not text.startswith("#"):
                yield number, text


def _fault(line: bytes, size: int, first: bool) -> str | None:
    if first and line.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "this list is UTF-16, not UTF-8"
    if first and line.lstrip().startswith((b"<", b"\xef\xbb\xbf<")):
        return "this list is an HTML or XML page, perhaps an error message or a log-in form"
    if b"\0" in line:
        return "this list is a binary file"
    if len(line) > MAX_LINE:
        return f"this list has a line of more than {MAX_LINE:,} bytes"
    if size > MAX_BYTES:
        return f"this list has more than {MAX_BYTES:,} bytes"
    return None


MAX_LISTED = 1_000_000
"""Globs, directories and `@file`s that one brace pattern may stand for."""

_PLAIN = re.compile(r"(?:(?!::)[^\\{}*?\[@])*[^\\{}*?\[@/]")


_NOT_PLAIN = re.compile(r"[:~\0]|(?:\A|[{,])-(?:[},]|\Z)")
"""Matches texts and brace patterns that may be more than paths: a scheme, a home directory, standard input, a NUL."""


def shards_of(source: Source, storage: Storage) -> UrlSequence:
    """The shards of a source. Raises as `list_shards`; the error names the source."""
    try:
        return list_shards(source.shards or (), source.base, storage)
    except WdspecError as error:
        raise error.at(source=source.name) from None


def are_local(shards: UrlSequence, storage: Storage) -> bool:
    """Whether all shards are plain local paths: without scheme or `~`, and with nothing that could rewrite them."""
    return _keeps_paths(storage) and all(map(_is_plain, shards.parts))


def _keeps_paths(storage: Storage) -> bool:
    """Whether plain paths are local files: no rule, ETL or user store takes them elsewhere."""
    runs_etl = storage.ais is not None and storage.ais.etl is not None
    return not (storage.rules or runs_etl or storage.users.keys() & {"", "file"})


def _is_plain(run: ShardRun) -> bool:
    texts = (run.texts.pattern,) if isinstance(run.texts, Braces) else run.texts
    return not any(_NOT_PLAIN.search(text) for text in (run.prefix, *texts))


def list_shards(texts: Sequence[str], base: str, storage: Storage) -> UrlSequence:
    """The shards that texts stand for, in order: as written for braces, in code point order for globs and directories.

    A shard that is listed twice is read twice; if nobody wrote it twice, a warning says so.

    Args:
        texts: as in `shards:` of a spec.
        base: absolute directory that relative paths start at.
        storage: where they lead, and how globs, directories and lists are looked up.

    Raises:
        UrlError: a text that cannot be understood.
        MissingShardError: a directory or `@file` that does not exist.
        ShardError: nothing found, or a store that cannot be listed.
    """
    parts = parse_shards(texts, base)
    found = {part: _runs(part, storage) for part in parts}
    runs = list(itertools.chain.from_iterable(found.values()))
    for run in runs:
        if not (_keeps_paths(storage) and _is_plain(run)):  # forbidden URLs fail before anything is read
            storage.resolve(ShardUrl(run.prefix + run.texts[0], run.base))
    _warn_of_repeats(runs)
    return UrlSequence(run for part in parts for run in found[part])


def _runs(part: Part, storage: Storage) -> list[ShardRun]:
    if not part.listed:
        return [part.run]
    frozen = _Frozen(part.base)
    for text in _expanded(part):
        if kind_of(text) == "list":
            frozen.extend(_runs_of_list(text, part.base, storage))
        else:
            frozen.add(found_in_store(text, part.prefix, part.base, storage), part.prefix)
    return frozen.runs()


def _runs_of_list(text: str, base: str, storage: Storage) -> list[ShardRun]:
    """The shards of an `@file`; its lines are relative to it, as it is spelt."""
    prefix = _directory_of(text[1:])
    frozen = _Frozen(base)
    reached = None
    try:
        if text.endswith(("@", "/")):
            raise UrlError("`@` stands before the name of a text file with one URL a line")
        for number, line in lines_of_list(storage.resolve(ShardUrl(text[1:], base)).location, storage):
            reached = number
            if _PLAIN.fullmatch(line):
                frozen.add((line,), prefix if is_relative(line) else "")
            else:
                _add_line(line, prefix, frozen, storage)
    except WdspecError as error:
        raise error.at(list=text, line=reached) from None
    if reached is None:
        raise ShardError("no URL in this list; write one a line, without `#` before it", list=text)
    return frozen.runs()


def _add_line(line: str, prefix: str, frozen: _Frozen, storage: Storage) -> None:
    for part in parse_shards([line], frozen.base):
        mixed = part.text.startswith("{")  # the strings may be relative or not, each for itself
        within = prefix if mixed or is_relative(part.text) else ""
        if not part.listed and not mixed:
            frozen.extend([replace(part, prefix=within).run])
            continue
        for text in _expanded(part):
            if kind_of(text) == "list":
                raise UrlError(f"`{text}` is a list within a list; put its lines here")
            own = within if is_relative(text) else ""
            frozen.add(found_in_store(text, own, frozen.base, storage), own)


def _directory_of(url: str) -> str:
    """The part of a list's URL that its relative lines stand behind, with its `/`; "" for a name."""
    row = row_of(url)
    if row.is_command:
        return ""
    if scheme_of(url) == "file":
        url = path_of_file_url(url)
    elif row.has_queries:
        url = re.split(r"[?#]", url, maxsplit=1)[0]
    return url[: url.rfind("/") + 1]


def _expanded(part: Part) -> Braces:
    if len(part.braces) > MAX_LISTED:
        raise UrlError(
            f"{len(part.braces):,} globs, directories or lists; the limit is {MAX_LISTED:,}", url=part.text
        )
    return part.braces


class _Frozen:
    """Collects listed texts into as few runs as possible."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._runs: list[ShardRun] = []
        self._texts: list[str] = []
        self._prefix = ""

    def add(self, texts: Sequence[str], prefix: str) -> None:
        if prefix != self._prefix:
            self._close()
            self._prefix = prefix
        self._texts += texts

    def extend(self, runs: Iterable[ShardRun]) -> None:
        self._close()
        self._runs += runs

    def runs(self) -> list[ShardRun]:
        self._close()
        return self._runs

    def _close(self) -> None:
        if self._texts:
            self._runs.append(ShardRun(tuple(self._texts), self._prefix, self.base))
            self._texts = []


def _warn_of_repeats(runs: Iterable[ShardRun]) -> None:
    """Warns of a shard that was found twice, by two globs or in a list.

    The same text written twice in the spec is meant: that is how some count a shard double.
    """
    seen: set[str] = set()
    repeats: list[str] = []
    for run in runs:
        if isinstance(run.texts, tuple):
            for text in map(run.prefix.__add__, run.texts):
                (repeats.append if text in seen else seen.add)(text)
    if repeats:
        warn_user(
            f"{len(repeats)} of the listed shards are found more than once, and read as often: for example "
            f"`{redacted(repeats[0])}`"
        )
