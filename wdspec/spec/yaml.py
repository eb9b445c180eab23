"""YAML text -> tree, built from the parser's events, with limits that hold against hostile files.

Scalars follow the core schema of YAML 1.2, plus `1_000_000` for long numbers. In YAML 1.1, which PyYAML follows, `yes`
and `on` are true, `1:30` is ninety and `1e-3` is text; here they are text, text and a number. Syntax errors are
reported in words that say what to change.
"""

from __future__ import annotations

import math
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import yaml

from wdspec.spec.problems import Problem, Problems
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Origin, Scalar

_UTF16_MARKS = (BOM_UTF16_LE, BOM_UTF16_BE)
MAX_BYTES = 4 * 2**20
MAX_DEPTH = 64
MAX_NODES = 100_000

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHARD = re.compile(r"\.(?:tar|tgz|parquet|arrow|feather|cbor|msgpack|npy)(?:\.\w+)?$")
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")
_NOT_TEXT = re.compile(rb"\0\0|[\x80-\xff]")
"""Matches in files whose control characters show that they are binary; in UTF-16, every second byte is 0."""
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def decode_text(data: bytes, name: str, problems: Problems, kind: str = "spec") -> str | None:
    """Decode the bytes of a file; None, and a problem, if they are binary, too many, or not UTF-8.

    `kind` is what the file should be, in words.
    """
    is_large, head = len(data) > MAX_BYTES, data[:512]
    if len(_CONTROL.findall(head)) > 3 and _NOT_TEXT.search(head) and not head.startswith(_UTF16_MARKS):
        hint, code = "name a YAML file; it lists shards under `dataset:`", "E002" if is_large else "E003"
        if kind != "spec":
            hint = "name a text file"
        elif _SHARD.search(name):
            hint = f"name a YAML file with `dataset: [{{shards: {name}}}]`; `wdspec ls {name}` lists a shard"
        problems.note(Problem(code, f"this is a binary file, not a {kind}", hint, name, 1, 1))
        return None
    if is_large:
        hint = "a spec describes data and does not contain it; put long lists of shards into an `@file`"
        problems.note(Problem("E002", f"the file is larger than {MAX_BYTES // 2**20} MiB", hint, name, 1, 1))
        return None
    if data.startswith(BOM_UTF8):
        data = data[len(BOM_UTF8) :]
        hint = "save it as UTF-8 without BOM"
        problems.note(
            Problem("W001", "the file starts with a byte order mark, which is ignored", hint, name, 1, 1)
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        problems.note(_undecodable(data, error.start, name))
        return None


def _undecodable(data: bytes, start: int, name: str) -> Problem:
    if data.startswith(_UTF16_MARKS):
        return Problem("E003", "the file is UTF-16, not UTF-8", "save it as UTF-8", name, 1, 1)
    line = data.count(b"\n", 0, start) + 1
    first = data.rfind(b"\n", 0, start) + 1
    column = len(data[first:start].decode("utf-8")) + 1
    text = data[first:].split(b"\n", 1)[0][:10_000].decode("utf-8", "replace")
    message = f"the byte 0x{data[start]:02x} is not UTF-8"
    return Problem("E003", message, "save the file as UTF-8", name, line, column, 1, text)


def parse(text: str, origin: Origin, problems: Problems) -> Node | None:
    """Parse a YAML text; None, and problems, if that is impossible. An empty text is `null`.

    Mistakes that do not affect the structure (a tag, a duplicate key, a key that is not text) are reported and left
    out, so that the rest of the file is checked too.
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        at = Scalar(origin, line, bad.start() - text.rfind("\n", 0, bad.start()), None)
        message = f"the control character U+{ord(bad[0]):04X} is not allowed in a YAML file"
        problems.add("E004", at, message, "remove it; in double quotes you can write `\\n` and `\\t`")
        return None
    parser = _Parser(text)
    try:
        return _Builder(parser.get_event, origin, problems).document()
    except _StopError:
        pass
    except yaml.MarkedYAMLError as error:
        explain_syntax_error(error, origin, problems)
    except yaml.YAMLError as error:
        problems.add("E005", Scalar(origin, 1, 1, None), f"this is not YAML: {error}")
    finally:
        parser.dispose()
    return None


class _StopError(Exception):
    """The file exceeds a limit; the problem has been added."""


class _Refused(Scalar):
    """Takes the place of something that was refused: a key is dropped with its value, and a value becomes null."""

    __slots__ = ()


class _Builder:
    """Builds nodes from the parser's events: each method takes the first event of something and reads to its end.

    Args:
        next_event: returns the next event.
    """

    def __init__(self, next_event: Callable[[], Any], origin: Origin, problems: Problems) -> None:
        self.next, self.origin, self.problems = next_event, origin, problems
        self.anchors: dict[str, Node] = {}
        self.open: list[str | None] = []
        """The anchors of the lists and maps that are being read."""
        self.nodes = 0

    def document(self) -> Node | None:
        """Read the only document; null if it is empty."""
        self.next()  # the start of the stream
        if isinstance(self.next(), yaml.StreamEndEvent):
            return Scalar(self.origin, 1, 1, None)
        root = self.node(self.next())
        self.next()  # the end of the document
        after = self.next()
        if not isinstance(after, yaml.StreamEndEvent):
            hint = "write one spec per file, without `---` between parts"
            self.stop("E006", self.at(after), "a second document starts here", hint)
        return None if isinstance(root, _Refused) else root

    def node(self, event: Any) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if event.tag is not None and event.tag != "!":
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")[:60]
            tag = self.origin.echo(event.start_mark.line + 1, tag)
            hint = "remove it: a spec has only maps, lists, text, numbers, true, false and null"
            self.problems.add("E010", self.at(event), f"the tag `{tag}` is not allowed", hint)
        node = self.scalar(event) if isinstance(event, yaml.ScalarEvent) else self.collection(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def scalar(self, event: Any) -> Scalar:
        mark, end, value = event.start_mark, event.end_mark, event.value
        self.count(1, mark)
        if "\0" in value:  # written as `"\\0"`
            hint = "remove it: names, paths and URLs cannot have one"
            self.problems.add("E004", self.at(event), "this text has a NUL character", hint)
            return self.at(event)
        one_line = mark.line == end.line
        width = max(1, end.column - mark.column) if one_line else 1
        style = event.style or ""
        quotes = 1 if style in ("'", '"') else 0
        exact = one_line and style in ("", "'", '"') and width == len(value) + 2 * quotes
        return Scalar(
            self.origin,
            mark.line + 1,
            mark.column + 1,
            parse_scalar(value) if not style and event.tag is None else value,
            offset=quotes if exact and event.anchor is None and event.tag is None else None,
            width=width,
            text=value,
        )

    def collection(self, event: Any) -> Node:
        if len(self.open) >= MAX_DEPTH:
            hint = "look for brackets that are never closed; no spec needs this much nesting"
            message = f"lists and maps are nested more than {MAX_DEPTH} levels deep"
            self.stop("E008", self.at(event), message, hint)
        self.open.append(event.anchor)
        place = self.origin, event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(inner := self.next(), yaml.SequenceEndEvent):
                items.append(self.node(inner))
            kept = tuple(item for item in items if not isinstance(item, _Refused))
            node: Node = ListNode(*place, kept)
            if items and not kept:  # not an empty list: each of its items has an error
                self.problems.hide_problems_at(node)
        else:
            entries: dict[str, MapEntry] = {}
            merged: dict[str, MapEntry] = {}
            while not isinstance(inner := self.next(), yaml.MappingEndEvent):
                key = self.node(inner)
                is_merge = type(key) is Scalar and key.value == "<<"
                if is_merge or type(key) is not Scalar or type(key.value) is not str or key.value in entries:
                    key = self.refuse_key(key, entries)
                value = self.node(self.next())
                if is_merge:
                    for each in reversed(value.items if isinstance(value, ListNode) else (value,)):
                        merged |= each.entries if isinstance(each, MapNode) else {}
                if isinstance(value, _Refused):
                    self.problems.hide_problems_at(key)
                if not isinstance(key, _Refused):
                    entries[key.value] = MapEntry(key, value)
            # The merge key is an error; what it would merge is kept, so that no other error says that it is missing.
            node = MapNode(*place, merged | entries)
        self.open.pop()
        return node

    def alias(self, event: Any) -> Node:
        target = self.anchors.get(event.anchor)
        if target is None:
            why = (
                "is inside the value that it refers to"
                if event.anchor in self.open
                else "refers to no anchor above it"
            )
            hint = "put text that starts with `*` in quotes"
            name = self.origin.echo(event.start_mark.line + 1, f"*{event.anchor[:60]}")
            self.problems.add("E014", self.at(event), f"the alias `{name}` {why}", hint)
            target = self.at(event)
        self.count(target.size, event.start_mark)
        return target

    def refuse_key(self, node: Node, entries: Mapping[str, MapEntry]) -> _Refused:
        if not isinstance(node, Scalar):
            hint = "put text that starts with `{` or `[` in quotes"
            self.problems.add("E012", node, "a key must be text, but this is a list or map", hint)
        elif not isinstance(node, _Refused) and not isinstance(node.value, str):
            message = "a key must be text, but this is a number, true, false or null"
            self.problems.add("E012", node, message, "put it in quotes")
        elif node.value == "<<":
            hint = "use `defaults:` for what sources share, `extends:` for what files share"
            self.problems.add("E013", node, "the merge key `<<` is not part of YAML 1.2", hint)
        elif node.value in entries:
            first = entries[node.value].key
            message = f"the key `{node.value[:60]}` is already in this map, in line {first.line}"
            self.problems.add("E011", node, message, "keep one of them")
        return _Refused(node.origin, node.line, node.column, None)

    def count(self, nodes: int, mark: Any) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            at = Scalar(self.origin, mark.line + 1, mark.column + 1, None)
            message = f"the file has more than {MAX_NODES:,} values, counting those that aliases repeat"
            self.stop("E009", at, message, "use braces (`{000..123}`) or an `@file` for long lists of shards")

    def at(self, event: Any) -> _Refused:
        """What to point at for an event, or to put in its place if it is refused."""
        return _Refused(self.origin, event.start_mark.line + 1, event.start_mark.column + 1, None)

    def stop(self, code: str, at: Node, message: str, hint: str) -> NoReturn:
        self.problems.add(code, at, message, hint)
        raise _StopError


_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INTEGER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST = 60  # longer than any number; and Python refuses int() of thousands of digits


def parse_scalar(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST or text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


_QUOTE_BRACES = (
    'inside `{…}` and `[…]`, put text with `{`, `}`, `[`, `]` or `,` in quotes: "a-{000..123}.tar"'
)

_COMPLAINTS = (
    (
        "mapping values are not allowed",
        "a second `: ` in one line",
        "put the text in quotes, or check the indentation",
    ),
    ("expected ',' or '}'", "this map `{…}` is not closed or a comma is missing", _QUOTE_BRACES),
    ("expected ',' or ']'", "this list `[…]` is not closed or a comma is missing", _QUOTE_BRACES),
    (
        "could not find expected ':'",
        "expected `key: value` here",
        "check for a missing `:` or for the indentation",
    ),
    (
        "did not find expected key",
        "expected a key here",
        "check the indentation, and quotes that end too early",
    ),
    ("expected '-' indicator", "expected a list entry `- …` here", "check the indentation"),
    ("expected <block end>", "this does not fit what comes before it", "check the indentation"),
    ("unexpected end of stream", "a quote is never closed", "close the quotes"),
    ("unknown escape character", "this `\\` escape does not exist", "use single quotes: '…'"),
    (
        "expected alphabetic or numeric",
        "`*` and `&` mark aliases and anchors",
        "put the text in quotes: '*.tar'",
    ),
    ("undefined tag handle", "a tag (`!name`) is not allowed", "remove it, or put the text in quotes"),
    ("while scanning a tag", "a tag (`!name`) is not allowed", "remove it, or put the text in quotes"),
    ("tab character", "the indentation has a tab", "indent with spaces"),
    ("incompatible YAML document", "this is not YAML 1.2", "remove the `%YAML` line"),
    ("expected <document start>", "there is text after the end of the document", "check the indentation"),
    ("node content", "expected a value here", _QUOTE_BRACES),
)
_UNSPACED = re.compile(r"(\s*(?:-\s+)*)([A-Za-z_]\w{0,40}):([^\s:/'\"][^\s:]{0,60})\s*")
"""A line whose colon has no space after it, so that it is text."""
_ASSIGNED = re.compile(r"(\s*)([A-Za-z_]\w{0,40})\s*=\s*(\S.{0,60})")
_STARTS = {
    "\t": ("the indentation has a tab", "indent with spaces"),
    "@": ("text that starts with `@` needs quotes", "put it in quotes: '@shards.txt'"),
    "`": ("text that starts with a backquote needs quotes", "put the text in quotes"),
    "%": ("text that starts with `%` needs quotes", "put the text in quotes"),
}


def explain_syntax_error(error: Any, origin: Origin, problems: Problems) -> None:
    """Add the problem that a `yaml.MarkedYAMLError` is about."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    text = origin.line(line)
    if text is None and line > 1:  # the parser is past the last line
        line -= 1
        text = origin.line(line)
        column = len(text or "") + 1
    complaint = f"{error.context or ''} {error.problem or ''}".strip()
    message, hint = f"this is not YAML: {complaint}", "check quotes, brackets and indentation"
    at = (text or "")[column - 1 : column]
    if "cannot start any token" in complaint and at in _STARTS:
        message, hint = _STARTS[at]
    else:
        for fragment, meaning, remedy in _COMPLAINTS:
            if fragment in complaint:
                message, hint = meaning, remedy
                break
    for number in (line - 1, line):  # a line without a colon continues in the next one
        assigned = _ASSIGNED.fullmatch(origin.line(number) or "")
        if assigned and message == _COMPLAINTS[0][1]:
            line, column = number, len(assigned[1]) + 1
            message, hint = (
                "this is not `key: value`",
                f"write `{assigned[2]}: {origin.echo(number, assigned[3])}`",
            )
            break
        unspaced = _UNSPACED.fullmatch(origin.line(number) or "")
        if unspaced:
            line, column = number, len(unspaced[1]) + 1
            message, hint = (
                "this is text, not `key: value`",
                f"put a space after the colon: `{unspaced[2]}: {origin.echo(number, unspaced[3])}`",
            )
            break
    if (text or "")[: column - 1].strip(" ").startswith("\t") or (at == "\t"):
        message, hint = _STARTS["\t"]
    if "<document start>" in complaint and at == "{" and (origin.line(1) or "").startswith("{"):
        message, hint = (
            "this is JSON Lines, not a spec",
            "list the file under `shards:` of a source in a spec",
        )
    if error.context_mark and error.context_mark.line + 1 < line:
        message += f" (it belongs to something that starts in line {error.context_mark.line + 1})"
    problems.add("E005", Scalar(origin, line, column, None), message, hint)
