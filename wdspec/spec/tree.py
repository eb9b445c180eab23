"""The tree of a spec: values that know where they were written.

Trees are immutable and share their parts. Merging files, overlays and defaults makes new maps of the same leaves, so
a problem found after merging still points at the line that the user wrote. `merge` is the only way to lay one tree over
another: maps merge, also with words for `errors`; lists and other scalars replace; `rewrite` and `allow` are joined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any, NamedTuple, overload

from wdspec.base.redaction import masked_line

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what YAML accepts as the end of a line


class Position(NamedTuple):
    """A position in a text: the file as the user named it, and line and column, counted from 1.

    Without a text (a spec given as a dict) line and column are 0, and ``file`` is a path such as `spec['dataset']`.
    """

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Origin:
    """The text that a tree was read from.

    Args:
        name: how messages call it: the file as the user named it, or `--set a=1`.
        directory: absolute; relative paths in the text start here.
        text: None if there is no text (a dict).
    """

    __slots__ = ("_lines", "_text", "directory", "name")

    def __init__(self, name: str, directory: str, text: str | None) -> None:
        self.name = name
        self.directory = directory
        self._text = text
        self._lines: tuple[str, ...] | None = None

    @property
    def text(self) -> str | None:
        """The whole text."""
        return self._text

    def line(self, number: int) -> str | None:
        """Return a line, counted from 1; None if the file is shorter."""
        if self._lines is None:
            self._lines = () if self._text is None else tuple(_LINE_END.split(self._text))
        return self._lines[number - 1] if 1 <= number <= len(self._lines) else None

    def shown(self, number: int) -> str | None:
        """The same line with every character of a secret replaced by `*`."""
        return None if self.line(number) is None or not self._lines else masked_line(self._lines, number - 1)

    def echo(self, number: int, text: str) -> str:
        """A part of a line for a message; `…` if it has a secret."""
        return text if text in (self.shown(number) or text) else "…"


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A value and its position."""

    origin: Origin
    line: int
    column: int

    @property
    def position(self) -> Position:
        """File, line and column."""
        return Position(self.origin.name, self.line, self.column)

    @property
    def length(self) -> int:
        """How many characters of its line it takes, as far as known."""
        return 1

    @property
    def size(self) -> int:
        """How many nodes are in it. A node that is referred to twice counts twice."""
        return 1

    def scalar(self, value: Any, **options: Any) -> Scalar:
        """Make a scalar at the position of this node; `options` are those of `Scalar`."""
        return Scalar(self.origin, self.line, self.column, value, **options)

    def list_of(self, items: Iterable[Node]) -> ListNode:
        """Make a list at the position of this node."""
        return ListNode(self.origin, self.line, self.column, tuple(items))

    def key_or_self(self, key: str) -> Node:
        """Where to point for a key: at the key if this node has it, else at the node."""
        return self

    def value_or_self(self, key: str) -> Node:
        """Where to point for the value of a key: at the value if there is one, else at the node."""
        return self


@dataclass(slots=True, eq=False, repr=False)
class Scalar(Node):
    """Text, a number, true, false or null."""

    value: Any
    offset: int | None = None
    """Distance from the node's column to the first character of the value (0 if plain, 1 in quotes); None if the value
    and the text of the file differ in more than this."""
    width: int = 1
    directory: str | None = None
    """Where the value starts as a relative path, if a variable that was set elsewhere begins it."""
    text: str | None = None
    """How a number, true or false was spelled."""
    spans: tuple[tuple[int, int], ...] = ((0, 0),)
    """Where variables were replaced: pairs of an index in the value and the index in the file that it comes from."""

    @property
    def length(self) -> int:
        return self.width

    def column_at(self, index: int) -> int | None:
        """The column of a character of the value; None if that is unknown."""
        if self.offset is None:
            return None
        start, written = max(span for span in self.spans if span[0] <= index)
        return self.column + self.offset + written + index - start

    @property
    def written(self) -> str:
        """The value as text, as the user spelled it: `007` stays `007`."""
        if self.text is not None:
            return self.text
        if self.value is None:
            return ""
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)

    @property
    def base(self) -> str:
        """The directory where the value starts if it is a relative path."""
        return self.origin.directory if self.directory is None else self.directory


@dataclass(slots=True, eq=False, repr=False)
class ListNode(Node):
    """A list."""

    items: tuple[Node, ...]
    _size: int = field(default=0, init=False)

    @property
    def size(self) -> int:
        if not self._size:  # computed once: with aliases a small file holds very many nodes
            self._size = 1 + sum(item.size for item in self.items)
        return self._size

    def map(self, change: Callable[[Node], Node]) -> ListNode:
        """Apply a function to each item; returns this list if nothing changes."""
        items = [change(item) for item in self.items]
        return self if all(map(is_, items, self.items)) else self.list_of(items)


class MapEntry(NamedTuple):
    """A key of a map and its value."""

    key: Scalar
    value: Node


