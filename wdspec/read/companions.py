"""`Companions`, a part of a slot: it gives the samples below it their companions, from streams of its own.

Companions are drawn when the source below yields a raw sample, before it is decoded, so windows hold them undecoded.
The part is therefore not in the way of the samples: it says from whose streams is drawn while it reads (`Supply`). Its
state is that of the part below, then those of its streams, which are those of any source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from wdspec.base.errors import warn_user
from wdspec.fields.audio_file import AudioFile, current
from wdspec.fields.samples import COMPANIONS, Drawn
from wdspec.planning.companions import chance_key
from wdspec.planning.keys import random64
from wdspec.planning.plan import Plan
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.slot import Part, Slot
from wdspec.read.source import SourceStream, StreamState, pack_slot
from wdspec.read.transform import LiveSource, Process, Sample, SourceParts, UserFunctions, Wrapper

_EVERY = 1 << 64
_MANY = 4
"""Samples with a companion twice, after which this may be no chance."""


class Supply:
    """Gives raw samples their companions, in one process: those of the slot that is being read.

    Args:
        plan: the plan.
        parts: how to read each source.
        budgets: those of the sources of companions, by name.
        functions: the functions of the user.
    """

    slot: OpenStreams
    """Those of the slot that is being read."""

    def __init__(
        self,
        plan: Plan,
        parts: Mapping[str, SourceParts],
        budgets: Mapping[str, ErrorBudget],
        functions: UserFunctions,
    ) -> None:
        self.plan = plan
        self.streams = [
            LiveSource(
                each.stream, parts[each.stream.name], budgets[each.stream.name], functions, each.seed, _Held()
            )
            for each in plan.companions
        ]
        """The sources of the streams of a slot."""

    def over(self, sources: Sequence[LiveSource]) -> list[LiveSource]:
        """Return sources whose samples get companions, if they have some."""
        owners = {each.owner for each in self.plan.companions}
        return [
            replace(each, draw=self.draw, wrap=_Accompanied(self, each.wrap))
            if each.plan.name in owners
            else each
            for each in sources
        ]

    def apart(self, sources: Sequence[LiveSource]) -> list[LiveSource]:
        """Return sources whose samples get the first companions of the first slot, whatever else is read."""
        supply = copy(self)
        supply.slot = OpenStreams(supply, 0, [StreamState()] * len(self.streams))
        return supply.over(sources)

    def draw(self, source: LiveSource, process: Process) -> Process:
        """Return a function that calls `process` with raw samples of a source that have companions."""
        own = [(n, each) for n, each in enumerate(self.plan.companions) if each.owner == source.plan.name]
        keys: dict[int, list[int]] = {}
        """By slot: the keys of the numbers that decide who gets companions."""
        current: OpenStreams | None = None
        repeats = {each.field: [0, 0] for _, each in own if each.count > 1}
        """By field: samples that got a companion twice, and all that got some; empty after a warning."""
        draws: list[tuple[str, int, int, int, Iterator[Drawn]]] = []
        """Of the current slot: the field, the threshold and key of its numbers, how many to take, and the stream."""

        def give(raw: Sample, ordinal: int) -> Sample | None:
            nonlocal current, draws
            if self.slot is not current:
                current = self.slot
                if current.number not in keys:
                    keys[current.number] = [chance_key(source.seed, each, current.number) for _, each in own]
                draws = [
                    (each.field, each.threshold, key, each.count, current.streams[n])
                    for (n, each), key in zip(own, keys[current.number], strict=True)
                ]
            drawn: dict[str, Any] = {}
            for field, threshold, key, count, stream in draws:
                if threshold < _EVERY and random64(key, ordinal) >= threshold:
                    drawn[field] = None
                elif count == 1:
                    drawn[field] = next(stream)
                else:
                    taken = drawn[field] = [*islice(stream, count)]
                    if field in repeats and _is_repetitive(repeats[field], taken):
                        del repeats[field]
                        warn_user(
                            f"`companions: {field}` of `{source.plan.name}` gives most samples one companion twice, "
                            f"since a slot has few for `count: {count}`; use more companions, a smaller "
                            "`count`, or fewer slots (`elastic`)"
                        )
            raw[COMPANIONS] = drawn
            return process(raw, ordinal)

        return give


def _is_repetitive(counts: list[int], taken: Sequence[Drawn]) -> bool:
    """Count a sample with these companions, and return whether most of the first samples had one of them twice.

    Where a pass of the companions ends within a sample, this is so now and then.
    """
    places = {(raw.get("__url__"), raw["__key__"]) for _, raw, _ in taken}
    counts[0] += len(places) < len(taken)
    counts[1] += 1
    return counts[0] >= _MANY and 2 * counts[0] > counts[1]


@dataclass(frozen=True)
class _Accompanied:
    """A `Wrapper` whose samples get companions, around another one."""

    supply: Supply
    inner: Wrapper | None

    def decodes_first(self, parts: SourceParts) -> bool:
        return self.inner is None or self.inner.decodes_first(parts)

    def __call__(self, source: LiveSource, process: Process) -> Process:
        """Return the function that draws companions, and calls `process` after they are decoded, perhaps later."""
        if self.inner is None:
            return self.supply.draw(source, _decoding(process))
        finish = _decoding(process)
        return self.supply.draw(source, self.inner(source, lambda raw, ordinal: finish(raw.copy(), ordinal)))


def _decoding(process: Process) -> Process:
    """Return a function that decodes the companions of a raw sample before `process`, with errors of their own.

    It changes the raw sample.
    """

    def decode(drawn: Any) -> Any:
        return None if drawn is None else [use(raw, ordinal) for use, raw, ordinal in drawn]

    def finish(raw: Sample, ordinal: int) -> Sample | None:
        found = {}
        for field, drawn in raw[COMPANIONS].items():
            if drawn.__class__ is tuple:
                use, other, number = drawn
                found[field] = use(other, number)
            else:
                found[field] = decode(drawn)
        raw[COMPANIONS] = found
        return process(raw, ordinal)

    return finish


class _Held:
    """A `Wrapper` that makes of raw companions what a stream yields: decoded only if some may be left out.

    What is not decoded there is, if possible, later decoded without its recordings.
    """

    def decodes_first(self, parts: SourceParts) -> bool:
        return parts.drops_decoded

    def __call__(self, source: LiveSource, process: Process) -> Callable[..., Any]:
        if not source.parts.drops_decoded:
            can_leave = source.parts.transform.can_leave_audio
            use = _leaving_audio(process, source.budget) if can_leave else process
            return lambda raw, ordinal: (use, raw, ordinal)

        def decode(raw: Sample, ordinal: int) -> Drawn | None:
            sample = process(raw, ordinal)
            return None if sample is None else (lambda raw, ordinal: sample, raw, ordinal)

        return decode


def _leaving_audio(process: Process, budget: ErrorBudget) -> Process:
    """Return a function that decodes raw companions without their recordings, which are then `AudioFile`s.

    A recording of which a part turns out to be damaged is decoded once more by `process`, which knows what to do.
    """

    def decode(raw: Sample, ordinal: int) -> Sample | None:
        current.leaves_audio = True
        try:
            sample = process(raw, ordinal)
        finally:
            current.leaves_audio = False
        for field, value in (sample or {}).items():
            if value.__class__ is AudioFile:
                value.again = partial(_field_of, decode_again, raw, ordinal, field)
            elif value.__class__ is list and AudioFile in map(type, value):
                return decode_again(raw, ordinal)
        return sample

    def decode_again(raw: Sample, ordinal: int) -> Sample | None:
        budget.delivered -= 1
        return process(raw, ordinal)

    return decode


def _field_of(process: Process, raw: Sample, ordinal: int, field: str) -> Any:
    sample = process(raw, ordinal)
    return None if sample is None else sample[field]


class OpenStreams:
    """The streams of companions of a slot."""

    def __init__(self, supply: Supply, number: int, states: Sequence[StreamState]) -> None:
        self.number = number
        streams = zip(supply.streams, states, strict=False)  # further states are those of parts above
        self.opened = [SourceStream(live, number, state) for live, state in streams]
        self.streams = [iter(each) for each in self.opened]


class Companions(Part[Any]):
    """The samples of slot (c, k), which get companions as they are read: a `Slot`.

    Args:
        below: the samples.
        supply: what gives them their companions.
        number: the number of the slot.
        states: the states of the streams.
    """

    def __init__(self, below: Slot[Any], supply: Supply, number: int, states: Sequence[StreamState]) -> None:
        super().__init__(below)
        self._supply, self._own = supply, OpenStreams(supply, number, states)

    def take(self, m: int) -> Sequence[Any]:
        """Return the m-th block or batch."""
        self._supply.slot = self._own
        return self.below.take(m)

    def samples(self, m: int) -> Iterator[Any]:
        """Yield the samples of the m-th block one by one, each read when it is requested."""
        samples = self.below.samples(m)
        while True:
            self._supply.slot = self._own  # another slot may have been read since
            try:
                sample = next(samples)
            except StopIteration:
                return
            yield sample

    def skip(self, m: int) -> None:
        """Move past the m-th block or batch, and the companions of its samples."""
        self._supply.slot = self._own
        self.below.skip(m)

    def pack(self) -> bytes:
        """Return the state after the last block or batch."""
        below = self.below.pack() or pack_slot([StreamState()] * len(self._supply.plan.sources))
        return b"".join([below, *(each.pack() for each in self._own.opened)])

    def close(self) -> None:
        """Close all open shards."""
        for each in self._own.opened:
            each.close()
        super().close()
