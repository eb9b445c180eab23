"""The YAML parser's complaints in words that say what to change."""

from __future__ import annotations

import re
from typing import Any

from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import Origin, Scalar

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
