"""From raw samples to samples: the steps of one source, composed once into one function.

Raw samples that `read/selection.py` leaves out are not processed. The order of the steps is `rename`, decode, `scale`,
`select`, `map`, `tags`, then the spec's `map` and `fields`. In the language the last two come after the mix. They work
on single samples, so the result here is the same, and a sample that they drop does not use up a draw.

`Transform` describes the steps, and `Transform.build` makes the function. `UserFunctions` holds the functions of the
user that `select`, `map`, `collate` and `stage` name. `SourceParts` is all that is needed to read a source, and
`LiveSource` what the slots of a process share of it.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from wdspec.base.errors import FieldError, LeftOutError, SpecError, warn_user
from wdspec.base.user_code import check_arguments, import_function
from wdspec.fields.audio_file import open_audio
from wdspec.fields.decode import UserDecoderError
from wdspec.fields.expect import UnexpectedValueError, expectation_step
from wdspec.fields.samples import COMPANIONS, MADE, PASS, SampleFields, decode_items
from wdspec.fields.scale import Scaling
from wdspec.planning.keys import key64, random64, uniform
from wdspec.planning.plan import SourcePlan
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.randomness import GlobalGenerators, current, numbers_of
from wdspec.read.selection import Choose, Selection, part_again
from wdspec.read.shard import SampleReader
from wdspec.shards.shards import Shards
from wdspec.spec.language.decoders import RAW
from wdspec.spec.language.expect import ExpectedField
from wdspec.spec.language.options import Errors
from wdspec.spec.language.samples import Call, Decode, fields_set_by
from wdspec.spec.language.selection import Subset
from wdspec.spec.language.values import SkipCause
from wdspec.spec.spec import Source, Spec

if TYPE_CHECKING:
    from wdspec.read.fetching import Objects

T = TypeVar("T")
Step = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""Sample → sample, or None if it is dropped (and counted)."""


class UserFunctions:
    """The functions of `map` in this process, for all sources and slots. Each object is built once.

    Args:
        lends: whether to lend them the global random generators; not if other threads draw from these.
        turn: a lock to hold while these are lent, if several threads run functions.
    """

    def __init__(self, lends: bool = True, turn: AbstractContextManager[object] | None = None) -> None:
        self._lends, self._turn = lends, turn
        self._functions: dict[str, Callable[..., Any]] = {}
        self._objects: dict[str, Any] = {}

    @functools.cached_property
    def generators(self) -> GlobalGenerators | None:
        """The random generators lent to the functions; None if other threads draw from them."""
        return GlobalGenerators(self._turn) if self._lends else None

    @functools.cached_property
    def _watched(self) -> set[str]:
        """The transforms of torchvision that have had their first sample."""
        return set()

    def function(self, call: Call, key: str, folder: str = "") -> Callable[..., Any]:
        """Return the function of a call under a spec key; raises as `build_function`."""
        written = repr(call.model_copy(update={"field": None}))
        if written not in self._functions:
            self._functions[written] = build_function(call, key, self._objects, folder)
        return self._functions[written]

    def step(self, call: Call, folder: str = "") -> Step:
        """Return the step of one entry of `map`.

        Raises:
            SpecError: the function cannot be imported or called, or does not accept `args`.
        """
        function = self.function(call, "map", folder)
        step = _map_samples(call, function) if call.field is None else _map_field(call, call.field, function)
        return _watch_arrays(call, step, self._watched) if _is_of_torchvision(function) else step


def build_selection(name: str, budget: ErrorBudget, folder: str = "") -> Step:
    """Return the step of `select`, which counts the samples it drops.

    Raises:
        SpecError: the function cannot be imported or called, or does not accept a sample.
    """
    predicate, dropped = import_function(name, "select", folder), budget.dropped
    check_arguments(predicate, f"select: {name}", 1)

    def select(sample: dict[str, Any]) -> dict[str, Any] | None:
        if predicate(sample):
            return sample
        dropped["select"] += 1
        return None

    return select


