"""Batches planned by the sizes of images that samples name: only headers are read before (docs/references.md)."""

import io
import json

import numpy as np
import pytest
from commandline import within
from fetchedrows import jsonl
from PIL import Image
from servers.objects import PAGE, ObjectServer

import wdspec
from wdspec.base.errors import FieldError, UsageError
from wdspec.fields.codecs.image_decoder import image_size
from wdspec.storage.objects import START

SIDES = [(8 + 7 * at % 40, 8 + 11 * at % 50) for at in range(48)]
"""The width and height of each image."""


def image(at, kind="PNG", **options):
    width, height = SIDES[at]
    file = io.BytesIO()
    pixels = np.random.default_rng(at).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for at in range(len(SIDES)):
        (tmp_path / "images" / f"{at}.png").write_bytes(image(at))
    write_rows(tmp_path, [f"{at}.png" for at in range(len(SIDES))])
    return tmp_path


def write_rows(folder, names):
    rows = [
        {"url": name, "width": width, "height": height}
        for name, (width, height) in zip(names, SIDES, strict=False)
    ]
    jsonl(folder / "rows.jsonl", rows)


def spec_of(folder, root=None, entry=None, **more):
    """A spec whose images have at most 2,500 pixels in a batch, from windows of 12 samples."""
    fetch = {"image": {"url": "url", "root": root or f"{folder}/images", **(entry or {})}}
    source = {"name": "a", "shards": f"{folder}/rows.jsonl", "shuffle": 5, "fetch": fetch}
    batch = {"cost": "image.pixels", "max_cost": 2500, "window": 12} | more.pop("batch", {})
    spec = {"seed": 4, "dataset": [source | more.pop("source", {})], "batch": batch, "epoch": {"batches": 12}}
    return spec | more


def read(spec, workers=0):
    """(keys, bytes) of each batch, and the counts of the source."""
    with wdspec.loader(spec, num_workers=workers) as loader:
        found = [(list(batch["__key__"]), list(batch["image"])) for batch in loader]
        return found, loader.stats().sources["a"]


BY_SIZE = [
    ({}, {"cost": "width * height"}),
    (
        {"cost": "image.width + 1", "max_cost": 90, "balance": "image.height"},
        {"cost": "width + 1", "balance": "height"},
    ),
    ({"limits": {"image.height": 80}}, {"cost": "width * height", "limits": {"height": 80}}),
    (
        {"cost": None, "max_cost": None, "group_by": "image.aspect > 1", "size": 3},
        {"group_by": "width / height > 1"},
    ),
]


@pytest.mark.parametrize(("batch", "beside"), BY_SIZE)
@pytest.mark.parametrize("epoch", [{"batches": 9}, "pass"])
def test_batches_are_those_of_columns_with_the_same_values(folder, batch, beside, epoch):
    batch = {key: value for key, value in batch.items() if key != "balance" or epoch != "pass"}
    beside = {key: value for key, value in beside.items() if key != "balance" or epoch != "pass"}
    spec = spec_of(folder, batch=batch, epoch=epoch, elastic={"ranks": 1, "workers": 2})
    spec["batch"] = {key: value for key, value in spec["batch"].items() if value is not None}
    columns = {**spec, "batch": {**spec["batch"], **beside}}
    expected = read(columns)[0]
    assert len({len(keys) for keys, _ in expected}) > 1 or "group_by" in beside
    assert all(
        data == image(int(key)) for keys, files in expected for key, data in zip(keys, files, strict=True)
    )
    for workers in (0, 1, 2):
        assert read(spec, workers)[0] == expected
    assert read({**spec, "loader": {"kind": "threads"}}, 2)[0] == expected


def test_a_run_resumes_within_a_window(folder):
    spec = spec_of(folder, elastic={"ranks": 1, "workers": 2})
    expected = read(spec)[0]
    for taken in (1, 2, 5):
        with wdspec.loader(spec, num_workers=taken % 3) as loader:
            batches = iter(loader)
            first = [list(next(batches)["__key__"]) for _ in range(taken)]
            state = json.loads(json.dumps(loader.state_dict()))
        with wdspec.loader(spec, num_workers=1) as loader:
            loader.load_state_dict(state)
            rest = [(list(batch["__key__"]), list(batch["image"])) for batch in loader]
        assert first == [keys for keys, _ in expected[:taken]]
        assert rest == expected[taken:]
    (folder / "images").rename(folder / "moved")
    moved = spec_of(folder, f"{folder}/moved", elastic={"ranks": 1, "workers": 2})
    with wdspec.loader(moved, num_workers=0) as loader:
        loader.load_state_dict(state)  # where the images are has no effect
    other = spec_of(folder, f"{folder}/moved", entry={"url": "{url}"}, elastic={"ranks": 1, "workers": 2})
    with wdspec.loader(other, num_workers=0) as loader, pytest.raises(UsageError, match="fetch"):
        loader.load_state_dict(state)  # these may be other images, so other batches


