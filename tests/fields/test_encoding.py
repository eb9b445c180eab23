"""Encoders: the decoder of an extension reads back the value written under it."""

import gzip
import io
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from wdspec.base.errors import FieldError, UsageError
from wdspec.fields.encode import JSON_VALUES, FieldEncoder, make_encoder
from wdspec.fields.samples import SampleFields
from wdspec.spec.language.decoders import BASIC, FORMAT_OF, MEDIA, WRITTEN_BY

IMAGE_SUFFIXES = [suffix for suffix, format in FORMAT_OF.items() if format.written]

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
SCALARS = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | TEXT
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
PACKABLE = st.recursive(  # except bytes, which are the content of the file
    SCALARS | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
).filter(lambda value: not isinstance(value, bytes))
DTYPES = st.sampled_from(["uint8", "int16", "int64", "float32", "float64", "complex64", "bool", "S3"])


@st.composite
def arrays(draw):
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    data = draw(st.binary(min_size=64 * 16, max_size=64 * 16))
    dtype = np.dtype(draw(DTYPES))
    flat = np.frombuffer(data, np.uint8)[: math.prod(shape)].astype(dtype)
    return flat.reshape(shape)


TENSORS = st.integers(0, 5).map(lambda n: torch.arange(n, dtype=torch.float32))
VALUES = {
    **dict.fromkeys(("txt", "text", "transcript", "html", "htm"), TEXT),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count", "class"), st.integers()),
    **dict.fromkeys(("json", "jsn"), PLAIN),
    "npy": arrays(),
    "npz": st.dictionaries(st.text("abfile", min_size=1, max_size=4), arrays(), max_size=3),
    **dict.fromkeys(("mp", "msg", "msgpack", "cbor"), PACKABLE),
    "safetensors": st.dictionaries(st.text("abc", min_size=1, max_size=3), TENSORS, max_size=3),
    **dict.fromkeys(("pkl", "pickle", "pyd"), PACKABLE),
    "pth": st.lists(TENSORS, max_size=2),
}
"""Values that each extension can hold."""

LOSSY = {"jpg", "jpeg", "jpe", "jfif", "avif"}
DECODERS = {name for row in BASIC if not row.left_out for name in row.names}
WRITTEN_SOUND = sorted(set(WRITTEN_BY) & {name for row in MEDIA for name in row.names})


def encode(name, value, **options):
    return make_encoder(**options)({"__key__": "k", name: value})[name]


def decode(name, data, **options):
    return SampleFields(allow_pickle=True, secure=False, **options)({"__key__": "k", name: data})[name]


def same(a, b):
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, torch.Tensor):
        return torch.equal(torch.as_tensor(b), a)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize("extension", sorted(DECODERS & set(VALUES)))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_encoded_values_decode_to_the_same_value(extension, data):
    value = data.draw(VALUES[extension])
    packing = data.draw(st.sampled_from(["gz", "bz2", "xz", "zst", "gz.xz"]))
    given = json.dumps(value) if isinstance(value, str) and extension in ("json", "jsn") else value
    for name in (extension, f"left.{extension}", f"{extension}.{packing}"):
        assert same(value, decode(name, encode(name, given, allow_pickle=True)))


def test_every_decoder_has_an_encoder_and_a_round_trip():
    decodable = DECODERS - {"torch_safetensors"}  # a decoder's name, and no extension
    assert decodable <= set(WRITTEN_BY)
    assert decodable <= set(VALUES)
    assert set(IMAGE_SUFFIXES) == set(FORMAT_OF) & set(WRITTEN_BY)


@pytest.mark.parametrize("suffix", WRITTEN_SOUND)
@pytest.mark.parametrize("channels", [1, 2])
def test_audio_keeps_its_rate(suffix, channels):
    pytest.importorskip("soundfile")
    wave = np.sin(np.linspace(0, 400, 16_000 * channels, dtype=np.float32)).reshape(channels, -1) / 2
    for value in ((wave, 16_000), (torch.from_numpy(wave), 16_000)):
        samples, rate = decode(suffix, encode(suffix, value), names=("audio",))
        assert rate == 16_000
        if suffix == "mp3":
            assert abs(samples.shape[1] - wave.shape[1]) < 3000
        else:
            assert np.abs(samples - wave).max() < (2e-7 if suffix == "flac" else 1e-9)


