"""Effective shares: what the YAML says of each source, multiplied out over nested mixes, as exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from wdspec.errors import UsageError
from wdspec.spec.language.models import Source
from wdspec.spec.language.options import MixOptions

Sizer = Callable[[Source], int]
"""A leaf's number of shards, after listing."""


def effective_shares(
    dataset: Sequence[Source], mix: MixOptions, shard_count: Sizer, given: Mapping[str, float] | None = None
) -> dict[str, Fraction]:
    """The share of every leaf in the whole mix, in file order; they sum to 1 exactly.

    Within one list (SPEC, "Shares"): `probability` as written, `weight` normalised, neither: by size, where
    size is ``min(size, cap) ** (1/temperature)`` times `upsample`, and a nested mix is as big as its leaves
    together. Probabilities, which may miss 1 by 1e-6, are normalised too.

    Args:
        given: the shares of this list by name, normalised, instead of what its sources say; one that is not
            named has none.

    Raises:
        UsageError: all shares are 0, or `mix.by` is `samples` or `bytes` and not known of a source, or `temperature`
            leads beyond the numbers that can be calculated with.
    """
    shares: dict[str, Fraction] = {}
    for source, share in zip(dataset, _within(dataset, mix, shard_count, given), strict=True):
        if source.dataset is None:
            shares[source.name] = share
        else:
            inner = effective_shares(source.dataset, source.mix, shard_count) if share else _zeros(source)
            shares.update({name: share * part for name, part in inner.items()})
    return shares


def _within(
    dataset: Sequence[Source], mix: MixOptions, shard_count: Sizer, given: Mapping[str, float] | None
) -> list[Fraction]:
    """The shares of the entries of one list, summing to 1."""
    if given is None:
        amounts = [_amount(source, mix, shard_count) for source in dataset]
    else:
        amounts = [Fraction(given.get(source.name, 0)) for source in dataset]
    total = sum(amounts)
    if not total:
        raise UsageError(
            f"every share is 0 in the mix of {', '.join(s.name for s in dataset)}; give one a share"
        )
    return [amount / total for amount in amounts]


def _amount(source: Source, mix: MixOptions, shard_count: Sizer) -> Fraction:
    for stated in (source.probability, source.weight):
        if stated is not None:
            return Fraction(stated)
    upsample = Fraction(1 if source.upsample is None else source.upsample)
    if mix.by == "equal" or not upsample:
        return upsample
    size = _size(source, mix.by, shard_count)
    if mix.cap is not None:
        size = min(size, mix.cap)
    if mix.temperature is None or mix.temperature == 1:
        return Fraction(size) * upsample
    try:
        return Fraction(math.pow(size, 1 / mix.temperature)) * upsample
    except OverflowError:
        raise UsageError(
            f"{size:,} ^ (1 / {mix.temperature:g}) is no number that can be calculated with; give `temperature` "
            "nearer to 1, or set `cap`",
            source=source.name,
        ) from None


def _size(source: Source, by: str, shard_count: Sizer) -> int:
    if source.dataset is not None:
        return sum(_size(child, by, shard_count) for child in source.dataset)
    if by == "shards":
        return shard_count(source)
    size = source.samples if by == "samples" else source.bytes
    if size is None:
        raise UsageError(
            f"`mix: {{by: {by}}}` needs the size of every source; `wdspec stats SPEC` measures it into the file that "
            f"`stats:` names (what that lacks, `wdspec validate` says); or give `{by}:` to it, or mix by shards",
            source=source.name,
        )
    return size


def _zeros(source: Source) -> dict[str, Fraction]:
    if source.dataset is None:
        return {source.name: Fraction(0)}
    return {name: share for child in source.dataset for name, share in _zeros(child).items()}
