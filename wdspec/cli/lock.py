"""`wdspec lock`: record the current shards of a spec, or compare them with the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from wdspec.cli.report import Block, Table, pluralize, show_report, size
from wdspec.cli.spec_options import SpecChoice, choosing, choosing_engine
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import read_earlier
from wdspec.jobs.lock import Change, find_changes, lock_spec
from wdspec.shards.lock import Lock, lock_name
from wdspec.storage.ahead import SIDES
from wdspec.stores.outputs import save


@click.command()
@choosing
@click.option(
    "--output", "-o", metavar="FILE", help="File to write (default: SPEC.lock.json next to the spec)."
)
@click.option("--update", is_flag=True, help="Update all sources, not only those that changed in the spec.")
@click.option(
    "--check", is_flag=True, help="Write nothing; compare with the stores, and exit with 1 if shards differ."
)
@choosing_engine(threads=SIDES)
def lock(
    choice: SpecChoice,
    form: str,
    output: str | None,
    update: bool,
    check: bool,
    start_engine: Callable[[], Engine],
) -> int:
    """Record the shards of a spec in a lock file: the URL, size, and ETag or time of each.

    The command lists globs, directories and @files, and asks the stores about each shard; it reads no shard. If the
    lock exists, only sources whose shards or location have changed in the spec are updated. Without --split, each split
    gets its own lock. `wdspec validate --locked` checks that a lock matches its spec, and `loader(…, lock=…)` reads
    exactly the shards of a lock.

    Exit code: 1 if shards differ (with --check).
    """
    files = []
    for split, spec in choice.load_splits(output, "lock"):
        path = output or lock_name(choice.file, split)
        if check:
            known = Lock.read(path)
            files.append(LockFile(path, known, list(find_changes(known, spec, start_engine))))
        else:
            before, _ = read_earlier(path, b'"lock":', "lock", lambda text: Lock.of_text(text, "the lock"))
            found = lock_spec(spec, None if update else before, start_engine)
            save(path, found.text.encode())
            files.append(LockFile(path, found, None))
    show_report(LockReport(files), form)
    return int(any(file.changes for file in files))


@dataclass(frozen=True)
class LockFile:
    """A lock that was written, or compared with the stores."""

    path: str
    lock: Lock
    changes: list[Change] | None
    """What differs; None if it was written."""

    def as_json(self) -> dict[str, Any]:
        sizes = [source.size for source in self.lock.sources.values()]
        return {
            "file": self.path,
            "digest": self.lock.digest,
            "shards": sum(len(source.objects) for source in self.lock.sources.values()),
            "bytes": sum(each for each in sizes if each is not None),
            "all_sizes_known": None not in sizes,
            "changes": self.changes,
        }


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
                yield f"{file.path}: {pluralize(len(file.changes), 'shard')} not as locked"
            elif file.changes is not None:
                yield f"{file.path}: as locked"
            else:
                whole = f"{'' if about['all_sizes_known'] else 'at least '}{size(about['bytes'])}"
                yield f"{file.path}: {pluralize(about['shards'], 'shard')}, {whole}, digest {about['digest']}"

    def as_json(self) -> list[LockFile]:
        return self.files
