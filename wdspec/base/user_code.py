"""User functions by name, as in `map`, `select`, `decode` and the entry points of packages; and ``WDS_SECURE``."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from wdspec.base.errors import SpecError, did_you_mean


class _TakenNameError(Exception):
    """The process has already imported another module of this name."""


def import_function(name: str, key: str, folder: str = "") -> Callable[..., Any]:
    """Import a function or a class by its name: from the spec's folder, Python's path, or else the working directory.

    Args:
        name: ``package.module:attribute.path``.
        key: the key that names it, for the message, such as ``map``.
        folder: of the spec; empty if there is none.

    Raises:
        SpecError: it cannot be imported or called. The error of the import is the cause. It is not an error of a
            sample or a shard, so no error policy skips it.
    """
    module, _, attribute = name.partition(":")
    try:
        _prepare(module.partition(".")[0], f"{key}: {name}", folder)
        found = pkgutil.resolve_name(name)
    except _TakenNameError as error:
        raise SpecError(str(error)) from None
    except Exception as cause:  # whatever the user's module raises
        if isinstance(cause, AttributeError) and module in sys.modules:
            hint = did_you_mean(attribute.partition(".")[0], dir(sys.modules[module]), 0.6)
            message = f"`{key}: {name}`: module `{module}` has no `{attribute}`"
            raise SpecError(f"{message}; {hint}" if hint else message) from cause
        raise SpecError(
            f"cannot import `{module}` for `{key}: {name}`: {type(cause).__name__}: {cause}; "
            f"{_remedy(module, cause)}"
        ) from cause
    if not callable(found):
        raise SpecError(
            f"`{key}: {name}` is a {type(found).__name__}, which cannot be called"
        ) from TypeError(f"{type(found).__name__!r} object is not callable")
    return found  # type: ignore[no-any-return]  # nothing else is known about it


def _remedy(module: str, cause: Exception) -> str:
    """What to change if a module cannot be imported."""
    missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
    if missing and f"{module}.".startswith(f"{missing}."):
        return (
            "write it as `package.module:function`, and put it next to the spec, install it, or set PYTHONPATH, in "
            "every worker too"
        )
    if missing:
        return f"install `{missing}`, in every worker too"
    if isinstance(cause, SyntaxError):
        return "correct this line"
    frames = [each for each in traceback.extract_tb(cause.__traceback__) if not each.filename.startswith("<")]
    if frames[-1].filename == pkgutil.__file__:  # it cannot read the name
        return "write it as `package.module:function`"
    return f"correct line {frames[-1].lineno} of {frames[-1].filename}"


def file_of_module(name: str, folder: str) -> str | None:
    """The file that the module of a function, or its package, would be imported from, if any. Imports nothing."""
    top = name.partition(":")[0].partition(".")[0]
    _, found = _find(top, folder)
    if found is not None:
        return found.origin or next(iter(found.submodule_search_locations or ()), None)
    return "Python itself" if top in sys.stdlib_module_names else None


def find_mistake(name: str, folder: str) -> str | None:
    """What is wrong with the name of a function, as far as its module's file shows without being run.

    Returns:
        A message, if the file does not define the name or is not Python; None if it does, or if that is unknown.
    """
    module, _, attribute = name.partition(":")
    top, *inner = module.split(".")
    found = _find(top, folder)[1]
    for part in inner:
        places = None if found is None else found.submodule_search_locations
        if not places:
            return None
        known = [each.name for each in pkgutil.iter_modules(places)]
        if part not in known:
            # A package may also import it under this name.
            return None if found is None or _defined_names(found) is None else _lacks(f"`{top}`", part, known)
        found = PathFinder.find_spec(part, places)
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None
    try:
        defined = _defined_names(found)
    except SyntaxError as error:
        return f"{found.origin}, line {error.lineno}, is not Python: {error.msg}"
    first = attribute.partition(".")[0]
    modules = [each.name for each in pkgutil.iter_modules(found.submodule_search_locations or ())]
    return None if defined is None or first in {*defined, *modules} else _lacks(found.origin, first, defined)


def digest_code(name: str, folder: str) -> str:
    """Return a digest of the definition of a function in its module's file, with all definitions of the file that it
    uses, directly or not. It is empty if that is not known. Nothing is imported.

    What other modules define, such as a helper that is imported, or the weights of a model, does not count.
    """
    module, _, attribute = name.partition(":")
    top, *inner = module.split(".")
    found = _find(top, folder)[1]
    for part in inner:
        places = None if found is None else found.submodule_search_locations
        found = PathFinder.find_spec(part, places) if places else None
    try:
        tree = ast.parse(Path(found.origin).read_bytes()) if found is not None and found.origin else None
    except (OSError, ValueError, SyntaxError, RecursionError):
        tree = None
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in () if tree is None else tree.body:
        for bound in _names_bound_by(statement):
            definitions.setdefault(bound, []).append(statement)
    used: dict[ast.stmt, None] = {}
    pending = [attribute.partition(".")[0]]
    while pending:
        for statement in definitions.pop(pending.pop(), ()):
            if statement not in used:
                used[statement] = None
                pending += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    text = "\n".join(sorted(ast.unparse(statement) for statement in used))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() if text else ""


def _names_bound_by(statement: ast.stmt) -> set[str]:
    """The names that a statement defines, imports or assigns."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    nodes = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
    names = {each.id for each in nodes if isinstance(each.ctx, ast.Store)}
    inner = (each for each in ast.iter_child_nodes(statement) if isinstance(each, ast.stmt))
    return names.union(*map(_names_bound_by, inner))


