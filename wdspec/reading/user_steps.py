"""The steps of a sample that are the user's own functions: `select` and `map`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from wdspec.errors import FieldError, SpecError
from wdspec.importing import check_arguments, import_function
from wdspec.reading.error_budget import Budget
from wdspec.spec.language.sample_options import Call

Step = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""From sample to sample; None for one that is dropped, and counted."""


class MapSteps:
    """The steps of `map` in this process, for all sources and slots: each class is built once."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}

    def step(self, call: Call) -> Step:
        """The step of one entry of `map`.

        Raises:
            SpecError: the function cannot be imported, is none, or does not take what `args` has.
        """
        written = repr((call.call, call.args))
        if written not in self._steps:
            self._steps[written] = _mapping(call)
        return self._steps[written]


def selection(name: str, budget: Budget) -> Step:
    """The step of `select`, which counts what it drops.

    Raises:
        SpecError: the function cannot be imported, is none, or does not take a sample.
    """
    predicate, dropped = import_function(name, "select"), budget.dropped
    check_arguments(predicate, f"select: {name}", 1)

    def select(sample: dict[str, Any]) -> dict[str, Any] | None:
        if predicate(sample):
            return sample
        dropped["select"] += 1
        return None

    return select


def _mapping(call: Call) -> Step:
    """A function called on each sample, or a class built with the arguments, whose object is called."""
    function = import_function(call.call, "map")
    is_class = inspect.isclass(function)
    check_arguments(function, f"map: {call.call}", 0 if is_class else 1, call.args)
    if is_class:
        built = function(**call.args)
        if not callable(built):
            raise SpecError(
                f"`map: {call.call}` is a class whose objects cannot be called; give it `__call__`"
            )
        check_arguments(built, f"map: {call.call}(…)", 1)
        function = built
    elif call.args:
        function = functools.partial(function, **call.args)

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
