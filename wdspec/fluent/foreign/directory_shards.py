"""`DirectoryShardList`: shards that others put into a directory while they are read."""

from __future__ import annotations

import glob
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from wdspec.base.errors import UsageError

_TAKEN = re.compile(r"(.*)\._(\d+)_", re.DOTALL)


class DirectoryShardList:
    """The shards of a directory, one after the other, as long as some come; no order is promised, and no resume.

    While a shard is read its name has the end `._PID_`, so that several processes share a directory. What was not read
    to its end gets its name back, also from a process that has ended, and is taken up again.

    Args:
        path: the directory.
        pattern: glob of the names of shards; braces hold alternatives.
        poll: seconds to wait for more; None ends where there are none.
        timeout: seconds after which no more are waited for.
        mode: what becomes of a shard that was read: `resample` gives it back, `unlink` deletes it, `keep` renames it to
            `._done_`.
        select: `random`, or the `oldest` first.
        fate: taken for the sake of webdataset's signature, where it has no meaning either.

    Raises:
        UsageError: there is no such directory, or another word for `mode` or `select`.
    """

    endless = True

    def __init__(
        self,
        path: str,
        pattern: str = "*.{tar,tgz,tar.tgz}",
        poll: float | None = 1,
        timeout: float = 1e12,
        mode: str = "resample",
        select: str = "random",
        fate: Any = None,
    ) -> None:
        if not os.path.isdir(path):
            raise UsageError(f"there is no directory {path}")
        for name, value, known in (
            ("mode", mode, ("resample", "unlink", "keep")),
            ("select", select, ("random", "oldest")),
        ):
            if value not in known:
                raise UsageError(f"`{name}` is {' or '.join(known)}, not {value!r}")
        self.path = os.path.join(path, "")
        self.patterns = _alternatives(pattern)
        self.poll, self.timeout, self.mode, self.select = poll, timeout, mode, select

    def __iter__(self) -> Iterator[dict[str, Any]]:
        last = time.monotonic()
        while time.monotonic() - last < self.timeout:
            self.cleanup_files_without_processes()
            found = [name for pattern in self.patterns for name in sorted(glob.glob(self.path + pattern))]
            if not found:
                if self.poll is None:
                    return
                time.sleep(self.poll)
                continue
            try:
                chosen = min(found, key=os.path.getmtime) if self.select == "oldest" else random.choice(found)
                taken = f"{chosen}._{os.getpid()}_"
                os.rename(chosen, taken)
            except FileNotFoundError:  # another process was faster
                continue
            try:
                yield {"url": taken}
            except GeneratorExit:  # whoever reads has stopped within it
                _rename(taken, chosen)
                raise
            self._let_go(taken, chosen)
            last = time.monotonic()

    def cleanup_files_without_processes(self) -> None:
        """Gives back what processes left that have ended: nobody has read it to its end."""
        for name in glob.glob(self.path + "*._*_"):
            match = _TAKEN.fullmatch(name)
            if match and not _lives(int(match[2])):
                _rename(name, match[1])

    def _let_go(self, taken: str, name: str) -> None:
        """What becomes of a shard that was read."""
        if self.mode == "unlink":
            with suppress(FileNotFoundError):
                os.unlink(taken)
        else:
            _rename(taken, f"{name}._done_" if self.mode == "keep" else name)


def _rename(old: str, new: str) -> None:
    with suppress(FileNotFoundError):  # another process has been faster
        os.rename(old, new)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _alternatives(pattern: str) -> list[str]:
    from wdspec.urls.braces import Braces

    return list(Braces(pattern))
