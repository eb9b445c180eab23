"""`Windows`, a part of a slot: batches that are planned from windows of samples, by what these cost or have in common.

The part reads a window of raw samples, measures them by their headers, and plans batches of them
(`planning/windows.py`). It decodes the samples of a batch when the batch is requested. Samples that are measured by
fields that `map` sets are decoded and mapped before, so a window of finished samples is kept. A window starts where the
last one ended, so a state is the state of the part below before the window, the number of the window, the turn at which
it was begun, and how many of its batches were given. A resumed run reads and measures the window again, and decodes
only the samples of the batches that remain, or again all of them.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from math import inf
from operator import itemgetter
from typing import Any
from zlib import crc32

import numpy as np

from wdspec.base.errors import FieldError, LeftOutError, ShardError, UsageError, WdspecError
from wdspec.base.user_code import check_arguments, import_function
from wdspec.fields.decode import one_line
from wdspec.fields.measures import FINISHED, SIZES, Measures, Reader, as_number
from wdspec.fields.samples import MAX_LAYOUTS
from wdspec.planning import windows
from wdspec.planning.keys import key64
from wdspec.planning.passes import WindowPlace
from wdspec.read.counts import Amount, CountedSamples, Counts, TokenFields, sum_tokens, token_fields
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.sections import Begun, SectionDraws
from wdspec.read.slot import Part, Slot
from wdspec.read.source import StreamState
from wdspec.read.transform import LiveSource, Process, Sample, SourceParts
from wdspec.spec.language.batch import Batch, Packing
from wdspec.spec.language.expressions import (
    PathBeforeMap,
    describe_held_media,
    describe_path,
    parse_expression,
    parse_together,
)
from wdspec.spec.spec import Spec

log = logging.getLogger("wdspec")

_BARREN = 20
"""Consecutive windows without a batch after which an error is raised."""
_LIMIT = 1e15
_LONG = 5.0
"""Seconds after which it is logged that the first batch waits for a window."""
_logged: list[float] = []
"""These seconds, once they were logged."""
_CHECKED = 1 << 32
MAY_REPEAT = 1 << 40
"""Added to the check of a place: if the window is another one now, it is given again."""
PLANNED_WHOLE = 1 << 41
"""Added to the check of a place in a window that an older release planned, with copies of samples in its batches."""
_NOTED = 8
"""One window of so many has the costs of its samples counted, besides the first one of each slot."""


@dataclass(frozen=True, eq=False)
class Finish:
    """What is still to be done to samples of a window. Compared by identity, as each batch asks for those of it."""

    process: Process | None
    """Decodes it; None if measuring has already decoded all of it."""
    budget: ErrorBudget
    drops: bool = False
    """Whether `process` may leave out samples."""
    is_counted: bool = False
    """Whether the sample was counted as delivered before it was measured."""
    is_rest: bool = False
    """Whether it is a part of a sample without its start, with which the sample counts."""


Candidate = tuple[float, Sequence[float], float, Hashable, Sample, Finish, int, Sequence[Any]]
"""A sample of a window: its cost; its part of each of the `limits`, and of `balance`; its value of `group_by`; the raw
sample; what is still to be done to it; its ordinal; and its values of `Batch.of_parts`.