def build_function(call: Call, key: str, objects: dict[str, Any], folder: str = "") -> Callable[..., Any]:
    """Return a function with its arguments bound, an object of a class, or a method of such an object.

    Args:
        key: the spec key that names it, for messages, such as ``map``.
        objects: objects built so far, by class and arguments; a new one is added.
        folder: the folder of the spec, which is searched for the function first.

    Raises:
        SpecError: it cannot be imported or called, or does not accept `args`.
    """
    function, name = import_function(call.call, key, folder), f"{key}: {call.call}"
    is_factory = inspect.isclass(function) or call.method is not None
    check_arguments(function, name, 0 if is_factory else 1, call.args)
    if not is_factory:
        return functools.partial(function, **call.args) if call.args else function
    written = repr((call.call, call.args))
    if written not in objects:
        try:
            objects[written] = function(**call.args)
        except Exception as cause:  # whatever the user's code raises
            raise _not_built(call, name, cause) from cause
    thing = objects[written]
    if call.method is None and not callable(thing):
        raise SpecError(
            f"`{name}` is a class whose objects cannot be called; add `__call__` to it, or name a `method`"
        )
    method = thing if call.method is None else getattr(thing, call.method, None)
    if not callable(method):
        raise SpecError(f"`{name}` returns a {type(thing).__name__}, which has no method `{call.method}`")
    check_arguments(method, f"{name}(…)", 1, call.given)
    return functools.partial(method, **call.given) if call.given else method


def _is_of_torchvision(function: Callable[..., Any]) -> bool:
    """Whether a function is a transform of torchvision v2, perhaps with arguments bound, or a method of one."""
    owner = getattr(getattr(function, "func", function), "__self__", function)
    return any(each.__module__.startswith("torchvision.transforms.v2") for each in type(owner).__mro__)


def _watch_arrays(call: Call, step: Step, watched: set[str]) -> Step:
    """Return a step that warns if a transform leaves the arrays of the first sample of this process as they are.

    Args:
        watched: the transforms that have had their first sample.
    """

    def apply(sample: dict[str, Any]) -> dict[str, Any] | None:
        if call.call in watched:
            return step(sample)
        before, result = dict(sample), step(sample)
        watched.add(call.call)
        if result is not None:
            names = [call.field] if call.field is not None else [name for name in before if name in result]
            arrays = [name for name in names if type(before[name]).__name__ == "ndarray"]
            others = (type(before[name]).__module__.partition(".")[0] for name in names)
            if (
                arrays
                and all(result[name] is before[name] for name in names)
                and not {"torch", "PIL"} & {*others}
            ):
                hint = "decode it with `torchrgb8`, or put `torchvision.transforms.v2:ToImage` before"
                warn_user(f"`map: {call.call}` leaves `{arrays[0]}` as it is, a numpy array; {hint}")
        return result

    return apply


def _not_built(call: Call, name: str, cause: Exception) -> SpecError:
    """Return the error for an object whose making failed, perhaps since a file in `args` does not exist."""
    texts = [text for text in call.args.values() if isinstance(text, str) and re.search(r"/|\.\w+$", text)]
    absent = next((text for text in texts if "://" not in text and not os.path.exists(text)), None)
    remedy = "correct `args`, or the code"
    if absent is not None:
        remedy = f"there is no file `{absent}`" + ("" if os.path.isabs(absent) else f" in {os.getcwd()}")
        remedy += "; write an absolute path, or start where the file is"
    return SpecError(f"`{name}` failed with these `args`: {type(cause).__name__}: {cause}; {remedy}")


def _map_samples(call: Call, function: Callable[..., Any]) -> Step:
    """Return the step that calls a function with each sample."""

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


def _map_field(call: Call, field: str, function: Callable[..., Any]) -> Step:
    """Return the step that calls a function with the value of one field, unless that is None."""

    def apply(sample: dict[str, Any]) -> dict[str, Any]:
        if field not in sample:
            raise error(f"names a field that the sample does not have; it has {_list_fields(sample)}", sample)
        value = sample[field]
        if value is None:
            return sample
        result = function(value)
        if result is None:
            raise error("returned None; to drop samples use `select`", sample)
        return {**sample, field: result}

    def error(what: str, sample: dict[str, Any]) -> FieldError:
        return FieldError(
            f"`map: {{{field}: {call.call}}}` {what}", url=sample.get("__url__"), key=sample.get("__key__")
        )

    return apply


