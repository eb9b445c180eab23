"""Python files of other tools. They are parsed and never run."""

from __future__ import annotations

import ast
import copy
from collections.abc import Container
from typing import Any

_MOST_NAMES = 1000


class Code:
    """The calls and assignments of a file.

    Args:
        tree: the file.
    """

    def __init__(self, tree: ast.Module) -> None:
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
        try:
            return (
                None if node is None else ast.literal_eval(_Named(self.assigned).visit(copy.deepcopy(node)))
            )
        except (ValueError, TypeError, SyntaxError, RecursionError):
            return None

    def trace(self, node: ast.expr, wanted: Container[str], depth: int = 0) -> ast.expr:
        """Find the wanted call that makes a value, through variables and methods such as `.shuffle(…)`."""
        if depth > 20:
            return node
        if isinstance(node, ast.Name) and node.id in self.assigned:
            return self.trace(self.assigned[node.id], wanted, depth + 1)
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


class _Named(ast.NodeTransformer):
    """Replaces names by the values that were assigned to them; a name that refers to itself stays."""

    def __init__(self, assigned: dict[str, ast.expr], left: list[int] | None = None) -> None:
        self._assigned = assigned
        self._left = [_MOST_NAMES] if left is None else left

    def visit_Name(self, node: ast.Name) -> ast.AST:  # ast's own spelling
        if node.id not in self._assigned:
            return node
        self._left[0] -= 1
        if self._left[0] < 0:
            raise ValueError("too many names")
        others = {name: value for name, value in self._assigned.items() if name != node.id}
        found: ast.AST = _Named(others, self._left).visit(copy.deepcopy(self._assigned[node.id]))
        return found


def parse_code(text: str) -> ast.Module | None:
    """Parse a file; None if it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def name_of(call: ast.Call) -> str:
    """Return the last name of what is called: `f` of `a.b.f(…)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument; None if there is none."""
    return next((each.value for each in call.keywords if each.arg == name), None)
