"""`take`: a value under a name of its own, such as one of a companion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def make_take(*, default: Any = None) -> Callable[[Any], Any]:
    """Return a function that returns a value, or `default` in place of None.

    Example:
        >>> from wdspec.steps.take import make_take
        >>> make_take(default="")(None)
        ''
    """
    return lambda value: default if value is None else value
