"""What can be wrong with recordings, segments and companions: each is an error with its place, or a counted skip."""

import json

import numpy as np
import pytest
from shardmaking import write_shard
from speechdata import encode, voice

import wdspec

RATE = 8000
WHOLE = {"offset": 0.0, "duration": 0.5, "rate": RATE}
GOOD = encode(voice(1, RATE, 1, 1.0), RATE)


def _without_rate():
    data = bytearray(GOOD)
    data[24:28] = bytes(4)  # in the header
    return bytes(data)


def _with_nan():
    samples = voice(1, RATE, 1, 1.0)
    samples[2000] = np.nan
    return encode(samples, RATE, "wav", "FLOAT")


RECORDINGS = {
    "no samples": (encode(np.zeros((0, 1), np.float32), RATE), {}, "0 samples at 8,000 Hz"),
    "no rate": (_without_rate(), {}, "cannot decode as audio"),
    "NaN": (_with_nan(), {}, "sample 2,000, at 0.250 s, is NaN"),
    "an empty file": (b"", {}, "cannot decode as audio: the file is empty"),
    "an offset below 0": (GOOD, {"offset": -0.1}, "`offset: json.offset` must be 0 or more"),
    "an offset beyond the end": (
        GOOD,
        {"offset": 3.0},
        "starts at 3.000 s, and the recording ends at 1.000 s",
    ),
    "a duration of 0": (GOOD, {"duration": 0}, "`duration: json.duration` must be above 0"),
    "a duration past the end": (GOOD, {"duration": 1.5}, "ends at 1.500 s, and the recording at 1.000 s"),
    "another rate": (GOOD, {"rate": 16000}, "has 8,000 Hz, and `source_rate: json.rate` says 16000"),
}
"""Name → the file, what its record says, and what the error says."""


def write_talks(folder, name, kind, count=4):
    """A shard of recordings, the second of which is wrong."""
    data, changes, _ = RECORDINGS[kind]
    rows = [(f"{name}{n}", GOOD, WHOLE) for n in range(count)]
    rows[1] = f"{name}1", data, {**WHOLE, **changes}
    files = [(key, {"wav": wav, "json": json.dumps(record).encode()}) for key, wav, record in rows]
    write_shard(folder / f"{name}.tar", files)


SEGMENT = {"segment": "wav", "offset": "json.offset", "duration": "json.duration", "source_rate": "json.rate"}


def talks(name, **keys):
    return {"shards": f"{name}.tar", "order": "sequential", "shuffle": 0, "make": {"audio": SEGMENT}, **keys}


