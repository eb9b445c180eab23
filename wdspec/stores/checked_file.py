"""Files that users' stores open, every answer of which is looked at."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from wdspec.errors import MissingShardError, ShardError
from wdspec.redaction import harmless
from wdspec.system.raw_stream import RawStream


def checked_file(file: Any, store: str, url: str) -> BinaryIO:
    """What a user's store opened, if it is a binary file.

    Args:
        store: what messages call the store.

    Raises:
        ShardError: it is none.
    """
    if not isinstance(file, io.TextIOBase) and callable(getattr(file, "read", None)):
        return cast(BinaryIO, _CheckedFile(file, store, url))
    seen = "a text file" if isinstance(file, io.TextIOBase) else f"{type(file).__name__!r}, without `read`"
    raise ShardError(
        f"the opener {store} returned {seen}; return a file opened for reading bytes, such as "
        '`open(path, "rb")` or `io.BytesIO(data)`',
        location=url,
    )


class _CheckedFile(RawStream):
    def __init__(self, file: Any, store: str, url: str) -> None:
        self._file, self._store, self._url = file, store, url

    def seekable(self) -> bool:
        return bool(self._answer(getattr(self._file, "seekable", bool)))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._answer(self._file.seek, offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._answer(self._file.tell))

    def read(self, size: int = -1) -> bytes:
        data = self._answer(self._file.read, size)
        if type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise ShardError(
            f"the file of the opener {self._store} gave {type(data).__name__!r} where bytes were wanted; open "
            "it in binary mode, and let `read` wait for data",
            location=self._url,
        )

    def _answer(self, verb: Callable[..., Any], *arguments: int) -> Any:
        try:
            return verb(*arguments)
        except Exception as error:  # whatever the user's code raises
            raise explained(error, self._store, self._url) from harmless(error)

    def close(self) -> None:
        if not self.closed:
            getattr(self._file, "close", bool)()
        super().close()


def explained(error: Exception, store: str, url: str) -> ShardError:
    """Our error for what a user's code raised."""
    if isinstance(error, ShardError):
        error.at(location=url)
        return error
    kind = MissingShardError if isinstance(error, FileNotFoundError) else ShardError
    return kind(f"the opener {store} failed: {type(error).__name__}: {error}", location=url)
