"""`wdspec diff`: what a change to a spec does to the mixture, the order, and runs that have started.

Specs as they were at a revision of git: `main:train.yaml`, with what they extend and the lists that they name.
"""

from __future__ import annotations

import errno
import io
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import click

from wdspec.base.errors import SpecError, UsageError
from wdspec.cli.diff_facts import KeyChange, Side, SourceChange, SpecDiff, StateFate, fate_of_state
from wdspec.cli.explain_facts import PER_UNENDING, ExplainedSource, explain_spec
from wdspec.cli.report import Block, Table, Warning, show_report, table_of, to_markdown
from wdspec.cli.spec_options import SpecChoice, choosing_options, topology_options
from wdspec.cli.wording import counted, number, percent
from wdspec.shards.lock import Lock, lock_name
from wdspec.spec.files import MOST_DATA, ReadFile, read_from_disk
from wdspec.spec.spec import Source, Spec
from wdspec.spec.yaml import MAX_BYTES
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import save
from wdspec.urls.urls import local_path

_GOES_ON = {
    "exactly": "A saved state goes on exactly",
    "other samples": "A saved state goes on, with other samples",
    "if allowed": "A saved state goes on only with `allow_changed=True`",
    "no": "A saved state does not go on",
}
_MOST_LINES = 40
_MOST_BARS = 40


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@choosing_options("Split of both specs; SPEC#NAME chooses one's own.")
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
    choose: Callable[[str], SpecChoice],
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
    found = SpecDiff(*(_side(choose(name), ranks, workers) for name in (old, new)))
    report = DiffReport(found, fate_of_state(found, state_file))
    if form == "markdown":
        click.echo(to_markdown(report.blocks()))
    else:
        show_report(report, form)
    if chart is not None:
        draw(found, chart)
    if exit_code and not found.is_empty:
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class GitFiles:
    """The files of one revision of the repository that a folder belongs to."""

    revision: str
    """As the user named it."""
    commit: str
    root: str
    """The repository's top folder, absolute, without symbolic links."""

    @classmethod
    def at(cls, revision: str, folder: str) -> GitFiles:
        """The files of a revision of the repository around a folder.

        Raises:
            UsageError: git is not installed, the folder is in no repository, or there is no such revision.
        """
        root = _git(folder, "rev-parse", "--show-toplevel")
        if root is None:
            raise UsageError(
                f"`{revision}:…` names a revision of git, but {folder} is in no repository; name two files"
            )
        found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if found is None:
            raise UsageError(
                f"git knows no revision `{revision}` here; `git fetch` may bring it (in CI, check out with its history)"
            )
        return cls(revision, found.decode().strip(), os.path.realpath(os.fsdecode(root.rstrip(b"\n"))))

    def read(self, path: str, only_regular: bool = True, most: int = MAX_BYTES) -> bytes:
        """A file as it was then; what is outside the repository is read from the disk.

        Args:
            path: absolute.
            only_regular: of a file on the disk: whether it must be no pipe,
            most: and how many bytes of it are wanted.

        Raises:
            OSError: it was not there, or was a folder.
        """
        name = self._name(path)
        if name is None:
            return read_from_disk(path, only_regular, most)
        kind = _git(self.root, "cat-file", "-t", f"{self.commit}:{name}")
        if kind is not None and kind.strip() == b"tree":
            raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        data = None if kind is None else _git(self.root, "cat-file", "blob", f"{self.commit}:{name}")
        if data is None:
            raise FileNotFoundError(errno.ENOENT, f"it is not in revision {self.revision}", path)
        return data

    def has(self, path: str) -> bool:
        """Whether a path was a file of the repository then."""
        name = self._name(path)
        kind = None if name is None else _git(self.root, "cat-file", "-t", f"{self.commit}:{name}")
        return kind is not None and kind.strip() == b"blob"

    def has_spec(self, path: str) -> bool:
        """The same for a relative path, perhaps with a split."""
        return self.has(os.path.abspath(path.partition("#")[0]))

    def _name(self, path: str) -> str | None:
        """The path within the repository; None for one outside it."""
        folder, name = os.path.split(path)
        whole = os.path.join(os.path.realpath(folder), name)
        return os.path.relpath(whole, self.root) if whole.startswith(self.root + os.sep) else None


