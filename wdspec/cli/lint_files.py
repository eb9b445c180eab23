"""The files of `wdspec validate` and `wdspec fmt`, and their settings in `[tool.wdspec]` of pyproject.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from wdspec.base.errors import did_you_mean
from wdspec.spec.files import STANDARD_INPUT, hint_for_missing

YAML = (".yaml", ".yml")
NAMED_AS_SPECS = (".wdspec.yaml", ".wdspec.yml")
_VERSION_KEY = re.compile(rb"""^(["']?)wdspec\1[ \t]*:""", re.MULTILINE)
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


paths_argument = click.argument("paths", metavar="[FILE|DIR|GLOB|-]...", nargs=-1)
exclude_option = click.option(
    "--exclude", metavar="PATTERN", multiple=True, help="Exclude files, as in .gitignore. Repeatable."
)


class LintSettings(NamedTuple):
    """The settings in pyproject.toml; options of `validate` override them. All fields except `root` are keys."""

    paths: tuple[str, ...] = ()
    """Files and folders for commands without arguments."""
    exclude: tuple[str, ...] = ()
    """Files to exclude, as in `.gitignore`."""
    ignore: tuple[str, ...] = ()
    """Codes of warnings that are not reported."""
    strict: bool = False
    """Whether warnings fail a check."""
    env: str | None = None
    """The environment to check."""
    root: str = "."
    """The folder of pyproject.toml."""


_KEYS = tuple(name for name in LintSettings._fields if name != "root")


class Discovery(NamedTuple):
    """Files to work on."""

    specs: list[str]
    """In the given order; files of a folder are sorted by code point."""
    others: int
    """Number of YAML files below folders that are not marked as specs."""


def find_files(paths: Sequence[str], exclude: Sequence[str], purpose: str) -> tuple[LintSettings, Discovery]:
    """Return the settings and the files for a command: those of the command line, else those of the settings.

    Args:
        paths: on the command line.
        exclude: patterns as in `.gitignore`, in addition to those of the settings.
        purpose: the verb of the command, for messages.

    Raises:
        click.UsageError: no path is given, or a path does not exist.
    """
    settings = lint_settings()
    paths = paths or [os.path.relpath(os.path.join(settings.root, path)) for path in settings.paths]
    if not paths:
        raise click.UsageError(f"name the files or folders to {purpose}, or set `paths` in [tool.wdspec]")
    return settings, find_specs(paths, (*settings.exclude, *exclude), settings.root)


def lint_settings(start: str = ".") -> LintSettings:
    """The settings in the nearest pyproject.toml with `[tool.wdspec]`, from a folder upwards.

    Raises:
        click.UsageError: the file cannot be read, or has unknown keys or invalid values.
    """
    folder = os.path.abspath(start)
    while True:
        path = os.path.join(folder, "pyproject.toml")
        table = _read_table(path)
        if table is not None:
            return _check_settings(table, path)._replace(root=folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            return LintSettings()
        folder = parent


def _read_table(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            import tomllib

            return tomllib.load(file).get("tool", {}).get("wdspec")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # of TOML and of UTF-8
        raise click.UsageError(f"cannot read {path}: {error}") from None


def _check_settings(table: Any, path: str) -> LintSettings:
    where = f"[tool.wdspec] in {path}"
    if not isinstance(table, Mapping):
        raise click.UsageError(f"{where} is not a table")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f"its keys: {', '.join(_KEYS)}"
            raise click.UsageError(f"{where}: unknown key {key!r}; {hint}")
        if key == "strict":
            kind, is_valid = "true or false", isinstance(value, bool)
        elif key == "env":
            kind, is_valid = "a text", isinstance(value, str)
        else:
            kind = "a list of texts"
            is_valid = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not is_valid:
            raise click.UsageError(f"{where}: {key} takes {kind}, not {value!r}")
        values[key] = tuple(value) if isinstance(value, list) else value
    return LintSettings(**values)


def find_specs(paths: Iterable[str], exclude: Sequence[str] = (), root: str = ".") -> Discovery:
    """Find the specs at some paths, each once.

    A path is a file, `-` for standard input, a glob, or a folder. Files in a folder are specs if they are named
    `*.wdspec.yaml`, or have the key `wdspec:`; hidden folders are skipped.

    Args:
        paths: on the command line, or in the settings.
        exclude: patterns as in `.gitignore` of files to exclude, even if they are given as paths.
        root: the folder that these patterns are relative to.

    Raises:
        click.UsageError: a path does not exist, or a folder has no specs.
    """
    specs: dict[str, None] = {}
    others = 0
    is_kept = _build_filter(exclude, root) if exclude else None
    for path in paths:
        if os.path.isdir(path):
            below = list(filter(is_kept, _list_yaml_files(path)))
            found = [file for file in below if file.endswith(NAMED_AS_SPECS) or _has_version(file)]
            others += len(below) - len(found)
            if not found and not exclude:
                what = (
                    f"its {len(below)} YAML files have no key `wdspec:`" if below else "it has no YAML files"
                )
                raise click.UsageError(
                    f"no specs below {path}: {what}; add `wdspec: 1`, or name a spec *.wdspec.yaml"
                )
        elif path == STANDARD_INPUT or os.path.exists(path) or os.path.exists(path.rpartition("#")[0]):
            found = list(filter(is_kept, [path]))
        else:
            found = list(filter(is_kept, _expand_glob(path)))
        specs |= dict.fromkeys(found)
    return Discovery(list(specs), others)


def _expand_glob(pattern: str) -> list[str]:
    import glob

    found = sorted(each for each in glob.glob(pattern, recursive=True) if os.path.isfile(each))
    if not found:
        what = "no file matches" if glob.has_magic(pattern) else "no such file or directory:"
        raise click.UsageError(f"{what} {pattern}; {hint_for_missing(pattern)}")
    return found


def _list_yaml_files(folder: str) -> list[str]:
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        files += [os.path.join(parent, name) for name in names if name.endswith(YAML)]
    return sorted(files)


def _has_version(file: str) -> bool:
    try:
        with open(file, "rb") as text:
            return _VERSION_KEY.search(text.read()) is not None
    except OSError:
        return True  # the check reports the error


def _build_filter(patterns: Sequence[str], root: str) -> Callable[[str], bool]:
    from pathspec import GitIgnoreSpec

    spec = GitIgnoreSpec.from_lines(patterns)
    return lambda file: not spec.match_file(os.path.relpath(file, root))
