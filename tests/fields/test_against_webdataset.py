"""The same bytes through webdataset 1.0.2: equal where webdataset is right, fixed where it is not."""

from __future__ import annotations

import gzip
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from decoded import PLACE, decode
from fieldfiles import npz, picture, pth, whole_files
from PIL import Image
from webdataset.autodecode import Decoder as TheirDecoder
from webdataset.autodecode import DecodingError, ImageHandler
from webdataset.autodecode import handle_extension as their_handle_extension

from wdspec import Decoder, FieldError, handle_extension


def theirs(name: str, data: bytes, *handlers: Any) -> Any:
    return TheirDecoder(list(handlers))({"__key__": "0001", "__url__": "a.tar", name: data})[name]


def same(ours: Any, other: Any) -> bool:
    if isinstance(other, dict):
        return ours.keys() == other.keys() and all(same(ours[name], other[name]) for name in other)
    if isinstance(other, (np.ndarray, torch.Tensor)):
        return type(ours) is type(other) and ours.dtype == other.dtype and np.array_equal(ours, other)
    return type(ours) is type(other) and bool(ours == other)


@pytest.mark.parametrize(
    "name",
    [
        *("txt", "text", "transcript", "cls", "cls2", "index", "inx", "id", "json", "jsn", "mp", "msg"),
        *("npy", "npz", "pth", "txt.gz", "json.gz", "left.cls", "a.b.json"),
    ],
)
def test_both_read_the_same(name: str) -> None:
    plain = name.removesuffix(".gz").rpartition(".")[2]
    data = whole_files()[plain]
    data = gzip.compress(data, mtime=0) if name.endswith(".gz") else data
    assert same(decode(name, data), theirs(name, data))
    assert same(Decoder()({name: data})[name], theirs(name, data))


@pytest.mark.parametrize("name", ["pkl", "pickle", "pyd"])
def test_both_read_pickles_when_pickle_is_allowed(name: str) -> None:
    data = pickle.dumps({"a": [1, "x"]})
    assert same(decode(name, data, allow_pickle=True), theirs(name, data))


def test_both_read_torch_files_when_pickle_is_allowed() -> None:
    assert same(decode("pth", pth(), allow_pickle=True), theirs("pth", pth()))


@pytest.mark.parametrize("name", ["count", "class", "msgpack", "html", "htm", "cbor"])
def test_files_of_its_writer_are_readable(name: str) -> None:
    # cbor: webdataset needs an unmaintained library; it returns the others as bytes.
    assert not isinstance(decode(name, whole_files()[name]), bytes)


def test_null_is_none() -> None:
    assert theirs("json", b"null") == b"null"
    assert decode("json", b"null") is None
    assert Decoder()({"json": b"null"}) == {"json": None}


def test_arrays_can_be_written_to() -> None:
    data = picture("png")
    assert not theirs("png", data, ImageHandler("rgb8")).flags.writeable
    assert decode("png", data, names=("rgb8",)).flags.writeable
    assert Decoder("rgb8")({"png": data})["png"].flags.writeable
    assert all(array.flags.writeable for array in decode("npz", npz()).values())


def test_sixteen_bit_values_are_not_clipped() -> None:
    deep = np.array([[0, 300, 30000, 65535]], np.uint16)
    file = io.BytesIO()
    Image.fromarray(deep).save(file, "PNG")
    data = file.getvalue()
    assert theirs("png", data, ImageHandler("l8")).tolist() == [[0, 255, 255, 255]]
    assert decode("png", data, names=("l8",)).tolist() == [[0, 1, 117, 255]]
    assert decode("png", data, names=("l16",)).tolist() == deep.tolist()
    assert np.allclose(decode("png", data, names=("l",)), deep / 65535)


def test_a_failure_has_a_message() -> None:
    with pytest.raises(DecodingError) as blank:
        theirs("cls", b"twelve")
    assert str(blank.value) == ""
    for decoder in (lambda: decode("cls", b"twelve"), lambda: Decoder()({**PLACE, "cls": b"twelve"})):
        with pytest.raises(FieldError) as caught:
            decoder()
        for part in ("cls", "twelve", "url a.tar", "key 0001", "field cls"):
            assert part in str(caught.value)
        assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("extension", "name", "fixed"),
    [
        ("seg.jpg", "a.seg.jpg", False),
        ("seg.jpg", "jpg", False),
        ("jpg", "jpg", False),
        ("jpg", "a.seg.jpg", False),
        ("JPG", "seg.Jpg", False),
        ("jpg", "xjpg", False),
        ("jpg png", "b.png", False),
        (".png", "png", False),
        (".png", "left.png", True),
    ],
)
def test_extensions_select_the_same_fields(extension: str, name: str, fixed: bool) -> None:
    ours = handle_extension(extension, len)("." + name, b"abc")
    other = their_handle_extension(extension, len)("." + name, b"abc")
    assert (ours == other) != fixed
    if fixed:
        assert (ours, other) == (3, None)


def test_videos_are_not_sent_to_the_image_decoder() -> None:
    with pytest.raises(DecodingError):
        theirs("mpg", b"no picture", ImageHandler("pil"))
    assert decode("mpg", b"no picture", names=("pil",)) == b"no picture"


@pytest.mark.parametrize("only", ["cls", ["jpg", "txt"], "cls txt"])
def test_only_has_the_same_meaning(only: Any) -> None:
    sample = {"__key__": "0001", "cls": b"1", "left.cls": b"2", "txt": b"x"}
    assert Decoder(only=only)(sample) == TheirDecoder([], only=only)(dict(sample))


def test_half_of_the_samples_remain_if_every_second_image_is_bad() -> None:
    samples = [{**PLACE, "png": b"junk" if index % 2 else picture("png")} for index in range(47)]
    skipped = webdataset.decode("rgb8", handler=webdataset.ignore_and_continue)(
        iter([dict(s) for s in samples])
    )
    ours = 0
    decoder = Decoder("rgb8")
    for sample in samples:
        try:
            ours += decoder(sample)["png"].shape == (12, 20, 3)
        except FieldError:
            continue
    assert ours == len(list(skipped)) == 24
