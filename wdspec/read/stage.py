"""`Stage`, a part of a slot: a function from iterator to iterator, which may hold samples back.

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
from itertools import islice

from wdspec.base.errors import SpecError, UsageError, WdspecError, tell_place
from wdspec.planning.keys import key64, random64
from wdspec.planning.plan import Plan
from wdspec.read.randomness import GlobalGenerators
from wdspec.read.sections import Begun, SectionDraws
from wdspec.read.slot import Part, Slot
from wdspec.read.source import StreamState
from wdspec.read.transform import Sample, build_function
from wdspec.spec.language.samples import Call, StageOption

log = logging.getLogger("wdspec")

_BARREN = 20
"""Consecutive points without a sample after which an error is raised."""


StageFunction = Callable[[Iterator[Sample]], Iterator[Sample]]
"""The samples up to a point → what the stage yields for them."""


def build_stage(stage: StageOption, folder: str) -> StageFunction:
    """Return what a stage does. Its functions are searched for in a folder first. Raises as `build_function`."""
    return build_function(Call(call=stage.call, args=stage.args), "stage", {}, folder)


class Stage(Part[Sample]):
    """What a stage yields, b samples at a time: a `Slot`.

    Args:
        below: its input.
        point: the place to resume from.
        draws: draws the input.
        is_top: whether its sections begin at the turns of the slot; otherwise with those of the windows above.
        stage: the stage, as the spec names it.
        function: what it does (`build_stage`).
        plan: the plan.
        number: the number of the slot.
        generators: the random generators lent to the function; None if other threads draw from them.
    """

    def __init__(
        self,
        below: Slot[Sample],
        point: StreamState,
        draws: SectionDraws,
        is_top: bool,
        stage: StageOption,
        function: StageFunction,
        plan: Plan,
        number: int,
        generators: GlobalGenerators | None,
    ) -> None:
        super().__init__(below)
        self._draws, self._is_top, self._per_slot = draws, is_top, plan.batching.per_slot
        self._stage, self._name = function, stage.name
        self._batches = -(-stage.every // self._per_slot)
        """Batches from one point to the next."""
        self._next = point.turn
        """The next batch of the slot to use as input."""
        self._key, self._generators = key64(plan.seed, "stage", number), generators
        if generators is not None:
            generators.seed_random_too()
        self._yielded, self._repeated = 0, point.ordinal
        self._resumed = point if point.ordinal else None
        """The place in the input that has to be read again."""
        self._begun: Begun | None = None
        self._point = (bytes(below.pack()), self._next)
        self._turn = 0
        """The batch that is being read."""
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
        return list(self.samples(m))

    def samples(self, m: int) -> Iterator[Sample]:
        """Yield the next b samples, in order, whatever m is."""
        self._turn = m
        while self._repeated:
            next(self._outputs)
            self._repeated -= 1
        return islice(self._outputs, self._per_slot)

    def skip(self, m: int) -> None:
        """Move past the next b samples, which the stage has to produce."""
        self.take(m)

    def pack(self) -> bytes:
        """The state after the last batch taken."""
        below, at = self._point
        if self._resumed is not None:
            return below + self._resumed.pack()
        yielded = self._yielded + self._repeated
        place = StreamState(at) if self._begun is None else self._begun.place(at, yielded)
        return below + place.pack()

    def _run(self) -> Iterator[Sample]:
        barren = 0
        while True:
            self._begin()
            self._point, self._yielded = (bytes(self.below.pack()), self._next), 0
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

    def _begin(self) -> None:
        """Draw the input up to the next point."""
        if self._resumed is not None:
            self._begun = self._draws.resume(self._resumed)
        else:
            self._begun = self._draws.begin(self._turn) if self._is_top else self._draws.current
        self._draws.draw(self._begun)
        self._resumed = None

    def _seed_output(self) -> None:
        """Seed the generators for what the stage draws before it yields again or takes a sample."""
        if self._generators is not None:
            point = key64(self._key, "output", self._point[1])
            self._generators.seed(random64(point, self._yielded))

    def _input(self, until: int) -> Iterator[Sample]:
        while self._next < until:
            at, samples = self._next * self._per_slot, self.below.take(self._next)
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
        try:
            for sample in outputs:
                if not isinstance(sample, dict):
                    raise SpecError(
                        f"`stage: {self._name}` yielded a {type(sample).__name__}, not a sample, which is a dict"
                    )
                yield sample
        except GeneratorExit:
            raise
        except WdspecError:  # it is of the input, or says what the stage did
            raise
        except Exception as error:
            tell_place(error, stage=self._name)
            raise