def _list_fields(sample: dict[str, Any]) -> str:
    return ", ".join(name for name in sample if not name.startswith("__")) or "no fields"


Sample = dict[str, Any]
_GLOBALS = 0x5DEECE66D2B7E151
"""Keeps the numbers of torch, numpy and `random` independent of those of `scale`, crops and `sample_rng`."""

Process = Callable[[Sample, int], "Sample | None"]
"""(raw sample, its ordinal in the source of the slot) → sample, or None if it was dropped (and counted)."""


class _Failure(NamedTuple):
    """Why a sample failed, and in which stage."""

    error: Exception
    stage: SkipCause

    @property
    def cause(self) -> SkipCause:
        """The cause in terms of `errors: {skip: …}`: user decoders count as `map`, expectations as `decode`."""
        if isinstance(self.error, UserDecoderError):
            return "map"
        return "decode" if isinstance(self.error, UnexpectedValueError) else self.stage


@dataclass(frozen=True)
class Transform:
    """The steps of the samples of a source. It names functions without importing them, so it can be pickled."""

    fields: SampleFields
    scaling: Scaling | None = None
    selects: tuple[str, ...] = ()
    maps: tuple[Call, ...] = ()
    """The functions of the source, then those of the spec."""
    own_maps: int = 0
    """The number of `maps` of the source. Tags are added after these."""
    tags: Mapping[str, Any] | None = None
    keep: tuple[str, ...] | None = None
    """The `fields` of the spec; None keeps all."""
    need: tuple[str, ...] = ()
    """Fields that `to_tuple` needs and that `map` may add."""
    expect: Mapping[str, ExpectedField] | None = None
    """Expectations by field, checked after the steps of the source."""
    thorough: bool = False
    """Whether to check every element of large arrays against `expect`."""
    missing: str = "error"
    folder: str = ""
    """The folder of the spec, which is searched for user functions first."""
    objects: Objects | None = None
    """What fetches the objects that samples name, before they are decoded."""

    @functools.cached_property
    def has_functions(self) -> bool:
        """Whether any step is a user function, which may draw random numbers."""
        return bool(self.selects) or bool(self.maps) or bool(self.fields.rules.functions)

    @functools.cached_property
    def set_fields(self) -> frozenset[str]:
        """The fields that `map` is known to set."""
        return fields_set_by(self.maps[: self.own_maps], self.tags or (), self.maps[self.own_maps :])

    @property
    def can_leave_audio(self) -> bool:
        """Whether recordings are decoded, and no step reads the values of a sample afterwards."""
        rules = self.fields.rules
        decodes = any("audio" in decoder for decoder in (*rules.names, *rules.fields.values()))
        return decodes and not (self.has_functions or self.expect or self.fields.made)

    @property
    def only_decodes(self) -> bool:
        """Whether samples are decoded without drawing numbers, and nothing else is done to them."""
        later: Any = self.tags or self.expect or self.keep is not None or self.need
        later = later or self.has_functions or self.fields.made or self.fields.companions or self.objects
        return not later and self.scaling is None and not self.fields.rules.draw

    def build(
        self,
        budget: ErrorBudget,
        seed: int,
        slot: int,
        functions: UserFunctions,
        shards: SampleReader | None = None,
    ) -> Process:
        """Import the user functions and return the function for the samples of one slot.

        Args:
            shards: opens the shards of the samples, to read those again of which a cached copy cannot be decoded.

        Raises:
            SpecError: a function cannot be imported, or is not callable.
        """
        dropped, key = budget.dropped, key64(seed, "transform", budget.source, slot)
        generators = functions.generators if self.has_functions else None
        is_same = self.scaling is None and not self.fields.rules.draw
        draws, stages = self.has_functions or not is_same, self._stages(budget, functions, is_same)

        def attempt(raw: Sample, ordinal: int) -> Sample | _Failure | None:
            number = random64(key, ordinal) if draws else 0
            if generators is not None:
                generators.seed(number ^ _GLOBALS)
            sample: Sample | None = raw
            for stage, step in stages:
                try:
                    sample = step(sample, number)
                except Exception as error:
                    return _Failure(error, stage)
                if sample is None:
                    break
            return sample

        def run(raw: Sample, ordinal: int) -> Sample | _Failure | None:
            if generators is None:
                return attempt(raw, ordinal)
            before = Counter(dropped)
            outcome = attempt(raw, ordinal)
            if generators.has_strayed():
                # A function drew from a generator before it was seeded: run the steps again, with all seeded.
                dropped.clear()
                dropped.update(before)
                outcome = attempt(raw, ordinal)
            return outcome

        def process(raw: Sample, ordinal: int) -> Sample | None:
            outcome = run(raw, ordinal)
            if shards is not None and isinstance(outcome, _Failure) and outcome.stage == "decode":
                outcome = self._try_again(shards, raw, outcome, lambda stored: run(stored, ordinal))
            if isinstance(outcome, _Failure):
                budget(outcome.error, outcome.cause, url=raw["__url__"], key=raw["__key__"])
                return None
            if outcome is not None:
                budget.delivered += 1
            return outcome

        finish = process if draws or len(stages) > 1 else _decode_only(self.fields, budget, process)
        return finish if self.objects is None else self.objects.before(finish, budget)

    def before_measuring(self, choose: Process, budget: ErrorBudget) -> Process:
        """Return `choose`, for raw samples of which headers of objects are read first, if it needs them."""
        headers = None if self.objects is None else self.objects.headers
        return choose if headers is None else headers.before_measuring(choose, budget)

    def _try_again(
        self,
        shards: SampleReader,
        raw: Sample,
        failure: _Failure,
        run: Callable[[Sample], Sample | _Failure | None],
    ) -> Sample | _Failure | None:
        """Return what becomes of a sample that could not be decoded, read from its store if it was read from a copy."""
        stored = shards.read_from_store(raw, failure.error)
        again = stored if self.objects is None else self.objects.again_for(raw, stored)
        if again is None:
            return failure
        outcome = run(again)
        if stored is not None:
            failed_again = isinstance(outcome, _Failure) and outcome.stage == "decode"
            shards.judge_copy(stored, is_damaged=not failed_again)
        return outcome

    def _stages(
        self, budget: ErrorBudget, functions: UserFunctions, is_same: bool
    ) -> list[tuple[SkipCause, Callable[[Any, int], Sample | None]]]:
        """Return the steps in order, each with the cause under which its errors are counted.

        A step takes a sample and its 64-bit random number.

        Args:
            is_same: whether decoding draws no numbers.
        """
        fields, scaling, dropped = self.fields, self.scaling, budget.dropped

        def decode(raw: Sample, number: int) -> Sample | None:
            try:
                if is_same:
                    sample = fields(raw)
                else:
                    numbers = partial(uniform, number)
                    sample = fields(raw, None if scaling is None else scaling.factor(numbers), numbers)
            except LeftOutError as error:
                dropped[error.cause] += 1
                return None
            if sample is None:
                dropped["missing"] += 1
            return sample

        stages: list[tuple[SkipCause, Callable[[Any, int], Sample | None]]] = [("decode", decode)]
        if steps := self._user_steps(budget, functions):
            stages.append(("map", partial(_run_user_steps, steps)))
        if self.keep is not None or self.need:
            stages.append(("decode", self.projection(budget)))
        return self._with_companions(stages) if self.fields.companions else stages

    def _user_steps(self, budget: ErrorBudget, functions: UserFunctions) -> list[Step]:
        """Return the steps of `select`, then `map`, tags and expectations of the source, then the `map` of the spec."""
        steps = [build_selection(name, budget, self.folder) for name in self.selects]
        steps += [functions.step(call, self.folder) for call in self.maps[: self.own_maps]]
        if self.tags:
            tags = dict(self.tags)
            steps.append(lambda sample: {**sample, **tags})
        if self.expect:
            steps.append(expectation_step(self.expect, self.thorough))
        return steps + [functions.step(call, self.folder) for call in self.maps[self.own_maps :]]

    def _with_companions(
        self, stages: list[tuple[SkipCause, Callable[[Any, int], Sample | None]]]
    ) -> list[tuple[SkipCause, Callable[[Any, int], Sample | None]]]:
        """Return the steps with two more: companions are put under their fields after decoding, and removed at the end.

        Where none are drawn, they are null.
        """
        names = self.fields.companions

        def add(sample: Sample, number: int) -> Sample:
            sample.update({field: open_audio(each) for field, each in drop(sample).items()})
            return sample

        def drop(sample: Sample, number: int = 0) -> dict[str, Any]:
            drawn: dict[str, Any] = sample.pop(COMPANIONS, None) or dict.fromkeys(names)
            if sample.keys().isdisjoint(drawn):
                return drawn
            field = min(sample.keys() & drawn.keys())
            raise FieldError(
                f"`companions` are under `{field}`, but the sample already has a field of this name; choose another "
                "name in `companions`, or give the other one a new name by `rename`",
                code="D206",
                url=sample.get("__url__"),
                key=sample.get("__key__"),
                field=field,
            )

        def only_check(sample: Sample, number: int) -> Sample:
            drop(sample)
            return sample

        def remove(sample: Sample, number: int) -> Sample:
            for field in names:
                sample.pop(field, None)
            return sample

        if not any(cause == "map" for cause, _ in stages):  # nothing reads them any more
            return [stages[0], ("decode", only_check), *stages[1:]]
        return [stages[0], ("decode", add), *stages[1:], ("decode", remove)]

    def projection(self, budget: ErrorBudget) -> Callable[[Sample, int], Sample | None]:
        """Return the step that keeps the `fields` of the spec and checks what `to_tuple` needs."""
        keep, missing = self.keep, self.missing

        def project(sample: Sample, number: int) -> Sample | None:
            if keep is None:
                kept = dict(sample)
            else:
                kept = {name: value for name, value in sample.items() if name.startswith("__")}
                for entry in keep:
                    if (name := find_field(entry, sample)) is not None:
                        kept[entry.split(";")[0]] = sample[name]
            for entry in (*(keep or ()), *self.need):
                if find_field(entry, kept) is None:
                    if missing == "skip":
                        budget.dropped["missing"] += 1
                        return None
                    if missing == "error":
                        raise missing_field(entry, sample)
                    kept[entry.split(";")[0]] = None
            return kept

        return project


