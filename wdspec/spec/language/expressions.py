"""Expressions over the fields of a sample: `ceil(image.width / 28) * ceil(image.height / 28)`.

The grammar is a part of Python's, read by Python's own parser. Every kind of node is allowed by name here, so an
expression can neither call nor reach anything else:

    image.width   chat.tokens   json["a b"][0]      a field, and what is in it or known of it
    12   0.5   "de"   true   [1, 3]                 constants, and lists of them
    + - * /   < <= == != >= >   in   not in         numbers and comparisons
    and   or   not
    min max ceil floor abs                          functions
    default(image.width, 0)                         another value where the sample lacks the field, or it is null
    before_map(txt.length)                          an expression over the values that fields have before `map`

An expression is compiled once, to a Python function of the values it reads.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, NoReturn

from wdspec.base.errors import did_you_mean
from wdspec.base.process import PARSING

MOST_CHARACTERS = 1000
"""The longest expression, in characters, with named ones put in."""
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "abs": abs,
}
_ONE_ARGUMENT = frozenset({"ceil", "floor", "abs"})
BEFORE_MAP = "before_map"
"""The form in which fields have the values before `map`."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.GtE, ast.Gt, ast.In, ast.NotIn)
_WORDS = {"true": True, "false": False, "none": None}
Path = tuple[str | int, ...]
"""The name of a field, then the way into it: `("json", "scores", 0)`, `("image", "width")`."""


class PathBeforeMap(tuple[str | int, ...]):
    """A path within `before_map(…)`: another one than the same path elsewhere in the expression."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathBeforeMap) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((BEFORE_MAP, *self))


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
        names = {"__builtins__": {}, "MISSING": MISSING, **FUNCTIONS}
        function: Callable[..., Any] = eval(
            f"lambda {arguments}: {self.source}", names
        )  # only what `_Reader` wrote
        return function

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields it reads."""
        return tuple(dict.fromkeys(str(path[0]) for path in self.paths))

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
    source = reader.read(text, ())
    return Expression(text, tuple(reader.paths), frozenset(reader.paths) - reader.required, source)


def parse_together(texts: Sequence[str], named: Mapping[str, str] | None = None) -> Expression:
    """Parse expressions into one whose value is the tuple of their values. Raises as `parse_expression`."""
    reader = _Reader(named or {})
    sources = [reader.read(text, (), is_alone=True) for text in texts]
    text, source = ", ".join(texts), "".join(f"{each}, " for each in sources)
    return Expression(text, tuple(reader.paths), frozenset(reader.paths) - reader.required, f"({source})")


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
        self.paths: dict[Path, str] = {}
        self.required: set[Path] = set()

    def read(self, text: str, around: tuple[str, ...], is_alone: bool = False) -> str:
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
            raise ExpressionError("is nested too deeply") from None
        finally:
            self._open = outer

    def read_node(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int() | float() | str() | None as value) if value not in (
                math.inf,
                -math.inf,
            ):
                return repr(value)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._read_path(node)
            case ast.BinOp(op=ast.Div(), right=ast.Constant(value=0)):
                self._refuse(node, "divides by zero")
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
                return f"({self.read_node(left)} {_sign(op)} {self.read_node(right)})"
            case ast.UnaryOp(op=op, operand=operand) if isinstance(op, _OPERATORS):
                return f"({_sign(op)} {self.read_node(operand)})"
            case ast.BoolOp(op=op, values=values):
                return f"({f' {_sign(op)} '.join(map(self.read_node, values))})"
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                isinstance(op, _COMPARISONS) for op in ops
            ):
                rest = (
                    f" {_sign(op)} {self.read_node(other)}" for op, other in zip(ops, others, strict=True)
                )
                return f"({self.read_node(left)}{''.join(rest)})"
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                if not all(isinstance(each, (ast.Constant, ast.Name, ast.UnaryOp)) for each in elements):
                    self._refuse(node, "has a list of something else than constants")
                return f"({''.join(f'{self.read_node(each)}, ' for each in elements)})"
            case ast.Call():
                return self._call(node)
        return self._refuse(node, "has something that expressions do not have", f"they have {_GRAMMAR}")

    def _call(self, node: ast.Call) -> str:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "default" and len(node.args) == 2 and not node.keywords:
            self._defaults.append(set())
            value = self.read_node(node.args[0])
            reads = sorted(self._defaults.pop())
            lacks = " or ".join(f"{each} is MISSING or {each} is None" for each in reads) or "False"
            return f"({self.read_node(node.args[1])} if {lacks} else {value})"
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
        return f"{name}({', '.join(map(self.read_node, node.args))})"

    def _read_path(self, node: ast.expr) -> str:
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
                case _:
                    self._refuse(
                        node, "looks into something else than a field", 'write `json["name"]` or `json[0]`'
                    )
            inner = value
        name = inner.id
        if name == "fields" and path and isinstance(path[-1], str):
            name = str(path.pop())
        elif not path and name in _WORDS:
            return repr(_WORDS[name])
        elif name in self._named:
            if path:
                self._refuse(node, f"looks into `{name}`, which is a named expression")
            if name in self._open:
                self._refuse(node, f"`{name}` is defined by itself")
            return f"({self.read(self._named[name], (*self._open, name))})"
        whole: Path = (name, *reversed(path))
        if self._is_before_map:
            whole = PathBeforeMap(whole)
        argument = self.paths.setdefault(whole, f"v{len(self.paths)}")
        for reads in self._defaults:
            reads.add(argument)
        if not self._defaults:
            self.required.add(whole)
        return argument

    def _refuse(self, node: ast.expr, what: str, hint: str = "") -> NoReturn:
        raise ExpressionError(what, getattr(node, "col_offset", 0), hint)


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


def describe_path(path: Sequence[str | int]) -> str:
    """Return a path as it is written."""
    first, *rest = path
    text = str(first) + "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{part!r}]" for part in rest
    )
    return f"{BEFORE_MAP}({text})" if isinstance(path, PathBeforeMap) else text


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
