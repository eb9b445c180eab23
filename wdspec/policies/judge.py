"""Whether patterns match what is read at a place: all of it, some, nothing, or whatever data say."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache

from wdspec.policies.canonical import fold, hides_urls, views_of
from wdspec.policies.patterns import known_start, matches, may_match, show
from wdspec.policies.places import MOST_EXPANDED, Place
from wdspec.urls.braces import Braces


class Answer(Enum):
    """How many of the URLs of a place patterns match."""

    ALL = "all"
    SOME = "some"
    NONE = "none"
    UNKNOWN = "unknown"


def judge(place: Place, subject: str, patterns: tuple[str, ...], sees_all: bool) -> tuple[Answer, str]:
    """How many URLs of a place any of some patterns matches; and one that it matches, and one that it does not.

    Args:
        place: the place.
        subject: `shards`, `scheme` or `bucket`.
        patterns: the patterns.
        sees_all: whether the URLs in a command, and other names of the same objects, count, too.
    """
    if place.unknown:
        return Answer.UNKNOWN, ""
    # A list may be long, and the cache would keep it.
    ask = _judge.__wrapped__ if isinstance(place.many, tuple) else _judge
    return ask(place.text, place.many, place.base, subject, patterns, sees_all and subject != "scheme")


@lru_cache(maxsize=65536)  # environments and splits read the same places
def _judge(
    text: str,
    many: Braces | tuple[str, ...] | None,
    base: str,
    subject: str,
    patterns: tuple[str, ...],
    sees_all: bool,
) -> tuple[Answer, str]:
    folded = fold(subject, patterns)

    def is_match(text: str) -> bool:
        views = views_of(subject, text, base, sees_all)
        return any(matches(pattern, view) for view in views for pattern in folded)

    first = text if many is None else many[0]
    if is_match(text):
        return Answer.ALL, first
    if sees_all and hides_urls(first):
        return Answer.UNKNOWN, first
    views = views_of(subject, text, base, sees_all)
    if not any(may_match(pattern, view) for view in views for pattern in folded):
        return Answer.NONE, first
    if many is None or len(many) > MOST_EXPANDED:
        return Answer.UNKNOWN, text
    good: str | None = None
    bad: str | None = None
    for each in many if isinstance(many, tuple) else many.all():
        if is_match(each):
            good = good or each
        elif sees_all and hides_urls(each):
            return Answer.UNKNOWN, each
        else:
            bad = bad or each
        if good is not None and bad is not None:
            return Answer.SOME, f"{good}\0{bad}"
    return (Answer.ALL, good or "") if bad is None else (Answer.NONE, bad)


def texts_of(place: Place, subject: str) -> frozenset[str] | None:
    """What the URLs of a place are for a subject: every text that counts; None if that is unknown."""
    if place.unknown:
        return None
    texts: Sequence[str] = (place.text,)
    if place.many is not None and len(place.many) <= MOST_EXPANDED:
        texts = place.many
    found = {view for each in texts for view in views_of(subject, each, place.base, sees_all=True)}
    return None if any(known_start(each) != each for each in found) else frozenset(found)


def example(found: tuple[Answer, str], of_match: bool) -> str:
    """The URL of an answer to show: one that matches, or one that does not."""
    good, _, bad = found[1].partition("\0")
    return show(good if of_match or not bad else bad)
