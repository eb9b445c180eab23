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
from typing import Any, NamedTuple, cast

import numpy as np

from wdspec.base.errors import FieldError, UsageError
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

COST = "__cost__"
"""What a sample costs, in the samples that a slot gives to a batch; and what the batch costs, in the batch."""
_BARREN = 20
"""Consecutive windows without a batch after which an error is raised."""
_LIMIT = 1e15


class Candidate(NamedTuple):
    """A sample of a window that is not decoded yet."""

    cost: float
    sums: tuple[float, ...]
    """Its part of each of the `limits`."""
    weight: float
    """Its part of `balance`."""
    value: Hashable
    """Its value of `group_by`."""
    is_alone: bool
    finish: Callable[[], Sample | None]
    """Decodes it; returns None if it is dropped (and counted)."""
    budget: Budget


@dataclass(frozen=True)
class WindowPlanner:
    """How windows become batches: what the keys of `batch` say."""

    batch: Batch
    costs: Mapping[str, str]
    """The named expressions of the spec."""
    seed: int
    folder: str = ""
    """The folder of the spec, which is searched for user functions first."""

    @classmethod
    def of(cls, spec: Spec) -> WindowPlanner:
        """Return the planner of a spec whose batches are planned from windows."""
        assert spec.batch is not None, "the spec has a batch"
        return cls(spec.batch, spec.costs, spec.seed, spec.folder)

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
        batch, pack = self.batch, self.batch.pack
        function = None
        if self.cost is not None and batch.is_by_function:
            function = import_function(self.cost, "batch.cost", self.folder)
            check_arguments(function, f"batch.cost: {self.cost}", 1)
        texts = ["1" if self.cost is None or function else self.cost, *batch.limits]
        texts += [batch.balance or "0", batch.group_by or "0"]
        expressions = [parse_expression(text, self.costs) for text in texts]
        paths = list(dict.fromkeys(path for each in expressions for path in each.paths))
        required = {path for each in expressions for path in each.paths if path not in each.optional}
        rules = self.rules
        measure = Measures(parts.transform.fields, paths, frozenset(paths) - required, parts.transform.tags)
        evaluators = [_evaluator(each, [paths.index(path) for path in each.paths]) for each in expressions]
        of_cost, *of_sums, of_weight, of_value = evaluators
        decodes_first = function is not None or parts.transform.select is not None
        multiple = pack.pad_to_multiple_of if pack else 1
        most = self.max_cost
        is_cut = pack is not None and (
            pack.method == "concatenate" or batch.overlong in ("truncate", "split")
        )

        def choose(raw: Sample, ordinal: int) -> Any:
            sample: Sample | None = None
            if decodes_first:
                sample = process(raw, ordinal)
                if sample is None:
                    return None
            try:
                values = measure(raw)
                if values is None:
                    budget.dropped["missing"] += 1
                    return None
                cost = _checked(function(sample) if function else of_cost(values), self.cost)
                cost = -(-cost // multiple) * multiple if multiple > 1 else cost
                sums = tuple(
                    [_checked(of(values), text, 0) for of, text in zip(of_sums, batch.limits, strict=True)]
                )
                weight = _checked(of_weight(values), batch.balance, 0) if batch.balance else 0
                value = of_value(values)
                hash(value)
                is_long = not is_cut and not rules.fits(1, cost, cost, sums)
                if is_long and batch.overlong == "error":
                    limits = f"`max_cost` is {most:g}" if most else "a batch has less"
                    raise FieldError(
                        f"the sample costs {cost:g}, and {limits}; raise it, or set `overlong: drop` or `alone`"
                    )
            except Exception as error:
                if sample is not None:
                    budget.delivered -= 1
                known = isinstance(error, FieldError)
                named = error if known else FieldError(f"cannot measure the sample: {one_line(error)}")
                budget(named, "decode", url=raw["__url__"], key=raw["__key__"])
                return None
            if is_long and batch.overlong == "drop":
                budget.dropped["overlong"] += 1
                return None
            finish = (lambda: process(raw, ordinal)) if sample is None else lambda: sample
            return Candidate(cost, sums, weight, value, is_long and batch.overlong == "alone", finish, budget)

        return choose

    def plan(
        self, candidates: Iterator[Candidate], key: int, turn: int
    ) -> Iterator[list[tuple[Candidate, Piece | None]]]:
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
        pieces: list[Piece | None] = [None] * len(samples)
        pack, rules, most = self.batch.pack, self.rules, self.max_cost
        if pack is not None and most is not None and (cuts := self._cuts(samples, int(most))) is not None:
            batches = cuts
        else:
            whole = [place for place, each in enumerate(samples) if not each.is_alone]
            costs = np.array([samples[place].cost for place in whole], dtype=np.float64)
            sums = np.array([samples[place].sums for place in whole], dtype=np.float64)
            planned = plan_window(costs, sums.reshape(len(whole), len(rules.limits)), rules)
            batches = (
                [[(samples[whole[at]], pieces[0]) for at in batch] for batch in planned] if whole else []
            )
            batches += [[(each, None)] for each in samples if each.is_alone]
        if self.batch.balance:
            order = balance([_weight(batch) for batch in batches], turn)
        else:
            order = permute(len(batches), key)
        yield from (batches[number] for number in order)

    def _cuts(
        self, samples: Sequence[Candidate], most: int
    ) -> list[list[tuple[Candidate, Piece | None]]] | None:
        """Return the rows of a window whose samples are cut; None if none is."""
        batch, pack = self.batch, self.batch.pack
        assert pack is not None, "only packed samples are cut"
        lengths = [int(each.cost) for each in samples]
        if pack.method == "concatenate":
            return [[(samples[piece[0]], piece) for piece in row] for row in concatenate(lengths, most)]
        if batch.overlong not in ("truncate", "split") or max(lengths, default=0) <= most:
            return None
        if batch.overlong == "truncate":
            pieces: list[Piece] = [(place, 0, min(length, most)) for place, length in enumerate(lengths)]
        else:
            pieces = cut_long(lengths, most)
        costs = np.array([stop - start for _, start, stop in pieces], dtype=np.float64)
        planned = plan_window(costs, np.zeros((len(pieces), 0)), self.rules)
        return [[(samples[pieces[at][0]], pieces[at]) for at in row] for row in planned]

    def _gather(self, candidates: Iterator[Candidate]) -> Iterator[list[tuple[Candidate, Piece | None]]]:
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


def _weight(batch: Sequence[tuple[Candidate, Piece | None]]) -> float:
    return sum(each.weight for each, _ in batch)


def _evaluator(expression: Expression, places: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    """Return the function from all values that were read to the value of an expression."""
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
        self._batches: Iterator[list[tuple[Candidate, Piece | None]]] | None = None

    def take(self, m: int) -> list[Sample]:
        """Return the samples of the next batch, the slot's m-th. Those that cannot be decoded are left out."""
        while True:
            batch = self._next(m)
            samples = [sample for each, piece in batch if (sample := self._finish(each, piece)) is not None]
            if samples:
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

    def _next(self, m: int) -> list[tuple[Candidate, Piece | None]]:
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

    def _finish(self, candidate: Candidate, piece: Piece | None) -> Sample | None:
        """Return a decoded sample, or the part of it that a piece names."""
        sample = candidate.finish()
        if sample is None:
            return None
        if piece is None:
            return {**sample, COST: candidate.cost}
        _, start, stop = piece
        pack = self._planner.batch.pack
        assert pack is not None, "only packed samples are cut"
        cut = {**sample, COST: float(stop - start)}
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
                cut[name] = sample[name][start:stop]
        return cut
