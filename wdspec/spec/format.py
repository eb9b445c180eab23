"""Format a spec: put its keys into the documented order. A comment moves with the key that it is above or next to.

Text is moved and never rewritten, so quotes, numbers and line breaks do not change. (Libraries that read YAML with
comments attach each comment to the value before it, so that a key that moves loses its comment.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import yaml

from wdspec.spec.language.values import Model
from wdspec.spec.problems import Problem, Problems
from wdspec.spec.schema import Document, SourceEntry
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import Origin, plain
from wdspec.spec.validation import keys_of, maps_of
from wdspec.spec.yaml import parse

_FIRST: dict[type[Model], tuple[str, ...]] = {
    Document: ("wdspec", "name", "description", "extends", "vars", "seed", "defaults", "dataset", "sources"),
    SourceEntry: ("name", "shards", "spec"),
}
_LAST: dict[type[Model], tuple[str, ...]] = {
    Document: ("environments", "splits"),
    SourceEntry: ("mix", "defaults", "dataset"),
}
_BY_NAME: dict[str, type[Model]] = {"environments": Document, "splits": Document, "sources": SourceEntry}
"""Keys of maps whose names the user chooses, and whose values are such maps."""
_NESTED: dict[str, type[Model]] = {"dataset": SourceEntry, "defaults": SourceEntry}
"""Keys of such maps, or of lists of them."""
_MODELS: dict[type[Model], type[Model]] = {Document: Spec, SourceEntry: Source}


@cache
def documented_keys(model: type[Model]) -> tuple[str, ...]:
    """The keys of a file (`Document`), a source (`SourceEntry`) or another model, in the order of the reference."""
    first, last = _FIRST.get(model, ()), _LAST.get(model, ())
    return (*first, *(key for key in keys_of(model) if key not in {*first, *last}), *last)


def maps_under(model: type[Model], key: str) -> tuple[type[Model] | None, bool]:
    """The model of the maps under a key, if they have one; and whether they are there by name."""
    if model in _MODELS and key in _BY_NAME:
        return _BY_NAME[key], True
    if model in _MODELS and key in _NESTED:
        return _NESTED[key], False
    return maps_of(_MODELS.get(model, model)).get(key), False


_ALIAS = re.compile(r"\*[^,\[\]{}\s]+")
_BLANK_END = re.compile(r"(?:\n[ \t]*)+\Z")
_COMMENTS = re.compile(r"(?: *#[^\n]*\n)+")


class Formatted(NamedTuple):
    """The result of formatting."""

    text: str
    problems: list[Problem]
    """Mistakes in the YAML; the text is unchanged."""
    left: str = ""
    """Why the text is unchanged, if moving its keys would change its meaning."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def format_spec(text: str, name: str) -> Formatted:
    """Put the keys of a spec in order, and remove blanks at the ends of lines and empty lines at the end.

    Args:
        text: the text of a YAML file.
        name: its name in problems.
    """
    before, problems = _meaning(text, name)
    if problems:
        return Formatted(text, problems)
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is None:
        return Formatted(_tidy(text, node), [])
    moved = _splice(text, 0, len(text), list(_Formatter(text).edits(node, Document)))
    tidy = _tidy(moved, yaml.compose(moved, Loader=yaml.SafeLoader)) if _means(moved, name, before) else ""
    if tidy and _means(tidy, name, before):
        return Formatted(tidy, [])
    return Formatted(text, [], "an alias would be before its anchor, or blanks that matter would be lost")


