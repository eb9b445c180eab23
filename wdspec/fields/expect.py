"""Checking whether the values of a sample are as `expect` says."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from wdspec.base.amounts import show_value
from wdspec.base.errors import FieldError
from wdspec.fields.values import type_in_words
from wdspec.spec.language.expect import ARRAYS, Bounds, ExpectedField

FEW_ELEMENTS = 4096
"""Elements up to which the range of an array is checked while training; `wdspec check` has no limit."""
MOST_NUMBERED = 12
"""Classes that are listed one by one in the message about the one after the last."""
MOST_FORMS = 1000
"""Types and shapes of a field to remember as correct."""
_REMEDY = "fix the data, leave such samples out with `select`, or correct `expect`"
_FROM_ONE = "; if the classes are numbered from 1"
_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int, np.integer),
    "float": (float, np.floating),
    "bool": (bool, np.bool_),
    "str": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "dict": (dict,),
    "list": (list,),
    "tuple": (tuple,),
}

Look = Callable[[Any], "str | None"]
"""Describes what is wrong with a value; returns None if it is correct."""


class UnexpectedValueError(FieldError):
    """A value is not as `expect` says."""

    code = "D213"


def expectation_step(
    fields: Mapping[str, ExpectedField], thorough: bool = False
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a step that checks each sample and returns it unchanged, or raises UnexpectedValueError.

    Args:
        fields: what is expected, by field.
        thorough: whether to check the ranges of large arrays, too.
    """
    looks = [(name, *_looks(expected, thorough), set[Hashable]()) for name, expected in fields.items()]

    def step(sample: dict[str, Any]) -> dict[str, Any]:
        for name, form_looks, value_looks, known in looks:
            if name not in sample:
                has = ", ".join(f"`{each}`" for each in sample if not each.startswith("__")) or "no fields"
                raise _error(f"`expect` has the field `{name}`, but the sample has {has}", sample, name)
            value = sample[name]
            if form_looks and (form := _form(value)) not in known:
                for look in form_looks:
                    if (wrong := look(value)) is not None:
                        raise _error(f"`{name}` {wrong}", sample, name)
                if len(known) < MOST_FORMS:
                    known.add(form)
            for look in value_looks:
                if (wrong := look(value)) is not None:
                    raise _error(f"`{name}` {wrong}", sample, name)
        return sample

    return step


def _error(wrong: str, sample: Mapping[str, Any], field: str) -> UnexpectedValueError:
    url, key = sample.get("__url__"), sample.get("__key__")
    joint = ", else " if _FROM_ONE in wrong else "; "
    return UnexpectedValueError(f"{wrong}{joint}{_REMEDY}", url=url, key=key, field=field)


def _form(value: Any) -> Any:
    """Return all that determines type and shape: if one value of a form is correct, all of this form are."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None and hasattr(value, "shape"):
        return type(value), value.shape, dtype
    if hasattr(value, "mode") and hasattr(value, "size"):
        return type(value), value.mode, value.size
    return type(value)


def _looks(expected: ExpectedField, thorough: bool) -> tuple[list[Look], list[Look]]:
    """Return the checks of the form of a value, and those of the value itself."""
    forms: list[Look] = []
    values: list[Look] = []
    if expected.type is not None:
        forms.append(_type_look(expected.type))
    if expected.shape is not None:
        forms.append(_shape_look(expected.shape))
    if expected.length is not None:
        values.append(_length_look(expected.length))
    if expected.classes is not None:
        values.append(_class_look(expected.classes))
    if expected.range is not None:
        values.append(_range_look(expected.range, math.inf if thorough else FEW_ELEMENTS))
    return forms, values


def _type_look(name: str) -> Look:
    plain, is_array = _PLAIN.get(name, ()), name in ARRAYS

    def look(value: Any) -> str | None:
        dtype = getattr(value, "dtype", None)
        if dtype is not None and hasattr(value, "shape"):
            seen = type_in_words(dtype)
            if is_array and seen == name:
                return None
            if value.shape == () and plain and isinstance(value, plain):
                return None
            return f"is an array of {seen}, where {name} is expected"
        if name == "image" and hasattr(value, "mode") and hasattr(value, "size"):
            return None
        if plain and isinstance(value, plain) and not (name == "int" and isinstance(value, bool)):
            return None
        return f"is a {type(value).__name__}, where {name} is expected"

    return look


def _shape_look(bounds: tuple[Bounds, ...]) -> Look:
    expected = f"[{', '.join('any' if each == Bounds() else str(each) for each in bounds)}]"

    def look(value: Any) -> str | None:
        shape = getattr(value, "shape", None)
        if shape is None and hasattr(value, "mode") and isinstance(getattr(value, "size", None), tuple):
            shape = (*value.size[::-1], len(value.getbands()))[: max(2, len(bounds))]
        if shape is None:
            return f"is a {type(value).__name__}, which has no shape; {expected} is expected"
        if len(shape) == len(bounds) and all(
            each.hold(side) for each, side in zip(bounds, shape, strict=True)
        ):
            return None
        return f"has the shape [{', '.join(map(str, shape))}], where {expected} is expected"

    return look


def _length_look(bounds: Bounds) -> Look:
    low = -math.inf if bounds.least is None else bounds.least
    high = math.inf if bounds.greatest is None else bounds.greatest

    def look(value: Any) -> str | None:
        try:
            length = len(value)
        except TypeError:
            return f"is a {type(value).__name__}, which has no length"
        if low <= length <= high:
            return None
        return f"has the length {length:,}, where {bounds} is expected"

    return look


def _class_look(classes: frozenset[int | str] | int) -> Look:
    allowed = range(classes) if isinstance(classes, int) else classes
    expected = f"0 to {classes - 1:,}" if isinstance(classes, int) else f"one of {len(classes):,} classes"

    def look(value: Any) -> str | None:
        if not isinstance(value, (int, str)) and getattr(value, "shape", None) == ():
            value = value.item()
        if isinstance(value, (int, str)) and value in allowed and not isinstance(value, bool):
            return None
        hint = _count_from_one(value) if value == classes and type(value) is int else ""
        return f"is {show_value(value)}, where {expected} is expected{hint}"

    return look


def _count_from_one(classes: int) -> str:
    """What to write for classes that are numbered from 1."""
    numbers = list(range(1, classes + 1))
    meant = f"classes: {numbers}" if classes <= MOST_NUMBERED else f"classes: {classes + 1}"
    return f"{_FROM_ONE}, write `{meant}`"


def _extremes(value: Any) -> tuple[float, float]:
    """Return the least and the greatest element of an array or tensor."""
    try:
        return float(value.min()), float(value.max())
    except RuntimeError:  # torch supports only some dtypes
        if value.is_complex():
            raise
        value = value.double()
        return float(value.min()), float(value.max())


def _range_look(bounds: Bounds, most: float) -> Look:
    def look(value: Any) -> str | None:
        shape = getattr(value, "shape", None)
        if isinstance(value, (str, bytes, bytearray)):
            return f"is a {type(value).__name__}, which is not a number"
        try:
            if shape and not 0 < math.prod(map(int, shape)) <= most:
                return None
            low, high = _extremes(value) if shape else (float(value), float(value))
        except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError):
            if shape is None:
                return f"is a {type(value).__name__}, which is not a number"
            return f"is an array of {value.dtype}, whose range cannot be checked"
        if bounds.hold(low) and bounds.hold(high):
            return None
        return (
            f"ranges from {low:g} to {high:g}, where {bounds} is expected"
            if shape
            else f"is {low:g}, where {bounds} is expected"
        )

    return look
