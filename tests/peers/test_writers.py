"""We read what webdataset writes, and webdataset reads what we write, field by field."""

import io

import numpy as np
import pytest
import torch
import webdataset
from PIL import Image

import wdspec
from wdspec.fields.samples import SampleFields
from wdspec.formats.tar.reader import TarSamples

PICTURE = np.add.outer(np.arange(16), np.arange(12))[:, :, None].astype(np.uint8) * np.array(
    [3, 5, 7], np.uint8
)
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)

BOTH = {
    **dict.fromkeys(("txt", "text", "transcript"), "grüße\n"),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), 42),
    "json": {"a": [1, 2.5, None, "x"]},
    "jsn": ["x"],
    "npy": ARRAY,
    "npz": {"a": ARRAY, "b": np.arange(3)},
    "mp": {"a": [1, 2.5, None, "x", b"y"]},
    "msg": [1, "x"],
    "msgpack": {"a": b"x"},
    "pyd": {"a": (1, 2)},
    "pickle": [(1, 2)],
    "pth": torch.arange(3),
    "txt.gz": "hello\n",
    "left.json": [1],
    "bin": b"\0\1\2",
}
"""Extension → a value that both sides write."""
PICTURES = {
    "png": PICTURE,
    "ppm": PICTURE,
    "tiff": PICTURE,
    "tif": PICTURE,
    "jpg": PICTURE,
    "jpeg": PICTURE,
}
NOT_READ_BY_THEM = {"msgpack"}
"""Written by webdataset, and left as bytes when it reads them."""


def written(writer, sample, **options):
    file = io.BytesIO()
    with writer(file, **options) as tar:
        tar.write({"__key__": "a/000", **sample})
    return file.getvalue()


def read_by_us(data, images="rgb8"):
    fields = SampleFields(names=(images,), allow_pickle=True, secure=False)
    return [fields(sample) for sample in TarSamples(io.BytesIO(data))]


def read_by_them(data, tmp_path, images="rgb8"):
    (tmp_path / "a.tar").write_bytes(data)
    return list(webdataset.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False).decode(images))


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (np.ndarray, torch.Tensor)):
        return a.dtype == b.dtype and np.array_equal(np.asarray(a), np.asarray(b))
    return a == b


@pytest.mark.parametrize("extension", sorted(BOTH))
def test_values_that_webdataset_wrote_are_read_here(extension):
    (sample,) = read_by_us(written(webdataset.TarWriter, {extension: BOTH[extension]}))
    assert sample["__key__"] == "a/000"
    assert same(BOTH[extension], sample[extension])


@pytest.mark.parametrize("extension", sorted(set(BOTH) - NOT_READ_BY_THEM))
def test_values_written_here_are_read_by_webdataset(extension, tmp_path):
    data = written(wdspec.TarWriter, {extension: BOTH[extension]}, allow_pickle=True)
    (sample,) = read_by_them(data, tmp_path)
    assert sample["__key__"] == "a/000"
    assert same(BOTH[extension], sample[extension])


@pytest.mark.parametrize(
    ("extension", "value"), [("count", 7), ("class", 7), ("html", "<p>"), ("htm", "<p>")]
)
def test_files_that_webdataset_writes_but_cannot_read_are_read_here(extension, value):
    assert read_by_us(written(webdataset.TarWriter, {extension: value}))[0][extension] == value
    assert read_by_us(written(wdspec.TarWriter, {extension: value}))[0][extension] == value


@pytest.mark.parametrize("extension", sorted(PICTURES))
def test_images_go_both_ways(extension, tmp_path):
    ours = written(wdspec.TarWriter, {extension: PICTURES[extension]})
    theirs = written(webdataset.TarWriter, {extension: PICTURES[extension]})
    for sample in (*read_by_us(theirs), *read_by_them(ours, tmp_path), *read_by_us(ours)):
        difference = np.abs(sample[extension].astype(int) - PICTURES[extension])
        assert difference.max() == 0 if extension[0] != "j" else difference.mean() < 6


def test_pillow_images_go_both_ways(tmp_path):
    ours = written(wdspec.TarWriter, {"png": Image.fromarray(PICTURE)})
    theirs = written(webdataset.TarWriter, {"png": Image.fromarray(PICTURE)})
    assert (read_by_us(theirs)[0]["png"] == PICTURE).all()
    assert (read_by_them(ours, tmp_path)[0]["png"] == PICTURE).all()


def test_the_members_have_the_same_names_in_the_same_order():
    import tarfile

    sample = {"png": PICTURE, "cls": 1, "left.json": {}, "txt.gz": "x"}
    names = []
    for writer in (wdspec.TarWriter, webdataset.TarWriter):
        with tarfile.open(fileobj=io.BytesIO(written(writer, sample))) as tar:
            names.append(tar.getnames())
    assert names[0] == names[1] == ["a/000.cls", "a/000.left.json", "a/000.png", "a/000.txt.gz"]


def test_a_json_text_is_checked_and_stored_unchanged(tmp_path):
    for text in ('{"x": 1}', b"[1]", '"hello"'):
        ours, theirs = (written(lib.TarWriter, {"json": text}) for lib in (wdspec, webdataset))
        assert read_by_them(ours, tmp_path)[0]["json"] == read_by_us(theirs)[0]["json"]
    with pytest.raises(wdspec.FieldError, match="JSON already"):
        written(wdspec.TarWriter, {"json": "hello"})
    with pytest.raises(Exception, match=r"^$"):
        read_by_them(written(webdataset.TarWriter, {"json": "hello"}), tmp_path)


def test_the_requested_tar_format_is_written():
    long = {"__key__": "x" * 150, "cls": 1}
    file = io.BytesIO()
    with (
        pytest.raises(wdspec.FieldError, match="ustar format cannot store"),
        wdspec.TarWriter(file, format="USTAR_FORMAT") as tar,
    ):
        tar.write(long)
    theirs = io.BytesIO()
    with webdataset.TarWriter(theirs, format="USTAR_FORMAT") as tar:
        tar.write(long)
    assert b"PaxHeader" in theirs.getvalue()  # the argument is never used there


def test_shards_of_webdataset_with_fractions_of_a_second_are_read(tmp_path):
    with webdataset.ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=4, verbose=0) as writer:
        for n in range(10):
            writer.write({"__key__": f"{n:03d}", "cls": n})
    found = [read_by_us((tmp_path / f"a-{n}.tar").read_bytes()) for n in range(3)]
    assert [[sample["cls"] for sample in shard] for shard in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
