"""`wdspec diff`: how a change to a spec affects the mixture, the order, and runs that have started.

Specs can be read from a revision of git (`main:train.yaml`), with the files that they extend and the lists they name.
"""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple

import click

from wdspec.advice import advise
from wdspec.advice.explanation import PER_UNENDING, ExplainedSource, explain_spec, start_in_words
from wdspec.base.errors import SpecError, UsageError, WdspecError
from wdspec.cli import output
from wdspec.cli.diff_facts import Side, SourceChange, SpecDiff, StateFate, cells, fate_of_state, shorten
from wdspec.cli.diff_records import diff_of_records
from wdspec.cli.diff_traffic import compare_traffic, show_traffic
from wdspec.cli.lint_files import YAML, is_searched, list_yaml_files, specs_among
from wdspec.cli.output import (
    Block,
    Table,
    Warning,
    chart_text,
    one_line,
    show_report,
    table_of,
)
from wdspec.cli.spec_options import (
    SpecChoice,
    choosing_options,
    format_option,
    parse_assignments,
    require_library,
    topology_options,
)
from wdspec.shards.lock import Lock, lock_name
from wdspec.spec.files import MOST_DATA, ReadFile, read_from_disk
from wdspec.spec.load import list_variants
from wdspec.spec.spec import Source, Spec
from wdspec.spec.yaml import MAX_BYTES
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import save
from wdspec.urls.urls import local_path

