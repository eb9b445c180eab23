"""`wdspec cache`: list, verify, prune and fill cache directories."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from wdspec.base.errors import MissingShardError, WdspecError
from wdspec.base.progress import progress
from wdspec.cache.index import Content, Entry, Index, crc_of
from wdspec.cache.shard_cache import GONE, change_since
from wdspec.cli.output import Table, pluralize, print_json, show
from wdspec.cli.spec_options import (
    SpecChoice,
    choosing,
    choosing_engine,
    form_option,
    parse_value,
    read_bytes,
)
from wdspec.formats.compression import TAR_SUFFIXES, format_of
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.reader import count_samples
from wdspec.jobs.engine import Engine
from wdspec.jobs.prefetch import PrefetchJob
from wdspec.shards.shards import list_shards
from wdspec.spec.files import is_spec_file
from wdspec.spec.language.values import read_duration
from wdspec.spec.load import load
from wdspec.storage.environment import Environment
from wdspec.storage.storage import CacheSettings, Storage

_PIECE = 1024 * 1024
_WHERE = click.argument("where", metavar="[DIR|SPEC]", required=False)


def _duration(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Parse a time as specs write it, or days, which specs do not need; return seconds."""
    if text is not None and text.endswith("d") and text[:-1].isdigit():
        return int(text[:-1]) * 86_400.0
    return None if text is None else float(parse_value(read_duration, text))


@click.group()
def cache() -> None:
    """List, verify, prune and fill caches of remote shards.

    The commands work on the cache directory DIR, or on the caches of a SPEC; by default on the directory in WDS_CACHE.
    """


@cache.command()
@_WHERE
@form_option
def ls(where: str | None, form: str) -> None:
    """List the cached copies. The most recently used copies come last."""
    copies = [copy for index in _indexes(where) for copy in _list_copies(index)]
    if form == "json":
        print_json({"copies": copies})
        return
    rows = [(copy.used, _megabytes(copy.entry.size), copy.path) for copy in copies]
    total = sum(copy.entry.size for copy in copies)
    summary = f"{pluralize(len(copies), 'copy', 'copies')}, {_megabytes(total)} MB"
    show(*([Table(("used", "MB>", "copy"), rows)] if rows else []), summary)


@cache.command()
@_WHERE
@click.option("--remove", is_flag=True, help="Delete copies that are damaged or out of date.")
@click.option(
    "--store",
    is_flag=True,
    help="Also ask the stores of a SPEC whether objects have changed since they were copied.",
)
def verify(where: str | None, remove: bool, store: bool) -> None:
    """Read all copies and compare their length and checksum with those of the bytes that were fetched.

    For copies of earlier versions of wdspec, which have no checksum, the structure is checked: tars from the first
    header to the end marker. Changes within their files are not detected.

    Exit code: 1 if a copy is damaged.
    """
    bad = good = 0
    change_of = _change_checks(where) if store else {}
    for index in _indexes(where):
        copies = _list_copies(index)
        with progress("checking copies", len(copies)) as bar:
            for copy in copies:
                problem = copy.find_problem()
                if problem is None and copy.path in change_of:
                    problem = change_of[copy.path](copy)
                bad, good = bad + bool(problem), good + (problem is None)
                bar.advance()
                if problem:
                    bar.note(f"{copy.path}: {problem}")
                    if remove:
                        index.delete(copy.entry)
    what = "damaged or changed" if store else "damaged"
    show(f"{good:,} intact, {bad:,} {what}{' and deleted' if bad and remove else ''}")
    if bad:
        click.get_current_context().exit(1)


@cache.command()
@_WHERE
@click.option(
    "--size",
    metavar="SIZE",
    callback=read_bytes,
    help="Delete the least recently used copies until at most SIZE is left.",
)
@click.option(
    "--older-than",
    metavar="TIME",
    callback=_duration,
    help="Delete copies that have not been used for TIME: 12h, 30d.",
)
def prune(where: str | None, size: int | None, older_than: float | None) -> None:
    """Delete cached copies and leftovers of killed processes.

    Other files, and copies that are being read, are never deleted.
    """
    if size is None and older_than is None:
        raise click.UsageError("give a limit: --size 100GB, or --older-than 30d")
    before = after = 0
    for index in _indexes(where):
        index.sweep()
        before += sum(entry.size for entry in index.entries.by_use())
        if older_than is not None:
            index.delete_unused(time.time_ns() - int(older_than * 1e9))
        if size is not None:
            index.make_room(size)
        after += sum(entry.size for entry in index.entries.by_use())
    show(f"{_megabytes(before - after)} MB deleted, {_megabytes(after)} MB left")


