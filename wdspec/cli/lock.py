"""`wdspec lock`: record the current shards of a spec, or compare them with the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click

from wdspec.base.errors import UsageError
from wdspec.cli.output import Block, Table, pluralize, show_report, size
from wdspec.cli.spec_options import SpecChoice, choosing, choosing_engine
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import read_earlier
from wdspec.jobs.lock import Change, find_changes, hash_shards, lock_spec
from wdspec.jobs.lock_objects import ObjectJob
from wdspec.shards.lock import Lock, lock_name
from wdspec.storage.ahead import SIDES
from wdspec.stores.outputs import save

_COMPARED = {
    "checksum": ("checksum", "checksums"),
    "ETag": ("ETag", "ETags"),
    "time": ("size and time", "sizes and times"),
    "size": ("size", "sizes"),
    "name": ("name without a size", "names without sizes"),
}

_LACKING = {"missing": "missing", "failed": "that stores refuse"}
"""Why nothing is recorded of an object."""


@click.command()
@choosing
@click.option(
    "--output", "-o", metavar="FILE", help="File to write (default: SPEC.lock.json next to the spec)."
)
@click.option("--update", is_flag=True, help="Update all sources, not only those that changed in the spec.")
@click.option(
    "--check", is_flag=True, help="Write nothing; compare with the stores, and exit with 1 if shards differ."
)
@click.option(
    "--hash",
    "hashes",
    is_flag=True,
    help="Also read all shards and record the SHA-256 of each, from where an interrupted command stopped. With "
    "--update: read all shards again. With --check: also read shards whose ETag is as locked.",
)
@click.option(
    "--objects",
    is_flag=True,
    help="Also ask about each object that samples name (`fetch`), from where an interrupted command stopped, and "
    "record its size, and ETag or time in SPEC.lock.objects. With --update: ask about all of them again. With --check: "
    "compare them, too.",
)
@choosing_engine(threads=SIDES)
def lock(
    choice: SpecChoice,
    form: str,
    output: str | None,
    update: bool,
    check: bool,
    hashes: bool,
    objects: bool,
    start_engine: Callable[[], Engine],
) -> int:
    """Record the shards of a spec in a lock file: the URL, size, and ETag or time of each.

    The command lists globs, directories and @files, and asks the stores about each shard; without --hash, it reads no
    shard. --check reads the shards that have a checksum, unless their ETag is as locked, and says what it compared. If
    the lock exists, only sources whose shards or location have changed in the spec are updated. Without --split, each
    split gets its own lock. `wdspec validate --locked` checks that a lock matches its spec, and `loader(…, lock=…)`
    reads exactly the shards of a lock.

    Exit code: 1 if shards differ (with --check).
    """
    files = []
    for split, spec in choice.load_splits(output, "lock"):
        path = output or lock_name(choice.file, split)
        if check:
            known, compared = Lock.read(path), Counter[str]()
            if hashes and not any(any(part.hashes) for each in known.sources.values() for part in each.lists):
                raise UsageError("it has no checksums; `wdspec lock --hash SPEC` records them", file=path)
            changes = list(find_changes(known, spec, start_engine, compared, read_all=hashes))
            asked = Counter[str]() if objects else None
            if asked is not None:
                job = ObjectJob(known, spec, path)
                changes += job.find_changes(asked)
                asked += job.lacking
            files.append(LockFile(path, known, changes, compared, asked))
        else:
            before, _ = read_earlier(path, b'"lock":', "lock", lambda text: Lock.of_text(text, "the lock"))
            keeps = {"keep_hashes": not (update and hashes), "keep_objects": not (update and objects)}
            found = lock_spec(spec, before, start_engine, update, **keeps)
            _save(path, found)
            if hashes:
                hash_shards(found, spec, partial(_save, path), start_engine)
                found = Lock.read(path)
            asked = None
            if objects:
                job = ObjectJob(found, spec, path)
                found, asked = job.record(update), job.lacking
                _save(path, found)
                job.forget_progress()
            files.append(LockFile(path, found, None, asked=asked))
    show_report(LockReport(files), form)
    return int(any(file.changes for file in files))


def _save(path: str, found: Lock) -> None:
    save(path, found.text.encode())


@dataclass(frozen=True)
class LockFile:
    """A lock that was written, or compared with the stores."""

    path: str
    lock: Lock
    changes: list[Change] | None
    """What differs; None if it was written."""
    compared: Mapping[str, int] | None = None
    """Shards by what was compared: `checksum`, `ETag`, `time`, `size`, or only the `name`."""
    asked: Mapping[str, int] | None = None
    """Objects that samples name, likewise, and those that are `missing` or `failed`; None if no store was asked."""

    def as_json(self) -> dict[str, Any]:
        sizes = [source.size for source in self.lock.sources.values()]
        return {
            "file": self.path,
            "digest": self.lock.digest,
            "shards": sum(len(source.objects) for source in self.lock.sources.values()),
            "bytes": sum(each for each in sizes if each is not None),
            "all_sizes_known": None not in sizes,
            "changes": self.changes,
            **({} if self.compared is None else {"compared": dict(self.compared)}),
            **({} if self.lock.objects is None else {"objects": asdict(self.lock.objects)}),
            **({} if self.asked is None else {"asked": dict(self.asked)}),
        }

    @property
    def objects_in_words(self) -> str:
        """`, 1,000 objects (2 missing)`; of a comparison: `; objects: 998 ETags (2 missing)`. Empty without any."""
        known, asked = self.lock.objects, self.asked or {}
        if known is None:
            return ""
        notes = [f"{asked[key]:,} {word}" for key, word in _LACKING.items() if asked.get(key)]
        if self.compared is None:
            notes += [f"nothing is known of {known.unknown:,}"] if known.unknown else []
            begin = f", {pluralize(known.count, 'object')}"
        elif self.asked is None:
            return f"; {pluralize(known.count, 'object')} not compared, which --objects does"
        else:
            begin = f"; objects: {_list_compared(asked) or 'nothing'}"
        return begin + (f" ({', '.join(notes)})" if notes else "")

    @property
    def compared_in_words(self) -> str:
        """`2 sizes and times, 3 sizes; …`, and how to compare more."""
        compared = self.compared or {}
        hint = ""
        if not compared.keys() <= {"checksum", "ETag"}:
            elsewhere = "; only sizes are comparable in another store" * ("size" in compared)
            hint = f"{elsewhere}; other bytes are found with checksums, which `wdspec lock --hash` records"
        return f"compared: {_list_compared(compared) or 'nothing'}{hint}{self.objects_in_words}"


def _list_compared(compared: Mapping[str, int]) -> str:
    return ", ".join(
        pluralize(compared[basis], *nouns) for basis, nouns in _COMPARED.items() if compared.get(basis)
    )


@dataclass(frozen=True)
class LockReport:
    """The locks of all splits."""

    files: list[LockFile]

    def blocks(self) -> Iterator[Block]:
        for file in self.files:
            about = file.as_json()
            if file.changes:
                yield Table(
                    ("source", "shard", "what"), [(each.source, each.url, each.what) for each in file.changes]
                )
                what = "shard" if file.asked is None else "file"
                yield f"{file.path}: {pluralize(len(file.changes), what)} not as locked; {file.compared_in_words}"
            elif file.changes is not None:
                yield f"{file.path}: as locked; {file.compared_in_words}"
            else:
                known = [
                    each
                    for source in file.lock.sources.values()
                    for part in source.lists
                    for each in part.hashes
                ]
                sums = f", {pluralize(len(known) - known.count(None), 'checksum')}" if any(known) else ""
                whole = f"{'' if about['all_sizes_known'] else 'at least '}{size(about['bytes'])}"
                shards = pluralize(about["shards"], "shard")
                yield f"{file.path}: {shards}, {whole}{sums}{file.objects_in_words}, digest {about['digest']}"

    def as_json(self) -> list[LockFile]:
        return self.files
