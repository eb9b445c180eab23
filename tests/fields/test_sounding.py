"""The options of decoders of audio: values are those of soundfile and soxr in plain Python, and lengths are exact."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import soxr
import torch
from decoded import decode
from speechdata import encode, level, plain_audio, resampled_length, voice

import wdspec
from wdspec.base.errors import FieldError, SpecError, UsageError
from wdspec.fields.codecs.audio import audio_decoder
from wdspec.fields.codecs.recording import Recording
from wdspec.fields.codecs.sounding import resample


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "opus", "ogg", "aiff"])
@pytest.mark.parametrize("rate", [8000, 16000, 48000])
def test_recordings_of_any_format_are_resampled_as_by_soxr(kind: str, rate: int) -> None:
    for own in (8000, 24000, 48000):
        data = encode(voice(1, own, 2, 0.21), own, kind)
        samples, found = decode("bin", data, fields={"bin": f"audio+rate={rate}+mono"})
        assert (found, samples.shape[0], samples.dtype) == (rate, 1, np.float32)
        expected = plain_audio(data, rate)
        assert samples.shape[1] == len(expected)
        # mpg123 rounds differently if it was asked to seek, as `soundfile.read` does.
        assert np.allclose(samples[0], expected, rtol=0, atol=1e-6 if kind == "mp3" else 0)


def test_any_number_of_samples_has_its_exact_length_at_another_rate() -> None:
    rng = np.random.default_rng(0)
    pairs = [(int(old), int(new)) for old, new in rng.integers(1000, 96000, (40, 2))]
    for old, new in [(44100, 16000), (8000, 16000), (48000, 16000), (11025, 16000), *pairs]:
        for count in (1, 2, 3, 159, 160, 161, int(rng.integers(1, 3000))):
            made = resample(np.ones((2, count), np.float32), old, new)
            assert made.shape == (2, resampled_length(count, old, new))
            assert made.flags.c_contiguous


def test_the_tone_of_a_resampled_recording_is_kept_and_nothing_above_the_new_band() -> None:
    def tone(rate: int, hertz: float) -> Any:
        return np.sin(2 * np.pi * hertz * np.arange(2 * rate) / rate).astype(np.float32)

    for own in (8000, 22050, 44100, 48000):
        samples, _ = decode(
            "bin", encode(tone(own, 440), own, "wav", "FLOAT"), fields={"bin": "audio+rate=16000"}
        )
        assert np.abs(samples[0] - tone(16000, 440))[1000:-1000].max() < 1e-5
    above = encode(tone(48000, 9000), 48000, "wav", "FLOAT")
    samples, _ = decode("bin", above, fields={"bin": "audio+rate=16000"})
    assert level(samples[0][1000:-1000]) < -100


def test_tensors_and_single_formats_have_the_same_options() -> None:
    data = encode(voice(2, 24000, 2), 24000, "flac")
    expected = plain_audio(data, 8000)
    samples, rate = decode("bin", data, fields={"bin": "torch_audio+rate=8000+mono"})
    assert isinstance(samples, torch.Tensor)
    assert (rate, np.array_equal(samples[0].numpy(), expected)) == (8000, True)
    assert np.array_equal(decode("bin", data, fields={"bin": "flac+rate=8000+mono"})[0][0], expected)


def test_speed_and_gain_are_those_of_the_drawn_numbers() -> None:
    data = encode(voice(3, 16000, 1, 1.0), 16000, "wav", "FLOAT")
    plain = plain_audio(data, 16000)
    drawing = audio_decoder("audio+speed=0.8..1.2+gain=-6..6")
    for number in (0.0, 0.3, 0.999):
        samples, rate = drawing(data, None, lambda _, number=number: number)
        speed, gain = 0.8 + number * 0.4, -6 + number * 12
        expected = soxr.resample(plain, 16000 * speed, 16000, quality="HQ")
        count = math.floor(16000 / speed + 0.5)
        assert (rate, samples.shape) == (16000, (1, count))
        assert np.allclose(samples[0], expected * 10 ** (gain / 20), atol=1e-6)
    fixed, _ = audio_decoder("audio+gain=-20")(data)
    assert np.allclose(fixed[0], plain / 10, atol=1e-6)


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3"])
def test_a_clip_is_a_part_of_an_exact_length_and_reads_no_more_where_it_can(kind: str) -> None:
    data = encode(voice(4, 24000, 1, 2.0), 24000, kind)
    whole = plain_audio(data, 24000)
    clip = audio_decoder("audio+clip=0.5s")
    starts = set()
    for number in (0.0, 0.5, 0.9999):
        samples, _ = clip(data, None, lambda _, number=number: number)
        assert samples.shape == (1, 12000)
        start = int(number * (len(whole) - 12000 + 1))
        assert np.allclose(samples[0], whole[start : start + 12000], rtol=0, atol=1e-6)
        starts.add(start)
    assert len(starts) == 3
    short, _ = audio_decoder("audio+clip=5s")(data, None, lambda _: 0.5)
    assert np.allclose(short[0], whole, rtol=0, atol=1e-6)
    for options in ("clip=0.5s+rate=16000", "clip=0.5s+rate=16000+speed=0.9..1.1"):
        samples, _ = audio_decoder(f"audio+{options}")(data, None, lambda _: 0.7)
        assert samples.shape == (1, 8000)


@pytest.mark.parametrize("kind", ["wav", "flac", "aiff", "au", "mp3", "opus", "ogg"])
def test_a_part_of_a_recording_is_that_part_of_the_whole(kind: str) -> None:
    data = encode(voice(5, 16000, 2, 1.5), 16000, kind)
    whole = Recording(data).read()
    for first, stop in ((0, 100), (1, 17), (7001, 9000), (12000, None), (20000, 23000), (23999, 24000)):
        assert np.array_equal(Recording(data).read(first, stop), whole[:, first:stop]), (first, stop)


def test_options_that_draw_need_a_sample_of_a_spec() -> None:
    data = encode(voice(6, 8000), 8000)
    for option in ("speed=0.9..1.1", "gain=-3..3", "clip=0.1s"):
        with pytest.raises(UsageError, match=f"`{option.partition('=')[0]}` needs random numbers"):
            audio_decoder(f"audio+{option}")(data)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("rate=16k", "'16k' is not a sample rate in Hz, such as `16000`"),
        ("rate=0", "'0' is not a sample rate"),
        ("rate", "needs a value: `rate=16000`"),
        ("mono=true", "takes no value"),
        ("speed=1.1..0.9", "the smaller number comes first"),
        ("speed=0..2", "from 0.1 to 10"),
        ("gain=loud", "a range of decibels"),
        ("clip=0", "a length such as"),
        ("channels=1", "write `decode: {wav: audio+mono}`"),
        ("sample_rate=16000", "`decode: {wav: audio+rate=16000+mono}`"),
        ("snr=5..20", "`make: {audio: {add_noise: wav, noise: noise, snr: 5..20}}`"),
    ],
)
def test_a_wrong_option_says_what_to_write(option: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        wdspec.load({"dataset": [{"shards": "a.tar", "decode": {"wav": f"audio+{option}"}}]})
    assert said in str(caught.value)


def batch_of(files: dict[str, bytes], folder: Any, **batch: Any) -> Any:
    from shardmaking import write_shard

    write_shard(folder / "a.tar", [(key, {"wav": data}) for key, data in files.items()])
    spec = {
        "dataset": [
            {"name": "a", "shards": str(folder / "a.tar"), "decode": {"wav": batch.pop("decode", "audio")}}
        ],
        "batch": {"size": len(files), **batch},
        "epoch": "pass",
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        return next(iter(loader))


WAYS: list[dict[str, Any]] = [
    {},
    {"collate": {"wav": {"pad": {"axis": -1}}}},
    {"collate": {"wav": {"pad": {"axis": [0, 1]}}}},
    {"collate": {"wav": "nested"}},
    {"collate": {"wav": "stack"}},
    {"collate": {"wav": {"pad": {"axis": -1, "lengths": "wav_length"}}}},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("decoder", ["audio", "torch_audio"])
def test_a_batch_of_several_rates_is_an_error_that_names_them(tmp_path: Any, way: Any, decoder: str) -> None:
    files = {"x": encode(np.zeros((800, 1)), 8000), "y": encode(np.zeros((800, 1)), 16000)}
    with pytest.raises(FieldError) as caught:
        batch_of(files, tmp_path, decode=decoder, **way)
    assert caught.value.code == "D231"
    text = str(caught.value)
    assert "8,000 Hz: a: x" in text
    assert "16,000 Hz: a: y" in text
    assert f"`decode: {{wav: {decoder}+rate=16000}}`" in text


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_batch_of_several_numbers_of_channels_is_an_error_whose_remedy_is_mono(
    tmp_path: Any, way: Any
) -> None:
    files = {"x": encode(np.zeros((800, 1)), 8000), "y": encode(np.zeros((800, 2)), 8000)}
    with pytest.raises(FieldError) as caught:
        batch_of(files, tmp_path, **way)
    assert caught.value.code == "D232"
    assert "1 channel: a: x" in str(caught.value)
    assert "`decode: {wav: audio+mono}`" in str(caught.value)
    batch_of(files, tmp_path, decode="audio+mono", collate={"wav": {"pad": {"axis": -1}}})


def test_a_list_keeps_each_recording_with_its_rate(tmp_path: Any) -> None:
    files = {"x": encode(np.zeros((800, 1)), 8000), "y": encode(np.zeros((900, 2)), 16000)}
    for way in ({"collate": {"wav": "list"}}, {"ragged": "list"}):
        batch = batch_of(files, tmp_path, **way)
        assert [(each.samples.shape, each.rate) for each in batch["wav"]] == [
            ((1, 800), 8000),
            ((2, 900), 16000),
        ]


def _optional() -> str:
    """Return the features of this CPU for which numpy has code of its own."""
    found = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[call-overload, index]
    return " ".join(found.get("found", []))


SCALAR = {"SOXR_USE_SIMD": "0", "NPY_DISABLE_CPU_FEATURES": _optional()}
"""An environment in which soxr and numpy use none of the instructions that not every CPU has."""
DECODE = """
import sys
import numpy as np
from wdspec.fields.codecs.audio import audio_decoder