@dataclass(slots=True, eq=False, repr=False)
class MapNode(Node):
    """A map from text to values, in file order."""

    entries: Mapping[str, MapEntry]
    _size: int = field(default=0, init=False)

    @property
    def size(self) -> int:
        if not self._size:
            self._size = 1 + sum(entry.value.size for entry in self.entries.values())
        return self._size

    def get(self, key: str) -> Node | None:
        """Return the value of a key, or None if it is missing or null."""
        entry = self.entries.get(key)
        if entry is None or (isinstance(entry.value, Scalar) and entry.value.value is None):
            return None
        return entry.value

    def map_at(self, key: str) -> MapNode | None:
        """Return the value of a key if it is a map."""
        value = self.get(key)
        return value if isinstance(value, MapNode) else None

    def key(self, key: str) -> Scalar:
        """Return the key itself, to point at."""
        return self.entries[key].key

    def key_or_self(self, key: str) -> Node:
        return self.entries[key].key if key in self.entries else self

    def value_or_self(self, key: str) -> Node:
        return self.entries[key].value if key in self.entries else self

    def with_entries(self, entries: Mapping[str, MapEntry]) -> MapNode:
        """The same map with other entries."""
        return MapNode(self.origin, self.line, self.column, entries)

    def without(self, *keys: str) -> MapNode:
        """The same map without these keys."""
        if not any(key in self.entries for key in keys):
            return self
        return self.with_entries({name: entry for name, entry in self.entries.items() if name not in keys})

    def setting(self, key: str, value: Node) -> MapNode:
        """The same map with one entry added or replaced."""
        held = self.entries.get(key)
        name = held.key if held else Scalar(value.origin, value.line, value.column, key)
        return self.with_entries({**self.entries, key: MapEntry(name, value)})


def is_null(node: Node | None) -> bool:
    """Whether a node is `null`, which means the same as leaving the key out."""
    return isinstance(node, Scalar) and node.value is None


def plain(node: Node) -> Any:
    """Convert a tree to dicts, lists and scalars, without keys whose value is null."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    assert isinstance(node, MapNode)
    return {key: plain(entry.value) for key, entry in node.entries.items() if not is_null(entry.value)}


def scalars(node: Node) -> Iterator[Scalar]:
    """Iterate over every scalar value of a tree."""
    pending = [node]
    while pending:
        at = pending.pop()
        if isinstance(at, Scalar):
            yield at
        elif isinstance(at, ListNode):
            pending.extend(at.items)
        elif isinstance(at, MapNode):
            pending.extend(entry.value for entry in at.entries.values())


def locate(node: Node, path: Iterable[str | int]) -> Node:
    """Find the node at a path, or the nearest one above it.

    Steps that the tree does not have are ignored, since a shorthand has fewer levels than the model: `batch, size` is
    the single value of `batch: 32`.
    """
    for step in path:
        if isinstance(node, MapNode) and step in node.entries:
            node = node.entries[str(step)].value
        elif isinstance(node, ListNode) and isinstance(step, int) and 0 <= step < len(node.items):
            node = node.items[step]
    return node


JOINED = frozenset({"rewrite", "allow"})
_FREE_FORM = frozenset({"vars", "tags", "meta", "args", "rename", "decode", "make", "fetch"})
"""Keys with names that the user chooses: a `rewrite` below them is not a list of rules."""
_ERRORS: Mapping[str, Mapping[str, bool | None]] = {
    "skip": {"skip": True},
    "raise": dict.fromkeys(("skip", "max_count", "max_rate")),
}
"""What the words for `errors` stand for where they are merged with a map."""


@overload
def merge(below: Node | None, above: MapNode, *, joins: bool = True) -> MapNode: ...
@overload
def merge(below: Node | None, above: Node, *, joins: bool = True) -> Node: ...
def merge(below: Node | None, above: Node, *, joins: bool = True) -> Node:
    """Lay the tree `above` over `below`.

    `null` replaces a value like any other scalar. It stays in the tree, so that one file can remove a key that another
    file sets.
    """
    if not isinstance(below, MapNode) or not isinstance(above, MapNode):
        return above
    merged = dict(below.entries)
    for name, entry in above.entries.items():
        held = merged.get(name)
        if held is None:
            merged[name] = entry
        elif joins and name in JOINED:
            merged[name] = MapEntry(entry.key, _join(entry.value, held.value))
        else:
            far, near = held.value, entry.value
            if joins and name in _SHORT_FORMS and MapNode in (type(far), type(near)):
                far, near = map(_SHORT_FORMS[name], (far, near))
            value = merge(far, near, joins=joins and name not in _FREE_FORM)
            merged[name] = MapEntry(entry.key if value is near else held.key, value)
    return above.with_entries(merged)


def _spell_out(errors: Node) -> Node:
    """The map that a word for `errors` stands for; other values as they are."""
    said = _ERRORS.get(errors.value) if isinstance(errors, Scalar) else None
    if said is None:
        return errors
    entries = {key: MapEntry(errors.scalar(key), errors.scalar(value)) for key, value in said.items()}
    return MapNode(errors.origin, errors.line, errors.column, entries)


def _spell_out_objects(fetch: Node) -> Node:
    """A map of objects whose short forms are the maps that they stand for; other values as they are."""
    if not isinstance(fetch, MapNode):
        return fetch
    entries = {}
    for name, (key, value) in fetch.entries.items():
        if isinstance(value, Scalar) and isinstance(value.value, str):
            value = MapNode(
                value.origin, value.line, value.column, {"url": MapEntry(value.scalar("url"), value)}
            )
        entries[name] = MapEntry(key, value)
    return fetch.with_entries(entries)


_SHORT_FORMS = {"errors": _spell_out, "fetch": _spell_out_objects}
"""Keys whose values have short forms, and what spells them out to be merged."""


def _join(near: Node, far: Node) -> Node:
    """Both lists, the nearer one first. `null` in the nearer place removes the other."""
    if is_null(near) or is_null(far):
        return near
    items = [*(near.items if isinstance(near, ListNode) else (near,))]
    items += far.items if isinstance(far, ListNode) else (far,)
    return near.list_of(items)
