"""The per-sample steps of one source, composed once into one function.

Order of work (SPEC, "A source"): rename → decode → scale → select → map → tags, then the spec's own `map` and
`fields`. Those two come after mixing in the language; being per sample they give the same result here, and
a sample that they drop uses up no draw.

The steps of a sample that are the user's own functions: `select` and `map`.

A source as a process reads it: what describes it, and what its slots share there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from wdspec.base.errors import FieldError, SpecError
from wdspec.base.user_code import check_arguments, import_function
from wdspec.fields.expect import UnexpectedValueError, expectation_step
from wdspec.fields.samples import SampleFields
from wdspec.fields.scale import Scaling
from wdspec.fields.unpack import UserDecoderError
from wdspec.planning.keys import random64, uniform
from wdspec.planning.plan import SourcePlan
from wdspec.read.budget import Budget
from wdspec.read.randomness import GlobalGenerators, SampleAtWork, current, slot_key
from wdspec.read.shard import ShardOpener
from wdspec.spec.language.expect import ExpectedField
from wdspec.spec.language.options import Errors
from wdspec.spec.language.samples import Call
from wdspec.spec.language.values import SkipCause

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


Sample = dict[str, Any]
_GLOBALS = 0x5DEECE66D2B7E151
"""Keeps what torch, numpy and `random` draw apart from what `scale`, crops and `sample_rng` draw."""

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
    expect: Mapping[str, ExpectedField] | None = None
    """What the source's fields are to be, by name, where its own steps end."""
    thorough: bool = False
    """Whether that is looked at to the last element of large arrays."""
    missing: str = "error"
    folder: str = ""
    """The spec's, where the user's functions are looked for first."""

    @property
    def has_functions(self) -> bool:
        """Whether functions of the user's are part of it, which may draw."""
        return self.select is not None or bool(self.maps) or bool(self.fields.rules.functions)

    def build(
        self, budget: Budget, seed: int, slot: int, maps: MapSteps, shards: ShardOpener | None = None
    ) -> Process:
        """The function of one slot, with the user's functions imported.

        Args:
            shards: what the samples are read by, if a sample that cannot be decoded is to be read again from its store
                where a copy may be at fault.

        Raises:
            SpecError: a function cannot be imported, or is none.
        """
        fields, scaling, dropped = self.fields, self.scaling, budget.dropped
        draws = fields.rules.draw
        generators = maps.generators if self.has_functions else None
        steps, project = self._user_steps(budget, maps), self._projection(budget)
        key = slot_key(seed, budget.source, slot)

        def process(raw: Sample, ordinal: int, of_store: bool = False) -> Sample | None:
            cause: SkipCause = "decode"
            selected = dropped["select"]
            if generators is not None:
                generators.seed(random64(key, ordinal) ^ _GLOBALS)
            try:
                if scaling is None and not draws:
                    sample = fields(raw)
                else:
                    numbers = partial(uniform, random64(key, ordinal))
                    factor = None if scaling is None else scaling.factor(numbers(0), numbers(1))
                    sample = fields(raw, factor, numbers)
                if sample is None:
                    dropped["missing"] += 1
                    return None
                if steps:
                    cause = "map"
                    sample = _mapped(steps, sample, (key, ordinal, raw["__url__"]))
                if generators is not None and generators.strayed():
                    dropped["select"] = selected
                    return process(raw, ordinal, of_store)
                if sample is None:
                    return None
                cause = "decode"
                if project is not None:
                    sample = project(sample)
                    if sample is None:
                        return None
            except Exception as error:
                if generators is not None and generators.strayed():
                    dropped["select"] = selected
                    return process(raw, ordinal, of_store)
                if shards is not None and cause == "decode":
                    if of_store:
                        shards.settle(raw, is_damaged=False)
                    undamaged = shards.undamaged(raw, error)
                    if undamaged is not None:
                        return process(undamaged, ordinal, of_store=True)
                if isinstance(error, UserDecoderError):
                    cause = "map"
                elif isinstance(error, UnexpectedValueError):
                    cause = "decode"
                budget(error, cause, url=raw["__url__"], key=raw["__key__"])
                return None
            if of_store and shards is not None:
                shards.settle(raw, is_damaged=True)
            budget.delivered += 1
            return sample

        if scaling is None and not draws and not steps and project is None and generators is None:
            return _decoding(fields, budget, process)
        return process

    def _user_steps(self, budget: Budget, maps: MapSteps) -> list[Step]:
        """`select` and `map`, with the tags in their place between the source's own and the spec's."""
        steps = [] if self.select is None else [selection(self.select, budget, self.folder)]
        steps += [maps.step(call, self.folder) for call in self.maps[: self.own_maps]]
        if self.tags:
            tags = dict(self.tags)
            steps.append(lambda sample: {**sample, **tags})
        if self.expect:
            steps.append(expectation_step(self.expect, self.thorough))
        return steps + [maps.step(call, self.folder) for call in self.maps[self.own_maps :]]

    def _projection(self, budget: Budget) -> Step | None:
        """The spec's `fields`, and the check of what `to_tuple` needs; None where there is neither."""
        keep, missing = self.keep, self.missing
        if keep is None and not self.need:
            return None

        def project(sample: Sample) -> Sample | None:
            if keep is None:
                kept = dict(sample)
            else:
                kept = {name: value for name, value in sample.items() if name.startswith("__")}
                for entry in keep:
                    if (name := present(entry, sample)) is not None:
                        kept[entry.split(";")[0]] = sample[name]
            for entry in (*(keep or ()), *self.need):
                if present(entry, kept) is None:
                    if missing == "skip":
                        budget.dropped["missing"] += 1
                        return None
                    if missing == "error":
                        raise missing_field(entry, sample)
                    kept[entry.split(";")[0]] = None
            return kept

        return project