@pytest.fixture
def server():
    with ObjectServer() as running:
        for at in range(len(SIDES)):
            running.objects[f"{at}.png"] = image(at)
        yield running


def serve(folder, names):
    write_rows(folder, [f"ok/{name}" for name in names])


def test_the_headers_of_a_window_are_requested_together(folder):
    with ObjectServer(together=24) as server:
        for at in range(24):
            server.objects[f"{at}.png"] = image(at)
        serve(folder, [f"{at}.png" for at in range(24)])
        spec = spec_of(folder, server.url, batch={"window": 24}, source={"shuffle": 0})
        with wdspec.loader(spec, num_workers=0) as loader:
            next(iter(loader))
        assert server.most_running >= 24
        ranges = [each.get("range") for each in server.headers[:24]]
        assert ranges == [f"bytes=0-{START - 1}"] * 24


def test_each_image_takes_two_requests_and_with_a_cache_one(server, folder):
    serve(folder, [f"{at}.png" for at in range(12)])
    spec = spec_of(folder, server.url, epoch="pass", stats=None)
    spec = {key: value for key, value in spec.items() if value is not None} | {"epoch": {"batches": 3}}
    spec["dataset"][0]["shuffle"] = 0
    found, _ = read(spec)
    named = {key for keys, _ in found for key in keys}
    assert all(server.requests[f"/ok/{key}.png"] == 2 for key in named)
    server.requests.clear()
    assert read({**spec, "cache": str(folder / "cache")})[0] == found
    assert {*server.requests.values()} == {1}


def test_more_is_read_where_a_header_is_not_whole(server, folder):
    """A JPEG with 200 KB of metadata; and a TIFF, whose header may be anywhere."""
    jpeg = image(0, "JPEG")
    more = b"".join(b"\xff\xe2\xea\x60" + bytes(59_998) for _ in range(4))
    server.objects["a.jpg"] = jpeg[:2] + more + jpeg[2:]
    wide = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (200, 300, 3), np.uint8)).save(wide, "TIFF")
    server.objects["b.tif"] = wide.getvalue()
    assert len(server.objects["b.tif"]) > START
    serve(folder, ["a.jpg", "b.tif"])
    spec = spec_of(folder, server.url, batch={"window": 2, "max_cost": 60_000}, epoch={"batches": 2})
    spec["dataset"][0] |= {"shuffle": 0}
    found, _ = read(spec)
    files = {key: data for keys, files in found for key, data in zip(keys, files, strict=True)}
    assert files == {"0": server.objects["a.jpg"], "1": server.objects["b.tif"]}
    wanted = {each.get("range") for each in server.headers}
    assert wanted >= {f"bytes=0-{START - 1}", f"bytes={START}-{4 * START - 1}", None}
    assert [keys for keys, _ in found] in ([["0"], ["1"]], [["1"], ["0"]])


@pytest.mark.parametrize(
    "options", [{"quality": 100}, {"lossless": True}, {"quality": 100, "exif": b"Exif\0\0"}, {}]
)
def test_the_start_of_a_webp_has_its_size(server, folder, options):
    """Of its three kinds and an animation, as Pillow reads it from all bytes."""
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (301, 402, 3), np.uint8))
    more = options or {
        "save_all": True,
        "append_images": [picture.rotate(90, expand=False)],
        "lossless": True,
    }
    file = io.BytesIO()
    picture.save(file, "WEBP", **more)
    server.objects["a.webp"] = file.getvalue()
    assert len(file.getvalue()) > START
    assert Image.open(file).size == image_size(file.getvalue()[:30]) == (402, 301)
    serve(folder, ["a.webp"])
    read(spec_of(folder, server.url, batch={"window": 1, "max_cost": 130_000}, epoch={"batches": 1}))
    assert {each.get("range") for each in server.headers} == {f"bytes=0-{START - 1}", None}


