"""Python files of other tools. They are parsed and never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

from wdspec.base.errors import UsageError

_MOST_VALUES = 100_000
"""A value with more parts, counting those of each name again, is not read."""
_MOST_IN_ALL = 300_000
"""The same for all values of a file."""
_LONGEST = 512 * 1024
"""Characters of a file. Python needs 300 bytes of memory for some of them."""
_MOST_MIXTURES = 1000
_DEEPEST = 50


class Code:
    """The calls and assignments of a file.

    Args:
        tree: the file.
        file: its name, for errors.
    """

    def __init__(self, tree: ast.Module, file: str | None = None) -> None:
        self._file = file
        self._open: list[ast.Call] = []
        self._mixtures = 0
        self._left = _MOST_IN_ALL
        self.calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
        """All calls, in the order of the file."""
        self.calls.sort(key=lambda each: (each.lineno, each.col_offset))
        self.assigned: dict[str, ast.expr] = {}
        """Name → the value that is assigned to it first."""
        for each in ast.walk(tree):
            if (
                isinstance(each, ast.Assign)
                and len(each.targets) == 1
                and isinstance(each.targets[0], ast.Name)
            ):
                self.assigned.setdefault(each.targets[0].id, each.value)

    def literal(self, node: ast.expr | None) -> Any:
        """Return the value of a node, through variables; None if only running the code would say it."""
        left = [most := min(_MOST_VALUES, self._left)]
        try:
            return None if node is None else self._evaluate(node, frozenset(), left)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            return None
        finally:
            self._left -= most - left[0]

    def _evaluate(self, node: ast.expr, outer: frozenset[str], left: list[int]) -> Any:
        """Evaluate a node.

        Args:
            outer: the names whose values the node is a part of; a name that refers to itself has no value.
            left: how many values may still be read.
        """
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("too many values")
        if isinstance(node, ast.Name) and node.id in self.assigned and node.id not in outer:
            return self._evaluate(self.assigned[node.id], outer | {node.id}, left)
        if isinstance(node, (ast.List, ast.Tuple)):
            values = [self._evaluate(each, outer, left) for each in node.elts]
            return values if isinstance(node, ast.List) else tuple(values)
        if isinstance(node, ast.Dict) and None not in node.keys:
            keys = [self._evaluate(each, outer, left) for each in node.keys if each is not None]
            return dict(zip(keys, (self._evaluate(each, outer, left) for each in node.values), strict=True))
        return ast.literal_eval(node)

    def trace(self, node: ast.expr, wanted: Container[str], depth: int = 0) -> ast.expr:
        """Find the wanted call that makes a value, through variables and methods such as `.shuffle(…)`.

        A name within the call that is assigned to it means an earlier value, which is not looked for.
        """
        if depth > 20:
            return node
        if isinstance(node, ast.Name) and node.id in self.assigned:
            found = self.trace(self.assigned[node.id], wanted, depth + 1)
            return node if found in self._open else found
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and name_of(node) not in wanted
        ):
            return self.trace(node.func.value, wanted, depth + 1)
        return node

    def members(self, call: ast.Call, makers: Container[str]) -> list[ast.expr]:
        """Return the data sets that a call mixes, each as the call of one of the `makers` that makes it."""
        listed = call.args[0] if call.args else keyword(call, "datasets")
        listed = self.trace(listed, makers) if listed is not None else None
        return (
            [self.trace(each, makers) for each in listed.elts]
            if isinstance(listed, (ast.List, ast.Tuple))
            else []
        )

    @contextmanager
    def inside(self, call: ast.Call) -> Iterator[None]:
        """Read the data sets that a call mixes, which may be mixtures as well.

        Raises:
            UsageError: mixtures are nested too deeply, or there are too many: with names, a short file can have any
                number of them.
        """
        self._mixtures += 1
        if len(self._open) >= _DEEPEST:
            raise self._refuse(call, "E008", f"mixtures are nested more than {_DEEPEST} deep")
        if self._mixtures > _MOST_MIXTURES:
            raise self._refuse(call, "E009", f"the mixture has more than {_MOST_MIXTURES:,} others within it")
        self._open.append(call)
        yield
        self._open.pop()

    def _refuse(self, call: ast.Call, code: str, found: str) -> UsageError:
        message = f"{found}: mix each data set once, or write the spec yourself"
        return UsageError(message, code=code, file=self._file, line=call.lineno, column=call.col_offset + 1)


def parse_code(text: str, *signs: str, file: str | None = None) -> Code | None:
    """Parse a file in which one of the signs occurs, such as `main(`; None if there is none, or if it is not Python,
    or too long."""
    if len(text) > _LONGEST or not any(sign in text for sign in signs):
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # of the code's own mistakes
            return Code(ast.parse(text), file)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def name_of(call: ast.Call) -> str:
    """Return the last name of what is called: `f` of `a.b.f(…)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument; None if there is none."""
    return next((each.value for each in call.keywords if each.arg == name), None)
