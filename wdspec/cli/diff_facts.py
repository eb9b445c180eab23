"""The differences of two planned specs, and how states of the old one resume with the new one."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from wdspec.advice.explanation import ExplainedSource, Explanation
from wdspec.advice.traffic import Traffic, find_traffic
from wdspec.base.amounts import join_names
from wdspec.base.redaction import without_secrets
from wdspec.cli.state import describe_state, read_state
from wdspec.planning.digest import (
    EXPAND_UP_TO,
    describe_order,
    describe_samples,
    differences,
    reads_alike,
    samples_differences,
    with_unsaid,
)
from wdspec.planning.past import name_of_section, why_not_finished
from wdspec.planning.topology import Seat
from wdspec.shards.lock import Lock, LockedSource, difference
from wdspec.spec.files import ReadFile, read_from_disk
from wdspec.spec.language.values import FilePath, Model
from wdspec.spec.paths import paths_of
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import UrlSequence

if TYPE_CHECKING:
    from wdspec.run.run import Run

_SHOWN_ELSEWHERE = frozenset({"dataset", "split", "environment", "shards", "name"})


@dataclass(frozen=True)
class KeyChange:
    """A key whose value differs; None if a side does not have the key."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class SourceChange:
    """A source, or a nested mix, on both sides."""

    name: str
    old: ExplainedSource | None
    new: ExplainedSource | None
    added_shards: int | None = None
    """Shards that only the new side has; None if there are too many to compare."""
    removed_shards: int | None = None
    rewritten_shards: int | None = None
    """Shards whose bytes changed; None without locks, which record that."""
    keys: tuple[KeyChange, ...] = ()

    @property
    def either(self) -> ExplainedSource:
        """The source on the new side, else on the old side."""
        source = self.new or self.old
        assert source is not None, "at least one side has it"
        return source

    @property
    def change(self) -> str:
        """`added`, `removed`, `changed` or `same`."""
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        mixture = [(each.share, each.shards, each.samples) for each in (self.old, self.new)]
        moved = self.added_shards != 0 or self.removed_shards != 0
        differs = self.keys or moved or self.rewritten_shards or mixture[0] != mixture[1]
        return "changed" if differs else "same"


@dataclass(frozen=True)
class Side:
    """One of the two specs."""

    label: str
    explanation: Explanation
    lock: Lock | None = None
    """The lock of the spec at that time, if it has one."""
    stale: str = ""
    """Why the lock was not used."""
    read: ReadFile = read_from_disk
    """Reads files of its spec."""

    @property
    def spec(self) -> Spec:
        """The spec."""
        return self.explanation.spec

    @cached_property
    def order(self) -> Mapping[str, Any]:
        """What its order depends on, as JSON values, as in a state."""
        text = json.dumps(describe_order(self.spec, self.explanation.plan, self.explanation.shards.files))
        order: Mapping[str, Any] = json.loads(text)
        return order

    @cached_property
    def samples(self) -> str:
        """A digest of what is done to its samples, as in a state."""
        return describe_samples(self.spec, self.explanation.shards.files)

    @cached_property
    def traffic(self) -> Traffic | None:
        """What an epoch reads; None if the sizes of shards are not known."""
        return find_traffic(self.explanation, self.read)

    @cached_property
    def sources(self) -> Mapping[str, ExplainedSource]:
        """Sources and nested mixes by name."""
        return {each.name: each for each in self.explanation.sources}

    @cached_property
    def keys(self) -> Mapping[str, Source]:
        """The keys of sources and nested mixes, by name."""
        everything = [*self.spec.sources, *(mix for source in self.spec.dataset for mix in source.mixes)]
        return {each.name: each for each in everything}

    def shards(self, name: str) -> UrlSequence:
        """The shards of a source; none if it is not read."""
        for source in self.explanation.plan.sources:
            if source.name == name and isinstance(source.shards, UrlSequence):
                return source.shards
        return UrlSequence(())


