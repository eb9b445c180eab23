"""Files of this machine, and of what is mounted on it."""

from __future__ import annotations

import os
from typing import BinaryIO

from wdspec.outputs.local_output import LocalOutput
from wdspec.stores.local.globbing import files_matching, shards_in
from wdspec.stores.local.local_files import open_file, stat_file
from wdspec.stores.store import ObjectStat, Store, StoreSettings
from wdspec.urls.schemes import local_path


class LocalStore(Store):
    """Paths and `file:` URLs. Hidden and half-written files are not listed."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        return open_file(_path(location))

    def list(self, root: str, pattern: str, settings: StoreSettings) -> list[str]:
        return files_matching(root, pattern) if pattern else shards_in(root)

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> LocalOutput:
        return LocalOutput(_path(location), overwrite=overwrite, since=since)

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "local file"

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        found = stat_file(_path(location))
        return ObjectStat(found.st_size, f"mtime {found.st_mtime_ns}")

    def exists(self, location: str, settings: StoreSettings) -> bool:
        return os.path.exists(_path(location))

    def delete(self, location: str, settings: StoreSettings) -> None:
        os.unlink(_path(location))


def _path(location: str) -> str:
    path = local_path(location)
    assert path is not None, "the table gives this store local locations only"
    return path
