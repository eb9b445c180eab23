"""Sound to be written: (samples, rate), as `audio` reads it → wav, flac and more, by libsndfile."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from wdspec.fields.decoders.optional_libraries import library


@dataclass(frozen=True)
class AudioEncoder:
    """Writes sound in one format.

    Args:
        format: libsndfile's name of it, such as ``FLAC``.
        subtype: its name of the coding, such as ``PCM_16``.
    """

    format: str
    subtype: str

    def __call__(self, value: Any) -> bytes:
        """The file for a pair of samples and their rate in Hz.

        The samples are floats in -1..1 (or int16), of shape (channels, samples) or (samples,): an array or a tensor.

        Raises:
            TypeError, ValueError: it is no such pair, or louder than 1. (UsageError: soundfile is not installed.)
        """
        import numpy as np

        soundfile = library("soundfile", "writing audio")
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise TypeError(f"{type(value).__name__} is no sound; give (samples, rate in Hz), or bytes")
        samples, rate = value
        if hasattr(samples, "detach"):
            samples = samples.detach().cpu().numpy()
        samples = np.asarray(samples)
        if samples.ndim not in (1, 2) or samples.dtype.kind not in "fi":
            raise TypeError(
                f"an array of {samples.dtype} of shape {samples.shape} is no sound; give floats (channels, samples)"
            )
        if samples.dtype.kind == "f":
            samples = samples.astype(np.float32, copy=False)
            if samples.size and not float(np.abs(samples).max()) <= 1:
                raise ValueError("its samples go beyond -1..1, and would be cut off; scale them")
        out = io.BytesIO()
        soundfile.write(out, samples.T, int(rate), format=self.format, subtype=self.subtype)
        return out.getvalue()


AUDIO_ENCODERS: dict[str, AudioEncoder] = {
    "wav": AudioEncoder("WAV", "PCM_32"),
    "aif": AudioEncoder("AIFF", "PCM_32"),
    "aiff": AudioEncoder("AIFF", "PCM_32"),
    "au": AudioEncoder("AU", "PCM_32"),
    "flac": AudioEncoder("FLAC", "PCM_24"),
    "mp3": AudioEncoder("MP3", "MPEG_LAYER_III"),
}
"""Suffix → encoder; flac keeps 24 bits of a sample, the others but mp3 keep 32.

Not ogg, nor wav and aiff of floats: libsndfile writes random numbers and the time into these, and the same samples
would give other bytes each time."""
