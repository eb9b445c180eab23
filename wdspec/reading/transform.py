"""The per-sample steps of one source, composed once into one function.

Order of work (SPEC, "A source"): rename → decode → scale → select → map → tags, then the spec's own `map` and
`fields`. Those two come after mixing in the language; being per sample they give the same result here, and
a sample that they drop uses up no draw.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wdspec.errors import FieldError, SpecError
from wdspec.fields.sample_fields import SampleFields
from wdspec.fields.scale import Scaling
from wdspec.importing import import_function
from wdspec.planning.keys import random64, uniform
from wdspec.reading.error_budget import Budget
from wdspec.reading.sample_rng import current, slot_key
from wdspec.spec.language.models import Call

Sample = dict[str, Any]
Step = Callable[[Sample], "Sample | None"]
Process = Callable[[Sample, int], "Sample | None"]
"""(raw sample, its ordinal in the slot's source) -> sample, or None when it was dropped, and counted."""


@dataclass(frozen=True)
class Transform:
    """What happens to each sample of a source; names only, so that it pickles and imports nothing."""

    fields: SampleFields
    scaling: Scaling | None = None
    select: str | None = None
    maps: tuple[Call, ...] = ()
    """The source's own, then the spec's."""
    own_maps: int = 0
    """How many of `maps` are the source's: the tags come after these."""
    tags: Mapping[str, Any] | None = None
    keep: tuple[str, ...] | None = None
    """The spec's `fields`; None keeps all."""
    need: tuple[str, ...] = ()
    """Fields that the spec's `to_tuple` asks for and that only `map` may have made."""
    missing: str = "error"

    def build(self, budget: Budget, seed: int, slot: int) -> Process:
        """The function of one slot, with the user's callables imported.

        Raises:
            SpecError: a callable cannot be imported, or is none.
        """
        steps = self._steps(budget)
        fields, dropped = self.fields, budget.dropped

        def process(raw: Sample, ordinal: int) -> Sample | None:
            try:
                sample = fields(raw)
                if sample is None:
                    dropped["missing"] += 1
                    return None
                for step in steps:
                    sample = step(sample)
                    if sample is None:
                        return None
            except Exception as error:
                budget(error, url=raw["__url__"], key=raw["__key__"])
                return None
            budget.delivered += 1
            return sample

        if self.scaling is None and self.select is None and not self.maps:
            return process
        return self._keyed(steps, budget, slot_key(seed, budget.source, slot))

    def _keyed(self, steps: list[Step], budget: Budget, key: int) -> Process:
        """The function of one slot where something is drawn at random for each sample, or may be."""
        fields, scaling, dropped = self.fields, self.scaling, budget.dropped

        def process(raw: Sample, ordinal: int) -> Sample | None:
            try:
                if scaling is None:
                    sample = fields(raw)
                else:
                    draw = random64(key, ordinal)
                    sample = fields(raw, scaling.factor(uniform(draw, 0), uniform(draw, 1)))
                if sample is None:
                    dropped["missing"] += 1
                    return None
                current.turn = key, ordinal, raw["__url__"]
                try:
                    for step in steps:
                        sample = step(sample)
                        if sample is None:
                            return None
                finally:
                    current.turn = None
            except Exception as error:
                budget(error, url=raw["__url__"], key=raw["__key__"])
                return None
            budget.delivered += 1
            return sample

        return process

    def _steps(self, budget: Budget) -> list[Step]:
        steps: list[Step] = []
        if self.select is not None:
            steps.append(_selection(import_function(self.select, "select"), budget))
        steps += [_mapping(call) for call in self.maps[: self.own_maps]]
        if self.tags:
            tags = dict(self.tags)
            steps.append(lambda sample: {**sample, **tags})
        steps += [_mapping(call) for call in self.maps[self.own_maps :]]
        if self.keep is not None or self.need:
            steps.append(self._projection(budget))
        return steps

    def _projection(self, budget: Budget) -> Step:
        keep, missing = self.keep, self.missing

        def project(sample: Sample) -> Sample | None:
            if keep is None:
                kept = dict(sample)
            else:
                kept = {name: value for name, value in sample.items() if name.startswith("__")}
                for entry in keep:
                    for name in entry.split(";"):
                        if name in sample:
                            kept[entry.split(";")[0]] = sample[name]
                            break
            for entry in (*(keep or ()), *self.need):
                if not any(name in kept for name in entry.split(";")):
                    if missing == "skip":
                        budget.dropped["missing"] += 1
                        return None
                    if missing == "error":
                        raise missing_field(entry, sample)
                    kept[entry.split(";")[0]] = None
            return kept

        return project


def missing_field(entry: str, sample: Sample) -> FieldError:
    """The error for a sample without a field that the spec asks for."""
    there = ", ".join(name for name in sample if not name.startswith("__")) or "none"
    return FieldError(
        f"the sample has no field `{entry}`; it has: {there}. Rename one, or set `missing: skip` or `none`",
        url=sample.get("__url__"),
        key=sample.get("__key__"),
    )


def _selection(predicate: Callable[[Sample], bool], budget: Budget) -> Step:
    dropped = budget.dropped

    def select(sample: Sample) -> Sample | None:
        if predicate(sample):
            return sample
        dropped["select"] += 1
        return None

    return select


def _mapping(call: Call) -> Step:
    """A function called on each sample, or a class built once with the arguments and then called."""
    function = import_function(call.call, "map")
    if inspect.isclass(function):
        built = function(**call.args)
        if not callable(built):
            raise SpecError(
                f"`map: {call.call}` is a class whose objects cannot be called; give it `__call__`"
            )
        function = built
    elif call.args:
        function = functools.partial(function, **call.args)

    def apply(sample: Sample) -> Sample:
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
