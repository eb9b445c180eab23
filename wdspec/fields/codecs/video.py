"""Decoding video: bytes → (frames, samples, facts), as `torchvision.io.read_video` returned them.

| part | numpy | torch | shape |
|--|--|--|--|
| frames | uint8 | uint8 | (frames, height, width, 3), RGB |
| samples | float32 in -1..1 | float32 | (channels, samples); (1, 0) without sound |
| facts | | | ``video_fps`` (float) and, with sound, ``audio_fps`` (int), in Hz |

Only the first video and the first audio stream are read, and rotation is not applied. The options `clip`, `frames` and
`fps` choose a part of the video and some of its frames; other options resize and crop frames as for images.

PyAV (`wdspec[video]`) reads any container that FFmpeg reads, in one thread, since each worker has its own core.
`video+torchcodec` reads with torchcodec. `video+silent` returns the frames only.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from wdspec.base.errors import UsageError
from wdspec.fields.codecs.framing import Framing
from wdspec.fields.codecs.resizing import resize
from wdspec.fields.scale import Numbers
from wdspec.spec.language.decoder_options import option_values
from wdspec.spec.language.decoders import BY_NAME, library, split_decoder

MAX_FRAME_BYTES = 1 << 32
"""Maximum size of the frames of a field in bytes (4 GiB): 690 frames of 1080p, 4,600 of 640×480."""
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,ogg,mpeg,mpegvideo,mpegts,asf,h264,hevc,m4v,mjpeg,flv,"
    "wav,flac,mp3,aac"
)
"""Containers with their own data. Playlists (hls, concat, dash, …), which refer to files and URLs, are never read."""
OPTIONS = {"format_whitelist": _FORMATS, "protocol_whitelist": "none"}
"""Both lists, as a container of an allowed kind must not refer to other files either."""
MAX_SAMPLES = 1 << 28
"""Maximum number of audio samples of a field, in all channels: 1 GiB as float32, 93 minutes of 48 kHz mono."""

Array = np.ndarray[Any, Any]


def read_streams(
    data: bytes,
    format: str | None,
    *,
    frames: bool = True,
    with_sound: bool = True,
    user: str = "reading video",
) -> tuple[Frames, Array, dict[str, Any]]:
    """Read frames, samples and facts of a video or, with ``frames=False``, of its audio only.

    Raises:
        ValueError: it is not a video, is damaged, or exceeds a limit.
        UsageError: PyAV is not installed.
    """
    av = library("av", user)
    if not data:
        raise ValueError("the file is empty")
    try:
        return _read(av, data, format, frames, with_sound)
    except av.error.FFmpegError as cause:
        raise ValueError(f"FFmpeg reports: {cause.strerror}") from cause


def read_seconds(data: bytes) -> float:
    """Return the length of a video or its audio, from its header.

    Raises:
        ValueError: it is neither, or its header does not say.
        UsageError: PyAV is not installed.
    """
    av = library("av", "measuring video")
    try:
        with av.open(io.BytesIO(data), options=OPTIONS, metadata_errors="replace") as container:
            if container.duration is None:
                raise ValueError("its header does not say how long it is")
            return float(container.duration / 1e6)
    except av.error.FFmpegError as cause:
        raise ValueError(f"FFmpeg reports: {cause.strerror}") from cause


def _read(
    av: Any, data: bytes, format: str | None, frames: bool, with_sound: bool
) -> tuple[Frames, Array, dict[str, Any]]:
    with av.open(io.BytesIO(data), format=format, options=OPTIONS, metadata_errors="replace") as container:
        film = next(iter(container.streams.video), None) if frames else None
        sound = next(iter(container.streams.audio), None) if with_sound else None
        if frames and film is None:
            raise ValueError("it contains no video")
        streams = [stream for stream in (film, sound) if stream is not None]
        if not streams:
            raise ValueError("it contains no audio")
        for stream in streams:
            stream.thread_count = 1
        decoded, samples = _Decoded(av), _Sound(av)
        for packet in container.demux(streams):
            add = samples.take if packet.stream is sound else decoded.append
            for frame in packet.decode():
                add(frame)
        if frames and not len(decoded):
            raise ValueError("it contains no complete frame")
        about: dict[str, Any] = {}
        if film is not None:
            rate = film.average_rate or film.guessed_rate
            about["video_fps"] = float(rate) if rate else None
        if sound is not None:
            about["audio_fps"] = int(sound.rate)
        return decoded, samples.result(), about


class Frames(Protocol):
    """The frames of a video, which cost most when they are converted to RGB."""

    def __len__(self) -> int: ...

    def take(self, indices: Sequence[int] | Array) -> Array:
        """Return the frames at these places, of shape (frames, height, width, 3)."""
        ...


class _Decoded:
    """Frames as PyAV decodes them, of one size after conversion."""

    def __init__(self, av: Any) -> None:
        self._frames: list[Any] = []
        self._reformatter = av.video.reformatter.VideoReformatter()

    def __len__(self) -> int:
        return len(self._frames)

    def append(self, frame: Any) -> None:
        self._frames.append(frame)
        if len(self) * self._frames[0].width * self._frames[0].height * 3 > MAX_FRAME_BYTES:
            raise ValueError(
                f"its frames have more than {MAX_FRAME_BYTES:,} bytes; read it as `raw`, or with a user function that "
                "takes some of them"
            )

    def take(self, indices: Sequence[int] | Array) -> Array:
        width, height = self._frames[0].width, self._frames[0].height
        result = np.empty((len(indices), height, width, 3), np.uint8)
        for row, index in zip(result, indices, strict=True):
            frame = self._frames[index]
            row[:] = self._reformatter.reformat(frame, width, height, "rgb24", threads=1).to_ndarray()
        return result


class _Array:
    """Frames in an array."""

    def __init__(self, frames: Array) -> None:
        self._frames = frames

    def __len__(self) -> int:
        return len(self._frames)

    def take(self, indices: Sequence[int] | Array) -> Array:
        return (
            self._frames
            if isinstance(indices, range) and len(indices) == len(self)
            else self._frames[indices]
        )


class _Sound:
    """Collects audio, as planes of floats."""

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
    """Return the error for more samples than the limit."""
    return ValueError(f"{count:,} samples are more than {MAX_SAMPLES:,}; read it as `raw`")


_START = 2
"""The number of a sample that decides where its clips start."""


@dataclass(frozen=True)
class Clipping:
    """The options of a video decoder for time."""

    clip: float | None = None
    """Seconds of the part to take, which starts at a random place; None takes all of the video."""
    frames: int | None = None
    """The number of frames to take, evenly spaced, each in the middle of its part. Some repeat if there are fewer."""
    fps: float | None = None
    """The number of frames to take per second, the nearest ones."""

    @classmethod
    def of(cls, decoder: str) -> Clipping | None:
        """Return the options in the name of a decoder; None if there are none."""
        values = option_values(decoder)
        options = {option: value for option, value in values.items() if option in cls.__dataclass_fields__}
        return cls(**options) if options else None

    def cut(
        self, frames: Frames, samples: Array, about: dict[str, Any], numbers: Numbers | None
    ) -> tuple[Array, Array, dict[str, Any]]:
        """Return the chosen frames and samples, and facts with the new `video_fps` and `start` in seconds.

        All of a video that is shorter than `clip` is taken. Its frames are assumed to be evenly spaced.

        Raises:
            ValueError: the frame rate of the video is not known.
            UsageError: there are no random numbers.
        """
        rate = float(about.get("video_fps") or 0)
        if not rate and (self.clip or self.fps):
            raise ValueError("its frame rate is not known, so no part of it can be chosen by time")
        count, about = len(frames), {**about, "start": 0.0}
        first, length = 0, count
        if self.clip is not None:
            if numbers is None:
                raise UsageError(
                    "`clip` needs random numbers, which only samples of a spec have; otherwise use `frames` or `fps`"
                )
            length = min(count, max(1, round(self.clip * rate)))
            first = int(numbers(_START) * (count - length + 1))
            about["start"] = first / rate
            samples = _sound(samples, about.get("audio_fps"), first / rate, length / rate, count / rate)
        indices = self._choose(length, rate)
        if indices is None:
            return frames.take(range(first, first + length)), samples, about
        if rate:
            about["video_fps"] = self.fps or len(indices) * rate / length
        return frames.take(first + indices), samples, about

    def _choose(self, length: int, rate: float) -> Array | None:
        """Return the indices of the frames to take; None for all."""
        if self.frames is not None:
            return ((np.arange(self.frames) + 0.5) * length / self.frames).astype(np.int64)
        if self.fps is None:
            return None
        count = max(1, round(length / rate * self.fps))
        return np.minimum(((np.arange(count) + 0.5) * rate / self.fps).astype(np.int64), length - 1)


def frame_video(frames: Array, framing: Framing, numbers: Numbers | None) -> Array:
    """Resize and crop frames of shape (frames, height, width, 3), all in the same way."""
    fits = framing.fits((frames.shape[2], frames.shape[1]), numbers)
    if not fits:
        return frames
    return np.stack([resize(frame, fits) for frame in frames])


def _sound(samples: Array, rate: int | None, start: float, length: float, whole: float) -> Array:
    """Return the part of the audio that belongs to a part of the video, in seconds."""
    if not rate or not samples.shape[1] or length >= whole:
        return samples
    first = round(start * rate)
    return samples[:, first : first + round(length * rate)].copy()


_RAW_STREAMS = frozenset({"h264", "mjpeg"})
"""Extensions of streams without a container, which cannot be recognized by their first bytes."""

Film = tuple[Any, Any, dict[str, Any]]


@dataclass(frozen=True)
class FilmDecoder:
    """Decodes video; see the table above.

    Args:
        torch: whether to return tensors instead of arrays.
        suffix: the extension, which decides the format of streams without a container (h264, mjpeg).
        torchcodec: whether to read with torchcodec instead of PyAV.
        clipping: the part of the video, and the frames to take.
        framing: the part of each frame, and its size.
        silent: whether to return the frames only.
    """

    torch: bool = False
    suffix: str = ""
    torchcodec: bool = False
    clipping: Clipping | None = None
    framing: Framing | None = None
    silent: bool = False

    def __call__(self, data: bytes, factor: float | None = None, numbers: Numbers | None = None) -> Any:
        """Decode a video and apply the options.

        Args:
            factor: ignored, as `scale` is for images.
            numbers: the random numbers of the sample, for `clip` and `random_resized_crop`.

        Raises:
            ValueError: it is not a video, or exceeds `MAX_FRAME_BYTES`. (Libraries raise other errors.)
            UsageError: a library is not installed.
        """
        decoded: Frames
        if self.torchcodec:
            tensors, sound, about = _by_torchcodec(data)
            decoded, samples = _Array(tensors.numpy()), sound.numpy()
        else:
            decoded, samples, about = read_streams(
                data, self.suffix if self.suffix in _RAW_STREAMS else None, with_sound=not self.silent
            )
        if self.clipping is None:
            frames = decoded.take(range(len(decoded)))
        else:
            frames, samples, about = self.clipping.cut(decoded, samples, about, numbers)
        if self.framing is not None:
            frames = frame_video(frames, self.framing, numbers)
        torch = library("torch", "the decoder torch_video") if self.torch else None
        if self.silent:
            return torch.from_numpy(frames) if torch else frames
        return (
            (torch.from_numpy(frames), torch.from_numpy(samples), about)
            if torch
            else (frames, samples, about)
        )


def film_decoder(decoder: str, field: str, suffix: str) -> FilmDecoder:
    """Return the decoder of a field, given the name of the decoder (`torch_video+torchcodec`) and the suffix."""
    base, options = split_decoder(decoder)
    last = suffix.rpartition(".")[2]
    extension = last if last in BY_NAME["video"].extensions else base
    return FilmDecoder(
        base == "torch_video",
        extension,
        "torchcodec" in options,
        Clipping.of(decoder),
        Framing.of(decoder),
        "silent" in options,
    )


def _by_torchcodec(data: bytes) -> Film:
    codec = library("torchcodec.decoders", "`video+torchcodec`")
    torch = library("torch", "`video+torchcodec`")
    decoder = codec.VideoDecoder(data, dimension_order="NHWC", num_ffmpeg_threads=1)
    facts = decoder.metadata
    if len(decoder) * facts.height * facts.width * 3 > MAX_FRAME_BYTES:
        raise ValueError(f"its frames have more than {MAX_FRAME_BYTES:,} bytes; read it as `raw`")
    frames = decoder.get_frames_in_range(0, len(decoder)).data
    about: dict[str, Any] = {"video_fps": facts.average_fps}
    try:
        sound = codec.AudioDecoder(data)
    except ValueError:  # there is no audio
        return frames, torch.zeros((1, 0)), about
    samples = sound.get_all_samples()
    about["audio_fps"] = int(samples.sample_rate)
    return frames, samples.data, about
