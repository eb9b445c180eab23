"""Audio and video: shapes, types, rates and values; errors; nothing outside of the data is opened."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from decoded import decode
from fieldfiles import CODECS, FRAMES, RATE, SOUND, film, sound

from wdspec import Decoder, torch_audio, torch_video
from wdspec.base.errors import FieldError, SpecError, UsageError
from wdspec.fields.codecs import video as ffmpeg_streams
from wdspec.fields.codecs.video import FilmDecoder, film_decoder
from wdspec.fields.decode import DecodeRules
from wdspec.spec.language.decoders import BY_NAME, require_libraries

ASK = ("audio", "video")


@pytest.mark.parametrize("suffix", sorted(BY_NAME["audio"].extensions))
def test_audio_is_a_float_array_of_channels_by_samples_and_the_rate(suffix: str) -> None:
    samples, rate = decode(suffix, sound(suffix), names=ASK)
    assert (samples.dtype, samples.shape[0]) == (np.float32, 2)
    assert samples.flags.writeable
    assert samples.flags.c_contiguous
    assert np.abs(samples).max() <= 1
    if suffix in ("m4a", "aac", "wma"):
        assert rate == 44100
        return
    assert (samples.shape, rate) == (SOUND.shape, RATE)
    error = np.abs(samples - SOUND).max()
    assert error < (1e-4 if suffix in ("flac", "wav", "aif", "aiff", "au") else 0.2), (
        "the right channel in the right place"
    )


@pytest.mark.parametrize("name", ["audio", "flac", "torch_audio"])
def test_any_field_can_be_declared_audio(name: str) -> None:
    samples, rate = decode("bin", sound("flac"), fields={"bin": name})
    assert isinstance(samples, torch.Tensor if name == "torch_audio" else np.ndarray)
    assert (tuple(samples.shape), rate) == (SOUND.shape, RATE)


@pytest.mark.parametrize("suffix", sorted(BY_NAME["video"].extensions))
def test_videos_are_frames_sound_and_metadata(suffix: str) -> None:
    container, codec, has_sound = CODECS[suffix]
    frames, samples, facts = decode(suffix, film(container, codec, has_sound), names=ASK)
    assert (frames.dtype, frames.shape) == (np.uint8, (FRAMES, 48, 64, 3))
    assert frames.flags.writeable
    # Each frame is of one grey, lighter than the one before.
    assert np.abs(frames.mean(axis=(1, 2, 3)) - (20 + 25 * np.arange(FRAMES))).max() < 4
    assert facts["video_fps"] == (25 if suffix in ("h264", "mjpeg") else 24)
    assert samples.dtype == np.float32
    if has_sound:
        assert facts["audio_fps"] == (48000 if has_sound == "libopus" else 16000)
        assert samples.shape[0] == 2
        assert abs(samples.shape[1] / facts["audio_fps"] - 0.25) < 0.1
        assert 0.3 < np.abs(samples).max() <= 1
    else:
        assert samples.shape == (1, 0)
        assert "audio_fps" not in facts


def test_media_are_tensors_on_request() -> None:
    data = film(*CODECS["mp4"])
    for frames, samples, _facts in (
        decode("mp4", data, names=("torch_video",)),
        torch_video(".mp4", data),
        Decoder("torch_video", "torch_audio")({"mp4": data})["mp4"],
    ):
        assert (frames.dtype, tuple(frames.shape)) == (torch.uint8, (FRAMES, 48, 64, 3))
        assert samples.dtype == torch.float32
    samples, rate = torch_audio(".left.FLAC", sound("flac"))
    assert (tuple(samples.shape), rate) == (SOUND.shape, RATE)


def test_audio_and_video_stay_bytes_unless_requested_and_image_decoders_ignore_them() -> None:
    data = film(*CODECS["mpg"])
    assert decode("mpg", data) == data
    assert decode("mpg", data, names=("pil", "audio")) == data
    assert decode("mpg", data, names=("pil", "video"))[0].shape == (FRAMES, 48, 64, 3)


@pytest.mark.parametrize("suffix", ["flac", "mp3", "ogg", "m4a", "mp4", "webm", "avi", "h264"])
@pytest.mark.parametrize("data", [b"", b"junk" * 100], ids=["empty", "junk"])
def test_an_undecodable_field_is_reported_with_its_place(suffix: str, data: bytes) -> None:
    with pytest.raises(
        FieldError, match=r"cannot decode as (audio|video): \w[^\[\]]* \[source a, url a.tar, key 0001, field"
    ):
        decode(suffix, data, names=ASK)


def test_a_truncated_flac_is_an_error() -> None:
    data = sound("flac")
    with pytest.raises(FieldError, match="cannot decode as audio"):
        decode("flac", data[: len(data) // 2], names=ASK)


def test_audio_alone_is_not_a_video_and_a_video_without_sound_is_not_audio() -> None:
    with pytest.raises(FieldError, match="it contains no video"):
        decode("mp4", sound("m4a"), names=ASK)
    with pytest.raises(FieldError, match="it contains no audio"):
        decode("m4a", film(*CODECS["m4v"]), names=ASK)


def test_oversized_media_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg_streams, "MAX_FRAME_BYTES", FRAMES * 48 * 64 * 3 - 1)
    with pytest.raises(FieldError, match="frames have more than 73,727 bytes"):
        decode("mp4", film(*CODECS["mp4"]), names=ASK)
    monkeypatch.setattr(ffmpeg_streams, "MAX_SAMPLES", 3000)
    with pytest.raises(FieldError, match="3,200 samples are more than 3,000"):
        decode("flac", sound("flac"), names=ASK)
    with pytest.raises(FieldError, match="samples are more than 3,000"):
        decode("m4a", sound("m4a"), names=ASK)


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{url}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{path}'\n",
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet '
        'mimeType="video/mp4"><Representation id="0"><BaseURL>{url}</BaseURL></Representation></AdaptationSet>'
        "</Period></MPD>",
    ],
    ids=["hls", "concat", "dash"],
)
def test_media_never_open_other_files(playlist: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(film(*CODECS["mp4"]))
    data = playlist.format(url=secret.as_uri(), path=secret).encode()
    for suffix in ("mp4", "webm", "avi", "m4a"):
        with pytest.raises(FieldError):
            decode(suffix, data, fields={suffix: "video"})


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [("flac", "soundfile", "audio"), ("mp4", "av", "video"), ("m4a", "av", "video")],
)
def test_a_missing_library_is_reported_with_its_extra(
    suffix: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sound(suffix) if suffix != "mp4" else film(*CODECS["mp4"])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"{module}, which is not installed|cannot be loaded.*\[{extra}\]"):
        decode(suffix, data, names=ASK)


def test_missing_decoders_of_a_spec_are_reported_before_the_first_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wdspec.spec.language.decoders.find_spec", lambda name: None)
    for name, extra in {
        "audio": "audio",
        "wma": "video",
        "torch_video": "video",
        "video+torchcodec": "torchcodec",
        "msgpack": "formats",
        "safetensors": "safetensors",
        "torchrgb": "torch",
    }.items():
        with pytest.raises(UsageError, match=rf"`decode: {name.replace('+', '.')}` needs .*\[{extra}\]"):
            require_libraries(name)
    for name in ("rgb8", "json", "raw", "mylib:torchy"):
        require_libraries(name)


class FakeCodec:
    """torchcodec's decoders, as far as they are used."""

    class VideoDecoder:
        def __init__(self, data: bytes, **options: Any) -> None:
            assert options["dimension_order"] == "NHWC"
            self.metadata = type("Metadata", (), {"height": 4, "width": 6, "average_fps": 30.0})

        def __len__(self) -> int:
            return 3

        def get_frames_in_range(self, start: int, stop: int) -> Any:
            return type("Frames", (), {"data": torch.zeros((stop - start, 4, 6, 3), dtype=torch.uint8)})

    class AudioDecoder:
        def __init__(self, data: bytes) -> None:
            if data == b"silent":
                raise ValueError("no audio stream")

        def get_all_samples(self) -> Any:
            return type("Samples", (), {"data": torch.zeros((2, 100)), "sample_rate": 8000})