def test_what_has_no_object_is_in_no_batch_or_has_the_default(server, folder):
    names = ["0.png", "status", "2.png", "none", "4.png"]
    write_rows(folder, ["ok/0.png", "status-404/1", "ok/2.png", "", "ok/4.png"])
    spec = spec_of(folder, server.url, batch={"window": 3, "max_cost": 10_000}, epoch={"batches": 1})
    spec["dataset"][0] |= {"shuffle": 0}
    with pytest.raises(FieldError, match="missing: skip") as caught:
        read(spec)
    assert caught.value.code == "D262"
    spec["dataset"][0]["missing"] = "skip"
    found, stats = read(spec)
    assert sorted(found[0][0]) == ["0", "2", "4"]
    assert stats.dropped == {"missing": 2}
    spec["dataset"][0]["missing"] = "none"
    with pytest.raises(FieldError, match=r"there is no object; write `default\(image\.pixels, 0\)`"):
        read(spec)
    spec["batch"] |= {"cost": "default(image.pixels, 7)", "window": 5}
    found, _ = read(spec)
    assert dict(zip(*found[0], strict=True)) == {
        "0": image(0), "1": None, "2": image(2), "3": None, "4": image(4)
    }  # fmt: skip
    assert len(names) == 5


WRONG = {
    "no header": ("ok/text.png", "D264"),
    "page": ("ok/page.png", "D264"),
    "refused": ("status-403/x.png", "D263"),
    "outside": ("../x.png", "D261"),
    "elsewhere": ("elsewhere/x.png", "D263"),
    "a file": ("file/x.png", "D263"),
    "a list": (["ok/0.png", "ok/2.png"], "D264"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_measured_is_an_error_or_a_counted_skip(folder, kind):
    reference, code = WRONG[kind]
    with ObjectServer() as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        with ObjectServer(elsewhere=elsewhere) as server:
            server.objects |= {f"{at}.png": image(at) for at in (0, 2)}
            server.objects |= {"text.png": b"no image", "page.png": PAGE}
            write_rows(folder, ["ok/0.png", reference, "ok/2.png"])
            spec = spec_of(folder, server.url, batch={"window": 2, "max_cost": 10_000}, epoch={"batches": 1})
            spec["dataset"][0] |= {"shuffle": 0, "errors": {"retry": "0.1s"}}
            with pytest.raises(FieldError) as caught:
                read(spec)
            assert caught.value.code == code
            assert caught.value.place["key"] == "1"
            spec["dataset"][0]["errors"]["skip"] = True
            found, stats = read(spec)
            assert sorted(found[0][0]) == ["0", "2"]
            assert stats.skipped == {code: 1}
        assert not other.requests


def test_samples_that_are_decoded_first_need_no_further_request(server, folder):
    serve(folder, [f"{at}.png" for at in range(12)])
    spec = spec_of(folder, server.url, epoch={"batches": 3})
    spec["dataset"][0]["shuffle"] = 0
    expected = read(spec)[0]
    server.requests.clear()
    server.headers.clear()
    spec["batch"] |= {"cost": "max(image.pixels, height)"}
    spec["map"] = {"height": "builtins:abs"}
    assert read(spec)[0] == expected
    assert all(each.get("range") is None for each in server.headers)


def test_headers_stay_within_a_small_budget_of_memory(folder):
    spec = spec_of(folder, loader={"fetch_memory": "70kB"})
    assert read(spec)[0] == read(spec_of(folder))[0]
    (folder / "images" / "5.png").write_bytes(b"\xff\xd8" + b"\xff\xe2\xea\x60" + bytes(300_000))
    with pytest.raises(FieldError, match=r"in its first 70,000 bytes"):
        read(spec)


def test_a_lock_knows_other_versions_before_batches_are_planned(folder):
    (folder / "s.yaml").write_text(json.dumps(spec_of(folder)))
    within("lock", "s.yaml", "--objects", folder=folder)
    (folder / "images" / "7.png").write_bytes(image(8))
    with (
        wdspec.loader(folder / "s.yaml", lock=folder / "s.lock.json", num_workers=0) as loader,
        pytest.raises(FieldError, match=r"7\.png.*is not the one in the lock"),
    ):
        list(loader)


def test_stats_measures_what_a_pass_costs_and_explain_says_what_that_takes(server, folder):
    serve(folder, [f"{at}.png" for at in range(48)])
    spec = spec_of(folder, server.url, epoch="pass")
    expected = read(spec)[0]
    (folder / "s.yaml").write_text(json.dumps(spec))
    within("stats", "s.yaml", "-o", "stats.json", folder=folder)
    known = {**spec, "stats": str(folder / "stats.json")}
    server.requests.clear()
    assert read(known)[0] == expected
    assert {*server.requests.values()} == {2}
    server.requests.clear()
    (folder / "s.yaml").write_text(json.dumps({**spec, "epoch": {"batches": 4}}))
    shown, _ = within("explain", "s.yaml", folder=folder)
    assert f"2 to {server.url} (1 for the sizes of images, before batches); 2,000 per second" in shown
    [each] = json.loads(within("explain", "s.yaml", "--format", "json", folder=folder)[0])["objects"]
    assert (each["per_sample"], each["of_headers"]) == (2, 1)
    assert not server.requests  # explain asks no store
