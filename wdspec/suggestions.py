"""What the user may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word most like this one, or None when none is like it."""
    if not isinstance(word, str) or len(word) > 60:
        return None
    import difflib

    words = list(known)
    folded = word.strip().lower().replace("-", "_").replace(" ", "_")
    for candidate in words:
        if candidate.lower() == folded:
            return candidate
    best = difflib.get_close_matches(folded, words[:300], n=1, cutoff=0.6)
    return best[0] if best else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint with the nearest known word, or nothing."""
    best = nearest(word, known)
    return f"did you mean `{best}`?" if best else ""
