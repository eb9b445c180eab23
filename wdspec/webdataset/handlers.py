"""Handlers of errors: what a stage does about an exception. They are given it, and answer.

True: leave out the sample (or shard) at fault and go on. False: end the stream here, quietly. Or they raise.
Any function from an exception to a boolean will do; these are the usual ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from wdspec.base.redaction import redacted

ErrorHandler = Callable[[Exception], bool]


def reraise_exception(error: Exception) -> bool:
    """Raises it: the default of every stage."""
    raise error


def ignore_and_continue(error: Exception) -> bool:
    """Leaves out what is at fault, and says nothing."""
    return True


def warn_and_continue(error: Exception) -> bool:
    """Warns, and leaves out what is at fault; it does not wait."""
    _warn(error)
    return True


def ignore_and_stop(error: Exception) -> bool:
    """Ends the stream, and says nothing."""
    return False


def warn_and_stop(error: Exception) -> bool:
    """Warns, and ends the stream."""
    _warn(error)
    return False


def _warn(error: Exception) -> None:
    warnings.warn(redacted(f"{type(error).__name__}: {error}"), stacklevel=3)
