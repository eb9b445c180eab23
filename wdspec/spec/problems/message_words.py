"""How messages show the values and names of a spec."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST_SHOWN = 40


def shown(value: object) -> str:
    """A value as a message shows it: its kind and, if short, itself."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        text = str(value) if isinstance(value, float) or abs(value) < 10**40 else "very many digits"
        return f"the number {text}"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"a {type(value).__name__}"


def quoted(text: str) -> str:
    """A text in quotes, cut when long, with line ends made visible."""
    cut = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
    return '"' + cut.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


def listed(names: Sequence[str], most: int = 10) -> str:
    """Names in backquotes, the first few of them; `nothing` where there are none."""
    return ", ".join(f"`{name}`" for name in names[:most]) + (", …" if len(names) > most else "") or "nothing"
