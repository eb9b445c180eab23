"""A stream over a store that may cut, stall or change: whole and right, or an error."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from wdspec.errors import ShardError
from wdspec.streams.retrying import Patience, TransientError, Trial
from wdspec.system.raw_stream import RawStream

PIECE = 256 * 1024
NEAR = 1024 * 1024
"""Bytes that are read and dropped rather than asked anew for: a request costs as much as this many."""


class Body(Protocol):
    """The bytes of one answer. `read` gives b"" at its end, and raises TransientError where it is cut or stalls.

    `abort`, from another thread, ends a `read` under way; what that returns or raises is not looked at.
    """

    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """What a store gave for one request."""

    body: Body
    start: int = 0
    """Offset in the object of the body's first byte: 0 where a range was asked for and ignored."""
    total: int | None = None
    """Bytes of the whole object; None where the store does not say, and the body's end must speak for itself."""
    validator: str | None = None
    """Equal in two answers only if they give the bytes of the same object: an ETag, a version, a time."""
    ranges: bool = True
    """Whether the store gives ranges of it."""


Fetch = Callable[[int], Answer]
"""Asks a store for an object from an offset to its end. Raises TransientError, MissingShardError or ShardError."""


class RemoteStream(RawStream):
    """The bytes of one object, from any offset, through as many requests as it takes.

    `read` returns b"" only at the true end. A cut is resumed where it happened if the store gives ranges and can
    show that the object is the same; otherwise what was read is read again and dropped.

    Args:
        fetch: asks the store.
        url: for errors.
        patience: how long failures are borne.

    Raises:
        ShardError: on `read` or `seek`, when patience is at its end, or the object changed meanwhile.
        MissingShardError: there is no such object.
    """

    def __init__(self, fetch: Fetch, url: str, patience: Patience) -> None:
        self._fetch, self._url = fetch, url
        self._trial = Trial(patience, url)
        self._answer: Answer | None = None
        self._known: Answer | None = None  # the first one: what it says of the object holds for all
        self._at = 0  # offset in the object of what the answer's body gives next
        self._position = 0
        self._piece = b""  # bytes just read, from `_piece_at` on: the beginning is looked at, then read again
        self._piece_at = 0
        self._refusal: ShardError | None = None

    def seekable(self) -> bool:
        known = self._known or self._first()
        return known.ranges and known.total is not None

    def tell(self) -> int:
        return self._position

    @property
    def left(self) -> int | None:
        """Bytes from the position to the end; None where that is not known (yet)."""
        known = self._known
        return None if known is None or known.total is None else max(0, known.total - self._position)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            total = (self._known or self._first()).total
            if total is None:
                raise ShardError("the store does not say how long this object is", location=self._url)
            offset += total
        self._position = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        at = self._position - self._piece_at
        if not 0 <= at < len(self._piece):
            self._piece = b""  # freed before the next one comes
            self._piece, self._piece_at, at = self._next_piece(max(size, PIECE)), self._position, 0
        data = self._piece[at : at + size] if at or size < len(self._piece) else self._piece
        self._position += len(data)
        return data

    def close(self) -> None:
        self._drop()
        super().close()

    def abort(self, error: ShardError) -> None:
        """Called from another thread: a `read` under way, and every later one, raises the error."""
        self._refusal = error
        self._trial.give_up()
        answer = self._answer
        if answer is not None:
            answer.body.abort()

    def _first(self) -> Answer:
        position, self._position = self._position, 0
        self._piece, self._piece_at = self._next_piece(PIECE), 0
        self._position = position
        assert self._known is not None
        return self._known

    def _next_piece(self, size: int) -> bytes:
        """Bytes from the position on; b"" at the end of the object."""
        while True:
            try:
                data = self._attempt(min(size, PIECE))
            except TransientError as error:
                self._drop()
                if self._refusal is None:
                    self._trial.failed(error)
                    continue
            except ShardError as error:
                self._drop()
                raise error.at(location=self._url) from error.__cause__
            if self._refusal is not None:
                raise self._refusal
            return data

    def _attempt(self, size: int) -> bytes:
        known = self._known
        if known is not None and known.total is not None and self._position >= known.total:
            self._drop()
            return b""
        answer = self._answer
        if answer is None or not self._reaches(answer):
            self._drop()
            answer = self._begin()
        while self._at < self._position:
            self._at += len(self._pull(answer, min(self._position - self._at, PIECE), needed=True))
        data = self._pull(answer, size, needed=False)
        self._at += len(data)
        return data

    def _reaches(self, answer: Answer) -> bool:
        """Whether the position is best reached by reading on."""
        ranges = self._known is None or self._known.ranges
        return self._at <= self._position and (not ranges or self._position <= self._at + NEAR)

    def _pull(self, answer: Answer, size: int, needed: bool) -> bytes:
        data = answer.body.read(size)
        self._trial.progressed(len(data))
        if data:
            if answer.total is not None and self._at + len(data) > answer.total:
                raise TransientError(f"more than the {answer.total} bytes that were announced came")
            return data
        if answer.total is not None and self._at < answer.total:
            raise TransientError(f"the bytes stopped after {self._at} of {answer.total}")
        if needed:
            raise ShardError(
                f"the object ends at byte {self._at}, before byte {self._position}", location=self._url
            )
        return b""

    def _begin(self) -> Answer:
        known = self._known
        start = self._position if known is None or known.ranges else 0
        answer = self._fetch(start)
        try:
            if answer.start > start:
                raise TransientError(
                    f"bytes from {answer.start} came, where those from {start} were asked for"
                )
            if known is None:
                self._known = known = answer
            elif self._position == 0 and not known.ranges:
                self._known = known = answer  # nothing was given yet of the object as it was before
            elif answer.total != known.total or answer.validator != known.validator:
                changed = f"the object changed while it was read: {_said(known)} before, {_said(answer)} now"
                # Replicas and proxies give stale answers, so it is asked again for a while.
                raise TransientError(f"{changed}; start again from a saved state", brief=True)
            elif answer.validator is None and answer.total is None:
                raise ShardError(
                    f"cut after {self._at} bytes, and the store says nothing by which to tell that the object is "
                    "still the same; copy it to a store that gives lengths or ETags, or use a cache",
                    location=self._url,
                )
            if answer.start < start:  # ranges are ignored, so nothing further ahead need be asked for
                self._known = replace(known, ranges=False)
        except BaseException:
            answer.body.close()
            raise
        self._answer, self._at = answer, answer.start
        return answer

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.body.close()
            self._answer = None


def _said(answer: Answer) -> str:
    length = "of unknown length" if answer.total is None else f"{answer.total} bytes"
    return f"{length}, {answer.validator}" if answer.validator else length
