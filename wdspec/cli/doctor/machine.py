"""Versions of what is installed, and the limits of this machine that loaders run into."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from wdspec.base.process import cores
from wdspec.cli.support.tables import size

_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+).*?(?:extra == ['\"](\w+)['\"])?\s*$")
_FOR_DEVELOPERS = frozenset({"test", "fuzz", "frameworks", "ray", "docs"})
LITTLE_SHARED_MEMORY = 1 << 30
FEW_FILES = 4096


class Installed(NamedTuple):
    """A library that wdspec can use."""

    extra: str
    """The extra of wdspec that brings it; "" for those that it always has."""
    library: str
    version: str | None
    """None: not installed."""


class Limit(NamedTuple):
    """A limit of the machine, and what follows from it if it is low."""

    name: str
    value: str
    advice: str = ""


def installed() -> Iterator[Installed]:
    """The libraries that wdspec names in its metadata, those it always has first."""
    seen = set()
    for text in metadata.requires("wdspec") or ():
        found = _REQUIREMENT.match(text)
        assert found is not None
        library, extra = found[1], found[2] or ""
        if extra in _FOR_DEVELOPERS or library == "wdspec" or (library, extra) in seen:
            continue
        seen.add((library, extra))
        yield Installed(extra, library, _version(library))


def programs() -> dict[str, str]:
    """Versions of wdspec, Python and the system."""
    return {
        "wdspec": _version("wdspec") or "?",
        "Python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
    }


def limits() -> Iterator[Limit]:
    """Processors, memory, shared memory, open files, how workers start."""
    yield Limit("processors", str(cores()))
    if hasattr(os, "sysconf"):
        yield Limit("memory", size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    if os.path.isdir("/dev/shm"):
        free = shutil.disk_usage("/dev/shm").free
        advice = (
            "workers hand batches over in it; give the container more (`docker run --shm-size=8g`)"
            if free < LITTLE_SHARED_MEMORY
            else ""
        )
        yield Limit("/dev/shm, free", size(free), advice)
    try:
        import resource
    except ImportError:
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = files != resource.RLIM_INFINITY and files < FEW_FILES
    advice = "many sources with many shards in turn may need more; raise it with `ulimit -n`" if few else ""
    yield Limit("open files", "no limit" if files == resource.RLIM_INFINITY else f"{files:,}", advice)


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