class _Formatter:
    """Finds the edits that put the entries of maps in order."""

    def __init__(self, text: str) -> None:
        self._text = text

    def edits(self, node: yaml.Node, kind: type[Model] | None, by_name: bool = False) -> Iterator[_Edit]:
        """The edits in a node, in the order of the text, without overlaps."""
        if isinstance(node, yaml.SequenceNode):
            last = node.start_mark.index
            for item in node.value:
                if item.start_mark.index >= last:  # else an alias of something that is written elsewhere
                    last = item.end_mark.index
                    yield from self.edits(item, kind, by_name)
            return
        if not isinstance(node, yaml.MappingNode) or kind is None:
            return
        inner: list[_Edit] = []
        for key, value in node.value:
            if value.start_mark.index < key.start_mark.index:
                continue
            if by_name:
                inner += self.edits(value, kind)
            else:
                inner += self.edits(value, *maps_under(kind, str(key.value)))
        order = None if by_name else self._order(node, kind)
        if order is None:
            yield from inner
        elif node.flow_style:
            yield self._flow(node, order, inner)
        else:
            yield self._block(node, order, inner)

    def _order(self, node: yaml.MappingNode, kind: type[Model]) -> list[int] | None:
        """The new order of the entries; None if they stay."""
        keys = [str(key.value) for key, _ in node.value]
        known = {key: place for place, key in enumerate(("<<", *documented_keys(kind)))}
        order = sorted(range(len(keys)), key=lambda i: known.get(keys[i], len(known)))
        explicit = any(self._text[key.start_mark.index - 2 :][:1] == "?" for key, _ in node.value)
        if order == list(range(len(keys))) or explicit:
            return None
        if node.flow_style and "#" in "".join(self._gaps(node)):
            return None
        return order

    def _spans(self, node: yaml.MappingNode) -> list[tuple[int, int]]:
        """Where the entries of a map in braces start and end."""
        return [(key.start_mark.index, self._end(value, key.end_mark.index)) for key, value in node.value]

    def _gaps(self, node: yaml.MappingNode) -> list[str]:
        """The texts between the entries of a map in braces."""
        spans = self._spans(node)
        return [self._text[end:start] for (_, end), (start, _) in pairwise(spans)]

    def _flow(self, node: yaml.MappingNode, order: Sequence[int], inner: list[_Edit]) -> _Edit:
        spans = self._spans(node)
        entries = [_splice(self._text, *span, inner) for span in spans]
        gaps = [*self._gaps(node), ""]
        text = "".join(entries[place] + gap for place, gap in zip(order, gaps, strict=True))
        return _Edit(spans[0][0], spans[-1][1], text)

    def _block(self, node: yaml.MappingNode, order: Sequence[int], inner: list[_Edit]) -> _Edit:
        column = node.value[0][0].start_mark.column
        starts = [self._start(key, column, first=place == 0) for place, (key, _) in enumerate(node.value)]
        key, value = node.value[-1]
        ends = [*starts[1:], self._line_end(self._end(value, key.end_mark.index))]
        entries, gaps = [], []
        for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
            whole = _splice(self._text, start if place == 0 else start + column, end, inner)
            blank = _BLANK_END.search(whole)
            entries.append(whole[: blank.start()] if blank else whole)
            gaps.append(blank[0] if blank else "\n")
        # Blank lines between entries stay where they are: they separate groups.
        lines = [entries[place] + gap for place, gap in zip(order, gaps, strict=True)]
        line = self._line_start(starts[0])
        before = self._text[line : starts[0]]
        if before.strip() and lines[0].startswith("#"):  # `- # comment` would be correct, but hard to read
            own = " " * (len(before) - len(before.lstrip()))
            comments = _COMMENTS.match(lines[0])
            assert comments is not None
            above = "".join(f"{own}{each.lstrip()}" for each in comments[0].splitlines(keepends=True))
            lines[0] = lines[0][comments.end() :].lstrip(" ")
            return _Edit(line, ends[-1], f"{above}{before}" + (" " * column).join(lines))
        return _Edit(starts[0], ends[-1], (" " * column).join(lines))

    def _start(self, key: yaml.Node, column: int, first: bool) -> int:
        """Where an entry starts, with the comments directly above it: a line, or for the first one its column."""
        at = self._line_start(key.start_mark.index)
        if first and (column == 0 or self._text[at : key.start_mark.index].strip()):
            return int(key.start_mark.index)  # comments above are about the file, or the item of a list
        while at > 0:
            above = self._line_start(at - 1)
            line = self._text[above:at]
            if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) != column:
                break
            at = above
        return at + column if first else at

    def _end(self, value: yaml.Node, after: int) -> int:
        """Where the text of a value ends, before blanks and comments; it is somewhere after `after`."""
        if value.start_mark.index < after:  # an alias of something that is written elsewhere
            found = _ALIAS.match(self._text, self._text.index("*", after))
            assert found is not None
            return found.end()
        if not isinstance(value, yaml.CollectionNode) or value.flow_style:
            end = int(value.end_mark.index)
            is_block = isinstance(value, yaml.ScalarNode) and value.style in ("|", ">")
            return len(self._text[:end].rstrip()) if is_block else end
        if isinstance(value, yaml.MappingNode):
            key, last = value.value[-1]
            return self._end(last, key.end_mark.index)
        for item in value.value:
            after = self._end(item, after)
        return after

    def _line_start(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _line_end(self, index: int) -> int:
        end = self._text.find("\n", index)
        return len(self._text) if end < 0 else end + 1


def _splice(text: str, start: int, end: int, edits: Iterable[_Edit]) -> str:
    """A part of a text, with the edits in it applied."""
    parts, at = [], start
    for edit in edits:
        if start <= edit.start and edit.end <= end:
            parts += [text[at : edit.start], edit.text]
            at = edit.end
    return "".join([*parts, text[at:end]])


def _tidy(text: str, node: yaml.Node | None) -> str:
    """Remove blanks at the ends of lines, except in texts of several lines, and empty lines at the end."""
    kept = {line for start, end in _long_texts(node, set()) for line in range(start, end + 1)}
    lines = text.split("\n")
    return "\n".join(
        line if number in kept else line.rstrip(" \t") for number, line in enumerate(lines)
    ).rstrip("\n") + "\n" * bool(text.strip())


def _long_texts(node: yaml.Node | None, seen: set[int]) -> Iterator[tuple[int, int]]:
    """First and last line of every text of several lines."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        start, end = node.start_mark, node.end_mark
        if start.line != end.line:
            yield start.line, end.line - (end.column == 0 or node.style not in ("|", ">"))
        return
    for each in node.value:
        for part in each if isinstance(each, tuple) else (each,):
            yield from _long_texts(part, seen)


def _meaning(text: str, name: str) -> tuple[Any, list[Problem]]:
    """The plain values of a text, and the mistakes in its YAML."""
    problems = Problems()
    tree = parse(text, Origin(name, "/", text), problems)
    return None if tree is None else plain(tree), [each for each in problems.sorted() if each.is_error]


def _means(text: str, name: str, meaning: Any) -> bool:
    """Whether a text has exactly these values."""
    return _meaning(text, name) == (meaning, [])
