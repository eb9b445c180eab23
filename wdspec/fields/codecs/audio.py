"""Sound: bytes → (samples, rate), the samples as float32 in -1..1 of shape (channels, samples); and back.

libsndfile reads it (`wdspec[audio]`); what that does not know, m4a, aac and wma, PyAV does (`wdspec[video]`).
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from wdspec.fields.codecs import video
from wdspec.fields.codecs.video import read_streams, too_long
from wdspec.spec.language.decoders import library

Array = np.ndarray[Any, Any]


def read_audio(data: bytes) -> tuple[Array, int]:
    """Samples (channels, samples) as a writable float32 array, and the sample rate in Hz; never resampled.

    Raises:
        ValueError: more than `MAX_SAMPLES`, or fewer than the file promises. (What the libraries raise else.)
        UsageError: the library that reads such sound is not installed.
    """
    return _by_ffmpeg(data) if _is_ffmpegs(data) else _by_libsndfile(data)


def read_torch_audio(data: bytes) -> tuple[Any, int]:
    """As `read_audio`, with a torch tensor, as `torchaudio.load` gave it."""
    torch = library("torch", "the decoder torch_audio")
    samples, rate = read_audio(data)
    return torch.from_numpy(samples), rate


def _is_ffmpegs(data: bytes) -> bool:
    """Whether it begins like MP4, ASF or ADTS."""
    if data[4:8] == b"ftyp" or data.startswith(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"):
        return True
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xF6 == 0xF0


def _by_libsndfile(data: bytes) -> tuple[Array, int]:
    soundfile = library("soundfile", "reading audio")
    if not data:
        raise ValueError("the file is empty")
    with soundfile.SoundFile(_Seekable(data)) as file:
        promised = file.frames
        if promised * file.channels > video.MAX_SAMPLES:
            raise too_long(promised * file.channels)
        samples = file.read(dtype="float32", always_2d=True)
        # For mp3 the number is an estimate.
        if len(samples) < promised and file.format == "FLAC":
            raise ValueError(f"it ends after {len(samples):,} of {promised:,} samples")
        return np.ascontiguousarray(samples.T), int(file.samplerate)


class _Seekable(io.BytesIO):
    """A file in which damaged sound may lead libsndfile before the start: an exception there would be printed."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return super().seek(0)


def _by_ffmpeg(data: bytes) -> tuple[Array, int]:
    _, sound, about = read_streams(data, None, frames=False, user="reading m4a, aac or wma")
    if "audio_fps" not in about:
        raise ValueError("there is no sound in it")
    return sound, about["audio_fps"]


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


# flac keeps 24 bits of a sample, the others but mp3 keep 32. Not ogg, nor wav and aiff of floats: libsndfile writes
# random numbers and the time into these, and the same samples would give other bytes each time.
write_wav = AudioEncoder("WAV", "PCM_32")
write_aiff = AudioEncoder("AIFF", "PCM_32")
write_au = AudioEncoder("AU", "PCM_32")
write_flac = AudioEncoder("FLAC", "PCM_24")
write_mp3 = AudioEncoder("MP3", "MPEG_LAYER_III")
