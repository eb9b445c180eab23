"""Time spans of long videos and recordings (`seconds` of `fetch`), compared with decoding all of them."""

import io
from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import pytest
import soundfile
from films import RATE, film, frames_of

from wdspec.base.errors import ShardError
from wdspec.fields.codecs.recording import Recording
from wdspec.fields.codecs.spans import open_medium
from wdspec.fields.codecs.video import read_streams

MOST = 1 << 26
FILMS = {
    "h264 and aac in mp4": {},
    "with its index at the start": {"movflags": "faststart"},
    "fragments": {"movflags": "frag_keyframe+empty_moov"},
    "matroska": {"container": "matroska"},
    "mpegts": {"container": "mpegts"},
    "vp9 and opus in webm": {"container": "webm", "codec": "libvpx-vp9", "sound": "libopus", "frames": 60},
    "av1": {"codec": "libsvtav1", "sound": None, "frames": 60},
    "mpeg4 and mp3 in avi": {"container": "avi", "codec": "mpeg4", "sound": "mp3"},
    "pcm in mov": {"container": "mov", "sound": "pcm_s16le"},
    "another rate": {"fps": 24, "sound": None},
}
SPANS = [(0, 0.5), (0.1, 0.101), (0.333, 0.667), (0.5, 1.5), (1.234, 1.876), (0, 1.9)]


def cut(data, start, stop, most=MOST):
    medium = open_medium(io.BytesIO(data))
    try:
        return medium.cut(start, stop, most, lambda size: None)
    finally:
        medium.close()


def decode(data):
    """The frames and the sound that the decoder `video` gives."""
    frames, sound, _ = read_streams(data, None)
    return list(frames.take(range(len(frames)))), sound


@pytest.fixture(scope="module", params=FILMS)
def data(request):
    return film(**FILMS[request.param])


def same(found, expected):
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


def test_a_span_has_the_frames_from_its_start_up_to_its_end(data):
    for start, stop in SPANS:
        expected = frames_of(data, start, stop)
        if expected:
            assert same(decode(cut(data, start, stop))[0], expected), (start, stop)
        else:
            with pytest.raises(ValueError, match="no frame"):
                cut(data, start, stop)


def test_spans_that_follow_each_other_neither_share_nor_lose_a_frame(data):
    times = [0, 0.267, 0.7, 1.1333, 1.9]
    found = [frame for start, stop in pairwise(times) for frame in decode(cut(data, start, stop))[0]]
    assert same(found, frames_of(data, 0, 1.9))


def test_a_span_of_a_span(data):
    once = cut(data, 0.5, 1.8)
    whole = decode(once)[0]
    assert same(decode(cut(once, 0, 0.5))[0], frames_of(once, 0, 0.5))
    assert same(frames_of(once), whole)


@pytest.mark.parametrize(
    ("kind", "difference"), [("h264 and aac in mp4", 1e-3), ("mpeg4 and mp3 in avi", 1e-3), ("pcm in mov", 0)]
)
def test_the_sound_of_a_span_starts_and_ends_at_its_samples(kind, difference):
    data = film(**FILMS[kind])
    whole = decode(data)[1]
    for start, stop in [(0, 0.5), (0.333, 0.667), (0.5, 1.5), (2.0, 2.9)]:
        sound = decode(cut(data, start, stop))[1]
        expected = whole[:, round(start * RATE) : round(stop * RATE)]
        assert sound.shape == expected.shape
        assert np.abs(sound - expected).max() <= difference


def delay(data, kind, seconds):
    """The same film, with one stream that starts later."""
    target = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(target, "w", format="mov") as made:
        streams = [made.add_stream_from_template(each) for each in source.streams]
        packets = [packet for packet in source.demux() if packet.dts is not None]
        for packet in packets:
            ticks = int(seconds / packet.time_base) if packet.stream.type == kind else 0
            packet.pts, packet.dts = packet.pts + ticks, packet.dts + ticks
        for packet in sorted(packets, key=lambda each: each.dts * each.time_base):
            packet.stream = streams[packet.stream.index]
            made.mux(packet)
    return target.getvalue()


@pytest.mark.parametrize("kind", ["audio", "video"])
def test_a_stream_that_starts_later_starts_as_late_in_a_span(kind):
    plain = film(container="mov", sound="pcm_s16le")
    whole, late = decode(plain)[1], {kind: Fraction(7, 10)}
    data = delay(plain, kind, late[kind])
    for start, stop in [(0, 1.5), (0.5, 1.2), (0.6, 2.0), (0.69, 0.8), (1.0, 2.5)]:
        part = cut(data, start, stop)
        frames, sound = decode(part)
        assert same(frames, frames_of(data, start, stop))
        places = np.arange(round(start * RATE), round(stop * RATE)) - round(late.get("audio", 0) * RATE)
        assert np.array_equal(sound[0], np.where(places < 0, 0, whole[0, places]))
        if kind == "video":
            with av.open(io.BytesIO(part)) as made:
                first = next(made.decode(video=0))
            assert float(first.pts * first.time_base) == pytest.approx(max(0, 0.7 - start), abs=1e-3)


def test_sound_that_starts_after_a_span_is_no_part_of_it():
    data = delay(film(container="mov", sound="pcm_s16le"), "audio", Fraction(7, 10))
    assert decode(cut(data, 0, 0.5))[1].shape == (1, 0)


