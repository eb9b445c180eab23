"""Variables: `${name}` and `${name:-default}`, which may be in any value and never in keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.values import RESERVED_VARIABLES
from wdspec.spec.problems import Problems, describe
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Scalar, is_null, plain, scalars
from wdspec.spec.yaml import MAX_NODES, parse_scalar

MAX_TEXT = 65_536
_PREFIXED = re.compile(r"WDS_[A-Za-z_]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Reference(NamedTuple):
    """A `${…}` in a text, from `start` to `end`; `default` is the text after `:-`."""

    start: int
    end: int
    name: str
    default: str | None


class MalformedReferenceError(ValueError):
    """A `${` that is not a variable; `index` is where it starts."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def references(text: str) -> Iterator[Reference]:
    """Iterate over the variables of a text, not over those in defaults. `$${` is skipped.

    Raises:
        MalformedReferenceError: a `${` without a name or without its `}`.
    """
    at = 0
    while True:
        start = text.find("${", at)
        if start < 0:
            return
        if text[start - 1 : start] == "$":
            at = start + 2
            continue
        name = _NAME.match(text, start + 2)
        after = name.end() if name else start + 2
        if name and text.startswith("}", after):
            yield Reference(start, after + 1, name[0], None)
            at = after + 1
        elif name and text.startswith(":-", after):
            end = _closing(text, after + 2, start)
            yield Reference(start, end + 1, name[0], text[after + 2 : end])
            at = end + 1
        else:
            raise MalformedReferenceError("`${` is not followed by a name and `}`", start)