_RESUMES = {
    "exactly": "A saved state resumes exactly",
    "other samples": "A saved state resumes, with other samples",
    "if allowed": "A saved state resumes only with `allow_changed=True`",
    "no": "A saved state cannot resume",
}
_MOST_BARS = 40
_MOST_KEYS = 6


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@choosing_options("Split of both specs (default: all splits); SPEC#NAME chooses it for one of them.")
@topology_options
@click.option("--state", "state_file", metavar="FILE", help="Also show how this saved state would resume.")
@format_option("text", "json", "markdown")
@click.option("--chart", metavar="FILE.svg", help="Also draw a chart of the shares before and after.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything differs, or was not compared.")
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
    """Show what changes from one spec to another: settings, sources, shares, shards, passes, order, and whether saved
    states can resume.

    OLD and NEW are files, or files at a git revision, as in `wdspec diff main:train.yaml train.yaml`. Files that the
    spec extends and lists that it refers to are read from the same revision. Globs and folders are listed as they are
    now, unless there is a lock next to the spec (`wdspec lock`). With locks, the command also shows which shards were
    rewritten. --state FILE shows how each source would resume from a saved state.

    Every split is compared, without an environment and in each environment; --split and --env choose one. With --state
    or --chart, only the spec without an environment is compared, or the one that --env chooses. OLD and NEW may also
    be folders (`wdspec diff main:configs configs`): then the command lists which specs change.

    OLD and NEW may also be records of runs (`wdspec.log_run`): then the command also compares versions, the
    environment, and what was read.
    """
    if (records := diff_of_records(old, new)) is not None:
        if state_file is not None or chart is not None:
            raise click.UsageError("--state and --chart work only with specs, not with records of runs")
        show_report(records, form)
        if exit_code and not records.is_empty:
            click.get_current_context().exit(1)
        return
    sides = Place.of(choose(old)), Place.of(choose(new))
    folders = [place.label for place in sides if place.is_folder]
    if len(folders) == 1:
        raise UsageError(f"{folders[0]} is a directory, but not both are; compare two specs, or two folders")
    is_one = state_file is not None or chart is not None
    pairs = [Pair(*sides)] if is_one else list(_pair(*sides))
    found: DiffReport | DiffsReport
    if len(pairs) == 1 and not sides[0].is_folder:
        diff = SpecDiff(*(place.side(ranks, workers) for place in sides))
        found = DiffReport(diff, fate_of_state(diff, state_file))
    else:
        found = DiffsReport.of(sides, pairs, ranks, workers)
    show_report(found, form)
    if chart is not None and isinstance(found, DiffReport):
        draw(found.diff, chart)
    if (exit_code and not found.is_empty) or (isinstance(found, DiffsReport) and found.has_errors):
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
        """The files of a revision of the repository that contains a folder.

        Raises:
            UsageError: git is not installed, the folder is not in a repository, or the revision is unknown.
        """
        root = _git(folder, "rev-parse", "--show-toplevel")
        if root is None:
            raise UsageError(
                f"`{revision}:…` names a revision of git, but {folder} is not in a repository; name two files"
            )
        found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if found is None:
            raise UsageError(
                f"git has no revision `{revision}` here; `git fetch` may get it (in CI, check out the history)"
            )
        return cls(revision, found.decode().strip(), os.path.realpath(os.fsdecode(root.rstrip(b"\n"))))

    def read(self, path: str, only_regular: bool = True, most: int = MAX_BYTES) -> bytes:
        """Read a file of the revision, or from the disk if it is outside the repository.

        Args:
            path: absolute.
            only_regular: for a file on the disk: whether to refuse pipes and devices.
            most: for a file on the disk: bytes to read at most.

        Raises:
            OSError: the file did not exist, or was a folder.
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
        """Whether the revision has a file at this path."""
        name = self._name(path)
        kind = None if name is None else _git(self.root, "cat-file", "-t", f"{self.commit}:{name}")
        return kind is not None and kind.strip() == b"blob"

    def list(self, path: str) -> list[str]:
        """The YAML files below a relative path, as `list_yaml_files` lists them; none if it is not a folder."""
        name = self._name(os.path.abspath(path)) or ""
        tree = f"{self.commit}:{'' if name == '.' else name}"
        found = _git(self.root, "ls-tree", "-r", "-z", "--name-only", tree) or b""
        names = (each for each in os.fsdecode(found).split("\0") if each.endswith(YAML))
        searched = (each for each in names if all(map(is_searched, each.split("/")[:-1])))
        return sorted(os.path.join(path, each) for each in searched)

    def has_spec(self, path: str) -> bool:
        """Whether the revision has a spec at this relative path, which may have a split."""
        return self.has(os.path.abspath(path.partition("#")[0]))

    def _name(self, path: str) -> str | None:
        """The path within the repository; None for a path outside it."""
        folder, name = os.path.split(path)
        whole = os.path.join(os.path.realpath(folder), name)
        if whole == self.root:
            return "."
        return os.path.relpath(whole, self.root) if whole.startswith(self.root + os.sep) else None


@dataclass(frozen=True)
class RevisionStorage(Storage):
    """Reads files of the repository, such as the lists that a spec names, from a revision, and the rest as usual.

    Globs and folders are listed on the disk, where the shards are.
    """

    files: GitFiles | None = None

    def open_location(self, location: str) -> BinaryIO:
        """As `Storage.open_location`."""
        path = local_path(location)
        if self.files is not None and path is not None and self.files.has(path):
            return io.BytesIO(self.files.read(path))
        return super().open_location(location)


def split_revision(argument: str) -> tuple[str, str] | None:
    """Split `main:train.yaml` into revision and path; None for an existing file.

    As in git, the path starts at the repository's top folder, or with `./` at the working directory.
    """
    revision, colon, path = argument.partition(":")
    if not colon or not revision or not path or os.path.exists(argument.partition("#")[0]):
        return None
    return revision, path


def _git(folder: str, *arguments: str) -> bytes | None:
    """The output of a git command; None if it fails. Raises UsageError if git is not installed."""
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("reading revisions needs `git`, which is not installed; name two files") from None
    return done.stdout if done.returncode == 0 else None


@dataclass(frozen=True)
class Place:
    """A spec, or a folder of specs, on the disk or at a revision of git."""

    label: str
    """As the user named it."""
    choice: SpecChoice
    files: GitFiles | None = None

    @classmethod
    def of(cls, choice: SpecChoice) -> Place:
        """The place that an argument names."""
        at = split_revision(choice.file)
        if at is None:
            return cls(choice.file, choice)
        revision, path = at
        files = GitFiles.at(revision, os.getcwd())
        if not path.startswith("./"):
            here, path = path, os.path.join(os.path.relpath(files.root), path)
            if not (files.has_spec(path) or files.list(path)) and (files.has_spec(here) or files.list(here)):
                raise UsageError(f"paths start at the repository's top folder; write `{revision}:./{here}`")
        return cls(choice.file, replace(choice, file=os.path.normpath(path)), files)

    @property
    def read(self) -> ReadFile:
        """Reads its files."""
        return read_from_disk if self.files is None else self.files.read

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return bool(self.files.list(self.choice.file)) if self.files else os.path.isdir(self.choice.file)

    def specs(self) -> dict[str, Place]:
        """The specs of a folder, by their paths in it."""
        folder = self.choice.file
        files = self.files.list(folder) if self.files else list_yaml_files(folder)
        values = parse_assignments(self.choice.variables, "--var")
        names = {os.path.relpath(file, folder): file for file in specs_among(files, self.read, values)}
        return {
            name: replace(self, label=os.path.join(self.label, name), choice=replace(self.choice, file=file))
            for name, file in names.items()
        }

    def variants(self) -> tuple[dict[tuple[str | None, str | None], Place], int]:
        """Its splits and environments: the chosen ones, or all; and how many combinations that leaves out."""
        choice = self.choice
        values = parse_assignments(choice.variables, "--var") or None
        pairs, left_out = list_variants(choice.file, choice.split, choice.env, values, self.read)
        file = choice.file if os.path.exists(choice.file) else choice.file.partition("#")[0]
        return {
            (split, env): replace(self, choice=replace(choice, file=file, split=split, env=env))
            for split, env in pairs
        }, left_out

    def load(self) -> Spec:
        """Load it. Raises SpecError if it has problems."""
        if self.files is None:
            return self.choice.load()
        try:
            return self.choice.load(self.files.read)
        except SpecError as error:
            raise SpecError(f"at {self.files.revision}: {error}", error.problems) from None

    def side(self, ranks: int | None, workers: int | None) -> Side:
        """Load and plan it, by the lock next to its spec, if that fits. Raises SpecError if it has problems."""

        def storage_of(environment: Environment, spec: Spec, source: Source) -> Storage:
            storage = RevisionStorage.of(environment, spec, source)
            assert isinstance(storage, RevisionStorage)
            return replace(storage, files=self.files)

        spec, lock, stale = self.load(), None, ""
        path = lock_name(self.choice.file, self.choice.split)
        try:
            lock = Lock.of_text(self.read(os.path.abspath(path), True, MOST_DATA), path)
            frozen = lock.shards(spec, path)
        except UsageError as error:
            lock, frozen, stale = None, None, f"shards are listed as they are now: {error}"
        except OSError:
            frozen = None
        make_storage = Storage.of if self.files is None else storage_of
        explained = explain_spec(spec, ranks, workers, 1, storage_of=make_storage, frozen=frozen)
        return Side(self.label, explained, lock, stale, self.read)


class Pair(NamedTuple):
    """Both sides of one split and environment of one spec; None if a side does not have it."""

    old: Place | None
    new: Place | None
    left_out: int = 0
    """Combinations of splits and environments of both sides that are not compared, in place of one that is."""


def _pair(old: Place, new: Place) -> Iterator[Pair]:
    """Pair the specs of two folders, and the splits and environments of two specs, by their names."""
    if old.is_folder:
        before, now = old.specs(), new.specs()
        for file in dict.fromkeys((*now, *before)):
            if file in before and file in now:
                yield from _pair(before[file], now[file])
            else:
                yield Pair(before.get(file), now.get(file))
        return
    (one, left_out), (other, others_left_out) = old.variants(), new.variants()
    both = [one, other]
    # Perhaps `a.yaml#train` and `b.yaml#val`.
    if all(len({split for split, _ in each}) == 1 for each in both):
        both = [{(None, env): place for (_, env), place in each.items()} for each in both]
    for name in dict.fromkeys((*both[1], *both[0])):
        yield Pair(both[0].get(name), both[1].get(name))
    if most := max(left_out, others_left_out):
        yield Pair(old, new, most)


@dataclass(frozen=True)
class DiffReport:
    """The differences of two specs, and how a state resumes."""

    diff: SpecDiff
    fate: StateFate

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return self.diff.is_empty

    def blocks(self) -> Iterator[Block]:
        diff, fate = self.diff, self.fate
        yield f"{diff.old.label} → {diff.new.label}"
        yield from (Warning(f"{side.label}: {side.stale}") for side in (diff.old, diff.new) if side.stale)
        if diff.is_empty:
            yield "no differences"
        else:
            yield from _tables(diff)
            yield from show_traffic(diff.old.traffic, diff.new.traffic)
            for old, new in diff.renamed():
                yield Warning(
                    f"`{new}` has the shards of `{old}`; sources are identified by name, so it starts with a new "
                    f"order: write `name: {old}` to keep that of `{old}`"
                )
            for side in (diff.old, diff.new):
                found = advise(side.explanation.found)
                yield from (Warning(f"{side.label}: {one_line(each)}") for each in found)
        yield f"{_RESUMES[fate.resumes]}: {fate.why}."
        if fate.sources:
            yield Table(("source", "with `allow_changed=True`"), list(fate.sources.items()))
        if fate.sections:
            slots = [
                ("" if each.slots is None else f"{each.slots:,}", each.name, each.fate)
                for each in fate.sections
            ]
            yield Table(("slots>", "inside", "with `allow_changed=True`"), slots)
        yield from map(Warning, fate.passes)
        if fate.state is not None:
            given = [
                (each["source"], "unknown" if each["samples"] is None else output.number(each["samples"]))
                for each in fate.state["sources"]
            ]
            batches = output.pluralize(fate.state["batch"], "global batch", "global batches")
            title = f"the state: after {batches}"
            if (samples := fate.state["samples"]) is not None:
                title += f", {samples:,} samples"
            yield Table(("source", "samples received>"), given, title)

    def as_json(self) -> dict[str, Any]:
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
            "traffic": compare_traffic(diff.old.traffic, diff.new.traffic),
            "renamed": [{"old": old, "new": new} for old, new in diff.renamed()],
            "order": {"same": not diff.order_changes, "changes": diff.order_changes},
            "samples": {"same": not diff.samples_change},
            "state": {
                "goes_on": fate.resumes,
                "why": fate.why,
                "sources": fate.sources,
                "sections": [
                    {"inside": each.name, "slots": each.slots, "is_finished": not each.why, "why": each.why}
                    for each in fate.sections
                ],
                "passes": list(fate.passes),
                "saved": fate.state,
            },
        }


class Variant(NamedTuple):
    """What changes in one split and environment of one spec."""

    file: str
    """Its path in the folders that are compared; empty if two files are compared."""
    split: str | None
    env: str | None
    report: DiffReport | None
    note: str = ""
    """Why there is no report: only one side has it, or it has problems."""
    is_error: bool = False
    is_same: bool = False
    """Whether nothing differs, as far as known."""
    left_out: int = 0
    """How many splits and environments were not compared, if it stands for these."""

    @property
    def name(self) -> str:
        """The split and the environment in words."""
        split = f"split `{self.split}`" if self.split else ""
        if self.left_out:
            return output.pluralize(self.left_out, "other combination")
        env = f"environment `{self.env}`" if self.env else "" if split else "no environment"
        return ", ".join(filter(None, (split, env)))

    @property
    def summary(self) -> str:
        """What changes, in a line."""
        if self.left_out:
            return "not compared: choose with --split and --env"
        if self.report is None:
            return self.note
        diff = self.report.diff
        if diff.is_empty:
            return "no differences"
        keys = [each.key for each in diff.settings]
        keys += [f"`{each.name}` {each.change}" for each in diff.sources if each.change != "same"]
        shown = ", ".join(keys[:_MOST_KEYS]) + (
            f" and {len(keys) - _MOST_KEYS} more" if keys[_MOST_KEYS:] else ""
        )
        return shown or ("the order" if diff.order_changes else "the samples")


@dataclass(frozen=True)
class DiffsReport:
    """The differences of several splits and environments, or of the specs of two folders."""

    old: str
    new: str
    is_folder: bool
    variants: tuple[Variant, ...]

    @classmethod
    def of(
        cls, sides: tuple[Place, Place], pairs: Iterable[Pair], ranks: int | None, workers: int | None
    ) -> DiffsReport:
        """Compare all pairs."""
        is_folder = sides[0].is_folder
        found = []
        for pair in pairs:
            side = pair.new or pair.old
            assert side is not None, "at least one side has it"
            file = os.path.relpath(side.choice.file, sides[side is pair.new].choice.file) if is_folder else ""
            variant = Variant(file, side.choice.split, side.choice.env, None)
            if pair.left_out:
                found.append(variant._replace(left_out=pair.left_out))
                continue
            if pair.old is None or pair.new is None:
                found.append(variant._replace(note="removed" if pair.new is None else "added"))
                continue
            try:
                diff = SpecDiff(pair.old.side(ranks, workers), pair.new.side(ranks, workers))
                shown = DiffReport(diff, fate_of_state(diff))
                found.append(variant._replace(report=shown, is_same=shown.is_empty))
            except SpecError as error:
                found.append(variant._replace(note=_in_a_line(error), is_error=True))
            except WdspecError as error:  # a pass opens its shards, which may be out of reach
                old, new = (place.load().model_dump(mode="json") for place in (pair.old, pair.new))
                note = f"{'the same' if old == new else 'other'} keys; the data was not compared: {_in_a_line(error)}"
                found.append(variant._replace(note=note, is_error=old != new, is_same=old == new))
        return cls(sides[0].label, sides[1].label, is_folder, tuple(found))

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return all(each.is_same for each in self.variants)

    @property
    def left_out(self) -> int:
        """How many splits and environments were not compared."""
        return sum(each.left_out for each in self.variants)

    @property
    def has_errors(self) -> bool:
        """Whether something could not be compared."""
        return any(each.is_error for each in self.variants)

    def blocks(self) -> Iterator[Block]:
        yield f"{self.old} → {self.new}"
        if not self.variants:
            yield "no specs"
        columns: dict[str, Callable[[Variant], str]] = (
            {"spec": lambda each: each.file} if self.is_folder else {}
        )
        columns["split and environment"] = lambda each: each.name
        columns["what changes"] = lambda each: each.summary
        columns["a saved state resumes"] = lambda each: each.report.fate.resumes if each.report else ""
        yield table_of(self.variants, columns)
        if self.is_folder:
            files = {each.file for each in self.variants}
            changed = {each.file for each in self.variants if not each.is_same and not each.left_out}
            counted = f"{len(changed):,} of {output.pluralize(len(files), 'spec')}"
            yield f"{counted} differ; `wdspec diff` of the two files of a spec shows how"
            return
        shown: dict[str, Variant] = {}
        for each in self.variants:
            if each.report is None or each.is_same:
                continue
            blocks = list(each.report.blocks())[1:]
            first = shown.setdefault(repr(blocks), each)
            yield f"{each.name}:" if first is each else f"{each.name}: as {first.name}"
            yield from blocks if first is each else ()

    def as_json(self) -> dict[str, Any]:
        """The object of each variant, with its names."""
        return {
            "old": self.old,
            "new": self.new,
            "same": self.is_empty,
            "not_compared": self.left_out,
            "variants": [
                {
                    **({"spec": each.file} if self.is_folder else {}),
                    "split": each.split,
                    "env": each.env,
                    "note": each.note,
                    **(each.report.as_json() if each.report else {"same": each.is_same}),
                }
                for each in self.variants
                if not each.left_out
            ],
        }


def _in_a_line(error: Exception) -> str:
    if isinstance(error, SpecError) and error.problems:
        first = error.problems[0]
        return f"{first.code} at {first.position}: {first.message}"
    return str(error).partition("\n")[0]


def _values(source: ExplainedSource | None) -> dict[str, Any] | None:
    names = ("share", "shards", "samples", "estimated", "expected", "passes")
    return None if source is None else {name: getattr(source, name) for name in names}


def _tables(diff: SpecDiff) -> Iterator[Block]:
    changed = [each for each in diff.sources if each.change != "same"]
    settings = [("", each) for each in diff.settings]
    rows = [*settings, *((source.name, key) for source in changed for key in source.keys)]
    if rows:
        yield Table(("source", "key", "before", "after"), [(name, *cells(key)) for name, key in rows])
    if changed:
        yield _mixture(diff, changed)
        unchanged = len(diff.sources) - len(changed)
        if unchanged:
            yield f"{output.pluralize(unchanged, 'source')} unchanged"
    changes = [line for line in diff.order_changes if not line.startswith("schedule.batch ")]
    if len(changes) < len(diff.order_changes):  # a ramp has many parts, which are not in the spec
        batches = re.findall(r"^schedule\.batch (\d+)", "\n".join(diff.order_changes), re.MULTILINE)
        start = start_in_words(diff.new.explanation, min(map(int, batches)))
        changes.append(f"schedule: other shares from {start} on")
    if changes:
        yield Table((), shorten(changes), "the order changes by")


def _mixture(diff: SpecDiff, changed: list[SourceChange]) -> Table:
    endless = any(side.explanation.epoch_samples is None for side in (diff.old, diff.new))
    per = f"per {PER_UNENDING:,}" if endless else "per epoch"
    columns: dict[str, Callable[[SourceChange], str]] = {
        "source": lambda each: each.either.indented,
        "change": lambda each: each.change,
        "share>": _both(lambda each: output.percent(each.share)),
        "shards>": lambda each: _both(lambda side: output.number(side.shards or 0))(each) + _show_moved(each),
        "samples>": _both(lambda each: "?" if each.samples is None else output.number(round(each.samples))),
        f"{per}>": _both(lambda each: output.number(each.expected)),
    }
    if not endless:
        columns["passes>"] = _both(lambda each: "?" if each.passes is None else f"{each.passes:.3g}")
    return table_of(changed, columns, "the mixture, before → after")


def _both(cell: Callable[[ExplainedSource], str]) -> Callable[[SourceChange], str]:
    """`before → after`, or one cell if both are the same or only one exists."""

    def show(each: SourceChange) -> str:
        old, new = (None if side is None else cell(side) for side in (each.old, each.new))
        if old is None or new is None or old == new:
            return old if new is None else new  # type: ignore[return-value]
        return f"{old} → {new}"

    return show


def _show_moved(each: SourceChange) -> str:
    rewritten = f" ({each.rewritten_shards:,} rewritten)" if each.rewritten_shards else ""
    if each.added_shards is None:
        return f" (others){rewritten}"
    if each.change != "changed" or not (each.added_shards or each.removed_shards):
        return rewritten
    return f" (+{each.added_shards:,} −{each.removed_shards:,}){rewritten}"


def draw(diff: SpecDiff, file: str) -> None:
    """Draw the chart; the sources whose shares differ most come first.

    Raises:
        UsageError: matplotlib is not installed, or the file is not named *.svg.
    """
    if not file.endswith(".svg"):
        raise UsageError(f"--chart draws SVG; name a file that ends in .svg, not {file}")
    require_library("matplotlib", "--chart", "wdspec[charts]")
    from matplotlib.figure import Figure

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
            label=chart_text(side.label),
        )
        axes.bar_label(bars, fmt="%.2f%%", padding=3, fontsize=8)
    axes.set_yticks(list(places), [chart_text(row[0]) for row in shares])
    axes.set_xlabel("share of the samples, %")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    save(file, drawn.getvalue())
