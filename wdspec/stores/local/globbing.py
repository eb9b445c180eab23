"""Globs and directories on the local disk.

Not the library's ``glob``: that one passes over directories it may not read, and shards must never be missing
in silence.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

from wdspec.formats.suffixes import is_listed
from wdspec.stores.local.local_files import explained
from wdspec.urls.sequence import MAGIC


def shards_in(directory: str) -> list[str]:
    """The names of the shards directly in a directory, in code point order.

    Raises:
        MissingShardError, ShardError: it does not exist or cannot be read.
    """
    return sorted(entry.name for entry in _entries(directory) if is_listed(entry.name) and not entry.is_dir())


def files_matching(root: str, pattern: str) -> list[str]:
    """The paths of the files that match a glob, relative to its root, in code point order.

    `*`, `?` and `[a-z]` within a segment, `**` for any number of directories (links to directories are not
    followed); hidden files need a `.` in the pattern. A segment that exists by exactly its own name is taken
    literally: `a[1].tar` is that file, if there is one.

    Args:
        root: directory, ends with `/`; its characters are all literal.
        pattern: relative to it.

    Raises:
        MissingShardError, ShardError: a directory that does not exist or cannot be read.
    """
    *directories, last = pattern.split("/")
    places = [""]
    for segment in directories:
        deeper = (_below(root, place, segment) for place in places)
        places = list(dict.fromkeys(found for some in deeper for found in some))
    files: set[str] = set()
    for place in places:
        for inner in _below(root, place, last) if last == "**" else [place]:
            wanted = "*" if last == "**" else last
            files.update(
                inner + name
                for name in _names(root + inner, wanted)
                if not os.path.isdir(root + inner + name)
            )
    return sorted(files)


def _below(root: str, place: str, segment: str) -> Iterator[str]:
    """The directories that a segment leads to from a place; each ends with `/`."""
    if segment != "**":
        for name in _names(root + place, segment):
            if os.path.isdir(root + place + name):
                yield f"{place}{name}/"
        return
    stack = [place]
    while stack:
        here = stack.pop()
        yield here
        for entry in _entries(root + here):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                stack.append(f"{here}{entry.name}/")


def _names(directory: str, segment: str) -> list[str]:
    if os.path.lexists(directory + segment):
        return [segment]
    if not MAGIC.search(segment):
        return []
    matches = re.compile(fnmatch.translate(segment)).match
    hidden = segment.startswith(".")
    return [
        entry.name
        for entry in _entries(directory)
        if matches(entry.name) and (hidden or entry.name[0] != ".")
    ]


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (OSError, ValueError) as error:
        raise explained(error, directory) from None
