"""The error policy of a source: an error is raised, or skipped and counted within a budget.

`errors: {log: FILE}` adds a line of JSON to a file for each skip, from any number of processes.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from multiprocessing import parent_process
from typing import Any, Self

from wdspec.base.errors import (
    FieldError,
    RefusedShardError,
    ShardError,
    SpecError,
    StoreError,
    UsageError,
    WdspecError,
    causes_of,
    find_lack,
    log_fields,
    tell_place,
)
from wdspec.base.files import lock_open_file
from wdspec.base.process import PerProcess
from wdspec.base.redaction import redact
from wdspec.spec.language.options import Errors
from wdspec.spec.language.values import SkipCause


def append_line(path: str, record: Mapping[str, Any]) -> None:
    """Append a record to a file as one line. The file and its folder are created if needed.

    A lock keeps the lines of several processes apart, even if the file system does not append atomically.

    Args:
        path: `~` is the home directory.
        record: values that JSON can hold.

    Raises:
        OSError: the file cannot be written.
    """
    line = memoryview(json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n")
    path = os.path.expanduser(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        lock_open_file(file, wait=True)
        while line:
            line = line[os.write(file, line) :]
    finally:
        os.close(file)


log = logging.getLogger("wdspec")

MIN_SAMPLES = 1000
"""The least number of samples for `max_rate`, so that one early error does not count as 100%."""
MISTAKES = (SpecError, UsageError, StoreError, ImportError)
"""Errors that every sample would raise. No policy skips them."""

_HOW_TO_SKIP = (
    "`errors: skip` leaves out and counts what cannot be read, decoded or measured; `wdspec check` lists damaged "
    "data"
)
_NO_SKIP = (
    "`errors: skip` skips faults in the data, not in code; to also skip samples on which a function of `map`, "
    "`select` or `decode` fails, write `skip: [shard, decode, map]` in `errors`"
)

_DISK_SECONDS, _DISK_SHARDS = 60.0, 3
"""A disk fails, not a shard, if this many shards or other files have errors of input within this time."""
_DISK_ERRORS = frozenset({errno.EIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN, errno.EREMOTEIO})
"""Errors of input: of a disk, of a network file system, or of one whose program has ended (FUSE)."""
_disk_errors: PerProcess[deque[tuple[float, object]]] = PerProcess(deque)
"""When, and in which shard or sample that names a file, this process had errors of input."""
_REFUSALS = 32
"""A login fails, not objects, if access to this many is denied in a row. Objects are refused one by one, too."""

PackedCounts = dict[str, Any]
"""Name of a counter -> its value, without those that are 0, in plain values, which are sent fast."""


@dataclass(eq=False)
class SourceCounts:
    """The counters of a source in a reading process, since it started to read the source.

    This is their only list. What is counted is sent and added up under its name, and `SourceStats` shows it if it has
    a field of that name.
    """

    delivered: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Samples dropped as the spec says (`select`, `missing: skip`, `skip`), by cause; these are not errors."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Skips by code (`code_of`)."""
    passes: int = 0
    """Passes that slots have finished, each over its part of the shards."""
    shards: int = 0
    cache_hits: int = 0
    bytes: int = 0
    cost: float = 0
    measured: int = 0
    """Samples in some of the windows from which batches by cost were planned; then their costs, and those squared."""
    measured_cost: float = 0
    measured_squares: float = 0
    unjoined: int = 0
    lost: int = 0
    """Objects of `fetch` that do not exist, where `missing` allows that."""

    def plus(self, counts: PackedCounts) -> Self:
        """Return the sum."""
        more = {name: Counter(each) if isinstance(each, dict) else each for name, each in counts.items()}
        return replace(self, **{name: getattr(self, name) + each for name, each in more.items()})


COUNTERS = tuple(each.name for each in fields(SourceCounts))


