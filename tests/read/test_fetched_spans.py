"""`seconds` of `fetch`: which frames a loader gives of long videos, and how little it reads of them."""

import io
import json
import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from films import film, frames_of
from servers.objects import ObjectServer

import wdspec
from wdspec.base.errors import FieldError
from wdspec.fields.codecs.film_spans import Film
from wdspec.read.fetching import FetchedField
from wdspec.spec.language.fetching import FetchedObject
from wdspec.storage.objects import ObjectReader, Reference
from wdspec.storage.ranges import BLOCK, Index, Indexes, RangedFile, Readers, indexes
from wdspec.storage.storage import Storage

ROWS = 24


@pytest.fixture(scope="module")
def films():
    """Two videos of four seconds: one with its index at the start, one with its index at the end."""
    return {"a.mp4": film(120, movflags="faststart"), "b.mp4": film(120, first=31)}


@pytest.fixture
def server(films):
    with ObjectServer() as running:
        running.objects.update(films)
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory, films):
    home = tmp_path_factory.mktemp("films")
    for name, data in films.items():
        (home / name).write_bytes(data)
    return home


def rows_of(prefix=""):
    """A sample every 0.3 seconds of both videos."""
    names = ("a.mp4", "b.mp4")
    return [
        {"url": prefix + names[at % 2], "start": at // 2 * 0.3, "end": at // 2 * 0.3 + 0.25}
        for at in range(ROWS)
    ]


def jsonl(path, rows):
    path.write_text(
        "".join(f"{json.dumps({'__key__': f'{at:03d}', **row})}\n" for at, row in enumerate(rows))
    )
    return str(path)


def spec_of(shards, root, seconds=("start", "end"), rows=ROWS, source=None, **more):
    fetch = {"clip": {"url": "url", "root": str(root), "seconds": list(seconds)}}
    source = {
        "shards": shards,
        "name": "a",
        "fetch": fetch,
        "decode": {"clip": "video+silent"},
        **(source or {}),
    }
    return {"seed": 4, "dataset": [source], "epoch": rows, **more}


def in_order(*given, **more):
    source = {"shuffle": 0, "interleave": 1, **more.pop("source", {})}
    return spec_of(*given, source=source, **more)


def read(spec, workers=0):
    with wdspec.loader(spec, num_workers=workers) as loader:
        return [(sample["__key__"], sample["clip"]) for sample in loader]


def same(found, rows, films):
    """Whether samples have the frames that their rows name."""
    return all(
        np.array_equal(
            clip, np.stack(frames_of(films[row["url"].rpartition("/")[2]], row["start"], row["end"]))
        )
        for key, clip in found
        for row in [rows[int(key)]]
    )


def test_a_span_is_the_same_from_every_store_with_any_workers_and_after_resuming(
    tmp_path, films, folder, server
):
    rows = rows_of()
    shards = jsonl(tmp_path / "a.jsonl", rows)
    topology = {"elastic": {"ranks": 1, "workers": 2}}
    spec = spec_of(shards, folder, **topology)
    expected = read(spec)
    assert len(expected) == ROWS
    assert same(expected, rows, films)
    assert [key for key, _ in expected] != sorted(key for key, _ in expected)
    remote = spec_of(shards, f"{server.url}/ok/", **topology)
    found = read(remote, workers=2)
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert same(found, rows, films)
    with wdspec.loader(spec, num_workers=0) as loader:
        samples = iter(loader)
        for _ in range(7):
            next(samples)
        state = json.loads(json.dumps(loader.state_dict()))
    with wdspec.loader(remote, num_workers=0) as loader:
        loader.load_state_dict(state)
        rest = [(sample["__key__"], sample["clip"]) for sample in loader]
    assert [key for key, _ in rest] == [key for key, _ in expected[7:]]
    assert same(rest, rows, films)


def test_a_state_of_other_times_is_reported(tmp_path, folder):
    shards = jsonl(tmp_path / "a.jsonl", rows_of())
    with wdspec.loader(spec_of(shards, folder), num_workers=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with (
        wdspec.loader(spec_of(shards, folder, ("start", "start + 0.1")), num_workers=0) as loader,
        pytest.warns(match="fetch"),
    ):
        loader.load_state_dict(state)


def test_times_are_expressions(tmp_path, films, folder):
    shards = jsonl(tmp_path / "a.jsonl", [{"url": "a.mp4", "n": 30, "lead": 1}, {"url": "a.mp4", "n": 33}])
    spec = in_order(shards, folder, ("n / 30 - default(lead, 0) / 10", "(n + 2) / 30"), rows=2)
    found = [clip for _, clip in read(spec)]
    assert np.array_equal(found[0], np.stack(frames_of(films["a.mp4"], 0.9, 1.067)))
    assert np.array_equal(found[1], np.stack(frames_of(films["a.mp4"], 1.1, 1.167)))


@pytest.fixture(scope="module")
def long_film():
    """A video of 20 seconds and about 3 MB."""
    noise = np.random.default_rng(5).integers(0, 256, (600, 48, 64, 3), dtype=np.uint8)
    return film(600, sound=None, images=noise, movflags="faststart")


def test_only_what_a_span_needs_is_requested(tmp_path, long_film):
    with ObjectServer() as server:
        server.objects["long.mp4"] = long_film
        rows = [{"url": "ok/long.mp4", "start": start, "end": start + 0.5} for start in (12, 4)]
        found = read(in_order(jsonl(tmp_path / "a.jsonl", rows), server.url, rows=2))
        assert same(found, rows, {"long.mp4": long_film})
        ranges = [each["range"].removeprefix("bytes=").split("-") for each in server.headers]
        assert sum(int(last) - int(first) + 1 for first, last in ranges) < len(long_film) * 0.6
        assert len(ranges) <= 6


def test_an_index_is_read_once_and_only_used_for_its_object(tmp_path, films):
    with ObjectServer() as server:
        server.objects["x.mp4"] = films["a.mp4"]
        rows = [{"url": "ok/x.mp4", "start": at * 0.1, "end": at * 0.1 + 0.25} for at in range(30)]
        shards = jsonl(tmp_path / "a.jsonl", rows)
        with wdspec.loader(
            in_order(shards, server.url, rows=30, loader={"fetch_memory": 1_000_007}), num_workers=0
        ) as loader:
            samples = iter(loader)
            first = [
                (sample["__key__"], sample["clip"]) for sample, _ in zip(samples, range(12), strict=False)
            ]
            assert same(first, rows, {"x.mp4": films["a.mp4"]})
            starts = [each for each in server.headers if each["range"] == "bytes=0-262143"]
            assert len(starts) <= 4  # those that were requested together
            server.objects["x.mp4"] = films["b.mp4"]
            rest = [(sample["__key__"], sample["clip"]) for sample in samples]
        assert same(rest[-3:], rows, {"x.mp4": films["b.mp4"]})


def test_an_old_index_is_no_reason_for_an_error(films):
    """The object is longer now than its index says, which has all of the bytes that it had before."""
    with ObjectServer() as server:
        server.objects["x.mp4"] = film(30)
        rows = [{"url": "ok/x.mp4", "start": at * 0.1, "end": at * 0.1 + 0.25} for at in (0, 3, 20, 30)]
        entry = FetchedObject(url="url", root=f"{server.url}/", seconds=("start", "end"))
        reader = ObjectReader.of(Storage(), entry, "clip")
        reading = SimpleNamespace(reserve=lambda size: None, note_open=lambda stream: None)

        def read_row(row):
            reference = Reference(f"{server.url}/{row['url']}", seconds=(row["start"], row["end"]))
            return frames_of(reader.read(reference, 1_000_000, 0, reading))

        for row in rows[:2]:
            assert np.array_equal(read_row(row), frames_of(server.objects["x.mp4"], row["start"], row["end"]))
        server.objects["x.mp4"] = films["b.mp4"]
        for row in rows[2:]:
            assert np.array_equal(read_row(row), frames_of(films["b.mp4"], row["start"], row["end"]))


def read_part(reader, url, start, stop):
    """The frames that a reader of objects returns for a span."""
    reading = SimpleNamespace(reserve=lambda size: None, note_open=lambda stream: None)
    return frames_of(reader.read(Reference(url, seconds=(start, stop)), 10_000_000, 0, reading))


def reader_in(root):
    return ObjectReader.of(
        Storage(), FetchedObject(url="url", root=f"{root}/", seconds=("start", "end")), "clip"
    )


@pytest.mark.parametrize("where", ["here", "server"])
@pytest.mark.parametrize(
    "options",
    [
        {"sound": None},
        {"sound": None, "movflags": "frag_keyframe+empty_moov"},
        {"sound": None, "container": "matroska"},
        {},
    ],
    ids=["mp4", "fragments", "matroska", "sound"],
)
def test_parts_are_the_same_in_any_order(tmp_path, monkeypatch, where, options):
    """A video stays open between its parts, if it then is as it was before the first one."""
    data, opened = film(120, **options), []
    open_film = Film._open
    monkeypatch.setattr(Film, "_open", lambda self: opened.append(1) or open_film(self))
    spans = [(start / 10, start / 10 + length) for start in range(2, 36, 4) for length in (0.1, 0.4)]
    random.Random(3).shuffle(spans)
    with ObjectServer() as server:
        server.objects["x.mp4"] = data
        (tmp_path / "x.mp4").write_bytes(data)
        root = tmp_path if where == "here" else f"{server.url}/ok"
        reader = reader_in(root)
        for start, stop in spans:
            found = read_part(reader, f"{root}/x.mp4", start, stop)
            assert np.array_equal(found, frames_of(data, start, stop))
    is_kept = options.get("sound", "") is None and options.get("container") is None
    assert (len(opened) == 1) == is_kept


def test_threads_share_no_open_video(tmp_path):
    data = film(120, sound=None)
    (tmp_path / "x.mp4").write_bytes(data)
    reader = reader_in(tmp_path)
    spans = [(start / 10, start / 10 + 0.2) for start in range(1, 37)]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda span: read_part(reader, f"{tmp_path}/x.mp4", *span), spans))
    assert all(np.array_equal(each, frames_of(data, *span)) for each, span in zip(found, spans, strict=True))