@dataclass(frozen=True)
class FileTransform(Transform):
    """Yields the files of samples as bytes. Its fields and tags are for the selection."""

    files: Transform | None = None
    """Yields the files."""

    def build(self, *arguments: Any, **others: Any) -> Process:
        assert self.files is not None, "it has the transform of the files"
        process = self.files.build(*arguments, **others)
        if not self.fields.made:
            return process
        return lambda raw, ordinal: process(
            {name: raw[name] for name in raw if name not in (MADE, PASS)}, ordinal
        )


def build_skipping(process: Process, budget: ErrorBudget, drops_decoded: bool) -> Process:
    """Return the function that replaces `process` in skipped steps: it counts samples without decoding them.

    Args:
        drops_decoded: whether only `process` knows which samples are dropped; those do not use up a draw.
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

    return process_and_skip if drops_decoded else skip


def _decode_only(fields: SampleFields, budget: ErrorBudget, process: Process) -> Process:
    """Return the function for samples that are only decoded. If that fails, it calls `process`."""
    dropped, in_place = budget.dropped, fields.in_place

    def decode(raw: Sample, ordinal: int) -> Sample | None:
        steps = in_place.get(tuple(raw))
        sample: Sample | None
        try:
            if steps:
                sample = raw.copy()
                for name, read in steps:
                    if (data := sample[name]).__class__ is bytes:
                        sample[name] = read(data)
                    elif data.__class__ is list:
                        sample[name] = decode_items(read, data)
            else:
                sample = fields(raw) if steps is None else raw
        except Exception:
            return process(raw, ordinal)  # raises again, or skips
        if sample is None:
            dropped["missing"] += 1
        else:
            budget.delivered += 1
        return sample

    return decode


def _run_user_steps(steps: Sequence[Step], sample: Sample, number: int) -> Sample | None:
    """Run `select` and `map`, which can use `sample_rng` meanwhile."""
    current.sample = number, sample["__url__"]
    result: Sample | None = sample
    try:
        for step in steps:
            if result is None:
                break
            result = step(result)
        return result
    finally:
        current.sample = None


def find_field(entry: str, sample: Sample) -> str | None:
    """Return the first of the alternatives `a;b` that the sample has."""
    return next((name for name in entry.split(";") if name in sample), None)


def missing_field(entry: str, sample: Sample) -> FieldError:
    """Return the error for a sample without a field that the spec requires."""
    names = ", ".join(name for name in sample if not name.startswith("__")) or "none"
    return FieldError(
        f"the sample has no field `{entry}`; it has: {names}. Rename one, or set `missing: skip` or `none`",
        code="D201",
        url=sample.get("__url__"),
        key=sample.get("__key__"),
    )


@dataclass(frozen=True)
class FieldDemand:
    """Which fields of the samples of a source are used after decoding."""

    required: tuple[str, ...]
    """Required fields that only the shard can provide; checked when the layout of a sample is first seen."""
    late: tuple[str, ...]
    """Required fields that `map` or a tag may add; checked after these."""
    only: tuple[str, ...] | None
    """The only fields that later steps can use, if that is known; others are not decoded."""

    @classmethod
    def of(cls, spec: Spec, source: Source) -> FieldDemand:
        """Find which fields of a source the steps of a spec use."""
        entries = (*(spec.fields or ()), *((spec.to_tuple and spec.tuple_of_samples) or ()))
        required = tuple(entry for entry in entries if not entry.startswith("__"))
        has_maps = bool(source.map or spec.map or spec.map_batches)
        may_be_added = has_maps or any(name in source.tags for entry in required for name in entry.split(";"))
        delivered = spec.to_tuple or spec.fields
        checks_fields = source.expect is not None and bool(source.expect.fields)
        only = None
        if delivered and not may_be_added and source.select is None and not checks_fields:
            measured = (*spec.measured_fields, *source.selecting_fields(spec.costs))
            only = tuple(entry for entry in (*delivered, *measured) if not entry.startswith("__"))
        return cls((), required, only) if may_be_added else cls(required, (), only)


@dataclass(frozen=True)
class SourceParts:
    """How to read one source. It holds no open files, so it can be pickled."""

    open: SampleReader
    transform: Transform
    errors: Errors
    drops_decoded: bool
    """Whether samples must be decoded to know which of them are left out."""
    selection: Selection | None
    """Which raw samples are kept; None for all."""
    again: Subset | None = None
    """The part that a pass reads once more than the rest; None for none."""

    @classmethod
    def of(cls, spec: Spec, source: Source, shards: Shards) -> SourceParts:
        """Describe how to read a source of a spec, perhaps of its companions."""
        spec = spec.of_companions if source.name in spec.companions else spec
        storage, lists = shards.storages[source.name], shards.key_lists.get(source.name)
        selection = None if lists is None else Selection.of(spec, source, lists)
        demand = FieldDemand.of(spec, source)
        fields = SampleFields.of(
            source,
            allow=spec.allow,
            required=demand.required,
            only=demand.only,
            asides=source.asides(spec.costs) if selection else frozenset(),
            secure=storage.environment.secure,
            folder=spec.folder,
        )
        fields = _make_fields(fields, spec, source, shards) if source.make or source.companions else fields
        transform = Transform(
            fields=fields,
            scaling=None if source.scale is None else Scaling(*source.scale, source.scaleprob),
            selects=source.selects if source.select else (),
            maps=(*source.map, *spec.map),
            own_maps=len(source.map),
            tags=source.tags or None,
            keep=None if spec.map_batches else spec.fields,  # they come after `map_batches`
            need=() if spec.map_batches else demand.late,
            expect=None if source.expect is None else source.expect.fields,
            missing=source.missing,
            folder=spec.folder,
        )
        opener = SampleReader(
            source=source.name,
            storage=storage,
            fields=fields,
            key=source.key,
            lenient_end=source.tar.end == "lenient",
            format=source.format,
            may_be_empty=source.empty == "allow",
            is_local=source.name in shards.local,
            parts=(source.join, source.lookup),
            tokens=source.tokens,
        )
        again = part_again(source) if source.repeat else None
        parts = cls(opener, transform, source.errors, source.drops_decoded, selection, again)
        return _with_objects(parts, spec, source) if source.fetch else parts

    def build_choice(self, budget: ErrorBudget) -> Choose:
        """Return the function that says whether a raw sample is kept."""
        if self.selection is None:
            return lambda raw: True
        fields, tags = self.transform.fields, self.transform.tags
        return self.selection.build(fields, dict(tags or {}), budget, self.open.try_again)

    @property
    def selecting(self) -> SampleReader:
        """What opens shards for a reader that leaves out samples by the selection: it does not read all of them."""
        if self.selection is None or any(each.asks_for for part in self.open.parts for each in part):
            return self.open  # a join or a lookup may need the rest of a sample
        early = self.selection.build_early(self.transform.fields, dict(self.transform.tags or {}))
        return replace(self.open, leaves_out=early)

    def with_selection(self, selection: Selection | None) -> SourceParts:
        """Return the parts with another selection."""
        return replace(self, selection=selection)

    def choosing(self, process: Process, budget: ErrorBudget) -> Process:
        """Return a function that calls `process` for the raw samples that are kept, and returns None for others."""
        if self.selection is None:
            return process
        choose = self.build_choice(budget)
        return lambda raw, ordinal: process(raw, ordinal) if choose(raw) else None

    def ahead(
        self,
        items: Iterator[T],
        raw_of: Callable[[T], Sample | None],
        budget: ErrorBudget | None = None,
        objects: Objects | None = None,
    ) -> Iterator[T]:
        """Yield some items, and meanwhile fetch the objects of the samples of the items that follow, if they name any.

        Args:
            items: may be read before they are needed.
            raw_of: the raw sample of an item; None if it has none.
            budget: that of the source, if the selection has not chosen the samples yet.
            objects: what to fetch; by default, all objects.
        """
        objects = objects or self.transform.objects
        if objects is None:
            return items
        keeps = None if budget is None else self.build_choice(budget.without_log())

        def fetching(item: T) -> list[tuple[Sample, Any]]:
            raw = raw_of(item)
            try:
                is_kept = raw is not None and (keeps is None or keeps(raw))
            except Exception:  # it is raised when the sample is processed
                is_kept = False
            return [(raw, objects)] if is_kept and raw is not None else []

        return objects.look_ahead(items, fetching)

    def objects_first(self, wrap: Wrapper | None) -> Objects | None:
        """Return what is fetched before samples are processed, or chosen by `wrap`: see `LiveSource`."""
        objects = self.transform.objects
        if objects is None or wrap is None or wrap.decodes_first(self):
            return objects
        return objects.headers

    def choices(self, budget: ErrorBudget) -> tuple[Choose, Choose]:
        """Return the functions that say whether a raw sample is kept, and whether it also is in `again`."""
        choose = self.build_choice(budget)
        if self.again is None:
            return choose, choose
        is_again = Selection(subset=self.again).build(self.transform.fields, None, budget.without_log())
        return choose, lambda raw: choose(raw) and is_again(raw)


def _make_fields(fields: SampleFields, spec: Spec, source: Source, shards: Shards) -> SampleFields:
    """Return the fields of a source with those of `make`, whose files are read now, before workers are forked."""
    named = {field: spec.companions[each.source] for field, each in source.companions.items()}
    fields.companions = {
        field: SourceParts.of(spec, each, shards).transform.fields for field, each in named.items()
    }
    if not source.make:
        return fields
    from wdspec.fields.making import MakingFields  # most sources have none

    making = MakingFields.over(fields, source, partial(numbers_of, spec.seed))
    making.load()
    return making


def _with_objects(parts: SourceParts, spec: Spec, source: Source) -> SourceParts:
    """Return the parts of a source that also fetches the objects that its samples name."""
    from wdspec.read.fetching import find_objects  # most sources have none

    before = parts.transform
    fields, objects = find_objects(before.fields, spec, source, parts.open.storage, before.tags or {})
    transform = replace(before, fields=fields, objects=objects)
    return replace(parts, open=replace(parts.open, fields=fields), transform=transform)


def parts_of(spec: Spec, shards: Shards) -> dict[str, SourceParts]:
    """Return how to read each source of a spec, also those of companions, by name."""
    return {one.name: SourceParts.of(spec, one, shards) for one in (*spec.sources, *spec.companions.values())}


def file_parts_of(spec: Spec, shards: Shards) -> dict[str, SourceParts]:
    """Return how to read the files of samples as bytes. The selection reads them as the spec says."""
    plain = {"map": (), "fields": None, "to_tuple": None}
    found = {}
    for source in spec.sources:
        every = source.model_copy(update={"map": (), "select": None, "expect": None, "scale": None})
        raw = every.model_copy(update={"decode": Decode(names=(RAW,)), "rename": {}, "tags": {}, "make": {}})
        parts, files = (SourceParts.of(spec.model_copy(update=plain), each, shards) for each in (every, raw))
        of_files = files.transform
        if of_files.objects is not None:
            read = replace(of_files.objects, fields=parts.transform.fields, keeps_decoded=False)
            of_files = replace(of_files, objects=read)
        transform = FileTransform(parts.transform.fields, tags=parts.transform.tags, files=of_files)
        selection = parts.selection and replace(parts.selection, keeps_decoded=False)
        found[source.name] = replace(parts, transform=transform, selection=selection)
    return found


class Wrapper(Protocol):
    """Replaces the function that turns raw samples into samples."""

    def decodes_first(self, parts: SourceParts) -> bool:
        """Whether the samples of a source are decoded all the same."""
        ...

    def __call__(self, source: LiveSource, process: Process) -> Process:
        """Return the function that takes the place of `process`."""
        ...


@dataclass(frozen=True)
class LiveSource:
    """A source that is read in one process, for all its slots."""

    plan: SourcePlan
    parts: SourceParts
    budget: ErrorBudget
    functions: UserFunctions
    seed: int
    wrap: Wrapper | None = None
    """Replaces `process`, where samples are chosen before they are decoded, or get companions."""
    draw: Callable[[LiveSource, Process], Process] | None = None
    """Gives raw samples their companions before a function is called with them; None if there are none."""

    def process(self, slot: int) -> Process:
        """Return the function that turns chosen raw samples of a slot into samples. Raises as `Transform.build`."""
        process = self.parts.transform.build(self.budget, self.seed, slot, self.functions, self.parts.open)
        return process if self.wrap is None else self.wrap(self, process)

    def skipping(self, process: Process) -> Process:
        """Return the function that replaces what `process` returned in skipped steps (`build_skipping`)."""
        skip = build_skipping(process, self.budget, self.parts.drops_decoded)
        return skip if self.draw is None or self.parts.drops_decoded else self.draw(self, skip)

    @property
    def objects_first(self) -> Objects | None:
        """What is fetched before samples are processed: all objects, or before they are measured, only headers."""
        return self.parts.objects_first(self.wrap)

    def ahead(
        self, items: Iterator[T], raw_of: Callable[[T], Sample | None], is_chosen: bool = True
    ) -> Iterator[T]:
        """Yield some items, and meanwhile fetch the objects of the samples of the items that follow, if they name any.

        Args:
            items: may be read before they are needed.
            raw_of: the raw sample of an item; None if it has none.
            is_chosen: whether the selection keeps all of these samples.
        """
        objects = self.objects_first
        if objects is None:
            return items
        return self.parts.ahead(items, raw_of, None if is_chosen else self.budget, objects)
