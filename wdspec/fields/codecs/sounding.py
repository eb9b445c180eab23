"""The options of decoders of audio: one channel, a random part, another speed, another rate, another level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.fields.codecs.recording import Array, Recording
from wdspec.fields.scale import Numbers
from wdspec.spec.language.decoder_options import option_values
from wdspec.spec.language.decoders import library

_START, _SPEED, _GAIN = 32, 33, 34
"""The numbers of a sample that decide where its clip starts, and its speed and gain."""
Span = tuple[float, float]


@dataclass(frozen=True)
class Sounding:
    """What the options of a decoder do with a recording, in the order of the fields."""

    mono: bool = False
    clip: float | None = None
    """Seconds of the result; None for all."""
    speed: Span | None = None
    rate: int | None = None
    """In Hz; None for that of the recording."""
    gain: Span | None = None
    """In decibels."""

    @classmethod
    def of(cls, decoder: str) -> Sounding:
        """Return the options in the name of a decoder."""
        return cls(mono="mono" in decoder.split("+"), **option_values(decoder))

    def read(
        self, recording: Recording, first: int, stop: int | None, numbers: Numbers | None
    ) -> tuple[Array, int]:
        """Return a part of a recording as the options say, and its rate.

        Args:
            recording: the recording.
            first, stop: the part, in its samples; None for the end.
            numbers: the random numbers of the sample.

        Raises:
            UsageError: there are no random numbers, or a library is not installed.
        """
        speed = 1.0 if self.speed is None else _draw("speed", self.speed, _SPEED, numbers)
        rate, own = self.rate or recording.rate, recording.rate
        most = None
        if self.clip is not None:
            most = max(1, round(self.clip * rate))
            first, stop = _choose_part(recording, first, stop, math.ceil(most * own * speed / rate), numbers)
        samples = recording.read(first, stop)
        if self.mono and len(samples) > 1:
            samples = samples.mean(axis=0, keepdims=True)
        if own * speed != rate:
            samples = resample(samples, own * speed, rate)
        samples = samples[:, :most]
        if self.gain is not None:
            samples = samples * np.float32(10 ** (_draw("gain", self.gain, _GAIN, numbers) / 20))
        return np.ascontiguousarray(samples), rate

    def without_clip(self, recording: Recording, numbers: Numbers | None) -> tuple[Sounding, int, int] | None:
        """Return what is done with any part of the result, and where the result starts and ends in a recording.

        None if that is not the same as doing it with the whole: a filter reads what is before and after a sample.
        """
        if self.speed is not None or self.rate not in (None, recording.rate):
            return None
        first, stop = 0, recording.length()
        if self.clip is not None:
            first, stop = _choose_part(recording, 0, None, max(1, round(self.clip * recording.rate)), numbers)
        return replace(self, clip=None), first, stop


def resample(samples: Array, old: float, new: float) -> Array:
    """Return samples (channels, n) at another rate, with soxr in its quality HQ.

    These are exactly ⌊n · new / old + ½⌋ samples, as soxr gives, but at least one.
    """
    soxr = library("soxr", "resampling audio")
    count = max(1, math.floor(samples.shape[1] * new / old + 0.5))
    made = soxr.resample(samples[0] if len(samples) == 1 else samples.T, old, new, quality="HQ")
    if len(made) < count:  # only if soxr rounds to no sample
        made = np.pad(made, [(0, count - len(made)), (0, 0)][: made.ndim])
    return np.ascontiguousarray(made[:count].T.reshape(len(samples), count))


def _choose_part(
    recording: Recording, first: int, stop: int | None, count: int, numbers: Numbers | None
) -> tuple[int, int]:
    """Return where a random part of a number of samples starts and ends. A shorter part is taken whole."""
    end = recording.length() if stop is None else min(stop, recording.length())
    spare = end - first - count
    if spare <= 0:
        return first, end
    if numbers is None:
        raise _without_numbers("clip")
    first += int(numbers(_START) * (spare + 1))
    return first, first + count


def _draw(option: str, span: Span, number: int, numbers: Numbers | None) -> float:
    low, high = span
    if low == high:
        return low
    if numbers is None:
        raise _without_numbers(option)
    return low + numbers(number) * (high - low)


def _without_numbers(option: str) -> UsageError:
    return UsageError(
        f"`{option}` needs random numbers, which only samples of a spec have; otherwise use your own function"
    )
