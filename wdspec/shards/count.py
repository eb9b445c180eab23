"""Counting the samples of shards from headers, for `epoch: pass` and `wdspec stats`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import repeat
from typing import Any

from wdspec.base.errors import ShardError, UsageError, warn_user
from wdspec.base.progress import progress
from wdspec.planning.passes import ShardCount, SourceCount, pass_order
from wdspec.read.budget import Budget
from wdspec.read.shard import Piece, ShardOpener
from wdspec.read.transform import Process, SourceParts, UserFunctions
from wdspec.read.windows import WindowPlanner
from wdspec.shards.lock import find_measured
from wdspec.spec.measurements import MeasuredShard, Measurements, costing_of
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

MARK_EVERY = 16 * 1024 * 1024
"""Bytes between two marks (stored offsets of samples). Reading from a mark to a sample takes milliseconds, and a
terabyte of shards has 60,000 marks."""


def count_samples(
    spec: Spec,
    shards: Mapping[str, Sequence[ShardUrl]],
    parts: Mapping[str, SourceParts],
    measurements: Measurements | None = None,
) -> dict[str, SourceCount]:
    """Count the samples of a spec with `epoch: pass`: source name -> counts.

    Every shard is opened, with three exceptions. A source of one shard that declares `samples` is not opened (a wrong
    number is found when it is read). Shards that `wdspec stats` measured are only opened, with a warning, if they have
    changed since. With `limit`, shards after the last sample are not opened and count as empty.

    Raises:
        ShardError: a shard cannot be read, or is damaged. Under `errors: skip`, damaged samples are recorded instead,
            and so are the errors of a shard without a readable sample, unless they exceed the budget by themselves.
        UsageError: a source has no samples.
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
            if source.samples is not None and len(listed) == 1 and known is None and not has_windows(spec):
                count = SourceCount.of([ShardCount(source.samples)])
            else:
                count = SourceCount.of(
                    _count_shards(spec, source, listed, parts[source.name], left, bar.advance, known)
                )
                if not count.samples:
                    raise UsageError("the source's shards hold no samples", source=source.name)
            counts[source.name] = count
            if left is not None:
                left -= count.samples
    return counts


def _count_shards(
    spec: Spec,
    source: Source,
    listed: Sequence[ShardUrl],
    parts: SourceParts,
    most: int | None,
    advance: Callable[[], None],
    measurements: Measurements | None,
) -> Iterator[ShardCount]:
    """Yield the counts of shards in the order of the pass, up to the shard with sample number `most`."""
    order = pass_order(spec.seed, source.name, len(listed), source.order)
    planner = WindowPlanner.of(spec) if has_windows(spec) else None
    same_costs = (
        measurements is not None and costing_of(spec, source) == measurements.sources[source.name].costing
    )
    budget = Budget(parts.errors, source.name).without_log()  # readers count and log these errors
    turns: Iterable[ShardUrl] = (listed[order.entry(0, turn).shard] for turn in range(len(listed)))
    measured: Iterator[MeasuredShard | None] = repeat(None)
    if measurements is not None:
        turns = list(turns)
        measured = find_measured(measurements, spec, source, parts.open.storage, turns)
    total = changed = 0
    for shard, known in zip(turns, measured, strict=False):
        if most is not None and total >= most:
            break
        costs = array("d", known.costs) if known is not None and known.costs and same_costs else None
        if known is None or not known.samples or (planner and costs is None):
            # It is empty, has errors, which are not measured, or is measured in another way.
            count = count_shard(parts.open, shard, budget)
            changed += known is None
            if planner is not None and count.samples:
                process = parts.transform.build(budget, spec.seed, 0, UserFunctions(), parts.open)
                costs = measure_costs(parts, shard, planner, process, budget, count.samples)
        else:
            count = ShardCount(known.samples, known.marks, frozenset(known.lost))
        count = count._replace(costs=costs)
        total += count.samples
        yield count
        advance()
    if measurements is not None and changed:
        warn_user(
            f"{changed:,} of {len(listed):,} shards of `{source.name}` have changed since `stats` was written, so they "
            "were counted again; `wdspec stats SPEC` measures them"
        )


def has_windows(spec: Spec) -> bool:
    """Whether the batches of a spec are planned from windows."""
    return spec.batch is not None and spec.batch.has_windows


def measure_costs(
    parts: SourceParts,
    shard: ShardUrl,
    planner: WindowPlanner,
    process: Process,
    budget: Budget,
    count: int,
    lent: AbstractContextManager[object] | None = None,
) -> array[float]:
    """Return what each of the `count` samples of a shard costs, NaN for those that are in no batch.

    Raises:
        WdspecError: a sample cannot be read or measured, and the policy is to raise.
    """
    measure: Callable[[dict[str, Any], int], Any] = planner.choose(parts, budget, process)
    is_kept = parts.build_choice(budget)
    costs = array("d", [math.nan]) * count
    with closing(
        parts.open(Piece(shard), on_error=lambda error: budget(error, "shard", url=shard.text))
    ) as samples:
        for raw in samples:
            if is_kept(raw):
                with lent or nullcontext():
                    found = measure(raw, samples.next_index - 1)
                if found is not None:
                    costs[samples.next_index - 1] = found[0]
    return costs


def count_shard(
    opener: ShardOpener,
    shard: ShardUrl,
    budget: Budget,
    seen: Callable[[dict[str, Any]], None] | None = None,
) -> ShardCount:
    """Count the samples of one shard.

    Args:
        opener: opens the shards of the source.
        shard: the shard to count.
        budget: decides which errors to skip.
        seen: called with each sample, a dict of suffix with its dot -> file whose `len` is the size.

    Raises:
        ShardError: the shard is damaged and the policy is to raise; or no sample can be read, which no reader would
            report later, and the budget for skips is spent.
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
            else headers.samples(Piece(shard), _name_suffixes, on_error, headers.ahead())
        )
    except ShardError as error:
        budget(error, "shard", url=shard.text)
        return ShardCount(0, errors=(error.with_traceback(None),))  # without the frames that read it
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
        if opened.next_index > index:  # the last sample is damaged
            lost.update(range(index, opened.next_index))
            index = opened.next_index
    if len(lost) == index:
        for cause in errors:
            budget(cause, "shard", url=shard.text)
        return ShardCount(0, errors=tuple(errors))
    return ShardCount(index, tuple(marks), frozenset(lost))


def _name_suffixes(suffix: str) -> str:
    """Return a unique field name for a suffix, also different from wdspec's own fields, so that no sample is lost."""
    return f".{suffix}"
