"""Lists of objects that samples name (docs/references.md): what becomes of each item, on any topology."""

import hashlib
import io
import json
import random
import signal
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fetchedrows import jsonl, read
from PIL import Image
from servers.objects import ObjectServer, data_of
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import FieldError

ROWS = 48


def counts():
    """How many objects each row names: none, one or several."""
    rng = random.Random(7)
    return [rng.choice((0, 1, 1, 2, 3, 7)) for _ in range(ROWS)]


COUNTS = counts()
NAMES = [[f"{row}-{at}.bin" for at in range(count)] for row, count in enumerate(COUNTS)]


def objects_of(key):
    """What a sample has in plain Python."""
    return [data_of(name) for name in NAMES[int(key)]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows in Parquet and in JSON lines, and a directory with the objects that they name."""
    home = tmp_path_factory.mktemp("lists")
    (home / "objects").mkdir()
    for name in {each for names in NAMES for each in names}:
        (home / "objects" / name).write_bytes(data_of(name))
    for part, rows in enumerate((range(ROWS // 2), range(ROWS // 2, ROWS))):
        keys, urls = [f"{row:03d}" for row in rows], [NAMES[row] for row in rows]
        table = pa.table({"__key__": keys, "urls": pa.array(urls, pa.list_(pa.string()))})
        pq.write_table(table, home / f"a-{part}.parquet", row_group_size=8)
        lines = ({"__key__": key, "json": {"urls": url}} for key, url in zip(keys, urls, strict=True))
        (home / f"a-{part}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return home


def spec_of(folder, ending="parquet", root="objects", **more):
    url = "urls" if ending == "parquet" else "json.urls"
    fetch = {"files": {"url": url, "root": root if "://" in root else f"{folder}/{root}"}}
    source = {"name": "a", "shards": f"{folder}/a-{{0..1}}.{ending}", "fetch": fetch}
    spec = {"seed": 3, "batch": 4, "epoch": {"batches": 20}, "elastic": {"ranks": 1, "workers": 2}, **more}
    return (
        {**spec, "dataset": [source | spec.pop("source", {})]}
        if "source" in spec
        else {**spec, "dataset": [source]}
    )


def rows_of(spec, workers=0, state=None, most=None):
    """(keys, objects) of each batch, and the state after `most` batches."""
    found = []
    with wdspec.loader(
        {key: value for key, value in spec.items() if key != "source"}, num_workers=workers
    ) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for each in loader:
            found.append((list(each["__key__"]), list(each["files"])))
            if len(found) == most:
                break
        return found, json.loads(json.dumps(loader.state_dict()))


KINDS = {
    "shuffled": {},
    "in order": {"source": {"shuffle": 0}},
    "selected": {"source": {"where": "json.urls.length > 1"}},
    "a pass": {"epoch": "pass"},
    "a shuffled pass": {"epoch": {"pass": "drop", "reshuffle": True}},
    "a cost": {"batch": {"cost": "json.urls.length + 1", "max_cost": 16, "window": 16}},
    "groups": {"batch": {"group_by": "json.urls.length > 1", "size": 4, "window": 16}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_is_fetched_item_by_item_in_the_order_of_the_same_spec_without_it(folder, kind):
    spec = spec_of(folder, "jsonl", **KINDS[kind])
    [source] = spec["dataset"]
    plain = {**spec, "dataset": [{key: value for key, value in source.items() if key != "fetch"}]}
    plain.pop("source", None)
    with wdspec.loader(plain, num_workers=0) as loader:
        expected = [(list(each["__key__"]), [objects_of(key) for key in each["__key__"]]) for each in loader]
    found, _ = rows_of(spec)
    assert found == expected
    assert {len(each) for _, lists in expected for each in lists} >= {2, 3, 7}


@pytest.mark.parametrize(("ending", "workers"), [("parquet", 0), ("parquet", 2), ("jsonl", 2)])
def test_a_resumed_run_gives_the_same_lists_over_http_with_any_number_of_workers(folder, ending, workers):
    with ObjectServer(delay=0.005) as server:
        root = f"{server.url}/ok/"
        spec = spec_of(folder, ending, root)
        expected, _ = rows_of(spec)
        assert [lists for _, lists in expected] == [[objects_of(key) for key in keys] for keys, _ in expected]
        first, state = rows_of(spec, 2 - workers, most=7)
        rest, _ = rows_of(spec, workers, state)
        assert first + rest == expected


RUN = """
import json, os, signal, sys
import wdspec
spec, at = json.loads(sys.argv[1]), int(sys.argv[2])
with wdspec.loader(spec, num_workers=2) as loader:
    for number, batch in enumerate(loader):
        print(json.dumps([list(batch["__key__"]), [[each.hex() for each in files] for files in batch["files"]]]))
        if number + 1 == at:
            print(json.dumps(loader.state_dict()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_was_killed_resumes_with_the_next_lists(folder):
    spec = spec_of(folder)
    expected, _ = rows_of(spec)
    done = subprocess.run([sys.executable, "-c", RUN, json.dumps(spec), "6"], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    *lines, state = map(json.loads, done.stdout.splitlines())
    first = [(keys, [[bytes.fromhex(each) for each in files] for files in lists]) for keys, lists in lines]
    rest, _ = rows_of(spec, state=state)
    assert first + rest == expected


@pytest.fixture
def server():
    with ObjectServer() as running:
        yield running


LACKING = [None, "", " ", "status-404/x"]


@pytest.mark.parametrize("lacking", LACKING)
def test_missing_decides_about_each_item(server, tmp_path, lacking):
    rows = [{"url": ["ok/0"]}, {"url": ["ok/1", lacking, "ok/2"]}, {"url": []}, {"url": ["ok/3"]}]
    shard, entry = jsonl(tmp_path / "a.jsonl", rows), {"url": "url", "root": server.url}
    kept, last = [data_of("0")], [data_of("3")]
    found, stats = read(shard, entry | {"missing": "skip"}, 3)
    assert found == [kept, [], last]
    assert stats.dropped == {"missing": 1}
    found, _ = read(shard, entry | {"missing": "none"}, 4)
    assert found == [kept, [data_of("1"), None, data_of("2")], [], last]
    with pytest.raises(FieldError, match=r"`fetch: bin`, item 1: .*missing: skip") as caught:
        read(shard, entry, 4)
    assert caught.value.code == "D262"
    assert (caught.value.place["key"], caught.value.place["field"]) == ("1", "bin")
    found, stats = read(shard, entry, 3, errors="skip")
    assert found == [kept, [], last]
    assert stats.skipped == {"D262": 1}


def test_a_null_in_place_of_a_list_is_a_sample_without_objects(server, tmp_path):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": None}, {"url": ["ok/0"]}, {}])
    entry = {"url": "url", "root": server.url}
    assert read(shard, entry | {"missing": "none"}, 3)[0] == [None, [data_of("0")], None]
    assert read(shard, entry | {"missing": "skip"}, 1)[0] == [[data_of("0")]]


def test_a_row_without_references_says_how_to_keep_it_and_guesses_no_field_without_any(server, tmp_path):
    rows = [{"id": "a", "images": ["ok/0"]}, {"id": "b", "messages": [{"content": "hi"}]}]
    entry = {"url": "images", "root": server.url}
    for shown in (rows, rows[1:]):
        with pytest.raises(FieldError, match="or the sample lacks it; set `missing: skip`") as caught:
            read(jsonl(tmp_path / "a.jsonl", shown), entry, 2)
        assert "write an empty list in the data" in caught.value.message
        assert "did you mean" not in caught.value.message
    rows[1]["images"] = []
    assert read(jsonl(tmp_path / "a.jsonl", rows), entry, 2)[0] == [[data_of("0")], []]
    rows[1] = {"imagse": ["ok/1"]}
    with pytest.raises(FieldError, match="did you mean `imagse`"):
        read(jsonl(tmp_path / "a.jsonl", rows[1:]), entry)


@pytest.mark.parametrize(
    "wrong", [3, 1.5, True, ["ok/1"], {"path": "ok/1"}, [], "../x", "http://127.0.0.1:1/x"]
)
def test_a_wrong_item_is_an_error_that_says_which_and_nothing_is_requested(server, tmp_path, wrong):
    shard = jsonl(tmp_path / "a.jsonl", [{"url": ["ok/0", "ok/1", wrong]}])
    with pytest.raises(FieldError, match="`fetch: bin`, item 2: ") as caught:
        read(shard, {"url": "url", "root": server.url, "missing": "skip"})
    assert caught.value.code == "D261"
    assert caught.value.place["key"] == "0"
    assert not server.requests


@pytest.mark.parametrize("kind", ["status-403", "page"])
def test_a_broken_item_is_one_error_of_its_sample_and_the_first_one_counts(server, tmp_path, kind):
    rows = [{"url": ["ok/0", f"{kind}/1", "status-404/x"]}, {"url": ["ok/2"]}]
    shard, entry = jsonl(tmp_path / "a.jsonl", rows), {"url": "url", "root": server.url}
    code = {"status-403": "D263", "page": "D264"}[kind]
    with pytest.raises(FieldError, match="item 1: ") as caught:
        read(shard, entry, 2)
    assert caught.value.code == code
    found, stats = read(shard, entry, 1, errors="skip")
    assert found == [[data_of("2")]]
    assert stats.skipped == {code: 1}


def test_lists_go_together_item_by_item_and_other_values_count_for_each(server, tmp_path):
    data = [data_of(str(at)) for at in range(3)]
    digests = [hashlib.sha256(each[5 + at : 50]).hexdigest() for at, each in enumerate(data)]
    row = {"at": [0, 1, 2], "how": "ok", "start": [5, 6, 7], "stop": 50, "hash": digests}
    entry = {"url": "{how}/{at}", "root": server.url, "bytes": ["start", "stop"], "sha256": "hash"}
    expected = [each[5 + at : 50] for at, each in enumerate(data)]
    assert read(jsonl(tmp_path / "a.jsonl", [row]), entry)[0] == [expected]
    whole = {"url": "ok/0", "start": [0, 100, 1000], "stop": [100, 1000, 2000]}
    parts = {"url": "url", "root": server.url, "bytes": ["start", "stop"]}
    [[*pieces]], _ = read(jsonl(tmp_path / "b.jsonl", [whole]), parts)
    assert b"".join(pieces) == data[0]
    table = pa.table({"url": ["ok/0"], "start": [[0, 100, 1000]], "stop": [[100, 1000, 2000]]})
    pq.write_table(table, tmp_path / "c.parquet")  # lists of numbers are arrays
    assert read(str(tmp_path / "c.parquet"), parts)[0] == [pieces]
    asked = sum(server.requests.values())
    with pytest.raises(FieldError, match="`start` has 3 items and `stop` has 2 items") as caught:
        read(jsonl(tmp_path / "d.jsonl", [whole | {"stop": [1, 2]}]), parts)
    assert caught.value.code == "D261"
    with pytest.raises(FieldError, match=r"item 1: .*not a range") as caught:
        read(jsonl(tmp_path / "e.jsonl", [whole | {"stop": [100, 50, 2000]}]), parts)
    assert caught.value.code == "D264"
    with pytest.raises(FieldError, match=r"item 2: .*another SHA-256") as caught:
        read(jsonl(tmp_path / "f.jsonl", [row | {"hash": [*digests[:2], "0" * 64]}]), entry)
    assert caught.value.code == "D264"
    assert sum(server.requests.values()) > asked


MAPS = [
    [{"url": "ok/0", "start": 1, "stop": 9, "caption": "x"}, {"url": "ok/1", "start": 0, "stop": 4}],
    [],
    [{"url": "ok/2", "start": 3, "stop": 5}],
]


@pytest.mark.parametrize("kind", ["rows", "json", "table"])
@pytest.mark.parametrize("more", [{}, {"url": "ok/{%s[:].n:01d}"}, {"bytes": ["%s[:].start", "%s[:].stop"]}])
def test_references_may_be_in_maps_of_a_list(server, tmp_path, kind, more):
    maps = [[each | {"n": int(each["url"][-1])} for each in images] for images in MAPS]
    if kind == "table":
        pq.write_table(pa.table({"images": maps}), tmp_path / "a.parquet")
        shard, name = str(tmp_path / "a.parquet"), "images"
    elif kind == "json":
        write_shard(
            tmp_path / "a.tar",
            [(f"{at}", {"json": json.dumps({"images": each}).encode()}) for at, each in enumerate(maps)],
        )
        shard, name = str(tmp_path / "a.tar"), "json.images"
    else:
        shard, name = jsonl(tmp_path / "a.jsonl", [{"images": each} for each in maps]), "images"
    entry = {"url": f"{name}[:].url", "root": server.url}
    entry |= {
        key: [each % name for each in value] if key == "bytes" else value % name
        for key, value in more.items()
    }
    wanted = [[data_of(each["url"][-1]) for each in images] for images in maps]
    if "bytes" in more:
        parts = [[slice(each["start"], each["stop"]) for each in images] for images in maps]
        wanted = [
            [data[part] for data, part in zip(*each, strict=True)] for each in zip(wanted, parts, strict=True)
        ]
    assert read(shard, entry, 3)[0] == wanted


def test_missing_decides_about_maps_that_lack_a_reference(server, tmp_path):
    images = [{"url": "ok/0"}, {"text": "between"}, None, {"url": None}, {"url": "ok/1"}]
    shard = jsonl(
        tmp_path / "a.jsonl", [{"images": images}, {"images": None}, {}, {"images": [{"url": "ok/2"}]}]
    )
    entry = {"url": "images[:].url", "root": server.url}
    found, _ = read(shard, entry | {"missing": "none"}, 4)
    assert found == [[data_of("0"), None, None, None, data_of("1")], None, None, [data_of("2")]]
    assert read(shard, entry | {"missing": "skip"}, 1)[0] == [[data_of("2")]]
    with pytest.raises(FieldError, match=r"item 1: `images\[:\].url` is null or empty") as caught:
        read(shard, entry)
    assert caught.value.code == "D262"


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([{"url": "ok/0"}, 5], r"`images\[1\]` is of the type int, not a map with `url`; correct the data"),
        ([5], r"`images\[0\]` is of the type int, not a map with `url`; write `images\[:\]`"),
        (["ok/0", None], r"`images\[0\]` is a text, not a map with `url`; write `images\[:\]`"),
        ([True, {"url": "ok/0"}], r"`images\[0\]` is of the type bool"),
    ],
)
def test_items_that_can_have_no_reference_are_errors_whatever_missing_says(server, tmp_path, images, said):
    shard = jsonl(tmp_path / "a.jsonl", [{"images": images}])
    for missing in ("none", "skip", "error"):
        with pytest.raises(FieldError, match=said):
            read(shard, {"url": "images[:].url", "root": server.url, "missing": missing})
    texts = jsonl(tmp_path / "b.jsonl", [{"images": ["between", {"url": "ok/1"}]}])
    found, _ = read(texts, {"url": "images[:].url", "root": server.url, "missing": "none"})
    assert found == [[None, data_of("1")]]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("images.url", "would be `images[:].url`"),
        ("images", "write `images[:].url` for the value of each map in a list"),
        ("one[:].url", "`one` is a map, not a list; write `one.url`"),
        ("text[:]", "`text` is a str, not a list; write `text`"),
        ("lists[:].url", "of type list"),
    ],
)
def test_a_path_that_does_not_fit_a_list_of_maps_has_a_remedy(server, tmp_path, url, said):
    row = {
        "images": [{"n": 1, "url": "ok/0"}],
        "one": {"url": "ok/0"},
        "text": "ok/0",
        "lists": [{"url": ["ok/0"]}],
    }
    with pytest.raises(FieldError) as caught:
        read(jsonl(tmp_path / "a.jsonl", [row]), {"url": url, "root": server.url})
    assert said in str(caught.value)
    assert not server.requests