def test_a_local_video_that_was_replaced_is_opened_again(tmp_path):
    path = tmp_path / "x.mp4"
    reader = reader_in(tmp_path)
    for first, frames in ((0, 30), (31, 120), (7, 60)):
        data = film(frames, sound=None, first=first)
        (tmp_path / "new").write_bytes(data)
        (tmp_path / "new").replace(path)
        for start in (0.5, 0.3):
            assert np.array_equal(
                read_part(reader, str(path), start, start + 0.2), frames_of(data, start, start + 0.2)
            )


def test_the_videos_that_were_used_last_stay_open():
    closed = []
    readers = Readers(2)
    file = RangedFile(io.BytesIO(), lambda size: None)
    for name in "abc":
        readers.put(name, file, SimpleNamespace(close=lambda name=name: closed.append(name)))
    assert closed == ["a"]
    assert readers.take("a") is None
    assert readers.take("b") is not None
    assert readers.take("b") is None


def test_indexes_are_forgotten_within_a_budget():
    kept = Indexes(3 * BLOCK)
    for name in "abc":
        kept.put(name, Index(9, name, {0: bytes(BLOCK)}))
    kept.get("a")
    kept.put("d", Index(9, "d", {0: bytes(BLOCK)}))
    assert [name for name in "abcd" if kept.get(name) is not None] == ["a", "c", "d"]
    kept.put("e", Index(9, "e", {at: bytes(BLOCK) for at in range(4)}))
    assert kept.get("e") is None