def read(spec):
    """The keys of a pass, and what was skipped by source."""
    with wdspec.loader({**spec, "epoch": "pass"}, num_workers=0) as loader:
        keys = [each["__key__"] for each in loader if each["__mask__"]]
        sources = loader.stats().sources
    return keys, {name: dict(each.skipped) for name, each in sources.items() if each.skipped}


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_wrong_recording_or_segment_is_an_error_with_its_place_or_a_counted_skip(
    kind, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_talks(tmp_path, "a", kind)
    spec = {"dataset": [{"name": "talks", **talks("a")}], "fields": ["audio"]}
    with pytest.raises(wdspec.FieldError) as caught:
        read(spec)
    place = caught.value.place
    assert RECORDINGS[kind][2] in str(caught.value)
    assert (place["source"], place["key"], place["field"]) == ("talks", "a1", "audio")
    assert place["url"].endswith("a.tar")
    spec["dataset"][0]["errors"] = {"skip": ["decode", "map"]}
    assert read(spec) == (["a0", "a2", "a3"], {"talks": {"D202": 1}})


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_wrong_companion_is_an_error_of_its_source_and_never_loses_the_sample(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_talks(tmp_path, "n", kind)
    write_shard(tmp_path / "a.tar", [(f"a{n}", {"wav": GOOD}) for n in range(9)])
    noise = talks("n")
    mix = {"add_noise": "wav", "noise": "noise.audio", "snr": "5..20"}
    source = {"name": "speech", "shards": "a.tar", "decode": "audio", "companions": {"noise": noise}}
    spec = {"dataset": [{**source, "make": {"noisy": mix}}], "fields": ["noisy"]}
    with pytest.raises(wdspec.FieldError) as caught:
        read(spec)
    place = caught.value.place
    assert RECORDINGS[kind][2] in str(caught.value)
    assert (place["source"], place["key"], place["field"]) == ("speech/noise", "n1", "audio")
    noise["errors"] = {"skip": ["decode", "map"]}
    keys, skipped = read(spec)
    assert keys == [f"a{n}" for n in range(9)]
    assert skipped == {"speech/noise": {"D202": 3}}, "three passes over its four recordings"


def test_a_companion_whose_recording_is_missing_is_an_error_of_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "a.tar", [(f"a{n}", {"wav": GOOD}) for n in range(9)])
    write_shard(tmp_path / "files.tar", [(f"n{n}", {"wav": GOOD}) for n in (0, 2)])
    lines = "".join(json.dumps({"name": f"n{n}.wav"}) + "\n" for n in range(3))
    (tmp_path / "n.jsonl").write_text(lines)
    join = {"shards": "files.tar", "on": "name"}
    noise = {"shards": "n.jsonl", "join": join, "order": "sequential", "shuffle": 0, "decode": "audio"}
    mix = {"add_noise": "wav", "noise": "noise.wav", "snr": "5..20"}
    source = {"name": "speech", "shards": "a.tar", "decode": "audio", "companions": {"noise": noise}}
    spec = {"dataset": [{**source, "make": {"noisy": mix}}], "fields": ["noisy"]}
    with pytest.raises(wdspec.ShardError, match=r"has no sample named 'n1\.wav'") as caught:
        read(spec)
    assert (caught.value.place["source"], caught.value.place["key"]) == ("speech/noise", "n/1")
    join["missing"] = "skip"
    assert read(spec)[0] == [f"a{n}" for n in range(9)]


EMPTY = {
    "a shard without samples": ({"shards": "empty.tar"}, "the shard has no members"),
    "no shards": ({"shards": "none-*.tar"}, "none-"),
    "a file that is missing": ({"shards": "gone.tar"}, "gone.tar"),
    "a selection that keeps nothing": ({"shards": "a.tar", "where": "txt == 'x'"}, "nothing in a whole pass"),
}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("is_named", [False, True])
def test_companions_of_which_there_are_none_are_an_error_of_their_source(
    kind, is_named, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "a.tar", [(f"a{n}", {"txt": b"t"}) for n in range(9)])
    write_shard(tmp_path / "empty.tar", [])
    pool, said = EMPTY[kind]
    source = {"name": "a", "shards": "a.tar", "make": {"other": {"take": "near.txt"}}}
    source["companions"] = {"near": "pool" if is_named else pool}
    spec = {"dataset": [source], "fields": ["other"]} | ({"companions": {"pool": pool}} if is_named else {})
    with pytest.raises(wdspec.WdspecError) as caught:
        read(spec)
    assert said in str(caught.value)
    assert caught.value.place["source"] == ("pool" if is_named else "a/near")


SPEC = """\
companions:
  pool: {shards: n.tar}
dataset:
  - name: web
    shards: a.tar
    companions:
      near: %s
    make: {other: {take: near.txt}}
"""
MISTAKES = {
    "web": ("E372", 7, 13, "`web` would be its own companion"),
    "{shards: n.tar, max_passes: 2}": ("E373", 7, 29, "`max_passes` has no meaning"),
    "gone": ("E372", 7, 13, "there are no companions `gone`"),
}


@pytest.mark.parametrize("value", MISTAKES)
def test_a_source_that_cannot_be_a_companion_is_an_error_at_its_line_and_column(value, tmp_path):
    (tmp_path / "s.yaml").write_text(SPEC % value)
    code, line, column, said = MISTAKES[value]
    [found] = [each for each in wdspec.validate(tmp_path / "s.yaml") if each.is_error]
    assert (found.code, found.line, found.column) == (code, line, column)
    assert said in found.message
    assert found.hint


SPLITS = """\
defaults: {make: {other: {take: near.txt}}}
splits:
  train:
    companions: {pool: {shards: n.tar}}
    dataset: [{name: web, shards: a.tar, companions: {near: pool}}]
  val:
    dataset:
      - shards: b.tar
        companions: {near: pool}
"""


def test_a_name_of_companions_in_another_split_is_an_error_at_its_line_and_column(tmp_path):
    (tmp_path / "s.yaml").write_text(SPLITS)
    [found] = [each for each in wdspec.validate(tmp_path / "s.yaml") if each.is_error]
    assert (found.code, found.line, found.column) == ("E372", 9, 28)
    assert "there are no companions `pool` in the split `val`" in found.message