@dataclass(frozen=True)
class RevisionStorage(Storage):
    """Reaches bytes as training does, but files of the repository as they were: so the lists of a spec are those of
    its revision. What matches a glob or lies in a folder is looked up on the disk, where the shards are."""

    files: GitFiles | None = None

    def open_location(self, location: str) -> BinaryIO:
        """As `Storage.open_location`."""
        path = local_path(location)
        if self.files is not None and path is not None and self.files.has(path):
            return io.BytesIO(self.files.read(path))
        return super().open_location(location)


def split_revision(argument: str) -> tuple[str, str] | None:
    """Revision and path of `main:train.yaml`; None for what names a file.

    As git reads it, the path starts at the repository's top folder, or with `./` at the working directory.
    """
    revision, colon, path = argument.partition(":")
    if not colon or not revision or not path or os.path.exists(argument.partition("#")[0]):
        return None
    return revision, path


def _git(folder: str, *arguments: str) -> bytes | None:
    """What git prints; None where it fails. Raises UsageError where it is not installed."""
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("revisions are read by `git`, which is not installed; name two files") from None
    return done.stdout if done.returncode == 0 else None


def _side(choice: SpecChoice, ranks: int | None, workers: int | None) -> Side:
    name = choice.file
    at = split_revision(name)
    if at is None:
        return _explain_side(name, choice.load(), choice, ranks, workers, read_from_disk)
    revision, path = at
    files = GitFiles.at(revision, os.getcwd())
    if not path.startswith("./"):
        here, path = path, os.path.join(os.path.relpath(files.root), path)
        if not files.has_spec(path) and files.has_spec(here):
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

    return _explain_side(name, spec, choice, ranks, workers, files.read, storage_of)