@pytest.mark.parametrize("name", ["a.mp4", "b.mp4"])
@pytest.mark.parametrize("how", ["whole", "bare", "cached", "once-503", "here"])
def test_a_server_without_ranges_a_cache_and_failures_that_pass_change_nothing(
    tmp_path, films, server, how, name
):
    more = {"cache": str(tmp_path / "cache")} if how == "cached" else {}
    row = {"url": f"{'ok' if how == 'cached' else how}/{name}", "start": 2, "end": 2.5}
    spec = in_order(jsonl(tmp_path / "a.jsonl", [row]), server.url, rows=1, **more)
    for _ in range(2):
        assert same(read(spec), [row], films)


BROKEN = {
    "status-403": "D263",
    "status-500": "D263",
    "short": "D263",
    "page": "D264",
    "endless": "D263",
    "slow": "D263",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_answer_is_a_counted_skip(tmp_path, films, server, kind):
    right = {"url": "ok/a.mp4", "start": 1, "end": 1.5}
    rows = [
        right,
        {**right, "url": f"{kind}/a.mp4"},
        {**right, "url": "status-404/a.mp4"},
        {**right, "start": 1.2},
    ]
    spec = in_order(
        jsonl(tmp_path / "a.jsonl", rows),
        server.url,
        rows=2,
        errors={"skip": True, "retry": "200ms", "timeout": "1s" if kind == "slow" else "20s"},
        loader={"fetch_memory": "1MB"},
        source={"missing": "skip"},
    )
    with wdspec.loader(spec, num_workers=0) as loader:
        found = [(sample["__key__"], sample["clip"]) for sample in loader]
        stats = loader.stats().sources["a"]
    assert [key for key, _ in found] == ["000", "003"]
    assert same(found, rows, films)
    assert stats.skipped == {BROKEN[kind]: 1}
    assert stats.dropped == {"missing": 1}


def test_an_object_that_changes_while_it_is_read_is_an_error(tmp_path, long_film):
    class Changing(ObjectServer):
        def _bytes_of(self, name):
            data, tag = super()._bytes_of(name)
            return (data, tag) if sum(self.requests.values()) < 2 else (data, {"ETag": '"other"'})

    with Changing() as server:
        server.objects["long.mp4"] = long_film
        rows = [{"url": "ok/long.mp4", "start": 12, "end": 13}]
        spec = in_order(jsonl(tmp_path / "a.jsonl", rows), server.url, rows=1, errors={"retry": "100ms"})
        with pytest.raises(FieldError, match="changed while it was read") as caught:
            read(spec)
        assert caught.value.code == "D263"


def test_a_request_that_fails_shortens_no_sound():
    """Sound may end before the video does, but not as its bytes did not arrive."""
    noise = np.random.default_rng(5).integers(0, 256, (240, 48, 64, 3), dtype=np.uint8)

    class Failing(ObjectServer):
        failing = 0

        def _ok(self, handler, kind, name, number):
            if self.failing and number >= self.failing:
                return self._status(handler, "status-403", name, number)
            return super()._ok(handler, kind, name, number)

    with Failing() as server:
        server.objects["x.mp4"] = film(240, images=noise, sound="pcm_s16le", container="mov")
        entry = FetchedObject(url="url", root=f"{server.url}/", seconds=("start", "end"))
        reading = SimpleNamespace(reserve=lambda size: None, note_open=lambda stream: None)
        outcomes = set()
        for start in (1, 3.5, 6, 7):
            reference = Reference(f"{server.url}/ok/x.mp4", seconds=(start, start + 0.9))
            expected = None
            for failing in (0, *range(1, 8)):
                server.failing = failing
                server.requests.clear()
                indexes.value.drop((reader := ObjectReader.of(Storage(), entry, "clip"), reference.url))
                try:
                    found = reader.read(reference, 10_000_000, 0, reading)
                except FieldError as error:
                    outcomes.add(error.code)
                    continue
                expected = found if expected is None else expected
                assert found == expected, (start, failing)
                outcomes.add("right")
        assert outcomes == {"right", "D263"}


WRONG = [
    ({"end": None}, "`end` of `seconds` is null"),
    ({"end": "4"}, "not two numbers"),
    ({"start": 3}, "no time span"),
    ({"start": -1}, "no time span"),
    ({"start": 9, "end": 10}, "ends at 4"),
    ({"start": 1.01, "end": 1.02}, "no frame"),
    ({"start": 1.7e15, "end": 1.7e15 + 1}, "a.mp4` has no such part"),
    ({"start": 1e300, "end": 2e300}, "a.mp4` has no such part"),
    ({"end": 10**400}, "`seconds`: OverflowError: int too large"),
]


@pytest.mark.parametrize(("row", "text"), WRONG)
def test_times_that_name_no_part_are_errors(tmp_path, folder, row, text):
    rows = [{"url": "a.mp4", "start": 1, "end": 1.5, **row}]
    with pytest.raises(FieldError, match=text) as caught:
        read(in_order(jsonl(tmp_path / "a.jsonl", rows), folder, rows=1))
    assert caught.value.code == "D264"
    assert caught.value.place["key"] == "000"
    assert caught.value.place["field"] == "clip"
    skipping = in_order(
        jsonl(tmp_path / "b.jsonl", [*rows, {"url": "a.mp4", "start": 1, "end": 1.5}]),
        folder,
        rows=1,
        errors={"skip": True},
    )
    with wdspec.loader(skipping, num_workers=0) as loader:
        assert [sample["__key__"] for sample in loader] == ["001"]
        assert loader.stats().sources["a"].skipped == {"D264": 1}


def test_an_array_is_a_list_and_no_part_of_a_reference():
    """Nor is it the end of a range."""
    for given, values, code in [
        ({"url": "videos/{n:06d}.mp4"}, [np.arange(2)], "D261"),
        ({"url": "url", "bytes": ["n", "m"]}, ["a", np.arange(2), 9], "D264"),
    ]:
        span = given.pop("bytes", None)
        entry = FetchedObject(
            **given, root="https://a.org/", **({} if span is None else {"span": tuple(span)})
        )
        field = FetchedField("clip", entry, ObjectReader.of(Storage(), entry, "clip"), "error")
        nested, single = (
            [new if isinstance(each, np.ndarray) else each for each in values]
            for new in (np.zeros((2, 2), int), np.int64(7))
        )
        with pytest.raises(FieldError, match="fetch: clip`, item 0") as caught:
            field.references_of(nested)
        assert caught.value.code == code
        assert len(field.references_of(values)) == 2
        assert isinstance(field.references_of(single), Reference)


def test_a_part_larger_than_the_budget_is_an_error(tmp_path, long_film):
    (tmp_path / "long.mp4").write_bytes(long_film)
    with ObjectServer() as server:
        server.objects["long.mp4"] = long_film
        rows = [{"url": "ok/long.mp4", "start": 0, "end": 19}]
        spec = in_order(jsonl(tmp_path / "a.jsonl", rows), server.url, rows=1, loader={"fetch_memory": "1MB"})
        with pytest.raises(FieldError, match="fetch_memory") as caught:
            read(spec)
        assert caught.value.code == "D263"


@pytest.mark.parametrize("how", ["ok", "whole"])
@pytest.mark.parametrize("format", ["FLAC", "MP3"])
def test_decoded_sound_counts_as_memory(format, how):
    target, reserved = io.BytesIO(), []
    soundfile.write(target, np.zeros(48_000 * 60, np.float32), 48_000, format=format)
    with ObjectServer() as server:
        server.objects["x"] = target.getvalue()
        entry = FetchedObject(url="url", root=f"{server.url}/", seconds=("start", "end"))
        reading = SimpleNamespace(reserve=reserved.append, note_open=lambda stream: None)
        reference = Reference(f"{server.url}/{how}/x", seconds=(1, 51))
        ObjectReader.of(Storage(), entry, "clip").read(reference, 10_000_000, 0, reading)
    assert max(reserved) >= 50 * 48_000 * 2 + len(target.getvalue()) // 4


def test_a_part_has_at_most_the_bytes_of_the_budget():
    """Also with its header, and for objects that are smaller than the part."""
    target = io.BytesIO()
    soundfile.write(target, np.zeros(48_000 * 4, np.float32), 48_000, "PCM_16", format="WAV")
    mp3 = io.BytesIO()
    soundfile.write(mp3, np.zeros(48_000 * 4, np.float32), 48_000, format="MP3")
    with ObjectServer() as server:
        server.objects |= {"x.wav": target.getvalue(), "x.mp3": mp3.getvalue()}
        entry = FetchedObject(url="url", root=f"{server.url}/", seconds=("start", "end"))
        reader = ObjectReader.of(Storage(), entry, "clip")
        reading = SimpleNamespace(reserve=lambda size: None, note_open=lambda stream: None)
        for name, size in (("x.wav", 384_000), ("x.mp3", 600_000)):
            reference = Reference(f"{server.url}/ok/{name}", seconds=(0, 4))
            with pytest.raises(FieldError, match="fetch_memory") as caught:
                reader.read(reference, size + 20, 0, reading)
            assert caught.value.code == "D263"
        data = reader.read(Reference(f"{server.url}/ok/x.wav", seconds=(0, 3)), 393_216, 0, reading)
        with pytest.raises(FieldError, match="fetch_memory") as caught:
            reader.read(
                Reference(f"{server.url}/whole/x.mp3", seconds=(0, 3)), 3 * 48_000 * 4 + 10, 0, reading
            )
        assert caught.value.code == "D263"
        assert len(data) <= 393_216


def test_speech_is_cut_from_long_recordings(tmp_path, server):
    wave = np.random.default_rng(1).normal(0, 0.1, 16_000 * 60).astype(np.float32)
    target = io.BytesIO()
    soundfile.write(target, wave, 16_000, "PCM_16", format="WAV")
    server.objects["talk.wav"] = target.getvalue()
    rows = [{"url": "ok/talk.wav", "offset": at * 7.3, "duration": 0.4} for at in range(6)]
    fetch = {"speech": {"url": "url", "root": server.url, "seconds": ["offset", "offset + duration"]}}
    source = {"shards": jsonl(tmp_path / "a.jsonl", rows), "shuffle": 0, "interleave": 1, "fetch": fetch}
    source["decode"] = {"speech": "audio"}
    with wdspec.loader({"dataset": [source], "epoch": 6}, num_workers=0) as loader:
        found = [sample["speech"] for sample in loader]
    whole, _ = soundfile.read(io.BytesIO(target.getvalue()), dtype="float32")
    for row, audio in zip(rows, found, strict=True):
        first = int(np.floor(row["offset"] * 16_000 + 0.5))
        assert np.array_equal(audio.samples[0], whole[first : first + 6400])
    asked = [each["range"].removeprefix("bytes=").split("-") for each in server.headers]
    assert sum(int(last) - int(first) + 1 for first, last in asked) < 2 * len(target.getvalue())
