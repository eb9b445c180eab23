"""The job of `wdspec lock --objects`: ask stores about the objects that samples name (`fetch`).

What stores say is appended to a file beside the lock, `train.lock.objects.partial`, so an interrupted job continues
from there. Its sorted records are `train.lock.objects` (`storage/known_objects.py`). This process takes about 250 bytes
for each object.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from wdspec.base.errors import FieldError, UsageError, warn_user
from wdspec.base.progress import progress
from wdspec.jobs.lock import Change
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.fetching import REQUESTS, FetchedField
from wdspec.read.object_count import iter_objects
from wdspec.read.transform import parts_of
from wdspec.shards.lock import Lock, LockedObjects, objects_name
from wdspec.shards.shards import Shards, list_shards
from wdspec.spec.spec import Source, Spec
from wdspec.storage.ahead import side_by_side
from wdspec.storage.environment import Environment
from wdspec.storage.known_objects import (
    KEY,
    SIZE,
    KnownObjects,
    find_change,
    is_identified,
    key_of,
    make_record,
)
from wdspec.storage.objects import MissingObject, Reference
from wdspec.storage.storage import Storage
from wdspec.stores.outputs import save
from wdspec.stores.store import ObjectStat

_AT_ONCE = 4096
"""Objects that are asked about before what was said is written."""


class NamedObject(NamedTuple):
    """An object, and the first sample that names it."""

    key: bytes
    """The hash of its name."""
    source: Source
    budget: ErrorBudget
    """That of the source."""
    shard: str
    sample: str
    field: FetchedField
    reference: Reference


class Answer(NamedTuple):
    """What a store says about an object."""

    location: str
    """Where it is read from."""
    stat: ObjectStat


@dataclass
class ObjectJob:
    """Asks about the objects of a spec, each once.

    Args:
        lock: of the spec.
        spec: the spec.
        path: of the lock.

    Raises:
        UsageError: no source has `fetch`.
    """

    lock: Lock
    spec: Spec
    path: str

    def __post_init__(self) -> None:
        if not any(source.fetch for source in self.spec.collections):
            raise UsageError("no source has `fetch`, so samples name no objects; run it without --objects")
        self.objects_path = objects_name(self.path)
        self._partial = f"{self.objects_path}.partial"
        self.named: set[bytes] = set()
        """The keys of all objects that samples name."""
        self.lacking: Counter[str] = Counter()
        """Objects that are `missing`, and those that `failed`: a store does not answer, and `errors` skips them."""

    def record(self, update: bool) -> Lock:
        """Ask about the objects of which nothing was recorded, and write the file; return the lock with it.

        Args:
            update: whether to ask about all objects.

        Raises:
            WdspecError: a shard cannot be read, a store does not answer, or an object is missing, unless the spec
                allows it.
            OSError: the file cannot be written.
        """
        if update:
            with suppress(FileNotFoundError):
                os.remove(self._partial)
        records = self._known_records(update)
        known = {records[at : at + KEY] for at in range(0, len(records), SIZE)}
        with open(self._partial, "ab") as file:
            if not file.tell():
                file.write(records)
            for batch in self._ask(known):
                file.writelines(
                    make_record(named.reference.url, named.source.base, *answer)
                    for named, answer in batch
                    if answer is not None
                )
                file.flush()
        return self._finish()

    def _known_records(self, update: bool) -> bytes:
        """Return what an interrupted job recorded, or else the records of the lock."""
        with suppress(FileNotFoundError), open(self._partial, "r+b") as file:
            file.truncate(os.path.getsize(self._partial) // SIZE * SIZE)  # it was killed within a record
            return file.read()
        if update or self.lock.objects is None:
            return b""
        try:
            self.lock.objects.check(self.objects_path)
        except UsageError as error:
            warn_user(f"stores are asked about all objects again: {error}")
            return b""
        with open(self.objects_path, "rb") as file:
            return file.read()

    def _finish(self) -> Lock:
        """Sort the records of the objects that samples name into the file."""
        with open(self._partial, "rb") as file:
            found = iter(partial(file.read, SIZE), b"")
            kept = sorted(row for row in found if row[:KEY] in self.named)
        save(self.objects_path, b"".join(kept))
        unknown = sum(not is_identified(row) for row in kept)
        return replace(self.lock, objects=LockedObjects.of_file(self.objects_path, unknown))

    def forget_progress(self) -> None:
        """Remove what only an interrupted job needs, after the lock was saved."""
        os.remove(self._partial)

    def find_changes(self, compared: Counter[str]) -> Iterator[Change]:
        """Yield the objects that differ from the lock: missing, new, or with other bytes.

        Args:
            compared: gets how many objects were compared by their `ETag`, `time`, `size` or `name`.

        Raises:
            UsageError: the lock has no objects, or their file is missing or damaged.
            WdspecError: as `record`.
        """
        if self.lock.objects is None:
            raise UsageError("it has no objects; `wdspec lock --objects SPEC` records them", file=self.path)
        self.lock.objects.check(self.objects_path)
        bases = {source.base for source in self.spec.collections}
        known = {base: KnownObjects(self.objects_path, base, self.path) for base in bases}
        for named, answer in chain.from_iterable(self._ask(set(), allow_missing=True)):
            base = named.source.base
            record = known[base].find(named.reference.url)
            change = None
            if answer is not None and record is not None:
                change, basis = find_change(record, base, *answer)
                compared[basis] += 1
            elif answer is not None or record is not None:
                change = "gone" if answer is None else "new"
            if change is not None:
                yield Change(named.source.name, named.reference.url, change)

    def _ask(
        self, known: set[bytes], allow_missing: bool = False
    ) -> Iterator[list[tuple[NamedObject, Answer | None]]]:
        """Yield the objects that are not known, in parts, each with what its store says; None if it has none.

        Args:
            known: the keys of objects that are not asked about.
            allow_missing: whether objects may be missing even where this is an error for a run.
        """
        shards = list_shards(self.spec, frozen=self.lock.shards(self.spec), storage_of=self._reach)
        total = sum(len(shards.lists[source.name]) for source in self.spec.collections if source.fetch)
        with progress("asking about objects of shards", total, named=("{:,} objects", 0)) as bar:
            named = self._iter_named(shards, lambda: bar.advance(named=len(self.named)))
            new = (each for each in named if each.key not in known)
            while batch := list(islice(new, _AT_ONCE)):
                answers = list(side_by_side(_ask_store, batch, REQUESTS))
                yield [
                    (each, self._judge(each, answer, allow_missing))
                    for each, answer in zip(batch, answers, strict=True)
                ]

    def _reach(self, environment: Environment, spec: Spec, source: Source) -> Storage:
        """Return how to reach a source, at the commits of the lock, and without cached copies."""
        storage = Storage.of(environment, spec, source)
        return replace(storage, pins=self.lock.sources[source.name].pins, cache=None)

    def _iter_named(self, shards: Shards, advance: Callable[[], None]) -> Iterator[NamedObject]:
        """Yield the objects that samples name, each once; `advance` is called after each shard."""
        parts = parts_of(self.spec, shards)
        for source in self.spec.collections:
            budget = ErrorBudget(source.errors, source.name).without_log()
            for shard in shards.lists[source.name] if source.fetch else ():
                for sample, found in iter_objects(parts[source.name], shard):
                    for field, references in found:
                        for reference in references:
                            key = key_of(reference.url, source.base)
                            if key not in self.named:
                                self.named.add(key)
                                yield NamedObject(key, source, budget, shard.text, sample, field, reference)
                advance()

    def _judge(self, named: NamedObject, answer: Answer | Exception, allow_missing: bool) -> Answer | None:
        """Return an answer; None for an object that is missing, or that `errors` skips, which is counted."""
        if isinstance(answer, Answer):
            return answer
        is_missing = isinstance(answer, MissingObject)
        if is_missing and (allow_missing or named.field.missing != "error"):
            self.lacking["missing"] += 1
            return None
        error = named.field.lacking(answer.message, True) if isinstance(answer, MissingObject) else answer
        error = named.field.place(error, None) if isinstance(error, FieldError) else error
        named.budget(error, "decode", url=named.shard, key=named.sample)
        self.lacking["missing" if is_missing else "failed"] += 1
        return None


def _ask_store(named: NamedObject) -> Answer | Exception:
    try:
        return Answer(*named.field.reader.identify(named.reference))
    except Exception as error:
        return error
