"""Counts the samples of shards, for `epoch: pass` and `wdspec stats`: from headers alone, before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import repeat
from typing import Any

from wdspec.base.errors import ShardError, UsageError, warn_user
from wdspec.base.progress import progress
from wdspec.planning.passes import ShardCount, SourceCount, pass_order
from wdspec.read.budget import Budget
from wdspec.read.shard import Piece, ShardOpener
from wdspec.read.transform import SourceParts
from wdspec.shards.lock import still_measured
from wdspec.spec.measurements import MeasuredShard, Measurements
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

MARK_EVERY = 16 * 1024 * 1024
"""Bytes between the places of a shard that are remembered; reading up to a sample from the last one takes
milliseconds, and a terabyte of shards has 60,000."""


def count_samples(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    parts: Mapping[str, SourceParts],
    measurements: Measurements | None = None,
) -> dict[str, SourceCount]:
    """The samples of every source of a spec with `epoch: pass`, by name.

    A source of one shard that declares `samples` is taken at its word (and found out when it is read). Shards that were
    measured and are the same now are not opened; those that are not the same are, with a warning. All other shards are
    opened. With `limit`, those behind the first so many samples are not, and count as empty; a pass goes through the
    sources by name.

    Raises:
        ShardError: a shard cannot be read, or is damaged; under `errors: skip`, its damaged samples are noted
            instead, and a shard without a readable sample is skipped within the budget.
        UsageError: a source has no samples at all.
    """
    counts: dict[str, SourceCount] = {}
    left = spec.limit
    with progress("counting samples", sum(len(shards[source.name]) for source in spec.sources)) as bar:
        for source in spec.sources_by_name:
            listed = shards[source.name]
            if left is not None and left <= 0:
                counts[source.name] = SourceCount.of(())
                continue
            known = measurements if measurements and measurements.of(spec, source) else None
            if source.samples is not None and len(listed) == 1 and known is None:
                count = SourceCount.of([ShardCount(source.samples)])
            else:
                count = SourceCount.of(
                    _counted(spec, source, listed, parts[source.name], left, bar.advance, known)
                )
                if not count.samples:
                    raise UsageError("the source's shards hold no samples", source=source.name)
            counts[source.name] = count
            if left is not None:
                left -= count.samples
    return counts


def _counted(
    spec: Spec,
    source: Source,
    listed: Sequence[ShardUrl],
    parts: SourceParts,
    most: int | None,
    advance: Callable[[], None],
    measurements: Measurements | None,
) -> Iterator[ShardCount]:
    """Shard by shard in the order of the pass, up to the one that holds sample number `most`."""
    order = pass_order(spec.seed, source.name, len(listed), source.order)
    budget = Budget(parts.errors, source.name)
    turns = (listed[order.entry(0, turn).shard] for turn in range(len(listed)))
    found: Iterator[tuple[ShardUrl, MeasuredShard | None]] = zip(turns, repeat(None), strict=False)
    if measurements is not None:
        asked = list(turns)
        same = still_measured(measurements, spec, source, parts.open.storage, asked)
        found = zip(asked, same, strict=True)
    total = changed = 0
    for shard, known in found:
        if most is not None and total >= most:
            break
        if known is None:
            count = count_shard(parts.open, shard, budget)
            changed += 1
        else:
            count = ShardCount(known.samples, known.marks, frozenset(known.lost))
        total += count.samples
        yield count
        advance()
    if measurements is not None and changed:
        warn_user(
            f"{changed:,} of {len(listed):,} shards of `{source.name}` are not as `stats` has them, and were counted "
            "again; `wdspec stats SPEC` measures them"
        )


def count_shard(
    opener: ShardOpener,
    shard: ShardUrl,
    budget: Budget,
    seen: Callable[[dict[str, Any]], None] | None = None,
) -> ShardCount:
    """The samples of one shard.

    Args:
        opener: of its source.
        shard: which one.
        budget: what happens to errors.
        seen: gets each sample: the size of each of its files (`len`) under the suffix, with a dot before it.

    Raises:
        ShardError: it is damaged and the policy is to raise; or there is nothing in it to be read, so that
            nobody else would say so, and the budget for skips is spent.
    """
    errors: list[ShardError] = []

    def on_error(error: ShardError) -> None:
        if not budget.errors.skips("shard"):
            budget(error, "shard", url=shard.text)
        errors.append(error)

    index, next_mark = 0, MARK_EVERY
    marks: list[tuple[int, int]] = []
    lost: set[int] = set()
    try:
        headers = opener.headers
        opened = (
            headers(Piece(shard), on_error=on_error)
            if seen is None
            else headers.samples(Piece(shard), _dotted, on_error, headers.ahead())
        )
    except ShardError as error:
        budget(error, "shard", url=shard.text)
        return ShardCount(0)
    with closing(opened):
        for sample in opened:
            if seen is not None:
                seen(sample)
            following = opened.next_index
            if following - index > 1:
                lost.update(range(index, following - 1))
            index = following
            if opened.next_offset >= next_mark:
                marks.append((index, opened.next_offset))
                next_mark = opened.next_offset + MARK_EVERY
        if opened.next_index > index:  # the last one is damaged
            lost.update(range(index, opened.next_index))
            index = opened.next_index
    if len(lost) == index:
        for cause in errors:
            budget(cause, "shard", url=shard.text)
        return ShardCount(0)
    return ShardCount(index, tuple(marks), frozenset(lost))


def _dotted(suffix: str) -> str:
    """A name for each suffix that is no other's, nor that of a field of wdspec's own: no collision loses a sample."""
    return f".{suffix}"
