"""Error handlers: functions that decide what a stage does about an exception.

They return True to leave out the sample (or shard) and continue, or False to end the stream, or they raise. Any
function from an exception to a boolean will do; these are the usual ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from wdspec.base.redaction import redact

ErrorHandler = Callable[[Exception], bool]


def reraise_exception(error: Exception) -> bool:
    """Raise the exception: the default of every stage."""
    raise error


def ignore_and_continue(error: Exception) -> bool:
    """Leave out the sample or shard silently."""
    return True


def warn_and_continue(error: Exception) -> bool:
    """Warn and leave out the sample or shard, without the delay that webdataset adds."""
    _warn(error)
    return True


def ignore_and_stop(error: Exception) -> bool:
    """End the stream silently."""
    return False


def warn_and_stop(error: Exception) -> bool:
    """Warn and end the stream."""
    _warn(error)
    return False


def _warn(error: Exception) -> None:
    warnings.warn(redact(f"{type(error).__name__}: {error}"), stacklevel=3)
