"""`segment`: a part of a recording, which is decoded without what lies before it if the format allows that."""

from __future__ import annotations

import math
import numbers as kinds
from collections.abc import Callable
from typing import Any

from wdspec.base.amounts import show_value
from wdspec.base.errors import FieldError
from wdspec.fields.codecs.audio import AudioDecoder, audio_decoder
from wdspec.fields.codecs.recording import Recording, read_seconds
from wdspec.fields.decode import one_line
from wdspec.fields.values import Audio

SLACK = 0.025
"""How far a segment may exceed the recording, in seconds: durations are rounded."""
Numbers = Callable[[int], float]
"""0, 1, 2, … → the random numbers of a sample, in [0, 1)."""


def make_segment(*, decode: str = "audio", **paths: str) -> Segmenter:
    """Return a function that reads segments of recordings.

    Args:
        decode: the decoder, with the options of `audio`, such as ``audio+rate=16000+mono``.
        paths: for messages, where `offset`, `duration` and `source_rate` come from.

    Returns:
        (bytes of the file, numbers, offset, duration, source_rate) → (samples, rate). The times are in seconds; None is
        the start, or the end. It raises FieldError if there is no such segment.

    Example:
        >>> from wdspec.steps import make_segment
        >>> segment = make_segment(decode="audio+rate=16000+mono")
        >>> audio = segment(open("talk.flac", "rb").read(), offset=12.5, duration=4.2)  # doctest: +SKIP
        >>> audio.samples.shape, audio.rate                                              # doctest: +SKIP
        ((1, 67200), 16000)
    """
    return Segmenter(audio_decoder(decode), paths)


class Segmenter:
    """Reads segments of recordings; see `make_segment`."""

    def __init__(self, decoder: AudioDecoder, paths: dict[str, str]) -> None:
        self._decoder, self._paths = decoder, paths

    def __call__(
        self,
        data: Any,
        numbers: Numbers | None = None,
        offset: Any = None,
        duration: Any = None,
        source_rate: Any = None,
    ) -> Audio:
        """Return a segment. Raises FieldError if there is none."""
        start, seconds = self._times(offset, duration)
        self._check_bytes(data)
        try:
            recording = Recording(data)
        except (ValueError, RuntimeError) as cause:
            raise FieldError(f"cannot decode as audio: {one_line(cause)}") from cause
        rate = recording.rate
        if source_rate is not None and source_rate != rate:
            raise FieldError(
                f"the recording has {rate:,} Hz, and {self._name('source_rate')} says {show_value(source_rate)}; "
                "correct one of them"
            )
        first = math.floor(start * rate + 0.5)
        stop = None if seconds is None else first + max(1, math.floor(seconds * rate + 0.5))
        audio = self._decoder.read(recording, first, stop, numbers) if first < recording.estimate else None
        if audio is None or audio.samples.shape[1] == 0 or (stop or 0) > recording.estimate:
            self._check_end(start, seconds, recording.length() / rate)
        assert audio is not None, "it starts before the end"
        return audio

    def seconds(self, data: Any, offset: Any = None, duration: Any = None, source_rate: Any = None) -> float:
        """Return how long a segment is: its `duration`, or else what the header of the file says."""
        start, seconds = self._times(offset, duration)
        if seconds is not None:
            return seconds
        self._check_bytes(data)
        whole = read_seconds(data)
        if start >= whole:
            self._check_end(start, None, whole)
        return whole - start

    def _times(self, offset: Any, duration: Any) -> tuple[float, float | None]:
        """Return offset and duration as numbers. Raises FieldError if they cannot be such times."""
        start = 0.0 if offset is None else self._number("offset", offset)
        seconds = None if duration is None else self._number("duration", duration)
        if start < 0:
            raise FieldError(
                f"a segment cannot start at {start:g} s: {self._name('offset')} must be 0 or more"
            )
        if seconds is not None and seconds <= 0:
            raise FieldError(f"a segment cannot have {seconds:g} s: {self._name('duration')} must be above 0")
        return start, seconds

    def _number(self, option: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, kinds.Real) or not math.isfinite(value):
            raise FieldError(
                f"{self._name(option)} must be a number of seconds, and this is {show_value(value)}; correct it"
            )
        return float(value)

    def _check_bytes(self, data: Any) -> None:
        if not isinstance(data, bytes):
            raise FieldError(
                f"`segment` reads the bytes of an audio file, and this is {type(data).__name__}; do not decode the "
                "field before, and write the decoder into `segment`: `decode: audio+rate=16000`"
            )

    def _check_end(self, start: float, seconds: float | None, end: float) -> None:
        """Raise FieldError if a segment is not within a recording."""
        if start >= end:
            raise FieldError(
                f"the segment starts at {start:.3f} s, and the recording ends at {end:.3f} s; correct "
                f"{self._name('offset')}, or skip such samples with `errors: skip`"
            )
        if seconds is not None and start + seconds > end + SLACK:
            raise FieldError(
                f"the segment ends at {start + seconds:.3f} s, and the recording at {end:.3f} s; correct "
                f"{self._name('duration')}, or skip such samples with `errors: skip`"
            )

    def _name(self, option: str) -> str:
        path = self._paths.get(option)
        return f"`{option}`" if path is None or path == option else f"`{option}: {path}`"
