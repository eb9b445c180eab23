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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from wdspec.base.errors import FieldError, SpecError
from wdspec.base.user_code import check_arguments, import_function
from wdspec.fields.decode import UserDecoderError
from wdspec.fields.expect import UnexpectedValueError, expectation_step
from wdspec.fields.samples import SampleFields
from wdspec.fields.scale import Scaling
from wdspec.planning.keys import key64, random64, uniform
from wdspec.planning.plan import SourcePlan
from wdspec.read.budget import Budget
from wdspec.read.randomness import GlobalGenerators, current
from wdspec.read.shard import ShardOpener
from wdspec.spec.language.expect import ExpectedField
from wdspec.spec.language.options import Errors
from wdspec.spec.language.samples import Call
from wdspec.spec.language.values import SkipCause
from wdspec.spec.spec import Source, Spec
from wdspec.storage.storage import Storage

Step = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""From sample to sample; None for one that is dropped, and counted."""


class MapSteps:
    """The steps of `map` in this process, for all sources and slots: each object is built once."""

    def __init__(self, lends: bool = True) -> None:
        self._lends = lends
        self._functions: dict[str, Callable[..., Any]] = {}
        self._made: dict[str, Any] = {}

    @functools.cached_property
    def generators(self) -> GlobalGenerators | None:
        """The generators lent to the functions to draw from; None where other threads draw from them, too."""
        return GlobalGenerators() if self._lends else None

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


class _Failure(NamedTuple):
    """Why a sample could not be made, and in which stage."""

    error: Exception
    stage: SkipCause

    @property
    def cause(self) -> SkipCause:
        """What `errors: {skip: …}` calls it: user decoders run while decoding, expectations after `map`."""
        if isinstance(self.error, UserDecoderError):
            return "map"
        return "decode" if isinstance(self.error, UnexpectedValueError) else self.stage


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
    """What the source's fields must be, by name, after the source's own steps."""
    thorough: bool = False
    """Whether every element of large arrays is checked against `expect`."""
    missing: str = "error"
    folder: str = ""
    """The spec's, where user functions are looked for first."""

    @property
    def has_functions(self) -> bool:
        """Whether it calls user functions, which may draw random numbers."""
        return self.select is not None or bool(self.maps) or bool(self.fields.rules.functions)

    def build(
        self, budget: Budget, seed: int, slot: int, maps: MapSteps, shards: ShardOpener | None = None
    ) -> Process:
        """The function of one slot, with the user functions imported.

        Args:
            shards: what the samples are read with, if a sample that cannot be decoded is to be read again from its
                store where a cached copy may be at fault.

        Raises:
            SpecError: a function cannot be imported, or is not callable.
        """
        dropped, key = budget.dropped, key64(seed, "transform", budget.source, slot)
        generators = maps.generators if self.has_functions else None
        stages = self._stages(budget, key, maps)

        def attempt(raw: Sample, ordinal: int) -> Sample | _Failure | None:
            if generators is not None:
                generators.seed(random64(key, ordinal) ^ _GLOBALS)
            sample: Sample | None = raw
            for stage, step in stages:
                try:
                    sample = step(sample, ordinal)
                except Exception as error:
                    return _Failure(error, stage)
                if sample is None:
                    break
            return sample

        def make(raw: Sample, ordinal: int) -> Sample | _Failure | None:
            if generators is None:
                return attempt(raw, ordinal)
            before = Counter(dropped)
            outcome = attempt(raw, ordinal)
            if generators.strayed():
                # A function drew from `random` before it was seeded: make the sample again, with `random` seeded.
                dropped.clear()
                dropped.update(before)
                outcome = attempt(raw, ordinal)
            return outcome

        def process(raw: Sample, ordinal: int) -> Sample | None:
            outcome = make(raw, ordinal)
            if shards is not None and isinstance(outcome, _Failure) and outcome.stage == "decode":
                stored = shards.read_from_store(raw, outcome.error)
                if stored is not None:
                    outcome = make(stored, ordinal)
                    failed_again = isinstance(outcome, _Failure) and outcome.stage == "decode"
                    shards.judge_copy(stored, is_damaged=not failed_again)
            if isinstance(outcome, _Failure):
                budget(outcome.error, outcome.cause, url=raw["__url__"], key=raw["__key__"])
                return None
            if outcome is not None:
                budget.delivered += 1
            return outcome

        if generators is None and len(stages) == 1 and self.scaling is None and not self.fields.rules.draw:
            return _decode_only(self.fields, budget, process)
        return process

    def _stages(
        self, budget: Budget, key: int, maps: MapSteps
    ) -> list[tuple[SkipCause, Callable[[Any, int], Sample | None]]]:
        """The steps of a sample in order, each with the cause that its errors are counted under."""
        fields, scaling, dropped = self.fields, self.scaling, budget.dropped

        def decode(raw: Sample, ordinal: int) -> Sample | None:
            if scaling is None and not fields.rules.draw:
                sample = fields(raw)
            else:
                numbers = partial(uniform, random64(key, ordinal))
                factor = None if scaling is None else scaling.factor(numbers(0), numbers(1))
                sample = fields(raw, factor, numbers)
            if sample is None:
                dropped["missing"] += 1
            return sample

        stages: list[tuple[SkipCause, Callable[[Any, int], Sample | None]]] = [("decode", decode)]
        if steps := self._user_steps(budget, maps):
            stages.append(("map", partial(_run_user_steps, steps, key)))
        if self.keep is not None or self.need:
            stages.append(("decode", self._projection(budget)))
        return stages

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

    def _projection(self, budget: Budget) -> Callable[[Sample, int], Sample | None]:
        """The spec's `fields`, and the check of what `to_tuple` needs."""
        keep, missing = self.keep, self.missing

        def project(sample: Sample, ordinal: int) -> Sample | None:
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


