"""Decoders of fields other than images."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from functools import partial
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

from wdspec.base.errors import FieldError
from wdspec.fields.decode import DecodeRules
from wdspec.fields.samples import SampleFields
from wdspec.formats import compression as unpacking
from wdspec.spec.language import values as vocabulary
from wdspec.spec.language.decoders import (
    BASIC,
    BY_NAME,
    FORMAT_OF,
    IMAGE_FIELDS,
    IMAGE_FORMATS,
    IMAGES,
    MEDIA,
    ROWS,
    DecoderRow,
)


def words(text: str) -> set[str]:
    return set(text.split())


# The words of the language, as they were before there was a table.
BASIC_NAMES = words(
    "txt text transcript html htm cls cls2 index inx id count class json jsn npy npz mp msg msgpack cbor "
    "pth safetensors torch_safetensors pkl pickle pyd"
)
IMAGE_NAMES = words(
    "l l8 l16 rgb rgb8 rgb16 rgba rgba8 rgba16 torch torchl torchl8 torchrgb torchrgb8 torchrgba torchrgba8 "
    "pil pill pilrgb pilrgba"
)
MEDIA_NAMES = words(
    "audio torch_audio flac mp3 wav ogg oga opus aif aiff au m4a aac wma "
    "video torch_video mp4 m4v mov avi mkv webm ogv mpg mpeg mjpeg h264 wmv"
)
IMAGE_EXTENSIONS = words(
    "jpg jpeg jpe jfif png apng gif bmp dib tif tiff webp avif ppm pgm pbm pnm jp2 j2k jpx "
    "tga sgi pcx dds ico icns xbm"
)

# Without the time, so that all test processes know the same parameters.
gz = partial(gzip.compress, mtime=0)


def decode(suffix: str, data: bytes, **options: Any) -> Any:
    return SampleFields(secure=False, **options)({"__key__": "k", suffix: data})[suffix]  # type: ignore[index]


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def test_the_table_has_every_decoder_of_the_language() -> None:
    assert sum(len(row.names) for row in ROWS) == len(BY_NAME)
    assert set(BY_NAME) == vocabulary.DECODERS | vocabulary.LEFT_OUT_DECODERS
    assert {"ten", "tb", "tenbin"} == vocabulary.LEFT_OUT_DECODERS
    assert {name for row in BASIC for name in row.names} == BASIC_NAMES | {"ten", "tb", "tenbin"}
    assert {name for row in BASIC if not row.read for name in row.names} == vocabulary.PICKLE_DECODERS
    assert vocabulary.PICKLE_DECODERS == {"pkl", "pickle", "pyd"} == vocabulary.SECURE_REFUSES - {"pth"}
    assert {name for row in IMAGES for name in row.names} == vocabulary.IMAGE_DECODERS == IMAGE_NAMES
    assert {name for row in MEDIA for name in row.names} == MEDIA_NAMES
    assert BASIC_NAMES | IMAGE_NAMES | MEDIA_NAMES | {"raw"} == vocabulary.DECODERS
    assert not vocabulary.LEFT_OUT_DECODERS & vocabulary.DECODERS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.names[0])
def test_every_function_named_in_the_table_exists(row: DecoderRow) -> None:
    for name in filter(None, (row.read, row.read_trusting, row.write, row.write_trusting)):
        assert callable(resolve_name(name))


def test_validation_and_decoding_know_the_same_images() -> None:
    assert sum(len(format.extensions) for format in IMAGE_FORMATS) == len(FORMAT_OF)
    assert all(row.extensions == tuple(sorted(IMAGE_FIELDS)) for row in IMAGES)
    assert set(FORMAT_OF) == IMAGE_EXTENSIONS == IMAGE_FIELDS - {"img", "image"}
    assert not {"h5", "hdf", "mpg", "mpeg", "ps", "eps", "fits"} & set(FORMAT_OF)


def test_no_extension_has_two_kinds() -> None:
    basic = {name for row in BASIC for name in row.names}
    kinds = [basic, set(FORMAT_OF), BY_NAME["audio"].extensions, BY_NAME["video"].extensions]
    assert sum(map(len, kinds)) == len(set().union(*kinds))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("suffix", ["cls", "cls2", "index", "inx", "id", "count", "class", "left.cls"])
def test_integers_can_be_surrounded_by_whitespace(suffix: str, mark: bytes) -> None:
    assert decode(suffix, mark + b" 12\n") == 12


@pytest.mark.parametrize("suffix", ["txt", "text", "transcript", "html", "htm"])
def test_text_is_utf_8_and_unchanged(suffix: str) -> None:
    assert decode(suffix, "héllo\r\n".encode()) == "héllo\r\n"


@pytest.mark.parametrize("suffix", ["json", "jsn"])
def test_json_null_is_none(suffix: str) -> None:
    assert decode(suffix, b"null") is None
    assert decode(suffix, b'{"a": [1, null]}') == {"a": [1, None]}


def test_numpy_arrays_come_back_writable_and_archives_as_dicts() -> None:
    array = decode("npy", npy(np.arange(6).reshape(2, 3)))
    array[0, 0] = 7
    assert array.tolist() == [[7, 1, 2], [3, 4, 5]]
    file = io.BytesIO()
    np.savez_compressed(file, a=np.ones(2), b=np.zeros(3))
    archive = decode("npz", file.getvalue())
    assert {name: value.tolist() for name, value in archive.items()} == {"a": [1, 1], "b": [0, 0, 0]}


def test_gzip_is_undone_before_decoding_and_the_field_keeps_its_name() -> None:
    assert decode("txt.gz", gz(b"hello\n")) == "hello\n"
    assert decode("meta.json.gz", gz(b'{"a": 1}')) == {"a": 1}
    assert decode("json.gz.gz", gz(gz(b"[1]"))) == [1]
    assert decode("bin.gz", gz(b"\0\1")) == b"\0\1"
    assert decode("txt.gz", gz(b"two ") + gz(b"members")) == "two members"
    assert decode("txt.gz", b"left", names=("raw",)) == b"left"


@pytest.mark.parametrize("suffix", ["bin", "jpg", "png", "flac", "mp4", "gzip", "unknown", "x.jpg"])
def test_fields_without_a_decoder_stay_bytes(suffix: str) -> None:
    assert decode(suffix, b"\xff\0") == b"\xff\0"


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        ("cls", b"twelve"),
        ("cls", b""),
        ("cls", b"1" * 5000),
        ("txt", b"\xff\xfe"),
        ("json", b'{"a": '),
        ("json", b"[" * 100_000),
        ("npy", b"junk"),
        ("npy", npy(np.arange(100))[:-8]),
        ("npy", npy(np.array([{}], dtype=object), allow_pickle=True)),
        ("npz", b"PK junk"),
        ("txt.gz", b"plain"),
        ("txt.gz", b""),
        ("txt.gz", gz(b"hello" * 100)[:-4]),
        ("txt.gz", gz(b"hello") + b"junk"),
        ("gz", gz(b"hello")[:9]),
    ],
)
def test_bad_data_is_an_error_with_its_place(suffix: str, data: bytes) -> None:
    raw = {"__key__": "0001", "__url__": "a.tar", "__source__": "a", suffix: data}
    with pytest.raises(FieldError, match=f"^cannot decode as {suffix.split('.')[0]}") as caught:
        SampleFields(names=("rgb",))(raw)
    place = {"source": "a", "url": "a.tar", "key": "0001", "field": suffix}
    assert caught.value.place == place
    assert caught.value.__cause__ is not None
    assert len(str(caught.value)) < 500
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_decompression_bombs_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_DECOMPRESSED", 1000)
    assert len(decode("txt.gz", gz(b"a" * 1000))) == 1000
    with pytest.raises(FieldError, match="more than 1,000 bytes"):
        decode("txt.gz", gz(b"a" * 1001))
    with pytest.raises(FieldError, match="more than 1,000 bytes"):
        decode("txt.gz", gz(b"a" * 600) + gz(b"a" * 600))
    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros(300))
    with pytest.raises(FieldError, match="more than 1,000 bytes"):
        decode("npz", file.getvalue())


def test_decoders_pickle_with_their_rules() -> None:
    rules = DecodeRules(("rgb",), {"cls": "mylib:fn"})
    assert pickle.loads(pickle.dumps(rules)) == rules
    for suffix in ("jpg", "cls", "json.gz", "png.gz"):
        assert pickle.loads(pickle.dumps(rules.decoder_of(suffix, suffix))).label


def test_json_round_trips_through_a_sample() -> None:
    value = {"id": 2**70, "x": [0.1, -0.0, 1e300], "s": "ü\u2028"}
    assert decode("json", json.dumps(value, ensure_ascii=False).encode()) == value
