"""What the rewrite rules of a spec do to its shards, as far as texts alone show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wdspec.base.errors import UrlError
from wdspec.spec.draft import Composed
from wdspec.spec.language.locations import RewriteRule
from wdspec.spec.rules.shard_texts import parts_of
from wdspec.spec.tree import ListNode, MapNode
from wdspec.urls.rewrite import Rule

MOST_TRIED = 12
"""Shards of one text that rules are tried on, from the first to the last."""


class Effect(NamedTuple):
    """One rule, where it stands, and what it does."""

    at: MapNode
    rule: Rule
    matched: tuple[str, ...]
    """A shard that it would change, if there is any."""
    won: bool
    """Whether it is the first to change any."""
    before: Rule | None
    """The rule that changes the matched shard first, where it never wins."""


def rewrite_effects(composed: Composed) -> Iterator[Effect]:
    """The rules of the top level and of each source, in file order; none where a list in a file hides the shards.

    In an environment only those of its overlay: they are meant to go before others, which are for other places.
    """
    top = _rules(composed.top, composed.spec.rewrite)
    own = {leaf.name: _rules(leaf.node, source.rewrite) for leaf, source in composed.models}
    if not top and not any(own.values()):
        return
    texts: dict[str, list[str]] = {}
    for leaf, _, parts in parts_of(composed):
        for part in parts:
            if part.text.startswith(("@", "{")) and part.listed:
                return
            tried = [part.text] if part.listed else [part.braces[i] for i in _spread(len(part.braces))]
            texts.setdefault(leaf.name, []).extend(part.prefix + text for text in tried)
    effects = [*_tried(top, [(own.get(name, []), urls) for name, urls in texts.items()])]
    for name, rules in own.items():
        effects += _tried(rules, [([], texts.get(name, []))])
    variant = composed.variant
    yield from (
        each for each in effects if variant.environment is None or each.at.position in variant.overlaid
    )


def _spread(count: int) -> Iterator[int]:
    step = max(1, (count - 1) // (MOST_TRIED - 1))
    yield from range(0, count - 1, step)
    yield count - 1


_Placed = list[tuple[MapNode, Rule]]


def _rules(holder: MapNode, rules: tuple[RewriteRule, ...]) -> _Placed:
    node = holder.get("rewrite")
    items = node.items if isinstance(node, ListNode) else ()
    if len(items) != len(rules):
        return []
    placed: _Placed = []
    for item, rule in zip(items, rules, strict=True):
        try:
            if isinstance(item, MapNode):
                placed.append((item, Rule(rule.pattern, rule.replacement, rule.origin)))
        except UrlError:
            continue  # E212
    return placed


def _tried(rules: _Placed, sets: list[tuple[_Placed, list[str]]]) -> Iterator[Effect]:
    for number, (at, rule) in enumerate(rules):
        matched: str | None = None
        before: Rule | None = None
        won = False
        for earlier, urls in sets:
            for url in urls:
                if _changes(rule, url):
                    matched = matched or url
                    first = next(
                        (other for _, other in (*earlier, *rules[:number]) if _changes(other, url)), None
                    )
                    won = won or first is None
                    before = before or first
                    if won:
                        break
        yield Effect(at, rule, () if matched is None else (matched,), won, None if won else before)


def _changes(rule: Rule, url: str) -> bool:
    try:
        return rule.apply(url) != url
    except UrlError:
        return True
