"""`add_noise` and `convolve`: levels, lengths and places are those of plain numpy and scipy."""

import numpy as np
import pytest
import torch
from scipy.signal import fftconvolve
from shardmaking import write_shard
from speechdata import encode, level, voice

import wdspec
from wdspec.fields.values import Audio
from wdspec.steps import make_add_noise, make_convolve

RATE = 16000


def audio(number=0, seconds=0.5, channels=1, rate=RATE):
    return Audio(voice(number, rate, channels, seconds).T.copy(), rate)


@pytest.mark.parametrize("ratio", [-5, 0, 12.5, 40])
def test_noise_is_added_at_the_signal_to_noise_ratio(ratio):
    own, noise = audio(1), audio(2, 2.0)
    made = make_add_noise(snr=ratio)(own, noise, lambda _: 0.5)
    assert made.rate == RATE
    assert made.samples.dtype == np.float32
    added = made.samples - own.samples
    assert level(own.samples) - level(added) == pytest.approx(ratio, abs=0.02)
    start = int(0.5 * (noise.samples.shape[1] - 8000 + 1))
    part = noise.samples[:, start : start + 8000]
    assert np.allclose(added / np.abs(added).max(), part / np.abs(part).max(), atol=1e-3)


def test_a_range_of_ratios_is_drawn_evenly():
    own, noise = audio(1), audio(2)
    add = make_add_noise(snr="5..20")
    for number in (0.0, 0.25, 0.9):
        added = add(own, noise, lambda _, number=number: number).samples - own.samples
        assert level(own.samples) - level(added) == pytest.approx(5 + 15 * number, abs=0.02)


def test_short_noise_is_repeated_from_a_random_place():
    own = Audio(np.ones((2, 10), np.float32), RATE)
    noise = Audio(np.array([[1, 2, 3]], np.float32), RATE)
    made = make_add_noise(snr=0)(own, noise, lambda _: 0.4)
    added = made.samples - 1
    looped = np.array([2, 3, 1, 2, 3, 1, 2, 3, 1, 2], np.float32)
    assert np.allclose(added, looped / np.sqrt(np.mean(looped**2)), atol=1e-6), "to each channel"


def test_without_noise_or_sound_the_recording_stays_as_it_is():
    own, add = audio(1), make_add_noise(snr=10)
    silence = Audio(np.zeros((1, 8000), np.float32), RATE)
    assert add(own, None, lambda _: 0.5) is own
    assert add(own, silence, lambda _: 0.5) is own
    assert add(silence, own, lambda _: 0.5) is silence
    assert make_convolve()(own, None) is own


def test_tensors_stay_tensors():
    own, noise = audio(1), audio(2)
    expected = make_add_noise(snr=10)(own, noise, lambda _: 0.5)
    made = make_add_noise(snr=10)(Audio(torch.from_numpy(own.samples), RATE), noise, lambda _: 0.5)
    assert isinstance(made.samples, torch.Tensor)
    assert np.array_equal(made.samples.numpy(), expected.samples)
    assert isinstance(
        make_convolve()(Audio(torch.from_numpy(own.samples), RATE), noise).samples, torch.Tensor
    )


@pytest.mark.parametrize("mix", [lambda a, b: make_add_noise(snr=5)(a, b, lambda _: 0.1), make_convolve()])
def test_recordings_that_do_not_match_are_errors(mix):
    with pytest.raises(
        wdspec.FieldError, match=r"has 16,000 Hz, and the \w+ 8,000 Hz.*audio\+rate=16000"
    ) as caught:
        mix(audio(1), audio(2, rate=8000))
    assert caught.value.code == "D231"
    with pytest.raises(wdspec.FieldError, match=r"has 1, and the \w+ 2; write `audio\+mono`") as caught:
        mix(audio(1), audio(2, channels=2))
    assert caught.value.code == "D232"
    with pytest.raises(wdspec.FieldError, match="needs a recording, and this is bytes"):
        mix(audio(1), b"RIFF")
    with pytest.raises(wdspec.FieldError, match="has no samples"):
        mix(audio(1), Audio(np.zeros((1, 0), np.float32), RATE))


