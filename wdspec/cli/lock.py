"""`wdspec lock`: record the current shards of a spec, or compare them with the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from wdspec.base.errors import UsageError
from wdspec.cli.output import Block, Table, pluralize, show_report, size
from wdspec.cli.spec_options import SpecChoice, choosing, choosing_engine
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import read_earlier
from wdspec.jobs.lock import Change, find_changes, hash_shards, lock_spec
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
@choosing_engine(threads=SIDES)
def lock(
    choice: SpecChoice,
    form: str,
    output: str | None,
    update: bool,
    check: bool,
    hashes: bool,
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
            files.append(LockFile(path, known, changes, compared))
        else:
            before, _ = read_earlier(path, b'"lock":', "lock", lambda text: Lock.of_text(text, "the lock"))
            found = lock_spec(spec, before, start_engine, update, keep_hashes=not (update and hashes))
            _save(path, found)
            if hashes:
                hash_shards(found, spec, partial(_save, path), start_engine)
                found = Lock.read(path)
            files.append(LockFile(path, found, None))
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
        }

    @property
    def compared_in_words(self) -> str:
        """`2 sizes and times, 3 sizes; …`, and how to compare more."""
        compared = self.compared or {}
        parts = [
            pluralize(compared[basis], *nouns) for basis, nouns in _COMPARED.items() if compared.get(basis)
        ]
        hint = ""
        if not compared.keys() <= {"checksum", "ETag"}:
            elsewhere = "; only sizes are comparable in another store" * ("size" in compared)
            hint = f"{elsewhere}; other bytes are found with checksums, which `wdspec lock --hash` records"
        return f"compared: {', '.join(parts) or 'nothing'}{hint}"


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
                yield f"{file.path}: {pluralize(len(file.changes), 'shard')} not as locked; {file.compared_in_words}"
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
                yield f"{file.path}: {pluralize(about['shards'], 'shard')}, {whole}{sums}, digest {about['digest']}"

    def as_json(self) -> list[LockFile]:
        return self.files