A plain tuple, as each sample gets one: a named tuple takes four times as long.
"""
COST, SUMS, RAW, KEY = itemgetter(0), itemgetter(1), itemgetter(4), itemgetter("__key__")
PlannedBatch = list[Candidate]
NameOf = Callable[[Candidate], Hashable]
"""Returns the same for copies of a sample."""

_NONE: tuple[float, ...] = ()
_ABSENT = object()
"""Stands for the cost of a sample that `missing: skip` leaves out."""


def name_sample(candidate: Candidate) -> Hashable:
    """Return the name of a sample, which copies of it have, too."""
    raw = candidate[4]
    return raw["__url__"], raw["__key__"]


def _have_own_keys(samples: Sequence[Candidate]) -> bool:
    """Whether all keys differ, so that no sample is a copy by `name_sample`, which takes twice as long."""
    return len(set(map(KEY, map(RAW, samples)))) == len(samples)


def _keep(sample: Sample, ordinal: int) -> Sample:
    """Return a sample that was decoded before it was measured."""
    return sample


class CostedSamples(CountedSamples):
    """The samples of a batch, and what each of them costs."""

    costs: list[float]


class _Meter:
    """Measures the raw samples of a source, by the expressions of a batch."""

    def __init__(self, planner: WindowPlanner, parts: SourceParts, is_finished: bool = False) -> None:
        batch, pack, self._text = planner.batch, planner.batch.pack, planner.cost
        self._parts, self._is_finished, transform = parts, is_finished, parts.transform
        self._packed = None if batch.cost is not None or pack is None else pack.fields[0]
        """The field whose length is the cost."""
        self.function = None
        if self._text is not None and batch.is_by_function:
            self.function = import_function(self._text, "batch.cost", planner.folder)
            check_arguments(self.function, f"batch.cost: {self._text}", 1)
        texts = ["1" if self._text is None or self.function else self._text, *batch.limits]
        self._is_plain = len(texts) == 1 and not (batch.balance or batch.group_by or batch.of_parts)
        """Whether the cost is the only thing to measure."""
        if self._is_plain:
            expression = parse_expression(texts[0], planner.costs)
        else:
            texts += [batch.balance or "0", batch.group_by or "none", *batch.of_parts.values()]
            expression = parse_together(texts, planner.costs)
        self._evaluate = None if expression.source == "v0" else expression.evaluate
        read = frozenset(str(path[0]) for path in expression.paths if not isinstance(path, PathBeforeMap))
        self.after_map = read & transform.set_fields
        """The fields that are read from samples after `map`, if these are not finished anyway."""
        self._measure = Measures(
            transform.fields,
            expression.paths,
            expression.optional,
            transform.tags,
            not batch.cuts_samples,
            None if is_finished else self.after_map,
            any(call.field is None and not call.sets for call in transform.maps),
            self._packed,
        )
        self._limits, self._balance, self._group_by = tuple(batch.limits), batch.balance, batch.group_by
        self._multiple = pack.pad_to_multiple_of if pack else 1
        self._most, self._rules = batch.limit, windows.rules_of(batch)
        self._limit = batch.limit_name
        self._cuts, self._overlong, self._remedy = batch.cuts_samples, batch.overlong, batch.remedy_for_long
        needs_more = batch.limits or batch.balance is not None or self._multiple > 1
        self._quick = 0 if needs_more else min(self._rules.capacity, _LIMIT)
        """An integer cost up to this needs no further check."""

    @property
    def decodes_first(self) -> bool:
        """Whether samples are decoded before they are measured."""
        return self.function is not None or bool(self._parts.transform.selects) or bool(self.after_map)

    def chooser(self, budget: ErrorBudget, process: Process) -> Callable[..., Any]:
        """Return the function from raw samples (and, with `_keep`, decoded ones) to `Candidate`s.

        It runs once for every sample.
        """
        layouts: dict[tuple[str, ...], tuple[Reader, Finish]] = {}
        drops, only_decodes = self._parts.drops_decoded, self._parts.transform.only_decodes
        later = Finish(None if process is _keep else process, budget, drops, self._is_finished)
        done = Finish(None, budget, is_counted=self._is_finished)
        is_plain, function, first = self._is_plain, self.function, 1 + len(self._limits)
        group_by = self._group_by
        most, needs_finished = self._quick, self._is_finished or bool(self.after_map)

        def study(names: tuple[str, ...], sample: Sample | None) -> tuple[Reader, Finish]:
            held = self._parts.transform.fields.media.intersection(sample or ()) if needs_finished else ()
            if held:
                problem = describe_held_media(min(held), self._parts.open.source, self._is_finished)
                raise UsageError("; ".join(problem))
            if len(layouts) > MAX_LAYOUTS:
                layouts.clear()
            read, is_whole = self._measure.study(names, self._evaluate, _ABSENT)
            layouts[names] = read, done if is_whole and only_decodes else later
            return layouts[names]

        def weigh(raw: Sample, ordinal: int, sample: Sample | None) -> Candidate | None:
            names = tuple(raw)
            read, finish = layouts.get(names) or study(names, sample)
            found = read({**raw, FINISHED: sample} if needs_finished else raw)
            if found is _ABSENT:
                budget.dropped["missing"] += 1
                return None
            cost, sums, weight, value, of_parts = found, _NONE, 0, None, _NONE
            if not is_plain:
                (cost, *sums), (weight, value, *of_parts) = found[:first], found[first:]
                value = _check_group(value, group_by)
            if function is not None:
                cost = as_number(function(sample))
            if cost.__class__ is not int or not 0 < cost <= most:
                cost = self._weigh(cost, sums, weight)
            if cost is None:
                budget.dropped["overlong"] += 1
                return None
            return cost, sums, weight, value, sample or raw, finish, ordinal, of_parts

        def choose(raw: Sample, ordinal: int, sample: Sample | None = None) -> Candidate | None:
            try:
                return weigh(raw, ordinal, sample)
            except LeftOutError as error:
                budget.dropped[error.cause] += 1
                return None
            except Exception as error:
                cause = _name(error).at(source=budget.source, url=raw["__url__"], key=raw["__key__"])
                if self._is_finished:
                    budget(cause, "map", url=raw["__url__"], key=raw["__key__"])
                    return None
            try:
                held = {SIZES: raw[SIZES]} if SIZES in raw else {}
                return self._parts.open.try_again(
                    raw, cause, lambda stored: weigh({**stored, **held}, ordinal, sample)
                )
            except Exception as error:
                budget(_name(error), "decode", url=raw["__url__"], key=raw["__key__"])
                return None

        def choose_quickly(raw: Sample, ordinal: int) -> Candidate | None:
            try:
                read, finish = layouts[tuple(raw)]
                cost = read(raw)
                if cost.__class__ is int and 0 < cost <= most:  # most samples, and most specs
                    return cost, _NONE, 0, None, raw, finish, ordinal, _NONE
            except Exception:
                pass
            return choose(raw, ordinal)  # which reports what is wrong

        return choose_quickly if is_plain and process is not _keep else choose

    def _weigh(self, cost: Any, sums: Sequence[Any], weight: Any) -> float | None:
        """Return a cost, perhaps padded; None for a sample to drop. Raises FieldError if it cannot be used."""
        for each, text in zip(sums, self._limits, strict=True):
            _check(each, text, 0)
        _check(weight, self._balance, 0)
        if self._packed is not None and not cost:
            path = describe_path((self._packed, "length"))
            hint = f"leave such samples out by `where: {path} > 0`, or by `select` if `map` makes it"
            raise FieldError(f"`{self._packed}` is empty; {hint}")
        _check(cost, self._text)
        if self._cuts and cost != int(cost):
            raise FieldError(
                f"`{self._text}` is {cost:g}, but `pack` cuts samples by whole elements; leave out `batch.cost` to use "
                "the length of what is packed"
            )
        if self._multiple > 1:
            cost = -(-cost // self._multiple) * self._multiple
        is_long = not self._cuts and not self._rules.fits(1, cost, cost, sums)
        if is_long and self._overlong == "error":
            raise FieldError(self._describe_long(cost))
        return None if is_long and self._overlong == "drop" else cost

    def _describe_long(self, cost: float) -> str:
        """Return the message for a sample that exceeds the limits alone."""
        limits = (
            f"{self._limit} is {self._most:g}"
            if self._most and cost > self._rules.capacity
            else "one of the `limits` is less"
        )
        has = f"costs {cost:g}" if self._packed is None else f"has {cost:,g} elements of `{self._packed}`"
        return f"the sample {has}, and {limits}; {self._remedy}"


@dataclass(frozen=True)
class WindowPlanner:
    """How windows become batches: what the keys of `batch` say."""

    batch: Batch
    costs: Mapping[str, str]
    """The named expressions of the spec."""
    folder: str = ""
    """The folder of the spec, which is searched for user functions first."""
    notes_costs: bool = False
    """Whether to count what samples cost, by source, to find drifts of `mix: {shares_in: cost}`."""
    token_fields: Mapping[str, TokenFields] = field(default_factory=dict)
    """The fields in which tokens are counted, by source."""

    @classmethod
    def of(cls, spec: Spec) -> WindowPlanner:
        """Return the planner of a spec whose batches are planned from windows."""
        assert spec.batch is not None, "the spec has a batch"
        in_cost = any(mix.shares_in != "samples" for mix in spec.mixes)
        return cls(spec.batch, spec.costs, spec.folder, in_cost, token_fields(spec))

    @property
    def cost(self) -> str | None:
        """The cost of a sample: by default, the length of the first field that is packed."""
        pack = self.batch.pack
        if self.batch.cost is None and pack is not None:
            return f"fields[{pack.fields[0]!r}].length"
        return self.batch.cost

    def decodes_first(self, parts: SourceParts) -> bool:
        """Whether the samples of a source are decoded before they are measured."""
        return _Meter(self, parts).decodes_first

    def waits(self, parts: SourceParts) -> bool:
        """Whether measuring takes long enough to read the next window while the batches of one are given."""
        return parts.objects_first(self) is not None or self.decodes_first(parts)

    def __call__(self, source: LiveSource, process: Process) -> Process:
        """Return `choose` of a source."""
        return self.choose(source.parts, source.budget, process)

    def choose(self, parts: SourceParts, budget: ErrorBudget, process: Process) -> Process:
        """Return the function from raw samples of a source to `Candidate`s, in place of decoding them."""
        meter = _Meter(self, parts)
        if not meter.decodes_first:
            return parts.transform.before_measuring(meter.chooser(budget, process), budget)
        choose = meter.chooser(budget, _keep)

        def decode_and_choose(raw: Sample, ordinal: int) -> Any:
            sample = process(raw, ordinal)
            if sample is None:
                return None
            budget.delivered -= 1  # it is counted when its batch is given
            return choose(raw, ordinal, sample)

        return decode_and_choose

    def batches(
        self,
        samples: Iterable[Candidate],
        window: int,
        turn: int,
        slot_key: int,
        step_key: int,
        name_of: NameOf | None = None,
    ) -> Iterable[PlannedBatch]:
        """Return the batches of a window, in the order in which they are given: a list if all samples are read first.

        Args:
            samples: the samples of the window.
            window: the number of the window.
            turn: the turn of the slot at which it starts.
            slot_key: decides the order of batches, in each slot another one.
            step_key: decides which group comes at a turn, the same in all slots of a step.
            name_of: names the samples, to keep copies apart; None to not do so.
        """
        if self.batch.group_by is not None:
            return self._gather(samples, step_key, turn, name_of)
        return self._plan(list(samples), key64(slot_key, window), turn, name_of)

    def _plan(
        self, samples: Sequence[Candidate], key: int, turn: int, name_of: NameOf | None
    ) -> list[PlannedBatch]:
        if self.notes_costs and not (turn and key % _NOTED):
            self._note_costs(samples)
        costs = np.fromiter(map(COST, samples), np.float64, len(samples))
        sums = np.zeros((len(samples), 0))
        if self.batch.limits and samples:
            sums = np.array(list(map(SUMS, samples)), dtype=np.float64)
        copies = None
        if name_of is not None and not (name_of is name_sample and _have_own_keys(samples)):
            copies = windows.find_copies(list(map(name_of, samples)))
        pieces, batches = windows.plan_batches(costs, sums, self.batch, copies)
        if pieces is not None:
            assert self.batch.pack is not None, "only packed samples are cut"
            lost = set[int]()
            samples = [_cut(samples[piece[0]], piece, self.batch.pack, lost) for piece in pieces]
        if self.batch.balance:
            order = windows.balance([sum(samples[at][2] for at in batch) for batch in batches], turn)
        else:
            order = windows.permute(len(batches), key)
        return [[samples[at] for at in batches[number]] for number in order]

    def _gather(
        self, samples: Iterable[Candidate], key: int, turn: int, name_of: NameOf | None
    ) -> Iterator[PlannedBatch]:
        """Yield the batches of a window of `group_wait` samples, while it is read."""

        def drop(left: Sequence[Candidate]) -> None:
            for each in left:
                each[5].budget.dropped["incomplete"] += 1

        batch = self.batch
        return windows.gather_groups(
            samples, windows.rules_of(batch), batch.incomplete, drop, batch.window, key, turn, name_of
        )

    def _note_costs(self, samples: Sequence[Candidate]) -> None:
        """Count what the samples of a window cost, truncated if they will be."""
        limit = self.batch.limit
        most = limit if self.batch.overlong == "truncate" and limit is not None else inf
        for each in samples:
            cost, budget = min(each[0], most), each[5].budget
            budget.measured += 1
            budget.measured_cost += cost
            budget.measured_squares += cost * cost


def _cut(whole: Candidate, piece: windows.Piece, pack: Packing, lost: set[int]) -> Candidate:
    """Return a candidate for a part of a sample. Samples of which a part cannot be decoded are added to `lost`."""
    cost, sums, weight, value, raw, finish, ordinal, of_parts = whole
    _, start, stop = piece
    if (start, stop) != (0, cost) or finish.process is None:
        process = _cutting(finish, int(cost), piece, pack, lost)
        finish = Finish(process, finish.budget, finish.drops, finish.is_counted, is_rest=start > 0)
    return float(stop - start), sums, weight, value, raw, finish, ordinal, of_parts


def _cutting(finish: Finish, length: int, piece: windows.Piece, pack: Packing, lost: set[int]) -> Process:
    """Return the function that decodes a sample of a length, and cuts its packed fields.

    A sample that cannot be decoded, or is dropped, is so once, however many parts it has.
    """
    budget, (place, start, stop) = finish.budget, piece

    def process(raw: Sample, ordinal: int) -> Sample | None:
        if place in lost:
            return None
        sample = raw if finish.process is None else finish.process(raw, ordinal)
        if sample is None:
            lost.add(place)
            return None
        if finish.process is None and not finish.is_counted:
            budget.delivered += 1
        cut = dict(sample)
        for name in pack.fields:
            if name in sample and len(sample[name]) != length:
                error = FieldError(
                    f"`{name}` has {len(sample[name])} elements, but the sample costs {length}; to cut samples, "
                    "`batch.cost` must be the length of what is packed",
                    source=sample.get("__source__"),
                )
                budget(error, "decode", url=sample.get("__url__"), key=sample.get("__key__"), field=name)
                lost.add(place)
                return None
            if name in sample:
                cut[name] = sample[name][start:stop]
        return cut

    return process


def weigh(batch: PlannedBatch) -> tuple[list[float], float]:
    """Return the costs of the samples of a batch, and its weight for `balance`."""
    return list(map(COST, batch)), sum(each[2] for each in batch)


def give(batch: PlannedBatch, planner: WindowPlanner) -> CostedSamples:
    """Return the samples of a batch, decoded and counted. Those that cannot be decoded are left out."""
    samples = CostedSamples()
    lost: list[int] = []
    """The number of samples before each one that is left out."""
    by_finish: dict[Finish, list[float]] = defaultdict(list)
    """The costs of the samples to which the same is still to be done."""
    finish: Finish | None = None
    for cost, _, _, _, raw, other, ordinal, _ in batch:  # faster than columns, as most samples need no more
        if other is not finish:
            finish, process, costs = other, other.process, by_finish[other]
        sample = raw if process is None else process(raw, ordinal)
        if sample is None:
            lost.append(len(samples))
        else:
            samples.append(sample)
            costs.append(cost)
    given = batch.copy() if lost else batch
    for at in lost:
        del given[at]
    samples.costs = list(map(COST, given))
    tokens = _sum_tokens(samples, given, planner) if any(planner.token_fields.values()) else {}
    amounts: Counts = {}
    for finish, costs in by_finish.items():
        amount = _count(finish, costs, tokens.get(finish))
        before = amounts.get(source := finish.budget.source)
        amounts[source] = amount if before is None else Amount(*before).plus(amount)
    if planner.cost is None:
        amounts = {source: (number, None, found) for source, (number, _, found) in amounts.items()}
    samples.amounts = amounts
    return samples


def _count(finish: Finish, costs: Sequence[float], tokens: int | None) -> tuple[int, float, int | None]:
    """Count samples of a batch to which the same was done; return how many they are, their cost, and their tokens."""
    budget, number, cost = finish.budget, len(costs), sum(costs)
    budget.cost += cost
    if finish.process is None and not finish.is_counted:  # otherwise, it counts them
        budget.delivered += number
    if finish.is_rest:
        budget.delivered -= number
        number = 0
    return number, cost, tokens


def _sum_tokens(
    samples: Sequence[Sample], batch: PlannedBatch, planner: WindowPlanner
) -> dict[Finish, int | None]:
    """Return the tokens of the samples of a batch, by what was done to them."""
    of_finish = defaultdict[Finish, list[Sample]](list)
    for sample, candidate in zip(samples, batch, strict=True):
        of_finish[candidate[5]].append(sample)
    is_packed = planner.batch.pack is not None
    return {
        finish: sum_tokens(own, planner.token_fields[finish.budget.source], is_packed)
        for finish, own in of_finish.items()
    }


def _name(error: Exception) -> WdspecError:
    """Return the error for a sample that cannot be measured."""
    return (
        error
        if isinstance(error, WdspecError)
        else FieldError(f"cannot measure the sample: {one_line(error)}")
    )


def _check(value: Any, text: str | None, least: float = 1e-12) -> None:
    """Raise FieldError for a cost that is not a number of the right size."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= _LIMIT:
        return
    needed = f"it must be a finite number {'above 0' if least else 'of at least 0'}"
    if value is None:
        is_path = text is not None and text.replace(".", "").isidentifier()
        hint = f". Write `default({text}, {1 if least else 0})` if samples may have none" if is_path else ""
        raise FieldError(f"`{text}` is null; {needed}{hint}")
    written = f"{' '.join(repr(value).split()):.40}"
    what = written if isinstance(value, (int, float)) else f"a {type(value).__name__}, {written}"
    raise FieldError(f"`{text}` is {what}; {needed}")


