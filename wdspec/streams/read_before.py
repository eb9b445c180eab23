"""What was read of an object that nothing tells from others, so that it can be compared when it is read again."""

from __future__ import annotations

from hashlib import blake2b


class ReadBefore:
    """One stretch of an object: a digest of what was read of it, and of what comes in its place now.

    A response that begins where the stretch does, or continues it, goes on; one that begins anywhere else is of another
    stretch, of which nothing is known yet.
    """

    def __init__(self) -> None:
        self._start = self._end = self._at = 0
        self._before = blake2b()
        self._now = self._before

    @property
    def is_open(self) -> bool:
        """Whether less than the stretch has come again."""
        return self._now is not self._before

    def start_for(self, position: int) -> int:
        """Where a request has to begin, for the bytes from a position on to be of the same object."""
        return self._start if self._start < self._end and self._start <= position else position

    def begin(self, at: int) -> None:
        """The bytes of a response follow, from this offset on."""
        if self._start <= at == self._start != self._end:
            self._now, self._at = blake2b(), at
        elif at != self._at or self.is_open:
            self.restart(at)

    def restart(self, at: int) -> None:
        """What follows, from this offset on, is a stretch of its own."""
        self._before = self._now = blake2b()
        self._start = self._end = self._at = at

    def takes(self, data: bytes) -> bool:
        """The next bytes of the response; False if they are not what they were."""
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
