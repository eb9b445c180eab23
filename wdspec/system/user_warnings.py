"""Warnings that point at the user's own line, however many of our functions lie between."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_PACKAGE = __name__.partition(".")[0]


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the innermost caller that is not of this package."""
    level, frame = 1, sys._getframe()
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, caller = level + 1, caller.f_back
    warnings.warn(message, category, stacklevel=level)