@cache.command()
@choosing
@choosing_engine(threads=4)
def prefetch(choice: SpecChoice, form: str, start_engine: Callable[[], Engine]) -> None:
    """Fetch all shards of a spec into its cache. With engines other than `local`, all workers must share the cache.

    Exit code: 1 if a shard cannot be fetched.
    """
    job = PrefetchJob(choice.load())
    if all(task.storage.cache is None for task in job.tasks):
        raise click.UsageError("the spec has no cache; add `cache: DIR` to it, or set WDS_CACHE")
    job.run(start_engine())
    done = job.done
    if form == "json":
        print_json({"shards": done})
    else:
        counts = Counter(each.outcome for each in done)
        size = _megabytes(sum(each.size for each in done))
        parts = [f"{counts['fetched']:,} fetched ({size} MB)", f"{counts['there']:,} already cached"]
        parts += [f"{counts[name]:,} {name}" for name in ("not cached", "not kept", "failed") if counts[name]]
        show(", ".join(parts))
    if any(each.outcome == "failed" for each in done):
        click.get_current_context().exit(1)


def _indexes(where: str | None) -> list[Index]:
    """The cache directories that an argument names."""
    where = where or os.environ.get("WDS_CACHE")
    if not where:
        raise click.UsageError("name a cache directory or a spec, or set WDS_CACHE")
    directories = [os.path.abspath(os.path.expanduser(where))]
    if is_spec_file(where):
        spec, environment = load(where), Environment.read()
        settings = [CacheSettings.of(environment, spec, source) for source in spec.sources]
        directories = list(dict.fromkeys(each.directory for each in settings if each is not None))
        if not directories:
            raise click.UsageError(f"{where} has no cache; add `cache: DIR` to it, or set WDS_CACHE")
    indexes = list(map(Index, directories))
    for index in indexes:
        if not index.is_marked:
            raise click.UsageError(
                f"{index.directory} is not a cache of wdspec: it has no folder .wdspec/index"
            )
    return indexes


@dataclass(frozen=True)
class Copy:
    """A copy in a cache directory."""

    index: Index
    entry: Entry
    content: Content

    @property
    def path(self) -> str:
        """The path of its file."""
        return os.path.join(self.index.directory, self.content.name)

    @property
    def used(self) -> str:
        """When it was last used."""
        return datetime.fromtimestamp(self.entry.used / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def as_json(self) -> dict[str, Any]:
        return {"copy": self.path, "url": self.content.url, "bytes": self.entry.size, "used": self.used}

    def find_problem(self) -> str | None:
        """Describe damage. A missing end marker is none: such copies are cached only if the spec allows them."""
        try:
            size = os.path.getsize(self.path)
            if size != self.entry.size:
                return f"it has {size:,} bytes, but {self.entry.size:,} were fetched"
            if (fetched := self.content.read_check) is not None:
                with open(self.path, "rb", buffering=0) as raw:
                    same = crc_of(raw.fileno()) == fetched[0]
                return (
                    None if same else "it has other bytes than those that were fetched: its checksum differs"
                )
            with open(self.path, "rb", buffering=0) as raw, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                file = decompress(raw)
                # The name of a rewritten URL may not show the format; a suffix of tars is reliable.
                url = self.content.url
                if format_of(url) == "tar" and (url.lower().endswith(TAR_SUFFIXES) or _is_tar(self.path)):
                    count_samples(file, lenient_end=True, may_be_empty=True)
                while file.read(_PIECE):  # decompresses the rest
                    pass
        except (WdspecError, OSError) as error:
            return str(error)
        return None


def _list_copies(index: Index) -> list[Copy]:
    """The copies with a file, by last use."""
    return [
        copy
        for entry in index.entries.by_use()
        if (content := index.entries.content(entry.key, entry.path)) is not None
        and os.path.exists((copy := Copy(index, entry, content)).path)
    ]


def _change_checks(where: str | None) -> dict[str, Callable[[Copy], str | None]]:
    """By the path of a copy: a function that asks the store for changes of the object, and describes them."""
    if not where or not is_spec_file(where):
        raise click.UsageError("--store needs the sources of a spec; name a spec")

    def change(storage: Storage, location: str, copy: Copy) -> str | None:
        try:
            seen = change_since(copy.content.made_of, copy.entry.size, storage.stat_location(location))
        except MissingShardError:
            seen = GONE
        return seen and f"the object has changed: {seen}"

    shards = list_shards(load(where))
    return {
        resolution.copies.path: partial(change, storage, resolution.location)
        for name, storage in shards.storages.items()
        if storage.tells_changes
        for resolution in map(storage.resolve, shards.lists[name])
        if resolution.copies is not None
    }


def _is_tar(path: str) -> bool:
    with open(path, "rb", buffering=0) as raw:
        file = decompress(raw)
        start = b""
        while len(start) < 262 and (piece := file.read(262 - len(start))):
            start += piece
    return start[257:262] == b"ustar"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"