def test_sound_alone_in_a_container_of_video():
    audio, whole = io.BytesIO(), film(sound="aac")
    with av.open(io.BytesIO(whole)) as source, av.open(audio, "w", format="mp4") as made:
        stream = made.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux(audio=0):
            if packet.dts is not None:
                packet.stream = stream
                made.mux(packet)
    expected = Recording(audio.getvalue()).read()
    found = Recording(cut(audio.getvalue(), 1.0, 2.5))
    assert found.rate == RATE
    assert np.abs(found.read() - expected[:, RATE : RATE * 5 // 2]).max() < 1e-3


SOUNDS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_U8"),
    ("WAV", "PCM_24"),
    ("WAV", "FLOAT"),
    ("WAV", "DOUBLE"),
    ("WAV", "ULAW"),
    ("WAV", "ALAW"),
    ("WAV", "IMA_ADPCM"),
    ("WAV", "MS_ADPCM"),
    ("FLAC", "PCM_16"),
    ("FLAC", "PCM_24"),
    ("AIFF", "PCM_16"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]


@pytest.mark.parametrize(("format", "subtype"), SOUNDS)
def test_a_span_of_a_recording_has_exactly_its_samples(format, subtype):
    wave = np.random.default_rng(3).normal(0, 0.1, (RATE * 2, 2))
    target = io.BytesIO()
    soundfile.write(target, wave, RATE, subtype, format=format)
    whole = Recording(target.getvalue()).read()
    for start, stop in [(0, 0.25), (0.1, 0.10005), (1.2345, 1.75), (1.9, 2.0)]:
        part = Recording(cut(target.getvalue(), start, stop))
        first, last = (int(np.floor(time * RATE + 0.5)) for time in (start, stop))
        assert np.array_equal(part.read(), whole[:, first:last])
        assert part.rate == RATE


@pytest.mark.parametrize("make", [film, lambda: _wave("WAV"), lambda: _wave("MP3")])
def test_a_span_ends_before_the_recording_does(make):
    data = make()
    assert cut(data, 2.0, 3.02)  # durations are rounded
    for start, stop in [(2.0, 3.5), (3.5, 4.0), (100, 101)]:
        with pytest.raises(ValueError, match=r"ends at 3\.0"):
            cut(data, start, stop)


def _wave(format):
    target = io.BytesIO()
    soundfile.write(target, np.zeros(RATE * 3, np.float32), RATE, format=format)
    return target.getvalue()


@pytest.mark.parametrize("kind", ["with its index at the start", "matroska", "mpeg4 and mp3 in avi"])
def test_damaged_files_are_errors_or_cut(kind):
    """Never an error of another type, which would end a run that skips bad samples."""
    whole, rng = film(**{**FILMS[kind], "frames": 20}), np.random.default_rng(2)
    outcomes = set()
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(0, min(3000, len(data)), rng.choice((1, 3, 20))):
            data[at] = rng.integers(256)
        try:
            outcomes.add(bool(cut(bytes(data[: rng.integers(1000, len(data) * 2)]), 0.1, 0.5)))
        except (ValueError, RuntimeError):
            outcomes.add(False)
    assert outcomes == {True, False}


def test_times_that_no_file_can_have_are_errors():
    for data in (film(frames=30), film(frames=30, sound=None, container="matroska"), _wave("WAV")):
        for start, stop in [(1.7e15, 1.7e15 + 1), (1e300, 1e300 + 1), (1e305, 1.5e305)]:
            with pytest.raises(ValueError, match=r"part|ends|fetch_memory"):
                cut(data, start, stop)
    slow = film(frames=60, sound=None, fps=Fraction(1, 3600))
    assert len(frames_of(cut(slow, 0, 9 * 3600))) == 9
    assert len(frames_of(cut(slow, 14 * 3600, 15 * 3600))) == 1
    for start, stop in [(0, 14 * 3600), (0, 50 * 3600)]:
        with pytest.raises(ValueError, match="too long for the edit list"):
            cut(slow, start, stop)


def test_what_cannot_be_cut_is_an_error():
    for data in (b"", b"x" * 1000, b"RIFF....WAVEjunk" * 50, film()[:3000]):
        with pytest.raises((ValueError, RuntimeError)):
            cut(data, 0, 1)
    with pytest.raises(ValueError, match="cannot hold vp8"):
        cut(film(frames=30, container="webm", codec="libvpx", sound=None), 0, 0.5)
    for data in (film(), _wave("FLAC")):
        with pytest.raises(ShardError, match="fetch_memory"):
            cut(data, 0, 2, most=100_000)


@pytest.mark.parametrize(("subtype", "width"), [("PCM_U8", 1), ("PCM_16", 2), ("PCM_24", 3), ("DOUBLE", 8)])
def test_a_part_may_have_as_many_bytes_as_its_encoding_needs(subtype, width):
    target = io.BytesIO()
    soundfile.write(target, np.zeros(RATE * 2, np.float32), RATE, subtype, format="WAV")
    assert len(cut(target.getvalue(), 0, 1, most=RATE * width)) >= RATE * width
    with pytest.raises(ShardError, match="fetch_memory"):
        cut(target.getvalue(), 0, 1, most=RATE * width - 1)
