"""Users' own code by its name: what `map`, `select`, `decode` and packages' entry points point at."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from typing import Any

from wdspec.errors import SpecError


def import_function(name: str, key: str) -> Callable[..., Any]:
    """Imports a function, or a class, by its name.

    Args:
        name: ``package.module:attribute.path``.
        key: what names it, for the message: ``map``, say.

    Raises:
        SpecError: it cannot be imported, or cannot be called. What the import itself raised is the cause. It is no
            error of a sample or a shard, so that no error policy skips it.
    """
    module, _, attribute = name.partition(":")
    try:
        found = pkgutil.resolve_name(name)
    except Exception as cause:  # whatever the user's module raises
        if isinstance(cause, AttributeError) and module in sys.modules:
            raise SpecError(f"`{key}: {name}`: module `{module}` has no `{attribute}`") from cause
        raise SpecError(
            f"cannot import `{module}` for `{key}: {name}`: {type(cause).__name__}: {cause}; it is written "
            "`package.module:function`: is it installed, or on PYTHONPATH, in every worker too?"
        ) from cause
    if not callable(found):
        raise SpecError(
            f"`{key}: {name}` is a {type(found).__name__}, which cannot be called"
        ) from TypeError(f"{type(found).__name__!r} object is not callable")
    return found  # type: ignore[no-any-return]  # callable is all that can be known of it
