"""`wdspec lock`: record the current shards of a spec, or compare them with the record."""

from __future__ import annotations

import click

from wdspec.cli.report import Table, pluralize, show, size
from wdspec.cli.spec_options import SpecChoice, choosing_spec
from wdspec.jobs.job import read_earlier
from wdspec.jobs.lock import find_changes, lock_spec
from wdspec.shards.lock import Lock, lock_name
from wdspec.stores.outputs import save


@click.command()
@choosing_spec
@click.option(
    "--output", "-o", metavar="FILE", help="File to write (default: SPEC.lock.json next to the spec)."
)
@click.option("--update", is_flag=True, help="Update all sources, not only those that changed in the spec.")
@click.option(
    "--check", is_flag=True, help="Write nothing; compare with the stores, and exit with 1 if shards differ."
)
def lock(choice: SpecChoice, output: str | None, update: bool, check: bool) -> int:
    """Record the shards of a spec in a lock file: the URL, size, and ETag or time of each.

    Globs, directories and @files are listed, and stores are asked about each shard; no shard is read. An existing lock
    is updated only for sources whose shards or location have changed in the spec. Without --split, each split gets its
    own lock. `wdspec validate --locked` checks that a lock fits its spec, and `loader(…, lock=…)` reads exactly its
    shards.

    Exit code: with --check 1 if shards differ.
    """
    differs = False
    for split, spec in choice.load_splits(output, "lock"):
        path = output or lock_name(choice.file, split)
        if check:
            changes = [(each.source, each.url, each.what) for each in find_changes(Lock.read(path), spec)]
            differs = differs or bool(changes)
            table = [Table(("source", "shard", "what"), changes)] if changes else []
            summary = f"{pluralize(len(changes), 'shard')} not as locked" if changes else "as locked"
        else:
            before, _ = read_earlier(path, b'"lock":', "lock", lambda text: Lock.of_text(text, "the lock"))
            found = lock_spec(spec, None if update else before)
            save(path, found.text.encode())
            shards = sum(len(each.objects) for each in found.sources.values())
            sizes = [each.size for each in found.sources.values()]
            total = sum(each for each in sizes if each is not None)
            whole = size(total) if None not in sizes else f"at least {size(total)}"
            table, summary = [], f"{pluralize(shards, 'shard')}, {whole}, digest {found.digest}"
        show(*table)
        show(f"{path}: {summary}")
    return 1 if differs else 0
