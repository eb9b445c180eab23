"""What the parent looks up about cache directories before anything is read, so that all workers name copies alike."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace

from wdspec.cache.cache_names import TAG, CacheNames, shared_names
from wdspec.urls.sequence import ShardUrl


def surveyed(names: CacheNames, urls: Iterable[ShardUrl]) -> CacheNames:
    """The names of one directory, for the shards of a plan; creates nothing.

    Files that somebody put into the directory under their bare names are used only if no two shards of the plan
    have that name. Where there are such files, all the plan's URLs are gone through once, about a second for a
    million; where there are none, as in directories that only wdspec fills, nothing is.
    """
    flat: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(names.directory) as listed:
        flat = {each.name for each in listed if each.name != TAG and not each.is_dir()}
    return replace(
        names,
        folds_case=_folds_case(names.directory),
        ambiguous=shared_names(urls, flat) if flat else None,
    )


def _folds_case(directory: str) -> bool:
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    other = directory.swapcase()
    with contextlib.suppress(OSError):
        return other != directory and os.path.samefile(directory, other)
    return False
