"""Dialects: a function that recognizes a file of another tool, and one that converts it.

`Given` is the file, `NewSpec` the spec that a dialect fills. The functions at the end accept values of any kind, since
files of other tools may contain anything.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from wdspec.base.errors import UsageError
from wdspec.base.files import open_regular
from wdspec.urls.urls import is_command, is_relative

MAX_BYTES = 8 * 1024 * 1024
MAX_VALUES = 1_000_000
MAX_YAML_VALUES = 100_000
"""Values of a YAML file. Reading so many takes seconds."""
MAX_SOURCES = 10_000
_DEEPEST = 64
"""How deeply lists and maps may be nested."""
_MOST_INCLUDED = 8
"""How deeply files may include each other."""
_LARGEST = sys.float_info.max
_VARIABLE = re.compile(r"\$(?:\{(?:oc\.env:)?([A-Za-z_]\w*)(?:(?:,|:-)([^{}]*))?\}|([A-Za-z_]\w*))")
_NUMBER_AT_END = re.compile(r"[-_.]*(?:\{[^{}]*\}|[*?]|[-_.]?\d++)+$")
_LONGEST_NAME = 1000


@dataclass(frozen=True)
class Dialect:
    """A row of the table of dialects."""

    name: str
    """Its name for `--from`."""
    title: str
    """A description for users: `an Energon metadataset`."""
    recognises: Callable[[Given], bool]
    """Whether a file is of this dialect, judging by its content."""
    convert: Callable[[Given, NewSpec], None]
    """Fills the new spec."""


@dataclass(frozen=True)
class Given:
    """A file or a text. It may also be a directory, without text and value."""

    text: str
    value: Any
    """The value of the text as JSON or YAML; None if it is neither."""
    folder: str
    """Absolute directory where paths start that are relative to the file."""
    file: str | None = None
    """The name that the user gave."""
    is_folder: bool = False

    @classmethod
    def of_text(cls, text: str, folder: str, file: str | None = None) -> Given:
        """Parse a text."""
        return cls(text, _parse(text), folder, file)

    @classmethod
    def read(cls, path: str) -> Given:
        """Read a local file or directory.

        Raises:
            UsageError: it is too large, or not text.
            OSError: it cannot be read.
        """
        absolute = os.path.abspath(os.path.expanduser(path))
        if os.path.isdir(absolute):
            return cls("", None, absolute, path, is_folder=True)
        try:
            with open_regular(absolute, descriptors=True) as file:
                data = file.read(MAX_BYTES + 1)
        except ValueError:  # it has a NUL, or half of a surrogate pair
            raise FileNotFoundError(errno.ENOENT, "no file can have this name", path) from None
        if len(data) > MAX_BYTES:
            raise UsageError(
                f"it is larger than {MAX_BYTES // 2**20} MiB, so it does not describe a mixture", file=path
            )
        try:
            return cls.of_text(data.decode("utf-8-sig"), os.path.dirname(absolute), path)
        except UnicodeDecodeError as error:
            raise UsageError(f"this is not text in UTF-8: {error.reason}", file=path) from None

    @property
    def fault(self) -> str:
        """Where and why a YAML or JSON file cannot be parsed; "" for other files."""
        if not (self.file or "").lower().endswith((".yaml", ".yml", ".json")):
            return ""
        try:
            if not _is_small(yaml.load(self.text, Loader=_Tolerant)):
                raise RecursionError
        except RecursionError:
            return f"it has more than {_DEEPEST} levels, or more than {MAX_YAML_VALUES:,} values"
        except yaml.MarkedYAMLError as error:
            mark, problem = error.problem_mark, error.problem or error.context
            problem = re.sub(r" '[^']*'$", "", problem or "")  # an alias may be a part of a password
            return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
        except (yaml.YAMLError, ValueError, TypeError) as error:
            return str(error).partition("\n")[0]
        return ""

    @property
    def top(self) -> dict[Any, Any]:
        """The map at the top level; empty if there is none."""
        return self.value if isinstance(self.value, dict) else {}


def _parse(text: str) -> Any:
    try:
        value = json.loads(text)
        return value if _is_small(value) else None
    except (ValueError, RecursionError):
        pass
    try:
        value = yaml.load(text, Loader=_Tolerant)  # makes only plain values
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return None
    return value if _is_small(value) else None


def _is_small(value: Any) -> bool:
    """Whether a value has at most `MAX_VALUES` and few levels: with aliases, a small file has any number of them."""
    level, left = [value], MAX_VALUES
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for each in level:
            inner += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
            if len(inner) > left:
                return False
        left -= len(inner)
        level = inner
    return not level


class _Tolerant(yaml.SafeLoader):
    """Makes plain values and ignores tags, since configurations of other tools have their own."""

    _left = MAX_YAML_VALUES

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._left -= 1
        if self._left < 0:
            raise RecursionError
        found: yaml.Node | None = super().compose_node(parent, index)
        return found


def _drop_tag(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


def _tell_fault(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    """Make a number or boolean; text that is none of them, but has the tag of one, is a fault of the file.

    A number as long as a text is one: YAML has numbers to the base of 60, with any number of parts.
    """
    if len(node.value) > _LONGEST_NUMBER:
        return node.value
    try:
        return yaml.SafeLoader.yaml_constructors[node.tag](loader, node)
    except (ArithmeticError, LookupError, ValueError):
        kind, shown = node.tag.rpartition(":")[2], repr(node.value[:40])
        raise yaml.constructor.ConstructorError(
            None, None, f"{shown} is no {kind}; correct it, or remove the tag", node.start_mark
        ) from None


_LONGEST_NUMBER = 100
_Tolerant.add_multi_constructor("", _drop_tag)
for _kind in ("int", "float", "bool"):
    _Tolerant.add_constructor(f"tag:yaml.org,2002:{_kind}", _tell_fault)
_Tolerant.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)  # a spec has no dates


class NewSpec:
    """The spec that a dialect fills.

    Args:
        folder: absolute directory of the new spec, where its relative paths start.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.spec: dict[str, Any] = {}
        self.notes: dict[str, None] = {}
        """In their order, each once."""
        self._names: dict[str, int] = {}
        self._files: dict[str, Given] = {}

    def note(self, text: str) -> None:
        """Add a note about something that the new spec does not have, or has in another way."""
        self.notes.setdefault(text)

    def note_keys(self, given: Mapping[Any, Any], meanings: Mapping[str, str], where: str = "") -> None:
        """Add a note for each key that cannot be converted; `meanings` says why, or what to do instead."""
        for key, why in meanings.items():
            if key in given and given[key] not in (None, False):
                self.note(f"{where}{': ' if where else ''}`{key}: {given[key]}` is not converted: {why}")

    def whole(self, given: Mapping[Any, Any], key: str, least: int = 0) -> int | None:
        """The whole number of a key; None if there is none, with a note if there is something else."""
        value = given.get(key)
        if value is None:
            return None
        found = number(value)
        if found is not None and found >= least and found == int(found):
            return int(found)
        self.note(f"`{key}: {value}` is not converted: it is not a whole number of at least {least}")
        return None

    def note_unknown(self, given: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
        """Add a note for each key that the dialect does not know."""
        for key in given:
            if key not in known:
                self.note(
                    f"{where}: `{key}` is not converted: wdspec has no equivalent, or it is not about mixing"
                )

    def note_concatenated(self) -> None:
        """Add a note about the shares of data sets that a tool concatenated."""
        self.note(
            "data sets were concatenated, so shares were numbers of samples: add `samples` to each source, and `mix: "
            "{by: samples}`; until then shares are numbers of shards"
        )

    def note_unreadable(self, name: str) -> None:
        """Add a note about a source whose files are perhaps not shards."""
        self.note(
            f"{name}: its files must be tar, JSON lines, Parquet or Arrow; convert CSV, text and JSON lists to shards, "
            "and correct `shards`"
        )

    def note_part(self, source: dict[str, Any], part: float, what: str) -> None:
        """Choose a part of the samples of a source, between 0 and 1, with a note; `what` says it in the tool's way."""
        source["subset"] = f"{part * 100:.6g}%"
        self.note(f"{source['name']}: {what} becomes a part of that size, by a hash of the keys")

    def note_passes(self, name: str, what: str) -> None:
        """Add a note about a source that was read a number of times in each epoch."""
        self.note(
            f"{name}: `{what}` is an exact number of passes per epoch; here it multiplies the size of the source, so "
            "shares agree only in a long run"
        )

    def set_seed(self, value: Any) -> None:
        """Set the seed, if the value is a number."""
        if (seed := number(value)) is not None:
            self.spec["seed"] = int(seed)

    def set_splits(self, train: dict[str, Any], val: dict[str, Any] | None) -> None:
        """Set the keys for training; if there is data for evaluation, set splits, of which `val` is a pass."""
        if val is None:
            self.spec.update(train)
        else:
            self.spec["splits"] = {"train": train, "val": {**val, "epoch": "pass"}}

    def unknown_source(self, line: int) -> dict[str, Any]:
        """Make a source whose shards are unknown, as code that is not run makes it."""
        self.note(f"line {line}: the code that makes this data set was not found; correct its `shards`")
        return self.source("unknown", "unknown.tar")

    def source(self, wanted: str, shards: str | Sequence[str], **keys: Any) -> dict[str, Any]:
        """Make a source with a unique name; keys that are None or empty are left out."""
        texts = [shards] if isinstance(shards, str) else list(shards)
        given = {key: value for key, value in keys.items() if value is not None and value != {}}
        name = self.name(wanted or _stem(texts[0] if texts else ""))
        return {"name": name, "shards": texts[0] if len(texts) == 1 else texts, **given}

    def name(self, wanted: str) -> str:
        """Make a unique name of a source, as close as possible to its name in the tool.

        Raises:
            UsageError: the spec has too many sources: small files that include each other can have any number of them.
        """
        name = plain = re.sub(r"[^\w.+-]+", "-", wanted).strip("-.") or "source"
        if len(self._names) >= MAX_SOURCES:
            message = f"there are more than {MAX_SOURCES:,} sources; look for files or lists that include each other"
            raise UsageError(message, code="E009", source=name)
        while name in self._names:
            self._names[plain] += 1
            name = f"{plain}-{self._names[plain]}"
        self._names[name] = 1
        return name

    def read(self, path: str, depth: int) -> Given | str:
        """Read a file that another one includes, once, or return why that is impossible.

        Args:
            path: the file.
            depth: the number of files that include it, directly or not.

        Raises:
            UsageError: it is too large, or not text.
        """
        if depth >= _MOST_INCLUDED:
            return "includes itself"
        try:
            if path not in self._files:
                self._files[path] = Given.read(path)
        except OSError:
            return "cannot be read"
        return self._files[path]

    def variables(self, text: str) -> str:
        """Convert `$NAME`, `${NAME}` and `${oc.env:NAME}` in a text to variables of the spec.

        Their values are not read, since environment variables may be secret.
        """

        def replaced(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            if is_command(text.lstrip()):
                return f"$${{{name}}}"  # the shell's own
            own = re.sub(r"^WDS_", "", name)
            self.spec.setdefault("vars", {}).setdefault(own, match[2] or f"unset-{own}")
            if not match[2]:
                self.note(
                    f"`${name}` was an environment variable: it is now the variable `{own}`; set WDS_{own}, pass --var "
                    f"{own}=…, or write its value under `vars:`"
                )
            return f"${{{own}}}"

        return _VARIABLE.sub(replaced, text)

    def path(self, text: str, start: str | None = None) -> str:
        """Convert a path; URLs and absolute paths do not change.

        Args:
            start: the absolute directory where a relative path starts. None: where the tool was started, which is
                unknown, so the path does not change.
        """
        text = self.variables(os.path.expanduser(text) if text.startswith("~") else text)
        if not is_relative(text) or text.startswith("$"):
            return text
        if start is None:
            self.note(
                "relative paths started in the working directory of the tool; now they start in the directory of the "
                "spec"
            )
            return text
        slash = "/" if text.endswith("/") else ""
        return os.path.relpath(os.path.join(start, text), self.folder) + slash


def pack(new: NewSpec, length: int, rows: int, is_tokenized: bool = False, **keys: Any) -> dict[str, Any]:
    """Make the `batch` of a tool that packs token ids into rows.

    Args:
        length: the tokens of a row.
        rows: how many rows its batches had.
        is_tokenized: whether shards have token ids, so that no code of the tool makes them.
        keys: keys of `pack`, and `overlong`.
    """
    overlong = keys.pop("overlong", None)
    pack = {"fields": ["input_ids", "labels"], "length": length, "pad": {"labels": -100}, **keys}
    pack = {key: value for key, value in pack.items() if value}
    fields = " and ".join(f"`{name}`" for name in pack["fields"])
    if rows > 1:
        new.note(
            f"a batch had {rows} rows of {length:,} tokens; now it has one: accumulate gradients over {rows}"
        )
    if not is_tokenized and pack.get("method") == "concatenate":
        new.note(f"to join and cut samples, {fields} have to be in the shards: tokenize before training")
    elif not is_tokenized:
        overlong = "drop"
        new.note(
            f"templates and tokenizers are not converted: store {fields} in the shards; or make them in a function of "
            "`map`, which cuts long samples as the tool did, and name them in its `sets`"
        )
    return {**({"overlong": overlong} if overlong else {}), "pack": pack}


def _stem(shards: str) -> str:
    """Make a name from shards: `coco` from `s3://b/coco-{000..099}.tar`."""
    folder, _, name = shards.rstrip("/").rpartition("/")
    for suffix in (".gz", ".zst", ".bz2", ".tar", ".tgz", ".jsonl", ".json", ".npy", ".parquet", ".arrow"):
        name = name.removesuffix(suffix)
    name = name[-_LONGEST_NAME:]
    stem = _NUMBER_AT_END.sub("", name)
    return stem if re.search(r"[^\W\d]", stem) else folder.rpartition("/")[2] or name


def map_with(
    value: Any, is_wanted: Callable[[dict[Any, Any]], bool], without: Sequence[str] = (), depth: int = 0
) -> dict[Any, Any] | None:
    """Find the first map that is wanted, at the top or a few levels down. Keys that contain a word of `without` are
    skipped."""
    if not isinstance(value, dict) or depth > 4:
        return None
    if is_wanted(value):
        return value
    inner = (each for key, each in value.items() if not any(word in str(key) for word in without))
    found = (map_with(each, is_wanted, without, depth + 1) for each in inner)
    return next((each for each in found if each is not None), None)


def maps_in(value: Any) -> list[dict[Any, Any]]:
    """The maps of a list; none if it is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts_in(value: Any) -> list[str]:
    """A text, or all texts of nested lists."""
    if isinstance(value, str):
        return [value]
    return [text for each in value for text in texts_in(each)] if isinstance(value, (list, tuple)) else []


def number(value: Any) -> float | int | None:
    """Read a finite number, also in quotes; None if it is not one."""
    if isinstance(value, str):
        try:
            value = int(value) if value.isdecimal() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) <= _LARGEST else None  # also no NaN, and no integer that is not a finite float


def with_text_keys(value: Any) -> dict[str, Any]:
    """A map with its keys as texts; empty if it is not a map."""
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else {}
