"""One slot behind a stage: a function of the user's own from iterator to iterator, which may hold samples back.

Nobody can save what a generator holds, and a state holds no samples. So the stage's input ends after `every` samples:
the stage gives what it held back, nothing is left in it, and that is a *point* to go on from. A state is the state of
the slot at the last point, how many batches it had read there, and how many samples the stage has given since; a
resumed run reads on from the point, and leaves out that many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from wdspec.base.errors import SpecError, UsageError
from wdspec.planning.keys import key64, random64
from wdspec.planning.stream_state import StreamState, pack_slot, unpack_slot
from wdspec.read.randomness import GlobalGenerators
from wdspec.read.slot import SlotStream
from wdspec.read.transform import Sample

log = logging.getLogger("wdspec")

Stage = Callable[[Iterator[Sample]], Iterator[Sample]]
_BARREN = 20
"""Points in a row without a sample, after which a stage is given up."""


class StagedSlot:
    """The stream of a slot after a stage, read b samples at a time: what `SlotStream` is without one.

    Args:
        open: makes the slot's stream from its state.
        per_slot: b.
        every: samples from one point to the next; a multiple of b.
        number: of the slot.
        state: the packed state to go on from; None begins afresh.
    """

    def __init__(
        self,
        open: Callable[[bytes | None], SlotStream],
        stage: Stage,
        name: str,
        *,
        per_slot: int,
        every: int,
        seed: int,
        number: int,
        generators: GlobalGenerators | None,
        state: bytes | None,
    ) -> None:
        *states, stood = unpack_slot(state) if state else [StreamState()]
        self._slot = open(pack_slot(states) if states else None)
        self._stage, self._name = stage, name
        self._per_slot, self._batches = per_slot, every // per_slot
        self._next = stood.turn
        """The slot's next batch of input."""
        self._key, self._generators = key64(seed, "stage", number), generators
        if generators is not None:
            generators.seed_random_too()
        self._given, self._skipped = 0, stood.ordinal
        self._point = (self._slot.pack(), self._next)
        if self._skipped:
            log.info(
                "the stage %s goes on from its last point: slot %d takes %d samples again, and leaves them out",
                name,
                number,
                self._skipped,
            )
        self._outputs = self._run()

    def take(self, m: int) -> list[Sample]:
        """The next b samples; they come in order, whatever m is."""
        while self._skipped:
            next(self._outputs)
            self._skipped -= 1
        return [next(self._outputs) for _ in range(self._per_slot)]

    def pass_over(self, m: int) -> None:
        """Goes on behind the next b samples, which the stage has to make."""
        self.take(m)

    def pack(self) -> bytes:
        """The state after the last batch taken."""
        slot, at = self._point
        states = unpack_slot(slot)
        return pack_slot([*states, StreamState(at, self._given + self._skipped)])

    def close(self) -> None:
        """Closes all open shards."""
        self._slot.close()

    def _run(self) -> Iterator[Sample]:
        barren = 0
        while True:
            self._point, self._given = (self._slot.pack(), self._next), 0
            until = self._next + self._batches
            for sample in self._checked(self._stage(self._input(until))):
                self._given += 1
                yield sample
            if self._next != until:
                raise UsageError(
                    f"`stage: {self._name}` ended before its input: it must take every sample, and give those that it "
                    "wants; the input ends by itself"
                )
            barren = 0 if self._given else barren + 1
            if barren == _BARREN:
                raise UsageError(
                    f"`stage: {self._name}` gave nothing for {_BARREN * self._batches * self._per_slot:,} samples"
                )

    def _input(self, until: int) -> Iterator[Sample]:
        while self._next < until:
            at, samples = self._next * self._per_slot, self._slot.take(self._next)
            for number, sample in enumerate(samples, 1):
                if number == len(samples):
                    self._next += 1
                if self._generators is not None:
                    self._generators.seed(random64(self._key, at + number))
                yield sample

    def _checked(self, outputs: Iterator[Sample]) -> Iterator[Sample]:
        if not hasattr(outputs, "__iter__"):
            raise SpecError(
                f"`stage: {self._name}` gave a {type(outputs).__name__}, not an iterator; write a generator: "
                "`def stage(samples): for sample in samples: yield sample`"
            )
        for sample in outputs:
            if not isinstance(sample, dict):
                raise SpecError(
                    f"`stage: {self._name}` gave a {type(sample).__name__}, not a sample, which is a dict"
                )
            yield sample
