"""`map_batches`: a function of many samples of a shard, such as a model, in jobs. Order and keys are kept."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.user_code import import_function
from wdspec.planning.keys import key64, random64
from wdspec.read.error_budget import ErrorBudget, is_mistake
from wdspec.read.transform import FieldDemand, Sample, SourceParts, Transform, UserFunctions
from wdspec.spec.language.samples import BatchCall, Call
from wdspec.spec.spec import Source, Spec

_OF_READER = ("__key__", "__url__", "__source__")


@dataclass(frozen=True)
class BatchMap:
    """`map_batches` of a spec, and `fields`, which comes after it. It can be pickled."""

    step: BatchCall
    after: Transform
    """Of its steps only `fields`."""

    @classmethod
    def of(cls, spec: Spec, source: Source, parts: SourceParts) -> BatchMap | None:
        """Return that of a source; None if the spec has no `map_batches`."""
        if spec.map_batches is None:
            return None
        after = replace(parts.transform, keep=spec.fields, need=FieldDemand.of(spec, source).late)
        return cls(spec.map_batches, after)

    def run(
        self,
        samples: Generator[Sample],
        budget: ErrorBudget,
        seed: int,
        shard: int,
        functions: UserFunctions,
    ) -> Generator[Sample]:
        """Yield the samples of a shard after `map_batches` and `fields`.

        Random numbers of the function depend on the seed, the source, the shard and the number of the batch.

        Args:
            samples: the samples of the shard, in order; closed with this.
            budget: counts the samples that the function drops, and handles its errors as those of `map`. A batch that
                fails is skipped as a whole.
            seed: of the spec.
            shard: the number of the shard in its source.
            functions: the user functions of this process; the class is built once.

        Raises:
            SpecError: the function cannot be imported or called.
            UsageError: it does not return a sample, or None, for each sample.
        """
        step, after = self.step, self.after
        function = _build(step, functions, after.folder, seed)
        fields = after.projection(budget) if after.keep is not None or after.need else None
        key = key64(seed, "map_batches", budget.source, shard)
        with closing(samples):
            for number, batch in enumerate(_batches(samples, step.batch)):
                for sample in _call(function, step, batch, budget, functions, random64(key, number)):
                    if fields is None:
                        yield sample
                        continue
                    kept = None
                    try:
                        kept = fields(sample, 0)
                    except Exception as error:
                        budget(error, "decode", url=sample.get("__url__"), key=sample.get("__key__"))
                    if kept is None:
                        budget.delivered -= 1
                    else:
                        yield kept


def _batches(samples: Iterator[Sample], most: int) -> Iterator[list[Sample]]:
    while batch := list(islice(samples, most)):
        yield batch


def _build(step: BatchCall, functions: UserFunctions, folder: str, seed: int) -> Callable[..., Any]:
    """Return the function, or the object of a class. Its random numbers depend only on the seed."""
    import_function(step.call, "map_batches", folder)  # it may import torch, whose generator is lent below
    generators = functions.generators
    with generators or nullcontext():
        if generators is not None:
            generators.seed_random_too()
            generators.seed(key64(seed, "map_batches"))
        return functions.function(Call(call=step.call, args=step.args), "map_batches", folder)


def _call(
    function: Callable[..., Any],
    step: BatchCall,
    batch: Sequence[Sample],
    budget: ErrorBudget,
    functions: UserFunctions,
    number: int,
) -> Iterator[Sample]:
    """Yield what the function returns for a batch, without the samples that it drops."""
    generators = functions.generators
    places = [{name: sample[name] for name in _OF_READER if name in sample} for sample in batch]
    try:
        with generators or nullcontext():
            if generators is not None:
                generators.seed(number)
            results = function(list(batch))
    except Exception as error:
        budget.delivered -= len(batch)
        if is_mistake(error) or not budget.errors.skips("map"):
            budget(error, "map", url=places[0].get("__url__"), key=_keys(places))
        for place in places:
            budget(error, "map", url=place.get("__url__"), key=place.get("__key__"))
        return
    _check(results, step, places)
    for place, result in zip(places, results, strict=True):
        if result is None:
            budget.delivered -= 1
            budget.dropped["map_batches"] += 1
            continue
        for name in place:
            if name not in result:
                result[name] = place[name]
        yield result


class BatchCallError(UsageError):
    """A function of `map_batches` returned what it must not, so most likely it does so for every batch."""


def _check(results: Any, step: BatchCall, places: Sequence[Sample]) -> None:
    """Raise BatchCallError unless there is a sample, or None, for each sample of a batch."""
    said = ""
    if not isinstance(results, (list, tuple)):
        said = f"returned {type(results).__name__}, not a list"
    elif len(results) != len(places):
        said = f"returned {len(results):,} samples for a batch of {len(places):,}"
    else:
        wrong = next((each for each in results if each is not None and not isinstance(each, dict)), None)
        if wrong is not None:
            said = f"returned a list with {type(wrong).__name__}, not dict"
    if said:
        raise BatchCallError(
            f"`map_batches: {step.call}` {said}; return a list with a sample for each one, in the same order, or None "
            "to drop it",
            url=places[0].get("__url__"),
            key=_keys(places),
        )


def _keys(places: Sequence[Sample]) -> str:
    """Name the keys of a batch: all of a few, or the first and the last."""
    keys = [str(place.get("__key__")) for place in places]
    return ", ".join(keys) if len(keys) < 4 else f"{keys[0]} … {keys[-1]} ({len(keys):,} samples)"
