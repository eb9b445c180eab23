"""`Recording`: an audio file of which parts are read.

libsndfile (`wdspec[audio]`) reads most formats, and PyAV (`wdspec[video]`) reads m4a, aac and wma.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from wdspec.fields.codecs import video
from wdspec.fields.codecs.video import read_streams, too_long
from wdspec.spec.language.decoders import library

Array = np.ndarray[Any, Any]

SEEKING = frozenset({"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "FLAC"})
"""Formats in which reading can start at any sample and gives the same as reading all of it."""
_FLOATS = frozenset({"FLOAT", "DOUBLE"})
"""Encodings that can hold NaN."""


class Recording:
    """An audio file of which parts can be read.

    Args:
        data: the file.

    Raises:
        ValueError: more samples than `MAX_SAMPLES`, no samples, or no rate. (Libraries raise other errors.)
        UsageError: the library that reads this format is not installed.
    """

    def __init__(self, data: bytes) -> None:
        self._file: Any = None
        self._whole: Array | None = None
        if is_ffmpegs(data):
            self._whole, self.rate = _by_ffmpeg(data)
            frames, channels = self._whole.shape[1], self._whole.shape[0]
        else:
            soundfile = library("soundfile", "reading audio")
            if not data:
                raise ValueError("the file is empty")
            self._file = soundfile.SoundFile(_Seekable(data))
            self.rate, frames, channels = int(self._file.samplerate), self._file.frames, self._file.channels
        if frames * channels > video.MAX_SAMPLES:
            raise too_long(frames * channels)
        if not frames or self.rate <= 0:
            raise ValueError(
                f"it has {frames:,} samples at {self.rate:,} Hz, so there is no sound in it; leave it out, or skip "
                "such samples with `errors: skip`"
            )
        self.estimate = frames
        """The number of samples in the header, which is exact in most formats."""

    @property
    def can_seek(self) -> bool:
        """Whether any part can be read without what lies before it."""
        return self._file is not None and self._file.format in SEEKING

    def length(self) -> int:
        """Return the number of samples of a channel. Formats whose header has only an estimate are decoded."""
        if self._file is not None and self._whole is None and not self.can_seek:
            self._whole = self._read(0, None)
        return self.estimate if self._whole is None else int(self._whole.shape[1])

    def read(self, first: int = 0, stop: int | None = None) -> Array:
        """Return the samples from one place to another (channels, samples), as a writable float32 array.

        They are fewer if the recording ends before. Nothing before them is decoded in formats that allow that.

        Raises:
            ValueError: there are fewer samples than the file says, or one is NaN or infinite.
        """
        if self._whole is not None:
            return self._whole[:, first:stop]
        if self.can_seek:
            return self._read(min(first, self.estimate), stop)
        return self._read(0, stop)[:, first:]

    def _read(self, first: int, stop: int | None) -> Array:
        if first != self._file.tell():
            self._file.seek(first)
        expected = max(0, (self.estimate if stop is None else min(stop, self.estimate)) - first)
        samples = self._file.read(-1 if stop is None else expected, dtype="float32", always_2d=True)
        # For mp3, the number is an estimate.
        if len(samples) < expected and self._file.format == "FLAC":
            raise ValueError(f"it ends after {first + len(samples):,} of {first + expected:,} samples")
        if self._file.subtype in _FLOATS and not np.isfinite(samples).all():
            at = first + int(np.flatnonzero(~np.isfinite(samples).all(axis=1))[0])
            raise ValueError(
                f"sample {at:,}, at {at / self.rate:.3f} s, is NaN or infinite, and so will the loss be; write the "
                "file anew, or skip such samples with `errors: skip`"
            )
        return np.ascontiguousarray(samples.T)


def read_seconds(data: bytes) -> float:
    """Return the length of audio or video, from its header. Raises as `read_audio`."""
    soundfile = None if is_ffmpegs(data) else library("soundfile", "measuring audio")
    if soundfile is None:
        return video.read_seconds(data)
    try:
        with soundfile.SoundFile(_Seekable(data)) as file:
            return float(file.frames / file.samplerate)
    except soundfile.LibsndfileError:
        return video.read_seconds(data)


def is_ffmpegs(data: bytes) -> bool:
    """Whether the data starts like MP4, ASF or ADTS."""
    if data[4:8] == b"ftyp" or data.startswith(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"):
        return True
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xF6 == 0xF0


class _Seekable(io.BytesIO):
    """A file in which libsndfile may seek before the start in damaged audio: it would print an exception."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return super().seek(0)


def _by_ffmpeg(data: bytes) -> tuple[Array, int]:
    _, sound, about = read_streams(data, None, frames=False, user="reading m4a, aac or wma")
    if "audio_fps" not in about:
        raise ValueError("it contains no audio")
    return sound, about["audio_fps"]
