"""Expressions over the fields of a sample: `ceil(image.width / 28) * ceil(image.height / 28)`.

The grammar is a part of Python's, read by Python's own parser. Every kind of node is allowed by name here, so an
expression can neither call nor reach anything else:

    image.width   chat.tokens   json["a b"][0]      a field, and what is in it or known of it
    json.turns[:].role                              the list of this value of each item
    12   0.5   "de"   true   none   [1, 3]          constants, and lists of them; `null` is `none`
    + - * /   < <= == != >= >   in   not in         numbers and comparisons
    and   or   not
    min max ceil floor abs                          functions
    default(image.width, 0)                         another value where the sample lacks the field, or it is null
    before_map(txt.length)                          an expression over the values that fields have before `map`

An expression is compiled once, to a Python function of the values it reads. Operators take values of one kind
(`operators.py`). The function tests for the usual types itself, and leaves everything else to `operate` and `call`.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, NoReturn

from wdspec.base.errors import did_you_mean
from wdspec.base.process import PARSING
from wdspec.spec.language.operators import (
    ARITHMETIC,
    FUNCTIONS,
    WORDS,
    call,
    describe_clash,
    operate,
    set_default,
)

MOST_CHARACTERS = 1000
"""The longest expression, in characters, with named ones put in."""
MOST_NESTED = 180
"""The most operators and functions within each other. Python reads up to 200 parentheses within each other."""
_ONE_ARGUMENT = frozenset({"ceil", "floor", "abs"})
BEFORE_MAP = "before_map"
"""The form in which fields have the values before `map`."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.GtE, ast.Gt, ast.In, ast.NotIn)
Path = tuple[str | int, ...]
"""The name of a field, then the way into it: `("json", "scores", 0)`, `("image", "width")`, `("json", EACH, "url")`."""


class Each(str):
    """A part of a path: each item of a list, `[:]`. It is not equal to the text, which may be a key."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Each)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, Each)

    def __hash__(self) -> int:
        return hash(Each)

    def __repr__(self) -> str:
        return ":"


EACH = Each("[:]")


class PathBeforeMap(tuple[str | int, ...]):
    """A path within `before_map(…)`: another one than the same path elsewhere in the expression."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathBeforeMap) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((BEFORE_MAP, *self))


class Word(tuple[str | int, ...]):
    """The path of a name on the right side of a comparison, which may be a text without its quotes."""

    __slots__ = ()


