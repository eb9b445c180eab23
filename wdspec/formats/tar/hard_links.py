"""Hard links: members that name an earlier member instead of holding its bytes."""

from __future__ import annotations

import contextlib
import posixpath

from wdspec.errors import ShardError
from wdspec.formats.blocks import Blocks
from wdspec.formats.tar.headers import HARD_LINK, SYMLINK, UNREADABLE, shown
from wdspec.formats.tar.members import Member, iter_members

_ADVICE = "pack the shard anew with `tar --hard-dereference`"
_ADVICE_FOR_OTHERS = "pack the shard anew with `tar --dereference`, which puts the files themselves in"


class HardLinks:
    """Finds what hard links point to, by an index made on the first link: one more walk over the headers."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._files: dict[bytes, list[Member]] | None = None

    def read(self, link: Member) -> bytes:
        """The bytes of the file that a hard link names. Raises ShardError when they cannot be had.

        So for whatever else has no bytes of its own: a symbolic link may lead out of the shard.
        """
        if link.type != HARD_LINK:
            to = f" to {shown(link.link)!r}" if link.type == SYMLINK else ""
            raise ShardError(
                f"{UNREADABLE[link.type]}{to} stands where a file is wanted: {_ADVICE_FOR_OTHERS}",
                code="D117" if link.type == SYMLINK else "D118",
            )
        target = shown(link.link)
        if not self._blocks.seekable:
            raise ShardError(
                f"a hard link to {target!r} in a shard that cannot be read twice: {_ADVICE}", code="D119"
            )
        if self._files is None:
            self._files = self._index()
        # The latest file of that name before the link, as unpacking in order would have it.
        found = [file for file in self._files.get(_normal(link.link), ()) if file.offset < link.offset]
        if not found:
            raise ShardError(
                f"a hard link to {target!r}, which is no earlier file of the shard: {_ADVICE}", code="D119"
            )
        return self._blocks.take_elsewhere(found[-1].data_offset, found[-1].size)

    def _index(self) -> dict[bytes, list[Member]]:
        files: dict[bytes, list[Member]] = {}
        # What breaks the shard further on is reported by the walk that gets there.
        with contextlib.suppress(ShardError):
            for member in iter_members(self._blocks.file):
                name = _normal(member.name)
                if member.is_file:
                    files.setdefault(name, []).append(member)
                elif member.type == HARD_LINK and (targets := files.get(_normal(member.link))):
                    linked = member._replace(data_offset=targets[-1].data_offset, size=targets[-1].size)
                    files.setdefault(name, []).append(linked)
        self._blocks.come_back()
        return files


def _normal(name: bytes) -> bytes:
    return posixpath.normpath(name)
