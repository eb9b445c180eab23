"""Audio: bytes → `Audio`, the samples as float32 in -1..1 of shape (channels, samples), and their rate; and back.

`codecs/recording.py` reads files, and `codecs/sounding.py` has the options of decoders.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wdspec.fields.audio_file import AudioFile, current
from wdspec.fields.codecs.recording import Recording
from wdspec.fields.scale import Numbers
from wdspec.fields.values import Audio
from wdspec.spec.language.decoders import library


@dataclass(frozen=True)
class AudioDecoder:
    """Reads a recording as `decode` says.

    Args:
        name: the decoder with its options: ``audio+rate=16000+mono``.
        is_torch: whether the samples are a tensor.
        sounding: what the options do; None without options.
    """

    name: str
    is_torch: bool
    sounding: Any = None

    def __call__(
        self, data: bytes, factor: float | None = None, numbers: Numbers | None = None
    ) -> Audio | AudioFile:
        """Return the recording; an `AudioFile` in a thread that leaves recordings in their files.

        Raises as `Recording`; UsageError if an option needs random numbers and has none.
        """
        recording = Recording(data)
        left = self._leave(recording, numbers) if current.leaves_audio else None
        return self.read(recording, 0, None, numbers) if left is None else left

    def _leave(self, recording: Recording, numbers: Numbers | None) -> AudioFile | None:
        """Return a recording in its file; None if no part of it can be read without the rest, with the same values."""
        if not recording.can_seek:
            return None
        sounding, first, stop = self.sounding, 0, recording.length()
        if sounding is not None:
            found = sounding.without_clip(recording, numbers)
            if found is None:
                return None
            sounding, first, stop = found
        of_part = replace(self, sounding=sounding)
        return AudioFile(
            stop - first, lambda start, end: of_part.read(recording, first + start, first + end, numbers)
        )

    def read(self, recording: Recording, first: int, stop: int | None, numbers: Numbers | None) -> Audio:
        """Return a part of a recording.

        Args:
            recording: the recording.
            first, stop: the part, in its samples; None for the end.
            numbers: the random numbers of the sample.
        """
        if self.sounding is None:
            samples, rate = recording.read(first, stop), recording.rate
        else:
            samples, rate = self.sounding.read(recording, first, stop, numbers)
        if self.is_torch:
            samples = library("torch", f"the decoder {self.name}").from_numpy(samples)
        return Audio(samples, rate)


def audio_decoder(name: str, field: str = "", suffix: str = "") -> AudioDecoder:
    """Return the reader of a decoder of audio, such as ``torch_audio+rate=16000``."""
    base, has_options, _ = name.partition("+")
    sounding = None
    if has_options:
        from wdspec.fields.codecs.sounding import Sounding  # most specs have no options

        sounding = Sounding.of(name)
    return AudioDecoder(name, base == "torch_audio", sounding)


def read_audio(data: bytes) -> Audio:
    """Read samples (channels, samples) as a writable float32 array, and the sample rate in Hz, without resampling.

    Raises:
        ValueError: more samples than `MAX_SAMPLES`, none, or fewer than the file says; or one is NaN. (Libraries raise
            other errors.)
        UsageError: the library that reads this format is not installed.
    """
    return audio_decoder("audio").read(Recording(data), 0, None, None)


def read_torch_audio(data: bytes) -> Audio:
    """Like `read_audio`, with a torch tensor, as `torchaudio.load` returned it."""
    return audio_decoder("torch_audio").read(Recording(data), 0, None, None)


@dataclass(frozen=True)
class AudioEncoder:
    """Writes audio in one format.

    Args:
        format: libsndfile's name of the format, such as ``FLAC``.
        subtype: its name of the encoding, such as ``PCM_16``.
    """

    format: str
    subtype: str

    def __call__(self, value: Any) -> bytes:
        """Return the file for a pair of samples and their rate in Hz.

        The samples are floats in -1..1 (or int16), of shape (channels, samples) or (samples,), in an array or tensor.

        Raises:
            TypeError, ValueError: it is not such a pair, or louder than 1. (UsageError: soundfile is not installed.)
        """
        soundfile = library("soundfile", "writing audio")
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise TypeError(f"{type(value).__name__} is not audio; pass (samples, rate in Hz), or bytes")
        samples, rate = value
        if hasattr(samples, "detach"):
            samples = samples.detach().cpu().numpy()
        samples = np.asarray(samples)
        if samples.ndim not in (1, 2) or samples.dtype.kind not in "fi":
            raise TypeError(
                f"an array of {samples.dtype} of shape {samples.shape} is not audio; pass floats (channels, samples)"
            )
        if samples.dtype.kind == "f":
            samples = samples.astype(np.float32, copy=False)
            if samples.size and not float(np.abs(samples).max()) <= 1:
                raise ValueError("its samples exceed -1..1, and would be clipped; scale them")
        out = io.BytesIO()
        soundfile.write(out, samples.T, int(rate), format=self.format, subtype=self.subtype)
        return out.getvalue()


def audio_encoder(extension: str) -> AudioEncoder:
    """Return the writer of a format."""
    return _WRITERS[extension]


# flac keeps 24 bits of a sample; the others, except mp3, keep 32. Neither ogg nor wav and aiff of floats: libsndfile
# writes random numbers and the time into these, so that the same samples would give different bytes.
_AIFF = AudioEncoder("AIFF", "PCM_32")
_WRITERS = {
    "wav": AudioEncoder("WAV", "PCM_32"),
    "aif": _AIFF,
    "aiff": _AIFF,
    "au": AudioEncoder("AU", "PCM_32"),
    "flac": AudioEncoder("FLAC", "PCM_24"),
    "mp3": AudioEncoder("MP3", "MPEG_LAYER_III"),
}
