"""`wdspec diff`: what a change to a spec does to the mixture, the order, and runs that have begun."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import click

from wdspec.base.errors import SpecError, UsageError
from wdspec.cli.diff.diff_report import as_json, as_markdown, parts_of
from wdspec.cli.diff.git_revisions import GitFiles, RevisionStorage, split_revision
from wdspec.cli.diff.saved_states import fate_of_state
from wdspec.cli.diff.spec_diff import Side, SpecDiff
from wdspec.cli.explain.survey_spec import explain_spec
from wdspec.cli.support.json_output import print_json
from wdspec.cli.support.spec_options import SpecChoice, env_option, set_option, topology_options, var_option
from wdspec.cli.support.tables import show
from wdspec.shards.lock import Lock, lock_name
from wdspec.spec.files import MOST_BESIDE, ReadFile, read_from_disk
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage

SUMMARY = "Show what a change to a spec does to mixture and order."


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--split", metavar="NAME", help="Split of both specs; SPEC#NAME chooses one's own.")
@env_option
@var_option
@set_option
@topology_options
@click.option("--state", "state_file", metavar="FILE", help="Also say what becomes of this saved state.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
@click.option("--chart", metavar="FILE.svg", help="Also draw the shares before and after.")
@click.option("--exit-code", is_flag=True, help="End with 1 if anything differs.")
def diff(
    old: str,
    new: str,
    split: str | None,
    env: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    ranks: int | None,
    workers: int | None,
    state_file: str | None,
    form: str,
    chart: str | None,
    exit_code: bool,
) -> None:
    """Show what changes from one spec to another: settings, sources, shares, shards, passes, order.

    OLD and NEW are files, or files at a revision of git, as in `wdspec diff main:train.yaml train.yaml`. What the spec
    extends and the lists it names are read from that revision too; globs and folders are looked up as they are now, or
    stand in the lock beside the spec (`wdspec lock`), which also tells of shards that were written anew.
    With the order the answer to the question is given whether a saved state can go on, of --state FILE for its sources.
    """
    sides = [
        _side(name, SpecChoice(name, split, env, variables, overrides), ranks, workers) for name in (old, new)
    ]
    found = SpecDiff(*sides)
    fate = fate_of_state(found, state_file)
    if form == "json":
        print_json(as_json(found, fate))
    elif form == "markdown":
        click.echo(as_markdown(found, fate))
    else:
        show(*parts_of(found, fate))
    if chart is not None:
        from wdspec.cli.diff.diff_chart import draw

        draw(found, chart)
    if exit_code and not found.is_empty:
        click.get_current_context().exit(1)


def _file(path: str) -> str:
    """The absolute path of a spec, without the split that may follow it."""
    return os.path.abspath(path.partition("#")[0])


def _side(name: str, choice: SpecChoice, ranks: int | None, workers: int | None) -> Side:
    at = split_revision(name)
    if at is None:
        return _explained(name, choice.load(), choice, ranks, workers, read_from_disk)
    revision, path = at
    files = GitFiles.at(revision, os.getcwd())
    if not path.startswith("./"):
        here, path = path, os.path.join(os.path.relpath(files.root), path)
        if not files.has(_file(path)) and files.has(_file(here)):
            raise UsageError(f"paths start at the repository's top folder; write `{revision}:./{here}`")
    try:
        choice = replace(choice, file=os.path.normpath(path))
        spec = choice.load(files.read)
    except SpecError as error:
        raise SpecError(f"at {revision}: {error}", error.problems) from None

    def storage_of(environment: Environment, spec: Spec, source: Source) -> Storage:
        storage = RevisionStorage.of(environment, spec, source)
        assert isinstance(storage, RevisionStorage)
        return replace(storage, files=files)

    return _explained(name, spec, choice, ranks, workers, files.read, storage_of)


def _explained(
    name: str,
    spec: Spec,
    choice: SpecChoice,
    ranks: int | None,
    workers: int | None,
    read: ReadFile,
    storage_of: Callable[[Environment, Spec, Source], Storage] = Storage.of,
) -> Side:
    """A side, whose shards are those of the lock beside its spec, if there is one that fits."""
    lock, stale = None, ""
    path = lock_name(choice.file, choice.split)
    try:
        lock = Lock.of_text(read(os.path.abspath(path), True, MOST_BESIDE), path)
        frozen = lock.shards(spec, path)
    except UsageError as error:
        lock, frozen, stale = None, None, f"shards are looked up as they are now: {error}"
    except OSError:
        frozen = None
    explained = explain_spec(spec, ranks, workers, 1, storage_of=storage_of, frozen=frozen)
    return Side(name, explained, lock, stale)
