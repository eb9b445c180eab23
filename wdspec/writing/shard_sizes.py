"""How many samples each shard gets, so that all are about as large: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from wdspec.errors import UsageError


def by_count(samples: int, *, shards: int | None = None, most: int | None = None) -> list[int]:
    """The samples of each shard: equal but for one.

    Args:
        samples: in all.
        shards: how many shards to fill (fewer if there are fewer samples).
        most: samples in a shard at most, where `shards` is not given.
    """
    if not samples:
        return []
    number = shards if shards is not None else -(-samples // most) if most else 1
    number = min(number, samples)
    return [(samples * (n + 1)) // number - (samples * n) // number for n in range(number)]


def by_size(sizes: Sequence[int], *, shards: int | None = None, most: float | None = None) -> list[int]:
    """The samples of each shard, so that they have about as many bytes; consecutive samples stay together.

    Args:
        sizes: bytes of each sample.
        shards: how many shards to fill.
        most: bytes in a shard at most, where `shards` is not given; a sample that is larger gets its own.

    A cut is made at the sample boundary nearest to the equal share, so with `shards` none is off by more than a
    sample's size. With `most` the number of shards is raised until all fit.
    """
    if not sizes:
        return []
    if shards is not None:
        return _cut(sizes, min(shards, len(sizes)))
    if not most:
        return [len(sizes)]
    number = max(1, -int(-sum(sizes) // most))
    while number < len(sizes):
        counts = _cut(sizes, number)
        ends = list(accumulate(counts, initial=0))
        sums = [sum(sizes[a:b]) for a, b in pairwise(ends)]
        over = [total for total, count in zip(sums, counts, strict=True) if total > most and count > 1]
        if not over:
            return counts
        number += max(1, number // 50)
    return [1] * len(sizes)


def _cut(sizes: Sequence[int], number: int) -> list[int]:
    totals = list(accumulate(sizes))
    total = totals[-1]
    counts, begin = [], 0
    for n in range(1, number + 1):
        last = len(sizes) - (number - n)  # each later shard gets a sample too
        end = begin + 1
        share = total * n / number
        # Up to the boundary that is nearest to this shard's share of the total.
        while end < last and (totals[end - 1] + totals[end]) / 2 <= share:
            end += 1
        if n == number:
            end = len(sizes)
        counts.append(end - begin)
        begin = end
    return counts


def check_limits(shards: int | None, maxcount: int | None, maxsize: float | None) -> None:
    """Raises UsageError for more than one of the ways to say how large shards are."""
    if sum(limit is not None for limit in (shards, maxcount, maxsize)) > 1:
        raise UsageError("give one of --shards, --maxcount and --maxsize: each decides how large shards are")
