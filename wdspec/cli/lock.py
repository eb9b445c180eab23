"""`wdspec lock`: what a spec comes to now, as a small file; and whether that still holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import click

from wdspec.base.errors import UsageError
from wdspec.base.progress import with_progress
from wdspec.base.redaction import printable
from wdspec.cli.report import Table, counted, show, size
from wdspec.cli.spec_options import SpecChoice, choosing_spec
from wdspec.shards.lock import Lock, changes, lock_name, locked, locked_splits
from wdspec.stores.outputs import save
from wdspec.stores.store import ObjectStat


@click.command()
@choosing_spec
@click.option(
    "--output", "-o", metavar="FILE", help="Where to write; by default SPEC.lock.json beside the spec."
)
@click.option("--update", is_flag=True, help="Look at all sources again, not only at those that changed.")
@click.option(
    "--check", is_flag=True, help="Write nothing; compare with the stores, and end with 1 if shards differ."
)
def lock(
    choice: SpecChoice,
    output: str | None,
    update: bool,
    check: bool,
) -> int:
    """Write down what a spec comes to now: its shards, with the size of each and its ETag or time.

    Lists globs, directories and @files, and asks each store about each shard; nothing is read. Where there is a lock
    already, only sources that ask for other shards, or elsewhere, are looked at again. `wdspec validate --locked` says
    whether a lock fits its spec, and `loader(…, lock=…)` reads just these shards. Without --split each split has a lock
    of its own.
    """
    splits = locked_splits(choice.file, choice.split)
    if output is not None and len(splits) > 1:
        raise click.UsageError(f"each of {len(splits)} splits has a lock of its own; choose one with --split")
    differs = False
    for name in splits:
        spec = replace(choice, split=name).load()
        path = output or lock_name(choice.file, name)
        if check:
            found = list(changes(Lock.read(path), spec, _shown))
            differs = differs or bool(found)
            if found:
                show(
                    Table(("source", "shard", "what"), [(each.source, each.url, each.what) for each in found])
                )
            said = f"{counted(len(found), 'shard')} not as locked" if found else "as locked"
            click.echo(printable(f"{path}: {said}"))
            continue
        before = _before(path)
        made = locked(spec, None if update else before, _shown)
        save(path, made.text.encode())
        shards = sum(len(each.objects) for each in made.sources.values())
        sizes = [each.size for each in made.sources.values()]
        total = sum(each for each in sizes if each is not None)
        whole = size(total) if None not in sizes else f"at least {size(total)}"
        click.echo(printable(f"{path}: {counted(shards, 'shard')}, {whole}, digest {made.digest}"))
    return 1 if differs else 0


def _before(path: str) -> Lock | None:
    """The lock that is there; None for one that is damaged, which is to be written anew. Raises UsageError for what is
    another file.
    """
    try:
        return Lock.read(path)
    except FileNotFoundError:
        return None
    except UsageError:
        with open(path, "rb") as file:
            text = file.read(100)
        if text.strip() and b'"lock":' not in text:
            raise UsageError(f"`{path}` is no file of `wdspec lock`; give another name") from None
        return None


def _shown(coming: Iterable[ObjectStat | None], count: int, source: str) -> Iterator[ObjectStat | None]:
    return with_progress(coming, f"asking about {source}", total=count)
