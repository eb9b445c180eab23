"""YAML text -> tree, built from the parser's events, with limits that hold against hostile files.

What a plain scalar means: the core schema of YAML 1.2, and `1_000_000` for long numbers.

YAML 1.1, which PyYAML follows, makes `yes` and `on` true, `1:30` ninety and `1e-3` text; here they are text,
text and a number.

The YAML parser's complaints in words that say what to change.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from wdspec.spec.problems import Problem, Problems
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Origin, Scalar

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
_LONGEST = 60  # longer than any number that is one; and int() of thousands of digits is refused by Python


def typed(text: str) -> str | int | float | bool | None:
    """The value that a plain scalar stands for."""
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


_QUOTE_BRACES = 'quote texts that hold `{`, `}`, `[`, `]` or `,` inside `{…}` and `[…]`: "a-{000..123}.tar"'

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
    ("expected <block end>", "this does not fit what stands before it", "check the indentation"),
    ("unexpected end of stream", "a quotation begins and is never closed", "close the quotes"),
    ("unknown escape character", "there is no such `\\` escape", "use single quotes: '…'"),
    (
        "expected alphabetic or numeric",
        "`*` and `&` mark aliases and anchors",
        "put the text in quotes: '*.tar'",
    ),
    ("undefined tag handle", "a tag (`!name`) is not allowed", "remove it, or put the text in quotes"),
    ("while scanning a tag", "a tag (`!name`) is not allowed", "remove it, or put the text in quotes"),
    ("tab character", "a tab stands where spaces must", "indent with spaces"),
    ("incompatible YAML document", "this is not YAML 1.2", "remove the `%YAML` line"),
    ("expected <document start>", "something stands after the end of the document", "check the indentation"),
    ("node content", "expected a value here", _QUOTE_BRACES),
)
_ASSIGNED = re.compile(r"(\s*)([A-Za-z_]\w{0,40})\s*=\s*(\S.{0,60})")
_STARTS = {
    "\t": ("a tab stands where spaces must", "indent with spaces"),
    "@": ("`@` cannot begin a text without quotes", "put it in quotes: '@shards.txt'"),
    "`": ("a backquote cannot begin a text without quotes", "put the text in quotes"),
    "%": ("`%` cannot begin a text without quotes", "put the text in quotes"),
}


def explain_syntax_error(error: Any, origin: Origin, problems: Problems) -> None:
    """Notes the problem behind a `yaml.MarkedYAMLError`."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    text = origin.line(line)
    if text is None and line > 1:  # the parser stands behind the last line
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
    for number in (line - 1, line):  # a line without a colon goes on in the next one
        assigned = _ASSIGNED.fullmatch(origin.line(number) or "")
        if assigned and message == _COMPLAINTS[0][1]:
            line, column = number, len(assigned[1]) + 1
            message, hint = "this is no `key: value`", f"write `{assigned[2]}: {assigned[3]}`"
            break
    if (text or "")[: column - 1].strip(" ").startswith("\t") or (at == "\t"):
        message, hint = _STARTS["\t"]
    if error.context_mark and error.context_mark.line + 1 != line:
        message += f" (what it belongs to begins in line {error.context_mark.line + 1})"
    problems.add("E005", Scalar(origin, line, column, None), message, hint)


MAX_BYTES = 4 * 2**20
MAX_DEPTH = 64
MAX_NODES = 100_000

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OPENINGS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)


def decode_text(data: bytes, name: str, problems: Problems) -> str | None:
    """The bytes of a file as text; None, and a problem, when they are not UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        problem = Problem("E003", "the file is UTF-16, not UTF-8", "save it as UTF-8", name, 1, 1)
        problems.note(problem)
        return None
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
        hint = "save it as UTF-8 without BOM"
        problems.note(
            Problem("W001", "the file begins with a byte order mark, which is ignored", hint, name, 1, 1)
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        start = before.rfind(b"\n") + 1
        column = len(before[start:].decode("utf-8")) + 1
        text = data[start:].split(b"\n", 1)[0][:10_000].decode("utf-8", "replace")
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        problems.note(Problem("E003", message, "save the file as UTF-8", name, line, column, 1, text))
        return None


def parse(text: str, origin: Origin, problems: Problems) -> Node | None:
    """The tree of a YAML text; None, and problems, when it has none.

    Mistakes that leave the structure plain (a tag, a duplicate key, a key that is not text) are reported and left out,
    so that the remaining file is checked too.
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        line, column = _place(text, bad.start())
        at = Scalar(origin, line, column, None)
        message = f"the control character U+{ord(bad[0]):04X} may not stand in a YAML file"
        problems.add("E004", at, message, "remove it; in double quotes `\\n` and `\\t` can be written")
        return None
    try:
        return _Builder(origin, problems).build(text)
    except yaml.MarkedYAMLError as error:
        explain_syntax_error(error, origin, problems)
    except yaml.YAMLError as error:
        problems.add("E005", Scalar(origin, 1, 1, None), f"this is not YAML: {error}")
    return None


class _StopError(Exception):
    """The file is beyond a limit; the problem is noted."""


class _Open:
    """A list or map whose end has not come yet."""

    __slots__ = ("anchor", "entries", "items", "key", "mark")

    def __init__(self, mark: tuple[int, int], anchor: str | None, is_map: bool) -> None:
        self.mark = mark
        self.anchor = anchor
        self.items: list[Node] = []
        self.entries: dict[str, MapEntry] | None = {} if is_map else None
        self.key: Scalar | _Refused | None = None


class _Refused(Scalar):
    """Stands for a key that was refused: its value is read and dropped."""

    __slots__ = ()


