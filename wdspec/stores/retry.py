"""Retries of failed requests to a store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import SystemRandom
from time import monotonic
from typing import TypeVar

from wdspec.base.errors import ShardError, log_fields
from wdspec.base.process import process_counts
from wdspec.base.redaction import redact
from wdspec.stores.rates import RateRules

log = logging.getLogger("wdspec")

T = TypeVar("T")

_jitter = SystemRandom()
"""Not the generator of the program: a retry must not change what it draws, and forked workers must not wait alike."""

SUBSTANTIAL = 1024 * 1024
"""Bytes that count as progress. A store that sends less between two failures is considered to fail continuously."""

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of failures that may be temporary, for any store."""


class TransientError(Exception):
    """A failed attempt that may succeed later: cut, stalled, overloaded, starting.

    Args:
        retry_after: seconds that the store asks to wait before the next request.
        brief: whether to retry only for a short while, because it looks permanent.
        otherwise: the error to raise when retries are used up; by default a ShardError with a summary.
    """

    def __init__(
        self,
        message: str,
        retry_after: float | None = None,
        brief: bool = False,
        otherwise: ShardError | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.brief = brief
        self.otherwise = otherwise


@dataclass(frozen=True)
class RetryPolicy:
    """How long, and how often, failed requests are repeated.

    Delays double from `delay` to `longest_delay` seconds, each shortened at random by up to a half.
    """

    budget: float = 120.0
    """Seconds from the first failure without substantial progress to giving up."""
    brief: float = 30.0
    """The same for failures that look permanent: a host that has never answered, an object that has changed."""
    delay: float = 0.25
    """Seconds before the second attempt, at most."""
    longest_delay: float = 15.0
    """Seconds between two attempts, at most, unless the store asks for more."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection."""
    read_timeout: float = 60.0
    """Seconds to wait for the next bytes."""
    rates: RateRules = field(default_factory=RateRules)
    """Which reads are too slow, although bytes arrive."""


class Retries:
    """The failures of one stream since it last made progress."""

    def __init__(self, policy: RetryPolicy, url: str) -> None:
        self._policy = policy
        self._url = url
        self._attempts = 0
        self._first = 0.0
        self._bytes = 0
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the waiting, from another thread."""
        self._stopped.set()

    def note_progress(self, size: int) -> None:
        """Note that bytes arrived."""
        if self._attempts:
            self._bytes += size
            if self._bytes >= SUBSTANTIAL:
                self._attempts = 0

    def wait_after(self, error: TransientError) -> None:
        """Wait before the next attempt. Raises ShardError, or the error's `otherwise`, if the budget is used up."""
        now = monotonic()
        if not self._attempts:
            self._first, self._bytes = now, 0
        self._attempts += 1
        spent = now - self._first
        policy = self._policy
        longest = min(policy.delay * 2 ** min(self._attempts - 1, 30), policy.longest_delay)
        wait = max(longest * _jitter.uniform(0.5, 1), error.retry_after or 0.0)
        budget = min(policy.budget, policy.brief) if error.brief else policy.budget
        if spent + wait > budget:
            if error.otherwise is not None:
                raise error.otherwise
            raise ShardError(
                f"given up after {self._attempts} attempt{'s' if self._attempts > 1 else ''} in {spent:.0f} s: {error}",
                location=self._url,
            ) from error
        process_counts.value.retries += 1
        log.warning(
            "attempt %d at %s failed: %s; trying again in %.1f s",
            self._attempts,
            redact(self._url),
            error,
            wait,
            extra=log_fields(error.otherwise, url=self._url, source=policy.rates.source),
        )
        self._pause(wait)

    def _pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)


def with_retries(policy: RetryPolicy, url: str, attempt: Callable[[], T]) -> T:
    """What an attempt returns, repeated while it raises TransientError and the policy allows it (else ShardError)."""
    retries = Retries(policy, url)
    while True:
        try:
            return attempt()
        except TransientError as error:
            retries.wait_after(error)
