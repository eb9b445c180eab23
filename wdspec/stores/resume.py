"""One object of a store as a stream, through any number of range requests: complete and unchanged, or an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from time import monotonic
from typing import Protocol, TypeVar

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.files import SeekableStream
from wdspec.base.handles import responses, retry_with_fewer
from wdspec.base.process import Owner
from wdspec.formats.requests import NEAR
from wdspec.stores.rates import RateWatch
from wdspec.stores.retry import Retries, RetryPolicy, TransientError

T = TypeVar("T")


class ReadBefore:
    """A digest of one stretch of an object, to compare when the stretch is read again.

    It is for objects without a validator. A response that starts where the stretch starts is compared with it, and one
    that continues it extends it. Any other response starts a new stretch.
    """

    def __init__(self) -> None:
        self._start = self._end = self._at = 0
        self._before = blake2b()
        self._now = self._before

    @property
    def is_open(self) -> bool:
        """Whether the stretch is being read again and is not complete."""
        return self._now is not self._before

    def start_for(self, position: int) -> int:
        """Return where a request has to start, so that the bytes from a position on can be compared."""
        return self._start if self._start < self._end and self._start <= position else position

    def begin(self, at: int) -> None:
        """Start with a response at this offset."""
        if self._start <= at == self._start != self._end:
            self._now, self._at = blake2b(), at
        elif at != self._at or self.is_open:
            self.restart(at)

    def restart(self, at: int) -> None:
        """Start a new stretch at this offset."""
        self._before = self._now = blake2b()
        self._start = self._end = self._at = at

    def update(self, data: bytes) -> bool:
        """Add bytes of the response; return False if they differ from those read before."""
        if self.is_open:
            again, data = data[: self._end - self._at], data[self._end - self._at :]
            self._now.update(again)
            self._at += len(again)
            if self._at < self._end:
                return True
            if self._now.digest() != self._before.digest():
                return False
            self._now = self._before
        self._before.update(data)
        self._at += len(data)
        self._end = self._at
        return True


PIECE = 256 * 1024
_CHANGED, _START_AGAIN = "the object changed while it was read", "start again from a saved state"
FORKED = (
    "this stream was opened by another process, before a fork, and both would read from one connection; let each "
    "process open its own"
)


class ResponseBody(Protocol):
    """The bytes of one response. `read` returns b"" at its end, and raises TransientError if it is cut or stalls.

    `abort`, from another thread, ends the current `read`, whose result is then ignored.
    """

    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


@dataclass(frozen=True)
class RangeResponse:
    """The response of a store to a request for an object, or for a range of it."""

    body: ResponseBody
    start: int = 0
    """Offset in the object of the body's first byte: 0 if the store ignored a range."""
    total: int | None = None
    """Bytes of the object; None if unknown, and then the end of the body is the end of the object."""
    validator: str | None = None
    """Equal in two responses only if the object is the same: an ETag, a version, a time."""
    ranges: bool = True
    """Whether the store serves ranges of it."""
    stop: int | None = None
    """Offset in the object after the body's last byte, if only these bytes were requested; None: its end."""


class Fetch(Protocol):
    """Requests the bytes of an object from an offset on. Raises TransientError, MissingShardError or ShardError.

    With `stop`, only the bytes before that offset are needed; the response may have more.
    """

    def __call__(self, offset: int, stop: int | None = None, /) -> RangeResponse: ...


