"""Specs as they were at a revision of git: `main:train.yaml`, with what they extend and the lists that they name."""

from __future__ import annotations

import errno
import io
import os
import subprocess
from dataclasses import dataclass
from typing import BinaryIO

from wdspec.base.errors import UsageError
from wdspec.spec.files import read_from_disk
from wdspec.spec.yaml import MAX_BYTES
from wdspec.storage.storage import Storage
from wdspec.urls.urls import local_path


@dataclass(frozen=True)
class GitFiles:
    """The files of one revision of the repository that a folder belongs to."""

    revision: str
    """As the user named it."""
    commit: str
    root: str
    """The repository's top folder, absolute, without symbolic links."""

    @classmethod
    def at(cls, revision: str, folder: str) -> GitFiles:
        """The files of a revision of the repository around a folder.

        Raises:
            UsageError: git is not installed, the folder is in no repository, or there is no such revision.
        """
        root = _git(folder, "rev-parse", "--show-toplevel")
        if root is None:
            raise UsageError(
                f"`{revision}:…` names a revision of git, but {folder} is in no repository; name two files"
            )
        found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if found is None:
            raise UsageError(
                f"git knows no revision `{revision}` here; `git fetch` may bring it (in CI, check out with its history)"
            )
        return cls(revision, found.decode().strip(), os.path.realpath(os.fsdecode(root.rstrip(b"\n"))))

    def read(self, path: str, only_regular: bool = True, most: int = MAX_BYTES) -> bytes:
        """A file as it was then; what is outside the repository is read from the disk.

        Args:
            path: absolute.
            only_regular: of a file on the disk: whether it must be no pipe,
            most: and how many bytes of it are wanted.

        Raises:
            OSError: it was not there, or was a folder.
        """
        name = self._name(path)
        if name is None:
            return read_from_disk(path, only_regular, most)
        kind = _git(self.root, "cat-file", "-t", f"{self.commit}:{name}")
        if kind is not None and kind.strip() == b"tree":
            raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        data = None if kind is None else _git(self.root, "cat-file", "blob", f"{self.commit}:{name}")
        if data is None:
            raise FileNotFoundError(errno.ENOENT, f"it is not in revision {self.revision}", path)
        return data

    def has(self, path: str) -> bool:
        """Whether a path was a file of the repository then."""
        name = self._name(path)
        kind = None if name is None else _git(self.root, "cat-file", "-t", f"{self.commit}:{name}")
        return kind is not None and kind.strip() == b"blob"

    def has_spec(self, path: str) -> bool:
        """The same for a relative path, perhaps with a split."""
        return self.has(os.path.abspath(path.partition("#")[0]))

    def _name(self, path: str) -> str | None:
        """The path within the repository; None for one outside it."""
        folder, name = os.path.split(path)
        whole = os.path.join(os.path.realpath(folder), name)
        return os.path.relpath(whole, self.root) if whole.startswith(self.root + os.sep) else None


@dataclass(frozen=True)
class RevisionStorage(Storage):
    """Reaches bytes as training does, but files of the repository as they were: so the lists of a spec are those of
    its revision. What matches a glob or lies in a folder is looked up on the disk, where the shards are."""

    files: GitFiles | None = None

    def open_location(self, location: str) -> BinaryIO:
        """As `Storage.open_location`."""
        path = local_path(location)
        if self.files is not None and path is not None and self.files.has(path):
            return io.BytesIO(self.files.read(path))
        return super().open_location(location)


def split_revision(argument: str) -> tuple[str, str] | None:
    """Revision and path of `main:train.yaml`; None for what names a file.

    As git reads it, the path starts at the repository's top folder, or with `./` at the working directory.
    """
    revision, colon, path = argument.partition(":")
    if not colon or not revision or not path or os.path.exists(argument.partition("#")[0]):
        return None
    return revision, path


def _git(folder: str, *arguments: str) -> bytes | None:
    """What git prints; None where it fails. Raises UsageError where it is not installed."""
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("revisions are read by `git`, which is not installed; name two files") from None
    return done.stdout if done.returncode == 0 else None
