"""The shards of a source, listed once, in the parent, and frozen.

Braces stay arithmetic and cost no I/O; globs, directories and `@file`s are looked up, once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from wdspec.errors import ShardError, UrlError, WdspecError
from wdspec.redaction import redacted
from wdspec.spec.language.models import Source
from wdspec.storage.globs_and_directories import found_in_store
from wdspec.storage.list_files import lines_of_list
from wdspec.storage.storage import Storage
from wdspec.system.user_warnings import warn_user
from wdspec.urls.braces import Braces
from wdspec.urls.schemes import is_relative, path_of_file_url, scheme_of
from wdspec.urls.sequence import Part, ShardRun, ShardUrl, UrlSequence, kind_of, parse_shards

MAX_LISTED = 1_000_000
"""Globs, directories and `@file`s that one brace pattern may stand for."""

_PLAIN = re.compile(r"(?:(?!::)[^\\{}*?\[@])*[^\\{}*?\[@/]")


def shards_of(source: Source, storage: Storage) -> UrlSequence:
    """The shards of a source. Raises as `list_shards`; the error names the source."""
    try:
        return list_shards(source.shards or (), source.base, storage)
    except WdspecError as error:
        raise error.at(source=source.name) from None


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
        storage.resolve(
            ShardUrl(run.prefix + run.texts[0], run.base)
        )  # forbidden URLs fail before anything is read
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
    scheme = scheme_of(url)
    if scheme == "pipe":
        return ""
    if scheme == "file":
        url = path_of_file_url(url)
    elif scheme in ("http", "https"):
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