def _check_group(value: Any, text: str | None) -> Hashable:
    """Return the value of `group_by`; null if it is not a number. Raise FieldError if it cannot be compared."""
    if value is None or isinstance(value, (str, bytes, int)):
        return value
    if isinstance(value, (float, np.number)):
        return value if value == value else None
    raise FieldError(f"`{text}` is a {type(value).__name__}; a group has a text, a number or null in common")


def hash_costs(batch: PlannedBatch, before: int) -> int:
    """Return a hash of what the samples of a batch cost, and those of the batches before it."""
    return _CHECKED | crc32(
        np.fromiter(map(COST, batch), np.float64, len(batch)).data, before & (_CHECKED - 1)
    )


def _release(batches: list[PlannedBatch]) -> Iterator[PlannedBatch]:
    """Yield batches, and forget each of them, so that the memory of its samples can be used for the next window."""
    batches.reverse()
    while batches:
        yield batches.pop()


def pass_over(batch: PlannedBatch) -> bool:
    """Count the samples of a batch that is skipped; return whether any of them can be decoded."""
    is_there = False
    for _, _, _, _, raw, finish, ordinal, _ in batch:
        if finish.process is not None and finish.drops and not is_there:
            if finish.process(raw, ordinal) is None:
                continue
            finish.budget.delivered -= 1
        is_there = True
        finish.budget.dropped["skip"] += 1
    return is_there


