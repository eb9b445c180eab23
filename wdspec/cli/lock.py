"""`wdspec lock`: write down the shards of a spec as they are now, or compare them with what was written."""

from __future__ import annotations

import click

from wdspec.cli.report import Table, counted, show, size
from wdspec.cli.spec_options import SpecChoice, choosing_spec
from wdspec.jobs.job import read_earlier
from wdspec.jobs.lock import find_changes, lock_spec
from wdspec.shards.lock import Lock, lock_name
from wdspec.stores.outputs import save


@click.command()
@choosing_spec
@click.option(
    "--output", "-o", metavar="FILE", help="Where to write; by default SPEC.lock.json beside the spec."
)
@click.option("--update", is_flag=True, help="Look at all sources again, not only at those that changed.")
@click.option(
    "--check", is_flag=True, help="Write nothing; compare with the stores, and end with 1 if shards differ."
)
def lock(choice: SpecChoice, output: str | None, update: bool, check: bool) -> int:
    """Write down what a spec comes to now: its shards, with the size of each and its ETag or time.

    Lists globs, directories and @files, and asks each store about each shard; nothing is read. Where there is a lock
    already, only sources that ask for other shards, or elsewhere, are looked at again. `wdspec validate --locked` says
    whether a lock fits its spec, and `loader(…, lock=…)` reads just these shards. Without --split each split has a lock
    of its own.
    """
    differs = False
    for split, spec in choice.load_splits(output, "lock"):
        path = output or lock_name(choice.file, split)
        if check:
            changes = [(each.source, each.url, each.what) for each in find_changes(Lock.read(path), spec)]
            differs = differs or bool(changes)
            table = [Table(("source", "shard", "what"), changes)] if changes else []
            said = f"{counted(len(changes), 'shard')} not as locked" if changes else "as locked"
        else:
            before, _ = read_earlier(path, b'"lock":', "lock", lambda text: Lock.of_text(text, "the lock"))
            found = lock_spec(spec, None if update else before)
            save(path, found.text.encode())
            shards = sum(len(each.objects) for each in found.sources.values())
            sizes = [each.size for each in found.sources.values()]
            total = sum(each for each in sizes if each is not None)
            whole = size(total) if None not in sizes else f"at least {size(total)}"
            table, said = [], f"{counted(shards, 'shard')}, {whole}, digest {found.digest}"
        show(*table)
        show(f"{path}: {said}")
    return 1 if differs else 0
