"""The steps of a sample that are the user's own functions: `select` and `map`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from wdspec.errors import FieldError, SpecError
from wdspec.importing import check_arguments, import_function
from wdspec.processes.global_generators import GlobalGenerators
from wdspec.reading.error_budget import Budget
from wdspec.spec.language.steps.user_calls import Call

Step = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""From sample to sample; None for one that is dropped, and counted."""


class MapSteps:
    """The steps of `map` in this process, for all sources and slots: each object is built once."""

    def __init__(self, lends: bool = True) -> None:
        self.generators = GlobalGenerators() if lends else None
        """What is lent to the functions to draw from; None where other threads draw from it, too."""
        self._functions: dict[str, Callable[..., Any]] = {}
        self._made: dict[str, Any] = {}

    def step(self, call: Call, folder: str = "") -> Step:
        """The step of one entry of `map`.

        Raises:
            SpecError: the function cannot be imported, is none, or does not take what `args` has.
        """
        written = repr(call.model_copy(update={"field": None}))
        if written not in self._functions:
            self._functions[written] = built(call, "map", self._made, folder)
        function = self._functions[written]
        return _of_sample(call, function) if call.field is None else _of_field(call, call.field, function)


def selection(name: str, budget: Budget, folder: str = "") -> Step:
    """The step of `select`, which counts what it drops.

    Raises:
        SpecError: the function cannot be imported, is none, or does not take a sample.
    """
    predicate, dropped = import_function(name, "select", folder), budget.dropped
    check_arguments(predicate, f"select: {name}", 1)

    def select(sample: dict[str, Any]) -> dict[str, Any] | None:
        if predicate(sample):
            return sample
        dropped["select"] += 1
        return None

    return select


def built(call: Call, key: str, made: dict[str, Any], folder: str = "") -> Callable[..., Any]:
    """A function with its arguments bound; the object of a class; or the method of an object, built with them.

    Args:
        key: what names it, for the message: ``map``, say.
        made: objects built before, by what they were built of; a new one is added.
        folder: the spec's, where the function is looked for first.

    Raises:
        SpecError: it cannot be imported, cannot be called, or does not take what `args` has.
    """
    function, name = import_function(call.call, key, folder), f"{key}: {call.call}"
    makes = inspect.isclass(function) or call.method is not None
    check_arguments(function, name, 0 if makes else 1, call.args)
    if not makes:
        return functools.partial(function, **call.args) if call.args else function
    written = repr((call.call, call.args))
    if written not in made:
        made[written] = function(**call.args)
    thing = made[written]
    if call.method is None and not callable(thing):
        raise SpecError(
            f"`{name}` is a class whose objects cannot be called; give it `__call__`, or name a `method`"
        )
    method = thing if call.method is None else getattr(thing, call.method, None)
    if not callable(method):
        raise SpecError(f"`{name}` makes a {type(thing).__name__}, which has no method `{call.method}`")
    check_arguments(method, f"{name}(…)", 1, call.given)
    return functools.partial(method, **call.given) if call.given else method


def _of_sample(call: Call, function: Callable[..., Any]) -> Step:
    """A function called on each sample."""

    def apply(sample: dict[str, Any]) -> dict[str, Any]:
        result = function(sample)
        if not isinstance(result, dict):
            raise FieldError(
                f"`map: {call.call}` returned {type(result).__name__}, not a dict; to drop samples use `select`",
                url=sample.get("__url__"),
                key=sample.get("__key__"),
            )
        for name in ("__key__", "__url__", "__source__"):
            if name not in result and name in sample:
                result[name] = sample[name]
        return result

    return apply


def _of_field(call: Call, field: str, function: Callable[..., Any]) -> Step:
    """A function called on the value of one field, unless that is None."""

    def apply(sample: dict[str, Any]) -> dict[str, Any]:
        if field not in sample:
            raise _said(f"names a field that the sample lacks; it has {_names(sample)}", sample)
        value = sample[field]
        if value is None:
            return sample
        result = function(value)
        if result is None:
            raise _said("returned None; to drop samples use `select`", sample)
        return {**sample, field: result}

    def _said(what: str, sample: dict[str, Any]) -> FieldError:
        return FieldError(
            f"`map: {{{field}: {call.call}}}` {what}", url=sample.get("__url__"), key=sample.get("__key__")
        )

    return apply


def _names(sample: dict[str, Any]) -> str:
    return ", ".join(name for name in sample if not name.startswith("__")) or "no fields"