class Measurement(Part[Candidate]):
    """Finished samples with what they cost: a `Slot` of `Candidate`s on what a stage yields."""

    def __init__(self, below: Slot[Sample], planner: WindowPlanner, sources: Sequence[LiveSource]) -> None:
        super().__init__(below)
        self._choosers = {
            live.plan.name: _Meter(planner, live.parts, is_finished=True).chooser(live.budget, _keep)
            for live in sources
        }

    def take(self, m: int) -> list[Candidate]:
        """Return the samples of the m-th block, measured."""
        return list(self.samples(m))

    def samples(self, m: int) -> Iterator[Candidate]:
        """Yield the samples of the m-th block, measured; those that cannot be measured are left out."""
        for sample in self.below.samples(m):
            missing = next(
                (name for name in ("__source__", "__url__", "__key__") if name not in sample), None
            )
            if missing is not None or sample["__source__"] not in self._choosers:
                raise UsageError(
                    f"`stage` yielded a sample with {'an unknown' if missing is None else 'no'} "
                    f"`{missing or '__source__'}`, which batches by cost need; copy `__key__`, `__url__` and "
                    "`__source__` from one of the samples that it was made of"
                )
            found = self._choosers[sample["__source__"]](sample, 0, sample)
            if found is not None:
                yield found


