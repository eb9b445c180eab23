"""Recordings as people have them: voices of several lengths, formats, rates and numbers of channels."""

from __future__ import annotations

import io
import json
import math
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

KINDS = (
    ("wav", 8000, 1),
    ("flac", 16000, 1),
    ("mp3", 44100, 2),
    ("opus", 48000, 1),
    ("wav", 22050, 2),
    ("flac", 48000, 2),
)
"""Formats with their rates and channels."""


def voice(number: int, rate: int, channels: int = 1, seconds: float = 0.5) -> Any:
    """A sound of (samples, channels): two tones that depend on the number, and a little noise."""
    rng = np.random.default_rng(number)
    time = np.arange(round(rate * seconds)) / rate
    tones = np.stack(
        [np.sin(2 * np.pi * (200 + 37 * number + 90 * channel) * time) for channel in range(channels)], 1
    )
    return (0.3 * tones + 0.02 * rng.standard_normal((len(time), channels))).astype(np.float32)


def encode(samples: Any, rate: int, kind: str = "wav", subtype: str | None = None) -> bytes:
    """A file of samples of (samples, channels)."""
    file = io.BytesIO()
    form = {"opus": "OGG", "ogg": "OGG"}.get(kind, kind.upper())
    subtype = subtype or {"opus": "OPUS", "ogg": "VORBIS"}.get(kind)
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def plain_audio(data: bytes, rate: int, start: int = 0, stop: int | None = None) -> Any:
    """What plain Python makes of a file, or of a part of it: one channel at a rate, as an array of (samples,)."""
    samples, own = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    mono = samples[start:stop].mean(axis=1)
    return mono if own == rate else soxr.resample(mono, own, rate, quality="HQ")


def resampled_length(count: int, own: int, rate: int) -> int:
    """The exact number of samples at another rate."""
    return max(1, (2 * count * rate + own) // (2 * own))


def write_tar(path: Path, files: list[tuple[str, bytes]]) -> None:
    """Write a tar of files in this order."""
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a file of JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def level(samples: Any) -> float:
    """The mean power in decibels."""
    return 10 * math.log10(float(np.mean(np.asarray(samples, np.float64) ** 2)))
