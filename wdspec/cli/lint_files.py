"""`[tool.wdspec]` in pyproject.toml: how the specs of a repository are checked.

Which files `wdspec validate` checks: those given, and the specs below folders.
"""

from __future__ import annotations

import glob
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from wdspec.base.errors import did_you_mean
from wdspec.spec.files import STANDARD_INPUT


class LintSettings(NamedTuple):
    """What pyproject.toml says; the fields are its keys, options of `validate` go before them."""

    paths: tuple[str, ...] = ()
    """What is checked where a command names nothing."""
    exclude: tuple[str, ...] = ()
    """Patterns as in `.gitignore` of what is left out."""
    ignore: tuple[str, ...] = ()
    """Codes of warnings that are not reported."""
    strict: bool = False
    """Whether warnings fail a check as errors do."""
    env: str | None = None
    """The environment to check."""
    root: str = "."
    """Where pyproject.toml stands; no key."""


_KEYS = tuple(name for name in LintSettings._fields if name != "root")


def lint_settings(start: str = ".") -> LintSettings:
    """The settings of the nearest pyproject.toml with `[tool.wdspec]`, from a folder upwards.

    Raises:
        click.UsageError: it cannot be read, or has other keys or kinds of values.
    """
    folder = os.path.abspath(start)
    while True:
        path = os.path.join(folder, "pyproject.toml")
        table = _table(path)
        if table is not None:
            return _checked(table, path)._replace(root=folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            return LintSettings()
        folder = parent


def _table(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file).get("tool", {}).get("wdspec")
    except FileNotFoundError:
        return None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {path}: {error}") from None


def _checked(table: Any, path: str) -> LintSettings:
    where = f"[tool.wdspec] in {path}"
    if not isinstance(table, Mapping):
        raise click.UsageError(f"{where} is no table")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f"its keys: {', '.join(_KEYS)}"
            raise click.UsageError(f"{where}: unknown key {key!r}; {hint}")
        kind, is_right = {
            "strict": ("true or false", isinstance(value, bool)),
            "env": ("a text", isinstance(value, str)),
        }.get(
            key, ("a list of texts", isinstance(value, list) and all(isinstance(item, str) for item in value))
        )
        if not is_right:
            raise click.UsageError(f"{where}: {key} takes {kind}, not {value!r}")
        values[key] = tuple(value) if isinstance(value, list) else value
    return LintSettings(**values)


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