class Window:
    """The samples of a window, which are read when they are needed, or some ahead.

    Args:
        below: the part below; None stands for a sample that it left out.
        number: the number of the block of that part.
        start: the state of that part before them.
        begun: how the window began.
    """

    def __init__(self, below: Slot[Candidate | None], number: int, start: bytes, begun: Begun | None) -> None:
        self.start, self.begun = start, begun
        self._below, self._number = below, number
        self._samples: Iterator[Candidate | None] | None = None
        self._ahead = deque[Candidate]()
        self._failure: Exception | None = None
        self.is_read = False
        """Whether all of its samples were read."""

    def read_ahead(self, count: int) -> None:
        """Read some samples. An error is raised when they are needed."""
        if self._samples is None:
            self._samples = self._below.samples(self._number)
        if self._failure is None:
            try:
                self._ahead.extend(filter(None, islice(self._samples, count)))
            except Exception as error:
                self._failure = error

    def read_all(self) -> list[Candidate]:
        """Return all samples."""
        if self._samples is not None:
            return list(self)
        self.is_read = True
        return list(filter(None, self._below.take(self._number)))

    def __iter__(self) -> Iterator[Candidate]:
        if self._samples is None:
            self._samples = self._below.samples(self._number)
        while self._ahead:
            yield self._ahead.popleft()
        if self._failure is not None:
            raise self._failure
        yield from filter(None, self._samples)
        self.is_read = True


