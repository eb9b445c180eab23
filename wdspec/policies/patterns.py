"""Patterns of policies, in which `*` stands for any text, and texts that are known only in part.

A text of a spec may stand for many others: `s3://b/*.tar`, or a million shards in braces. Its *outline* has `ANY_TEXT`
for what is unknown, and describes at least these texts. A pattern that matches an outline matches all of them, as `*`
also stands for `ANY_TEXT`, and nothing else does. Whether it may match one of them is a question about two patterns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

ANY_TEXT = "\ue000"
"""In an outline: any text."""
ANY_CHARACTER = "\ue001"
"""In an outline: any character."""
_UNKNOWN = re.compile(f"[{ANY_TEXT}{ANY_CHARACTER}]")


def known_start(outline: str) -> str:
    """What an outline has before the first letter that is unknown; all of a text."""
    return _UNKNOWN.split(outline, maxsplit=1)[0]


def show(outline: str) -> str:
    """An outline for messages."""
    return outline.replace(ANY_TEXT, "*").replace(ANY_CHARACTER, "?")


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches a text, or every text that an outline describes."""
    return pattern == "*" or _regex(pattern).fullmatch(text) is not None


@lru_cache(maxsize=65536)
def may_match(pattern: str, outline: str) -> bool:
    """Whether a pattern matches any text that an outline describes."""
    unknown = _UNKNOWN.search(outline)
    if unknown is None:
        return matches(pattern, outline)
    head, known = pattern.partition("*")[0], outline[: unknown.start()]
    if not (known.startswith(head) or head.startswith(known)):
        return False  # this decides nearly all cases
    # The pairs of positions that can be reached by texts which fit both sides so far.
    seen = {(0, 0)}
    pending = [(0, 0)]
    while pending:
        at, there = pending.pop()
        mine, other = pattern[at : at + 1], outline[there : there + 1]
        if not mine and not other:
            return True
        steps = []
        if mine == "*":
            steps += [(at + 1, there), *([(at, there + 1)] if other else [])]
        if other == ANY_TEXT:
            steps += [(at, there + 1), *([(at + 1, there)] if mine else [])]
        if mine and other and (mine == other or other == ANY_CHARACTER):
            steps.append((at + 1, there + 1))
        pending += [step for step in steps if step not in seen]
        seen.update(steps)
    return False


def common_outline(texts: Sequence[str]) -> str:
    """An outline of some texts: what they have in common at both ends."""
    first = texts[0]
    if all(text == first for text in texts):
        return first
    head = _common_start(texts)
    tail = _common_start([text[len(head) :][::-1] for text in texts])[::-1]
    return f"{head}{ANY_TEXT}{tail}"


def _common_start(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    length = next(
        (at for at, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), len(low)
    )
    return low[:length]
