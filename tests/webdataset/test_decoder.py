"""Decoding in Python: `Decoder` and handlers, as users of webdataset write them."""

from __future__ import annotations

import gzip
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import wdspec
from wdspec import Decoder, FieldError, SpecError, handle_extension
from wdspec.webdataset.autodecode import imagehandler


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (1, 2, 3)).save(file, "PNG")
    return file.getvalue()


def shout(data: bytes) -> str:
    return data.decode().upper()


def only_bin(key: str, data: bytes) -> Any:
    return len(data) if key == ".bin" else None


def test_names_and_extensions_decode_and_other_fields_stay() -> None:
    sample = {
        "__key__": b"k",
        "png": png(),
        "left.cls": b" 12\n",
        "txt.gz": gzip.compress(b"hi"),
        "bin": b"\0",
    }
    found = Decoder("rgb8")(sample)
    assert found["png"].shape == (3, 4, 3)
    assert {k: v for k, v in found.items() if k != "png"} == {
        "__key__": "k", "left.cls": 12, "txt.gz": "hi", "bin": b"\0",
    }  # fmt: skip
    assert sample["__key__"] == b"k", "the sample given is left alone"


@pytest.mark.parametrize(
    ("extensions", "taken"),
    [
        ("jpg", {"jpg", "JPG", "seg.jpg", "a.seg.jpg"}),
        ("seg.jpg", {"seg.jpg", "a.seg.jpg"}),
        (".png", {"png", "left.png"}),
        ("jpg .PNG", {"jpg", "JPG", "seg.jpg", "a.seg.jpg", "png", "left.png"}),
        (["seg.jpg", "png"], {"seg.jpg", "a.seg.jpg", "png", "left.png"}),
    ],
)
def test_an_extension_matches_names_that_end_in_it_after_a_dot(extensions: Any, taken: set[str]) -> None:
    sample = dict.fromkeys(["jpg", "JPG", "seg.jpg", "a.seg.jpg", "png", "left.png", "xjpg", "jpg.bin"], b"x")
    found = Decoder(handle_extension(extensions, shout))(sample)
    assert {name for name, value in found.items() if value == "X"} == taken


def test_the_first_handler_that_returns_a_value_wins() -> None:
    first = Decoder(only_bin, handle_extension("bin", shout))
    assert first({"bin": b"abc", "left.bin": b"abc"}) == {"bin": 3, "left.bin": "ABC"}
    assert Decoder(handle_extension("bin", shout), only_bin)({"bin": b"abc"}) == {"bin": "ABC"}
    assert Decoder([only_bin, "raw"])({"bin": b"abc", "cls": b"1"}) == {"bin": 3, "cls": b"1"}


def test_none_from_a_function_for_an_extension_is_its_value() -> None:
    assert Decoder(handle_extension("json", lambda data: None))({"json": b"1"}) == {"json": None}


def test_pre_replaces_unpacking_and_post_replaces_extensions() -> None:
    packed = gzip.compress(b"hi", mtime=0)
    assert Decoder(pre=[])({"txt.gz": packed, "cls": b"1"}) == {"txt.gz": packed, "cls": 1}
    assert Decoder(pre=[lambda key, data: key])({"txt.gz": packed}) == {"txt.gz": ".txt.gz"}
    assert Decoder(post=[])({"txt.gz": packed, "cls": b"1"}) == {"txt.gz": b"hi", "cls": b"1"}
    assert Decoder(only_bin, post=[lambda key, data: key])({"bin": b"x", "txt.gz": packed}) == {
        "bin": 1,
        "txt.gz": ".txt",
    }


def test_only_names_whole_fields() -> None:
    sample = {"cls": b"1", "left.cls": b"2", "txt": b"x"}
    assert Decoder(only="cls txt")(sample) == {"cls": 1, "left.cls": b"2", "txt": "x"}
    assert Decoder(only=["left.cls"])(sample) == {"cls": b"1", "left.cls": 2, "txt": b"x"}


def test_decoded_fields_are_an_error_unless_partial() -> None:
    decoder = Decoder()
    with pytest.raises(FieldError, match=r"a int cannot be decoded.*partial=True.*key k, field cls"):
        decoder(decoder({"__key__": "k", "cls": b"1"}))
    assert Decoder(partial=True)({"cls": 1, "txt": b"x"}) == {"cls": 1, "txt": "x"}
    assert Decoder()({"txt": bytearray(b"x"), "html": memoryview(b"y")}) == {"txt": "x", "html": "y"}


def test_a_failure_names_url_key_field_and_cause() -> None:
    with pytest.raises(FieldError) as caught:
        Decoder("rgb")({"__key__": "0007", "__url__": "a.tar", "left.png": b"junk"})
    assert str(caught.value) == (
        "cannot decode as png: 4 bytes that start with b'junk': damaged, or not an image of a supported format "
        "[url a.tar, key 0007, field left.png]"
    )
    assert caught.value.__cause__ is not None


def test_image_handlers_take_image_extensions_or_those_named() -> None:
    found = Decoder(imagehandler("torchrgb8"))({"png": png(), "x.png": png(), "mpg": b"?"})
    assert isinstance(found["x.png"], torch.Tensor)
    assert (found["png"].shape, found["mpg"]) == ((3, 3, 4), b"?")
    assert isinstance(Decoder(imagehandler("l", ["img"]))({"img": png()})["img"], np.ndarray)
    for spec in ("json", "rgb9", "RGB"):
        with pytest.raises(SpecError):
            imagehandler(spec)


@pytest.mark.parametrize("arguments", [("rgb9",), ("ten",), ("pkl",)])
def test_unknown_decoders_are_rejected_at_construction(arguments: tuple[str]) -> None:
    with pytest.raises(SpecError):
        Decoder(*arguments)


def test_an_empty_list_of_extensions_is_rejected() -> None:
    for extensions in ("", [], "."):
        with pytest.raises(SpecError, match="no extension"):
            handle_extension(extensions, shout)


def test_decoders_can_be_pickled() -> None:
    decoder = Decoder("rgb8", only_bin, handle_extension("txt", shout))
    sample = {"png": png(), "txt": b"x", "bin": b"yy"}
    decoder(sample)
    found = pickle.loads(pickle.dumps(decoder))(sample)
    assert (found["png"].shape, found["txt"], found["bin"]) == ((3, 4, 3), "X", 2)


def test_the_names_of_the_library_exist() -> None:
    for name in ("Decoder", "handle_extension", "torch_audio", "torch_video"):
        assert callable(getattr(wdspec, name))
    assert wdspec.torch_audio(".jpg", b"") is None
    assert wdspec.torch_video(".flac", b"") is None