class Windows(Part[Sample]):
    """Batches that are planned from windows: a `Slot`.

    While the batches of a window are given, the next one is read if measuring its samples takes long (`waits`).

    Args:
        below: the samples, measured; a window is a block of them.
        place: the place to resume from.
        planner: how windows become batches.
        keys: decide the order of batches (another one in each slot), and which group comes at a turn (the same in all
            slots of a step).
        draws: draws the samples; None in a pass.
        reopen: returns the part below from its state at the start of a window, and how this began.
        is_staged: whether a stage below draws the samples itself. Then no window is read ahead.
        waits: whether measuring takes long: samples are decoded for it, or headers of their objects requested.
        find: in a pass, returns where the m-th batch is; None after the last batch of the slot.
        name_of: names the samples, to keep copies apart; None to not do so.
    """

    def __init__(
        self,
        below: Slot[Candidate],
        place: StreamState,
        planner: WindowPlanner,
        keys: tuple[int, int],
        draws: SectionDraws | None = None,
        reopen: Callable[[bytes, Begun], Slot[Candidate]] | None = None,
        is_staged: bool = False,
        waits: bool = False,
        find: Callable[[int], WindowPlace | None] | None = None,
        name_of: NameOf | None = None,
    ) -> None:
        super().__init__(below)
        self._planner, self._keys, self._find = planner, keys, find
        self._draws, self._reopen, self._is_staged = draws, reopen, is_staged
        self._waits = waits
        self._start = bytes(below.pack())
        """The state of the part below before the window."""
        self._number, self._given, self._check = place.turn, place.ordinal, 0
        """The number of the window, how many of its batches were given, and a hash of what these cost."""
        self._name_of, self._whole = name_of, 0
        """`PLANNED_WHOLE` if copies are not kept apart in the open window."""
        self._resumed = place if place.ordinal else None
        """The place in a window that has to be read again."""
        self._begun: Begun | None = None
        self._window: Window | None = None
        """The window that is open; None if it has to be read first."""
        self._following: Window | None = None
        """The next window, which is read ahead."""
        self._batches: Iterator[PlannedBatch] = iter(())
        """The batches of the window that were not given."""
        self._left = self._unread = 0.0
        """The number of these batches, infinite if it is unknown; and of samples of the next window to read by now."""
        self._pace = 1.0
        """The number of samples to read for each sample that is given."""
        self._next = -1
        """The next batch, in a pass."""

    def take(self, m: int) -> list[Sample]:
        """Return the samples of the next batch, the slot's m-th. Those that cannot be decoded are left out.

        In a pass, it may have none.
        """
        if self._find is not None:
            return give(self._find_batch(m, self._find(m)), self._planner)
        first = self._number
        while True:
            batch = self._next_batch(m)
            if samples := give(batch, self._planner):
                return samples
            self._check_fruitful(first, batch)

    def skip(self, m: int) -> None:
        """Move past the m-th batch of the slot, without decoding its samples unless they may be dropped."""
        first = self._number
        while not pass_over(batch := self._next_batch(m)):
            self._check_fruitful(first, batch)

    def _check_fruitful(self, first: int, batch: PlannedBatch) -> None:
        """Raise ShardError if no sample is left of many windows from a first one on; the batch is of the last."""
        if self._number - first > _BARREN:
            budget = batch[0][5].budget
            causes = {**budget.all_dropped, **budget.skipped}
            why = ", ".join(f"{name} {count:,}" for name, count in causes.items())
            raise ShardError(
                f"no sample is left of {_BARREN} windows (dropped or skipped: {why}); check `decode` and `expect`; "
                "`wdspec check` lists damaged data",
                source=budget.source,
            )

    def pack(self) -> bytes:
        """Return the state after the last batch taken."""
        if self._find is not None:
            return self._start and self._start + StreamState().pack()
        if self._resumed is not None:
            return self._start + self._resumed.pack()
        begun = self._begun if self._given else None
        place = (
            StreamState(self._number)
            if begun is None
            else begun.place(self._number, self._given, self._check | self._whole)
        )
        return self._start + place.pack()

    def close(self) -> None:
        """Close all open shards."""
        super().close()
        self._window, self._following, self._next = None, None, -1

    def measure(self) -> list[tuple[list[float], float]]:
        """Return the costs of the samples of each batch of the first window, and its weight for `balance`."""
        place = None if self._find is None else self._find(0)
        batches = self._open(0) if place is None else self._read_planned(place)
        return [weigh(batch) for batch in batches if batch]

    def _next_batch(self, m: int) -> PlannedBatch:
        """Return the next batch, the slot's m-th."""
        for _ in range(_BARREN):
            if self._window is None:
                self._batches = self._open(m)
                if not self._pass_given():
                    continue
            batch = next(self._batches, None)
            if batch is not None:
                self._given += 1
                self._left -= 1
                self._check = hash_costs(batch, self._check)
                if self._left:  # otherwise the rest of the next window is read when it is opened
                    self._read_ahead(m, len(batch), self._number + 1)
            if batch is None or not self._left:
                if self._following is None:
                    if self._draws is not None and not self._is_staged:
                        self._draws.end()
                    self._start = bytes(self.below.pack())
                else:
                    self._start = self._following.start
                self._number, self._given, self._check, self._window = self._number + 1, 0, 0, None
            if batch is not None:
                return batch
        raise UsageError(
            f"{_BARREN} windows of samples have made no batch; check `overlong`, `incomplete`, and `batch.cost`"
        )

    def _find_batch(self, m: int, place: WindowPlace | None) -> PlannedBatch:
        """Return the m-th batch of the slot in a pass; it is empty where the slot has run dry."""
        if place is None:
            return []
        if m != self._next or self._window is None:
            if m != self._next:
                self._following = None
            self._batches = self._read_planned(place)
            for _ in islice(self._batches, m - place.first):
                pass
        self._next = m + 1
        batch = next(self._batches)
        assert self._find is not None, "the batches of a pass are planned"
        # With companions, the last window of an epoch is read to its end, as all of its samples take some.
        if self._next == place.end or (self._start and self._find(self._next) is None):
            for _ in self._batches:  # which checks that there are no more
                pass
            self._window = None
            self._start = bytes(self.below.pack()) if self._following is None else self._following.start
        return batch

    def _open(self, m: int) -> Iterator[PlannedBatch]:
        """Return the batches of the window. It begins at turn m, unless it began before."""
        window = self._following
        if self._draws is not None:
            self._begun = self._draws.begin(m, self._resumed)
            if window is not None and window.begun is not None and not self._begun.is_like(window.begun):
                self._rewind(window.start, window.begun)  # other shares were set since: read it by these
                window = None
        if window is None:
            window = self._read(self._number, self._begun)
        self._window, self._following, self._unread = window, None, 0.0
        if self._find is not None:
            self._start = window.start
        samples: Iterable[Candidate] = window
        if self._planner.batch.group_by is None:
            samples = self._read_whole(window)
        turn = m if self._begun is None else self._begun.turn
        self._whole = 0 if self._resumed is None else self._resumed.end & PLANNED_WHOLE
        name_of = None if self._whole else self._name_of
        planned = self._planner.batches(samples, self._number, turn, *self._keys, name_of)
        if not isinstance(planned, list):
            self._left = inf
            return iter(planned)
        self._left, self._pace = len(planned), self._planner.batch.window / max(1, sum(map(len, planned)))
        return _release(planned)

    def _read(self, number: int, begun: Begun | None) -> Window:
        """Start to read a window."""
        if self._draws is not None and begun is not None and not self._is_staged:
            self._draws.draw(begun)
        start = bytes(self.below.pack())
        return Window(self.below, number, start, begun)

    def _rewind(self, start: bytes, begun: Begun) -> None:
        """Return to the start of a window that began like this."""
        assert self._reopen is not None, "only a pass cannot be reopened, which has no draws"
        self.below.close()
        self.below = self._reopen(start, begun)
        self._window = self._following = None

    def _read_whole(self, window: Window) -> list[Candidate]:
        """Return all samples of a window. The first time that this takes long, it is logged."""
        start = time.perf_counter()
        samples = window.read_all()
        seconds = time.perf_counter() - start
        if seconds > _LONG and self._waits and not _logged:
            _logged.append(seconds)
            log.info(
                "the first batch waited %.0f s until a window of %d samples was decoded and measured; the next windows "
                "are read while batches are given",
                seconds,
                len(samples),
            )
        return samples

    def _read_ahead(self, m: int, count: int, number: int) -> None:
        """Read samples of the next window, which has this number, after `count` of the open one were given at turn m.

        Only if measuring them takes long: otherwise, this is as fast as it can be.
        """
        window = self._window
        if not self._waits or self._is_staged or window is None or not window.is_read:
            return
        if self._following is None:
            begun = None if self._draws is None else self._draws.foresee(m)
            self._following = self._read(number, begun)
        self._unread += count * self._pace
        self._following.read_ahead(int(self._unread))
        self._unread %= 1

    def _pass_given(self) -> bool:
        """Move past the batches that were given before the run resumed; return whether the window is the same.

        Raises:
            UsageError: it is not, and must not be given again.
        """
        resumed, self._resumed = self._resumed, None
        if resumed is None:
            return True
        for batch in islice(self._batches, resumed.ordinal):
            self._check = hash_costs(batch, self._check)
            self._left -= 1
        written = resumed.end & ~(MAY_REPEAT | PLANNED_WHOLE)
        if not written or self._check == written:
            return True
        if not resumed.end & MAY_REPEAT or self._begun is None:
            raise UsageError(
                "the samples of an open window have other costs than when the state was saved: its shards have "
                "changed, or a function of `map` gives other results, such as another tokenizer, or random numbers "
                "that are not from `wdspec.sample_rng`; undo the change, or load the state with allow_changed=True to "
                "give the window again"
            )
        log.warning("an open window has other costs than when the state was saved, so it is given again")
        self._rewind(self._start, self._begun)
        self._given = self._check = 0
        return False

    def _read_planned(self, place: WindowPlace) -> Iterator[PlannedBatch]:
        """Yield as many batches of a window of a pass as were planned; empty ones for samples that are lost.

        Raises:
            ShardError: there are more.
        """
        assert self._find is not None, "the batches of a pass are planned"
        self._number, turn, following = place.window, place.first, self._find(place.end)
        for batch in self._open(place.first):
            if turn == place.end:
                raise ShardError(
                    "samples have other costs than when the pass was planned; write `stats` again with `wdspec "
                    "stats SPEC`, and do not change shards while they are read; with `repeat` or `reshuffle`, samples "
                    "must not be chosen or measured by random numbers, and never by their companions"
                )
            turn += 1
            yield batch
            if turn < place.end and following is not None:
                self._read_ahead(turn, len(batch), following.window)
        yield from repeat([], place.end - turn)