def test_torchcodec_reads_videos_if_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchcodec", FakeCodec)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", FakeCodec)  # type: ignore[arg-type]
    frames, samples, facts = decode("mp4", b"film", names=("video+torchcodec",))
    assert (type(frames), frames.shape, samples.shape) == (np.ndarray, (3, 4, 6, 3), (2, 100))
    assert facts == {"video_fps": 30.0, "audio_fps": 8000}
    frames, samples, facts = decode("mp4", b"silent", names=("torch_video+torchcodec",))
    assert (type(frames), tuple(samples.shape), facts) == (torch.Tensor, (1, 0), {"video_fps": 30.0})
    with pytest.raises(SpecError, match="no option 'torchcodec'"):
        DecodeRules(("audio+torchcodec",))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux")
def test_frames_are_decoded_and_converted_without_further_threads() -> None:
    before = len(list(Path("/proc/self/task").iterdir()))
    frames, _, _ = ffmpeg_streams.read_streams(film(*CODECS["mp4"]), None, with_sound=False)
    frames.take([0, 1])
    assert len(list(Path("/proc/self/task").iterdir())) == before


@pytest.mark.skipif(importlib.util.find_spec("torchcodec") is None, reason="torchcodec is not installed")
def test_torchcodec_and_pyav_agree() -> None:
    data = film(*CODECS["mp4"])
    try:
        theirs = FilmDecoder(torchcodec=True)(data)
    except UsageError as error:
        pytest.skip(str(error))
    ours = FilmDecoder()(data)
    assert theirs[0].shape == ours[0].shape
    assert np.abs(theirs[0].astype(int) - ours[0]).mean() < 3


