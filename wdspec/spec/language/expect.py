"""The key `expect`: what the samples of a source must look like, and how many there must be."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, NoReturn

from pydantic import BeforeValidator, Field, WithJsonSchema

from wdspec.base.errors import did_you_mean
from wdspec.spec.language.effects import AffectsNeither, Key
from wdspec.spec.language.values import Fraction, Model, read_integer, read_number, refuse
from wdspec.spec.problems import describe, quote

ARRAYS = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Element types of arrays and tensors."""
TYPES = (*ARRAYS, "int", "float", "str", "bytes", "dict", "list", "tuple", "image")
_KEYS = ("type", "shape", "range", "classes", "length")
_FORMS = "write a type, `uint8`, or a map such as `{type: uint8, shape: [null, null, 3], range: [0, 255]}`"


class Bounds(NamedTuple):
    """The minimum and the maximum, both included; None means no bound."""

    least: float | None = None
    greatest: float | None = None

    def hold(self, value: float) -> bool:
        """Whether a value is within the bounds."""
        return not (
            (self.least is not None and not value >= self.least)
            or (self.greatest is not None and not value <= self.greatest)
        )

    def __str__(self) -> str:
        low, high = ("" if each is None else f"{each:,g}" for each in self)
        if low and high:
            return low if low == high else f"{low} to {high}"
        return f"{low} or more" if low else f"at most {high}"


class ExpectedField(Model):
    """Requirements on the values of a field."""

    type: str | None = None
    """One of `TYPES`; for arrays and tensors, the type of their elements."""
    shape: tuple[Bounds, ...] | None = None
    """Bounds of each axis, of arrays, tensors and images."""
    range: Bounds | None = None
    """Bounds of numbers, and of all elements of arrays."""
    classes: frozenset[int | str] | int | None = None
    """The allowed values; a number n means 0 to n - 1."""
    length: Bounds | None = None
    """Bounds of the length of texts, bytes, lists, tuples and dicts."""


def read_expected_field(value: Any) -> Any:
    """Read `uint8`, or `{type: uint8, shape: [224, null, [1, 3]], range: [0, 255], classes: 1000, length: [1, 77]}`."""
    if isinstance(value, ExpectedField):
        return value
    if isinstance(value, str):
        return {"type": _read_type(value)}
    if not isinstance(value, dict):
        refuse("E202", f"expected the description of a field, but this is {describe(value)}", _FORMS)
    for key in value:
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS) or f"the keys here are {', '.join(_KEYS)}"
            refuse("E201", f"unknown key {quote(str(key))} in the description of a field", hint)
    said = {key: each for key, each in value.items() if each is not None}
    if "type" in said:
        said["type"] = _read_type(said["type"])
    if "shape" in said:
        if not isinstance(said["shape"], (list, tuple)):
            refuse(
                "E202",
                f"a shape is a list, but this is {describe(said['shape'])}",
                "write `[224, null, [1, 3]]`",
            )
        said["shape"] = tuple(read_bounds(each, open_alone=True) for each in said["shape"])
    for key in ("range", "length"):
        if key in said:
            said[key] = read_bounds(said[key])
    if "classes" in said:
        said["classes"] = _read_classes(said["classes"])
    return said


def read_bounds(value: Any, open_alone: bool = False) -> Bounds:
    """Read `5`, `[0, 255]` or `[1, null]`; with `open_alone` also `null`."""
    if isinstance(value, Bounds):
        return value
    if value is None and open_alone:
        return Bounds()
    if not isinstance(value, (list, tuple)):
        number = _number(value)
        return Bounds(number, number)
    if len(value) != 2 or (value[0] is None and value[1] is None):
        refuse("E203", "bounds are two numbers, one of which may be null", "write `[0, 255]` or `[1, null]`")
    least, greatest = (None if each is None else _number(each) for each in value)
    if least is not None and greatest is not None and least > greatest:
        refuse(
            "E204",
            f"no number is between the bounds {least:g} and {greatest:g}",
            f"write `[{greatest:g}, {least:g}]`",
        )
    return Bounds(least, greatest)


def _number(value: Any) -> float:
    read = read_number(value)
    if isinstance(read, bool) or not isinstance(read, (int, float)):
        _refuse_number(value)
    return read


def _refuse_number(value: Any) -> NoReturn:
    refuse(
        "E202", f"expected a number, but this is {describe(value)}", "write `[0, 255]`, `[1, null]` or `5`"
    )


def _read_type(value: Any) -> str:
    if value not in TYPES:
        hint = (isinstance(value, str) and did_you_mean(value, TYPES)) or f"the types are {', '.join(TYPES)}"
        refuse("E203", f"{describe(value)} is not the type of a field", hint)
    return str(value)


def _read_classes(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and value:
        classes = [each for each in value if isinstance(each, (int, str)) and not isinstance(each, bool)]
        if len(classes) == len(value):
            return frozenset(classes)
    elif not isinstance(value, (list, tuple)) and isinstance(read := read_integer(value), int) and read > 0:
        return read
    return refuse(
        "E202",
        f"expected the classes, but this is {describe(value)}",
        "write their number, such as `1000` for 0 to 999, or list them",
    )


_NUMBER = {"type": "number"}
_BOUNDS_FORM: dict[str, Any] = {
    "anyOf": [
        _NUMBER,
        {"type": "array", "items": {"anyOf": [_NUMBER, {"type": "null"}]}, "minItems": 2, "maxItems": 2},
    ]
}
_FIELD_FORM: dict[str, Any] = {
    "anyOf": [
        {"enum": list(TYPES)},
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "type": {"enum": list(TYPES)},
                "shape": {"type": "array", "items": {"anyOf": [_BOUNDS_FORM, {"type": "null"}]}},
                "range": _BOUNDS_FORM,
                "length": _BOUNDS_FORM,
                "classes": {
                    "anyOf": [
                        {"type": "integer", "minimum": 1},
                        {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1},
                    ]
                },
            },
        },
    ]
}
ExpectedFields = Annotated[
    dict[str, Annotated[ExpectedField, BeforeValidator(read_expected_field)]],
    WithJsonSchema({"type": "object", "additionalProperties": _FIELD_FORM}),
]
MaybeBounds = Annotated[Bounds, BeforeValidator(read_bounds), WithJsonSchema(_BOUNDS_FORM)] | None


class Expectations(Model):
    """What the samples of a source must look like, after its own `map` and `tags`."""

    # With `errors: skip` other samples are dropped.
    fields: Annotated[ExpectedFields, Key("order values")] = Field(
        {},
        description="For each field, a type (`uint8`, `int`, `str`, …), or `{type: uint8, shape: [224, null, [1, 3]], "
        "range: [0, 255], classes: 1000, length: [1, 77]}`. Bounds are one number, or `[minimum, maximum]`, one of "
        "which may be null. `classes` is a list of values, or a number n for 0 to n - 1.",
    )
    samples: AffectsNeither[MaybeBounds] = Field(
        None, description="Bounds of the number of samples in the source; checked by `wdspec check --all`."
    )
    dropped: AffectsNeither[Fraction | None] = Field(
        None,
        description="Largest fraction of the samples that may be dropped (`where`, `exclude`, `select`, `missing`), "
        "without those that `keys` and `subset` leave out; checked by `wdspec check`.",
    )