def test_where_may_ask_for_a_value_of_any_map_in_a_list(tmp_path):
    rows = [
        {"turns": [{"role": "user"}, {"role": "system"}]},
        {"turns": []},
        {"turns": [{"text": "x"}, None]},
        {},
    ]
    shard = jsonl(tmp_path / "a.jsonl", rows)

    def keys(where):
        spec = {"dataset": [{"shards": shard, "where": where}], "epoch": "pass"}
        with wdspec.loader(spec, num_workers=0) as loader:
            return [each["__key__"] for each in loader if each["__mask__"]]

    assert keys('"system" in default(turns[:].role, ["none"])') == ["0"]
    assert keys('"none" in default(turns[:].role, ["none"])') == ["3"]
    with pytest.raises(FieldError, match=r"`turns\[0\].role`: there is no `role` in it"):
        keys('"system" in turns[:].role and turns.length < 3')


def test_time_spans_may_be_lists(tmp_path):
    samples = np.arange(8000, dtype=np.int16)
    (tmp_path / "objects").mkdir()
    with wave.open(str(tmp_path / "objects" / "a.wav"), "wb") as file:
        file.setparams((1, 2, 1000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    shard = jsonl(tmp_path / "a.jsonl", [{"url": "a.wav", "starts": [1, 2.5, 6], "long": 0.5}])
    entry = {"url": "url", "root": str(tmp_path / "objects"), "seconds": ["starts", "starts + long"]}
    source = {"shards": shard, "fetch": {"clips": entry}, "decode": {"clips": "audio"}}
    with wdspec.loader({"dataset": [source], "epoch": 1}, num_workers=0) as loader:
        [sample] = loader
    found = [np.rint(np.asarray(clip.samples)[0] * 32768).astype(int).tolist() for clip in sample["clips"]]
    assert found == [samples[at : at + 500].tolist() for at in (1000, 2500, 6000)]


def test_objects_of_a_list_are_requested_together_and_each_once(tmp_path):
    with ObjectServer(delay=0.05, together=8) as server:
        names = [f"ok/{at % 20}" for at in range(40)]
        shard = jsonl(tmp_path / "a.jsonl", [{"url": names}])
        [found], _ = read(shard, {"url": "url", "root": server.url})
        assert found == [data_of(str(at % 20)) for at in range(40)]
        assert server.requests == {f"/ok/{at}": 1 for at in range(20)}
        assert 8 <= server.most_running <= 32


def test_lists_larger_than_the_budget_are_read_whole_and_nothing_else_beside_them(tmp_path):
    with ObjectServer(size=100_000) as server:
        rows = [{"url": [f"ok/{row}-{at}" for at in range(15)]} for row in range(4)]
        source = {"shards": jsonl(tmp_path / "a.jsonl", rows), "shuffle": 0}
        source["fetch"] = {"bin": {"url": "url", "root": server.url}}
        spec = {"dataset": [source], "epoch": 4, "loader": {"fetch_memory": 1_000_003}}
        with wdspec.loader(spec, num_workers=0) as loader:
            for taken, sample in enumerate(loader, 1):
                assert [len(each) for each in sample["bin"]] == [100_000] * 15
                assert sum(server.requests.values()) <= 15 * (taken + 1)


def image_of(name, size=(20, 12)):
    pixels = np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
    return Image.fromarray(pixels.integers(0, 256, (*size[::-1], 3), dtype=np.uint8))


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def pictures(tmp_path):
    """Rows of texts with their images, as those of OBELICS: a null where the other list has a value."""
    (tmp_path / "objects").mkdir()
    for at in range(6):
        (tmp_path / "objects" / f"{at}.png").write_bytes(png(image_of(str(at))))

    table = pa.table({"urls": pa.array(URLS, pa.list_(pa.string()))})
    pq.write_table(table, tmp_path / "rows.parquet")
    return tmp_path


def pictured(folder, **more):
    fetch = {"images": {"url": "urls", "root": f"{folder}/objects", "missing": "none"}}
    source = {"name": "a", "shards": f"{folder}/rows.parquet", "shuffle": 0, "fetch": fetch}
    source["decode"] = {"images": more.pop("decode", "rgb8")}
    return {"dataset": [source | more.pop("source", {})], "batch": 4, "epoch": "pass", **more}


def pixels_of(url):
    return None if url is None else np.asarray(image_of(url.removesuffix(".png")))


URLS = [["0.png", None, "1.png"], ["2.png"], [], ["3.png", "4.png", "5.png", "0.png"]]


@pytest.mark.parametrize("workers", [0, 2])
def test_items_are_decoded_like_single_images_and_keep_their_places(pictures, workers):
    with wdspec.loader(pictured(pictures), num_workers=workers) as loader:
        [batch] = loader
    for urls, images in zip(URLS, batch["images"], strict=True):
        assert [None if each is None else np.asarray(each).tolist() for each in images] == [
            None if url is None else pixels_of(url).tolist() for url in urls
        ]


def test_random_crops_are_the_same_for_all_items_of_a_sample(tmp_path):
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "a.png").write_bytes(png(image_of("a")))
    shard = jsonl(tmp_path / "a.jsonl", [{"urls": ["a.png", "a.png"]}] * 20)
    fetch = {"images": {"url": "urls", "root": str(tmp_path / "objects")}}
    source = {"shards": shard, "fetch": fetch, "decode": {"images": "rgb8+random_resized_crop=8"}}
    with wdspec.loader({"dataset": [source], "batch": 5, "epoch": 20}, num_workers=0) as loader:
        pairs = [images for batch in loader for images in batch["images"]]
    assert all(np.array_equal(*pair) for pair in pairs)
    assert len({pair[0].tobytes() for pair in pairs}) > 10


def test_lists_of_images_are_padded_to_one_tensor(pictures):
    spec = pictured(pictures, batch={"size": 3, "collate": {"images": {"pad": {"mask": "image_mask"}}}})
    spec |= {"epoch": {"batches": 1}}
    spec["dataset"][0] |= {"where": "urls.length != 3"}
    with wdspec.loader(spec, num_workers=0) as loader:
        [batch] = loader
    assert batch["images"].shape == (3, 4, 12, 20, 3)
    assert batch["image_mask"].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
    assert torch.equal(batch["images"][2, 1], torch.from_numpy(pixels_of("4.png").copy()))


def test_choose_takes_one_item_and_map_gets_the_list(pictures):
    spec = pictured(pictures, batch=1, epoch=8, map={"images": "builtins:len"})
    source = spec["dataset"][0]
    source |= {"where": "urls.length in (1, 4)", "make": {"one": {"choose": "images"}}}
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = list(loader)
    assert {int(batch["images"]) for batch in batches} == {1, 4}
    known = {pixels_of(url).tobytes() for url in (*URLS[1], *URLS[3])}
    chosen = {np.asarray(batch["one"][0]).tobytes() for batch in batches}
    assert chosen <= known
    assert len(chosen) > 1


@pytest.mark.parametrize("of_maps", [False, True])
def test_lists_of_images_in_tables_are_decoded_item_by_item(tmp_path, of_maps):
    lists = [[png(image_of(url)) for url in urls if url] for urls in URLS]
    items = [[{"bytes": each, "path": "x.png"} if of_maps else each for each in row] for row in lists]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()}) if of_maps else pa.binary()
    pq.write_table(pa.table({"images": pa.array(items, pa.list_(kind))}), tmp_path / "a.parquet")
    source = {"shards": str(tmp_path / "a.parquet"), "decode": {"images": "rgb8"}}
    for more in (
        {},
        {"make": {"one": {"choose": "images"}}, "where": "images.length > 0 and one.length > 0"},
    ):
        with wdspec.loader({"dataset": [{**source, **more}], "epoch": "pass"}, num_workers=0) as loader:
            found = [[each.tolist() for each in sample["images"]] for sample in loader if sample["__mask__"]]
        expected = [[np.asarray(image_of(url)).tolist() for url in urls if url] for urls in URLS]
        assert sorted(found) == sorted(each for each in expected if each or not more)


def test_a_damaged_item_is_an_error_that_says_which(pictures):
    Path(pictures, "objects", "4.png").write_bytes(b"no image")
    with (
        pytest.raises(FieldError, match="item 1: ") as caught,
        wdspec.loader(pictured(pictures), num_workers=0) as loader,
    ):
        list(loader)
    assert caught.value.place["field"] == "images"
    spec = pictured(pictures, errors="skip", epoch={"batches": 1})
    with wdspec.loader(spec, num_workers=0) as loader:
        [batch] = loader
        assert loader.stats().sources["a"].skipped == {"D202": 1}
    assert [len(each) for each in batch["images"]] == [3, 1, 0, 3]
