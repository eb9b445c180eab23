"""A time span of a video, as a small video of its own.

The packets of the span are copied, from the key frame before it on, into an MP4 whose edit list shows the span only:
decoders decode what lies before, as the frames of the span depend on it, and leave it out. Nothing is encoded anew, so
the frames are those of the whole video. Sound is decoded, from a little before, and stored as floats: packets of most
encodings neither start nor end where frames do.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from wdspec.base.errors import ShardError
from wdspec.fields.codecs.edit_lists import TIMESCALE, set_edits
from wdspec.fields.codecs.video import OPTIONS, Array
from wdspec.spec.language.decoders import library

TOLERANCE = Fraction(1, 1000)
"""How much earlier a frame may be than its time says, in seconds: times in data are often rounded to milliseconds."""
_SLACK = 0.025
"""How far a span may exceed a recording, in seconds, or else by one frame: durations are rounded."""
_LEAD = Fraction(1, 4)
"""Seconds of sound before a span that decoders need to get into the state that they have there."""
_MOST_REORDERED = 17
"""Packets after a span, where the file has no decoding times: a later one can belong to it no more."""


class Film:
    """A video, or sound in a container of video, of which a span is cut.

    Args:
        file: a binary file that can seek. What is read of it here is its index.

    Raises:
        ValueError: FFmpeg cannot read it.
        UsageError: PyAV is not installed.
    """

    def __init__(self, file: Any) -> None:
        self._av, self._file = library("av", "`seconds` of video"), file
        self._films: list[Any] = []
        """The readers. One that is no longer used stays open: packets refer to its streams."""
        self._open()

    def _open(self) -> None:
        self._file.seek(0)
        try:
            self._film = self._av.open(self._file, options=OPTIONS, metadata_errors="replace")
            self._films.append(self._film)
        except self._av.error.FFmpegError as cause:
            raise ValueError(f"FFmpeg reports: {cause.strerror}") from cause
        self._origin = Fraction(self._film.start_time or 0, self._av.time_base)

    def close(self) -> None:
        """Close the readers, not the file."""
        for each in self._films:
            each.close()

    @property
    def can_cut_again(self) -> bool:
        """Whether another part is cut as if the video were opened anew: its index is complete, and nothing decoded."""
        return "mp4" in self._film.format.name.split(",") and not self._film.streams.audio

    def rest(self) -> None:
        """Close the readers that the next part does not need. What was returned of them must not be in use."""
        *old, last = self._films
        self._films = [last]
        for each in old:
            each.close()

    def cut(self, start: float, stop: float, most: int, reserve: Callable[[int], None]) -> bytes:
        """Return the part with the frames from one time up to another, in seconds from the start of the video.

        Args:
            start, stop: the times.
            most: more bytes than this are an error.
            reserve: called with the bytes of sound that are decoded, before they are; may wait.

        Raises:
            ValueError: there is no frame, or the video ends before; or it is damaged.
            ShardError: it has more than `most` bytes of sound.
        """
        try:
            return self._cut(start, stop, most, reserve)
        except self._av.error.FFmpegError as cause:
            raise ValueError(f"FFmpeg reports: {cause.strerror}") from cause
        except OverflowError as cause:
            raise ValueError(f"no video is long enough for a part from {start:g} to {stop:g} s") from cause

    def _cut(self, start: float, stop: float, most: int, reserve: Callable[[int], None]) -> bytes:
        pictures = self._read_pictures(start, stop) if self._film.streams.video else None
        sound = self._read_sound(start, stop, most, reserve) if self._film.streams.audio else None
        if pictures is None and sound is None:
            raise ValueError("it contains neither video nor audio")
        return _write(self._av, pictures, sound)

    def _seek(self, kind: str, time: Fraction) -> tuple[Any, bool]:
        """Go to a key frame before a time; return the stream, and whether its start is read.

        Seeking to the start of a stream misses it in some containers.
        """
        is_start = time <= 0
        if is_start:
            self._open()
        stream = self._find_stream(kind)
        if not is_start:
            tick = math.floor((time + self._origin) / stream.time_base)
            self._film.seek(tick, stream=stream, backward=True)
        return stream, is_start

    def _find_stream(self, kind: str) -> Any:
        stream = getattr(self._film.streams, kind)[0]
        if stream.codec_context is None:
            raise ValueError(f"its {kind} has an encoding that FFmpeg does not know")
        return stream

    def _read_pictures(self, start: float, stop: float) -> Pictures:
        """Read the packets that decoding the frames of a span needs."""
        back, step = max(Fraction(0), Fraction(str(start)) - TOLERANCE), Fraction(1)
        while True:
            stream, is_start = self._seek("video", back)
            low, high = (
                math.ceil(
                    (max(Fraction(0), Fraction(str(time)) - TOLERANCE) + self._origin) / stream.time_base
                )
                for time in (start, stop)
            )
            packets, is_end = self._read_packets(stream, low, high)
            if is_start or (packets and packets[0].is_keyframe and packets[0].pts <= low):
                break
            back, step = back - step, step * 2  # the index led to a later key frame
        if is_end:
            end = max((each.pts + (each.duration or 0) for each in packets), default=0) * stream.time_base
            rate = stream.average_rate
            check_end(start, stop, float(end - self._origin), float(1 / rate) if rate else 0.0)
        if not packets or not any(low <= each.pts < high for each in packets):
            raise ValueError(f"there is no frame from {start:g} to {stop:g} s")
        base, first = stream.time_base, min(each.pts for each in packets)
        late = max(0, first - math.ceil((Fraction(str(start)) + self._origin) / base))
        zero = _set_decoding_times(packets)
        shown = first if late else low
        return Pictures(stream, packets, late * base, (shown - zero) * base, (high - low - late) * base)

    def _read_packets(self, stream: Any, low: int, high: int) -> tuple[list[Any], bool]:
        """Return the packets from the last key frame before a span up to its last one, and whether the stream ends."""
        packets: list[Any] = []
        after, is_end = 0, True
        for packet in self._film.demux(stream):
            if packet.pts is None:
                continue
            after = after + 1 if packet.pts >= high else 0
            if (packet.dts is not None and packet.dts >= high) or after > _MOST_REORDERED:
                is_end = False
                break
            if packet.is_keyframe and packet.pts <= low:
                packets.clear()
            packets.append(packet)
        while packets and packets[-1].pts >= high:
            packets.pop()
        return packets, is_end

    def _read_sound(
        self, start: float, stop: float, most: int, reserve: Callable[[int], None]
    ) -> Sound | None:
        """Decode the sound of a span; None if there is none."""
        stream = self._find_stream("audio")
        rate = stream.rate
        first, last = (math.floor(time * rate + 0.5) for time in (start, stop))
        size = (last - first) * stream.channels * 4
        check_size(size, most)
        reserve(size)
        parts, end = self._read_samples(Fraction(start) - _LEAD, first, last)
        if self._film.streams.video:
            return Sound(np.concatenate(parts, axis=1), rate) if parts else None
        if end < last:
            check_end(start, stop, end / rate)
        return Sound(np.concatenate(parts, axis=1), rate)

    def _read_samples(self, time: Fraction, first: int, last: int) -> tuple[list[Array], int]:
        """Return the samples of a span, in parts, silence before those of a stream that starts later, and the end.

        Args:
            time: where reading starts.
            first, last: the samples, counted from the start of the video.
        """
        stream, is_start = self._seek("audio", time)
        parts: list[Array] = []
        end = None
        for at, part in self._decode_sound(stream):
            if end is None:
                if at > first and not is_start:  # the stream starts here, or the index led to a later place
                    return self._read_samples(Fraction(0), first, last)
                end = at
                if first < at < last:
                    parts.append(np.zeros((len(part), at - first), part.dtype))
            inside = part[:, max(0, first - end) : max(0, last - end)]
            if inside.shape[1]:
                parts.append(inside)
            end += part.shape[1]
            if end >= last:
                break
        return parts, end or 0

    def _decode_sound(self, stream: Any) -> Iterator[tuple[int, Array]]:
        """Yield where parts of the sound start, in samples, and the parts (channels, samples)."""
        resampler = self._av.AudioResampler(format="fltp")
        for packet in self._film.demux(stream):
            for frame in packet.decode():
                if frame.pts is None:
                    continue
                at = round((frame.pts * frame.time_base - self._origin) * stream.rate)
                for each in resampler.resample(frame):
                    part = each.to_ndarray()
                    yield at, part
                    at += part.shape[1]


def check_end(start: float, stop: float, end: float, slack: float = 0.0) -> None:
    """Raise ValueError for a span that does not end before a recording, up to what durations are rounded."""
    if start >= end or stop > end + max(slack, _SLACK):
        raise ValueError(f"it ends at {end:.3f} s, so it has no part from {start:g} to {stop:g} s")


def check_size(size: int, most: int) -> None:
    """Raise ShardError for a part with too many bytes."""
    if size > most:
        raise ShardError(
            f"its sound has {size:,} bytes, and `loader: {{fetch_memory: …}}` is {most:,}; raise it, or write a "
            "shorter span"
        )


@dataclass
class Pictures:
    """Packets that are copied."""

    source: Any
    """The stream that they are from."""
    packets: list[Any]
    late: Fraction
    """Seconds of the span before the video starts."""
    start: Fraction
    """Where the rest of the span starts, in seconds from the first packet on."""
    length: Fraction
    """Seconds of the rest."""


@dataclass
class Sound:
    """Samples of float32 (channels, samples), and how many there are per second."""

    samples: Array
    rate: int


def _set_decoding_times(packets: list[Any]) -> int:
    """Give packets decoding times that ascend from 0, as some containers have none; return the tick that is 0 now."""
    times = sorted(each.pts for each in packets)
    late = max(time - each.pts for time, each in zip(times, packets, strict=True))
    zero: int = times[0] - late
    for time, each in zip(times, packets, strict=True):
        each.pts, each.dts = each.pts - zero, time - late - zero
    return zero


def _write(av: Any, pictures: Pictures | None, sound: Sound | None) -> bytes:
    """Return a file with packets and samples that shows the span."""
    target, spans = io.BytesIO(), []
    waiting: list[tuple[Fraction, int, Any]] = []
    with av.open(target, "w", format="mp4", options={"movie_timescale": str(TIMESCALE)}) as made:
        if pictures is not None:
            _check_codec(av, pictures.source.codec_context.codec)
            stream = made.add_stream_from_template(pictures.source, opaque=True)
            for packet in pictures.packets:
                packet.stream = stream
                waiting.append((packet.dts * packet.time_base if sound else Fraction(0), 0, packet))
            spans.append((pictures.late, pictures.start, pictures.length))
        if sound is not None:
            stream = made.add_stream("pcm_f32le", rate=sound.rate, layout=_layout(len(sound.samples)))
            waiting += [(each.dts * each.time_base, 1, each) for each in _encode(av, stream, sound)]
            spans.append((Fraction(0), Fraction(0), Fraction(sound.samples.shape[1], sound.rate)))
        if not waiting:
            raise ValueError("nothing of it is in the span")
        for _, _, packet in sorted(waiting, key=lambda each: each[:2]):
            made.mux(packet)
    return set_edits(bytearray(target.getvalue()), spans)


@cache
def _codecs_of_mp4(av: Any) -> Any:
    """Return the names of the encodings that an MP4 can hold."""
    with av.open(io.BytesIO(), "w", format="mp4") as made:
        return made.supported_codecs


def _check_codec(av: Any, codec: Any) -> None:
    if codec.canonical_name not in _codecs_of_mp4(av):
        raise ValueError(
            f"an MP4 cannot hold {codec.canonical_name}, and no other file a part of it; convert it to another "
            "encoding, such as h264 or av1"
        )


def _layout(channels: int) -> str:
    return {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}.get(channels, f"{channels}c")


def _encode(av: Any, stream: Any, sound: Sound) -> Iterator[Any]:
    """Yield the packets of samples."""
    for at in range(0, sound.samples.shape[1], 4096):
        part = np.ascontiguousarray(sound.samples[:, at : at + 4096].T).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(part, format="flt", layout=_layout(len(sound.samples)))
        frame.sample_rate, frame.pts, frame.time_base = sound.rate, at, Fraction(1, sound.rate)
        yield from stream.encode(frame)
    yield from stream.encode(None)