def passing(process: Process, budget: Budget, chooses: bool) -> Process:
    """What is done with samples of a slot that are passed over, in place of `process`.

    Args:
        chooses: whether it takes `process` to know which samples are dropped: those use up no draw.
    """
    dropped = budget.dropped

    def pass_over(raw: Sample, ordinal: int) -> Sample:
        dropped["skip"] += 1
        return raw

    def choose(raw: Sample, ordinal: int) -> Sample | None:
        sample = process(raw, ordinal)
        if sample is not None:
            budget.delivered -= 1
            dropped["skip"] += 1
        return sample

    return choose if chooses else pass_over


def _decoding(fields: SampleFields, budget: Budget, process: Process) -> Process:
    """The function of a slot where samples are decoded, and nothing else; `process` is for what cannot be decoded."""
    dropped, in_place = budget.dropped, fields.in_place

    def decode(raw: Sample, ordinal: int) -> Sample | None:
        steps = in_place.get(tuple(raw))
        try:
            if steps is None:
                sample = fields(raw)
            elif steps:
                sample = raw.copy()
                for name, read in steps:
                    if (data := sample[name]).__class__ is bytes:
                        sample[name] = read(data)
            else:
                sample = raw
        except Exception:
            return process(raw, ordinal)  # again, and what is wrong is dealt with
        if sample is None:
            dropped["missing"] += 1
        else:
            budget.delivered += 1
        return sample

    return decode


def _mapped(steps: Sequence[Step], sample: Sample | None, at_work: SampleAtWork) -> Sample | None:
    """The sample after `select` and `map`, which may ask for its `sample_rng`."""
    current.sample = at_work
    try:
        for step in steps:
            if sample is None:
                break
            sample = step(sample)
        return sample
    finally:
        current.sample = None


def present(entry: str, sample: Sample) -> str | None:
    """The first of the alternatives `a;b` that the sample has."""
    return next((name for name in entry.split(";") if name in sample), None)


def missing_field(entry: str, sample: Sample) -> FieldError:
    """The error for a sample without a field that the spec asks for."""
    present = ", ".join(name for name in sample if not name.startswith("__")) or "none"
    return FieldError(
        f"the sample has no field `{entry}`; it has: {present}. Rename one, or set `missing: skip` or `none`",
        code="D201",
        url=sample.get("__url__"),
        key=sample.get("__key__"),
    )


@dataclass(frozen=True)
class SourceParts:
    """How to read one source; describes only, and pickles."""

    open: ShardOpener
    transform: Transform
    errors: Errors

    @property
    def chooses(self) -> bool:
        """Whether it takes the samples themselves to know which of them are left out."""
        return self.transform.select is not None or self.transform.missing == "skip" or bool(self.errors.skip)


@dataclass(frozen=True)
class LiveSource:
    """A source at work in one process, for all slots that read it."""

    plan: SourcePlan
    parts: SourceParts
    budget: Budget
    maps: MapSteps
    seed: int

    def process(self, slot: int) -> Process:
        """What makes samples of the raw ones of a slot.

        Raises:
            SpecError: a function that the spec names cannot be imported, or is none.
        """
        parts = self.parts
        return parts.transform.build(self.budget, self.seed, slot, self.maps, parts.open)
