"""A composition as one spec: the keys of all layers in one tree, which means the same when it is read again.

`extends`, splits, environments, overrides, `defaults`, nested specs, tables of sources and variables are applied. Keys
that no layer has are left out, as some defaults depend on which keys are written. Values stay the nodes that they were,
so they know where they were written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from wdspec.base.redaction import join_spans, secrets_in
from wdspec.spec.build import Composition
from wdspec.spec.format import documented_keys
from wdspec.spec.language.companions import OWN_KEYS
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.language.values import FilePath, Model
from wdspec.spec.paths import map_paths, starts_here
from wdspec.spec.schema import Document, SourceEntry
from wdspec.spec.sources import GROUP_KEYS, Draft
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Position, Scalar, is_null, plain
from wdspec.urls.rewrite import Rule, rewrite
from wdspec.urls.urls import Part, parse_shards, scheme_of

_SPECIAL = re.compile(r"[\\{}*?\[\]]|::")
"""What has a meaning in a pattern of shards."""
_SHORTEST_SECRET = 3
_NAMES_OF_SECRETS = ("env", "files")
"""Maps of `storage` whose values are names of variables and files with secrets."""


class Moved(NamedTuple):
    """A path that is written in another way than in its file, as the merged spec is in another folder."""

    position: Position
    key: str
    before: str
    after: str


class Secret(NamedTuple):
    """A secret that is written as a variable."""

    position: Position
    key: str
    variable: str


@dataclass
class Merged:
    """A spec in one tree, and what differs from how it was written."""

    top: MapNode
    moved: list[Moved] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What else a reader must know."""


def merge_composition(
    composition: Composition, folder: str, *, absolute: bool = False, known: Mapping[str, str] | None = None
) -> Merged:
    """Merge a spec of one split and one environment.

    Args:
        composition: without errors.
        folder: where the merged spec will be read: relative paths start there.
        absolute: whether to make all relative paths absolute.
        known: values of variables by name. A secret that is one of them keeps the name.
    """
    return _Merger(composition, folder, absolute, known or {}).merge()


