"""How fast the bytes of a store arrive: slow reads are logged, or are errors."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from wdspec.base.errors import UnusableStoreError, log_fields
from wdspec.base.process import PerProcess
from wdspec.base.redaction import redact

log = logging.getLogger("wdspec")

_EVERY = 60.0
"""Least number of seconds between two warnings of a process."""


@dataclass
class _Warnings:
    next: float = 0.0


_warnings = PerProcess(_Warnings)


@dataclass(frozen=True)
class RateRules:
    """Which reads are slow. Rates are in bytes per second."""

    slow: float = 1_000_000
    """A read below this rate is logged."""
    seconds: float = 30.0
    """How long it has to be below."""
    least: float = 0
    """A read below this rate is an error."""
    source: str | None = field(default=None, compare=False)
    """The source that reads, for log records."""


class RateWatch:
    """Measures the rate of one stream, over the time in which its reader waits for bytes."""

    def __init__(self, rules: RateRules, url: str) -> None:
        self._rules, self._url = rules, url
        self._size, self._seconds, self._slow_for = 0, 0.0, 0.0

    def note(self, size: int, seconds: float) -> None:
        """Note bytes, and how long they took to arrive. Raises UnusableStoreError if the rate is too low."""
        self._size += size
        self._seconds += seconds
        if self._seconds >= self._rules.seconds:
            self._judge()

    def _judge(self) -> None:
        rules, rate, took = self._rules, self._size / self._seconds, self._seconds
        self._size, self._seconds = 0, 0.0
        self._slow_for = self._slow_for + took if rate < rules.slow else 0.0
        if rate < rules.least:
            raise UnusableStoreError(
                f"only {_per_second(rate)} arrived for {took:.0f} s, below `errors.min_rate` of "
                f"{_per_second(rules.least)}; check the store and the network, lower `min_rate`, or remove it",
                location=self._url,
            )
        now = time.monotonic()
        if self._slow_for and now >= _warnings.value.next:
            _warnings.value.next = now + _EVERY
            log.warning(
                "a store is slow: %s from %s in the last %.0f s, and below %s for %.0f s (`errors.slow_rate`); check "
                "the store and the network",
                _per_second(rate),
                redact(self._url),
                took,
                _per_second(rules.slow),
                self._slow_for,
                extra=log_fields(url=self._url, source=rules.source),
            )


def _per_second(rate: float) -> str:
    return f"{rate / 1e6:,.2f} MB/s" if rate >= 1e4 else f"{rate / 1e3:,.2f} kB/s"
