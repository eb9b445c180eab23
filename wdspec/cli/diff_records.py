"""The differences of two records of runs (`wdspec.log_run`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wdspec.base.amounts import join_names
from wdspec.base.errors import UsageError
from wdspec.cli.diff_facts import KeyChange, changes_of, flatten
from wdspec.cli.output import Block, Table, number
from wdspec.planning.digest import differences, samples_differences
from wdspec.run.record import read_record
from wdspec.shards.lock import Lock, difference

_MOST_LINES = 40


@dataclass(frozen=True)
class RecordDiff:
    """What differs between two records."""

    old_name: str
    new_name: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]

    @property
    def is_empty(self) -> bool:
        """Whether both runs read the same, in the same way. What they have read so far, and when, does not count."""
        changes = (self.spec, self.order, self.lock, self.topology, self.versions, self.environment)
        return not any(changes) and self.old["samples"] == self.new["samples"]

    @property
    def spec(self) -> list[KeyChange]:
        """Keys of the spec whose values differ; sources are matched by name."""
        return list(_changes(_by_name(self.old["spec"]), _by_name(self.new["spec"])))

    @property
    def order(self) -> list[str]:
        """A line for each change of the order."""
        return list(differences(self.old["order"], self.new["order"]))

    @property
    def topology(self) -> list[KeyChange]:
        """Numbers of ranks and workers that differ."""
        return list(_changes(self.old["topology"], self.new["topology"]))

    @property
    def versions(self) -> list[KeyChange]:
        """Versions that differ."""
        return list(_changes(self.old["versions"], self.new["versions"]))

    @property
    def environment(self) -> list[KeyChange]:
        """The environment of the spec, and variables, that differ."""
        return list(_changes(self.old["environment"], self.new["environment"]))

    @property
    def read(self) -> list[KeyChange]:
        """What both runs had read, where that differs."""
        names = ("batches", "epoch", "ranks", "samples")
        sides = ({name: side["read"].get(name) for name in names} for side in (self.old, self.new))
        return list(_changes(*sides))

    @property
    def lock(self) -> list[str]:
        """A line for each source whose shards differ, by the locks."""
        old, new = (side.get("lock") or {} for side in (self.old, self.new))
        if old.get("digest") == new.get("digest"):
            return []
        if not old or not new:
            return [f"only {self.new_name if new else self.old_name} has a lock"]
        return list(_lock_changes(old, new)) or ["shards were rewritten"]

    def blocks(self) -> Iterator[Block]:
        yield f"{self.old_name} → {self.new_name}"
        if self.is_empty:
            yield "both runs read the same, in the same order"
        for title, changes in (
            ("spec", self.spec),
            ("topology", self.topology),
            ("versions", self.versions),
            ("environment", self.environment),
            ("what was read", self.read),
        ):
            if changes:
                rows = [(each.key, _cut(each.old), _cut(each.new)) for each in changes]
                yield Table(("key", "before", "after"), rows, title)
        for title, lines in (("shards, by the locks", self.lock), ("the order changes by", self.order)):
            if lines:
                shown = [(line,) for line in lines[:_MOST_LINES]]
                if len(lines) > _MOST_LINES:
                    shown.append((f"and {len(lines) - _MOST_LINES:,} more",))
                yield Table((), shown, title)
        if self.old["samples"] != self.new["samples"]:
            changed = join_names(samples_differences(self.old["samples"], self.new["samples"]))
            yield f"The samples are others: {changed} changed."

    def as_json(self) -> dict[str, Any]:
        return {
            "old": self.old_name,
            "new": self.new_name,
            "same": self.is_empty,
            "spec": self.spec,
            "topology": self.topology,
            "versions": self.versions,
            "environment": self.environment,
            "read": self.read,
            "lock": self.lock,
            "order": {"same": not self.order, "changes": self.order},
            "samples": {"same": self.old["samples"] == self.new["samples"]},
        }


def diff_of_records(old: str, new: str) -> RecordDiff | None:
    """Return the differences of two records of runs; None if neither file is one.

    Raises:
        UsageError: only one of the files is a record, or a record is damaged.
    """
    before, now = read_record(old), read_record(new)
    if before is None and now is None:
        return None
    if before is None or now is None:
        raise UsageError(
            f"{old if before is None else new} is not a record of a run, and the other file is one; compare two "
            "records (`wdspec.log_run(loader, FILE)`), or two specs"
        )
    return RecordDiff(old, new, before, now)


def _lock_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each source that differs: its shards, its size, and which shards were rewritten."""
    for side in (old, new):
        if "error" in side:
            yield f"{side['file']}: {side['error']}"
    before, now = old.get("sources", {}), new.get("sources", {})
    locks = [
        Lock.of_text(side["text"].encode(), side["file"]).sources if "text" in side else {}
        for side in (old, new)
    ]
    for name in dict.fromkeys((*now, *before)):
        was, seen = before.get(name), now.get(name)
        if was is None or seen is None:
            yield f"{name}: {'added' if was is None else 'removed'}"
            continue
        parts = [
            f"{number(was[key])} → {number(seen[key])} {key}"
            for key in ("shards", "bytes")
            if was[key] != seen[key] and None not in (was[key], seen[key])
        ]
        if name in locks[0] and name in locks[1]:
            objects = [
                dict(zip(lock[name].shards("").texts(), lock[name].objects, strict=True)) for lock in locks
            ]
            known, found = objects
            moved = locks[0][name].via != locks[1][name].via
            both = known.keys() & found.keys()
            rewritten = sum(difference(known[text], found[text], moved) is not None for text in both)
            counts = ((len(found) - len(both), "added"), (len(known) - len(both), "removed"))
            parts += [
                f"{number(count)} shards {what}"
                for count, what in (*counts, (rewritten, "rewritten"))
                if count
            ]
        if parts:
            yield f"{name}: {', '.join(parts)}"


def _by_name(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with its sources, and those of nested mixes, as a map by name."""
    named = dict(spec)
    for source in named.pop("dataset", None) or ():
        rest = {key: value for key, value in source.items() if key != "name"}
        named[f"dataset.{source.get('name')}"] = _by_name(rest)
    return named


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[KeyChange]:
    return changes_of(flatten(dict(old)), flatten(dict(new)))


def _cut(text: str | None) -> str:
    return "–" if text is None else text if len(text) <= 60 else f"{text[:57]}…"
