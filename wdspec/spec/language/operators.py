"""The operators of expressions, for values of any kind.

Both sides of an operator are of one kind: comparing a number with a text is an error, and not false. Integers and
floats are one kind, booleans another. `==` and `!=` also compare any value with none. `in` compares with one value
after the other, up to the first that is equal.
"""

from __future__ import annotations

import ast
import math
import operator
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce
from numbers import Number
from typing import Any

from wdspec.base.amounts import show_value

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
ARITHMETIC = frozenset("+-*/")
WORDS = {"true": True, "false": False, "none": None, "null": None}


def _to_integer(round_number: Callable[[Any], int]) -> Callable[[Any], int]:
    """Return a function that rounds numbers in the range of floats. Decimals from CBOR can have millions of digits."""

    def to_integer(value: Any) -> int:
        if type(value) not in (float, int) and not -sys.float_info.max <= value <= sys.float_info.max:
            raise OverflowError("a number is above the range of floats")
        try:
            return round_number(value)
        except (ValueError, OverflowError):
            raise OperandError(
                f"`{round_number.__name__}` is for finite numbers, but this is {value}"
            ) from None

    return to_integer


def _smallest(*values: Any) -> Any:
    """As `min`, but NaN if any value is NaN: Python's gives another result if NaN comes later."""
    return reduce(lambda a, b: a if a <= b or a != a else b, values)


def _largest(*values: Any) -> Any:
    """As `max`, but NaN if any value is NaN."""
    return reduce(lambda a, b: a if a >= b or a != a else b, values)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": _smallest,
    "max": _largest,
    "ceil": _to_integer(math.ceil),
    "floor": _to_integer(math.floor),
    "abs": abs,
}
SIGNS: Mapping[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos}
_KINDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("boolean", bool),
    ("number", Number),
    ("text", str),
    ("bytes", (bytes, bytearray, memoryview)),
    ("list", (list, tuple)),
    ("map", dict),
)
_OF_DTYPES = {
    "b": "boolean",
    "i": "number",
    "u": "number",
    "f": "number",
    "c": "number",
    "U": "text",
    "S": "bytes",
}
_WITHIN = {"==": "in", "!=": "not in"}
"""What to write in place of a comparison with a list."""
_EMPTY = {"text": "''", "list": "[]", "boolean": "false"}
"""What to write for a value that is null, by the kind that it should have; 0 for others."""


class OperandError(ValueError):
    """An operator has a value of a kind that it does not take, or two of different kinds."""


class NullOperandError(OperandError):
    """An operator other than `==` and `!=` has a value that is null."""


def kind_of(value: Any) -> str:
    """Return the kind of a value: `number`, `text`, …; the name of its class if it is none of these."""
    if value is None:
        return "none"
    for kind, classes in _KINDS:
        if isinstance(value, classes):
            return kind
    dtype = getattr(value, "dtype", None)
    if dtype is not None:  # of numpy, or of torch, whose types of numbers have no `kind`
        name = str(dtype).removeprefix("torch.")
        return _OF_DTYPES.get(getattr(dtype, "kind", "b" if name == "bool" else "f"), name)
    return type(value).__name__


def operate(sign: str, left: Any, right: Any, of_left: str, of_right: str) -> Any:
    """Apply an operator to two values.

    Args:
        sign: the operator, such as `==`, `*` or `in`.
        left, right: the values.
        of_left, of_right: the expressions that they are the values of, for messages.

    Raises:
        NullOperandError: one of them is null.
        OperandError: they are of kinds that the operator does not take.
    """
    if sign in ("in", "not in"):
        return _is_in(sign, left, right, of_left, of_right) is (sign == "in")
    kinds = kind_of(left), kind_of(right)
    written = f"{of_left} {sign} {of_right}"
    if "none" in kinds:
        if sign in ("==", "!="):
            return (left is right) is (sign == "==")
        raise NullOperandError(_describe_null(sign, left is None, kinds, of_left, of_right))
    if sign in ARITHMETIC:
        are_numbers = {"number", "boolean"}.issuperset(kinds)
        if not are_numbers and (sign != "+" or kinds[0] != kinds[1]):
            raise OperandError(
                f"`{written}`: `{sign}` is for numbers, but {_find_other(left, right, of_left, of_right)}"
            )
    elif kinds[0] != kinds[1]:
        raise OperandError(_describe_kinds(sign, left, right, of_left, of_right))
    try:
        return OPERATORS[sign](left, right)
    except TypeError:
        raise OperandError(f"`{written}`: {_name(left)} and {_name(right)} have no `{sign}`") from None


def call(name: str, of_values: tuple[str, ...], *values: Any) -> Any:
    """Apply a function, or the sign of a number, to values.

    Args:
        name: the function, or `-` or `+`.
        of_values: the expressions that these are the values of, for messages.
        values: its arguments.

    Raises:
        NullOperandError: one of them is null.
        OperandError: the function does not take values of these kinds.
    """
    is_sign = name in SIGNS
    written = f"{name}{of_values[0]}" if is_sign else f"{name}({', '.join(of_values)})"
    for value, text in zip(values, of_values, strict=True):
        if value is None:
            new = written.replace(text, f"default({text}, 0)", 1)
            raise NullOperandError(f"`{text}` is null in `{written}`; write `{new}`")
    try:
        return SIGNS[name](*values) if is_sign else FUNCTIONS[name](*values)
    except TypeError:
        shown = ", ".join(map(_name, values))
        raise OperandError(f"`{written}`: `{name}` is for numbers, but this is {shown}") from None