class _Merger:
    def __init__(
        self, composition: Composition, folder: str, absolute: bool, known: Mapping[str, str]
    ) -> None:
        self._from, self._absolute = composition, absolute
        self._paths = _Places(folder, absolute)
        self._variables = {value: name for name, value in known.items() if len(value) >= _SHORTEST_SECRET}
        self._taken = {*known}
        self._result = Merged(composition.top)
        self._companions = {draft.name: draft for draft in composition.companions}
        self._used: set[str] = set()

    def merge(self) -> Merged:
        top = self._from.top.without("dataset", "companions", "defaults", "sources", "vars")
        top = self._place(top, Spec, [])
        drafts = self._from.drafts
        dataset = self._from.top.entries["dataset"]
        sources = [self._source(draft) for draft in drafts]
        entries = {**top.entries, "dataset": MapEntry(dataset.key, dataset.value.list_of(sources))}
        named = {name: draft for name, draft in self._companions.items() if name not in self._used}
        if named:
            key, at = self._from.top.entries["companions"]
            blocks = {
                name: MapEntry(draft.node.scalar(name), self._leaf(draft)) for name, draft in named.items()
            }
            entries["companions"] = MapEntry(key, MapNode(at.origin, at.line, at.column, blocks))
        tree = _in_order(top.with_entries(entries), documented_keys(Document))
        self._result.top = self._finish_map(tree, "")
        if self._result.moved and (self._from.spec.output is not None and self._from.spec.output.pattern):
            self._result.notes.append(
                "`output: from` is matched with shards as they are written: check that it matches the new paths"
            )
        return self._result

    def _source(self, draft: Draft) -> MapNode:
        """A source with its name and defaults; a nested mix with its sources."""
        if draft.children is None:
            return _in_order(_named(self._leaf(draft), draft), documented_keys(SourceEntry))
        kept = {
            key: entry
            for key, entry in draft.node.entries.items()
            if key in GROUP_KEYS and key not in ("name", "defaults", "dataset")
        }
        node = draft.node.with_entries(kept)
        at = draft.node.entries["dataset"]
        node = node.setting("dataset", at.value.list_of([self._source(child) for child in draft.children]))
        return _in_order(_named(node, draft), documented_keys(SourceEntry))

    def _leaf(self, draft: Draft) -> MapNode:
        node = self._with_overlay_first(draft)
        if node.get("errors") is self._from.top.get("errors"):  # inherited
            node = node.without("errors")
        rules = [] if draft.model is None else [*draft.model.rewrite, *self._from.spec.rewrite]
        node = self._place(node, Source, rules)
        if (companions := node.map_at("companions")) is not None:
            node = node.setting("companions", self._in_place(companions))
        return _in_order(node, documented_keys(SourceEntry))

    def _in_place(self, companions: MapNode) -> MapNode:
        """Companions, with the sources that were written in place of a name."""
        entries = {}
        for name, (key, value) in companions.entries.items():
            source = value.get("source") if isinstance(value, MapNode) else None
            draft = self._companions.get(plain(source)) if source is not None else None
            if (
                draft is not None
                and isinstance(value, MapNode)
                and "/" in draft.name
                and self._is_unnamed(draft)
            ):
                self._used.add(draft.name)
                own = {each: entry for each, entry in value.entries.items() if each in OWN_KEYS}
                value = value.with_entries({**self._leaf(draft).entries, **own})
            entries[name] = MapEntry(key, value)
        return companions.with_entries(entries)

    def _is_unnamed(self, draft: Draft) -> bool:
        named = self._from.top.map_at("companions")
        return named is None or draft.name not in named.entries

    def _with_overlay_first(self, draft: Draft) -> MapNode:
        """The node of a source. If an overlay has rewrite rules at the top level, they come before its own."""
        node, overlaid = draft.node, self._from.variant.overlaid
        rules, top = node.get("rewrite"), self._from.top.get("rewrite")
        if not isinstance(rules, ListNode) or not isinstance(top, ListNode):
            return node
        first = [each for each in (*rules.items, *top.items) if each.position in overlaid]
        if not any(each.position in overlaid for each in top.items):
            return node
        rest = [each for each in rules.items if each.position not in overlaid]
        return node.setting("rewrite", rules.list_of([*first, *rest]))

    def _place(self, node: MapNode, model: type[Model], rules: Iterable[RewriteRule]) -> MapNode:
        """Write the paths of a map so that they lead to the same files from the new folder."""
        tried = [Rule(rule.pattern, rule.replacement, rule.origin) for rule in rules]

        def change(value: Scalar, kind: FilePath, key: str) -> Scalar:
            text = self._paths.write(value, kind, key, tried)
            if text == value.value:
                return value
            self._result.moved.append(Moved(value.position, key, str(value.value), text))
            return value.scalar(text, width=value.width)

        return map_paths(node, model, change)

    def _finish(self, node: Node, key: str, within: str) -> Node:
        """The same tree without what has no meaning, with `${` in texts escaped, and variables for secrets.

        Args:
            key: its key.
            within: the key of the map that it is in.
        """
        if isinstance(node, Scalar):
            return self._text(node, "" if within in _NAMES_OF_SECRETS else key)
        if isinstance(node, ListNode):
            return node.list_of([self._finish(item, key, within) for item in node.items])
        assert isinstance(node, MapNode)
        return self._finish_map(node, key)

    def _finish_map(self, node: MapNode, key: str) -> MapNode:
        entries = {}
        for name, (at, value) in node.entries.items():
            # `null` means the same as no key, except where it removes what `errors` of the top level says.
            has_meaning = "errors" in (key, name) or (key, name) == ("rewrite", "to")
            if has_meaning or not is_null(value):
                entries[name] = MapEntry(at, self._finish(value, name, key))
        return node.with_entries(entries)

    def _text(self, node: Scalar, key: str) -> Scalar:
        text = node.value
        if not isinstance(text, str):
            return node
        spans = secrets_in(text)
        before = f"{key}: " if key else ""
        named = [(start - len(before), end - len(before)) for start, end in secrets_in(before + text)]
        spans = join_spans([*spans, *(span for span in named if span[0] >= 0)])
        if not spans and "${" not in text:
            return node
        pieces, at = [], 0
        for start, end in spans:
            variable = self._variable(text[start:end])
            self._result.secrets.append(Secret(node.position, key, variable))
            pieces += [text[at:start].replace("${", "$${"), f"${{{variable}}}"]
            at = end
        pieces.append(text[at:].replace("${", "$${"))
        return node.scalar("".join(pieces), width=node.width)

    def _variable(self, secret: str) -> str:
        """The name of the variable for a secret; the same for the same secret."""
        if secret not in self._variables:
            number = 1
            while f"secret_{number}" in self._taken:
                number += 1
            self._variables[secret] = f"secret_{number}"
            self._taken.add(f"secret_{number}")
        return self._variables[secret]


