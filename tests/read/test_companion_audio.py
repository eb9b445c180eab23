"""Recordings of companions: a step that takes a part of one decodes no more, and nothing else changes."""

from itertools import islice

import numpy as np
import pytest
import soundfile
from shardmaking import write_shard
from speechdata import encode, plain_audio, voice

import wdspec

RATE = 16000
SECONDS = (0.2, 0.5, 0.31, 0.77)
"""Of the recordings. Noise is longer or, in one of four, shorter."""


def noise_files(kind):
    return {f"n{n}": encode(voice(50 + n, RATE, 2, (3.0, 2.5, 0.1, 4.0)[n]), RATE, kind) for n in range(4)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Eight recordings, and a function that changes nothing, but is given values."""
    monkeypatch.chdir(tmp_path)
    recordings = [(f"s{n}", {"wav": encode(voice(n, RATE, 1, SECONDS[n % 4]), RATE)}) for n in range(8)]
    write_shard(tmp_path / "a.tar", recordings)
    (tmp_path / "keepingnoise.py").write_text("def same(sample):\n    return sample\n")
    return tmp_path


def make_spec(noise, ending="flac", make=None, **keys):
    companions = {"noise": {"shards": "n.tar", "decode": "audio+mono", **noise}}
    source = {"name": "a", "shards": "a.tar", "decode": "audio", "companions": companions}
    source["make"] = make or {"mixed": {"add_noise": "wav", "noise": f"noise.{ending}", "snr": "0..10"}}
    return {"dataset": [source | keys], "batch": None}


def read(spec, count=40, field="mixed"):
    with wdspec.loader(spec, num_workers=0) as loader:
        samples = [*islice(loader, count)]
    return [(each["__key__"], each[field].samples.tobytes()) for each in samples]


@pytest.fixture
def decoded(monkeypatch):
    """How many samples of recordings are decoded, by the name of the format."""
    counts = {}
    original = soundfile.SoundFile.read

    def counting(file, *arguments, **options):
        found = original(file, *arguments, **options)
        counts[file.format] = counts.get(file.format, 0) + len(found)
        return found

    monkeypatch.setattr(soundfile.SoundFile, "read", counting)
    return counts


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3"])
@pytest.mark.parametrize(
    "decoder", ["torch_audio+mono", "audio+mono+clip=1.5s+gain=-9..3", "audio+mono+rate=16000"]
)
def test_noise_is_the_same_as_if_its_recordings_were_decoded_whole(folder, kind, decoder):
    write_shard(folder / "n.tar", [(key, {kind: data}) for key, data in noise_files(kind).items()])
    parts = read(make_spec({"decode": decoder}, kind))
    assert parts == read(make_spec({"decode": decoder, "map": "keepingnoise:same"}, kind))
    assert len({made for _, made in parts}) == 40


def test_resampled_noise_is_the_same_too(folder):
    write_shard(
        folder / "n.tar", [(f"n{n}", {"wav": encode(voice(n, 8000, 1, 2.0), 8000)}) for n in range(4)]
    )
    for decoder in ("audio+rate=16000+clip=1s", "audio+rate=16000+speed=0.9..1.1"):
        parts = read(make_spec({"decode": decoder}, "wav"))
        assert parts == read(make_spec({"decode": decoder, "map": "keepingnoise:same"}, "wav"))


def test_no_more_of_long_noise_is_decoded_than_is_added(folder, decoded):
    noise = {key: data for key, data in noise_files("flac").items() if key != "n2"}
    write_shard(folder / "n.tar", [(key, {"flac": data}) for key, data in noise.items()])
    read(make_spec({}), 24)
    assert decoded["FLAC"] == decoded["WAV"] > 0


def test_steps_and_functions_that_read_a_companion_get_whole_recordings(folder):
    noise = noise_files("flac")
    write_shard(folder / "n.tar", [(key, {"flac": data}) for key, data in noise.items()])
    whole = {plain_audio(data, RATE).tobytes() for data in noise.values()}
    (folder / "takingnoise.py").write_text(
        "def take(sample):\n    return {**sample, 'found': sample['noise']['flac']}\n"
    )
    mixed = {"add_noise": "wav", "noise": "noise.flac", "snr": 5}
    steps = {
        "a step": make_spec({}, make={"mixed": mixed, "found": {"take": "noise.flac"}}),
        "a function": make_spec({}, make={"mixed": mixed}, map="takingnoise:take"),
    }
    expected = read(make_spec({}, make={"mixed": mixed}))
    for spec in steps.values():
        assert {made for _, made in read(spec, field="found")} == whole
        assert read(spec) == expected
    of_two = {"shards": "n.tar", "decode": "audio+mono"}
    spec = make_spec({}, make={"found": {"take": "noise[1].flac"}})
    spec["dataset"][0]["companions"] = {"noise": {"source": "pool", "count": 2}}
    spec["companions"] = {"pool": of_two}
    assert {made for _, made in read(spec, field="found")} == whole


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_a_damaged_part_is_an_error_of_the_companion_whatever_its_sample_skips(folder, errors):
    broken = noise_files("flac")["n3"]
    write_shard(folder / "n.tar", [("broken", {"flac": broken[: len(broken) // 3]})])
    with pytest.raises(wdspec.FieldError, match="cannot decode as audio") as caught:
        read(make_spec({}, errors=errors))
    place = caught.value.place
    assert (place["source"], place["key"], place["field"]) == ("a/noise", "broken", "flac")


def test_a_companion_that_cannot_be_measured_is_no_skip_of_its_sample(folder):
    files = [("ok", {"wav": noise_files("wav")["n0"]}), ("bad", {"wav": b"RIFF...."})]
    write_shard(folder / "n.tar", files)
    spec = make_spec({}, "wav", errors="skip")
    spec["batch"] = {"cost": "wav.seconds + noise.wav.seconds", "max_cost": 20, "window": 8}
    with pytest.raises(wdspec.FieldError, match="cannot be measured") as caught:
        read(spec)
    assert (caught.value.place["source"], caught.value.place["key"]) == ("a/noise", "bad")


def test_damaged_noise_that_is_skipped_is_replaced(folder):
    noise = noise_files("flac")
    whole = {plain_audio(data, RATE).tobytes() for data in noise.values()}
    files = [(key, {"flac": data}) for key, data in noise.items()]
    write_shard(folder / "n.tar", [("broken", {"flac": noise["n3"][: len(noise["n3"]) // 3]}), *files])
    spec = make_spec({"errors": "skip"})
    spec["dataset"][0]["make"]["found"] = {"take": "noise.flac"}
    with wdspec.loader(spec, num_workers=0) as loader:
        samples = [*islice(loader, 40)]
        skipped = loader.stats().sources["a/noise"].skipped
    assert {each["found"].samples.tobytes() for each in samples} == whole
    assert all(np.isfinite(each["mixed"].samples).all() for each in samples)
    assert sum(skipped.values()) > 0


def test_each_companion_is_counted_once_however_it_is_read(folder):
    write_shard(folder / "n.tar", [(key, {"flac": data}) for key, data in noise_files("flac").items()])
    for more in ({}, {"map": "keepingnoise:same"}):
        with wdspec.loader(make_spec(more), num_workers=0) as loader:
            assert len([*islice(loader, 40)]) == 40
            stats = loader.stats()
        assert stats.sources["a/noise"].delivered == 40