def _lacks(place: str, name: str, known: Collection[str]) -> str:
    hint = (
        did_you_mean(name, known, 0.6)
        or f"it has {', '.join(f'`{each}`' for each in sorted(known)[:8]) or 'nothing'}"
    )
    return f"{place} has no `{name}`; {hint}"


def _defined_names(module: ModuleSpec) -> set[str] | None:
    """The names that a module's file defines or imports at its top level; None if it may make others when it is run.

    Raises SyntaxError.
    """
    try:
        text = Path(module.origin or "").read_bytes()
        tree = ast.parse(text)
    except (OSError, ValueError, RecursionError):
        return None
    names: set[str] = set()
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((each.asname or each.name).partition(".")[0] for each in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        open_nodes += ast.iter_child_nodes(node)
    is_dynamic = {"*", "__getattr__"} & names or any(
        each in text for each in (b"globals()", b"sys.modules", b"exec(")
    )
    return None if is_dynamic else names


def _find(top: str, folder: str) -> tuple[str | None, ModuleSpec | None]:
    """The place and the module spec of a module: in the spec's folder, on Python's path (None), or in the working
    directory. As in Python, a folder without `__init__.py` counts only if there is nothing else of the name.
    """
    own = [folder] if folder and top not in sys.stdlib_module_names else []
    places = [
        (place, found)
        for place in (*own, None, os.getcwd())
        if (found := PathFinder.find_spec(top, None if place is None else [place])) is not None
    ]
    whole = (each for each in places if each[1].origin is not None)
    return next(whole, next(iter(places), (None, None)))


def _prepare(top: str, key: str, folder: str) -> None:
    """Import a module or package of the spec's folder from there; otherwise let Python find it.

    Raises _TakenNameError if another module of this name was imported before, and what the import raises.
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
                f"`{key}`: next to the spec is {found.origin}, but this process has imported another module of that "
                f"name, from {origin or 'elsewhere'}: rename one of them"
            )
        return
    if folder not in sys.path:
        sys.path.append(folder)  # for its own imports
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
    """Check, before anything is read, that a user function accepts the arguments that the spec gives it.

    Args:
        function: as returned by `import_function`.
        key: the key and the name, for the message: ``map: package.module:function``.
        given: number of positional arguments.
        named: the arguments of `args`.

    Raises:
        SpecError: it does not accept them, or needs more. A function without a signature is not checked.
    """
    named = named or {}
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * given, **named)
    except TypeError as cause:
        said = f"cannot be called as the spec says: {cause}"
        names = [each.name for each in list(signature.parameters.values())[given:]]
        for name in named:
            if name not in signature.parameters:
                takes = f"it takes {', '.join(f'`{each}`' for each in names)}" if names else "it takes none"
                said = (
                    f"has no argument `{name}`, which `args` gives it; {did_you_mean(name, names) or takes}"
                )
                break
        raise SpecError(f"`{key}` {said}; {_definition(function)}{signature}`") from cause


def _definition(function: Callable[..., Any]) -> str:
    """Where a function is defined, if in Python, and its name, to be followed by its arguments."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        place = f"{inspect.getsourcefile(function)}, line {inspect.getsourcelines(function)[1]}, has `"
    except (TypeError, OSError):
        place = "it is `"
    return f"{place}{name}"


_OFF = frozenset({"", "0", "false", "no", "off"})


def secure_mode(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ``WDS_SECURE`` forbids programs (`pipe:`), user code and pickle.

    Any value does, except empty, 0, false, no and off in upper or lower case, so that a typo is safe. It is read when a
    spec is loaded, when the environment is read (`storage.environment`), and when a decoder is made outside of a spec.
    From there it is passed on as a value, so that all workers and ranks agree.
    """
    environ = os.environ if environ is None else environ
    return environ.get("WDS_SECURE", "").strip().lower() not in _OFF


_ENFORCED = "enforced"


def enforce_security(forbid: bool) -> None:
    """Set ``WDS_SECURE`` for this process and its future children, or switch it off.

    Programs and pickles are forbidden from now on, also to datasets and decoders that were made before.
    """
    os.environ["WDS_SECURE"] = _ENFORCED if forbid else "0"


def is_security_enforced() -> bool:
    """Whether `enforce_security` forbids programs and pickles, also to what was made before."""
    return os.environ.get("WDS_SECURE") == _ENFORCED