class _Places:
    """Writes paths so that they lead to the same files from another folder."""

    def __init__(self, folder: str, absolute: bool) -> None:
        self._folder, self._absolute = folder, absolute
        self._real = os.path.realpath(folder)
        self._prefixes: dict[str, str] = {}

    def write(self, value: Scalar, kind: FilePath, key: str, rules: list[Rule]) -> str:
        """The text of a path, of several (`a::b`), or of a file of keys (`@keys.txt`)."""
        text: str = value.value
        prefix = self._prefix(value.base)
        if not prefix:
            return text
        if kind.is_template:
            return f"{prefix}{text.removeprefix('./')}".replace("\\", r"\\") if starts_here(text) else text
        if not kind.keeps_text or key != "shards":
            return _put_before(text, prefix)
        escaped = _SPECIAL.sub(r"\\\g<0>", prefix)
        return "::".join(
            part.text if _is_rewritten(part, rules) else _put_before(part.text, escaped)
            for part in parse_shards((text,), value.base)
        )

    def _prefix(self, base: str) -> str:
        """What to write before a path that starts in a folder; empty if the same text leads to the same file."""
        if base not in self._prefixes:
            self._prefixes[base] = self._find_prefix(base)
        return self._prefixes[base]

    def _find_prefix(self, base: str) -> str:
        real = os.path.realpath(base)
        if self._absolute:
            return f"{base.rstrip('/')}/"
        if real == self._real:
            return ""
        relative = os.path.relpath(base, self._folder)
        if os.path.realpath(os.path.join(self._folder, relative)) != real:
            return f"{base.rstrip('/')}/"  # a link is on the way
        return f"{'' if relative.startswith('..') else './'}{relative}/"


def _put_before(text: str, prefix: str) -> str:
    """A path with a prefix, if it is relative; also after `@` and `file:`."""
    mark = "@" if text.startswith("@") else ""
    path = text.removeprefix("@")
    if scheme_of(path) == "file" and not path[len("file:") :].startswith(("/", "~", "%2F", "%2f")):
        return f"{mark}file:{quote(prefix)}{path[len('file:') :]}"
    return f"{mark}{prefix}{path}" if starts_here(path) else text


def _is_rewritten(part: Part, rules: list[Rule]) -> bool:
    """Whether a rewrite rule changes the first shard of a pattern, so that it does not matter where paths start."""
    return bool(rules) and rewrite(part.text if part.listed else part.braces[0], rules)[1] is not None


def _named(node: MapNode, draft: Draft) -> MapNode:
    """The map of a source with its name, also if the name comes from its shards."""
    stated = node.get("name") or draft.own.get("name")
    at = stated if isinstance(stated, Scalar) else draft.own
    return node.setting("name", at if at is stated and plain(at) == draft.name else at.scalar(draft.name))


def _in_order(node: MapNode, order: Iterable[str]) -> MapNode:
    """The same map with its keys in an order."""
    place = {key: number for number, key in enumerate(order)}
    keys = sorted(node.entries, key=lambda key: place.get(key, len(place)))
    return node.with_entries({key: node.entries[key] for key in keys})
