"""Users' own code by its name: what `map`, `select`, `decode` and packages' entry points point at.

``WDS_SECURE``: whether programs and the code that a spec or a caller names are forbidden.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from wdspec.base.errors import SpecError, did_you_mean


class _TakenNameError(Exception):
    """The process has imported another module of the name."""


def import_function(name: str, key: str, folder: str = "") -> Callable[..., Any]:
    """Imports a function, or a class, by its name: from the spec's folder, from Python's path, or else from the
    working directory.

    Args:
        name: ``package.module:attribute.path``.
        key: what names it, for the message: ``map``, say.
        folder: the spec's; empty if there is none.

    Raises:
        SpecError: it cannot be imported, or cannot be called. What the import itself raised is the cause. It is no
            error of a sample or a shard, so that no error policy skips it.
    """
    module, _, attribute = name.partition(":")
    try:
        _prepare(module.partition(".")[0], f"{key}: {name}", folder)
        found = pkgutil.resolve_name(name)
    except _TakenNameError as error:
        raise SpecError(str(error)) from None
    except Exception as cause:  # whatever the user's module raises
        if isinstance(cause, AttributeError) and module in sys.modules:
            raise SpecError(f"`{key}: {name}`: module `{module}` has no `{attribute}`") from cause
        raise SpecError(
            f"cannot import `{module}` for `{key}: {name}`: {type(cause).__name__}: {cause}; it is written "
            "`package.module:function`: is it beside the spec, installed, or on PYTHONPATH, in every worker too?"
        ) from cause
    if not callable(found):
        raise SpecError(
            f"`{key}: {name}` is a {type(found).__name__}, which cannot be called"
        ) from TypeError(f"{type(found).__name__!r} object is not callable")
    return found  # type: ignore[no-any-return]  # callable is all that can be known of it


def file_of_module(name: str, folder: str) -> str | None:
    """The file that a module's package, or the module, would be imported from; None if there is none. Imports nothing.

    Args:
        name: of a function, ``package.module:attribute``.
        folder: the spec's.
    """
    top = name.partition(":")[0].partition(".")[0]
    _, found = _find(top, folder)
    if found is not None:
        return found.origin or next(iter(found.submodule_search_locations or ()), None)
    return "Python itself" if top in sys.stdlib_module_names else None


def _find(top: str, folder: str) -> tuple[str | None, ModuleSpec | None]:
    """Where a module lies, and what it is imported by: in the spec's folder, on Python's path (None), or in the working
    directory. As for Python, a folder without `__init__.py` counts where there is nothing else of the name.
    """
    beside = [folder] if folder and top not in sys.stdlib_module_names else []
    places = [
        (place, found)
        for place in (*beside, None, os.getcwd())
        if (found := PathFinder.find_spec(top, None if place is None else [place])) is not None
    ]
    whole = (each for each in places if each[1].origin is not None)
    return next(whole, next(iter(places), (None, None)))


def _prepare(top: str, key: str, folder: str) -> None:
    """Imports a module, or package, that lies in the spec's folder from there; otherwise lets Python find it.

    Raises:
        _TakenNameError: another one of this name was imported before.
        Exception: what importing it raises.
    """
    place, found = _find(top, folder)
    if place is None or found is None or found.origin is None or found.loader is None or place != folder:
        if place is not None and top not in sys.modules and place not in sys.path:
            sys.path.append(place)
        return
    loaded = sys.modules.get(top)
    if loaded is not None:
        origin = getattr(loaded, "__file__", None)
        if origin is None or not os.path.samefile(origin, found.origin):
            raise _TakenNameError(
                f"`{key}`: beside the spec is {found.origin}, but this process has imported another module of that "
                f"name, from {origin or 'elsewhere'}: rename one of them"
            )
        return
    if folder not in sys.path:
        sys.path.append(folder)  # for what the module imports itself
    module = importlib.util.module_from_spec(found)
    sys.modules[top] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[top]
        raise


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


_OFF = frozenset({"", "0", "false", "no", "off"})


def secure_mode(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ``WDS_SECURE`` forbids programs (`pipe:`), user code and pickle.

    Any value forbids, but empty, 0, false, no and off in upper or lower case: who misspells it is kept safe. It is read
    where a spec is loaded, where the environment is read (`storage.environment`), and where a decoder is made outside
    of a spec; from there the answer is handed on as a value, so that all workers and ranks agree.

    Args:
        environ: ``os.environ`` by default.
    """
    environ = os.environ if environ is None else environ
    return environ.get("WDS_SECURE", "").strip().lower() not in _OFF