def test_values_that_are_not_audio_are_rejected():
    pytest.importorskip("soundfile")
    with pytest.raises(FieldError, match=r"pass \(samples, rate in Hz\), or bytes"):
        encode("wav", np.zeros(3, np.float32))
    with pytest.raises(FieldError, match="pass floats"):
        encode("wav", (np.zeros((1, 2, 3)), 8000))
    with pytest.raises(FieldError, match=r"exceed -1\.\.1, and would be clipped"):
        encode("flac", (np.full(3, 1.5), 8000))


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_arrays_tensors_and_pillow_images_round_trip(suffix, data):
    height, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    seed = data.draw(st.integers(0, 2**32 - 1))
    array = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    if suffix in ("gif",):  # 256 colours at most
        array = np.repeat(array[:, :, :1], 3, axis=2)
    if suffix == "avif":
        pytest.importorskip("PIL._avif")
    for value in (
        array,
        array / 255,
        torch.from_numpy(array.transpose(2, 0, 1).copy()),
        Image.fromarray(array),
    ):
        back = decode(suffix, encode(suffix, value), names=("rgb8",))
        assert back.shape == array.shape
        if suffix in LOSSY:
            assert np.abs(back.astype(int) - array).mean() < 6
        else:
            assert (back == array).all()


@pytest.mark.parametrize("suffix", ["png", "tiff", "webp", "jp2", "tga", "sgi", "dds"])
def test_alpha_is_kept_if_the_format_has_it(suffix):
    array = np.random.default_rng(0).integers(0, 256, (5, 7, 4)).astype(np.uint8)
    assert (decode(suffix, encode(suffix, array), names=("rgba8",)) == array).all()


@pytest.mark.parametrize("suffix", ["ico", "icns", "xbm"])
def test_lossy_conversions_of_images_are_rejected(suffix):
    with pytest.raises(
        FieldError, match=f"'{suffix}' has no encoder for a value of type ndarray; pass bytes"
    ):
        encode(suffix, np.zeros((300, 300, 3), np.uint8))
    assert encode(suffix, b"as it is") == b"as it is"


@pytest.mark.parametrize("suffix", ["jpg", "ppm", "bmp"])
def test_alpha_is_rejected_if_the_format_has_none(suffix):
    with pytest.raises(FieldError, match="has no alpha; use png"):
        encode(suffix, np.zeros((5, 7, 4), np.uint8))


@pytest.mark.parametrize("suffix", ["png", "pgm", "tiff"])
def test_sixteen_bit_values_are_kept(suffix):
    array = (np.arange(35, dtype=np.uint16) * 1800).reshape(5, 7)
    back = decode(suffix, encode(suffix, array), names=("l",))
    assert (np.rint(back * 65535).astype(np.uint16) == array).all()
    with pytest.raises(FieldError, match="JPEG has 8 bits per sample"):
        encode("jpg", array)


def test_floats_are_rounded_and_must_be_between_0_and_1():
    array = np.arange(256, dtype=np.float32).reshape(16, 16) / 255
    assert (decode("png", encode("png", array), names=("l8",)) == np.arange(256).reshape(16, 16)).all()
    assert encode("png", array + 1e-4)
    for bad in (array * 255, array - 1, np.full((2, 2), np.nan)):
        with pytest.raises(FieldError, match=r"float images are in 0\.\.1, but this one is in"):
            encode("png", bad)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            np.zeros((3, 5, 7), np.uint8),
            r"shape \(3, 5, 7\) is not an image, which is HW or HWC; use `transpose",
        ),
        (torch.zeros(5, 7, 3), r"a tensor of shape \(5, 7, 3\) is not an image, which is HW or CHW"),
        (np.zeros((5, 7), np.int64), "an array of int64 is not an image; make it uint8"),
        (np.zeros((0, 7), np.uint8), "has no pixels"),
        ([1, 2], "list is not an image"),
        (np.zeros((5, 7, 3), np.uint16), "16-bit colour cannot be written"),
    ],
)
def test_values_that_are_not_images_are_rejected_with_a_remedy(value, said):
    with pytest.raises(FieldError, match=said):
        encode("png", value)


def test_palette_and_bilevel_images_are_written():
    palette = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).convert("P")
    expected = np.asarray(palette.convert("RGB"))
    assert (decode("png", encode("png", palette), names=("rgb8",)) == expected).all()
    assert np.abs(decode("jpg", encode("jpg", palette), names=("rgb8",)).astype(int) - expected).max() < 9
    mask = np.eye(5, dtype=bool)
    for suffix in ("png", "pbm", "jpg"):
        assert ((decode(suffix, encode(suffix, mask), names=("l8",)) > 127) == mask).all()


def test_a_json_text_is_checked_and_not_encoded_twice():
    text = json.dumps({"x": "ü", "y": [1, None]})
    for value in (text, text.encode(), memoryview(text.encode()), ' "hello"\n', b"12"):
        stored = value.encode() if isinstance(value, str) else bytes(value)
        assert encode("left.json", value) == encode("jsn", value) == stored
        assert gzip.decompress(encode("json.gz", value)) == stored
    packed = gzip.compress(b"{")
    assert encode("json.gz", packed) == packed
    for wrong in ("hello", "", b"", "{", b"\0\1", "[" * 100_000, "\ud800"):
        for name in ("json", "a.jsn", "json.zst"):
            with pytest.raises(FieldError, match=r"cannot be encoded: .*\[key k, field "):
                encode(name, wrong)
    with pytest.raises(FieldError, match=r"JSON already, and this is not: .*pass `json.dumps\(text\)`"):
        encode("json", "hello")
    own = FieldEncoder(JSON_VALUES)({"__key__": "k", "json": "hello", "a.jsn": b"{"})
    assert (own["json"], own["a.jsn"]) == (b'"hello"', b"{")


