"""What a dialect is, the file of another tool that it reads, and the spec that it fills.

A dialect only describes itself: how its file is recognised, and a function that fills a `NewSpec`. The functions at the
end take values of any kind, since files of other tools may hold anything.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from wdspec.base.errors import UrlError, UsageError
from wdspec.urls.urls import is_command, is_relative, parse_shards

MAX_BYTES = 8 * 1024 * 1024
MAX_VALUES = 1_000_000
_VARIABLE = re.compile(r"\$(?:\{(?:oc\.env:)?([A-Za-z_]\w*)(?:(?:,|:-)([^{}]*))?\}|([A-Za-z_]\w*))")
_NUMBER_AT_END = re.compile(r"[-_.]*(?:\{[^{}]*\}|[*?]|[-_.]?\d+)+$")


@dataclass(frozen=True)
class Dialect:
    """A row of the table of dialects."""

    name: str
    """For `--from`."""
    title: str
    """What it is, for people: `an Energon metadataset`."""
    recognises: Callable[[Given], bool]
    """Whether a file is of this kind, by what stands in it."""
    convert: Callable[[Given, NewSpec], None]
    """Fills the new spec."""


@dataclass(frozen=True)
class Given:
    """A file, or a text from elsewhere; a folder has neither text nor value."""

    text: str
    value: Any
    """What the text spells as JSON or YAML; None where it is neither."""
    folder: str
    """Absolute; where relative paths start that the tool takes relative to its file."""
    file: str | None = None
    """What the user calls it."""
    is_folder: bool = False

    @classmethod
    def of_text(cls, text: str, folder: str, file: str | None = None) -> Given:
        """What a text spells."""
        return cls(text, _spelled(text), folder, file)

    @classmethod
    def read(cls, path: str) -> Given:
        """A file or folder of this machine.

        Raises:
            UsageError: it is too large, or no text.
            OSError: it cannot be read.
        """
        absolute = os.path.abspath(os.path.expanduser(path))
        if os.path.isdir(absolute):
            return cls("", None, absolute, path, is_folder=True)
        with open(absolute, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(
                f"larger than {MAX_BYTES // 2**20} MiB, so no description of a mixture", file=path
            )
        try:
            return cls.of_text(data.decode("utf-8-sig"), os.path.dirname(absolute), path)
        except UnicodeDecodeError as error:
            raise UsageError(f"this is no text in UTF-8: {error.reason}", file=path) from None

    @property
    def fault(self) -> str:
        """Where and why a text that is called YAML or JSON breaks off; "" of any other."""
        if not (self.file or "").lower().endswith((".yaml", ".yml", ".json")):
            return ""
        try:
            yaml.load(self.text, Loader=_Tolerant)
        except yaml.MarkedYAMLError as error:
            mark, problem = error.problem_mark, error.problem or error.context
            return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            return str(error).partition("\n")[0]
        return ""

    @property
    def top(self) -> dict[Any, Any]:
        """The map at the top; empty where there is none."""
        return self.value if isinstance(self.value, dict) else {}


def _spelled(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        value = yaml.load(text, Loader=_Tolerant)  # makes nothing but plain values
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return None
    return value if _is_of_bearable_size(value) else None


def _is_of_bearable_size(value: Any) -> bool:
    """Whether a value holds no more than a file can spell: aliases of aliases stand for any number of values."""
    pending, left = [value], MAX_VALUES
    while pending and left:
        left -= 1
        each = pending.pop()
        pending += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return not pending


class _Tolerant(yaml.SafeLoader):
    """Plain values, tags of whatever kind left out: configurations of other tools have their own."""


def _untagged(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


_Tolerant.add_multi_constructor("", _untagged)


class NewSpec:
    """What a converter fills.

    Args:
        folder: absolute; where the new spec will stand, at which its relative paths start.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.spec: dict[str, Any] = {}
        self.notes: list[str] = []
        self._names: set[str] = set()

    def note(self, text: str) -> None:
        """Says what the new spec does not say, or says otherwise; each thing once."""
        if text not in self.notes:
            self.notes.append(text)

    def note_keys(self, given: Mapping[Any, Any], meanings: Mapping[str, str], where: str = "") -> None:
        """Notes the keys that are there and mean something which cannot be said: key -> what to do, or why."""
        for key, why in meanings.items():
            if key in given and given[key] not in (None, False):
                self.note(f"{where}{': ' if where else ''}`{key}: {given[key]}` is left out: {why}")

    def whole(self, given: Mapping[Any, Any], key: str, least: int = 0) -> int | None:
        """The whole number under a key; None where there is none, noted where there is something else."""
        value = given.get(key)
        if value is None:
            return None
        found = number(value)
        if found is not None and found >= least and found == int(found):
            return int(found)
        self.note(f"`{key}: {value}` is left out: it is no whole number from {least} on")
        return None

    def note_unknown(self, given: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
        """Notes the keys that nobody has looked at."""
        for key in given:
            if key not in known:
                self.note(
                    f"{where}: `{key}` is left out: wdspec has no such thing, or it says nothing of mixing"
                )

    def source(self, wanted: str, shards: str | Sequence[str], **keys: Any) -> dict[str, Any]:
        """A source of a unique name; keys that are None or empty are left out."""
        texts = [shards] if isinstance(shards, str) else list(shards)
        given = {key: value for key, value in keys.items() if value is not None and value != {}}
        name = self.name(wanted or _stem(texts[0] if texts else ""))
        return {"name": name, "shards": texts[0] if len(texts) == 1 else texts, **given}

    def name(self, wanted: str) -> str:
        """A name of its own for a source, as near as can be to what the tool calls it."""
        plain = re.sub(r"[^\w.+-]+", "-", wanted).strip("-.") or "source"
        name, turn = plain, 2
        while name in self._names:
            name, turn = f"{plain}-{turn}", turn + 1
        self._names.add(name)
        return name

    def variables(self, text: str) -> str:
        """A text with `$NAME`, `${NAME}` and `${oc.env:NAME}` as variables of the spec.

        Their values are not looked up, since what is in an environment may be secret.
        """

        def replaced(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            if is_command(text.lstrip()):
                return f"$${{{name}}}"  # the shell's own
            own = re.sub(r"^WDS_", "", name)
            self.spec.setdefault("vars", {}).setdefault(own, match[2] or f"unset-{own}")
            if not match[2]:
                self.note(
                    f"`${name}` was taken from the environment: it is the variable `{own}` now; set WDS_{own}, give "
                    f"--var {own}=…, or write its value under `vars:`"
                )
            return f"${{{own}}}"

        return _VARIABLE.sub(replaced, text)

    def path(self, text: str, start: str | None = None) -> str:
        """A path as the new spec spells it; URLs and absolute paths stay as they are.

        Args:
            start: the folder that a relative path starts at, absolute; None: wherever the tool was started, which
                nobody knows, so that it is kept.
        """
        text = self.variables(os.path.expanduser(text) if text.startswith("~") else text)
        if not is_relative(text) or text.startswith("$"):
            return text
        if start is None:
            self.note(
                "relative paths started where the tool was started; now they start at the folder of the spec"
            )
            return text
        slash = "/" if text.endswith("/") else ""
        return os.path.relpath(os.path.join(start, text), self.folder) + slash


def count_shards(texts: Iterable[str]) -> int | None:
    """How many shards texts with braces stand for; None where a store would have to be asked."""
    try:
        parts = parse_shards(list(texts), "/")
    except UrlError:
        return None
    return sum(len(part.run.texts) for part in parts) if not any(part.listed for part in parts) else None


def _stem(shards: str) -> str:
    """A name from that of shards: `coco` of `s3://b/coco-{000..099}.tar`."""
    folder, _, name = shards.rstrip("/").rpartition("/")
    for suffix in (".gz", ".zst", ".bz2", ".tar", ".tgz", ".jsonl", ".json", ".npy", ".parquet"):
        name = name.removesuffix(suffix)
    stem = _NUMBER_AT_END.sub("", name)
    return stem if re.search(r"[^\W\d]", stem) else folder.rpartition("/")[2] or name


def map_with(
    value: Any, is_wanted: Callable[[dict[Any, Any]], bool], without: Sequence[str] = (), depth: int = 0
) -> dict[Any, Any] | None:
    """The first map that is wanted, at the top or a few levels down; keys with a word of `without` are not entered."""
    if not isinstance(value, dict) or depth > 4:
        return None
    if is_wanted(value):
        return value
    inner = (each for key, each in value.items() if not any(word in str(key) for word in without))
    found = (map_with(each, is_wanted, without, depth + 1) for each in inner)
    return next((each for each in found if each is not None), None)


def maps_in(value: Any) -> list[dict[Any, Any]]:
    """The maps of a list; none where it is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts_in(value: Any) -> list[str]:
    """A text, or the texts of a list however deep."""
    if isinstance(value, str):
        return [value]
    return [text for each in value for text in texts_in(each)] if isinstance(value, (list, tuple)) else []


def number(value: Any) -> float | int | None:
    """A finite number, also one in quotes; None for what is none."""
    if isinstance(value, str):
        try:
            value = int(value) if value.isdecimal() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def named(value: Any) -> dict[str, Any]:
    """A map with its keys as texts; empty for what is no map."""
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else {}
