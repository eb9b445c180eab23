"""The files of `wdspec validate` and `wdspec fmt`, and their settings in `[tool.wdspec]` of pyproject.toml."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from wdspec.base.errors import did_you_mean
from wdspec.spec.files import STANDARD_INPUT, ReadFile, hint_for_missing, read_from_disk
from wdspec.spec.load import Outline, outline
from wdspec.spec.problems import Problem
from wdspec.spec.yaml import MAX_BYTES

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

YAML = (".yaml", ".yml")
NAMED_AS_SPECS = (".wdspec.yaml", ".wdspec.yml")
_VERSION_KEY = re.compile(rb"""^(["']?)wdspec\1[ \t]*:""", re.MULTILINE)
_KEY = re.compile(rb"""^(["']?)(dataset|extends)\1[ \t]*:""", re.MULTILINE)
_OURS = re.compile(rb"\b(dataset|extends|wdspec)\b")
"""What a file must have to be a spec or to extend one."""
_IN_JSON = re.compile(rb"""dataset["']?\s*:|extends["']?\s*:\s*\[?\s*["']?[^"'\n]*\.ya?ml""")
"""What a JSON file must have to be a spec; most are something else."""
_KEYS_IN_JSON = frozenset({"dataset", "splits", "environments", "extends"})
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
    policy: str | None = None
    """A file with rules for the specs of this repository."""
    root: str = "."
    """The folder of pyproject.toml."""


_KEYS = tuple(name for name in LintSettings._fields if name != "root")


class Discovery(NamedTuple):
    """Files to work on."""

    specs: list[str]
    """What to check, in the given order; files of a folder are sorted by code point."""
    bases: list[str]
    """Files that one of the specs extends. Those with sources of their own are also in `specs`."""
    doubtful: list[Problem]
    """YAML files below folders that may be specs, each as a warning."""
    skipped: list[str]
    """The other YAML files below folders."""


def find_files(
    paths: Sequence[str], exclude: Sequence[str], purpose: str, vars: Mapping[str, Any] | None = None
) -> tuple[LintSettings, Discovery]:
    """Return the settings and the files for a command: those of the command line, else those of the settings.

    A path is a file, `-` for standard input, a glob, or a folder, in which hidden folders are skipped.

    Args:
        paths: on the command line.
        exclude: patterns as in `.gitignore`, in addition to those of the settings.
        purpose: the verb of the command, for messages.
        vars: values of variables, which `extends` may have.

    Raises:
        click.UsageError: no path is given, a path does not exist, a folder has no specs, or all specs are excluded.
            Only files that are given one by one may all be excluded.
    """
    settings = lint_settings()
    given = paths or [os.path.relpath(os.path.join(settings.root, path)) for path in settings.paths]
    if not given:
        raise click.UsageError(f"name the files or folders to {purpose}, or set `paths` in [tool.wdspec]")
    if len(given) == 1 and os.path.isfile(given[0]) and not exclude and not settings.exclude:
        return settings, Discovery(list(given), [], [], [])
    return settings, _search(given, settings, exclude, purpose, vars, may_be_none=bool(paths))


def _search(
    paths: Sequence[str],
    settings: LintSettings,
    exclude: Sequence[str],
    purpose: str,
    vars: Mapping[str, Any] | None,
    may_be_none: bool,
) -> Discovery:
    excluding = _Excluding((*settings.exclude, *exclude), settings.root)
    outlines = _Outlines(vars)
    specs: dict[str, None] = {}
    others: dict[str, None] = {}
    for path in paths:
        if os.path.isdir(path):
            files = list_yaml_files(path)
            found = list(filter(outlines.is_spec, files))
            if not found:
                what = (
                    f"its {len(files)} YAML files have neither `wdspec:` nor a `dataset:` with sources"
                    if files
                    else "it has no YAML files"
                )
                hint = "add `wdspec: 1`, or name a spec *.wdspec.yaml"
                raise click.UsageError(f"no specs below {path}: {what}; {hint}")
            others |= dict.fromkeys(filter(excluding.keeps, files))
        elif path == STANDARD_INPUT or os.path.exists(path) or os.path.exists(path.rpartition("#")[0]):
            found = [path]
        else:
            found = _expand_glob(path)
        may_be_none &= found == [path]
        specs |= dict.fromkeys(filter(excluding.keeps, found))
    if not specs and not may_be_none:
        patterns = " and ".join(f"`{pattern}`" for pattern in excluding.used)
        raise click.UsageError(
            f"nothing to {purpose}: {patterns} excludes every spec at {', '.join(paths)}; change the pattern in "
            "--exclude, or in `exclude` of [tool.wdspec]"
        )
    return outlines.sort(list(specs), [file for file in others if file not in specs])


def find_left_out(
    paths: Sequence[str],
    exclude: Sequence[str],
    vars: Mapping[str, Any] | None,
    settings: LintSettings,
    found: Discovery,
) -> list[Problem]:
    """Find the specs, and the files that look like one, which settings leave out.

    Args:
        paths, exclude, vars: see `find_files`.
        settings: the settings.
        found: the files that are checked.
    """
    places = paths or [os.path.relpath(settings.root)]
    try:
        every = _search(places, settings._replace(exclude=()), exclude, "check", vars, may_be_none=True)
    except click.UsageError:  # a folder without specs
        return []
    known = {os.path.realpath(file) for file in found.specs}
    excluding = _Excluding(settings.exclude, settings.root)
    problems = []
    for file in every.specs:
        if os.path.realpath(file) not in known:
            key = "paths" if excluding.keeps(file) else "exclude"
            message = f"this spec was not checked: `{key}` of [tool.wdspec] leaves it out"
            hint = "with `--policy`, all specs are checked: name its folder on the command line, or change the setting"
            problems.append(Problem("P103", message, hint, os.path.normpath(file), 1, 1))
    doubtful = (
        replace(problem, code="P103", file=os.path.normpath(problem.file)) for problem in every.doubtful
    )
    return [*problems, *doubtful, *_find_hidden(places, exclude, vars, settings.root)]


def _find_hidden(
    places: Sequence[str], exclude: Sequence[str], vars: Mapping[str, Any] | None, root: str
) -> Iterator[Problem]:
    """The specs below folders that a search does not look at, but a loader reads as any other."""
    excluding, outlines = _Excluding(exclude, root), _Outlines(vars)
    for place in filter(os.path.isdir, places):
        searched = set(list_yaml_files(place))
        for file in list_hidden_files(place):
            if file not in searched and excluding.keeps(file) and outlines.is_spec(file):
                message = "this spec was not checked: it is in a folder, or has a name, that is not searched"
                hint = "move it, or call it *.yaml; name what is no spec of yours in --exclude"
                yield Problem("P103", message, hint, os.path.normpath(file), 1, 1)


class _Excluding:
    """Patterns as in `.gitignore`, and which of them have excluded files."""

    def __init__(self, patterns: Sequence[str], root: str) -> None:
        self.used: dict[str, None] = {}
        self._root = root
        self._spec: GitIgnoreSpec | None = None
        if patterns:
            from pathspec import GitIgnoreSpec

            self._spec = GitIgnoreSpec.from_lines(patterns)

    def keeps(self, file: str) -> bool:
        """Whether no pattern excludes a file."""
        if self._spec is None:
            return True
        found = self._spec.check_file(os.path.relpath(file, self._root))
        if found.include and found.index is not None:
            self.used[str(self._spec.patterns[found.index].pattern)] = None
        return not found.include


def specs_among(files: Sequence[str], read: ReadFile, vars: Mapping[str, Any] | None = None) -> list[str]:
    """Select the specs from the YAML files of a folder, without bases that have no sources and without excluded files.

    Args:
        read: reads the files, from the disk or from a revision of git.
        vars: values of variables, which `extends` may have.
    """
    settings = lint_settings()
    outlines = _Outlines(vars, read)
    found = filter(_Excluding(settings.exclude, settings.root).keeps, filter(outlines.is_spec, files))
    return outlines.sort(list(found), []).specs


class _Outlines:
    """Which files are specs, and which are bases of others: by their names, their keys, and what they extend."""

    def __init__(self, vars: Mapping[str, Any] | None, read: ReadFile = read_from_disk) -> None:
        self._vars, self._read = vars, read
        self._known: dict[str, Outline | None] = {}

    def of(self, file: str) -> Outline | None:
        """The outline of a file; None if it cannot be one of a spec."""
        if file not in self._known:
            may_be = _OURS.search(self._text(file) or b"") is not None
            self._known[file] = outline(file, self._vars, self._read) if may_be else None
        return self._known[file]

    def _text(self, file: str) -> bytes | None:
        """The bytes of a file; None if it cannot be read, or not twice, as a pipe."""
        try:
            return self._read(
                os.path.abspath(file if os.path.exists(file) else file.partition("#")[0]), True, MAX_BYTES
            )
        except (OSError, ValueError):
            return None

    def is_spec(self, file: str) -> bool:
        """Whether a YAML file in a folder is a spec. The check reports one that cannot be read."""
        text = self._text(file)
        if file.endswith(NAMED_AS_SPECS) or text is None or _VERSION_KEY.search(text):
            return True
        found = self.of(file)
        return found is not None and (
            found.has_sources
            or found.has_version
            or any(base.endswith(NAMED_AS_SPECS) for base in found.bases)
        )

    def sort(self, files: list[str], others: list[str]) -> Discovery:
        """Decide what to do with specs and with other YAML files."""
        bases = {file: found.bases for file in files if (found := self.of(file))}
        real = {file: os.path.realpath(file) for file in (*files, *others)}
        circular = {real[file]: found for file, found in bases.items()}
        extended = {
            base
            for file, found in bases.items()
            for base in found
            if real[file] not in circular.get(base, ())
        }
        whole = [file for file in files if real[file] not in extended or self._is_whole(file)]
        rest = [file for file in others if real[file] not in extended]
        doubtful = {file: problem for file in rest if (problem := self._doubt(file))}
        return Discovery(
            whole,
            [file for file in (*files, *others) if real[file] in extended],
            list(doubtful.values()),
            [file for file in rest if file not in doubtful],
        )

    def _is_whole(self, file: str) -> bool:
        found = self.of(file)
        return found is not None and found.has_sources

    def _doubt(self, file: str) -> Problem | None:
        """The warning about a file that is neither a spec nor a base, but has a key of specs."""
        found = self.of(file)
        line, column = 1, 1
        if found is None or found.own is None:
            match, why = found and _KEY.search(self._text(file) or b""), "is not YAML"
            key = match[2].decode() if match else ""
        else:
            key = next((each for each in ("dataset", "extends") if each in found.own.entries), "")
            why = "has no source with `shards`" if key == "dataset" else "extends no spec that can be read"
            _, line, column = found.own.key_or_self(key).position
        if not key:
            return None
        message = f"this file has the key `{key}` but is not checked, because it {why}"
        hint = (
            "if it is a spec, add `wdspec: 1`; if not, name it in `exclude` of [tool.wdspec], or in --exclude"
        )
        return Problem("W110", message, hint, file, line, column, len(key))


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
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            import tomllib

            return tomllib.load(file).get("tool", {}).get("wdspec")
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
        elif key in ("env", "policy"):
            kind, is_valid = "a text", isinstance(value, str)
        else:
            kind = "a list of texts"
            is_valid = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not is_valid:
            raise click.UsageError(f"{where}: {key} takes {kind}, not {value!r}")
        values[key] = tuple(value) if isinstance(value, list) else value
    return LintSettings(**values)


def _expand_glob(pattern: str) -> list[str]:
    import glob

    found = sorted(each for each in glob.glob(pattern, recursive=True) if os.path.isfile(each))
    if not found:
        what = "no file matches" if glob.has_magic(pattern) else "no such file or directory:"
        raise click.UsageError(f"{what} {pattern}; {hint_for_missing(pattern)}")
    return found


def is_searched(folder: str) -> bool:
    """Whether files in a folder of this name may be specs."""
    return not folder.startswith(".") and folder not in _SKIPPED


def list_yaml_files(folder: str) -> list[str]:
    """List the YAML files below a folder, except in hidden folders, sorted by code point."""
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = filter(is_searched, folders)
        files += [os.path.join(parent, name) for name in names if name.endswith(YAML)]
    return sorted(files)


def list_hidden_files(folder: str) -> list[str]:
    """List the YAML and JSON files below a folder that may be specs, also in hidden folders, but not in that of git."""
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = (each for each in folders if each != ".git")
        for path in (os.path.join(parent, name) for name in names if name.lower().endswith((*YAML, ".json"))):
            if os.path.isfile(path) and (not path.endswith(".json") or _is_like_spec(path)):
                files.append(path)
    return sorted(files)


def _is_like_spec(path: str) -> bool:
    """Whether a JSON file has keys of a spec at the top."""
    try:
        data = read_from_disk(path, True)
        if not _IN_JSON.search(data):
            return False
        top = json.loads(data)
    except OSError:
        return False
    except ValueError:  # YAML in a file of this name
        return True
    return isinstance(top, dict) and not top.keys().isdisjoint(_KEYS_IN_JSON)
