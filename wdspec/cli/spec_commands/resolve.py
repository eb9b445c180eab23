"""`wdspec resolve`: how a URL, or each source of a spec, comes to the place its bytes are read from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.errors import WdspecError
from wdspec.base.redaction import printable
from wdspec.cache.shard_cache import path_of_copy
from wdspec.cli.support.json_output import print_json
from wdspec.cli.support.spec_options import (
    SpecChoice,
    env_option,
    form_option,
    is_a_spec,
    set_option,
    source_named,
    var_option,
)
from wdspec.cli.support.tables import Part, Row, Table, counted, show
from wdspec.shards.listing import list_shards, shards_of
from wdspec.storage.environment import Environment, Resolution, ResolutionStep
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.urls import UrlSequence

if TYPE_CHECKING:
    from wdspec.spec.spec import Spec

SUMMARY = "Show step by step how URLs are opened."


@dataclass(frozen=True)
class Resolved:
    """The shards of one source, or of a URL given on the command line, and how the first ones are opened."""

    name: str | None
    shards: int
    resolutions: tuple[Resolution, ...]
    error: str | None = None


@click.command()
@click.argument("what", metavar="URL|SPEC")
@click.option("--spec", "file", metavar="FILE", help="Resolve the URL under the rules of this spec.")
@click.option("--source", metavar="NAME", help="With --spec: also under the rules of this source.")
@env_option
@click.option("--split", metavar="NAME", help="Split of the spec.")
@var_option
@set_option
@form_option
@click.option(
    "--limit", type=click.IntRange(min=1), default=3, show_default=True, help="Shards shown a source."
)
def resolve(
    what: str,
    file: str | None,
    source: str | None,
    env: str | None,
    split: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    form: str,
    limit: int,
) -> None:
    """Show step by step where the bytes of a URL, or of each source of a spec, come from.

    Opens no shard; globs, directories and @files are listed as training would list them, which runs the command of an
    `@pipe:` list (WDS_SECURE=1 forbids that).
    """
    given = file if file is not None else what if is_a_spec(what) else None
    if given is None and (source or env or split or variables or overrides):
        raise click.UsageError("--source, --env, --split, --var and --set need a spec; add --spec FILE")
    if source and file is None:
        raise click.UsageError("--source goes with a URL and --spec FILE")
    environment = Environment.read()
    spec = None if given is None else SpecChoice(given, split, env, variables, overrides).load()
    if file is None and spec is not None:
        resolved = _resolved_sources(spec, environment, limit)
    else:
        owner = source_named(source, spec) if source and spec else None
        base = owner.base if owner else environment.directory
        resolved = [_resolved_url(what, base, Storage.of(environment, spec, owner), limit)]
    if form == "json":
        print_json({"resolved": [_as_json(each) for each in resolved]})
    elif sys.stdout.isatty():
        show(*_tables(resolved))
    else:
        show(*_lines(resolved))
    if any(each.error for each in resolved):
        click.get_current_context().exit(1)


def _resolved_sources(spec: Spec, environment: Environment, limit: int) -> list[Resolved]:
    """All sources; the error of one is part of the result, so that the others are shown too."""
    storages, shards, wrong = {}, {}, {}
    for source in spec.sources:
        try:
            storages[source.name] = Storage.of(environment, spec, source)
            shards[source.name] = shards_of(source, storages[source.name])
        except WdspecError as error:
            wrong[source.name] = Resolved(source.name, 0, (), str(error))
    storages = with_surveyed_caches(storages, shards)
    return [
        wrong[source.name]
        if source.name in wrong
        else _first(source.name, shards[source.name], storages[source.name], limit)
        for source in spec.sources
    ]


def _resolved_url(url: str, base: str, storage: Storage, limit: int) -> Resolved:
    try:
        return _first(None, list_shards([url], base, storage), storage, limit)
    except WdspecError as error:
        return Resolved(None, 0, (), str(error))


def _first(name: str | None, shards: UrlSequence, storage: Storage, limit: int) -> Resolved:
    """The first shards, with how each location is opened as their last step."""
    first = []
    for each in (storage.resolve(shards[i]) for i in range(min(limit, len(shards)))):
        copy = None if each.copies is None else path_of_copy(each.copies)
        if copy is not None:
            opened = ResolutionStep("open", copy, "a copy in the cache")
        else:
            opened = ResolutionStep("open", each.location, storage.describe(each.location))
        first.append(each._replace(steps=(*each.steps, opened)))
    return Resolved(name, len(shards), tuple(first))


def _as_json(resolved: Resolved) -> dict[str, Any]:
    return {
        "source": resolved.name,
        "shards": resolved.shards,
        "error": resolved.error,
        "urls": [
            {
                "url": each.url.text,
                "location": each.location,
                "steps": [step._asdict() for step in each.steps],
            }
            for each in resolved.resolutions
        ],
    }


def _lines(resolved: list[Resolved]) -> Iterator[str]:
    """Plain text: a source, its URLs, and under each its steps with what came out and why."""
    for each in resolved:
        if each.name is not None or each.shards > len(each.resolutions):
            yield _title(each)
        for resolution in each.resolutions:
            yield f"  {printable(resolution.url.text)}"
            for step in resolution.steps:
                yield f"    {step.stage:8} {printable(step.url)}  ({printable(step.why)})"
        if each.error:
            yield f"{'  ' if each.name else ''}error: {each.error}"


def _tables(resolved: list[Resolved]) -> Iterator[Part]:
    for each in resolved:
        rows: list[Row | None] = []
        for resolution in each.resolutions:
            rows += [None] * bool(rows) + [("spec", resolution.url.text, "as written"), *resolution.steps]
        yield Table(("step", "URL or path", "why"), rows, title=_title(each)) if rows else _title(each)
        if each.error:
            yield f"error: {each.error}"


def _title(resolved: Resolved) -> str:
    shown = len(resolved.resolutions)
    more = f", the first {shown}" if 0 < shown < resolved.shards else ""
    return f"{f'{resolved.name}: ' if resolved.name else ''}{counted(resolved.shards, 'shard')}{more}"
