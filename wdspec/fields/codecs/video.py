"""Films: bytes → (frames, samples, facts), as `torchvision.io.read_video` gave them.

| part | numpy | torch | shape |
|--|--|--|--|
| frames | uint8 | uint8 | (frames, height, width, 3), RGB |
| samples | float32 in -1..1 | float32 | (channels, samples); (1, 0) without sound |
| facts | | | ``video_fps`` (float) and, with sound, ``audio_fps`` (int), in Hz |

The first video and the first audio stream count, all frames are kept, and rotation is not applied. PyAV reads them
(`wdspec[video]`), in one thread, since each worker has its own core; or torchcodec, when asked (`video+torchcodec`).
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from wdspec.decoders.libraries import library
from wdspec.decoders.table import BY_NAME, split_decoder

MAX_FRAME_BYTES = 1 << 32
"""Bytes of frames that one field may become (4 GiB): 690 frames of 1080p, 4,600 of 640×480."""
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,ogg,mpeg,mpegvideo,mpegts,asf,h264,hevc,m4v,mjpeg,flv,"
    "wav,flac,mp3,aac"
)
"""Containers that hold their own data. Playlists (hls, concat, dash, …) name files and URLs, and are never followed."""
_RAW_STREAMS = frozenset({"h264", "mjpeg"})
"""Extensions of streams without a container, which cannot be told by their first bytes."""

Array = np.ndarray[Any, Any]
Film = tuple[Any, Any, dict[str, Any]]


class FilmDecoder:
    """Decodes films; see the table above.

    Args:
        torch: give tensors instead of arrays.
        suffix: the extension, which decides for streams without a container (h264, mjpeg).
        torchcodec: read by torchcodec instead of PyAV.
    """

    def __init__(self, torch: bool = False, suffix: str = "", torchcodec: bool = False) -> None:
        self.torch = torch
        self.suffix = suffix
        self.torchcodec = torchcodec

    def __call__(self, data: bytes) -> Film:
        """Decodes a film.

        Raises:
            ValueError: no film, or more than `MAX_FRAME_BYTES`. (What the libraries raise else.)
            UsageError: a library is not installed.
        """
        if self.torchcodec:
            frames, samples, about = _by_torchcodec(data)
            return (frames, samples, about) if self.torch else (frames.numpy(), samples.numpy(), about)
        torch = library("torch", "the decoder torch_video") if self.torch else None
        frames, samples, about = read_streams(data, self.suffix if self.suffix in _RAW_STREAMS else None)
        return (
            (torch.from_numpy(frames), torch.from_numpy(samples), about)
            if torch
            else (frames, samples, about)
        )

    def __repr__(self) -> str:
        return f"FilmDecoder(torch={self.torch}, suffix={self.suffix!r}, torchcodec={self.torchcodec})"


def film_decoder(decoder: str, field: str, suffix: str) -> FilmDecoder:
    """The reader of a field, by the name of its decoder (`torch_video+torchcodec`) and its suffix."""
    base, options = split_decoder(decoder)
    last = suffix.rpartition(".")[2]
    extension = last if last in BY_NAME["video"].extensions else base
    return FilmDecoder(base == "torch_video", extension, "torchcodec" in options)


def read_streams(
    data: bytes, format: str | None, *, frames: bool = True, user: str = "reading video"
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
        return _read(av, data, format, frames)
    except av.error.FFmpegError as cause:
        raise ValueError(f"ffmpeg says: {cause.strerror}") from cause


def _read(av: Any, data: bytes, format: str | None, frames: bool) -> tuple[Array, Array, dict[str, Any]]:
    # Both lists: what a container of a known kind refers to is as forbidden as an unknown kind.
    options = {"format_whitelist": _FORMATS, "protocol_whitelist": "none"}
    with av.open(io.BytesIO(data), format=format, options=options, metadata_errors="replace") as container:
        film = next(iter(container.streams.video), None) if frames else None
        sound = next(iter(container.streams.audio), None)
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
            raise ValueError("there is no whole frame in it")
        return np.stack(self._frames)


class _Sound:
    """Gathers sound, as planes of floats."""

    def __init__(self, av: Any) -> None:
        self._resampler = av.AudioResampler(format="fltp")
        self._parts: list[Array] = []
        self._count = 0

    def take(self, frame: Any) -> None:
        from wdspec.fields.codecs.audio import MAX_SAMPLES, too_long

        for each in self._resampler.resample(frame):
            part = each.to_ndarray()
            self._count += part.size
            if self._count > MAX_SAMPLES:
                raise too_long(self._count)
            self._parts.append(part)

    def result(self) -> Array:
        return np.concatenate(self._parts, axis=1) if self._parts else np.zeros((1, 0), np.float32)


def _by_torchcodec(data: bytes) -> Film:
    codec = library("torchcodec.decoders", "`video+torchcodec`")
    torch = library("torch", "`video+torchcodec`")
    decoder = codec.VideoDecoder(data, dimension_order="NHWC", num_ffmpeg_threads=1)
    facts = decoder.metadata
    if len(decoder) * facts.height * facts.width * 3 > MAX_FRAME_BYTES:
        raise ValueError(f"its frames are more than {MAX_FRAME_BYTES:,} bytes; read it as `raw`")
    frames = decoder.get_frames_in_range(0, len(decoder)).data
    about: dict[str, Any] = {"video_fps": facts.average_fps}
    try:
        sound = codec.AudioDecoder(data)
    except ValueError:  # there is none
        return frames, torch.zeros((1, 0)), about
    samples = sound.get_all_samples()
    about["audio_fps"] = int(samples.sample_rate)
    return frames, samples.data, about