class ErrorBudget(SourceCounts):
    """The error policy of one source in one process, and its counts.

    A skip is allowed while ``skips ≤ max_count`` and ``skips ≤ max_rate · max(samples, 1000)``, where samples are those
    delivered or skipped so far in this process. Each worker process applies both limits to its own counts.
    """

    lack = ""
    """What the sample lacks that `missing: skip` of `fetch` dropped last, in words."""
    _shards_before = 0
    """The number of shards opened when the store last denied access."""
    refusals = 0
    """How many objects in a row access was denied to."""
    _said: frozenset[str] = frozenset()
    """The messages of skips that were logged."""
    _warns_of_lost = True

    def __init__(self, errors: Errors, source: str) -> None:
        super().__init__()
        self.errors = errors
        self.source = source
        self.tallies: dict[str, list[int]] = {}
        """More of `dropped`; a list of one number is faster to count with."""

    def tally(self, cause: str) -> list[int]:
        """Return the list of one number that counts the samples that a cause drops; nothing else counts them."""
        return self.tallies.setdefault(cause, [0])

    @property
    def all_dropped(self) -> Counter[str]:
        """All samples dropped as the spec says, by cause. Another thread may ask for it."""
        tallies = {cause: tally[0] for cause, tally in self.tallies.copy().items()}
        return Counter(dict(self.dropped)) + Counter(tallies)

    @property
    def counts(self) -> PackedCounts:
        """All counts of the source in this process. Another thread may ask for them."""
        found: PackedCounts = {name: value for name in COUNTERS if (value := getattr(self, name))}
        if self.dropped or self.tallies:
            found["dropped"] = dict(self.all_dropped if self.tallies else self.dropped)
        if self.skipped:
            found["skipped"] = dict(self.skipped)
        return found

    def note_opened(self, is_copy: bool) -> None:
        """Count a shard, or a part of one, that was opened."""
        self.shards += 1
        self.cache_hits += is_copy

    def note_bytes(self, count: int) -> None:
        """Count bytes that were read."""
        self.bytes += count

    def __call__(self, error: Exception, cause: SkipCause, **place: Any) -> None:
        """Count the error as one skip, or raise it with its place added.

        Args:
            error: the exception.
            cause: the step that raised it.
            place: where in the data, as for `WdspecError`.

        Raises:
            Exception: the error itself, if the policy does not skip it, or if it is a mistake in the spec, the code or
                the environment; a ShardError with a summary if the budget is used up.
        """
        record = _describe(error, place)
        tell_place(error, source=self.source, **place)
        file = place.get("url") if cause == "shard" else (place.get("url"), place.get("key"))
        if is_mistake(error) or self._is_of_another(error) or self._fails_everywhere(error, file):
            _note_lack(error)
            raise error
        if not self.errors.skips(cause):
            if cause != "map":
                error.add_note(_HOW_TO_SKIP)
            elif self.errors.skip:
                error.add_note(_NO_SKIP)
            raise error
        code = code_of(error, cause)
        if self.errors.log is not None:
            kind = type(error).__name__
            try:
                append_line(self.errors.log, {"source": self.source, "code": code, "cause": kind, **record})
            except OSError as cause:
                raise UsageError(
                    f"skips cannot be written to `{self.errors.log}` (`errors.log`): {cause.strerror}; name a writable "
                    "file, or remove `log`"
                ) from cause
        self.skipped[code] += 1
        self._warn("skipped", code, self.skipped[code], error, place)
        self._check(error)

    def note_lost(self, error: FieldError, **place: Any) -> None:
        """Count an object that does not exist, where `missing` allows that.

        Args:
            error: says which one, and what becomes of it.
            place: where in the data, as for `WdspecError`.
        """
        self.lost += 1
        if self._warns_of_lost:
            tell_place(error, source=self.source, **place)
            self._warn("lost object", error.code, self.lost, error, place)

    def _warn(self, what: str, code: str, count: int, error: Exception, place: dict[str, Any]) -> None:
        """Log the first errors of a kind, and then ever fewer."""
        if count > 3 and count & (count - 1):
            return
        where = str(WdspecError("", source=self.source, **place)).strip()
        text = " ".join(str(error).split())  # in one line, whatever names and messages of users contain
        has_place = isinstance(error, WdspecError) or where in text  # other errors may not show it
        is_worker = parent_process() is not None
        log.warning(
            "%s (%s no. %d of source %r%s): %s%s",
            what,
            code,
            count,
            self.source,
            f" in process {os.getpid()}" if is_worker else "",  # each worker counts its own
            f"again {where}" if text in self._said else text,
            "" if has_place or text in self._said else f" {where}",
            extra=log_fields(error, code=code, source=self.source, **place),
        )
        self._said |= {text}

    def _is_of_another(self, error: Exception) -> bool:
        """Whether an error is one of another source: that of a companion, whose own policy does not skip it."""
        return isinstance(error, WdspecError) and error.place.get("source", self.source) != self.source

    def _fails_everywhere(self, error: Exception, file: object) -> bool:
        """Whether an error that could be one of a file is one of the login or the disk, as those before it show."""
        if isinstance(error, RefusedShardError):
            others = self.shards - ("offset" in error.place)  # it was opened itself, as in Lance
            has_answered, self._shards_before = others > self._shards_before, self.shards
            if has_answered:
                error.message += (
                    "; other shards of this source can be read, so this one may be missing: a store may not say that "
                    "to a login without the right to list"
                )
                return False
            error.add_note(
                "this is not skipped, because no other shard of the source was opened "
                + ("since the last refusal" if self.shards else "before it")
                + ": correct the login, or the URLs"
            )
            return True
        if any(isinstance(each, RefusedShardError) for each in causes_of(error)):
            self.refusals += 1
            if self.refusals < _REFUSALS:
                return False
            error.add_note(
                f"this is not skipped, because access to {_REFUSALS} objects in a row was denied: correct the login, "
                "or the references"
            )
            return True
        if not _is_of_disk(error):
            return False
        now, recent = time.monotonic(), _disk_errors.value
        recent.append((now, file))
        while now - recent[0][0] > _DISK_SECONDS:
            recent.popleft()
        return len({file for _, file in recent}) >= _DISK_SHARDS

    def without_log(self) -> ErrorBudget:
        """Return a new budget for a second reading of samples whose errors are already logged."""
        other = ErrorBudget(self.errors.model_copy(update={"log": None}), self.source)
        other._warns_of_lost = False
        return other

    def _check(self, error: Exception) -> None:
        skips = sum(self.skipped.values())
        limit, why = self.errors.max_count, "max_count"
        if limit is None or skips <= limit:
            if self.errors.max_rate is None:
                return
            seen = max(self.delivered + skips, MIN_SAMPLES)
            limit, why = (
                int(self.errors.max_rate * seen),
                f"max_rate {self.errors.max_rate:g} of {seen} samples",
            )
            if skips <= limit:
                return
        causes = ", ".join(f"{cause} {n}" for cause, n in self.skipped.most_common())
        raise ShardError(
            f"{skips} errors exceed the budget of {limit} ({why}): {causes}; the last one: {error}",
            source=self.source,
        ) from error