def _is_in(sign: str, left: Any, right: Any, of_left: str, of_right: str) -> bool:
    """Whether a value is in a list, a text or a map."""
    kind = kind_of(right)
    if kind == "none":
        raise NullOperandError(_describe_null(sign, False, ("list", ""), of_left, of_right))
    if kind == "text" or kind == "bytes":
        if kind_of(left) != kind:
            raise OperandError(_describe_kinds(sign, left, right, of_left, of_right))
        return left in right
    if kind == "map":
        right = list(right)
    elif kind != "list":
        text = f"`{of_left} {sign} {of_right}`: `{of_right}` is {_name(right)}, and neither a list nor a text"
        raise OperandError(text)
    if left is not None and {left.__class__}.issuperset(map(type, right)):
        return left in right
    for value in right:
        if left is None or value is None:
            if left is value:
                return True
        elif kind_of(left) != kind_of(value):
            raise OperandError(_describe_kinds(sign, left, value, of_left, of_right))
        elif left == value:
            return True
    return False


def _describe_null(sign: str, is_left: bool, kinds: tuple[str, str], of_left: str, of_right: str) -> str:
    """Say that a side is null, and what to write in place of it."""
    text = of_left if is_left else of_right
    new = f"default({text}, {_EMPTY.get(kinds[is_left], '0')})"
    sides = (new, of_right) if is_left else (of_left, new)
    return f"`{text}` is null in `{of_left} {sign} {of_right}`; write `{sides[0]} {sign} {sides[1]}`"


def _describe_kinds(sign: str, left: Any, right: Any, of_left: str, of_right: str) -> str:
    """Say that two values are of different kinds, and what to write instead."""
    found = f"`{of_left} {sign} {of_right}` compares {_name(left)} with {_name(right)}"
    for side, (constant, value, field) in enumerate(((of_left, right, of_right), (of_right, left, of_left))):
        with suppress(ValueError, SyntaxError):
            written = _evaluate(constant)
            if kind_of(value) == "bytes" and kind_of(written) == "text" and field.isidentifier():
                return f"{found}; to read the field as text, write `decode: {{{field}: txt}}`"
            if sign in _WITHIN and kind_of(written) == "list":
                return f"{found}; write `{field} {_WITHIN[sign]} {constant}`"
            new = _convert(written, kind_of(value))
            if new is None or (
                kind_of(value) == "text" and sign in ("<", "<=", ">=", ">")
            ):  # "10" is less than "9"
                break
            return f"{found}; write `{' '.join((new, sign, field) if side == 0 else (field, sign, new))}`"
    return f"{found}; give the values in the data one kind"


def describe_clash(sign: str, of_left: str, of_right: str, left: str, right: str) -> tuple[str, str]:
    """Return what is wrong with two sides that are always of different kinds, and what to do.

    Args:
        sign: the operator.
        of_left, of_right: the sides, as they are written.
        left, right: their kinds.
    """
    hint = "compare values of one kind"
    for constant, kind in ((of_right, left), (of_left, right)):
        with suppress(ValueError, SyntaxError):
            new = _convert(_evaluate(constant), kind)
            if new is not None:
                sides = (of_left, new) if constant == of_right else (new, of_right)
                hint = f"write `{sides[0]} {sign} {sides[1]}`"
                break
    for side, kind in ((of_left, right), (of_right, left)):
        if side.startswith("default("):
            hint = f"write `{set_default(side, kind)}`"
    return f"compares a {left} with a {right}: `{of_left} {sign} {of_right}`", hint


def set_default(text: str, kind: str) -> str:
    """Return a `default(…)` with another constant in it, of this kind."""
    return f"{text.rpartition(', ')[0]}, {_EMPTY.get(kind, '0')})"


def _evaluate(constant: str) -> Any:
    """Return the value of a constant. Raises ValueError or SyntaxError for everything else."""
    body = ast.parse(constant, mode="eval").body
    for node in (each for each in ast.walk(body) if isinstance(each, ast.List)):
        node.elts = [_to_constant(each) for each in node.elts]
    return ast.literal_eval(_to_constant(body))


def _to_constant(node: ast.expr) -> ast.expr:
    """Return the constant that a word stands for; other nodes as they are."""
    if isinstance(node, ast.Name) and node.id in WORDS:
        return ast.Constant(WORDS[node.id])
    return node


def _convert(value: Any, kind: str) -> str | None:
    """Return how a constant is written as another kind; None if it cannot be."""
    if isinstance(value, (list, tuple)):
        parts = ["none" if each is None else _convert(each, kind) for each in value]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    if kind == kind_of(value):
        return repr(value)
    if kind == "text" and not isinstance(value, bool):
        return repr(str(value))
    if kind == "boolean" and str(value).lower() in ("0", "1", "true", "false"):
        return "true" if str(value).lower() in ("1", "true") else "false"
    if kind == "number" and isinstance(value, (str, bool)):
        with suppress(ValueError):
            number = float(value)
            return repr(int(number)) if number.is_integer() else repr(number)
    return None


def _find_other(left: Any, right: Any, of_left: str, of_right: str) -> str:
    """Say which side of an operator is no number."""
    is_left = kind_of(left) not in ("number", "boolean")
    value, text = (left, of_left) if is_left else (right, of_right)
    return f"`{text}` is {_name(value)}"


def _name(value: Any) -> str:
    """Name a value by its kind, and show it: `the number 3`."""
    kind = kind_of(value)
    if kind == "none":
        return "null"
    if kind == "boolean" and isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if getattr(value, "shape", ()):
        return f"an array of the shape {tuple(value.shape)}"
    shown = show_value(list(value) if isinstance(value, tuple) else value, 40)
    return shown if shown.startswith("a") else f"the {kind} {shown}"