class _Builder:
    def __init__(self, origin: Origin, problems: Problems) -> None:
        self.origin = origin
        self.problems = problems
        self.anchors: dict[str, Node] = {}
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.nodes = 0

    def build(self, text: str) -> Node | None:
        loader = _Parser(text)
        try:
            self._read(loader)
        except _StopError:
            return None
        finally:
            loader.dispose()
        return self.root

    def _read(self, loader: Any) -> None:
        documents = 0
        while True:
            event = loader.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            if isinstance(event, yaml.ScalarEvent):
                self._place(self._scalar(event), event.anchor)
            elif isinstance(event, _OPENINGS):
                self._open(event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self._close()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    hint = "write one spec a file, without `---` between parts"
                    self._stop("E006", event, "a second document begins here", hint)

    def _at(self, event: Any) -> Scalar:
        mark = event.start_mark
        return Scalar(self.origin, mark.line + 1, mark.column + 1, None)

    def _stop(self, code: str, event: Any, message: str, hint: str) -> None:
        self.problems.add(code, self._at(event), message, hint)
        raise _StopError

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            hint = "remove it: a spec holds only maps, lists, text, numbers, true, false and null"
            self.problems.add("E010", self._at(event), f"the tag `{tag[:60]}` is not allowed", hint)

    def _scalar(self, event: Any) -> Scalar:
        mark, end = event.start_mark, event.end_mark
        style, value = event.style or "", event.value
        self._check_tag(event)
        if "\0" in value:  # written as `"\\0"`
            hint = "no name, path or URL can have one: remove it"
            self.problems.add("E004", self._at(event), "this text holds a NUL character", hint)
            return _Refused(self.origin, mark.line + 1, mark.column + 1, None)
        one_line = mark.line == end.line
        width = max(1, end.column - mark.column) if one_line else 1
        quotes = 1 if style in ("'", '"') else 0
        exact = one_line and style in ("", "'", '"') and width == len(value) + 2 * quotes
        return Scalar(
            self.origin,
            mark.line + 1,
            mark.column + 1,
            typed(value) if not style and event.tag is None else value,
            offset=quotes if exact and event.anchor is None and event.tag is None else None,
            width=width,
            text=value,
        )

    def _open(self, event: Any) -> None:
        if len(self.stack) >= MAX_DEPTH:
            hint = "no spec needs so much nesting; look for brackets that are never closed"
            self._stop("E008", event, f"lists and maps are nested more than {MAX_DEPTH} levels deep", hint)
        self._check_tag(event)
        mark = event.start_mark
        is_map = isinstance(event, yaml.MappingStartEvent)
        self.stack.append(_Open((mark.line + 1, mark.column + 1), event.anchor, is_map))

    def _close(self) -> None:
        done = self.stack.pop()
        line, column = done.mark
        if done.entries is None:
            node: Node = ListNode(self.origin, line, column, done.items)
        else:
            node = MapNode(self.origin, line, column, done.entries)
        self._place(node, done.anchor, counted=True)

    def _alias(self, event: Any) -> None:
        target = self.anchors.get(event.anchor)
        if target is None:
            open_ones = {open_.anchor for open_ in self.stack}
            why = (
                "stands inside what it refers to"
                if event.anchor in open_ones
                else "refers to no anchor above it"
            )
            hint = "a text that begins with `*` needs quotes"
            self.problems.add("E014", self._at(event), f"the alias `*{event.anchor[:60]}` {why}", hint)
            target = _Refused(self.origin, event.start_mark.line + 1, event.start_mark.column + 1, None)
        self.nodes += target.size
        self._check_count(event)
        self._place(target, None, counted=True)

    def _check_count(self, at: Any) -> None:
        if self.nodes > MAX_NODES:
            message = f"the file holds more than {MAX_NODES:,} values, counting what aliases repeat"
            self._stop(
                "E009", at, message, "use braces (`{000..123}`) or an `@file` for long lists of shards"
            )

    def _place(self, node: Node, anchor: str | None, *, counted: bool = False) -> None:
        """Puts a finished node where it belongs: into the open list or map, or at the root."""
        if not counted:
            self.nodes += 1
            if self.nodes > MAX_NODES:
                self._check_count(_Mark(node))
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = None if isinstance(node, _Refused) else node
            return
        parent = self.stack[-1]
        if parent.entries is None:
            if not isinstance(node, _Refused):
                parent.items.append(node)
        elif parent.key is None:
            parent.key = self._key(node, parent.entries)
        else:
            if isinstance(node, _Refused):
                self.problems.hide_problems_at(parent.key)
            if not isinstance(parent.key, _Refused):
                parent.entries[parent.key.value] = MapEntry(parent.key, node)
            parent.key = None

    def _key(self, node: Node, entries: dict[str, MapEntry]) -> Scalar:
        refused = _Refused(node.origin, node.line, node.column, None)
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            if not isinstance(node, _Refused):
                shown = "a number, true, false or null" if isinstance(node, Scalar) else "a list or map"
                hint = (
                    "put it in quotes"
                    if isinstance(node, Scalar)
                    else "quote text that begins with `{` or `[`"
                )
                self.problems.add("E012", node, f"a key must be text, but this is {shown}", hint)
            return refused
        if node.value == "<<":
            hint = "use `defaults:` for what sources share, `extends:` for what files share"
            self.problems.add("E013", node, "the merge key `<<` is not part of YAML 1.2", hint)
            return refused
        if node.value in entries:
            first = entries[node.value].key
            message = f"the key `{node.value[:60]}` stands twice in this map, first in line {first.line}"
            self.problems.add("E011", node, message, "keep one of them")
            return refused
        return node


class _Mark:
    """Lets a node stand where an event is expected."""

    def __init__(self, node: Node) -> None:
        self.start_mark = self
        self.line = node.line - 1
        self.column = node.column - 1


def _place(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1
