"""Small videos whose frames all differ, and what PyAV decodes of them."""

from __future__ import annotations

import io
import tempfile
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

RATE = 48_000


def film(
    frames: int = 90,
    container: str = "mp4",
    codec: str = "libx264",
    sound: str | None = "aac",
    fps: int = 30,
    first: int = 0,
    images: np.ndarray | None = None,
    **options: str,
) -> bytes:
    """Return a video with these images, or of which frame n has a bar that shows n + first.

    Key frames are 15 frames apart.
    """
    with tempfile.TemporaryDirectory() as folder:  # `faststart` opens the file again
        path = Path(folder, "film")
        _write(path, frames, container, codec, sound, fps, first, images, options)
        return path.read_bytes()


def _write(path, frames, container, codec, sound, fps, first, images, options):
    with av.open(str(path), "w", format=container, options=options) as made:
        stream = made.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt, stream.codec_context.gop_size = 64, 48, "yuv420p", 15
        stream.options = {} if images is None else {"qp": "0"}
        heard = None if sound is None else made.add_stream(sound, rate=RATE, layout="mono")
        for number in range(frames):
            if images is None:
                image = np.zeros((48, 64, 3), np.uint8)
                image[:, : (number + first) % 64], image[:8, :, 1] = 200, (number + first) * 7 % 256
            else:
                image = images[number]
            for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
                made.mux(packet)
            if heard is not None:
                for packet in heard.encode(_tone(number, fps, heard.codec_context.format.name)):
                    made.mux(packet)
        for each in (stream, heard):
            for packet in each.encode(None) if each is not None else ():
                made.mux(packet)


def _tone(number: int, fps: int, kind: str) -> av.AudioFrame:
    """The sound of a frame: a tone that rises."""
    count = RATE // fps
    time = (np.arange(count) + number * count) / RATE
    wave = (np.sin(2 * np.pi * (300 + 40 * time) * time) * 0.3)[None]
    dtype, most = {"s16": (np.int16, 2**15 - 1), "s32": (np.int32, 2**31 - 1)}.get(kind[:3], (np.float32, 1))
    wave = (wave * most).astype(dtype)
    frame = av.AudioFrame.from_ndarray(wave, format=kind, layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = RATE, number * count, Fraction(1, RATE)
    return frame


def frames_of(data: bytes, start: float = 0, stop: float = float("inf")) -> list[np.ndarray]:
    """Return the frames that PyAV decodes of a video from one time up to another, both 1 ms earlier."""
    with av.open(io.BytesIO(data)) as made:
        origin = Fraction(made.start_time or 0, av.time_base)
        low, high = (
            Fraction(str(time)) - Fraction(1, 1000) if time < 1e9 else 10**9 for time in (start, stop)
        )
        return [
            frame.to_ndarray(format="rgb24")
            for frame in made.decode(video=0)
            if low <= frame.pts * frame.time_base - origin < high
        ]
