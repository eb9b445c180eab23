"""The differences of two records of runs (`wdspec.log_run`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wdspec.base.amounts import join_names
from wdspec.base.errors import UsageError
from wdspec.cli.diff_facts import KeyChange, cells, changes_of, compare_locks, flatten, shorten
from wdspec.cli.output import Block, Table, number
from wdspec.planning.digest import differences, samples_differences
from wdspec.run.record import read_record
from wdspec.shards.lock import Lock


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
        changes = (found for name, found in self.changes.items() if name != "read")
        return not any((*changes, self.order, self.lock)) and self.old["samples"] == self.new["samples"]

    @cached_property
    def changes(self) -> dict[str, list[KeyChange]]:
        """What differs in the spec, whose sources are matched by name, and around it."""
        read = ("batches", "epoch", "ranks", "samples")
        old, new = (
            {
                "spec": _by_name(side["spec"]),
                **{name: side[name] for name in ("topology", "versions", "environment")},
                "read": {name: side["read"].get(name) for name in read},
            }
            for side in (self.old, self.new)
        )
        return {name: list(changes_of(flatten(each), flatten(new[name]))) for name, each in old.items()}

    @property
    def order(self) -> list[str]:
        """A line for each change of the order."""
        return list(differences(self.old["order"], self.new["order"]))

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
        for name, changes in self.changes.items():
            if changes:
                title = "what was read" if name == "read" else name
                yield Table(("key", "before", "after"), [cells(each) for each in changes], title)
        for title, lines in (("shards, by the locks", self.lock), ("the order changes by", self.order)):
            if lines:
                yield Table((), shorten(lines), title)
        if self.old["samples"] != self.new["samples"]:
            changed = join_names(samples_differences(self.old["samples"], self.new["samples"]))
            yield f"The samples are others: {changed} changed."

    def as_json(self) -> dict[str, Any]:
        return {
            "old": self.old_name,
            "new": self.new_name,
            "same": self.is_empty,
            **self.changes,
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
            found = zip(
                compare_locks(locks[0][name], locks[1][name]), ("added", "removed", "rewritten"), strict=True
            )
            parts += [f"{number(count)} shards {what}" for count, what in found if count]
        if parts:
            yield f"{name}: {', '.join(parts)}"


def _by_name(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with its sources, and those of nested mixes, as a map by name."""
    named = dict(spec)
    for source in named.pop("dataset", None) or ():
        rest = {key: value for key, value in source.items() if key != "name"}
        named[f"dataset.{source.get('name')}"] = _by_name(rest)
    return named
