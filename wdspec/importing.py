"""Users' own code by its name: what `map`, `select`, `decode` and packages' entry points point at."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

from wdspec.errors import SpecError
from wdspec.suggestions import did_you_mean


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


def check_arguments(
    function: Callable[..., Any], key: str, given: int = 0, named: Mapping[str, Any] | None = None
) -> None:
    """Checks, before anything is read, that a function of the user's can be called as a spec will have it called.

    Args:
        function: what `import_function` found.
        key: what names it, with the name: ``map: package.module:function``.
        given: how many positional arguments it gets.
        named: the arguments of `args`.

    Raises:
        SpecError: it does not take them, or wants more. Functions that do not tell what they take are believed.
    """
    named = named or {}
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * given, **named)
    except TypeError as cause:
        said = f"cannot be called as the spec has it: {cause}"
        names = [each.name for each in list(signature.parameters.values())[given:]]
        for name in named:
            if name not in signature.parameters:
                takes = f"it takes {', '.join(f'`{each}`' for each in names)}" if names else "it takes none"
                said = (
                    f"has no argument `{name}`, which `args` gives it; {did_you_mean(name, names) or takes}"
                )
                break
        raise SpecError(f"`{key}` {said}; {_written(function)}{signature}`") from cause


def _written(function: Callable[..., Any]) -> str:
    """Where a function is written, if it is in Python, and its name, to which its arguments are put."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        place = f"{inspect.getsourcefile(function)}, line {inspect.getsourcelines(function)[1]}, has `"
    except (TypeError, OSError):
        place = "it is `"
    return f"{place}{name}"
