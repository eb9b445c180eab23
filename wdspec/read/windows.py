"""One slot whose batches are planned from windows of samples, by what these cost or have in common.

The slot reads a window of raw samples, measures them by their headers, and plans batches of them
(`planning/windows.py`). It decodes the samples of a batch when the batch is requested. A window starts where the last
one ended, so a state is the state of the slot before the window, the number of the window, the turn at which it
started, and how many of its batches were given. A resumed run reads and measures the window again, and decodes only the
samples of the batches that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from math import inf
from operator import itemgetter
from typing import Any, cast

import numpy as np

from wdspec.base.errors import FieldError, UsageError, WdspecError
from wdspec.base.user_code import check_arguments, import_function
from wdspec.fields.decode import one_line
from wdspec.fields.measures import Measures, Reader
from wdspec.fields.samples import MAX_LAYOUTS
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.keys import key64
from wdspec.planning.plan import Plan
from wdspec.planning.windows import (
    Piece,
    WindowRules,
    balance,
    concatenate,
    cut_long,
    gather_groups,
    permute,
    plan_window,
)
from wdspec.read.budget import Budget
from wdspec.read.slot import EndlessSlot
from wdspec.read.source import SIZE, StreamState, pack_place, unpack_slot
from wdspec.read.transform import Process, Sample, SourceParts
from wdspec.spec.language.batch import Batch, Packing
from wdspec.spec.language.expressions import parse_expression, parse_together
from wdspec.spec.spec import Spec

_BARREN = 20
"""Consecutive windows without a batch after which an error is raised."""
_LIMIT = 1e15
_NOTED = 8
"""One window of so many has the costs of its samples counted, besides the first one of each slot."""


@dataclass(frozen=True, eq=False)
class Finish:
    """What is still to be done to samples of a window. Compared by identity, as each batch asks for those of it."""

    process: Process | None
    """Decodes it; None if measuring has already decoded all of it."""
    budget: Budget


Candidate = tuple[float, Sequence[float], float, Hashable, bool, Sample, Finish, int]
"""A sample of a window: its cost; its part of each of the `limits`, and of `balance`; its value of `group_by`; whether
it exceeds the limits alone; the raw sample; what is still to be done to it; and its ordinal.

