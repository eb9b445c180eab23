"""`segment`: parts of recordings are those that soundfile reads, and cost what their records say."""

import json
import math
import warnings

import numpy as np
import pytest
import soundfile
from shardmaking import write_shard
from speechdata import encode, plain_audio, voice

import wdspec
from wdspec.steps import make_segment

RATE = 16000


@pytest.mark.parametrize("kind", ["wav", "flac", "aiff", "mp3", "ogg", "opus"])
@pytest.mark.parametrize(
    ("offset", "duration"), [(0.25, 0.5), (0, 0.1), (1.2, None), (None, 0.3), (0.33337, 0.21)]
)
def test_a_segment_is_that_part_of_the_recording(kind, offset, duration):
    data = encode(voice(1, RATE, 2, 1.5), RATE, kind)
    first = math.floor((offset or 0) * RATE + 0.5)
    stop = None if duration is None else first + math.floor(duration * RATE + 0.5)
    for decoder, rate in (("audio+mono", RATE), ("audio+mono+rate=8000", 8000)):
        audio = make_segment(decode=decoder)(data, offset=offset, duration=duration)
        expected = plain_audio(data, rate, first, stop)
        assert (audio.rate, audio.samples.shape) == (rate, (1, len(expected)))
        assert np.allclose(audio.samples[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_what_lies_before_and_after_a_segment_is_not_decoded(kind, monkeypatch):
    data = encode(voice(2, RATE, 1, 3.0), RATE, kind)
    read = []
    plain = soundfile.SoundFile.read

    def note(file, frames=-1, **options):
        read.append((file.tell(), frames))
        return plain(file, frames, **options)

    monkeypatch.setattr(soundfile.SoundFile, "read", note)
    make_segment()(data, offset=1.5, duration=0.25)
    assert read == [(24000, 4000)]


WRONG = [
    ((-0.1, 1), "`offset: json.offset` must be 0 or more"),
    (
        (5.0, 0.1),
        "the segment starts at 5.000 s, and the recording ends at 1.000 s; correct `offset: json.offset`",
    ),
    ((1.0, None), "the segment starts at 1.000 s"),
    ((0.5, 0), "`duration: json.duration` must be above 0"),
    ((0.5, -1), "`duration: json.duration` must be above 0"),
    (
        (0.5, 0.6),
        "the segment ends at 1.100 s, and the recording at 1.000 s; correct `duration: json.duration`",
    ),
    (("half", 1), "must be a number of seconds, and this is 'half'"),
    ((True, 1), "must be a number of seconds"),
    ((math.nan, 1), "must be a number of seconds"),
    ((0, math.inf), "must be a number of seconds"),
]


@pytest.mark.parametrize(("times", "said"), WRONG)
@pytest.mark.parametrize("kind", ["wav", "mp3"])
def test_a_segment_that_the_recording_does_not_have_is_an_error(kind, times, said):
    data = encode(voice(3, RATE, 1, 1.0), RATE, kind)
    segment = make_segment(offset="json.offset", duration="json.duration")
    with pytest.raises(wdspec.FieldError) as caught:
        segment(data, None, *times)
    assert said in str(caught.value)


def test_a_segment_may_exceed_the_recording_by_what_durations_are_rounded_by():
    data = encode(voice(3, RATE, 1, 1.0), RATE)
    assert make_segment()(data, offset=0.5, duration=0.52).samples.shape == (1, 8000)


def test_the_rate_of_the_manifest_is_checked():
    data = encode(voice(3, 8000, 1, 1.0), 8000)
    segment = make_segment(source_rate="sampling_rate")
    assert segment(data, source_rate=8000).rate == 8000
    with pytest.raises(wdspec.FieldError, match="has 8,000 Hz, and `source_rate: sampling_rate` says 16000"):
        segment(data, source_rate=16000)


def talks(folder, segments, seconds=2.0, **source):
    """A tar with a recording and a record for each segment, and the spec that reads them."""
    data = encode(voice(5, RATE, 1, seconds), RATE, "flac")
    rows = [(f"{n:03}", {"flac": data, "json": json.dumps(each).encode()}) for n, each in enumerate(segments)]
    write_shard(folder / "a.tar", rows)
    return data, {
        "dataset": [
            {
                "name": "talks",
                "shards": str(folder / "a.tar"),
                "order": "sequential",
                "shuffle": 0,
                "make": {"audio": {"segment": "flac", "offset": "json.offset", "duration": "json.duration"}},
                **source,
            }
        ],
        "fields": ["audio"],
    }


def test_segments_are_batched_by_their_own_seconds_which_need_no_file(tmp_path, monkeypatch):
    segments = [{"offset": 0.1 * n, "duration": 0.2 + 0.1 * (n % 4)} for n in range(12)]
    data, spec = talks(tmp_path, segments)
    spec |= {
        "batch": {
            "cost": "audio.seconds",
            "max_cost": 1.01,
            "window": 12,
            "collate": {"audio": {"pad": {"axis": -1}}},
        },
        "epoch": "pass",
    }
    seen = {}
    with wdspec.loader(spec, num_workers=0) as loader:
        for batch in loader:
            (samples, _, lengths), _ = batch["audio"]
            longest = max(int(each) for each in lengths)
            assert longest * sum(batch["__mask__"].tolist()) <= 1.01 * RATE
            for row, key in enumerate(batch["__key__"]):
                if batch["__mask__"][row]:
                    seen[int(key)] = samples[row, 0, : int(lengths[row])]
    assert sorted(seen) == list(range(12))
    for number, each in enumerate(segments):
        first = math.floor(each["offset"] * RATE + 0.5)
        stop = first + math.floor(each["duration"] * RATE + 0.5)
        assert np.array_equal(seen[number].numpy(), plain_audio(data, RATE, first, stop))


def test_a_selection_by_seconds_opens_no_recording_whose_record_has_a_duration(tmp_path, monkeypatch):
    segments = [{"offset": 0.0, "duration": 0.1 * n} for n in range(1, 9)]
    _, spec = talks(tmp_path, segments, where="audio.seconds <= 0.35")
    opened = []
    monkeypatch.setattr("wdspec.fields.codecs.segments.read_seconds", opened.append)
    spec["epoch"] = "pass"
    with wdspec.loader(spec, num_workers=0) as loader:
        assert [each["audio"].samples.shape[1] for each in loader if each["__mask__"]] == [1600, 3200, 4800]
    assert not opened


def test_without_a_duration_the_rest_of_the_recording_counts(tmp_path):
    _, spec = talks(tmp_path, [{"offset": 1.9}, {"offset": 0.5}, {}], where="audio.seconds > 0.2")
    spec["epoch"] = "pass"
    with wdspec.loader(spec, num_workers=0) as loader:
        assert [each["audio"].samples.shape[1] for each in loader if each["__mask__"]] == [24000, 32000]


def test_errors_have_their_place_and_can_be_skipped(tmp_path):
    segments = [
        {"offset": 0.5, "duration": 0.5},
        {"offset": 1.8, "duration": 0.5},
        {"offset": 9, "duration": 0.1},
    ]
    _, spec = talks(tmp_path, segments)
    spec["epoch"] = "pass"
    with wdspec.loader(spec, num_workers=0) as loader, pytest.raises(wdspec.FieldError) as caught:
        list(loader)
    place = caught.value.place
    assert (place["source"], place["key"], place["field"]) == ("talks", "001", "audio")
    spec["dataset"][0]["errors"] = "skip"
    with wdspec.loader(spec, num_workers=0) as loader:
        assert len([sample for sample in loader if sample["__mask__"]]) == 1


def test_a_path_that_no_record_has_is_noticed(tmp_path):
    _, spec = talks(tmp_path, [{"duration": 0.05}] * 25)
    spec["dataset"][0]["make"]["audio"]["offset"] = "json.ofset"
    with warnings.catch_warnings(record=True) as found, wdspec.loader(spec, num_workers=0) as loader:
        warnings.simplefilter("always")
        for _ in zip(range(120), loader, strict=False):
            pass
    said = "`make: audio` finds no `json.ofset` in any of the first samples, so segments start at 0 s"
    assert [said in str(each.message) for each in found] == [True]


def load_made(make, **source):
    return wdspec.load({"dataset": [{"shards": "a.tar", "make": {"audio": make}, **source}]})


@pytest.mark.parametrize(
    ("make", "source", "said"),
    [
        ({"segment": "flac", "decode": "rgb8"}, {}, "is no decoder of audio"),
        ({"segment": "flac", "decode": "audio+rate=fast"}, {}, "is not a sample rate"),
        ({"segment": "flac", "rate": 16000}, {}, "write `decode: audio+rate=16000`"),
        ({"segment": "flac", "start": "json.start"}, {}, "write `offset: json.start`"),
        ({"segment": "flac", "end": "json.end"}, {}, "write `duration: json.duration`"),
        ({"segment": "flac", "offset": 1.5}, {}, "write a field"),
        ({"segment": "flac"}, {"decode": "audio"}, "decodes `flac` before `segment` reads a part of it"),
        (
            {"segment": "flac"},
            {"decode": {"flac": "audio+mono"}},
            "write it into `segment`: `decode: audio+mono`",
        ),
    ],
)
def test_a_wrong_segment_says_what_to_write(make, source, said):
    with pytest.raises(wdspec.SpecError) as caught:
        load_made(make, extensions="flac json", **source)
    assert said in str(caught.value)


def test_recordings_in_a_column_of_parquet_have_segments_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    files = [encode(voice(n, RATE, 1, 1.0), RATE, "flac") for n in range(4)]
    offsets, durations = [0.0, 0.1, None, 0.5], [0.3, None, 0.2, 0.25]
    columns = {
        "audio": [{"bytes": each, "path": None} for each in files],
        "offset": offsets,
        "duration": durations,
    }
    parquet.write_table(pyarrow.table({**columns, "flac": files}), tmp_path / "a.parquet")
    for origin in ("flac", "audio"):
        make = {"speech": {"segment": origin, "offset": "offset", "duration": "duration"}}
        source = {
            "name": "a",
            "shards": str(tmp_path / "a.parquet"),
            "order": "sequential",
            "shuffle": 0,
            "make": make,
        }
        spec = {"dataset": [source], "fields": ["speech"], "epoch": "pass"}
        with wdspec.loader(spec, num_workers=0) as loader:
            found = [each["speech"].samples[0] for each in loader if each["__mask__"]]
        for data, offset, duration, segment in zip(files, offsets, durations, found, strict=True):
            first = math.floor((offset or 0) * RATE + 0.5)
            stop = None if duration is None else first + math.floor(duration * RATE + 0.5)
            assert np.array_equal(segment, plain_audio(data, RATE, first, stop))


def test_a_drawn_speed_does_not_change_the_seconds_that_a_pass_counts(tmp_path):
    make = {"segment": "flac", "offset": "json.offset", "duration": "json.duration"}
    drawn = make | {"decode": "audio+speed=0.9..1.1"}
    segments = [{"offset": 0.0, "duration": 0.1 * n} for n in range(1, 9)]
    _, spec = talks(tmp_path, segments, make={"audio": drawn}, where="audio.seconds <= 0.35", repeat=2)
    spec |= {"epoch": "pass", "batch": {"size": 6, "collate": {"audio": "list"}}}
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = list(loader)
    kept = [zip(batch["audio"], batch["__mask__"], strict=True) for batch in batches]
    lengths = [audio.samples.shape[1] for batch in kept for audio, is_kept in batch if is_kept]
    assert len(lengths) == len(set(lengths)) == 6, "another speed for each copy"