class ResumingStream(SeekableStream):
    """The bytes of one object, from any offset, through any number of requests.

    `read` returns b"" only at the true end. After a cut the stream resumes at that offset if the store serves ranges
    and shows that the object is the same. Otherwise the start is read again and dropped; without a validator, it must
    have the same bytes. A response is also given up, and its connection with it, if the process has too many.

    Raises:
        ShardError: on `read` or `seek`, when retries are used up, or the object has changed.
        MissingShardError: the object does not exist.
        UsageError: this process was forked from the one that opened it.
    """

    def __init__(self, fetch: Fetch, url: str, policy: RetryPolicy) -> None:
        self._fetch, self._url = fetch, url
        self._owner = Owner()
        self._retries, self._rate = Retries(policy, url), RateWatch(policy.rates, url)
        self._response: RangeResponse | None = None
        self._first: RangeResponse | None = None  # its size and validator hold for all later ones,
        self._is_first_used = False  # once it has given bytes, or the end of an empty object
        self._proof = ReadBefore()
        self._at = 0  # offset in the object of the next byte of the response's body
        self._furthest = 0  # offset read so far: bytes read again are no progress
        self._piece = b""  # the last bytes read, from `_piece_at` on: the start is often read twice
        self._piece_at = 0
        self._refusal: ShardError | None = None
        self.piece = PIECE
        """Bytes to take of a response at a time, at most."""
        self.span: int | None = None
        """Bytes to request at a time; None: all that follow."""
        self._using = threading.Lock()

    def measure(self) -> int | None:
        """Return the bytes from the position to the end; None if the store does not say. Sends the first request."""
        if self._first is None:
            self._persist(self._respond)
        return self.left

    def seekable(self) -> bool:
        first = self._first or self._request_first()
        return first.ranges and first.total is not None

    @property
    def left(self) -> int | None:
        """Bytes from the position to the end; None if not known (yet)."""
        first = self._first
        return None if first is None or first.total is None else max(0, first.total - self._position)

    @property
    def validator(self) -> str | None:
        """See `RangeResponse.validator`; None if not known (yet)."""
        return None if self._first is None else self._first.validator

    def _length(self) -> int:
        total = (self._first or self._request_first()).total
        if total is None:
            raise ShardError("the store does not report the size of this object", location=self._url)
        return total

    def _prepare(self, offset: int) -> None:
        self._furthest = min(self._furthest, offset)

    def _read(self, size: int) -> bytes:
        at = self._position - self._piece_at
        if not 0 <= at < len(self._piece):
            self._piece = b""  # free it before the next one arrives
            wanted = max(size, PIECE) if self.span is None else size
            self._piece, self._piece_at, at = self._next_piece(wanted), self._position, 0
        data = self._piece[at : at + size] if at or size < len(self._piece) else self._piece
        self._position += len(data)
        if self.span is not None and at + len(data) == len(self._piece):
            self._piece = b""  # one of many streams, which would hold much together
        return data

    def close(self) -> None:
        if self._owner.is_other:
            self._response = None  # the connection is its parent's
        self._drop()
        super().close()

    def abort(self, error: ShardError) -> None:
        """From another thread: the current `read`, and every later one, raises the error."""
        self._refusal = error
        self._retries.stop()
        response = self._response
        if response is not None:
            response.body.abort()

    def release(self) -> bool:
        """See `Handle`. Only a response that another one can continue is given up."""
        first = self._first
        if first is None or not first.ranges or None in (first.total, first.validator):
            return False
        if not self._using.acquire(blocking=False):
            return False
        try:
            self._drop()
            return True
        finally:
            self._using.release()

    def _request_first(self) -> RangeResponse:
        position, self._position = self._position, 0
        self._piece, self._piece_at = self._next_piece(PIECE), 0
        self._position = position
        assert self._first is not None
        return self._first

    def _next_piece(self, size: int) -> bytes:
        """Bytes from the position on; b"" at the end of the object."""
        data = self._persist(partial(self._attempt, min(size, self.piece)))
        self._is_first_used = True
        return data

    def _persist(self, attempt: Callable[[], T]) -> T:
        """What an attempt returns, which is repeated as long as its failures may pass."""
        if self._owner.is_other:
            raise UsageError(FORKED)
        while True:
            try:
                with self._using:
                    result = attempt()
            except TransientError as error:
                self._drop()
                if self._refusal is None:
                    self._retries.wait_after(error)
                    continue
            except ShardError as error:
                self._drop()
                raise error.at(location=self._url) from error.__cause__
            if self._refusal is not None:
                raise self._refusal
            return result

    def _attempt(self, size: int) -> bytes:
        first = self._first
        if first is not None and first.total is not None and self._position >= first.total:
            self._drop()
            return b""
        response = self._respond()
        while self._at < self._position:
            self._at += len(self._pull(response, min(self._position - self._at, PIECE), needed=True))
        if self._proof.is_open:  # after a seek back, the bytes read further on cannot be compared
            self._proof.restart(self._at)
        data = self._pull(response, size, needed=False)
        self._at += len(data)
        if self._at == (response.total if response.stop is None else response.stop):
            self._drop()  # its connection is free for others
        return data

    def _respond(self) -> RangeResponse:
        """The response to read from."""
        response = self._response
        if response is None or not self._is_near():
            self._drop()
            return self._begin()
        responses().use(self)
        return response

    def _is_near(self) -> bool:
        """Whether the position is best reached by reading further."""
        ranges = self._first is None or self._first.ranges
        stop = None if self._response is None else self._response.stop
        if stop is not None and self._position >= stop:
            return False
        return self._at <= self._position and (not ranges or self._position <= self._at + NEAR)

    def _pull(self, response: RangeResponse, size: int, needed: bool) -> bytes:
        start = monotonic()
        data = response.body.read(size)
        self._rate.note(len(data), monotonic() - start)
        reached = self._at + len(data)
        if reached > self._furthest:
            self._retries.note_progress(reached - max(self._at, self._furthest))
            self._furthest = reached
        if self._first is not None and self._first.validator is None and not self._proof.update(data):
            raise TransientError(f"{_CHANGED}: other bytes than before; {_START_AGAIN}", brief=True)
        if data:
            if response.total is not None and self._at + len(data) > response.total:
                raise TransientError(f"more bytes arrived than the {response.total} announced")
            return data
        if response.total is not None and self._at < response.total:
            raise TransientError(f"the bytes stopped after {self._at} of {response.total}")
        if needed:
            raise ShardError(
                f"the object ends at byte {self._at}, before byte {self._position}", location=self._url
            )
        return b""

    def _begin(self) -> RangeResponse:
        first = self._first
        start = self._position if first is None or first.ranges else 0
        if first is not None and first.validator is None and first.ranges:
            start = self._proof.start_for(self._position)
        response = self._request(start)
        try:
            if response.start > start:
                raise TransientError(
                    f"the request was for bytes from {start} on, but the response starts at {response.start}"
                )
            if first is None or not self._is_first_used or (self._position == 0 and not first.ranges):
                self._first = first = response  # no byte of an earlier response was delivered
            elif response.total != first.total or response.validator != first.validator:
                seen = f"{_describe(first)} before, {_describe(response)} now"
                # Replicas and proxies give stale responses, so this is retried for a while.
                raise TransientError(f"{_CHANGED}: {seen}; {_START_AGAIN}", brief=True)
            if response.start < start:  # the store ignores ranges
                self._first = replace(first, ranges=False)
        except BaseException:
            responses().drop(self)
            response.body.close()
            raise
        self._response, self._at = response, response.start
        self._proof.begin(self._at)
        return response

    def _request(self, start: int) -> RangeResponse:
        """Request the bytes from an offset on, with fewer responses open if there are too many."""
        first, stop = self._first, None
        if self.span is not None and (first is None or first.validator is not None):
            stop = max(start, self._position) + self.span
        fetch = partial(self._fetch, *([start] if stop is None else [start, stop]))
        responses().add(self)
        try:
            try:
                return fetch()
            except Exception as error:
                return retry_with_fewer(fetch, error)
        except BaseException:
            responses().drop(self)
            raise

    def _drop(self) -> None:
        if self._response is not None:
            self._response.body.close()
            self._response = None
            responses().drop(self)


def _describe(response: RangeResponse) -> str:
    length = "of unknown length" if response.total is None else f"{response.total} bytes"
    return f"{length}, {response.validator}" if response.validator else length
