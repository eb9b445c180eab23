"""MessagePack, CBOR, safetensors and torch files."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import cbor2
import msgpack
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from decoded import decode
from fieldfiles import VALUE, npy, pth
from hiding import hide_library

from wdspec.base.errors import FieldError, UsageError


@pytest.mark.parametrize("suffix", ["mp", "msg", "msgpack", "meta.mp"])
def test_messagepack_decodes_to_its_value(suffix: str) -> None:
    assert decode(suffix, msgpack.packb(VALUE)) == VALUE
    assert decode(suffix, msgpack.packb({1: b"\0\xff", "t": (1, 2)})) == {1: b"\0\xff", "t": [1, 2]}


def test_cbor_decodes_to_its_value() -> None:
    assert decode("cbor", cbor2.dumps(VALUE)) == VALUE
    assert decode("cbor", cbor2.dumps({"big": 2**70, "bytes": b"\0", 1: None})) == {
        "big": 2**70,
        "bytes": b"\0",
        1: None,
    }


@pytest.mark.parametrize(("suffix", "dumps"), [("mp", msgpack.packb), ("cbor", cbor2.dumps)])
@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""])
def test_anything_but_exactly_one_object_is_an_error(
    suffix: str, dumps: Any, spoil: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(FieldError, match=f"cannot decode as {suffix}: .*field {suffix}"):
        decode(suffix, spoil(dumps(VALUE)))


@pytest.mark.parametrize(
    ("suffix", "data"),
    [("mp", b"\x91" * 100_000), ("cbor", b"\x81" * 100_000), ("mp", b"\xdd\xff\xff\xff\xff")],
)
def test_absurd_nesting_and_lengths_are_errors(suffix: str, data: bytes) -> None:
    with pytest.raises(FieldError):
        decode(suffix, data)


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [
        ("mp", "msgpack", "formats"),
        ("cbor", "cbor2", "formats"),
        ("safetensors", "safetensors.numpy", "safetensors"),
    ],
)
def test_a_missing_library_is_not_an_error_of_the_sample(
    suffix: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_library(monkeypatch, module)
    with pytest.raises(UsageError, match=rf"pip install .*\[{extra}\]'.*key 0001, field {suffix}"):
        decode(suffix, b"")


def test_safetensors_are_a_dict_of_writable_arrays() -> None:
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array([True, False])}
    found = decode("safetensors", safetensors.numpy.save(arrays))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].tolist()) == (array.dtype, array.tolist())
    found["a"][0, 0] = 7


def test_safetensors_as_tensors_keep_types_that_numpy_lacks() -> None:
    data = safetensors.torch.save({"a": torch.tensor([1.5, -2], dtype=torch.bfloat16)})
    found = decode("safetensors", data, names=("torch_safetensors",))["a"]
    assert (found.dtype, found.tolist()) == (torch.bfloat16, [1.5, -2.0])
    assert (
        decode("safetensors", data, fields={"safetensors": "torch_safetensors"})["a"].dtype == torch.bfloat16
    )
    with pytest.raises(FieldError, match="torch_safetensors"):
        decode("safetensors", data)


def test_torch_files_load_to_the_cpu() -> None:
    found = decode("pth", pth())
    assert found["a"].device.type == "cpu"
    assert (found["a"].tolist(), found["b"]) == ([[0, 1, 2], [3, 4, 5]], [1, "x"])


def test_the_error_for_a_torch_file_without_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"reading pth needs torch, which .*\[torch\]"):
        decode("pth", b"")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "dtype", ["<f4", ">f4", "|b1", "<i8", "<U5", "|S3", "<c16", "<M8[s]", [("x", "<i4"), ("y", "|S2")]]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_npy_returns_the_same_as_numpy(shape: tuple[int, ...], dtype: Any, order: Any) -> None:
    array = np.zeros(shape, dtype, order)
    if array.size and isinstance(dtype, str) and array.dtype.kind in "fic":
        array[...] = np.arange(array.size).reshape(shape)
    data = npy(array)
    found, expected = decode("npy", data), np.load(io.BytesIO(data))
    assert (found.dtype, found.shape, found.flags.f_contiguous) == (
        expected.dtype,
        expected.shape,
        expected.flags.f_contiguous,
    )
    assert np.array_equal(found, expected)
    assert found.flags.writeable


def header(shape: str, dtype: str = "'<f8'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "shape", ["(10**12,)", "(1000000000000,)", "(-1,)", "(2, -3)", "(4294967296, 4294967296, 0)"]
)
def test_an_npy_with_a_too_large_header_allocates_no_memory(shape: str) -> None:
    with pytest.raises(FieldError, match="cannot decode as npy"):
        decode("npy", header(shape) + b"12345678")


@pytest.mark.parametrize("shape", ["(1)", "(,)", "(1,,)", "(1,2,)", "1,", "(1, )x"])
def test_a_header_that_numpy_rejects_is_rejected(shape: str) -> None:
    data = header(shape) + b"12345678"
    try:
        expected: Any = np.load(io.BytesIO(data))
    except ValueError:
        with pytest.raises(FieldError, match="cannot decode as npy"):
            decode("npy", data)
    else:
        assert np.array_equal(decode("npy", data), expected)


def test_an_npz_keeps_members_that_are_not_arrays() -> None:
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", npy(np.arange(2)))
        archive.writestr("readme.txt", b"hello")
    found = decode("npz", file.getvalue())
    assert (found["a"].tolist(), found["readme.txt"]) == ([0, 1], b"hello")


def test_arrays_of_objects_must_be_allowed() -> None:
    array = np.empty(2, dtype=object)
    array[:] = [{"a": 1}, "x"]
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    with pytest.raises(FieldError, match=r"Python objects.*allow: \[pickle\]"):
        decode("npy", file.getvalue())
    assert decode("npy", file.getvalue(), allow_pickle=True).tolist() == [{"a": 1}, "x"]
    file = io.BytesIO()
    np.savez(file, a=array, b=np.ones(1))
    with pytest.raises(FieldError, match=r"Python objects"):
        decode("npz", file.getvalue())
    assert decode("npz", file.getvalue(), allow_pickle=True)["a"].tolist() == [{"a": 1}, "x"]