@dataclass(frozen=True)
class SpecDiff:
    """Everything that `wdspec diff` reports."""

    old: Side
    new: Side

    @cached_property
    def settings(self) -> list[KeyChange]:
        """Top-level keys whose values differ, also those of companions."""
        old, new = self.old.spec, self.new.spec
        found = list(self._compare_keys(old, new, _SHOWN_ELSEWHERE | {"companions"}))
        for name in dict.fromkeys((*new.companions, *old.companions)):
            changes = self._compare_keys(old.companions.get(name), new.companions.get(name), frozenset())
            found += [replace(change, key=f"companions.{name}.{change.key}") for change in changes]
        return found

    @cached_property
    def sources(self) -> list[SourceChange]:
        """In the order of the new spec; removed sources last."""
        return [self._source(name) for name in dict.fromkeys((*self.new.sources, *self.old.sources))]

    @cached_property
    def order_changes(self) -> list[str]:
        """A line for each change of the order; none if both yield the same samples in the same order."""
        return list(differences(self.old.order, self.new.order, spec=self.new.spec))

    @cached_property
    def samples_change(self) -> bool:
        """Whether decoding or another step turns the same bytes into other samples."""
        return self.old.samples != self.new.samples

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (
            self.settings
            or self.order_changes
            or self.samples_change
            or any(each.change != "same" for each in self.sources)
        )

    def renamed(self) -> Iterator[tuple[str, str]]:
        """Old and new name of removed and added sources with the same shards."""
        old, new = self.old.order["sources"], self.new.order["sources"]
        changes = {each.name: each.change for each in self.sources}
        gone = {old[name]["shards"]: name for name in changes if changes[name] == "removed" and name in old}
        for name, change in changes.items():
            if change == "added" and name in new and new[name]["shards"] in gone:
                yield gone[new[name]["shards"]], name

    def _source(self, name: str) -> SourceChange:
        old, new = self.old.sources.get(name), self.new.sources.get(name)
        keys: tuple[KeyChange, ...] = ()
        if old is not None and new is not None:
            keys = tuple(self._compare_keys(self.old.keys[name], self.new.keys[name]))
        added, removed = _count_moved(self.old.shards(name), self.new.shards(name))
        return SourceChange(name, old, new, added, removed, self._count_rewritten(name), keys)

    def _compare_keys(
        self, old: Model | None, new: Model | None, hidden: frozenset[str] = _SHOWN_ELSEWHERE
    ) -> Iterator[KeyChange]:
        """The keys whose values differ. A path that is the same from the files of both specs is the same.

        Args:
            old, new: the models; None on a side that has none.
            hidden: keys that are left out.
        """
        before, after = (
            {} if each is None else flatten(each.model_dump(mode="json", by_alias=True, exclude={*hidden}))
            for each in (old, new)
        )
        for change in changes_of(before, after):
            if old is not None and change.old and change.new and _is_path(type(old), change.key):
                places = zip(
                    (change.old, change.new), (self.old.spec.folder, self.new.spec.folder), strict=True
                )
                if len({os.path.relpath(path, folder) for path, folder in places}) == 1:
                    continue
            yield change

    def _count_rewritten(self, name: str) -> int | None:
        """Number of shards on both sides whose bytes differ according to the locks."""
        if self.old.lock is None or self.new.lock is None:
            return None
        before, now = self.old.lock.sources.get(name), self.new.lock.sources.get(name)
        if before is None or now is None:
            return None
        return compare_locks(before, now)[2]


def _count_moved(old: UrlSequence, new: UrlSequence) -> tuple[int | None, int | None]:
    """Number of shards that were added and removed; None if there are too many to count."""
    if old == new:
        return 0, 0
    if max(len(old), len(new)) > 16 * EXPAND_UP_TO:
        return None, None
    before, after = Counter(old.texts()), Counter(new.texts())
    return (after - before).total(), (before - after).total()


