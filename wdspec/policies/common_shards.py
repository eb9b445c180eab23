"""Which sources read the same shards: several names for one share of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from wdspec.policies.canonical import views_of
from wdspec.policies.judge import texts_of
from wdspec.policies.patterns import ANY_CHARACTER, ANY_TEXT, known_start, may_match, show
from wdspec.policies.places import Place
from wdspec.policies.subjects import Holder


class Common(NamedTuple):
    """Sources that read a shard in common, or may do so."""

    sources: frozenset[int]
    """Their places among the sources that were compared."""
    place: Place
    """Where the last of them has the shard; if it is not certain, where one has the text that is unknown."""
    shown: str
    """The shard, for messages. Of a glob or another text whose shards are unknown, the text."""
    is_certain: bool
    unknown: str = ""
    """Why it is not certain, if not because of a glob."""

    @property
    def in_words(self) -> str:
        """What they read: `which both read …`."""
        who = "both" if len(self.sources) == 2 else "all"
        if self.is_certain:
            return f"which {who} read `{self.shown[:200]}`{self.place.how}"
        if self.unknown:
            return f"which may {who} read the same shards, as {self.unknown}"
        return f"which may {who} read a shard of `{self.shown[:200]}`{self.place.how}"


class _View(NamedTuple):
    """A text with which a source names shards, or an outline of it."""

    start: str
    """What is before the first unknown letter."""
    text: str
    source: int
    place: Place


def find_common(holders: Sequence[Holder]) -> list[Common]:
    """Return every set of several sources that read one shard, and sets of all that may do so."""
    known: dict[Place, frozenset[str] | None] = {}

    def shards_at(place: Place) -> frozenset[str] | None:
        if place not in known:
            known[place] = texts_of(place, "shards")
        return known[place]

    readers: dict[str, dict[int, Place]] = {}
    doubtful: dict[tuple[int, int], _View] = {}
    for one, other in _near_pairs(holders):
        mine, theirs = shards_at(one.place), shards_at(other.place)
        is_same_glob = one.text == other.text != ANY_TEXT and one.place.raw != ""
        if is_same_glob or (mine is not None and theirs is not None):
            for text in (one.text,) if mine is None or theirs is None else mine & theirs:
                readers.setdefault(text, {}).update({one.source: one.place, other.source: other.place})
            continue
        glob, shards = (one, theirs) if mine is None else (other, mine)
        pattern = _as_pattern(glob.text)
        if shards is None or any(may_match(pattern, each) for each in shards):
            doubtful.setdefault((min(one.source, other.source), max(one.source, other.source)), glob)
    found: dict[frozenset[int], Common] = {}
    for text, places in readers.items():
        sources = frozenset(places)
        found.setdefault(sources, Common(sources, places[max(sources)], show(text), True))
    return [*found.values(), *_find_doubtful(doubtful, found)]


def _find_doubtful(
    pairs: Mapping[tuple[int, int], _View], certain: Iterable[frozenset[int]]
) -> Iterator[Common]:
    """Yield sets of sources, each of which may have a shard in common with each other one."""
    near: dict[int, set[int]] = {}
    known = (pair for group in certain for pair in combinations(sorted(group), 2))
    for one, other in (*pairs, *known):
        near.setdefault(one, {one}).add(other)
        near.setdefault(other, {other}).add(one)
    found: list[frozenset[int]] = []
    for (one, other), view in pairs.items():
        if any(one in each and other in each for each in found):
            continue
        members = {one, other}
        for each in sorted(near[one] & near[other]):
            if members <= near[each]:
                members.add(each)
        found.append(frozenset(members))
        yield Common(found[-1], view.place, show(view.text), False, view.place.unknown)


def _near_pairs(holders: Sequence[Holder]) -> Iterator[tuple[_View, _View]]:
    """Yield the texts of two sources that may name one shard.

    Two outlines may do so only if one starts with the known start of the other. In the order of these starts, the
    candidates of each are a stack.
    """
    views = {
        _View(known_start(text), text, number, place)
        for number, holder in enumerate(holders)
        for place in holder.shards
        for text in (
            (ANY_TEXT,) if place.unknown else views_of("shards", place.text, place.base, sees_all=True)
        )
    }
    stack: list[_View] = []
    for view in sorted(views, key=lambda each: (each.start, each.text, each.source)):
        while stack and not view.start.startswith(stack[-1].start):
            stack.pop()
        pattern = _as_pattern(view.text)
        for other in stack:
            if other.source != view.source and may_match(pattern, other.text):
                yield other, view
        stack.append(view)


def _as_pattern(outline: str) -> str:
    """A pattern that matches everything that an outline describes."""
    return outline.replace(ANY_TEXT, "*").replace(ANY_CHARACTER, "*")
