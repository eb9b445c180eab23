"""What happens to an error: raised, or counted and skipped within a budget.

The file of `errors: {log: …}`: one line of JSON for each skip, from however many processes.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from wdspec.base.errors import ShardError, SpecError, StoreError, UsageError, WdspecError, tell_place
from wdspec.base.files import lock_open_file
from wdspec.base.redaction import redacted
from wdspec.spec.language.options import Errors
from wdspec.spec.language.values import SkipCause


def append_line(path: str, record: Mapping[str, Any]) -> None:
    """Adds a record to a file as one whole line; makes the file, and its folder, if need be.

    A lock keeps the lines of several processes apart, also where the file system does not append atomically.

    Args:
        path: `~` stands for the home directory.
        record: values that JSON knows.

    Raises:
        UsageError: the file cannot be written.
    """
    line = memoryview(json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n")
    path = os.path.expanduser(path)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            lock_open_file(file, wait=True)
            while line:
                line = line[os.write(file, line) :]
        finally:
            os.close(file)
    except OSError as error:
        raise UsageError(
            f"the skips cannot be listed in `{path}` (`errors.log`): {error.strerror}; name a file that can be "
            "written, or leave it out"
        ) from error


log = logging.getLogger("wdspec")

MIN_SAMPLES = 1000
"""`max_rate` is judged over at least so many samples, so that one early error is no 100 %."""
MISTAKES = (SpecError, UsageError, StoreError, ImportError)
"""Errors that all samples would have in common: no policy skips them."""

_NO_SKIP = (
    "`errors: skip` is for what is wrong in the data, not in code; to skip samples on which a function of `map`, "
    "`select` or `decode` fails, write `errors: {skip: [shard, decode, map]}`"
)

PackedCounts = tuple[int, "dict[str, int] | None", "dict[str, int] | None", int, int, int, int]
"""Samples delivered; dropped, by cause; skipped, by kind of error; passes; shards opened; of these copies; bytes read.

A plain tuple, as it is sent with batches: one with names takes four times as long.
"""


class Budget:
    """The error policy of one source in one process.

    A skip is allowed while ``skips ≤ max_count`` and ``skips ≤ max_rate · max(samples, 1000)``, where samples
    are those delivered or skipped so far in this process. Processes do not coordinate, so both limits hold
    for each worker process by itself.
    """

    def __init__(self, errors: Errors, source: str) -> None:
        self.errors = errors
        self.source = source
        self.skipped: Counter[str] = Counter()
        """Skips by cause."""
        self.dropped: Counter[str] = Counter()
        """Samples left out as the spec asks (`select`, `missing: skip`, `skip`); these are no errors."""
        self.delivered = 0
        self.passes = self.shards = self.copies = self.bytes = 0
        """See `PackedCounts`."""

    @property
    def counts(self) -> PackedCounts:
        """What was counted of the source in this process."""
        return (
            self.delivered,
            dict(self.dropped) if self.dropped else None,
            dict(self.skipped) if self.skipped else None,
            self.passes,
            self.shards,
            self.copies,
            self.bytes,
        )

    def note_opened(self, is_copy: bool) -> None:
        """Counts a shard, or a part of one, that was opened."""
        self.shards += 1
        self.copies += is_copy

    def note_bytes(self, count: int) -> None:
        """Counts bytes that were read."""
        self.bytes += count

    def __call__(self, error: Exception, cause: SkipCause, **place: Any) -> None:
        """Counts the error as one skip, or raises it with its place added.

        Args:
            error: what was raised.
            cause: where it arose.
            place: what is known of where in the data, as for `WdspecError`.

        Raises:
            Exception: the error itself where the policy does not skip it, or it is a mistake in the spec, the code
                or the environment; a ShardError that sums up when the budget is spent.
        """
        said = _described(error, place)
        tell_place(error, source=self.source, **place)
        if is_mistake(error):
            raise error
        if not self.errors.skips(cause):
            if cause == "map" and self.errors.skip and hasattr(error, "add_note"):
                error.add_note(_NO_SKIP)
            raise error
        kind = type(error).__name__
        if self.errors.log is not None:
            append_line(self.errors.log, {"source": self.source, "cause": kind, **said})
        self.skipped[kind] += 1
        count = self.skipped[kind]
        if count <= 3 or not count & (count - 1):
            where = str(WdspecError("", source=self.source, **place)).strip()
            told = isinstance(error, WdspecError) or where in str(error)  # some texts take no place
            log.warning(
                "skipped (%s no. %d of source %r): %s%s",
                kind,
                count,
                self.source,
                error,
                "" if told else f" {where}",
            )
        self._check(error)

    def without_log(self) -> Budget:
        """A fresh one for reading what another reads and logs as well."""
        return Budget(self.errors.model_copy(update={"log": None}), self.source)

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
            f"{skips} errors are over the budget of {limit} ({why}): {causes}; the last one: {error}",
            source=self.source,
        ) from error


def is_mistake(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, is a mistake in the spec, the code or the environment."""
    seen: list[BaseException] = []  # `raise error from error` makes a chain without an end
    while error is not None and error not in seen:
        if isinstance(error, MISTAKES):
            return True
        seen.append(error)
        error = error.__cause__
    return False


def _described(error: Exception, place: dict[str, Any]) -> dict[str, Any]:
    """What an error says, and its place beside the source, without secrets."""
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, WdspecError):
        message, place = error.message, {**place, **error.place}
    place = {name: value for name, value in place.items() if value is not None and name != "source"}
    return {
        "message": redacted(message),
        **{name: value if isinstance(value, int) else redacted(str(value)) for name, value in place.items()},
    }