@pytest.mark.parametrize("channels", [1, 2])
def test_a_room_is_the_convolution_with_its_impulse_from_the_direct_sound_on(channels):
    rng = np.random.default_rng(0)
    own = audio(3, 0.4, channels)
    response = (rng.standard_normal((1, 900)) * np.exp(-np.arange(900) / 150)).astype(np.float32)
    response[0, 40] = 9
    made = make_convolve()(own, Audio(response, RATE)).samples
    whole = fftconvolve(own.samples.astype(float), response.astype(float), axes=1)
    expected = whole[:, 40 : 40 + own.samples.shape[1]]
    expected *= np.sqrt(np.mean(own.samples.astype(float) ** 2) / np.mean(expected**2))
    assert np.allclose(made, expected, atol=1e-6)
    assert level(made) == pytest.approx(level(own.samples), abs=1e-3)


def test_a_silent_impulse_is_an_error():
    with pytest.raises(wdspec.FieldError, match="this one is silent"):
        make_convolve()(audio(1), Audio(np.zeros((1, 10), np.float32), RATE))


def noisy(folder):
    rows = [
        (
            f"{n:02}",
            {"wav": encode(voice(n, RATE), RATE), "noise.wav": encode(voice(50 + n, RATE, 1, 0.2), RATE)},
        )
        for n in range(8)
    ]
    write_shard(folder / "a.tar", [*rows, ("99", {"wav": encode(voice(99, RATE), RATE)})])
    return {
        "dataset": [
            {
                "name": "a",
                "shards": str(folder / "a.tar"),
                "rename": {"noise": "noise.wav"},
                "missing": "none",
                "decode": {"wav": "audio", "noise": "audio"},
                "make": {"audio": {"add_noise": "wav", "noise": "noise", "snr": "5..20"}},
            }
        ],
        "fields": ["wav", "audio"],
    }


def test_noise_of_a_sample_is_drawn_anew_in_each_pass_and_equal_in_workers(tmp_path):
    spec = noisy(tmp_path)

    def read(**options):
        with wdspec.loader(spec | {"epoch": 27, "batch": None}, **options) as loader:
            return [
                (each["__key__"], each["audio"].samples.tobytes(), each["wav"].samples.tobytes())
                for each in loader
            ]

    found = read(num_workers=0)
    assert found == read(num_workers=1)
    by_key = {key: {made for k, made, _ in found if k == key} for key, _, _ in found}
    assert {key: len(made) for key, made in by_key.items()} == {**{f"{n:02}": 3 for n in range(8)}, "99": 1}
    assert all(made == plain for key, made, plain in found if key == "99"), "it has no noise"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"add_noise": "wav", "noise": "noise", "snr": "20..5"}, "the smaller number comes first"),
        ({"add_noise": "wav", "noise": "noise", "snr": [5, 20]}, "write `snr: 5..20`"),
        ({"add_noise": "wav", "noise": "noise", "snr": "loud"}, "a range of decibels such as `5..20`"),
        ({"add_noise": "wav", "noise": "noise", "snr_db": "5..20"}, "write `snr: 5..20`"),
        ({"add_noise": "wav", "snr": "5..20"}, "noise"),
        ({"convolve": "wav", "rir": "rir.wav"}, "write `impulse: rir.wav`"),
        ({"reverb": "wav"}, "write `make: {audio: {convolve: wav, impulse: impulse}}`"),
        ({"resample": "wav"}, "`decode: {wav: audio+rate=16000}`"),
    ],
)
def test_a_wrong_option_says_what_to_write(step, said):
    with pytest.raises(wdspec.SpecError) as caught:
        wdspec.load({"dataset": [{"shards": "a.tar", "make": {"audio": step}}]})
    assert said in str(caught.value)
