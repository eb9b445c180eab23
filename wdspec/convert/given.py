"""What is to be converted: a file of another tool, as text and as the value that the text spells."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any

import yaml

from wdspec.base.errors import UsageError

MAX_BYTES = 8 * 1024 * 1024
MAX_VALUES = 1_000_000


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
