"""Behaviours 24 to 31: decoding, renaming, tuples."""

import io
import json

import msgpack
import numpy as np
import pytest
import torch
from PIL import Image

import wdspec as wds
from wdspec import FieldError


def encoded(array, form="PNG"):
    file = io.BytesIO()
    Image.fromarray(array).save(file, form)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def decoded(sample, *handlers, **options):
    (result,) = wds.DataPipeline([{"__key__": "k", **sample}]).decode(*handlers, **options)
    return result


PICTURE = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)


@pytest.mark.parametrize(
    ("spec", "container", "dtype", "shape"),
    [
        ("l8", np.ndarray, np.uint8, (4, 5)),
        ("rgb8", np.ndarray, np.uint8, (4, 5, 3)),
        ("rgba8", np.ndarray, np.uint8, (4, 5, 4)),
        ("l", np.ndarray, np.float32, (4, 5)),
        ("rgb", np.ndarray, np.float32, (4, 5, 3)),
        ("rgba", np.ndarray, np.float32, (4, 5, 4)),
        ("torchl8", torch.Tensor, torch.uint8, (4, 5)),
        ("torchrgb8", torch.Tensor, torch.uint8, (3, 4, 5)),
        ("torchrgba8", torch.Tensor, torch.uint8, (4, 4, 5)),
        ("torchl", torch.Tensor, torch.float32, (4, 5)),
        ("torchrgb", torch.Tensor, torch.float32, (3, 4, 5)),
        ("torch", torch.Tensor, torch.float32, (3, 4, 5)),
        ("torchrgba", torch.Tensor, torch.float32, (4, 4, 5)),
    ],
)
def test_24_image_specs_give_their_type_and_shape(spec, container, dtype, shape):
    image = decoded({"png": encoded(PICTURE)}, spec)["png"]
    assert isinstance(image, container)
    assert (image.dtype, tuple(image.shape)) == (dtype, shape)


def test_24_floats_agree_and_bytes_are_writable():
    png = encoded(PICTURE)
    array, tensor = decoded({"png": png}, "rgb")["png"], decoded({"png": png}, "torchrgb")["png"]
    assert np.array_equal(array, tensor.permute(1, 2, 0).numpy())
    image = decoded({"png": png}, "rgb8")["png"]
    image[0, 0, 0] = 255
    assert [decoded({"png": png}, spec)["png"].mode for spec in ("pill", "pil", "pilrgb", "pilrgba")] == [
        "L",
        "RGB",
        "RGB",
        "RGBA",
    ]


def test_25_fields_are_decoded_by_their_extension():
    import gzip

    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    sample = {
        "cls": b" 12\n", "id": b"3", "index": b"4", "inx": b"5", "txt": "ü".encode(), "text": b"b", "transcript": b"c",
        "json": b'{"a": [1]}', "jsn": b"1.5", "mp": msgpack.packb({"x": 1}), "npy": npy(array), "npz": npz(a=array),
        "txt.gz": gzip.compress(b"hello\n"),
    }  # fmt: skip
    result = decoded(sample)
    assert np.array_equal(result.pop("npy"), array)
    assert np.array_equal(result.pop("npz")["a"], array)
    assert result == {
        "__key__": "k", "cls": 12, "id": 3, "index": 4, "inx": 5, "txt": "ü", "text": "b", "transcript": "c",
        "json": {"a": [1]}, "jsn": 1.5, "mp": {"x": 1}, "txt.gz": "hello\n",
    }  # fmt: skip


def test_26_json_null_is_none():
    assert decoded({"json": b"null"})["json"] is None


def test_27_only_selects_the_decoded_fields():
    sample = {"cls": b"1", "jpg": encoded(PICTURE, "JPEG")}
    assert decoded(sample, "rgb8", only="cls")["cls"] == 1
    assert decoded(sample, "rgb8", only="cls")["jpg"] == sample["jpg"]
    inverse = decoded(sample, "rgb8", only=["jpg", "png"])
    assert (inverse["cls"], inverse["jpg"].shape) == (b"1", (4, 5, 3))


def test_28_a_handler_decodes_only_its_extensions():
    sample = {"a.seg.jpg": b"1", "JPG": b"2", "b.jpg": b"3"}
    seg = wds.handle_extension("seg.jpg", lambda data: "seg")
    assert decoded(sample, seg, wds.handle_extension("JPG", lambda data: "jpg")) == {
        "__key__": "k", "a.seg.jpg": "seg", "JPG": "jpg", "b.jpg": "jpg",
    }  # fmt: skip


def test_29_an_error_says_where_and_why(tar):
    url = tar(("a.png", b"no picture"))
    with pytest.raises(FieldError, match=rf"cannot decode.*not an image.*url {url}, key a, field png"):
        list(wds.WebDataset(url).decode("rgb"))


def test_29_failed_samples_are_skipped_on_request(x_tgz):
    def every_second(key, data):
        if key == ".png" and int(np.asarray(Image.open(io.BytesIO(data)))[0, 0, 0]) % 2:
            raise ValueError("odd")

    dataset = wds.WebDataset(x_tgz).decode(every_second, handler=wds.ignore_and_continue)
    assert len(list(dataset)) == 24


def test_30_rename_uses_the_first_alternative_and_keeps_other_fields():
    sample = {"__key__": "k", "__url__": "u", "png": 1, "jpg": 2, "cls": 3}
    pipeline = wds.DataPipeline([sample])
    assert list(pipeline.rename(image="png;jpg")) == [{"__key__": "k", "__url__": "u", "image": 1, "cls": 3}]
    assert list(pipeline.rename(image="jpeg;jpg", keep=False)) == [
        {"__key__": "k", "__url__": "u", "image": 2}
    ]
    with pytest.raises(FieldError, match="'bin'"):
        list(pipeline.rename(image="bin"))


def test_31_to_tuple_accepts_alternatives_and_names_missing_fields():
    pipeline = wds.DataPipeline([{"__key__": "k", "jpg": 1, "cls": 2}])
    assert list(pipeline.to_tuple("png;jpg cls")) == list(pipeline.to_tuple("png;jpg", "cls")) == [(1, 2)]
    with pytest.raises(FieldError, match="no field `txt`; it has: jpg, cls"):
        list(pipeline.to_tuple("txt"))
    assert list(pipeline.to_tuple("txt", "cls", missing_is_error=False)) == [(None, 2)]
    assert list(pipeline.to_tuple("txt", handler=wds.ignore_and_continue)) == []


def test_25_json_keeps_every_value_that_python_writes():
    assert decoded({"json": json.dumps({"a": None, "b": [1.5, "x"]}).encode()})["json"] == {
        "a": None,
        "b": [1.5, "x"],
    }