class ExpressionError(ValueError):
    """An expression is not in the grammar.

    Args:
        message: what is wrong.
        column: where, in characters from the start of the expression.
        hint: what to do.
    """

    def __init__(self, message: str, column: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.column, self.hint = message, column, hint


class _MissingType:
    """Stands for the value of a field that the sample lacks, for `default`."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _MissingType()
MOST_SHOWN = 100
"""The most characters of a side of an operator in messages."""
_TEXTS = {"None": "none", "True": "true", "False": "false"}
_UNKNOWN = "unknown"
_SAME = "same"
_TESTS = {
    "": "{} is not MISSING",  # always, of a value whose kind is known
    "number": "{}.__class__ in NUMBERS",
    "text": "{}.__class__ is str",
    "boolean": "{}.__class__ is bool",
}
_DEEP = "is nested too deeply", 0, "write it with fewer operators, or in groups: `(a + b) + (c + d)`"
_HOLD = re.compile(r"\(t\d+ :=")


@dataclass(frozen=True)
class Expression:
    """A parsed expression."""

    text: str
    paths: tuple[Path, ...]
    """What it reads of a sample, each once; the arguments of `evaluate`."""
    optional: frozenset[Path]
    """The paths that only `default` reads; a sample may lack them."""
    source: str
    """The body of `evaluate`, in Python, over the arguments `v0`, `v1`, …"""

    @cached_property
    def evaluate(self) -> Callable[..., Any]:
        """The function from the values of `paths` to the value. Raises what Python's operators raise."""
        arguments = ", ".join(f"v{number}" for number in range(len(self.paths)))
        names = {"__builtins__": {}, "MISSING": MISSING, "str": str, "bool": bool, "NUMBERS": (int, float)}
        names.update(FUNCTIONS, BASIC=(int, float, str, bool), operate=operate, call=call)
        function: Callable[..., Any] = eval(
            f"lambda {arguments}: {self.source}", names
        )  # only what `_Reader` wrote
        return function

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields it reads."""
        return tuple(dict.fromkeys(str(path[0]) for path in self.paths))

    @property
    def needed(self) -> tuple[Path, ...]:
        """A path of each field that samples need to have."""
        firsts: dict[tuple[object, bool], Path] = {}
        for path in self.paths:
            if path not in self.optional:
                firsts.setdefault((path[0], isinstance(path, PathBeforeMap)), path)
        return tuple(firsts.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self.text, self.paths, self.optional, self.source)


def parse_expression(text: str, named: Mapping[str, str] | None = None) -> Expression:
    """Parse an expression.

    Args:
        text: the expression.
        named: other expressions by name, put in where their names are read.

    Raises:
        ExpressionError: it is not in the grammar.
    """
    reader = _Reader(named or {})
    return reader.finish(text, reader.read(text, ()).source)


def paths_read_by(text: str | None, named: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the paths that an expression reads; none if it cannot be parsed, which is reported as E330."""
    try:
        return parse_expression(text, named).paths if text else ()
    except ExpressionError:
        return ()


def split_conjunction(text: str) -> list[str]:
    """Return the expressions that `and` connects in an expression, each of which has the same errors alone."""
    text = text.strip()
    body = _parse(text).body
    if not isinstance(body, ast.BoolOp) or not isinstance(body.op, ast.And):
        return [text]
    return [f"({ast.get_source_segment(text, each)}) and true" for each in body.values]


def parse_together(texts: Sequence[str], named: Mapping[str, str] | None = None) -> Expression:
    """Parse expressions into one whose value is the tuple of their values. Raises as `parse_expression`."""
    reader = _Reader(named or {})
    sources = [reader.read(text, (), is_alone=True).source for text in texts]
    text, source = ", ".join(texts), "".join(f"{each}, " for each in sources)
    return reader.finish(text, f"({source})")


class _Code(NamedTuple):
    """A part of an expression."""

    source: str
    """In Python; if it has an operator, in parentheses."""
    text: str
    """As it is written, for messages."""
    kind: str | None = None
    """The kind of its values; None if it depends on the sample."""
    kinds: frozenset[str] = frozenset()
    """The kinds of the values of a list, except none; the kind of what `default` has for a field."""
    is_simple: bool = False
    """Whether it costs nothing to read it twice."""
    is_operator: bool = False

    @property
    def as_operand(self) -> str:
        """The text as a side of an operator, perhaps shortened."""
        text = self.text if len(self.text) <= MOST_SHOWN else f"{self.text[:MOST_SHOWN]}…"
        return f"({text})" if self.is_operator else text

    @property
    def named(self) -> str:
        """It, after its kind: `the number 3`."""
        return "none" if self.kind == "none" else f"the {self.kind} `{self.as_operand}`"

    @property
    def known(self) -> frozenset[str]:
        """The kind that its values, or some of them, have; empty if none is known."""
        return frozenset({self.kind}) if self.kind else self.kinds


def _constant(value: object) -> _Code:
    source = repr(value)
    kind = "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    text = _TEXTS.get(source, source)
    return _Code(source, text, "none" if value is None else kind, is_simple=True)


def _find_needs(sign: str, left: _Code, right: _Code) -> tuple[str, str] | None:
    """Return the usual kind to test each side for, "" if it is known; None if an operator has no usual kinds."""
    if sign in ("in", "not in"):
        if right.kind == "list":
            kind = next(iter(right.kinds), "") if len(right.kinds) < 2 else _UNKNOWN
            return ("" if left.kind == kind else kind, "") if kind in _TESTS else None
        return ("", "" if right.kind == "text" else "text") if left.kind == "text" else None
    wanted: str | None = "number"
    if sign not in ARITHMETIC or (sign == "+" and "number" not in (left.kind, right.kind)):
        wanted = left.kind or right.kind
        if wanted is None:
            return _SAME, _SAME
        if left.kind == right.kind:
            return "", ""
    if wanted not in _TESTS:
        return None
    fit = (wanted, "boolean") if sign in ARITHMETIC else (wanted,)
    return "" if left.kind in fit else wanted, "" if right.kind in fit else wanted


class _Reader:
    """Reads the nodes of an expression, and writes them as Python again."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._named = named
        self._length = 0
        self._defaults: list[set[str]] = []
        """For each `default` around the node, what it has read so far."""
        self._open: tuple[str, ...] = ()
        """The named expressions around the node."""
        self._is_before_map = False
        self._depth = self._holds = 0
        self.paths: dict[Path, str] = {}
        self.required: set[Path] = set()

    def read(self, text: str, around: tuple[str, ...], is_alone: bool = False) -> _Code:
        self._length = len(text) + (0 if is_alone else self._length)
        if self._length > MOST_CHARACTERS:
            raise ExpressionError(f"has more than {MOST_CHARACTERS:,} characters")
        try:
            tree = _parse(text.strip())
        except SyntaxError as error:
            place = (error.offset or 1) - 1
            raise ExpressionError(f"cannot be read: {error.msg}", place, _find_hint(text)) from None
        except (ValueError, MemoryError, RecursionError):
            raise ExpressionError("cannot be read") from None
        outer, self._open = self._open, around
        try:
            return self.read_node(tree.body)
        except RecursionError:
            raise ExpressionError(*_DEEP) from None
        finally:
            self._open = outer

    def finish(self, text: str, source: str) -> Expression:
        """Return the expression that this Python stands for."""
        if source.count("(") > MOST_NESTED:
            try:
                compile(f"({source},)", "", "eval")
            except (SyntaxError, RecursionError, MemoryError):
                raise ExpressionError(*_DEEP) from None
        return Expression(text, tuple(self.paths), frozenset(self.paths) - self.required, source)

    def read_node(self, node: ast.expr) -> _Code:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise ExpressionError(*_DEEP)
        code = self._read_node(node)
        self._depth -= 1
        return code

    def _read_node(self, node: ast.expr) -> _Code:
        match node:
            case ast.Constant(value=int() | float() | str() | None as value) if value not in (
                math.inf,
                -math.inf,
            ):
                return _constant(value)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._read_path(node)
            case ast.BinOp(op=ast.Div(), right=ast.Constant(value=0)):
                self._refuse(node, "divides by zero")
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
                return self._operate(node, _sign(op), self.read_node(left), self.read_node(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                code = self.read_node(operand)
                return _Code(f"(not {code.source})", f"not {code.text}", "boolean")
            case ast.UnaryOp(op=op, operand=operand) if isinstance(op, _OPERATORS):
                return self._apply(node, _sign(op), [self.read_node(operand)])
            case ast.BoolOp(op=op, values=values):
                codes, sign = [self.read_node(each) for each in values], f" {_sign(op)} "
                kind = codes[0].kind if all(each.kind == codes[0].kind for each in codes) else None
                return _Code(
                    f"({sign.join(each.source for each in codes)})",
                    sign.join(each.text for each in codes),
                    kind,
                )
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                isinstance(op, _COMPARISONS) for op in ops
            ):
                return self._compare(node, left, [_sign(op) for op in ops], others)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                if not all(isinstance(each, (ast.Constant, ast.Name, ast.UnaryOp)) for each in elements):
                    self._refuse(node, "has a list of something else than constants")
                codes = [self.read_node(each) for each in elements]
                kinds = frozenset(each.kind or _UNKNOWN for each in codes) - {"none"}
                source = f"({''.join(f'{each.source}, ' for each in codes)})"
                return _Code(source, f"[{', '.join(each.text for each in codes)}]", "list", kinds, True)
            case ast.Call():
                return self._call(node)
        return self._refuse(node, "has something that expressions do not have", f"they have {_GRAMMAR}")

    def _call(self, node: ast.Call) -> _Code:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "default" and len(node.args) == 2 and not node.keywords:
            self._defaults.append(set())
            value = self.read_node(node.args[0])
            reads = sorted(self._defaults.pop())
            lacks = " or ".join(f"{each} is MISSING or {each} is None" for each in reads) or "False"
            other = self.read_node(node.args[1])
            kind, text = (
                value.kind if value.kind == other.kind else None,
                f"default({value.text}, {other.text})",
            )
            return _Code(f"({other.source} if {lacks} else {value.source})", text, kind, other.known)
        if name == BEFORE_MAP and len(node.args) == 1 and not node.keywords:
            outer, self._is_before_map = self._is_before_map, True
            try:
                return self.read_node(node.args[0])
            finally:
                self._is_before_map = outer
        if name not in FUNCTIONS or node.keywords or not node.args:
            known = [*FUNCTIONS, "default", BEFORE_MAP]
            hint = did_you_mean(name, known) or f"functions are {', '.join(known)}"
            what = f"calls `{name}`" if name and name not in known else "has a call with wrong arguments"
            self._refuse(node, what, hint)
        if (name in _ONE_ARGUMENT) != (len(node.args) == 1):
            self._refuse(node, f"calls `{name}` with {len(node.args)} arguments")
        return self._apply(node, name, [self.read_node(each) for each in node.args])

    def _read_path(self, node: ast.expr) -> _Code:
        path: list[str | int] = []
        inner = node
        while not isinstance(inner, ast.Name):
            match inner:
                case ast.Attribute(value=value, attr=part):
                    path.append(part)
                case ast.Subscript(value=value, slice=ast.Constant(value=str() | int() as part)) if (
                    part is not True
                ):
                    path.append(part)
                case ast.Subscript(
                    value=value, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as part))
                ):
                    path.append(-part)
                case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=None)):
                    if EACH in path:
                        self._refuse(node, "goes through two lists", "write `[:]` once")
                    path.append(EACH)
                case _:
                    self._refuse(
                        node, "looks into something else than a field", 'write `json["name"]` or `json[0]`'
                    )
            inner = value
        name = inner.id
        if name == "fields" and path and isinstance(path[-1], str) and path[-1] != EACH:
            name = str(path.pop())
        elif not path and name in WORDS:
            return _constant(WORDS[name])
        elif name in self._named:
            if path:
                self._refuse(node, f"looks into `{name}`, which is a named expression")
            if name in self._open:
                self._refuse(node, f"`{name}` is defined by itself")
            return self.read(self._named[name], (*self._open, name))._replace(text=name, is_operator=False)
        whole = self._place((name, *reversed(path)))
        argument = self.paths.setdefault(whole, f"v{len(self.paths)}")
        for reads in self._defaults:
            reads.add(argument)
        if not self._defaults:
            self.required.add(whole)
        return _Code(argument, describe_path(whole), is_simple=True)

    def _place(self, path: Path) -> Path:
        """Return a path as one within `before_map`, if it is there."""
        return PathBeforeMap(path) if self._is_before_map else path

    def _compare(self, node: ast.Compare, left: ast.expr, signs: list[str], others: list[ast.expr]) -> _Code:
        """Write a chain of comparisons as several, each of two values."""
        codes, pairs = [self.read_node(left), *(self._read_compared(each) for each in others)], []
        for number, sign in enumerate(signs):
            right = codes[number + 1]
            if number + 1 < len(signs):  # the next comparison reads it again
                right, codes[number + 1] = self._hold(right)
            pairs.append(self._operate(node, sign, codes[number], right))
        if len(pairs) == 1:
            return pairs[0]
        source, text = (
            " and ".join(each) for each in zip(*((pair.source, pair.text) for pair in pairs), strict=True)
        )
        return _Code(f"({source})", text, "boolean", is_operator=True)

    def _read_compared(self, node: ast.expr) -> _Code:
        """Read the right side of a comparison, where a name may be a text without its quotes."""
        names = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
        for each in names:
            if isinstance(each, ast.Name) and each.id not in WORDS and each.id not in self._named:
                whole = self._place(Word((each.id,)))
                self.paths.setdefault(whole, f"v{len(self.paths)}")
        return self.read_node(node)

    def _operate(self, node: ast.expr, sign: str, left: _Code, right: _Code) -> _Code:
        """Write an operator between two values.

        Values of the usual types are tested for in place. All others are left to `operate`, which is slower.
        """
        self._refuse_kinds(node, sign, left, right)
        text, kinds = f"{left.as_operand} {sign} {right.as_operand}", (left.kind, right.kind)
        kind: str | None = "number" if sign in ARITHMETIC else "boolean"
        if sign == "+" and "number" not in kinds:
            kind = "text" if "text" in kinds else None
        if sign in ("==", "!=") and "none" in kinds and None in kinds:
            source = f"({left.source} {'is' if sign == '==' else 'is not'} {right.source})"
            return _Code(source, text, kind, is_operator=True)
        of_sides = f"{left.as_operand!r}, {right.as_operand!r}"
        needs = _find_needs(sign, left, right)
        if needs is None:
            source = f"operate({sign!r}, {left.source}, {right.source}, {of_sides})"
        else:
            test, (one, other) = self._test([left, right], needs)
            slow = f" if {test} else operate({sign!r}, {one}, {other}, {of_sides})" if test else ""
            source = f"({one} {sign} {other}{slow})"
        return _Code(source, text, kind, is_operator=True)

    def _apply(self, node: ast.expr, name: str, codes: list[_Code]) -> _Code:
        """Write a function, or the sign of a number. All but numbers are left to `call`, which is slower."""
        self._refuse_arguments(node, name, codes)
        is_sign, texts = name in ("-", "+"), [each.text for each in codes]
        text = f"{name}{codes[0].as_operand}" if is_sign else f"{name}({', '.join(texts)})"
        has_number = any(each.kind == "number" for each in codes)
        kind = "number" if has_number or name not in ("min", "max") else None
        are_simple = is_sign and codes[0].is_simple and has_number
        needs = ["" if each.kind in ("number", "boolean") else "number" for each in codes]
        test, arguments = self._test(codes, needs)
        joined = ", ".join(arguments)
        source = f"({name}{joined})" if is_sign else f"{name}({joined})"
        if test:
            of_values = "".join(f"{each[:MOST_SHOWN]!r}, " for each in texts)
            source = f"({source} if {test} else call({name!r}, ({of_values}), {joined}))"
        return _Code(source, text, kind, is_simple=are_simple)

    def _test(self, codes: Sequence[_Code], needs: Sequence[str]) -> tuple[str, list[str]]:
        """Return what tests values for usual types, and how they are read after it. Each value is computed once.

        Args:
            codes: the values.
            needs: the kind to test each for; "" if it is known.
        """
        if not any(needs):
            return "", [each.source for each in codes]
        holds, reads = zip(*(self._hold(each) for each in codes), strict=True)
        if _SAME in needs:
            test = f"{holds[0].source}.__class__ is {holds[1].source}.__class__ in BASIC"
        else:
            tests = [
                (hold.is_simple, _TESTS[need].format(hold.source))
                for need, hold in zip(needs, holds, strict=True)
                if need or not hold.is_simple
            ]
            if sum(not is_simple for is_simple, _ in tests) < 2:  # the only one to keep is tested first
                test = " and ".join(each for _, each in sorted(tests))
            else:
                test = " & ".join(f"({each})" for _, each in tests)
        return test, [each.source for each in reads]

    def _hold(self, code: _Code) -> tuple[_Code, _Code]:
        """Return how a value is computed and kept, and how it is read again."""
        if code.is_simple:
            return code, code
        self._holds += 1
        name, source = f"t{self._holds}", code.source
        if source.startswith("(") and not _HOLD.match(source):
            source = source[1:-1]  # Python limits how many parentheses there are within each other
        return code._replace(source=f"({name} := {source})"), code._replace(source=name, is_simple=True)

    def _refuse_kinds(self, node: ast.expr, sign: str, left: _Code, right: _Code) -> None:
        """Refuse two sides that are always of kinds that the operator does not take."""
        text = f"{left.as_operand} {sign} {right.as_operand}"
        if sign in ARITHMETIC:
            for each, other in ((left, right), (right, left)):
                is_sum = sign == "+" and each.kind in ("text", "list") and other.kind in (None, each.kind)
                if each.kind not in (None, "number", "boolean") and not is_sum:
                    hint = "write numbers without quotes" if each.kind == "text" else "write a number"
                    self._refuse(node, f"has {each.named} in `{text}`, and `{sign}` is for numbers", hint)
            return
        found, others = left.known, right.known
        if sign in ("in", "not in"):
            if not_list := others & {"number", "boolean", "none"}:
                new = f"[{right.text}]" if right.kind else set_default(right.text, "list")
                self._refuse(
                    node, f"looks into a {min(not_list)}: `{text}`", f"write `{left.as_operand} {sign} {new}`"
                )
            others = right.kinds - {_UNKNOWN} if right.kind == "list" else others & {"text"}
            if len(others) > 1:
                what = f"compares with values of several kinds in `{text}`: {' and '.join(sorted(others))}"
                self._refuse(node, what, "write values of one kind, that of the field")
        elif sign not in ("==", "!=") and "none" in found | others:
            field = right if "none" in found else left
            self._refuse(node, f"compares with none in `{text}`", f"write `{field.as_operand} != none`")
        if found and others and found != others and "none" not in found | others:
            self._refuse(node, *describe_clash(sign, left.text, right.text, *found, *others))

    def _refuse_arguments(self, node: ast.expr, name: str, codes: Sequence[_Code]) -> None:
        """Refuse arguments that are always of kinds that the function does not take."""
        kinds = {each.kind for each in codes} - {None, "number", "boolean"}
        if kinds and (
            name not in ("min", "max") or "none" in kinds or len({each.kind for each in codes} - {None}) > 1
        ):
            wrong = next(each for each in codes if each.kind in kinds)
            self._refuse(node, f"calls `{name}` with {wrong.named}", f"`{name}` is for numbers")

    def _refuse(self, node: ast.expr, what: str, hint: str = "") -> NoReturn:
        raise ExpressionError(what, getattr(node, "col_offset", 0), hint)


class Comparison(NamedTuple):
    """A value of samples that must be equal to a constant, or to one of a list."""

    path: Path
    values: tuple[str | float, ...]
    text: str
    """The constant or the list as it is written: `[0, 1]`."""
    is_list: bool

    def write(self, values: Sequence[str | float]) -> str:
        """Return `text` with other values."""
        written = ", ".join(json.dumps(each, ensure_ascii=False) for each in values)
        return f"[{written}]" if self.is_list else written


def find_comparisons(text: str, named: Mapping[str, str]) -> Iterator[Comparison]:
    """Yield what an expression compares with constants by `==` or `in`.

    Args:
        text: an expression that `parse_expression` can parse.
        named: other expressions by name, which are not looked into.
    """
    text = text.strip()
    for node in ast.walk(_parse(text)):
        match node:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                sides = (left, right) if isinstance(right, ast.Constant) else (right, left)
            case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.List() | ast.Tuple() as right]):
                sides = (left, right)
            case _:
                continue
        value, other = sides
        constants = getattr(other, "elts", [other])
        values = [
            each.value
            for each in constants
            if isinstance(each, ast.Constant) and isinstance(each.value, (str, int, float))
        ]
        if len(values) != len(constants) or not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
            continue
        reader = _Reader({})
        reader.read_node(value)
        for path in reader.paths:
            if path[0] not in named:
                segment = ast.get_source_segment(text, other) or ""
                yield Comparison(path, tuple(values), segment, hasattr(other, "elts"))


class ScaledValue(NamedTuple):
    """A product or quotient of a value of samples and a number."""

    fields: tuple[str, ...]
    """The fields in the value, except those within `before_map`."""
    value: str
    """The value as it is written: `txt.length`."""
    product: str
    """The product or quotient: `txt.length / 3`."""
    before_map: str
    """The same for the value before `map`: `before_map(txt.length) / 3`."""


def find_scaled(text: str, named: Mapping[str, str]) -> Iterator[ScaledValue]:
    """Yield the products of values and numbers in an expression, and the quotients; not those within others.

    `ceil(value / n) * n` is none of them, as it only rounds the value up.

    Args:
        text: an expression that `parse_expression` can parse.
        named: other expressions by name.
    """
    text = text.strip()
    nodes: list[ast.AST] = [_parse(text).body]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == BEFORE_MAP:
            continue
        if isinstance(node, ast.Name) and node.id in named:
            others = {name: other for name, other in named.items() if name != node.id}
            yield from find_scaled(named[node.id], others)
            continue
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mult, ast.Div)):
            nodes += ast.iter_child_nodes(node)
            continue
        sides = [node.left, node.right]
        numbers = [_number_of(side, named) for side in sides]
        if numbers[0] is not None and isinstance(node.op, ast.Mult):
            sides.reverse()
            numbers.reverse()
        value, number = sides[0], numbers[1]
        if number is None:
            nodes += sides
            continue
        rounded = _quotient_in_ceil(value)
        if rounded is not None and _number_of(rounded.right, named) == number:
            nodes.append(rounded.left)
            continue
        reader = _Reader(named)
        reader.read_node(value)
        fields = dict.fromkeys(str(path[0]) for path in reader.paths if not isinstance(path, PathBeforeMap))
        written = ast.get_source_segment(text, value) or ""
        product = ast.get_source_segment(text, node) or ""
        before = f"{BEFORE_MAP}({written})"
        rest = ast.get_source_segment(text, sides[1])
        is_first = sides[0] is node.left
        yield ScaledValue(
            tuple(fields),
            written,
            product,
            f"{before} {_sign(node.op)} {rest}" if is_first else f"{rest} * {before}",
        )


class Threshold(NamedTuple):
    """A comparison of a value of samples with a number."""

    path: Path
    written: str
    """The value: `json.score`."""
    comparison: str
    """`json.score < 20`."""
    number: float
    text: str
    """The number as it is written."""

    def with_number(self, text: str) -> str:
        """The comparison with another number."""
        return f"{self.comparison.removesuffix(self.text)}{text}"


def find_thresholds(text: str, named: Mapping[str, str]) -> Iterator[Threshold]:
    """Yield the comparisons of a plain value on the left with a number on the right, by `<`, `<=`, `>` or `>=`.

    Args:
        text: an expression that `parse_expression` can parse.
        named: other expressions by name.
    """
    text = text.strip()
    for node in ast.walk(_parse(text)):
        if not isinstance(node, ast.Compare) or len(node.ops) > 1 or not isinstance(node.left, ast.Attribute):
            continue
        right, reader = node.comparators[0], _Reader(named)
        reader.read_node(node.left)
        number = right.value if isinstance(right, ast.Constant) else None
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if (
            is_number
            and isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
            and len(reader.paths) == 1
        ):
            (path,) = reader.paths
            written, comparison, said = (
                ast.get_source_segment(text, each) or "" for each in (node.left, node, right)
            )
            if describe_path(path) == written and comparison.endswith(said):
                yield Threshold(path, written, comparison, float(str(number)), said)


def _number_of(node: ast.expr, named: Mapping[str, str]) -> float | None:
    """Return the number that a node is, perhaps by the name of an expression; None if it is none."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name) if name in named:
            return _number_of(_parse(named[name].strip()).body, {})
    return None


def _quotient_in_ceil(node: ast.expr) -> ast.BinOp | None:
    match node:
        case ast.Call(func=ast.Name(id="ceil"), args=[ast.BinOp(op=ast.Div()) as quotient]):
            return quotient
    return None


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.Expression:
    """Parse an expression once in a process."""
    with PARSING.value:
        return ast.parse(text, mode="eval")


def _find_hint(text: str) -> str:
    """What to do about text that cannot be parsed: operators of other languages are its most frequent cause."""
    each = _EVERY.sub(r"\1[:]", text)
    if (quoted := quote_names(each)) not in ("", each.strip()):
        return (
            f"write `{quoted}` for `{text.strip()}`, as words of Python, and names with signs, go in quotes"
        )
    for path in _PATHS.findall(each):
        names = _NAMES.sub("", path).split(".")
        if any(keyword.iskeyword(name) and (len(names) > 1 or name not in _WORDS) for name in names):
            return f"write `{quote_names(path)}` for `{path}`, as words of Python go in quotes"
    if each != text:
        return f"write `{each}`: `[:]` is each item of a list"
    if ";" in text:
        return "`;` separates alternatives in `rename`: write `rename: {field: a;b}`, and `field` here"
    found = [token for token in dict.fromkeys(_TOKENS.findall(text)) if token in _OTHER_LANGUAGES]
    return (
        f"write {', '.join(f'`{_OTHER_LANGUAGES[token]}` for `{token}`' for token in found)}"
        if found
        else _QUOTED
    )


_QUOTED = (
    'names with other signs, and words of Python, go in quotes: `json["class"]`, `fields["seg.png"].width`'
)
_OTHER_LANGUAGES = {
    "=": "==",
    "&&": "and",
    "||": "or",
    "!": "not",
    "<>": "!=",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
}
"""Operators of other languages, and how expressions write them."""
_WORDS = {"and", "or", "not", "in", "is", "None", "True", "False"}
"""Words of Python in expressions."""
_PATHS = re.compile(r"""(?:"[^"]*"|'[^']*')|([^\W\d]\w*(?:\.[^\W\d]\w*|\[[^\]]*\])*)""")
"""Names joined by dots, with what is in brackets, outside of quotes, where it is empty."""
_NAMES = re.compile(r"\[[^\]]*\]")
_SIGNED = re.compile(r"(?:[\w$@#:]|-(?=[^\W\d]))+")
"""A name that may have signs."""
_EVERY = re.compile(r"([\w\]])\[\*?\]")
"""Each item of a list, in jq and JSONPath."""
_TOKENS = re.compile(r'"[^"]*"|\'[^\']*\'|\w+|[=<>!&|]+')

_GRAMMAR = (
    "fields (`image.width`, `json.score`), constants, `+ - * /`, comparisons, `in`, `and or not`, and the functions "
    + ", ".join((*FUNCTIONS, "default", BEFORE_MAP))
)
_SIGNS: Mapping[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Not: "not",
    ast.And: "and",
    ast.Or: "or",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.In: "in",
    ast.NotIn: "not in",
}


def _sign(op: ast.AST) -> str:
    return _SIGNS[type(op)]


def _is_plain(name: str) -> bool:
    """Whether an expression has a name without quotes."""
    return name.isidentifier() and not keyword.iskeyword(name)


def quote_names(text: str) -> str:
    """Return a path with quotes around the names that need them: `json.objects[:]["class"]`; "" if it is no path."""
    found = ""
    for part in re.findall(r"\[[^\]]*\]|[^.\[]+|\.(?=[.\[]|$)|\[", text.strip()):
        if part[0] == "[" and part[-1] == "]" and found:
            found += part
        elif not _SIGNED.fullmatch(part) or (not found and not re.match(r"[^\W\d]", part)):
            return ""
        elif _is_plain(part):
            found += f".{part}" if found else part
        else:
            found += f'["{part}"]' if found else f'fields["{part}"]'
    return found


def describe_path(path: Sequence[str | int]) -> str:
    """Return a path as it is written."""
    first, *rest = path
    text = str(first) if _is_plain(str(first)) else f'fields["{first}"]'
    text += "".join(
        f".{part}" if isinstance(part, str) and _is_plain(part) else f"[{part!r}]" for part in rest
    )
    return f"{BEFORE_MAP}({text})" if isinstance(path, PathBeforeMap) else text


def suggest_path(path: Path, names: Collection[str], rename: Mapping[str, Sequence[str]] = {}) -> str:
    """Return what to write for a path whose field no sample has, such as "write `image.width`"; "" if nothing is near.

    Args:
        path: the path.
        names: the fields that samples have.
        rename: the new name of fields → those that it is for, as in a source.
    """
    name, *rest = path
    same = next((each for each in names if each.lower() == str(name).lower()), None)
    new = same or next((each for each, olds in rename.items() if each in names and name in olds), None)
    if new is not None:
        return f"write `{describe_path(_like(path, (new, *rest)))}`"
    for end in range(len(path), 1, -1):
        whole = ".".join(map(str, path[:end]))
        if whole in names:
            return f"write `{describe_path(_like(path, (whole, *path[end:])))}`"
    if isinstance(path, Word):
        return f"write `'{name}'` if it is a text"
    return did_you_mean(name, names)


def _like(path: Path, other: Path) -> Path:
    """Return another path, within `before_map` if the first one is."""
    return PathBeforeMap(other) if isinstance(path, PathBeforeMap) else other


def is_writable(path: Sequence[str | int]) -> bool:
    """Whether an expression can read a path as `describe_path` writes it."""
    try:
        return parse_expression(describe_path(path)).paths == (tuple(path),)
    except ExpressionError:
        return False


def describe_held_media(field: str, source: str, is_staged: bool) -> tuple[str, str]:
    """Return what is wrong with decoded images, sound or videos in a window of samples, and what to do.

    Args:
        field: a field that is decoded to pixels, frames or sound.
        source: the source of the samples.
        is_staged: whether they are measured after a `stage`.
    """
    hint = (
        f"leave `{field}` as bytes (`decode: {{{field}: raw}}`), or do not measure samples after the stage"
        if is_staged
        else f"estimate the value before `map`: `{BEFORE_MAP}(txt.length) / 3`; or leave `{field}` out of `fields`"
    )
    step = "a `stage`" if is_staged else "`map`"
    return (
        f"samples of `{source}` are measured after {step}, so a window of them keeps `{field}` decoded in memory",
        hint,
    )


def describe_lost_header(written: str, field: str) -> tuple[str, str]:
    """Return what is wrong with a value of a header that is read after `map`, and what to do.

    Args:
        written: the value as it is written: `image.width`.
        field: its field, which `map` sets.
    """
    return (
        f"`{written}` is in the header of a file, but `map` sets `{field}`, so it is read after `map`",
        f"write `{BEFORE_MAP}({written})`",
    )
