"""Objects written to a store that fsspec knows."""

from __future__ import annotations

import contextlib
import secrets
from functools import partial
from typing import IO, Any

from wdspec.errors import UsageError
from wdspec.outputs.gathered_output import GatheredOutput
from wdspec.stores.fsspec.filesystems import asked
from wdspec.stores.settings.object_login import ObjectLogin
from wdspec.urls.schemes import ROWS, scheme_of


class Upload(GatheredOutput):
    """An object of a store that fsspec can write."""

    def __init__(self, url: str, login: ObjectLogin | None = None, *, overwrite: bool = True) -> None:
        self._url, self._login = url, login
        self._overwrite = overwrite
        super().__init__()

    def _put(self, file: IO[bytes]) -> None:
        put = _put_whole if _appears_whole(self._url) else _put_and_move
        asked(self._url, self._login, partial(put, file.name))

    def _check_free(self) -> None:
        # Also where it may be replaced: a package that is not installed is told of before the work.
        if asked(self._url, self._login, lambda system, path: not self._overwrite and system.exists(path)):
            raise UsageError(
                "an object of this name exists; choose another name, or allow overwriting it", url=self._url
            )


def _put_whole(source: str, system: Any, path: str) -> None:
    system.put_file(source, path)


def _put_and_move(source: str, system: Any, path: str) -> None:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{secrets.token_hex(4)}.partial"
    with contextlib.suppress(NotImplementedError, OSError):
        system.makedirs(folder, exist_ok=True)
    try:
        system.put_file(source, temporary)
        system.mv(temporary, path)
    except BaseException:
        with contextlib.suppress(Exception):
            system.rm_file(temporary)
        raise


def _appears_whole(url: str) -> bool:
    """Whether an object appears only when its upload is complete; elsewhere a temporary name is moved."""
    scheme = scheme_of(url)
    return scheme in ROWS and ROWS[scheme].uploads_whole
