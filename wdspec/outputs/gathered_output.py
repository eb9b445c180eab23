"""An object of a store that takes objects whole: gathered in a local file, and put when it is complete."""

from __future__ import annotations

import contextlib
import tempfile
from abc import ABC, abstractmethod
from typing import IO


class GatheredOutput(ABC):
    """Needs as much room in the temporary folder as the object has bytes."""

    def __init__(self) -> None:
        self._check_free()
        self._file: IO[bytes] | None = tempfile.NamedTemporaryFile(  # noqa: SIM115  # lives until `abort`
            prefix="wdspec-", suffix=".partial"
        )

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        return self._file.write(data)

    def commit(self) -> None:
        """Puts the object; what was gathered is gone then, also after an error."""
        file = self._file
        assert file is not None
        try:
            file.flush()
            self._check_free()
            self._put(file)
        finally:
            self.abort()

    def abort(self) -> None:
        """Forgets what was gathered."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    @abstractmethod
    def _check_free(self) -> None:
        """Raises UsageError where the name is taken and may not be; asked before the work, and again before `_put`."""

    @abstractmethod
    def _put(self, file: IO[bytes]) -> None:
        """Sends the file, whose position may be anywhere."""
