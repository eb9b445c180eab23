"""`wdspec resolve`: how a URL, or each source of a spec, is resolved to the location that is read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import click

from wdspec.base.errors import WdspecError
from wdspec.base.redaction import printable
from wdspec.cache.shard_cache import path_of_copy
from wdspec.cli.output import Block, Row, Table, pluralize, show_report
from wdspec.cli.spec_options import SpecChoice, choosing_options, find_source, form_option
from wdspec.shards.listing import list_texts, shards_of
from wdspec.spec.files import is_spec_file
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment, Resolution, ResolutionStep
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.urls import ShardUrl, UrlSequence


@click.command()
@click.argument("what", metavar="URL|SPEC")
@click.option("--spec", "file", metavar="FILE", help="Resolve the URL with the rules of this spec.")
@click.option("--source", metavar="NAME", help="With --spec: also use the rules of this source.")
@choosing_options("Split of the spec.")
@form_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Number of shards to show for each source.",
)
def resolve(
    what: str,
    file: str | None,
    source: str | None,
    choose: Callable[[str], SpecChoice],
    form: str,
    limit: int,
) -> None:
    """Show step by step where the bytes of a URL, or of each source of a spec, come from.

    No shard is opened. Globs, directories and @files are listed as in training, which runs the command of an `@pipe:`
    list; WDS_SECURE=1 forbids that.
    """
    given = file if file is not None else what if is_spec_file(what) else None
    if given is None and (source or choose("") != SpecChoice("")):
        raise click.UsageError("--source, --env, --split, --var and --set need a spec; add --spec FILE")
    if source and file is None:
        raise click.UsageError("--source needs a URL and --spec FILE")
    environment = Environment.read()
    spec = None if given is None else choose(given).load()
    if file is None and spec is not None:
        report = Resolutions(_resolve_sources(spec, environment, limit))
    else:
        owner = find_source(source, spec) if source and spec else None
        base = owner.base if owner else environment.directory
        report = Resolutions([_resolve_url(what, base, Storage.of(environment, spec, owner), limit)])
    show_report(report, form)
    if any(each.error for each in report.resolved):
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class Resolved:
    """The shards of a source, or of a URL on the command line, and how the first ones are opened."""

    source: str | None
    shards: int
    urls: tuple[Resolution, ...]
    error: str | None = None
    roots: Mapping[str, Resolution] = field(default_factory=dict)
    """Where the references of each field of `fetch` start."""

    @property
    def title(self) -> str:
        """`train: 1,024 shards, the first 3`."""
        shown = len(self.urls)
        more = f", the first {shown}" if 0 < shown < self.shards else ""
        return f"{f'{self.source}: ' if self.source else ''}{pluralize(self.shards, 'shard')}{more}"

    def as_json(self) -> dict[str, Any]:
        urls = [{"url": each.url.text, "location": each.location, "steps": each.steps} for each in self.urls]
        found = {"source": self.source, "shards": self.shards, "error": self.error, "urls": urls}
        roots = {
            name: {"url": each.url.text, "location": each.location, "steps": each.steps}
            for name, each in self.roots.items()
        }
        return {**found, "fetch": roots} if roots else found

    def named(self) -> Iterator[tuple[str, Resolution]]:
        """Yield what is resolved, each with what it is."""
        yield from (("", each) for each in self.urls)
        yield from ((f"fetch {name}: ", each) for name, each in self.roots.items())


@dataclass(frozen=True)
class Resolutions:
    """How sources or a URL are resolved."""

    resolved: list[Resolved]

    def blocks(self) -> Iterator[Block]:
        if sys.stdout.isatty():
            yield from self._tables()
            return
        for each in self.resolved:
            if each.source is not None or each.shards > len(each.urls):
                yield each.title
            for what, resolution in each.named():
                yield f"  {what}{printable(resolution.url.text)}"
                for step in resolution.steps:
                    yield f"    {step.stage:8} {printable(step.url)}  ({printable(step.why)})"
            if each.error:
                yield f"{'  ' if each.source else ''}error: {each.error}"

    def _tables(self) -> Iterator[Block]:
        for each in self.resolved:
            rows: list[Row | None] = []
            for what, resolution in each.named():
                written = ("spec", resolution.url.text, f"{what}as written")
                rows += [None] * bool(rows) + [written, *resolution.steps]
            yield Table(("step", "URL or path", "why"), rows, title=each.title) if rows else each.title
            if each.error:
                yield f"error: {each.error}"


def _resolve_sources(spec: Spec, environment: Environment, limit: int) -> list[Resolved]:
    """Resolve all sources; an error is part of the result, so that the other sources are shown too."""
    storages, shards, failed = {}, {}, {}
    for source in spec.collections:
        try:
            storages[source.name] = Storage.of(environment, spec, source)
            shards[source.name] = shards_of(source, storages[source.name])
        except WdspecError as error:
            failed[source.name] = Resolved(source.name, 0, (), str(error))
    storages = with_surveyed_caches(storages, shards)
    return [
        failed.get(source.name) or _resolve_source(source, shards[source.name], storages[source.name], limit)
        for source in spec.collections
    ]


def _resolve_source(source: Source, shards: UrlSequence, storage: Storage, limit: int) -> Resolved:
    """Resolve the first shards of a source, and the roots of `fetch`."""
    entries, uncached = source.fetch.items(), replace(storage, cache=None)  # only objects have copies
    roots = {
        name: _opened(uncached.resolve(ShardUrl(entry.root, "/")), uncached)
        for name, entry in entries
        if entry.root is not None
    }
    return replace(_resolve_first(source.name, shards, storage, limit), roots=roots)


def _resolve_url(url: str, base: str, storage: Storage, limit: int) -> Resolved:
    try:
        return _resolve_first(None, list_texts([url], base, storage), storage, limit)
    except WdspecError as error:
        return Resolved(None, 0, (), str(error))


def _resolve_first(name: str | None, shards: UrlSequence, storage: Storage, limit: int) -> Resolved:
    """Resolve the first shards; the last step says how the location is opened."""
    first = []
    for each in (storage.resolve(shards[i]) for i in range(min(limit, len(shards)))):
        copy = None if each.copies is None else path_of_copy(each.copies)
        if copy is not None:
            opened = ResolutionStep("open", copy, "a cached copy")
            first.append(each._replace(steps=(*each.steps, opened)))
        else:
            first.append(_opened(each, storage))
    return Resolved(name, len(shards), tuple(first))


def _opened(resolution: Resolution, storage: Storage) -> Resolution:
    """Add how the store opens a location."""
    opened = ResolutionStep("open", resolution.location, storage.describe(resolution.location))
    return resolution._replace(steps=(*resolution.steps, opened))
