"""Objects that are not what their copies were made of any more: looked for in the background, and told in warnings."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable

from wdspec.cache.copies import Copy
from wdspec.errors import MissingShardError, WdspecError
from wdspec.redaction import redacted
from wdspec.stores.store import ObjectStat
from wdspec.streams.background_fetcher import background_fetcher
from wdspec.system.per_process import PerProcess

log = logging.getLogger("wdspec")

AGAIN = 600.0
"""Seconds in which a store is asked of one copy no second time by the same process, nor after it was fetched."""
_NAMED = re.compile(r"(ais-[a-z-]+|etag) ([^\s,]+)")
GONE = "there is no such object any more"


def change_since(made_of: str, size: int, now: ObjectStat) -> str | None:
    """What shows that an object is not the one that a copy was made of; None where nothing does.

    Args:
        made_of: what the store said of it when it was fetched; "" where it said nothing.
        size: bytes of the copy.
        now: what the store says of it now.
    """
    if now.size is not None and now.size != size:
        return f"it has {now.size:,} bytes there and {size:,} in the copy"
    if not made_of or now.validator is None:
        return None
    before, after = dict(_NAMED.findall(made_of)), dict(_NAMED.findall(now.validator))
    if before and after:  # a store may say more of an object that it has had for a while
        same = all(before[name] == after[name] for name in before.keys() & after.keys())
    else:
        same = made_of == now.validator
    return None if same else f"it is {redacted(now.validator)} there, and was {made_of} when it was fetched"


def look_for_change(copy: Copy, location: str, url: str, stat: Callable[[], ObjectStat]) -> None:
    """Has the store asked, in the background, whether its object is still what a copy was made of.

    Warns where it is not. A store that does not answer is not asked again by this process: a cache is also for those
    who cannot reach their store.

    Args:
        copy: just opened.
        location: of the object.
        url: as the spec spells it, for warnings.
        stat: asks the store, once.
    """
    asked, now = _asked.value, time.monotonic()
    if _host(location) in asked.silent or now < asked.again.get(copy.name, 0.0):
        return
    asked.again[copy.name] = now + AGAIN
    if 0 <= time.time() - os.fstat(copy.fileno()).st_mtime < AGAIN:
        return
    size, made_of = copy.made_of
    background_fetcher().add(_Question(copy.name, size, made_of, location, url, stat))


class _Asked:
    """What this process has asked of stores."""

    def __init__(self) -> None:
        self.again: dict[str, float] = {}
        """By the path of a copy: when its store may be asked again."""
        self.silent: set[str] = set()
        """Hosts that did not answer."""
        self.changed: set[str] = set()
        """Copies of which it was told that their objects have changed."""


_asked = PerProcess(_Asked)


class _Question:
    """Asks a store of one object."""

    buffered = 0

    def __init__(
        self, path: str, size: int, made_of: str, location: str, url: str, stat: Callable[[], ObjectStat]
    ) -> None:
        self.lock = threading.Lock()
        self.done = False
        self._path, self._size, self._made_of = path, size, made_of
        self._location, self._url, self._stat = location, url, stat

    @property
    def ready(self) -> bool:
        return not self.done

    def fetch_piece(self) -> None:
        self.done = True
        asked = _asked.value
        if _host(self._location) in asked.silent:
            return
        try:
            change = change_since(self._made_of, self._size, self._stat())
        except MissingShardError:
            change = GONE
        except (WdspecError, OSError) as error:
            asked.silent.add(_host(self._location))
            log.debug("objects of %s are not compared with their copies: %s", _host(self._location), error)
            return
        if change is not None and self._path not in asked.changed:
            asked.changed.add(self._path)
            count = len(asked.changed)
            if count <= 3 or not count & (count - 1):
                log.warning(
                    "an object has changed since its copy was made (no. %d): %s: %s; the copy %s goes on being read. "
                    "Give new data new names, or delete the copy and begin a new run",
                    count,
                    redacted(self._url),
                    change,
                    self._path,
                )


def _host(location: str) -> str:
    """Scheme and host or bucket: what answers for all objects in it, or for none."""
    return redacted("/".join(location.split("/", 3)[:3]))
