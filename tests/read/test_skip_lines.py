"""The lines that a skip logs: what is wrong, once, without the innards of a library or of wdspec."""

import io
import logging
import re
import wave

import numpy as np
import pytest
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import FieldError

DECODERS = {
    "wav": "audio",
    "npy": "npy",
    "npz": "npz",
    "jpg": "rgb8",
    "pth": "pth",
    "mp4": "video",
    "json": "json",
}


def write_sound(samples):
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(np.zeros(samples, "<i2").tobytes())
    return file.getvalue()


@pytest.mark.parametrize("field", DECODERS)
@pytest.mark.parametrize(
    "data", [b"no such file " * 20, b"\x89PNG\r\n\x1a\n" + b"j" * 80, b"RIFF\x10\0\0\0WAVEfmt j" * 9]
)
def test_a_file_that_cannot_be_decoded_is_no_object_at_an_address(tmp_path, field, data):
    write_shard(tmp_path / "a.tar", [("k", {field: data})])
    source = {"name": "a", "shards": str(tmp_path / "a.tar"), "decode": {field: DECODERS[field]}}
    with pytest.raises(FieldError) as caught:
        next(iter(wdspec.compile({"dataset": [source], "allow": ["pickle"], "batch": 1})))
    assert "cannot decode as" in str(caught.value)
    assert not re.search(r"0x[0-9a-f]{6}| object |_Seekable|BytesIO", str(caught.value))


def test_a_segment_of_a_damaged_recording_says_what_the_decoder_would(tmp_path):
    write_shard(tmp_path / "a.tar", [("k", {"wav": b"junk" * 40, "json": b'{"at": 0, "seconds": 1}'})])
    make = {"part": {"segment": "wav", "offset": "json.at", "duration": "json.seconds", "decode": "audio"}}
    spec = {"dataset": [{"name": "a", "shards": str(tmp_path / "a.tar"), "make": make}], "batch": 1}
    with pytest.raises(FieldError) as caught:
        next(iter(wdspec.compile(spec)))
    assert "cannot decode as audio: LibsndfileError: Error opening the file: Format not recognised" in str(
        caught.value
    )


def test_a_sample_that_is_skipped_in_each_pass_is_described_once(tmp_path, caplog):
    samples = [(f"k{n}", {"wav": b"junk" * 20 if n in (2, 5) else write_sound(100)}) for n in range(8)]
    write_shard(tmp_path / "a.tar", samples)
    source = {
        "name": "a",
        "shards": str(tmp_path / "a.tar"),
        "decode": {"wav": "audio"},
        "errors": {"max_count": 99},
    }
    spec = {"dataset": [source], "batch": 4, "epoch": {"batches": 12}, "fields": ["wav"]}
    with caplog.at_level(logging.WARNING, "wdspec"), wdspec.loader(spec, num_workers=0) as loader:
        assert len([*loader]) == 12
        skipped = loader.stats().sources["a"].skipped["D202"]
    lines = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert skipped >= 14
    assert [int(re.search(r"no\. (\d+)", line)[1]) for line in lines] == [1, 2, 3, 4, 8][: len(lines)]
    assert [("cannot decode" in line, ": again [" in line) for line in lines] == [(True, False)] * 2 + [
        (False, True)
    ] * (len(lines) - 2)
    assert all("key k2" in line or "key k5" in line for line in lines)
    assert len(set(lines)) == len(lines) >= 5