def wav_of(samples: Any, subtype: str = "FLOAT", rate: int = RATE) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype=subtype)
    return file.getvalue()


def test_a_recording_without_samples_or_without_a_rate_is_an_error() -> None:
    with pytest.raises(FieldError, match=r"0 samples at 8,000 Hz.*errors: skip.*field wav"):
        decode("wav", wav_of(np.zeros((0, 2))), names=ASK)
    data = bytearray(wav_of(np.zeros((40, 1)), "PCM_16"))
    data[24:28] = bytes(4)  # the rate in the header
    with pytest.raises(FieldError, match="key 0001, field wav"):
        decode("wav", bytes(data), names=ASK)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_recording_with_nan_is_an_error_that_says_where(wrong: float) -> None:
    samples = np.zeros((100, 2), np.float32)
    samples[40, 1] = wrong
    with pytest.raises(FieldError, match=r"sample 40, at 0\.005 s, is NaN"):
        decode("wav", wav_of(samples), names=ASK)


def cut(options: str, number: float = 0.0) -> Any:
    """A video of 24 frames per second, whose frames get lighter, decoded with options."""
    decoder = film_decoder(f"video+{options}", "mp4", "mp4")
    return decoder(film("mp4", "libx264", "aac"), None, lambda i: number)


def numbers_of(frames: Any) -> list[int]:
    return [round((float(frame.mean()) - 20) / 25) for frame in frames]


@pytest.mark.parametrize(
    ("options", "number", "taken"),
    [
        ("frames=3", 0, lambda n: [n // 6, n // 2, 5 * n // 6]),
        ("fps=12", 0, lambda n: list(range(1, n, 2))),
        ("clip=1/12s", 0, lambda n: [0, 1]),
        ("clip=1/12s", 0.999, lambda n: [n - 2, n - 1]),
        ("clip=1/8+frames=1", 0.999, lambda n: [n - 2]),
        ("clip=100s", 0.5, lambda n: list(range(n))),
    ],
)
def test_requested_parts_of_videos_are_returned(options: str, number: float, taken: Any) -> None:
    frames, samples, facts = cut(options, number)
    assert numbers_of(frames) == taken(FRAMES)
    assert frames.flags.writeable
    if options.startswith("clip=1/"):
        seconds = 1 / 12 if "12s" in options else 1 / 8
        assert samples.shape[1] <= round(seconds * facts["audio_fps"])
        assert facts["start"] == pytest.approx((FRAMES - round(seconds * 24) if number else 0) / 24)


def test_frames_are_resized_and_chosen_randomly_per_sample() -> None:
    frames = cut("frames=20+resize=24+center_crop=16+silent")
    assert frames.shape == (20, 16, 16, 3)
    assert sorted(set(numbers_of(frames))) == list(range(FRAMES)), "of fewer frames some come twice"
    assert cut("frames=2+random_resized_crop=8+silent", 0.3).shape == (2, 8, 8, 3)
    with pytest.raises(UsageError, match="`clip` needs random numbers"):
        film_decoder("video+clip=2s", "mp4", "mp4")(film("mp4", "libx264", None))


@pytest.mark.parametrize(
    "decoder", ["video+clip=2m", "video+frames=0", "video+fps=0", "video+frames=2+fps=2"]
)
def test_mistakes_in_video_options_are_reported(decoder: str) -> None:
    with pytest.raises(SpecError, match=r"`clip`: |`frames`: |`fps`: |leave one out"):
        DecodeRules((decoder,))