A plain tuple, as each sample gets one: a named tuple takes four times as long.
"""
COST, SAMPLE, FINISH = itemgetter(0), itemgetter(5), itemgetter(6)
PlannedBatch = list[Candidate]

_NONE: tuple[float, ...] = ()
_ABSENT = object()
"""Stands for the cost of a sample that `missing: skip` leaves out."""


def _keep(sample: Sample, ordinal: int) -> Sample:
    """Return a sample that was decoded before it was measured."""
    return sample


class CostedSamples(list[Sample]):
    """The samples of a batch, and what each of them costs."""

    costs: list[float]


class _Meter:
    """Measures the raw samples of a source, by the expressions of a batch."""

    def __init__(self, planner: WindowPlanner, parts: SourceParts) -> None:
        batch, pack, self._text = planner.batch, planner.batch.pack, planner.cost
        self._parts = parts
        self.function = None
        if self._text is not None and batch.is_by_function:
            self.function = import_function(self._text, "batch.cost", planner.folder)
            check_arguments(self.function, f"batch.cost: {self._text}", 1)
        texts = ["1" if self._text is None or self.function else self._text, *batch.limits]
        self._is_plain = len(texts) == 1 and batch.balance is None and batch.group_by is None
        """Whether the cost is the only thing to measure."""
        if self._is_plain:
            expression = parse_expression(texts[0], planner.costs)
        else:
            texts += [batch.balance or "0", batch.group_by or "none"]
            expression = parse_together(texts, planner.costs)
        self._evaluate = None if expression.source == "v0" else expression.evaluate
        self._measure = Measures(
            parts.transform.fields,
            expression.paths,
            expression.optional,
            parts.transform.tags,
            not batch.cuts_samples,
        )
        self._limits, self._balance = tuple(batch.limits), batch.balance
        self._multiple = pack.pad_to_multiple_of if pack else 1
        self._most, self._rules = planner.max_cost, planner.rules
        self._cuts, self._overlong = batch.cuts_samples, batch.overlong

    def chooser(self, budget: Budget, process: Process) -> Callable[..., Any]:
        """Return the function from raw samples (and, with `_keep`, decoded ones) to `Candidate`s.

        It runs once for every sample.
        """
        layouts: dict[tuple[str, ...], tuple[Reader, Finish]] = {}
        later, done = Finish(None if process is _keep else process, budget), Finish(None, budget)
        only_decodes = self._parts.transform.only_decodes
        is_plain, function, overlong = self._is_plain, self.function, self._overlong
        is_exact = self._multiple == 1 and not self._limits and self._balance is None
        """Whether an integer up to the limit needs no further check."""
        most = min(self._rules.capacity, _LIMIT)

        def study(names: tuple[str, ...]) -> tuple[Reader, Finish]:
            if len(layouts) > MAX_LAYOUTS:
                layouts.clear()
            read, is_whole = self._measure.study(names, self._evaluate, _ABSENT)
            layouts[names] = read, done if is_whole and only_decodes else later
            return layouts[names]

        def choose(raw: Sample, ordinal: int, sample: Sample | None = None) -> Candidate | None:
            try:
                names = tuple(raw)
                try:
                    read, finish = layouts[names]
                except KeyError:
                    read, finish = study(names)
                found = read(raw)
                if found is _ABSENT:
                    budget.dropped["missing"] += 1
                    return None
                sums, weight, value, is_long = _NONE, 0, None, False
                if is_plain:
                    cost = found
                else:
                    cost, *sums, weight, value = found
                    hash(value)
                if function is not None:
                    cost = function(sample)
                if cost.__class__ is not int or not 0 < cost <= most or not is_exact:
                    cost, is_long = self._weigh(cost, sums, weight)
            except Exception as error:
                known = isinstance(error, WdspecError)
                named = error if known else FieldError(f"cannot measure the sample: {one_line(error)}")
                budget(named, "decode", url=raw["__url__"], key=raw["__key__"])
                return None
            if is_long and overlong == "drop":
                budget.dropped["overlong"] += 1
                return None
            return cost, sums, weight, value, is_long, sample or raw, finish, ordinal

        return choose

    def _weigh(self, cost: Any, sums: Sequence[Any], weight: Any) -> tuple[float, bool]:
        """Return a cost, perhaps padded, and whether it exceeds the limits alone. Raises FieldError if it is none."""
        for each, text in zip(sums, self._limits, strict=True):
            _check(each, text, 0)
        _check(weight, self._balance, 0)
        _check(cost, self._text)
        if self._multiple > 1:
            cost = -(-cost // self._multiple) * self._multiple
        if self._cuts or self._rules.fits(1, cost, cost, sums):
            return cost, False
        if self._overlong == "error":
            raise FieldError(self._describe_long(cost))
        return cost, True

    def _describe_long(self, cost: float) -> str:
        """Return the message for a sample that exceeds the limits alone."""
        limits = (
            f"`max_cost` is {self._most:g}"
            if self._most and cost > self._rules.capacity
            else "one of the `limits` is less"
        )
        return f"the sample costs {cost:g}, and {limits}; raise it, or set `overlong: drop` or `alone`"


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

    @classmethod
    def of(cls, spec: Spec) -> WindowPlanner:
        """Return the planner of a spec whose batches are planned from windows."""
        assert spec.batch is not None, "the spec has a batch"
        mixes = (spec.mix, *(mix.mix for source in spec.dataset for mix in source.mixes))
        return cls(spec.batch, spec.costs, spec.folder, any(mix.shares_in == "cost" for mix in mixes))

    @property
    def cost(self) -> str | None:
        """The cost of a sample: by default, the length of the first field that is packed."""
        pack = self.batch.pack
        if self.batch.cost is None and pack is not None:
            return f"fields[{pack.fields[0]!r}].length"
        return self.batch.cost

    @property
    def rules(self) -> WindowRules:
        """The limits of a batch."""
        batch, pack = self.batch, self.batch.pack
        return WindowRules(
            inf if self.max_cost is None else self.max_cost,
            batch.padded and pack is None,
            batch.size or batch.max_size,
            batch.size_multiple,
            tuple(batch.limits.values()),
            pack is not None and pack.method == "in_order",
        )

    @property
    def max_cost(self) -> float | None:
        """The limit of a batch: by default, the length of a packed row."""
        batch = self.batch
        return batch.pack.length if batch.max_cost is None and batch.pack else batch.max_cost

    def choose(self, parts: SourceParts, budget: Budget, process: Process) -> Process:
        """Return the function from raw samples of a source to `Candidate`s, in place of decoding them."""
        meter = _Meter(self, parts)
        if meter.function is None and parts.transform.select is None:
            return meter.chooser(budget, process)
        choose = meter.chooser(budget, _keep)

        def decode_and_choose(raw: Sample, ordinal: int) -> Any:
            sample = process(raw, ordinal)
            if sample is None:
                return None
            budget.delivered -= 1  # it is counted when its batch is given
            return choose(raw, ordinal, sample)

        return decode_and_choose

    def plan(self, samples: Sequence[Candidate], key: int, turn: int) -> Iterator[PlannedBatch]:
        """Yield the batches of a window, in the order in which they are given.

        Args:
            samples: the samples of the window.
            key: decides the order of the batches.
            turn: the turn of the slot at which the window starts.
        """
        if self.notes_costs and not (turn and key % _NOTED):
            self._note_costs(samples)
        rules, most = self.rules, self.max_cost
        if self.batch.cuts_samples and most is not None:
            samples, batches = self._cut_rows(samples, int(most))
        else:
            batches = _plan_whole(samples, rules)
        if self.batch.balance:
            order = balance([sum(samples[at][2] for at in batch) for batch in batches], turn)
        else:
            order = permute(len(batches), key)
        for number in order:
            yield [samples[at] for at in batches[number]]

    def gather(self, samples: Iterator[Candidate], key: int, turn: int) -> Iterator[PlannedBatch]:
        """Yield the batches of a window of `group_wait` samples, while it is read.

        Args:
            samples: the samples of the window.
            key: decides which group comes at a turn, the same in all slots of a step.
            turn: the turn of the slot at which the window starts.
        """

        def drop(left: Sequence[Candidate]) -> None:
            for each in left:
                each[6].budget.dropped["incomplete"] += 1

        batch = self.batch
        return gather_groups(samples, self.rules, batch.incomplete, drop, batch.window, key, turn)

    def _note_costs(self, samples: Sequence[Candidate]) -> None:
        """Count what the samples of a window cost, truncated if they will be."""
        most = self.max_cost if self.batch.overlong == "truncate" and self.max_cost is not None else inf
        for each in samples:
            cost, budget = min(each[0], most), each[6].budget
            budget.measured += 1
            budget.measured_cost += cost
            budget.measured_squares += cost * cost

    def _cut_rows(
        self, samples: Sequence[Candidate], most: int
    ) -> tuple[Sequence[Candidate], list[Sequence[int]]]:
        """Return the pieces of the samples of a window, and their places in each row."""
        pack, lengths = self.batch.pack, [int(each[0]) for each in samples]
        assert pack is not None, "only packed samples are cut"
        if pack.method == "concatenate":
            joined = concatenate(lengths, most)
            pieces: list[Piece] = [piece for row in joined for piece in row]
            stops = list(accumulate(map(len, joined)))
            rows: list[Sequence[int]] = [range(*ends) for ends in pairwise([0, *stops])]
            return [_cut(samples[piece[0]], piece, pack) for piece in pieces], rows
        if max(lengths, default=0) <= most:
            return samples, _plan_whole(samples, self.rules)
        if self.batch.overlong == "truncate":
            pieces = [(place, 0, min(length, most)) for place, length in enumerate(lengths)]
        else:
            pieces = cut_long(lengths, most)
        cut = [_cut(samples[piece[0]], piece, pack) for piece in pieces]
        return cut, _plan_whole(cut, self.rules)


def _decode(batch: PlannedBatch) -> Iterator[Candidate]:
    """Yield the candidates of a batch, decoded. Those that cannot be decoded are left out."""
    for each in batch:
        cost, sums, weight, value, is_long, raw, finish, ordinal = each
        sample = raw if finish.process is None else finish.process(raw, ordinal)
        if sample is not None:
            yield cost, sums, weight, value, is_long, sample, finish, ordinal


def _plan_whole(samples: Sequence[Candidate], rules: WindowRules) -> list[Sequence[int]]:
    """Return the places of the samples of each batch. Those that exceed the limits alone are alone."""
    long = [place for place, each in enumerate(samples) if each[4]]
    whole = [place for place, each in enumerate(samples) if not each[4]] if long else range(len(samples))
    costs = np.array([samples[place][0] for place in whole] if long else list(map(COST, samples)), np.float64)
    sums = np.array([samples[place][1] for place in whole] if rules.limits else [], np.float64)
    planned = plan_window(costs, sums.reshape(len(whole), len(rules.limits)), rules)
    if not long:
        return planned
    return [*([whole[at] for at in batch] for batch in planned), *([place] for place in long)]


def _cut(whole: Candidate, piece: Piece, pack: Packing) -> Candidate:
    """Return a candidate for a part of a sample."""
    cost, sums, weight, value, is_long, raw, finish, number = whole
    _, start, stop = piece
    if (start, stop) == (0, cost) and finish.process is not None:
        process = finish.process
    else:
        process = _cutting(finish, int(cost), start, stop, pack)
    return float(stop - start), sums, weight, value, is_long, raw, Finish(process, finish.budget), number


def _cutting(finish: Finish, length: int, start: int, stop: int, pack: Packing) -> Process:
    """Return the function that decodes a sample of a length, and cuts its packed fields."""
    budget = finish.budget

    def process(raw: Sample, ordinal: int) -> Sample | None:
        sample = raw if finish.process is None else finish.process(raw, ordinal)
        if sample is None:
            return None
        cut = dict(sample)
        for name in pack.fields:
            if name in sample and len(sample[name]) != length:
                error = FieldError(
                    f"`{name}` has {len(sample[name])} elements, but the sample costs {length}; to cut samples, "
                    "`batch.cost` must be the length of what is packed",
                    source=sample.get("__source__"),
                )
                budget(error, "decode", url=sample.get("__url__"), key=sample.get("__key__"), field=name)
                return None
            if name in sample:
                cut[name] = sample[name][start:stop]
        return cut

    return process


def _length(value: Any) -> int:
    """Return the length of a packed field; 0 if it has none, which is an error when the row is joined."""
    try:
        return len(value)
    except TypeError:
        return 0


def _check(value: Any, text: str | None, least: float = 1e-12) -> None:
    """Raise FieldError for a cost that is not a number of the right size."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= _LIMIT:
        return
    what = f"{value!r:.40}" if isinstance(value, (int, float)) else f"a {type(value).__name__}, {value!r:.40}"
    raise FieldError(
        f"`{text}` is {what}; it must be a finite number {'above 0' if least else 'of at least 0'}"
    )


