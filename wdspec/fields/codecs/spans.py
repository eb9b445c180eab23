"""A time span of a long video or recording, as a small file of its own (`seconds` of `fetch`)."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

from wdspec.fields.codecs.film_spans import Film, check_end, check_size
from wdspec.fields.codecs.recording import SEEKING, is_ffmpegs
from wdspec.spec.language.decoders import library

_SOUNDS = (b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"caff", b"RF64", b"riff")
_PIECE = 1 << 18
"""Samples that are copied at a time."""
_TYPES = {"PCM_S8": "int16", "PCM_U8": "int16", "PCM_16": "int16", "PCM_24": "int32", "PCM_32": "int32"}
"""The types of samples in which encodings are copied without loss."""

_WIDTHS = {"PCM_S8": 1, "PCM_U8": 1, "ULAW": 1, "ALAW": 1, "PCM_16": 2, "PCM_24": 3, "DOUBLE": 8}
"""Bytes of a sample, where they are not 4."""
_EXACT = frozenset({*_TYPES, *_WIDTHS, "FLOAT"})
"""Encodings of single samples. What others decode to changes if it is encoded anew."""


def open_medium(file: Any) -> Film | SoundFile:
    """Return what cuts spans of a video or recording.

    Args:
        file: a binary file that can seek. What is read of it here is its index.

    Raises:
        ValueError: it is neither. (Libraries raise other errors.)
        UsageError: the library that reads it is not installed.
    """
    start = file.read(12)
    file.seek(0)
    is_sound = start.startswith(_SOUNDS) or start[8:12] == b"WAVE" or _is_mp3(start)
    return SoundFile(file) if is_sound and not is_ffmpegs(start) else Film(file)


def _is_mp3(start: bytes) -> bool:
    return len(start) > 1 and start[0] == 0xFF and start[1] & 0xE6 in (0xE2, 0xE4, 0xE6)


class SoundFile:
    """A recording of which a span is cut, exactly at its samples.

    The part has the format and the encoding of the recording if reading can start anywhere in it. Else all that comes
    before is decoded, and the part is a WAV of floats.
    """

    can_cut_again = False
    """See `Film`."""

    def __init__(self, file: Any) -> None:
        self._library = library("soundfile", "`seconds` of audio")
        self._sound = self._library.SoundFile(file)

    def close(self) -> None:
        """Close the reader, not the file."""
        self._sound.close()

    def cut(self, start: float, stop: float, most: int, reserve: Callable[[int], None]) -> bytes:
        """Return the part from one time up to another, in seconds.

        Args:
            start, stop: the times.
            most: more bytes than this are an error.
            reserve: called with the bytes of sound that are decoded, before they are; may wait.

        Raises:
            ValueError: the recording ends before.
            ShardError: it has more than `most` bytes.
        """
        sound, rate = self._sound, int(self._sound.samplerate)
        try:
            first, last = (math.floor(time * rate + 0.5) for time in (start, stop))
        except OverflowError as cause:
            raise ValueError(
                f"no recording is long enough for a part from {start:g} to {stop:g} s"
            ) from cause
        can_seek = sound.format in SEEKING and sound.subtype in _EXACT
        kind = (sound.format, sound.subtype) if can_seek else ("WAV", "FLOAT")
        size = (last - first) * sound.channels * _WIDTHS.get(kind[1], 4)
        check_size(size, most)
        reserve(size)
        if can_seek:
            check_end(start, stop, sound.frames / rate)
            sound.seek(min(first, sound.frames))
            at = first
        else:
            at = sum(map(len, self._read(first, "float32")))
        target, found = io.BytesIO(), 0
        with self._library.SoundFile(target, "w", rate, sound.channels, kind[1], "FILE", kind[0]) as made:
            for piece in self._read(
                last - first, _TYPES.get(kind[1], "float64" if kind[1] == "DOUBLE" else "float32")
            ):
                made.write(piece)
                found += len(piece)
        if not can_seek:
            check_end(start, stop, (at + found) / rate)
        elif found < min(last, sound.frames) - first:
            raise ValueError(f"it ends after {first + found:,} of {sound.frames:,} samples")
        if not found:
            raise ValueError(f"there is no sample from {start:g} to {stop:g} s")
        return target.getvalue()

    def _read(self, count: int, type: str) -> Any:
        """Yield the next samples, in pieces (samples, channels)."""
        while count > 0:
            piece = self._sound.read(min(_PIECE, count), dtype=type, always_2d=True)
            if not len(piece):
                return
            yield piece
            count -= len(piece)
