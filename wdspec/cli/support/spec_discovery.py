"""Which files `wdspec validate` checks: those given, and the specs below folders."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import click

from wdspec.spec.files import STANDARD_INPUT

YAML = (".yaml", ".yml")
NAMED_AS_SPECS = (".wdspec.yaml", ".wdspec.yml")
_VERSION_KEY = re.compile(rb"""^(["']?)wdspec\1[ \t]*:""", re.MULTILINE)
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


class Discovery(NamedTuple):
    """What was found."""

    specs: list[str]
    """In the order given; those of a folder in order of code points."""
    others: int
    """YAML files below folders that nothing marks as specs."""


def find_specs(paths: Iterable[str], exclude: Sequence[str] = (), root: str = ".") -> Discovery:
    """The files that paths stand for, each once.

    A file is taken as given, `-` is standard input, and what is no file may be a glob. Of a folder, files count
    as specs if they are named `*.wdspec.yaml`, or have the key `wdspec:`; hidden folders are left out.

    Args:
        exclude: patterns as in `.gitignore`; what they match is left out, however it was given.
        root: what these patterns are relative to.

    Raises:
        click.UsageError: nothing is there.
    """
    specs: dict[str, None] = {}
    others = 0
    excluded = _matcher(exclude, root)
    for path in paths:
        if not os.path.isdir(path):
            specs |= dict.fromkeys(file for file in _given(path) if not excluded(file))
            continue
        below = [file for file in _yaml_files(path) if not excluded(file)]
        found = [file for file in below if file.endswith(NAMED_AS_SPECS) or _has_version(file)]
        if not found and not exclude:
            what = f"its {len(below)} YAML files have no key `wdspec:`" if below else "it has no YAML files"
            raise click.UsageError(
                f"there is no spec below {path}: {what}; add `wdspec: 1`, or call a spec *.wdspec.yaml"
            )
        specs |= dict.fromkeys(found)
        others += len(below) - len(found)
    return Discovery(list(specs), others)


def _given(path: str) -> list[str]:
    if (
        path == STANDARD_INPUT
        or os.path.exists(path)
        or ("#" in path and os.path.exists(path.rpartition("#")[0]))
    ):
        return [path]
    found = sorted(each for each in glob.glob(path, recursive=True) if os.path.isfile(each))
    if not found:
        what = "no file matches" if glob.has_magic(path) else "there is no file or directory"
        raise click.UsageError(f"{what} {path}")
    return found


def _yaml_files(folder: str) -> Iterator[str]:
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        files += [os.path.join(parent, name) for name in names if name.endswith(YAML)]
    return iter(sorted(files))


def _has_version(file: str) -> bool:
    try:
        with open(file, "rb") as text:
            return _VERSION_KEY.search(text.read()) is not None
    except OSError:
        return True  # the check says what is wrong with it


def _matcher(patterns: Sequence[str], root: str) -> Callable[[str], bool]:
    if not patterns:
        return lambda file: False
    from pathspec import GitIgnoreSpec

    spec = GitIgnoreSpec.from_lines(patterns)
    return lambda file: spec.match_file(os.path.relpath(file, root))
