"""`clip`, `frames`, `fps`: which part of a film is taken, and which of its frames; and frames brought to a size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from wdspec.decoders.decoder_options import option_values
from wdspec.errors import UsageError
from wdspec.fields.codecs.images.framing import Framing
from wdspec.fields.scale import Numbers

Array = np.ndarray[Any, Any]
_START = 2
"""Which of a sample's numbers says where its clips begin."""


@dataclass(frozen=True)
class Clipping:
    """What the options of a film's decoder say of time."""

    clip: float | None = None
    """Seconds of the part that is taken, from a place that the sample draws; all of the film if None."""
    frames: int | None = None
    """So many frames of it, evenly spaced, each the middle one of its part; of fewer frames some come twice."""
    fps: float | None = None
    """So many frames of each second, the nearest ones."""

    @classmethod
    def of(cls, decoder: str) -> Clipping | None:
        """What the name of a decoder with its options says; None if nothing."""
        values = option_values(decoder)
        said = {option: value for option, value in values.items() if option in cls.__dataclass_fields__}
        return cls(**said) if said else None

    def cut(
        self, frames: Array, samples: Array, about: dict[str, Any], numbers: Numbers | None
    ) -> tuple[Array, Array, dict[str, Any]]:
        """The frames and the sound that are taken, and the facts, with `video_fps` as it is now and `start` in seconds.

        A film that is shorter than `clip` is taken whole. Frames are taken to be evenly spaced.

        Raises:
            ValueError: the film does not say how many frames a second it has.
            UsageError: there are no numbers to draw from.
        """
        rate = float(about.get("video_fps") or 0)
        if not rate and (self.clip or self.fps):
            raise ValueError(
                "it does not say how many frames a second it has, so no part of it can be taken by time"
            )
        count, about = len(frames), {**about, "start": 0.0}
        first, length = 0, count
        if self.clip is not None:
            if numbers is None:
                raise UsageError(
                    "`clip` draws by the place of a sample in a spec's order; elsewhere use `frames` or `fps`"
                )
            length = min(count, max(1, round(self.clip * rate)))
            first = int(numbers(_START) * (count - length + 1))
            about["start"] = first / rate
            samples = _sound(samples, about.get("audio_fps"), first / rate, length / rate, count / rate)
        taken = self._taken(length, rate)
        if taken is None:
            return (frames if length == count else frames[first : first + length].copy()), samples, about
        if rate:
            about["video_fps"] = self.fps or len(taken) * rate / length
        return frames[first + taken], samples, about

    def _taken(self, length: int, rate: float) -> Array | None:
        """Which of so many frames are taken; None for all."""
        if self.frames is not None:
            return ((np.arange(self.frames) + 0.5) * length / self.frames).astype(np.int64)
        if self.fps is None:
            return None
        wanted = max(1, round(length / rate * self.fps))
        return np.minimum(((np.arange(wanted) + 0.5) * rate / self.fps).astype(np.int64), length - 1)


def framed(frames: Array, framing: Framing, numbers: Numbers | None) -> Array:
    """Frames of shape (frames, height, width, 3) brought to a size, all alike."""
    fits = framing.fits((frames.shape[2], frames.shape[1]), numbers)
    if not fits:
        return frames
    results = []
    for frame in frames:
        image = Image.fromarray(frame)
        for fit in fits:
            image = fit(image, False)
        results.append(np.asarray(image))
    return np.stack(results)


def _sound(samples: Array, rate: int | None, start: float, length: float, whole: float) -> Array:
    """The part of the sound that goes with a part of the film, in seconds."""
    if not rate or not samples.shape[1] or length >= whole:
        return samples
    first = round(start * rate)
    return samples[:, first : first + round(length * rate)].copy()