def changes_of(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[KeyChange]:
    """The keys whose texts differ, in the order of the new side; removed keys last."""
    for key in dict.fromkeys((*after, *before)):
        if before.get(key) != after.get(key):
            yield KeyChange(key, before.get(key), after.get(key))


def compare_locks(before: LockedSource, now: LockedSource) -> tuple[int, int, int]:
    """Return how many shards of a source were added, removed and rewritten between two locks."""
    known, seen = (dict(zip(each.shards("").texts(), each.objects, strict=True)) for each in (before, now))
    moved, both = before.via != now.via, known.keys() & seen.keys()
    rewritten = sum(difference(known[text], seen[text], moved) is not None for text in both)
    return len(seen) - len(both), len(known) - len(both), rewritten


def cells(change: KeyChange) -> tuple[str, str, str]:
    """Return a key and its values, which are cut, for a table."""
    old, new = (
        "–" if text is None else text if len(text) <= 60 else f"{text[:57]}…"
        for text in (change.old, change.new)
    )
    return change.key, old, new


def shorten(lines: Sequence[str], most: int = 40) -> list[tuple[str]]:
    """Return the first lines as rows of a table, and how many more there are."""
    more = [f"and {len(lines) - most:,} more"] if len(lines) > most else []
    return [(line,) for line in (*lines[:most], *more)]


def _is_path(model: type[Model], key: str) -> bool:
    """Whether the value of a key in a model, as `flatten` names it, is a path relative to the file."""
    kind: FilePath | type[Model] | None = model
    for name in re.sub(r"\[[^]]*\]", "", key).split("."):
        if kind is None or isinstance(kind, FilePath):
            break
        kind = paths_of(kind).get(name)
    return isinstance(kind, FilePath)


def flatten(value: Any, key: str = "") -> dict[str, str]:
    """The values of a dumped model as texts, by dotted key; without empty values.

    Steps of a schedule are named by their `at`, other maps in lists by their index.
    """
    named: dict[str, Any] = {}
    if isinstance(value, dict):
        named = {f"{key}.{name}" if key else name: each for name, each in value.items()}
    elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        for number, each in enumerate(value):
            at = each.get("at")
            if isinstance(at, dict):  # `{tokens: 200000}`
                at = " ".join(f"{count} {unit}" for unit, count in at.items())
            named[f"{key}[{number}]" if at is None else f"{key}[at {at}]"] = each
    if named:
        return {name: text for part, each in named.items() for name, text in flatten(each, part).items()}
    if value is None or value == []:
        return {}
    value = without_secrets(value)
    return {key: value if isinstance(value, str) else json.dumps(value)}


@dataclass(frozen=True)
class Section:
    """What happens to slots that are inside a window, a section of groups, or the input of a stage."""

    name: str
    """What they are inside of, in words."""
    why: str
    """Why it cannot be finished as it began; empty if it can."""
    slots: int | None = None
    """How many slots; None without a state."""

    @property
    def fate(self) -> str:
        """What happens, in words."""
        if not self.why:
            return "is finished as it began: no sample is lost or repeated"
        return f"starts again: some samples are repeated, because {self.why}"


@dataclass(frozen=True)
class StateFate:
    """Whether a state resumes with the new spec, and how."""

    resumes: str
    """`exactly`; `other samples`: in the same order; `if allowed`: with `allow_changed=True`; `no`."""
    why: str
    sources: Mapping[str, str]
    """How each source resumes; empty if all resume exactly, or none does."""
    sections: tuple[Section, ...] = ()
    """What happens to open windows, groups, and inputs of a stage; empty if all is finished by the same spec."""
    state: Mapping[str, Any] | None = None
    """Description of the saved state, if given."""
    passes: tuple[str, ...] = ()
    """A line for each source that will be read more or less often than its `max_passes` says."""


def fate_of_state(diff: SpecDiff, file: str | None = None) -> StateFate:
    """How a saved state resumes with the new spec, or any state of the old spec.

    Raises:
        UsageError: the file has no state, states of several runs, or a damaged state.
    """
    before, now, saved, description = diff.old.order, diff.new.order, None, None
    samples = diff.old.samples
    if file is not None:
        saved = read_state(file)
        before, samples = json.loads(saved["order"]), saved["samples"]
        description = describe_state(saved)
    has_same_samples = samples == diff.new.samples
    if has_same_samples:
        before = with_unsaid(before, now)
    if before["elastic"] != now["elastic"]:
        was = "`elastic: {{ranks: {ranks}, workers: {workers}}}`".format(**before["elastic"])
        why = f"the canonical topology differs: write {was} in the new spec, or --ranks"
        return StateFate("no", why, {}, state=description)
    if not any(differences(before, now)):
        if has_same_samples:
            return StateFate("exactly", "same order, same samples", {}, state=description)
        changed = join_names(samples_differences(samples, diff.new.samples, diff.new.spec))
        why = f"same order, but other samples: {changed} changed"
        return StateFate("other samples", why, {}, state=description)
    sections = tuple(_sections(diff.new, before, saved))
    starts_again = any(section.why for section in sections)
    names = dict.fromkeys((*now["sources"], *before["sources"]))
    fates = {name: _fate(name, before, now, starts_again) for name in names}
    passes = tuple(_passes(diff.new, before, saved)) if saved is not None else ()
    return StateFate("if allowed", "the order differs", fates, sections, description, passes)


def _passes(side: Side, before: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    """What resuming with a spec means for the `max_passes` of its sources."""
    if side.explanation.plan.exhausted:
        from wdspec.run.resume import describe_passes

        yield from describe_passes(saved, _run_of(side), before, side.order)


def _sections(side: Side, before: Mapping[str, Any], saved: Mapping[str, Any] | None) -> Iterator[Section]:
    """What happens to what slots are inside of when they resume with a spec; of all kinds of states without one."""
    name = name_of_section(before)
    if not name or "pass" in side.order:
        return
    if saved is None:
        yield Section(name, why_not_finished(before, side.order) or "")
        return
    from wdspec.run.resume import Resume

    for why, slots in (
        Resume(saved, _run_of(side), before, side.order, allow_changed=True).count_open().items()
    ):
        yield Section(name, why, slots)


def _run_of(side: Side) -> Run:
    """The run of a spec in one process."""
    from wdspec.run.run import make_run

    return make_run(side.explanation.plan, side.explanation.spec, side.explanation.shards, Seat())


def _fate(name: str, before: Mapping[str, Any], now: Mapping[str, Any], starts_again: bool) -> str:
    """How a source resumes with `allow_changed`; see `run/resume.py`."""
    if name not in now["sources"]:
        return "is removed"
    if now.get("pass", {}).get("reshuffle"):
        return "begins its epoch anew: samples that were read in it may be repeated"
    if "pass" in now:
        return "continues at the same global batch of the pass: samples may be left out or repeated"
    if name not in before["sources"] or "pass" in before:
        return "starts at its first sample"
    if not reads_alike(name, before, now):
        return "resumes at the start of the shards it was reading: some samples are repeated"
    if starts_again:
        return "resumes exactly, from the start of what starts again"
    return "resumes exactly: no sample is lost or repeated"