def build_skipping(process: Process, budget: Budget, chooses: bool) -> Process:
    """What replaces `process` for the samples of steps that are skipped: they are counted, and not finished.

    Args:
        chooses: whether only `process` can tell which samples are dropped: those use up no draw.
    """
    dropped = budget.dropped

    def skip(raw: Sample, ordinal: int) -> Sample:
        dropped["skip"] += 1
        return raw

    def process_and_skip(raw: Sample, ordinal: int) -> Sample | None:
        sample = process(raw, ordinal)
        if sample is not None:
            budget.delivered -= 1
            dropped["skip"] += 1
        return sample

    return process_and_skip if chooses else skip


def _decode_only(fields: SampleFields, budget: Budget, process: Process) -> Process:
    """The function of a slot where samples are only decoded; `process` takes those that cannot be."""
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
            return process(raw, ordinal)  # raises again, or skips
        if sample is None:
            dropped["missing"] += 1
        else:
            budget.delivered += 1
        return sample

    return decode


def _run_user_steps(steps: Sequence[Step], key: int, sample: Sample, ordinal: int) -> Sample | None:
    """The sample after `select` and `map`, which may ask for its `sample_rng`."""
    current.sample = key, ordinal, sample["__url__"]
    result: Sample | None = sample
    try:
        for step in steps:
            if result is None:
                break
            result = step(result)
        return result
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
class FieldDemand:
    """Which fields of a source's samples are used after decoding."""

    required: tuple[str, ...]
    """Fields asked for that only the shard can provide: checked when a sample's layout is first met."""
    late: tuple[str, ...]
    """Fields asked for that `map` or a tag may add: checked after those."""
    only: tuple[str, ...] | None
    """The only fields that anything can look at, if that is known: all others are not even decoded."""

    @classmethod
    def of(cls, spec: Spec, source: Source) -> FieldDemand:
        """What the steps of a spec use of a source."""
        entries = (*(spec.fields or ()), *(spec.to_tuple or ()))
        asked = tuple(entry for entry in entries if not entry.startswith("__"))
        has_maps = bool(source.map or spec.map)
        may_be_added = has_maps or any(name in source.tags for entry in asked for name in entry.split(";"))
        delivered = spec.to_tuple or spec.fields
        checks_fields = source.expect is not None and bool(source.expect.fields)
        only = None
        if delivered and not may_be_added and source.select is None and not checks_fields:
            only = tuple(entry for entry in delivered if not entry.startswith("__"))
        return cls((), asked, only) if may_be_added else cls(asked, (), only)


@dataclass(frozen=True)
class SourceParts:
    """How to read one source; describes only, and pickles."""

    open: ShardOpener
    transform: Transform
    errors: Errors

    @classmethod
    def of(cls, spec: Spec, source: Source, storage: Storage, is_local: bool = False) -> SourceParts:
        """How a source of a spec is read.

        Args:
            is_local: whether all its shards are plain local paths.
        """
        demand = FieldDemand.of(spec, source)
        fields = SampleFields.of(
            source,
            allow=spec.allow,
            required=demand.required,
            only=demand.only,
            secure=storage.environment.secure,
            folder=spec.folder,
        )
        transform = Transform(
            fields=fields,
            scaling=None if source.scale is None else Scaling(*source.scale, source.scaleprob),
            select=source.select,
            maps=(*source.map, *spec.map),
            own_maps=len(source.map),
            tags=source.tags or None,
            keep=spec.fields,
            need=demand.late,
            expect=None if source.expect is None else source.expect.fields,
            missing=source.missing,
            folder=spec.folder,
        )
        opener = ShardOpener(
            source=source.name,
            storage=storage,
            fields=fields,
            key=source.key,
            lenient_end=source.tar.end == "lenient",
            format=source.format,
            may_be_empty=source.empty == "allow",
            is_local=is_local,
        )
        return cls(opener, transform, source.errors)

    @property
    def chooses(self) -> bool:
        """Whether only the samples themselves can tell which of them are left out."""
        return self.transform.select is not None or self.transform.missing == "skip" or bool(self.errors.skip)


@dataclass(frozen=True)
class LiveSource:
    """A source that is being read in one process, for all slots that read it."""

    plan: SourcePlan
    parts: SourceParts
    budget: Budget
    maps: MapSteps
    seed: int

    def process(self, slot: int) -> Process:
        """What turns the raw samples of a slot into samples.

        Raises:
            SpecError: a function that the spec names cannot be imported, or is not callable.
        """
        parts = self.parts
        return parts.transform.build(self.budget, self.seed, slot, self.maps, parts.open)
