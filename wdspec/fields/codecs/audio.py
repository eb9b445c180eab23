"""Audio: bytes → (samples, rate), the samples as float32 in -1..1 of shape (channels, samples); and back.

libsndfile (`wdspec[audio]`) reads most formats, and PyAV (`wdspec[video]`) reads m4a, aac and wma.
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
    """Read samples (channels, samples) as a writable float32 array, and the sample rate in Hz, without resampling.

    Raises:
        ValueError: more samples than `MAX_SAMPLES`, or fewer than the file says. (Libraries raise other errors.)
        UsageError: the library that reads this format is not installed.
    """
    return _by_ffmpeg(data) if _is_ffmpegs(data) else _by_libsndfile(data)


def read_seconds(data: bytes) -> float:
    """Return the length of audio or video, from its header. Raises as `read_audio`."""
    soundfile = None if _is_ffmpegs(data) else library("soundfile", "measuring audio")
    if soundfile is None:
        return video.read_seconds(data)
    try:
        with soundfile.SoundFile(_Seekable(data)) as file:
            return float(file.frames / file.samplerate)
    except soundfile.LibsndfileError:
        return video.read_seconds(data)


def read_torch_audio(data: bytes) -> tuple[Any, int]:
    """Like `read_audio`, with a torch tensor, as `torchaudio.load` returned it."""
    torch = library("torch", "the decoder torch_audio")
    samples, rate = read_audio(data)
    return torch.from_numpy(samples), rate


def _is_ffmpegs(data: bytes) -> bool:
    """Whether the data starts like MP4, ASF or ADTS."""
    if data[4:8] == b"ftyp" or data.startswith(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"):
        return True
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xF6 == 0xF0


def _by_libsndfile(data: bytes) -> tuple[Array, int]:
    soundfile = library("soundfile", "reading audio")
    if not data:
        raise ValueError("the file is empty")
    with soundfile.SoundFile(_Seekable(data)) as file:
        expected = file.frames
        if expected * file.channels > video.MAX_SAMPLES:
            raise too_long(expected * file.channels)
        samples = file.read(dtype="float32", always_2d=True)
        # For mp3, the number is an estimate.
        if len(samples) < expected and file.format == "FLAC":
            raise ValueError(f"it ends after {len(samples):,} of {expected:,} samples")
        return np.ascontiguousarray(samples.T), int(file.samplerate)


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


# flac keeps 24 bits of a sample; the others, except mp3, keep 32. Neither ogg nor wav and aiff of floats: libsndfile
# writes random numbers and the time into these, so that the same samples would give different bytes.
write_wav = AudioEncoder("WAV", "PCM_32")
write_aiff = AudioEncoder("AIFF", "PCM_32")
write_au = AudioEncoder("AU", "PCM_32")
write_flac = AudioEncoder("FLAC", "PCM_24")
write_mp3 = AudioEncoder("MP3", "MPEG_LAYER_III")