def code_of(error: Exception, cause: str) -> str:
    """The code under which an error is counted, and `wdspec check` reports it (`wdspec rule D202`).

    Args:
        error: the error.
        cause: where it arose: `shard`, `decode`, `map`, or `batch`.
    """
    if cause == "map" and not isinstance(error, FieldError):
        return "D203"
    code = error.code if isinstance(error, WdspecError) else ""
    return code or ("D102" if cause == "shard" else "D202")


def is_mistake(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a mistake in the spec, the code or the environment."""
    return any(isinstance(each, MISTAKES) for each in causes_of(error)) or find_lack(error) is not None


def _is_of_disk(error: Exception) -> bool:
    """Whether an error is one of input."""
    return any(isinstance(each, OSError) and each.errno in _DISK_ERRORS for each in causes_of(error))


def _note_lack(error: Exception) -> None:
    """Add what to do if an error is due to the machine, unless it says so."""
    lack = find_lack(error)
    if lack is None and _is_of_disk(error):
        lack = f"{_DISK_SHARDS} files could not be read within a minute: check the disk or its mount, not the files"
    if lack is not None and lack not in f"{error} {getattr(error, '__notes__', '')}":
        error.add_note(lack)


def _describe(error: Exception, place: dict[str, Any]) -> dict[str, Any]:
    """Return the message and the place of an error, without the source and without secrets."""
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, WdspecError):
        message, place = error.message, {**place, **error.place}
    place = {name: value for name, value in place.items() if value is not None and name != "source"}
    return {
        "message": redact(message),
        **{name: value if isinstance(value, int) else redact(str(value)) for name, value in place.items()},
    }
