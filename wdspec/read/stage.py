"""One slot after a stage: a user function from iterator to iterator, which may hold samples back.

What a generator holds cannot be saved, and a state holds no samples. So the input of the stage ends after `every`
samples. Then the stage yields what it held back and is empty: a *point* to resume from. A state is the state of the
slot at the last point, the number of batches it had read there, and the number of samples that the stage has yielded
since. A resumed run starts again at the point and drops that many samples.

The function may draw random numbers at any time, so the global generators are seeded whenever it runs: for each sample
that it takes, and for each that it yields. They are lent only while a batch is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from wdspec.base.errors import SpecError, UsageError
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.keys import key64, random64
from wdspec.planning.plan import Plan
from wdspec.read.randomness import GlobalGenerators
from wdspec.read.slot import EndlessSlot
from wdspec.read.source import StreamState, pack_slot, unpack_slot
from wdspec.read.transform import Sample, build_function
from wdspec.spec.language.samples import Call, StageOption

log = logging.getLogger("wdspec")

_BARREN = 20
"""Consecutive points without a sample after which an error is raised."""


class StagedSlot:
    """The stream of a slot after a stage, read b samples at a time: a `Slot`.

    Args:
        stage: the stage, as the spec names it.
        folder: the folder of the spec, which is searched for the function first.
        plan: the plan.
        rank, worker: c and k of the slot.
        open: opens the slot before the stage from its state.
        generators: the random generators lent to the function; None if other threads draw from them.
        state: the packed state to resume from; None starts at the beginning.
    """

    def __init__(
        self,
        stage: StageOption,
        folder: str,
        plan: Plan,
        rank: int,
        worker: int,
        open: Callable[[bytes | None], EndlessSlot],
        generators: GlobalGenerators | None,
        state: bytes | None,
    ) -> None:
        number, self._per_slot = plan.topology.slot(rank, worker), plan.batching.per_slot
        *states, point = unpack_slot(state) if state else [StreamState()]
        self._slot = open(pack_slot(states) if states else None)
        self._stage = build_function(Call(call=stage.call, args=stage.args), "stage", {}, folder)
        self._name = stage.call
        self._batches = -(-stage.every // self._per_slot)
        """Batches from one point to the next."""
        self._next = point.turn
        """The next batch of the slot to use as input."""
        self._key, self._generators = key64(plan.seed, "stage", number), generators
        if generators is not None:
            generators.seed_random_too()
        self._yielded, self._repeated = 0, point.ordinal
        self._point = (self._slot.pack(), self._next)
        if self._repeated:
            log.info(
                "the stage %s resumes from its last point: slot %d processes %d samples again and drops them",
                self._name,
                number,
                self._repeated,
            )
        self._outputs = self._run()

    def take(self, m: int) -> list[Sample]:
        """Return the next b samples, in order, whatever m is."""
        while self._repeated:
            next(self._outputs)
            self._repeated -= 1
        return [next(self._outputs) for _ in range(self._per_slot)]

    def skip(self, m: int) -> None:
        """Move past the next b samples, which the stage has to produce."""
        self.take(m)

    def draw_by(self, draws: Draws | ScheduledDraws) -> None:
        """Raise: `checked_shares` refuses to set shares before a stage."""
        raise AssertionError("shares cannot be set before a stage")

    def pack(self) -> bytes:
        """The state after the last batch taken."""
        slot, at = self._point
        states = unpack_slot(slot)
        return pack_slot([*states, StreamState(at, self._yielded + self._repeated)])

    def close(self) -> None:
        """Close all open shards."""
        self._slot.close()

    def _run(self) -> Iterator[Sample]:
        barren = 0
        while True:
            self._point, self._yielded = (self._slot.pack(), self._next), 0
            until = self._next + self._batches
            self._seed_output()
            for sample in self._check_outputs(self._stage(self._input(until))):
                self._yielded += 1
                yield sample
                self._seed_output()  # other slots or the training loop may have drawn since
            if self._next != until:
                raise UsageError(
                    f"`stage: {self._name}` ended before its input; it must read every sample, and can yield any of "
                    "them, as the input ends by itself"
                )
            barren = 0 if self._yielded else barren + 1
            if barren == _BARREN:
                raise UsageError(
                    f"`stage: {self._name}` yielded nothing for {_BARREN * self._batches * self._per_slot:,} samples"
                )

    def _seed_output(self) -> None:
        """Seed the generators for what the stage draws before it yields again or takes a sample."""
        if self._generators is not None:
            point = key64(self._key, "output", self._point[1])
            self._generators.seed(random64(point, self._yielded))

    def _input(self, until: int) -> Iterator[Sample]:
        while self._next < until:
            at, samples = self._next * self._per_slot, self._slot.take(self._next)
            for number, sample in enumerate(samples, 1):
                if number == len(samples):
                    self._next += 1
                if self._generators is not None:
                    self._generators.seed(random64(self._key, at + number))
                yield sample

    def _check_outputs(self, outputs: Iterator[Sample]) -> Iterator[Sample]:
        if not hasattr(outputs, "__iter__"):
            raise SpecError(
                f"`stage: {self._name}` returned a {type(outputs).__name__}, not an iterator; write a generator: "
                "`def stage(samples): for sample in samples: yield sample`"
            )
        for sample in outputs:
            if not isinstance(sample, dict):
                raise SpecError(
                    f"`stage: {self._name}` yielded a {type(sample).__name__}, not a sample, which is a dict"
                )
            yield sample