def test_json_values_are_encoded_and_null_is_one():
    for value in (None, ["\ud800"], [math.inf]):
        assert decode("json", encode("json", value)) == value
    assert json.loads(encode("json", {"a": np.float32(0.5), "b": np.arange(2), "c": torch.ones(1)})) == {
        "a": 0.5,
        "b": [0, 1],
        "c": [1.0],
    }


@pytest.mark.parametrize("value", [np.int32(7), np.array(7), torch.tensor(7), "7", True, 7])
def test_integers_can_have_several_types(value):
    assert decode("cls", encode("cls", value)) == int(value)


@pytest.mark.parametrize("value", [3.5, None, "x", [1], np.arange(2)])
def test_values_that_are_not_integers_are_rejected_on_write(value):
    with pytest.raises(FieldError, match=r"\[key k, field cls\]"):
        encode("cls", value)


def test_bytes_are_the_content_of_the_file():
    for name in ("png", "cls", "anything", "pkl"):
        assert encode(name, b"\0\1") == b"\0\1"
        assert encode(name, memoryview(b"\0\1")) == b"\0\1"


def test_gz_fields_are_compressed_unless_they_already_are():
    packed = encode("txt.gz", b"hello")
    assert gzip.decompress(packed) == b"hello"
    assert encode("txt.gz", packed) == packed
    assert gzip.decompress(gzip.decompress(encode("txt.gz.gz", "hello"))) == b"hello"
    assert encode("txt.gz", "hello") == packed
    assert decode("txt.gz", packed) == "hello"


@pytest.mark.parametrize("name", ["pkl", "pickle", "pyd", "left.pyd.gz"])
def test_pickles_are_rejected_unless_allowed(name):
    with pytest.raises(FieldError, match=r"stored as a pickle.*allow_pickle=True"):
        encode(name, "even text")
    assert decode(name, encode(name, [1, 2], allow_pickle=True)) == [1, 2]


def test_without_pickle_pth_holds_tensors_and_plain_containers_only():
    value = {"a": torch.arange(3), "b": [1, "x"]}
    back = SampleFields(secure=False)({"__key__": "k", "pth": encode("pth", value)})["pth"]
    assert same(value, back)
    with pytest.raises(FieldError, match=r"stored as a pickle.*only tensors and plain containers"):
        encode("pth", {"a": Fraction(1, 2)})
    assert decode("pth", encode("pth", Fraction(1, 2), allow_pickle=True)) == Fraction(1, 2)


@pytest.mark.parametrize("name", ["npy", "npz"])
def test_arrays_of_objects_are_rejected(name):
    array = np.array([{}, None], dtype=object)
    with pytest.raises(FieldError, match="objects, which npy stores as a pickle"):
        encode(name, array if name == "npy" else {"a": array})


def test_tenbin_is_deliberately_unsupported():
    with pytest.raises(FieldError, match="tenbin is not supported on purpose; use npy"):
        encode("ten", [np.arange(3)])


def test_a_value_without_an_encoder_is_an_error_that_names_key_and_field():
    with pytest.raises(
        FieldError, match=r"'foo' has no encoder .* type int.*encoder=.*\[key k, field a\.foo\]"
    ):
        encode("a.foo", 3)
    assert encode("foo", "text") == b"text"


def test_custom_encoders_take_precedence_longest_first():
    own = {"json": lambda value: b"mine", ".meta.json": lambda value: b"meta", "XYZ": lambda value: b"xyz"}
    encoder = FieldEncoder(own)
    sample = encoder({"__key__": "k", "json": 1, "a.meta.json": 1, "xyz": 1, "cls": 1, "json.gz": 1})
    assert gzip.decompress(sample["json.gz"]) == b"mine"
    assert [sample[name] for name in ("json", "a.meta.json", "xyz", "cls")] == [
        b"mine",
        b"meta",
        b"xyz",
        b"1",
    ]


def test_an_invalid_encoder_is_rejected():
    with pytest.raises(UsageError, match="use True, False, a dict"):
        make_encoder(7)


def test_the_same_array_gives_the_same_npz():
    assert encode("npz", {"file": np.arange(9)}) == encode("npz", {"file": np.arange(9)})
    assert list(np.load(io.BytesIO(encode("npz", {"file": np.arange(9)})))) == ["file"]
