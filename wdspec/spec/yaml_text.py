"""Write the tree of a spec as YAML or JSON text, with comments that say more about its values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar, scalars
from wdspec.spec.yaml import parse_scalar

Comment = Callable[[Sequence[Node]], str]
"""Returns the comment of a line, without `#`, from the keys and values that begin in it; empty for none."""

_PLAIN = re.compile(r"[A-Za-z0-9_./](?:[\w./+=@%?~^()<>|$;*&! -]|:(?=[^\s]))*", re.ASCII)
"""Texts that need no quotes, also in a list in brackets, unless they look like a number or a word of YAML."""
_WIDTH = 88
_INDENT = "  "


def to_yaml(top: MapNode, comment: Comment) -> str:
    """Write a map as YAML in block style; short lists of scalars are written in one line."""
    return "".join(f"{line}\n" for line in _lines_of_map(top, "", comment))


def to_json_value(node: Node) -> Any:
    """Convert a tree to what `json` writes.

    Raises:
        UsageError: a number that JSON lacks, such as infinity.
    """
    for each in scalars(node):
        if isinstance(each.value, float) and not math.isfinite(each.value):
            raise UsageError(f"{each.position}: JSON has no number `{each.written}`; write the spec as YAML")
    return _plain(node)


def _plain(node: Node) -> Any:
    if isinstance(node, MapNode):
        return {key: _plain(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.items]
    assert isinstance(node, Scalar)
    return node.value


def _lines_of_map(node: MapNode, indent: str, comment: Comment, before: Sequence[Node] = ()) -> Iterator[str]:
    """The lines of a map; `before` is what begins in its first line, too."""
    for name, (key, value) in node.entries.items():
        head = f"{indent}{_text(name)}:"
        yield from _lines_of(head, value, (*before, key), f"{indent}{_INDENT}", comment)
        before = ()


def _lines_of(head: str, node: Node, before: Sequence[Node], indent: str, comment: Comment) -> Iterator[str]:
    """The lines of a value after its key, or the dash of its item.

    Args:
        before: what begins in the line before the value.
        indent: that of the lines below.
    """
    here = (*before, node)
    if isinstance(node, Scalar):
        yield _with_comment(f"{head} {_scalar(node)}", comment(here))
    elif isinstance(node, MapNode) and node.entries:
        if head.endswith("-"):  # the first key is in the line of the dash
            lines = _lines_of_map(node, indent, comment, here)
            yield f"{head} {next(lines).lstrip(' ')}"
        else:
            lines = _lines_of_map(node, indent, comment)
            yield _with_comment(head, comment(here))
        yield from lines
    elif isinstance(node, ListNode) and node.items:
        if (line := _in_one_line(node, head, before, comment)) is not None:
            yield line
            return
        yield _with_comment(head, comment(here))
        for item in node.items:
            yield from _lines_of(f"{indent}-", item, (), f"{indent}{_INDENT}", comment)
    else:
        yield _with_comment(f"{head} {'{}' if isinstance(node, MapNode) else '[]'}", comment(here))


def _in_one_line(node: ListNode, head: str, before: Sequence[Node], comment: Comment) -> str | None:
    """A list of scalars in brackets; None if it is too long, or its items have different comments."""
    items = [item for item in node.items if isinstance(item, Scalar)]
    line = f"{head} [{', '.join(map(_scalar, items))}]"
    if len(items) < len(node.items) or (len(line) > _WIDTH and len(items) > 1):
        return None
    if len({comment((item,)) for item in items}) > 1:
        return None
    return _with_comment(line, comment((*before, node, *items)))


def _with_comment(line: str, comment: str) -> str:
    return f"{line}  # {comment}" if comment else line


def _scalar(node: Scalar) -> str:
    return _text(node.value) if isinstance(node.value, str) else _number(node)


def _number(node: Scalar) -> str:
    """A number, true, false or null, as it was written if that says the same."""
    if node.value is None:
        return "null"
    if isinstance(node.value, float) and not math.isfinite(node.value):
        return ".nan" if math.isnan(node.value) else ".inf" if node.value > 0 else "-.inf"
    is_same = node.text is not None and repr(parse_scalar(node.text)) == repr(node.value)
    return str(node.text) if is_same else json.dumps(node.value)


def _text(text: str) -> str:
    is_plain = _PLAIN.fullmatch(text) and not text.endswith((" ", ":")) and " #" not in text
    if is_plain and isinstance(parse_scalar(text), str):
        return text
    return f'"{"".join(map(_escape, text))}"'


def _escape(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
