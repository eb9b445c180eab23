"""Frames and sound out of any container that FFmpeg reads, by PyAV (`wdspec[video]`), within limits."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from wdspec.decoders.libraries import library

MAX_FRAME_BYTES = 1 << 32
"""Bytes of frames that one field may become (4 GiB): 690 frames of 1080p, 4,600 of 640×480."""
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,ogg,mpeg,mpegvideo,mpegts,asf,h264,hevc,m4v,mjpeg,flv,"
    "wav,flac,mp3,aac"
)
"""Containers that hold their own data. Playlists (hls, concat, dash, …) name files and URLs, and are never followed."""
MAX_SAMPLES = 1 << 28
"""Samples of all channels together that one field may hold: 1 GiB as float32, 93 minutes of 48 kHz mono."""

Array = np.ndarray[Any, Any]


def read_streams(
    data: bytes,
    format: str | None,
    *,
    frames: bool = True,
    with_sound: bool = True,
    user: str = "reading video",
) -> tuple[Array, Array, dict[str, Any]]:
    """Frames, samples and facts of a film or, with ``frames=False``, of its sound alone.

    Raises:
        ValueError: it is none, is damaged, or is too much.
        UsageError: PyAV is not installed.
    """
    av = library("av", user)
    if not data:
        raise ValueError("the file is empty")
    try:
        return _read(av, data, format, frames, with_sound)
    except av.error.FFmpegError as cause:
        raise ValueError(f"ffmpeg says: {cause.strerror}") from cause


def _read(
    av: Any, data: bytes, format: str | None, frames: bool, with_sound: bool
) -> tuple[Array, Array, dict[str, Any]]:
    # Both lists: what a container of a known kind refers to is as forbidden as an unknown kind.
    options = {"format_whitelist": _FORMATS, "protocol_whitelist": "none"}
    with av.open(io.BytesIO(data), format=format, options=options, metadata_errors="replace") as container:
        film = next(iter(container.streams.video), None) if frames else None
        sound = next(iter(container.streams.audio), None) if with_sound else None
        if frames and film is None:
            raise ValueError("there is no film in it")
        streams = [stream for stream in (film, sound) if stream is not None]
        if not streams:
            raise ValueError("there is no sound in it")
        for stream in streams:
            stream.thread_count = 1
        taken = _Pictures(), _Sound(av)
        for packet in container.demux(streams):
            taker = taken[packet.stream is sound]
            for frame in packet.decode():
                taker.take(frame)
        about: dict[str, Any] = {}
        if film is not None:
            rate = film.average_rate or film.guessed_rate
            about["video_fps"] = float(rate) if rate else None
        if sound is not None:
            about["audio_fps"] = int(sound.rate)
        return taken[0].result() if frames else np.zeros((0, 0, 0, 3), np.uint8), taken[1].result(), about


class _Pictures:
    """Gathers frames of one size."""

    def __init__(self) -> None:
        self._frames: list[Array] = []
        self._bytes = 0
        self._size: tuple[int, int] = (0, 0)

    def take(self, frame: Any) -> None:
        if not self._frames:
            self._size = (frame.width, frame.height)
        self._bytes += self._size[0] * self._size[1] * 3
        if self._bytes > MAX_FRAME_BYTES:
            raise ValueError(
                f"its frames are more than {MAX_FRAME_BYTES:,} bytes; read it as `raw`, or by a function of your own "
                "that takes some of them"
            )
        self._frames.append(frame.to_ndarray(format="rgb24", width=self._size[0], height=self._size[1]))

    def result(self) -> Array:
        if not self._frames:
            raise ValueError("there is no complete frame in it")
        return np.stack(self._frames)


class _Sound:
    """Gathers sound, as planes of floats."""

    def __init__(self, av: Any) -> None:
        self._resampler = av.AudioResampler(format="fltp")
        self._parts: list[Array] = []
        self._count = 0

    def take(self, frame: Any) -> None:
        for each in self._resampler.resample(frame):
            part = each.to_ndarray()
            self._count += part.size
            if self._count > MAX_SAMPLES:
                raise too_long(self._count)
            self._parts.append(part)

    def result(self) -> Array:
        return np.concatenate(self._parts, axis=1) if self._parts else np.zeros((1, 0), np.float32)


def too_long(count: int) -> ValueError:
    """The error for more samples than are taken."""
    return ValueError(f"{count:,} samples are more than {MAX_SAMPLES:,}; read it as `raw`")
