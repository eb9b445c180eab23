"""Globs: the files below a directory, of a disk or of a store, whose paths match a pattern."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from wdspec.urls.urls import MAGIC


class Tree(Protocol):
    """Directories to find files in. Paths are relative to its root; those of directories are "" or end with `/`.

    `has`, `is_file` and `is_directory` take a path without a final `/`; a key of a store may be both. `names` lists
    what is directly in a directory, and `folders` the directories among that, except links.
    """

    def has(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool: ...
    def is_directory(self, path: str) -> bool: ...
    def names(self, directory: str) -> Iterable[str]: ...
    def folders(self, directory: str) -> Iterable[str]: ...


def match_glob(tree: Tree, pattern: str) -> list[str]:
    """The paths of the files that match a glob, in code point order.

    `*`, `?` and `[a-z]` match within a segment, `**` any number of directories, without following links; hidden names
    need a `.` in the pattern. If a name is exactly a segment, the segment is literal: `a[1].tar` may be a file.
    """
    *directories, last = pattern.split("/")
    if last == "**":
        directories, last = [*directories, "**"], "*"
    places = [""]
    for segment in directories:
        if segment == "**":
            places = [inner for place in places for inner in _walk(tree, place)]
        else:
            found = (place + name for place in places for name in _matching_names(tree, place, segment))
            places = [f"{path}/" for path in found if tree.is_directory(path)]
        places = list(dict.fromkeys(places))
    found = (place + name for place in places for name in _matching_names(tree, place, last))
    return sorted({path for path in found if tree.is_file(path)})


def _walk(tree: Tree, place: str) -> Iterator[str]:
    """A directory and all below it that are not hidden."""
    yield place
    for name in tree.folders(place):
        if not name.startswith("."):
            yield from _walk(tree, f"{place}{name}/")


def _matching_names(tree: Tree, place: str, segment: str) -> list[str]:
    if tree.has(place + segment):
        return [segment]
    if not MAGIC.search(segment):
        return []
    matches = re.compile(fnmatch.translate(segment)).match
    hidden = segment.startswith(".")
    return [name for name in tree.names(place) if matches(name) and (hidden or not name.startswith("."))]