def _closing(text: str, at: int, start: int) -> int:
    depth = 0
    for index in range(at, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            if depth == 0:
                return index
            depth -= 1
    raise MalformedReferenceError("`${` is never closed", start)


class Scope:
    """The values of variables: from arguments, then from environment variables, then from the spec's `vars`.

    Args:
        arguments: from `--var` or `load(vars=…)`.
        environ: the environment variables; `WDS_name` is `${name}`.
        own: the merged `vars` of the spec.
        working_directory: relative paths in environment variables start here.
        problems: collects what is wrong.
    """

    def __init__(
        self,
        arguments: Mapping[str, Node],
        environ: Mapping[str, str],
        own: Node | None,
        working_directory: str,
        problems: Problems,
    ) -> None:
        self._arguments = arguments
        self._environ = environ
        self._own = own if isinstance(own, MapNode) else None
        self._directory = working_directory
        self._problems = problems
        self._values: dict[str, Node | None] = {}
        self._refused: set[str] = set()
        self._open: list[str] = []
        self._nodes = 0

    def expand(self, node: Node) -> Node:
        """Replace all variables of a tree. One that cannot be replaced is a problem, and stays."""
        if isinstance(node, Scalar):
            return self._scalar(node) if isinstance(node.value, str) and "${" in node.value else node
        if isinstance(node, ListNode):
            return node.map(self.expand)
        assert isinstance(node, MapNode)
        return self.expand_map(node)

    def expand_map(self, node: MapNode) -> MapNode:
        """Replace all variables of a map."""
        entries = {}
        changed = False
        for name, (key, value) in node.entries.items():
            if "${" in name and "$${" not in name:
                hint = "write the name out: only values can have variables"
                self._problems.add("E111", key, "a key cannot contain a variable", hint)
            new = self.expand(value)
            changed = changed or new is not value
            entries[name] = MapEntry(key, new)
        return node.with_entries(entries) if changed else node

    def _scalar(self, node: Scalar) -> Node:
        if "${WDS_" in node.value:
            self._note_prefixes(node)
        before = len(self._problems)
        expanded = self._expand(node)
        if len(self._problems) > before:
            self._problems.hide_problems_at(node)
        return expanded

    def _note_prefixes(self, node: Scalar) -> None:
        """Warn about names that are written with the prefix of their environment variables, and have no value."""
        for name in re.findall(r"(?<!\$)\$\{WDS_([A-Za-z_]\w*):-", node.value):
            if f"WDS_{name}" not in self._known and f"WDS_WDS_{name}" not in self._environ:
                message = f"`${{WDS_{name}}}` is read from the environment variable `WDS_WDS_{name}`, which is not set"
                hint = f"write `${{{name}:-…}}`, which is read from `WDS_{name}`"
                self._problems.add("W404", node, message, hint.replace("…", _default_of(name, node.value)))

    def _expand(self, node: Scalar) -> Node:
        text: str = node.value
        try:
            found = list(references(text))
        except MalformedReferenceError as error:
            column = node.column_at(error.index)
            hint = "write `${name}` or `${name:-default}`; for a literal `${` write `$${`"
            self._problems.add("E110", node, str(error), hint, column=column, length=2)
            return node
        if len(found) == 1 and (found[0].start, found[0].end) == (0, len(text)):
            return self._whole(found[0], node)
        return self._interpolate(found, node)

    def _whole(self, reference: Reference, node: Scalar) -> Node:
        """The value of the only variable of a scalar, with its type, at the position of the scalar."""
        value = self._value(reference, node)
        if value is None:
            return node
        self._nodes += value.size
        if self._nodes > MAX_NODES:
            message = f"variables repeat more than {MAX_NODES:,} values"
            self._problems.add("E110", node, message, "shorten the lists and maps in `vars`")
            return node
        if not isinstance(value, Scalar):
            return value
        return node.scalar(value.value, width=node.width, directory=value.base, text=value.text)

    def _interpolate(self, found: list[Reference], node: Scalar) -> Node:
        text: str = node.value
        pieces: list[str] = []
        at = 0
        directory = node.directory
        spans = [(0, 0)]
        for reference in found:
            value = self._value(reference, node)
            if value is None:
                return node
            if not isinstance(value, Scalar):
                hint = "only text and numbers can be part of a text"
                self._problems.add("E112", node, f"`${{{reference.name}}}` is {describe(plain(value))}", hint)
                return node
            if reference.start == 0 and isinstance(value.value, str) and value.value:
                directory = value.base
            pieces += (text[at : reference.start].replace("$${", "${"), value.written)
            at = reference.end
            spans.append((sum(map(len, pieces)), at))
        pieces.append(text[at:].replace("$${", "${"))
        text = "".join(pieces)
        if len(text) > MAX_TEXT:
            message = f"with its variables this text has {len(text):,} characters; the limit is {MAX_TEXT:,}"
            self._problems.add("E110", node, message, "look for variables that repeat one another")
            return node
        return node.scalar(
            text, offset=node.offset, width=node.width, directory=directory, spans=tuple(spans)
        )

    def _value(self, reference: Reference, node: Scalar) -> Node | None:
        """The value of a variable; None, and a problem, if it has none."""
        name = reference.name
        if name in RESERVED_VARIABLES:
            message = f"`${{{name}}}` would be read from `WDS_{name}`, which is a setting of wdspec"
            self._problems.add("E109", node, message, "choose another name")
            return None
        if name in self._open:
            chain = " -> ".join([*self._open[self._open.index(name) :], name])
            message = f"the variable `{name}` refers to itself: {chain}"
            self._problems.add("E108", node, message, "remove one of the references")
            return None
        if len(self._open) > 50:
            self._problems.add("E108", node, "variables refer to variables more than 50 levels deep")
            return None
        if name not in self._values:
            self._open.append(name)
            self._values[name] = self._look_up(name, node)
            self._open.pop()
        value = self._values[name]
        is_empty = value is None or (isinstance(value, Scalar) and value.value in (None, ""))
        if is_empty and reference.default is not None:
            self._open.append(name)
            value = self._default(reference.default, node)
            self._open.pop()
        elif value is None and name not in self._refused:
            hint = did_you_mean(name, self._known) or (
                f"set it with `vars: {{{name}: …}}`, `--var {name}=…` or the environment variable `WDS_{name}`, or add "
                f"a default: `${{{name}:-…}}`"
            )
            if _PREFIXED.match(name):
                hint = f"write `${{{name[4:]}}}`, which is read from the environment variable `{name}`"
            self._problems.add("E107", node, f"the variable `{name}` is not set", hint)
        return value

    def _default(self, text: str, node: Scalar) -> Node | None:
        expanded = self.expand(node.scalar(text, width=node.width))
        if isinstance(expanded, Scalar) and isinstance(expanded.value, str) and expanded.value:
            return _spelt(expanded.value, node, expanded.base)
        return expanded

    @property
    def _known(self) -> list[str]:
        own = list(self._own.entries) if self._own else []
        return [*self._arguments, *own]

    def _look_up(self, name: str, node: Scalar) -> Node | None:
        if name in self._arguments:
            return self._arguments[name]
        text = self._environ.get(f"WDS_{name}")
        if text is not None:
            if len(text) > MAX_TEXT or not text.isprintable():
                message = f"`WDS_{name}` is too long or has control characters"
                self._problems.add("E110", node, message, "use printable text only")
                self._refused.add(name)
                return None
            return _spelt(text, node, self._directory)
        held = self._own.entries.get(name) if self._own else None
        if held is None or is_null(held.value):
            return None
        return self.expand(held.value)


def _default_of(name: str, text: str) -> str:
    """The default of a variable in a text."""
    with suppress(MalformedReferenceError):
        for each in references(text):
            if each.name == f"WDS_{name}":
                return each.default or ""
    return "…"


def list_used_names(node: Node) -> set[str]:
    """The names of all variables in a tree, including those in defaults."""
    names: set[str] = set()
    for scalar in scalars(node):
        if isinstance(scalar.value, str) and "${" in scalar.value:
            names.update(re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)", scalar.value))
    return names


def _spelt(text: str, node: Node, directory: str) -> Scalar:
    """Parse a text from outside the file like a plain scalar; empty stays text, since null would remove the key."""
    value = parse_scalar(text) if text else ""
    return node.scalar(value, directory=directory, text=text)
