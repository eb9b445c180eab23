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
from itertools import islice
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, cast

import numpy as np

from wdspec.base.errors import FieldError, UsageError, WdspecError
from wdspec.base.user_code import check_arguments, import_function
from wdspec.fields.decode import one_line
from wdspec.fields.measures import Measures
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
from wdspec.read.source import SIZE, StreamState, unpack_slot
from wdspec.read.transform import Process, Sample, SourceParts
from wdspec.spec.language.batch import Batch
from wdspec.spec.language.expressions import Expression, parse_expression
from wdspec.spec.spec import Spec

_BARREN = 20
"""Consecutive windows without a batch after which an error is raised."""
_LIMIT = 1e15
_NOTED = 8
"""One window of so many has the costs of its samples counted, besides the first one of each slot."""


class Candidate(NamedTuple):
    """A sample of a window that is not decoded yet."""

    cost: float
    sums: tuple[float, ...]
    """Its part of each of the `limits`."""
    weight: float
    """Its part of `balance`."""
    value: Hashable
    """Its value of `group_by`."""
    is_long: bool
    """Whether it exceeds the limits alone."""
    process: Process
    """Decodes it."""
    raw: Sample
    ordinal: int
    budget: Budget


PlannedBatch = list[tuple[Candidate, Piece | None]]
"""The samples of a batch, each with the piece of it that a packed row has; None for the whole sample."""


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
        self.function = None
        if self._text is not None and batch.is_by_function:
            self.function = import_function(self._text, "batch.cost", planner.folder)
            check_arguments(self.function, f"batch.cost: {self._text}", 1)
        texts = ["1" if self._text is None or self.function else self._text, *batch.limits]
        texts += [each for each in (batch.balance, batch.group_by) if each is not None]
        expressions = [parse_expression(text, planner.costs) for text in texts]
        paths = list(dict.fromkeys(path for each in expressions for path in each.paths))
        required = {path for each in expressions for path in each.paths if path not in each.optional}
        self._cuts = batch.cuts_samples
        self._measure = Measures(
            parts.transform.fields, paths, frozenset(paths) - required, parts.transform.tags, not self._cuts
        )
        evaluators = [_evaluator(each, [paths.index(path) for path in each.paths]) for each in expressions]
        self._cost, *rest = evaluators
        self._sums = list(zip(rest, batch.limits, strict=False))
        self._value = rest.pop() if batch.group_by is not None else None
        self._weight = rest.pop() if batch.balance is not None else None
        self._balance = batch.balance
        self._multiple = pack.pad_to_multiple_of if pack else 1
        self._most, self._rules, self._overlong = planner.max_cost, planner.rules, batch.overlong
        self._alone = self._rules.capacity

    def chooser(self, budget: Budget, process: Process) -> Callable[..., Any]:
        """Return the function from raw samples (and, with `_keep`, decoded ones) to `Candidate`s.

        It runs once for every sample.
        """
        measure, of_cost, function, text = self._measure, self._cost, self.function, self._text
        multiple, alone, cuts, overlong = self._multiple, self._alone, self._cuts, self._overlong
        has_more = bool(self._sums) or self._weight is not None or self._value is not None
        more: tuple[tuple[float, ...], float, Hashable] = (), 0, None

        def choose(raw: Sample, ordinal: int, sample: Sample | None = None) -> Any:
            try:
                values = measure(raw)
                if values is None:
                    budget.dropped["missing"] += 1
                    return None
                cost = of_cost(values) if function is None else function(sample)
                if cost.__class__ is not int or not 0 < cost <= _LIMIT:
                    cost = _checked(cost, text)
                if multiple > 1:
                    cost = -(-cost // multiple) * multiple
                is_long = cost > alone
                sums, weight, value = more
                if has_more:
                    sums, weight, value = self._measure_more(values)
                    is_long = is_long or not self._rules.fits(1, cost, cost, sums)
                if is_long and cuts:
                    is_long = False
                elif is_long and overlong == "error":
                    raise FieldError(self._describe_long(cost))
            except Exception as error:
                known = isinstance(error, WdspecError)
                named = error if known else FieldError(f"cannot measure the sample: {one_line(error)}")
                budget(named, "decode", url=raw["__url__"], key=raw["__key__"])
                return None
            if is_long and overlong == "drop":
                budget.dropped["overlong"] += 1
                return None
            return Candidate(cost, sums, weight, value, is_long, process, sample or raw, ordinal, budget)

        return choose

    def _measure_more(self, values: Sequence[Any]) -> tuple[tuple[float, ...], float, Hashable]:
        """Return the sums, the weight, and the value of a sample."""
        sums = tuple([_checked(of(values), text, 0) for of, text in self._sums])
        weight = 0 if self._weight is None else _checked(self._weight(values), self._balance, 0)
        value = None if self._value is None else self._value(values)
        hash(value)
        return sums, weight, value

    def _describe_long(self, cost: float) -> str:
        """Return the message for a sample that exceeds the limits alone."""
        limits = (
            f"`max_cost` is {self._most:g}"
            if self._most and cost > self._alone
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
            chosen = choose(raw, ordinal, sample)
            budget.delivered -= chosen is None
            return chosen

        return decode_and_choose

    def plan(self, candidates: Iterator[Candidate], key: int, turn: int) -> Iterator[PlannedBatch]:
        """Yield the batches of a window, in the order in which they are given.

        Args:
            candidates: the samples of the window.
            key: decides the order of the batches.
            turn: the turn of the slot at which the window starts.
        """
        if self.batch.group_by is not None:
            yield from self._gather(candidates)
            return
        samples = list(candidates)
        if self.notes_costs and not (turn and key % _NOTED):
            self._note_costs(samples)
        rules, most = self.rules, self.max_cost
        rows = self._cut_rows(samples, int(most)) if self.batch.cuts_samples and most is not None else None
        if rows is not None:
            batches = rows
        else:
            whole = [each for each in samples if not each.is_long]
            costs = np.array([each.cost for each in whole], dtype=np.float64)
            sums = np.array([each.sums for each in whole] if rules.limits else [], dtype=np.float64)
            planned = plan_window(costs, sums.reshape(len(whole), len(rules.limits)), rules)
            batches = [[(whole[at], None) for at in batch] for batch in planned]
            batches += [[(each, None)] for each in samples if each.is_long]
        if self.batch.balance:
            order = balance([_weight(batch) for batch in batches], turn)
        else:
            order = permute(len(batches), key)
        yield from (batches[number] for number in order)

    def _note_costs(self, samples: Sequence[Candidate]) -> None:
        """Count what the samples of a window cost, truncated if they will be."""
        most = self.max_cost if self.batch.overlong == "truncate" and self.max_cost is not None else inf
        for each in samples:
            cost, budget = min(each.cost, most), each.budget
            budget.measured += 1
            budget.measured_cost += cost
            budget.measured_squares += cost * cost

    def _cut_rows(self, samples: Sequence[Candidate], most: int) -> list[PlannedBatch] | None:
        """Return the rows of a window whose samples are cut; None if none is."""
        batch, pack = self.batch, self.batch.pack
        assert pack is not None, "only packed samples are cut"
        lengths = [int(each.cost) for each in samples]
        if pack.method == "concatenate":
            return [[(samples[piece[0]], piece) for piece in row] for row in concatenate(lengths, most)]
        if max(lengths, default=0) <= most:
            return None
        if batch.overlong == "truncate":
            pieces: list[Piece] = [(place, 0, min(length, most)) for place, length in enumerate(lengths)]
        else:
            pieces = cut_long(lengths, most)
        costs = np.array([stop - start for _, start, stop in pieces], dtype=np.float64)
        planned = plan_window(costs, np.zeros((len(pieces), 0)), self.rules)
        return [[(samples[pieces[at][0]], pieces[at]) for at in row] for row in planned]

    def _gather(self, candidates: Iterator[Candidate]) -> Iterator[PlannedBatch]:
        waiting: dict[int, Candidate] = {}

        def note() -> Iterator[tuple[Hashable, float, Sequence[float]]]:
            for place, each in enumerate(candidates):
                waiting[place] = each
                yield each.value, each.cost, each.sums

        def drop(places: Sequence[int]) -> None:
            for place in places:
                waiting.pop(place).budget.dropped["incomplete"] += 1

        for places in gather_groups(note(), self.rules, self.batch.incomplete, drop):
            yield [(waiting.pop(place), None) for place in places]


def _length(value: Any) -> int:
    """Return the length of a packed field; 0 if it has none, which is an error when the row is joined."""
    try:
        return len(value)
    except TypeError:
        return 0


def _weight(batch: PlannedBatch) -> float:
    return sum(each.weight for each, _ in batch)


def _evaluator(expression: Expression, places: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    """Return the function from all values that were read to the value of an expression."""
    if expression.source == "v0":
        return itemgetter(places[0])
    evaluate = expression.evaluate
    match places:
        case []:
            constant = evaluate()
            return lambda values: constant
        case [place]:
            return lambda values: evaluate(values[place])
        case _:
            return lambda values: evaluate(*[values[place] for place in places])


def _checked(value: Any, text: str | None, least: float = 1e-12) -> float:
    """Return a cost. Raises FieldError for what is not a number of the right size."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= _LIMIT:
        return value
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
        self._worker, self._workers = worker, plan.topology.workers
        self._window, self._given, self._turn = point.turn, point.ordinal, point.last
        """The number of the window, how many of its batches were given, and the turn at which it started."""
        self._batches: Iterator[PlannedBatch] | None = None
        self._packed = planner.batch.pack.fields[0] if planner.batch.pack else None

    def take(self, m: int) -> list[Sample]:
        """Return the samples of the next batch, the slot's m-th. Those that cannot be decoded are left out."""
        while True:
            samples, costs = CostedSamples(), []
            for each, piece in self._next(m):
                if piece is None:
                    sample, cost = each.process(each.raw, each.ordinal), each.cost
                else:
                    sample, cost = self._cut(each, piece), float(piece[2] - piece[1])
                if sample is not None:
                    samples.append(sample)
                    costs.append(cost)
                    each.budget.cost += cost
                    if self._packed is not None:
                        each.budget.tokens += _length(sample.get(self._packed))
            if samples:
                samples.costs = costs
                return samples

    def skip(self, m: int) -> None:
        """Move past the m-th batch of the slot without decoding its samples."""
        for each, _ in self._next(m):
            each.budget.dropped["skip"] += 1

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Do nothing: `draws_at` knows the shares that were set. They apply from the next window on."""

    def pack(self) -> bytes:
        """Return the state after the last batch taken."""
        turn = self._turn if self._given else -1
        return self._start + StreamState(self._window, self._given, turn).pack()

    def close(self) -> None:
        """Close all open shards."""
        self._slot.close()

    def measure(self) -> list[tuple[list[float], float]]:
        """Return the costs of the samples of each batch of the first window, and its weight for `balance`."""
        self._open(0)
        assert self._batches is not None, "it was opened"
        return [
            ([each.cost if piece is None else piece[2] - piece[1] for each, piece in batch], _weight(batch))
            for batch in self._batches
        ]

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
        candidates = cast("Iterator[Candidate]", self._slot.samples(self._window))
        self._batches = self._planner.plan(candidates, key64(self._key, self._window), turn)

    def _cut(self, candidate: Candidate, piece: Piece) -> Sample | None:
        """Return a part of a decoded sample."""
        sample = candidate.process(candidate.raw, candidate.ordinal)
        if sample is None:
            return None
        pack = self._planner.batch.pack
        assert pack is not None, "only packed samples are cut"
        cut = dict(sample)
        for name in pack.fields:
            if name in sample and len(sample[name]) != candidate.cost:
                error = FieldError(
                    f"`{name}` has {len(sample[name])} elements, but the sample costs {candidate.cost:g}; to cut "
                    "samples, `batch.cost` must be the length of what is packed",
                    source=sample.get("__source__"),
                )
                candidate.budget(
                    error, "decode", url=sample.get("__url__"), key=sample.get("__key__"), field=name
                )
                return None
            if name in sample:
                cut[name] = sample[name][piece[1] : piece[2]]
        return cut
