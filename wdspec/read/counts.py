"""What a batch has of each source: samples, what they cost, and their tokens, without padding.

Tokens are counted in packed rows, in the first padded field that is a list of integers, and in samples of token files.
Elsewhere their number is unknown (None), which is not 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add, itemgetter
from typing import Any, NamedTuple

import numpy as np

from wdspec.read.rows import TableRows
from wdspec.read.transform import Sample
from wdspec.spec.language.values import MASK
from wdspec.spec.spec import Source, Spec

_SOURCE, _MASK = itemgetter("__source__"), itemgetter(MASK)
TOKENS = "tokens"
"""The field of a sample of a token file."""


class Amount(NamedTuple):
    """How much of a source was received. None stands for a number that is unknown."""

    samples: int | None = 0
    """Samples; one that packing has cut counts with the part that has its start."""
    cost: float | None = 0
    """What they cost, by `batch.cost`."""
    tokens: int | None = 0
    """Tokens, without padding."""

    def plus(self, *others: tuple[Any, Any, Any]) -> Amount:
        """Return the sum, added up one after the other; unknown where one of them is."""
        columns = zip(self, *others, strict=True)
        return Amount(*(None if None in column else reduce(add, column) for column in columns))


Amounts = dict[str, Amount]
"""Source -> how much of it. Sources that are not there have nothing."""


TokenFields = Mapping[str, "int | None"]
"""The fields in which the tokens of a sample are counted, in the first of them that it has, and to what length a batch
cuts it; None if it does not."""


def token_fields(spec: Spec) -> dict[str, TokenFields]:
    """Return the fields in which the tokens of each source are counted."""
    batch = spec.batch
    if batch is not None and batch.pack is not None:
        return {source.name: {batch.pack.fields[0]: None} for source in spec.sources}
    ways = batch.collate.fields if batch is not None and batch.collate is not None else {}
    padded = {name: how.padding for name, how in ways.items() if how.padding}
    cut = {name: pad.limit if pad.length is None else pad.length for name, pad in padded.items()}
    return {source.name: dict.fromkeys((*cut, *_own_field(source))) | cut for source in spec.sources}


def must_count_tokens(spec: Spec) -> bool:
    """Whether tokens have to be counted, because they do not follow from the number of samples."""
    fields = token_fields(spec)
    return any(
        fields[source.name] != dict.fromkeys(_own_field(source))
        or (source.tokens is not None and (source.tokens.length is None or bool(spec.map or source.map)))
        for source in spec.sources
    )


def _own_field(source: Source) -> tuple[str, ...]:
    """Return the field of a source that has the tokens of a token file."""
    if source.tokens is None:
        return ()
    return (next((new for new, olds in source.rename.items() if TOKENS in olds), TOKENS),)


def count_tokens(sample: Mapping[str, Any], fields: TokenFields) -> int | None:
    """Return the number of elements of the first of these fields that is a list of integers; None if none is.

    A list of nothing may be one of images, so it counts only if there is no other.
    """
    tokens = None
    for name, most in fields.items():
        value: Any = sample.get(name)
        if isinstance(value, np.ndarray):
            is_tokens = value.ndim == 1 and value.dtype.kind in "iu"
        elif hasattr(value, "is_floating_point"):  # a tensor; samples can be read without torch
            is_tokens = value.ndim == 1 and not value.is_floating_point()
        else:
            is_tokens = isinstance(value, (list, tuple)) and all(type(each) is int for each in value[:1])
        if is_tokens:
            tokens = len(value) if most is None else min(len(value), most)
            if tokens:
                break
    return tokens


Counts = dict[str, tuple["int | None", "float | None", "int | None"]]
"""Source -> how much a batch has of it: as `Amount`, in plain tuples, which are sent faster."""


def sum_tokens(samples: Sequence[Sample], fields: TokenFields, is_packed: bool = False) -> int | None:
    """Return the number of tokens of samples of one source; None if it is unknown.

    Args:
        samples: the samples.
        fields: the fields in which they may have tokens.
        is_packed: whether they have them in the first one, of whatever type, as rows are packed of it.
    """
    if not fields:
        return None
    if is_packed:
        try:
            return sum(map(len, map(itemgetter(*fields), samples)))
        except (KeyError, TypeError):  # no such field, or nothing in it that has a length
            return None
    total = 0
    for sample in samples:
        tokens = count_tokens(sample, fields)
        if tokens is None:
            return None
        total += tokens
    return total


class CountedSamples(list[Sample]):
    """The samples of a batch that are already counted."""

    amounts: Counts


def count_samples(samples: Sequence[Sample], fields: Mapping[str, TokenFields]) -> Counts | None:
    """Return how much a batch has of each source; None if a sample does not say from which source it is.

    Args:
        samples: finished samples; those with `__mask__` False are padding.
        fields: the fields in which tokens are counted, by source (`token_fields`).
    """
    if isinstance(samples, CountedSamples):
        return samples.amounts
    if isinstance(samples, TableRows):
        needed = {"__source__", *(name for names in fields.values() for name in names)}
        samples = list(
            TableRows({name: values for name, values in samples.columns.items() if name in needed})
        )
    try:
        if samples and MASK in samples[0] and False in map(_MASK, samples):
            samples = [sample for sample in samples if sample[MASK]]
        sources = list(map(_SOURCE, samples))
    except KeyError:
        return None
    is_one = bool(sources) and sources.count(sources[0]) == len(sources)  # faster than to count all
    numbers = {sources[0]: len(sources)} if is_one else Counter(sources)
    if not fields.keys() >= numbers.keys():
        return None
    counts: Counts = {}
    for source, number in numbers.items():
        tokens = None
        if fields[source]:
            own = [sample for sample in samples if sample["__source__"] == source]
            tokens = sum_tokens(own, fields[source])
        counts[source] = number, None, tokens
    return counts
