"""Stages that call a function on every sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wdspec.base.errors import FieldError, MissingFieldError
from wdspec.fluent.error_handlers import ErrorHandler, reraise_exception
from wdspec.fluent.stage import DROPPED, each, stage


@stage
def map(
    source: Iterator[Any], f: Callable[[Any], Any], handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """Calls a function on every sample.

    A sample for which it returns None is left out. A dict keeps the sample's `__key__` and `__url__`, unless
    the function gives others.

    Raises:
        Exception: what the function raises, unless the handler says otherwise.
    """

    def mapped(sample: Any) -> Any:
        result = f(sample)
        if type(result) is dict and type(sample) is dict:
            for name in ("__key__", "__url__"):
                if name not in result and name in sample:
                    result[name] = sample[name]
        return DROPPED if result is None else result

    return each(source, mapped, handler)


@stage
def map_dict(
    source: Iterator[Any], /, *, handler: ErrorHandler = reraise_exception, **functions: Callable[[Any], Any]
) -> Iterator[Any]:
    """Calls functions on fields: ``map_dict(jpg=augment)``. The samples they came in stay as they were.

    Raises:
        FieldError: a sample without the field (a KeyError too), unless the handler says otherwise.
    """

    def mapped(sample: Any) -> Any:
        result = dict(sample)
        for name, f in functions.items():
            if name not in sample:
                raise MissingFieldError(
                    f"map_dict is to change the field {name!r}, but the sample {_has(sample)}"
                )
            result[name] = f(sample[name])
        return result

    return each(source, mapped, handler)


@stage
def map_tuple(
    source: Iterator[Any],
    *functions: Callable[[Any], Any] | None,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """Calls one function on each value of a tuple, in order; None leaves a value as it is, and so does no function.

    Raises:
        FieldError: more functions than values, unless the handler says otherwise.
    """

    def mapped(sample: Any) -> Any:
        values = list(sample)
        if len(functions) > len(values):
            raise FieldError(f"map_tuple has {len(functions)} functions for a sample of {len(values)} values")
        for index, f in enumerate(functions):
            if f is not None:
                values[index] = f(values[index])
        return tuple(values)

    return each(source, mapped, handler)


@stage
def select(
    source: Iterator[Any], predicate: Callable[[Any], bool], handler: ErrorHandler = reraise_exception
) -> Iterator[Any]:
    """Keeps the samples for which a function is true."""
    return each(source, lambda sample: sample if predicate(sample) else DROPPED, handler)


@stage
def associate(
    source: Iterator[Any],
    extra: Mapping[str, Mapping[str, Any]] | Callable[[str], Mapping[str, Any]],
    *,
    handler: ErrorHandler = reraise_exception,
) -> Iterator[Any]:
    """Adds fields by the sample's key; the samples they are added to stay as they were.

    Args:
        extra: `__key__` → fields, as a dict (keys that are not in it get none) or as a function.
    """
    find = extra if callable(extra) else lambda key: extra.get(key, {})
    return each(source, lambda sample: {**sample, **find(sample["__key__"])}, handler)


def _has(sample: Any) -> str:
    return f"has {', '.join(name for name in sample if not name.startswith('__')) or 'no fields'}"
