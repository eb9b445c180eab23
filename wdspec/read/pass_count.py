"""Counting the samples of shards from headers, for `epoch: pass` and `wdspec stats`."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from itertools import repeat
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from wdspec.base.amounts import join_names, pluralize
from wdspec.base.errors import ShardError, UsageError, warn_user
from wdspec.base.progress import progress
from wdspec.formats.samples import no_field, only_key
from wdspec.planning.passes import KeptCount, ShardCount, SourceCount, pass_order
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.selection import Selection
from wdspec.read.shard import Piece, SampleReader
from wdspec.read.transform import Process, SourceParts, UserFunctions, parts_of
from wdspec.read.windows import WindowPlanner
from wdspec.shards.lock import find_measured
from wdspec.shards.shards import Shards, read_measurements
from wdspec.spec.measurements import MeasuredShard, Measurements, SampleCosts
from wdspec.spec.reading import changed_selection, digest_costing, is_same_selection
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

MARK_EVERY = 16 * 1024 * 1024
"""Bytes between two marks (stored offsets of samples). Reading from a mark to a sample takes milliseconds, and a
terabyte of shards has 60,000 marks."""
NEAR = 1024 * 1024
"""The same in a pass that reshuffles, whose slots start within several shards when they resume."""


def with_counts(spec: Spec, shards: Shards) -> Shards:
    """Return the shards of a spec with `epoch: pass` with the counts of their samples.

    Every shard is opened, with three exceptions. A source of one shard that declares `samples` is not opened (a wrong
    number is found when it is read). Shards that `wdspec stats` measured are only opened, with a warning, if they have
    changed since. With `limit`, shards after the last sample are not opened and count as empty. The first and the last
    exception do not apply if the pass reshuffles.

    Samples that `subset`, `keys` and `exclude` leave out do not count, nor those that `where` leaves out if `stats` has
    counted them.

    Raises:
        ShardError: a shard cannot be read, or is damaged. Under `errors: skip`, damaged samples are recorded instead,
            and so are the errors of a shard without a readable sample, unless they exceed the budget by themselves.
        UsageError: a source has no samples, or its selection keeps none.
    """
    counts: dict[str, SourceCount] = {}
    measurements, parts = read_measurements(spec), parts_of(spec, shards)
    left = None if spec.reshuffles else spec.limit
    with progress("counting samples", sum(map(len, shards.lists.values()))) as bar:
        for source in spec.sources_by_name:
            listed = shards.lists[source.name]
            if left is not None and left <= 0:
                counts[source.name] = SourceCount.of(())
                continue
            known = measurements if measurements and measurements.of(spec, source) else None
            part, has_costs = parts[source.name], has_windows(spec)
            own_files = shards.files.get(source.name, {})
            counted, selection = _choose_counted(spec, source, part, known, own_files)
            needs_keys = selection is not None or part.again is not None
            is_declared = measurements is None or source.name not in measurements.sources
            is_known = source.samples is not None and len(listed) == 1 and is_declared and not spec.reshuffles
            if is_known and not needs_keys and not has_costs:
                found: Iterable[ShardCount] = [ShardCount(source.samples or 0)]
            else:
                counting = part.with_selection(selection)
                reuses_costs = (  # costs may depend on tables
                    known is not None
                    and not source.lookup
                    and digest_costing(spec, source, own_files) == known.sources[source.name].costing
                )
                found = _count_shards(
                    spec,
                    source,
                    listed,
                    part,
                    counting,
                    left,
                    bar.advance,
                    known,
                    counted == "all",
                    reuses_costs,
                )
            count = SourceCount.of(found, int(source.copies), part.again is not None, counted)
            if not count.samples:
                why = "the source's shards hold no samples"
                if needs_keys:
                    why += ", or none that `where`, `subset`, `keys`, `exclude` and `repeat` keep"
                raise UsageError(why, source=source.name)
            counts[source.name] = count
            if left is not None:
                left -= count.samples
    return replace(shards, counts=counts)


def _choose_counted(
    spec: Spec,
    source: Source,
    parts: SourceParts,
    measurements: Measurements | None,
    files: Mapping[str, str],
) -> tuple[Literal["", "keys", "all"], Selection | None]:
    """Return what part of a selection is counted: all if `stats` has done so, otherwise what keys alone decide."""
    selection = parts.selection
    if selection is None or has_windows(spec):  # the costs say which samples are in a batch
        return "", None
    measured = None if measurements is None else measurements.of(spec, source)
    if measured is not None and measured.keeping and is_same_selection(measured.keeping, spec, source, files):
        return "all", selection
    if spec.reshuffles and selection.by_value is not None:
        keeping = "" if measured is None else measured.keeping
        changed = changed_selection(keeping, spec, source, files)
        raise UsageError(
            "how many samples `where`, `keys_of` or `subset` keeps is not in the file that `stats:` names"
            f"{f', as {join_names(changed)} changed since they were counted' if changed else ''}, and must be known "
            "before an epoch with `reshuffle` starts; run `wdspec stats SPEC`, which says why if it cannot count them",
            source=source.name,
        )
    return ("", None) if selection.by_key is None else ("keys", selection.by_key)


def _count_shards(
    spec: Spec,
    source: Source,
    listed: Sequence[ShardUrl],
    parts: SourceParts,
    counting: SourceParts,
    most: int | None,
    advance: Callable[[], None],
    measurements: Measurements | None,
    has_kept: bool,
    has_costs: bool,
) -> Iterator[ShardCount]:
    """Yield the counts of shards in the order of the pass, up to the shard with sample number `most`.

    Args:
        parts: how to read the source.
        counting: the same with the part of the selection that is counted.
        has_kept: whether the measurements say what that part keeps.
        has_costs: whether they say what samples cost.
    """
    order = pass_order(spec, source, len(listed))
    planner = WindowPlanner.of(spec) if has_windows(spec) else None
    functions = UserFunctions()
    budget = ErrorBudget(parts.errors, source.name).without_log()  # readers count and log these errors
    turns: Iterable[ShardUrl] = (listed[order.entry(0, turn).shard] for turn in range(len(listed)))
    measured: Iterator[MeasuredShard | None] = repeat(None)
    counts_kept = counting.selection is not None or counting.again is not None
    needs_values = counting.selection is not None and counting.selection.by_value is not None
    if measurements is not None:
        turns = list(turns)
        measured = find_measured(measurements, spec, source, parts.open.storage, turns)
    total = changed = 0
    for shard, known in zip(turns, measured, strict=False):
        if most is not None and total >= most:
            break
        costs = known.costs if known is not None and has_costs else None
        keeping = KeepingCount(counting) if counts_kept and not (has_kept and known) else None
        if known is None or not known.samples or (planner and costs is None):
            # It is empty, has errors, which are not measured, or is measured in another way.
            count = count_shard(
                parts.open, shard, budget, None, None if needs_values else keeping, mark_distance(spec)
            )
            changed += known is None
            if planner is not None and count.samples:
                process = parts.transform.build(budget, spec.seed, 0, functions, parts.open)
                lent = functions.generators if parts.transform.has_functions else None
                costs = measure_costs(
                    parts, shard, planner, process, budget, count.samples, lent, total, source.copies < 1
                )
        else:
            count = ShardCount(known.samples, known.marks, frozenset(known.lost))
        if has_kept and known is not None:
            kept, again = (each and KeptCount(*each) for each in (known.kept, known.again))
            count = count._replace(kept=kept, again=again)
        elif keeping is not None and count.kept is count.again is None and count.samples:
            count = keeping.read(shard, count)
        if costs is not None:
            count = count._replace(costs=costs)
            if keeping is not None:
                taken = costs.take(keeping.again)
                count = count._replace(costs_again=taken, bits_again=keeping.bits_again(count))
        # A `limit` ends the pass within the first copy, if that has so many samples.
        total += count.positions if source.copies >= 1 else count.again.samples if count.again else 0
        yield count
        advance()
    if measurements is not None and changed:
        warn_user(
            f"{changed:,} of {pluralize(len(listed), 'shard')} of `{source.name}` "
            f"{'has' if changed == 1 else 'have'} changed since `stats` was written, and "
            f"{'was' if changed == 1 else 'were'} counted again; `wdspec stats SPEC` measures them"
        )


def mark_distance(spec: Spec) -> int:
    """Return the number of bytes between two marks."""
    return NEAR if spec.reshuffles else MARK_EVERY


def has_windows(spec: Spec) -> bool:
    """Whether the batches of a spec are planned from windows."""
    return spec.batch is not None and spec.batch.has_windows


def measure_costs(
    parts: SourceParts,
    shard: ShardUrl,
    planner: WindowPlanner,
    process: Process,
    budget: ErrorBudget,
    count: int,
    lent: AbstractContextManager[object] | None = None,
    start: int = 0,
    is_part: bool = False,
) -> SampleCosts:
    """Return what each of the `count` samples of a shard costs. None has a cost if the shard cannot be opened.

    Args:
        lent: lends the random generators to user functions.
        start: the position of the first sample in a pass, which decides the random numbers of user functions.
        is_part: whether only the samples of `parts.again` are read, so that no others cost anything.

    Raises:
        WdspecError: a sample cannot be read or measured, and the policy is to raise.
    """
    measure: Callable[[dict[str, Any], int], Any] = planner.choose(parts, budget, process)
    choose, choose_again = parts.choices(budget)
    is_read = choose_again if is_part else choose
    costs, *sums = (array("d", [math.nan]) * count for _ in range(1 + len(planner.batch.limits)))
    groups = [None] * count if planner.batch.group_by is not None else []
    try:
        opened = parts.open(Piece(shard), on_error=lambda error: budget(error, "shard", url=shard.text))
    except ShardError as error:  # a partner does not exist; the reader reports it, too
        budget(error, "shard", url=shard.text)
        return SampleCosts(costs, tuple(sums), groups)
    with closing(opened) as samples:
        items = ((raw, samples.next_index - 1) for raw in samples if is_read(raw))
        objects = parts.objects_first(planner)
        for raw, at in items if objects is None else parts.ahead(items, itemgetter(0), objects=objects):
            with lent or nullcontext():
                found = measure(raw, start + at)
            if found is not None:
                costs[at] = found[0]
                for column, each in zip(sums, found[1], strict=True):
                    column[at] = each
                if groups:
                    groups[at] = found[3]
    return SampleCosts(costs, tuple(sums), groups)


class KeepingCount:
    """Counts the samples of a shard that the selection of a source keeps.

    Args:
        parts: how to read the source, with the selection.
        look: gets each sample before the selection does.
    """

    def __init__(self, parts: SourceParts, look: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._parts, self._look = parts, look
        self._budget = ErrorBudget(parts.errors, parts.open.source).without_log()
        self._choose, self._choose_again = parts.choices(self._budget)
        self._kept = array("q")
        """Indices of the samples that are kept."""
        self.again = array("q")
        """Those of them in `again`."""

    def take(self, raw: dict[str, Any], index: int) -> None:
        """Count a raw sample, of which the selection needs no more than what is there."""
        if self._look is not None:
            self._look(raw)
        if self._choose(raw):
            self._kept.append(index)
            if self._parts.again is not None and self._choose_again(raw):
                self.again.append(index)

    def bits_again(self, count: ShardCount) -> bytes:
        """Return which samples of a shard are in `again`, one bit for each sample."""
        is_again = np.zeros(count.samples, np.uint8)
        is_again[self.again] = 1
        return np.packbits(is_again).tobytes()

    def read(self, shard: ShardUrl, count: ShardCount) -> ShardCount:
        """Read what the selection needs of a shard, and return its count with `kept` and `again`.

        Raises:
            WdspecError: the shard cannot be read, or the selection cannot be evaluated.
        """
        parts = self._parts
        needs_values = parts.selection is not None and parts.selection.by_value is not None
        headers, budget = parts.open.headers, self._budget

        def on_error(error: ShardError) -> None:
            budget(error, "shard", url=shard.text)

        try:
            if needs_values:
                opened = parts.selecting(Piece(shard), on_error=on_error)
            else:
                opened = headers.samples(Piece(shard), only_key, on_error, headers.ahead())
        except ShardError as error:  # a partner does not exist
            budget(error, "shard", url=shard.text)
            return ShardCount(0, errors=(error.with_traceback(None),))
        with closing(opened):
            for raw in opened:
                self.take(raw, opened.next_index - 1)
        return self.complete(count)

    def complete(self, count: ShardCount) -> ShardCount:
        """Return the count of a shard with `kept` and `again`, after all its samples were taken."""

        def place(indices: array[int]) -> KeptCount:
            return KeptCount(len(indices), tuple(bisect_left(indices, index) for index, _ in count.marks))

        return count._replace(
            kept=None if self._parts.selection is None else place(self._kept),
            again=None if self._parts.again is None else place(self.again),
        )


def count_shard(
    opener: SampleReader,
    shard: ShardUrl,
    budget: ErrorBudget,
    seen: Callable[[dict[str, Any]], None] | None = None,
    keeping: KeepingCount | None = None,
    distance: int | None = None,
) -> ShardCount:
    """Count the samples of one shard.

    Args:
        opener: opens the shards of the source.
        shard: the shard to count.
        budget: decides which errors to skip.
        seen: called with each sample, a dict of suffix with its dot -> file whose `len` is the size.
        keeping: counts the samples that are kept by their keys; not with `seen`.
        distance: the number of bytes between two marks, by default `MARK_EVERY`.

    Raises:
        ShardError: the shard is damaged and the policy is to raise; or no sample can be read, which no reader would
            report later, and the budget for skips is spent.
    """
    errors: list[ShardError] = []

    def on_error(error: ShardError) -> None:
        if not budget.errors.skips("shard"):
            budget(error, "shard", url=shard.text)
        errors.append(error)

    distance = distance or MARK_EVERY
    index, next_mark = 0, distance
    marks: list[tuple[int, int]] = []
    lost: set[int] = set()
    try:
        headers = opener.headers
        wanted = _name_suffixes if seen is not None else no_field if keeping is None else only_key
        opened = headers.samples(Piece(shard), wanted, on_error, headers.ahead())
    except ShardError as error:
        budget(error, "shard", url=shard.text)
        return ShardCount(0, errors=(error.with_traceback(None),))  # without the frames that read it
    with closing(opened):
        for sample in opened:
            if seen is not None:
                seen(sample)
            following = opened.next_index
            if keeping is not None:
                keeping.take(sample, following - 1)
            if following - index > 1:
                lost.update(range(index, following - 1))
            index = following
            if opened.next_offset >= next_mark:
                marks.append((index, opened.next_offset))
                next_mark = opened.next_offset + distance
        if opened.next_index > index:  # the last sample is damaged
            lost.update(range(index, opened.next_index))
            index = opened.next_index
    if len(lost) == index:
        for cause in errors:
            budget(cause, "shard", url=shard.text)
        return ShardCount(0, errors=tuple(errors))
    count = ShardCount(index, tuple(marks), frozenset(lost))
    return count if keeping is None else keeping.complete(count)


def _name_suffixes(suffix: str) -> str:
    """Return a unique field name for a suffix, also different from wdspec's own fields, so that no sample is lost."""
    return f".{suffix}"
