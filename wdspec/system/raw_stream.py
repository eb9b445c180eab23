"""The base of all streams of bytes: whoever implements `read` has the rest of the protocol."""

from __future__ import annotations

import io
from typing import Any

_PIECE = 256 * 1024


class RawStream(io.RawIOBase):
    """A readable stream by its `read(size)`, which gives b"" at the end only, and for -1 returns `readall()`."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer)) or b""
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_PIECE), b""))