with np.load(sys.argv[1]) as files:
    jobs = [(name, files[name].tobytes()) for name in files.files]
made = {name: audio_decoder(name.partition(" ")[0])(data, None, lambda _: 0.3) for name, data in jobs}
np.savez(sys.argv[2], **{name: each.samples for name, each in made.items()})
"""


def test_values_are_the_same_within_a_hundred_thousandth_on_other_cpus(tmp_path: Any) -> None:
    files = {
        f"{decoder} {rate}": encode(voice(rate, rate, 2, 0.5), rate, kind)
        for decoder in ("audio+rate=16000+mono", "audio+rate=16000+speed=0.9..1.1+gain=-3..3")
        for rate, kind in ((8000, "wav"), (22050, "flac"), (44100, "flac"), (48000, "wav"))
    }
    np.savez(tmp_path / "files.npz", **{name: np.frombuffer(data, np.uint8) for name, data in files.items()})
    command = [sys.executable, "-c", DECODE, str(tmp_path / "files.npz"), str(tmp_path / "made.npz")]
    subprocess.run(command, check=True, env={**os.environ, **SCALAR})
    own = {
        name: audio_decoder(name.partition(" ")[0])(data, None, lambda _: 0.3).samples
        for name, data in files.items()
    }
    with np.load(tmp_path / "made.npz") as found:
        other = {name: found[name] for name in found.files}
    assert own.keys() == other.keys()
    for name, samples in own.items():
        assert samples.shape == other[name].shape
        assert np.abs(samples - other[name]).max() <= 1e-5, name
    if platform.machine() == "x86_64":  # the other instructions were used: some bits differ
        assert any((own[name] != other[name]).any() for name in own)