def _explain_side(
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
        lock = Lock.of_text(read(os.path.abspath(path), True, MOST_DATA), path)
        frozen = lock.shards(spec, path)
    except UsageError as error:
        lock, frozen, stale = None, None, f"shards are looked up as they are now: {error}"
    except OSError:
        frozen = None
    explained = explain_spec(spec, ranks, workers, 1, storage_of=storage_of, frozen=frozen)
    return Side(name, explained, lock, stale)


@dataclass(frozen=True)
class DiffReport:
    """In what two specs differ, and what becomes of a state."""

    diff: SpecDiff
    fate: StateFate

    def blocks(self) -> Iterator[Block]:
        """What is shown of it."""
        diff, fate = self.diff, self.fate
        yield f"{diff.old.label} → {diff.new.label}"
        yield from (Warning(f"{side.label}: {side.stale}") for side in (diff.old, diff.new) if side.stale)
        if diff.is_empty:
            yield "nothing differs"
        else:
            yield from _tables(diff)
            for old, new in diff.renamed():
                yield Warning(
                    f"`{new}` has the shards of `{old}`: a source is known by its name, so its order begins anew"
                )
            for side in (diff.old, diff.new):
                yield from (Warning(f"{side.label}: {error}") for error in side.explanation.found)
        yield f"{_GOES_ON[fate.goes_on]}: {fate.why}."
        if fate.sources:
            yield Table(("source", "what becomes of it"), list(fate.sources.items()))
        if fate.state is not None:
            given = [(each["source"], number(each["samples"])) for each in fate.state["sources"]]
            batches = counted(fate.state["batch"], "global batch", "global batches")
            title = f"the state: after {batches}, {fate.state['samples']:,} samples"
            yield Table(("source", "samples given, or left out>"), given, title)

    def as_json(self) -> dict[str, Any]:
        """Everything, as values; `null` where a side has no such thing."""
        diff, fate = self.diff, self.fate
        return {
            "old": diff.old.label,
            "new": diff.new.label,
            "same": diff.is_empty,
            "epoch_samples": [side.explanation.plan.epoch_samples for side in (diff.old, diff.new)],
            "settings": diff.settings,
            "sources": [
                {
                    "source": each.name,
                    "change": each.change,
                    "old": _values(each.old),
                    "new": _values(each.new),
                    "added_shards": each.added_shards,
                    "removed_shards": each.removed_shards,
                    "rewritten_shards": each.rewritten_shards,
                    "keys": each.keys,
                }
                for each in diff.sources
            ],
            "renamed": [{"old": old, "new": new} for old, new in diff.renamed()],
            "order": {"same": not diff.order_changes, "changes": diff.order_changes},
            "samples": {"same": not diff.samples_change},
            "state": {
                "goes_on": fate.goes_on,
                "why": fate.why,
                "sources": fate.sources,
                "saved": fate.state,
            },
        }


def _values(source: ExplainedSource | None) -> dict[str, Any] | None:
    names = ("share", "shards", "samples", "estimated", "expected", "passes")
    return None if source is None else {name: getattr(source, name) for name in names}


def _tables(diff: SpecDiff) -> Iterator[Block]:
    changed = [each for each in diff.sources if each.change != "same"]
    settings = [("", each) for each in diff.settings]
    rows = [*settings, *((source.name, key) for source in changed for key in source.keys)]
    if rows:
        yield Table(("source", "key", "before", "after"), [_key_row(name, key) for name, key in rows])
    if changed:
        yield _mixture(diff, changed)
        alike = len(diff.sources) - len(changed)
        if alike:
            yield f"{counted(alike, 'source')} as before"
    lines = [*diff.order_changes[:_MOST_LINES]]
    if len(diff.order_changes) > _MOST_LINES:
        lines.append(f"and {len(diff.order_changes) - _MOST_LINES:,} more")
    if lines:
        yield Table((), [(line,) for line in lines], "the order changes by")


def _mixture(diff: SpecDiff, changed: list[SourceChange]) -> Table:
    endless = not all(side.explanation.plan.epoch_samples for side in (diff.old, diff.new))
    per = f"per {PER_UNENDING:,}" if endless else "per epoch"
    columns: dict[str, Callable[[SourceChange], str]] = {
        "source": lambda each: each.either.indented,
        "change": lambda each: each.change,
        "share>": _both(lambda each: percent(each.share)),
        "shards>": lambda each: _both(lambda side: number(side.shards or 0))(each) + _moved(each),
        "samples>": _both(lambda each: "?" if each.samples is None else number(round(each.samples))),
        f"{per}>": _both(lambda each: number(each.expected)),
    }
    if not endless:
        columns["passes>"] = _both(lambda each: "?" if each.passes is None else f"{each.passes:.3g}")
    return table_of(changed, columns, "the mixture, before → after")


def _both(cell: Callable[[ExplainedSource], str]) -> Callable[[SourceChange], str]:
    """`before → after`, or one of them where they are the same or only one is there."""

    def show(each: SourceChange) -> str:
        old, new = (None if side is None else cell(side) for side in (each.old, each.new))
        if old is None or new is None or old == new:
            return old if new is None else new  # type: ignore[return-value]
        return f"{old} → {new}"

    return show


def _moved(each: SourceChange) -> str:
    rewritten = f" ({each.rewritten_shards:,} rewritten)" if each.rewritten_shards else ""
    if each.added_shards is None:
        return f" (others){rewritten}"
    if each.change != "changed" or not (each.added_shards or each.removed_shards):
        return rewritten
    return f" (+{each.added_shards:,} −{each.removed_shards:,}){rewritten}"


def _key_row(source: str, change: KeyChange) -> tuple[str, ...]:
    cut = [
        "–" if text is None else text if len(text) <= 60 else f"{text[:57]}…"
        for text in (change.old, change.new)
    ]
    return (source, change.key, *cut)


def draw(diff: SpecDiff, file: str) -> None:
    """Writes the chart; the sources whose shares differ most come first.

    Raises:
        UsageError: matplotlib is not installed, or the file is no SVG.
    """
    if not file.endswith(".svg"):
        raise UsageError(f"--chart draws SVG; name a file that ends in .svg, not {file}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--chart needs matplotlib: pip install 'wdspec[charts]'") from None
    shares = [
        (each.name, each.old.share if each.old else 0.0, each.new.share if each.new else 0.0)
        for each in diff.sources
        if not each.either.nested
    ]
    shares = sorted(shares, key=lambda row: -abs(row[1] - row[2]))[:_MOST_BARS][::-1]
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(shares)), layout="constrained")
    axes = figure.subplots()
    places = range(len(shares))
    for side, colour, shift, at in ((diff.old, "#9aa5b1", 0.2, 1), (diff.new, "#1f6feb", -0.2, 2)):
        bars = axes.barh(
            [place + shift for place in places],
            [100 * row[at] for row in shares],
            0.38,
            color=colour,
            label=side.label,
        )
        axes.bar_label(bars, fmt="%.2f %%", padding=3, fontsize=8)
    axes.set_yticks(list(places), [row[0] for row in shares])
    axes.set_xlabel("share of the samples, %")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    save(file, drawn.getvalue())