class WindowSlot:
    """The stream of a slot in batches that are planned from windows: a `Slot`.

    Args:
        planner: how windows become batches.
        plan: the plan.
        rank, worker: c and k of the slot.
        open: opens the slot that reads the samples, from its state.
        draws_at: the draws of a window, by the J of the step at which it starts.
        state: the packed state to resume from; None starts at the beginning.
    """

    def __init__(
        self,
        planner: WindowPlanner,
        plan: Plan,
        rank: int,
        worker: int,
        open: Callable[[bytes | None], EndlessSlot],
        draws_at: Callable[[int], Draws | ScheduledDraws],
        state: bytes | None,
    ) -> None:
        [point] = unpack_slot(state[-SIZE:]) if state else [StreamState()]
        self._slot = open(state[:-SIZE] if state else None)
        self._start = bytes(self._slot.pack())
        """The state of the slot before the window."""
        self._planner, self._draws_at = planner, draws_at
        self._key = key64(plan.seed, "window", plan.topology.slot(rank, worker))
        self._step_key = key64(plan.seed, "groups", worker)
        """The same in all slots of a step."""
        self._worker, self._workers = worker, plan.topology.workers
        self._window, self._given, self._turn = point.turn, point.ordinal, point.last
        """The number of the window, how many of its batches were given, and the turn at which it started."""
        self._batches: Iterator[PlannedBatch] | None = None
        self._packed = planner.batch.pack.fields[0] if planner.batch.pack else None

    def take(self, m: int) -> list[Sample]:
        """Return the samples of the next batch, the slot's m-th. Those that cannot be decoded are left out."""
        while True:
            batch = self._next(m)
            finishes = set(map(FINISH, batch))
            if any(finish.process for finish in finishes):
                batch = list(_decode(batch))
            samples = CostedSamples(map(SAMPLE, batch))
            samples.costs = list(map(COST, batch))
            for finish in finishes:
                costs = samples.costs
                if len(finishes) > 1:
                    costs = [each[0] for each in batch if each[6] is finish]
                finish.budget.cost += sum(costs)
                if finish.process is None:  # otherwise, it counts them
                    finish.budget.delivered += len(costs)
            if self._packed is not None:
                for each in batch:
                    each[6].budget.tokens += _length(each[5].get(self._packed))
            if samples:
                return samples

    def skip(self, m: int) -> None:
        """Move past the m-th batch of the slot without decoding its samples."""
        for each in self._next(m):
            each[6].budget.dropped["skip"] += 1

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Do nothing: `draws_at` knows the shares that were set. They apply from the next window on."""

    def pack(self) -> bytes:
        """Return the state after the last batch taken."""
        turn = self._turn if self._given else -1
        return self._start + pack_place(self._window, self._given, turn)

    def close(self) -> None:
        """Close all open shards."""
        self._slot.close()

    def measure(self) -> list[tuple[list[float], float]]:
        """Return the costs of the samples of each batch of the first window, and its weight for `balance`."""
        self._open(0)
        assert self._batches is not None, "it was opened"
        return [(list(map(COST, batch)), sum(each[2] for each in batch)) for batch in self._batches]

    def _next(self, m: int) -> PlannedBatch:
        """Return the next batch, the slot's m-th."""
        if self._batches is None:
            given = self._given
            self._open(self._turn if given else m)
            assert self._batches is not None, "it was opened"
            for _ in islice(self._batches, given):
                pass
        for _ in range(_BARREN):
            batch = next(self._batches, None)
            if batch is not None:
                self._given += 1
                return batch
            self._window, self._given, self._start = self._window + 1, 0, bytes(self._slot.pack())
            self._open(m)
        raise UsageError(
            f"{_BARREN} windows of samples have made no batch; check `overlong`, `incomplete`, and `batch.cost`"
        )

    def _open(self, turn: int) -> None:
        """Start the window at a turn of the slot."""
        self._turn = turn
        self._slot.draw_by(self._draws_at(turn * self._workers + self._worker))
        if self._planner.batch.group_by is not None:
            found = cast("Iterator[Candidate]", self._slot.samples(self._window))
            self._batches = self._planner.gather(found, self._step_key, turn)
        else:
            window = cast("list[Candidate]", self._slot.take(self._window))
            self._batches = self._planner.plan(window, key64(self._key, self._window), turn)
