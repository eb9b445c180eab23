"""Objects written to a store that fsspec knows."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from typing import IO

from wdspec.errors import UsageError
from wdspec.urls.schemes import ROWS, scheme_of


class Upload:
    """An object of a store that fsspec can write: gathered in a local file, uploaded when it is whole.

    Needs as much room in the temporary folder as the object has bytes.
    """

    def __init__(self, url: str, *, overwrite: bool = True) -> None:
        import fsspec  # type: ignore[import-untyped]  # has none

        self._url = url
        self._overwrite = overwrite
        try:
            self._store, self._path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"this URL cannot be written: {error}", url=url) from error
        self._check_free()
        self._file: IO[bytes] | None = tempfile.NamedTemporaryFile(  # noqa: SIM115  # lives until `abort`
            prefix="wdspec-", suffix=".partial"
        )

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        return self._file.write(data)

    def commit(self) -> None:
        file = self._file
        assert file is not None
        try:
            file.flush()
            self._check_free()
            if _appears_whole(self._url):
                self._store.put_file(file.name, self._path)
            else:
                self._put_and_move(file.name)
        finally:
            self.abort()

    def abort(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _put_and_move(self, source: str) -> None:
        folder, _, name = self._path.rpartition("/")
        temporary = f"{folder}/.{name}.{secrets.token_hex(4)}.partial"
        with contextlib.suppress(NotImplementedError, OSError):
            self._store.makedirs(folder, exist_ok=True)
        try:
            self._store.put_file(source, temporary)
            self._store.mv(temporary, self._path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._store.rm_file(temporary)
            raise

    def _check_free(self) -> None:
        if not self._overwrite and self._store.exists(self._path):
            raise UsageError(
                "an object of this name exists; choose another name, or allow overwriting it", url=self._url
            )


def _appears_whole(url: str) -> bool:
    """Whether an object appears only when its upload is complete; elsewhere a temporary name is moved."""
    scheme = scheme_of(url)
    return scheme in ROWS and ROWS[scheme].uploads_whole
