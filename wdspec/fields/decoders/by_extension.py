"""The table of decoders that go by the extension: what reads a file of each, if a spec says nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from wdspec.fields.decoders.json_text import read_json
from wdspec.fields.decoders.msgpack_and_cbor import read_cbor, read_msgpack
from wdspec.fields.decoders.numpy_files import read_numpy
from wdspec.fields.decoders.pickles import read_numpy_objects, read_pickle, read_torch_objects
from wdspec.fields.decoders.tensors import read_safetensors, read_torch, read_torch_safetensors
from wdspec.spec.language.vocabulary import (
    INTEGER_DECODERS,
    JSON_DECODERS,
    LEFT_OUT_DECODERS,
    NUMPY_DECODERS,
    PICKLE_DECODERS,
    TEXT_DECODERS,
)


def read_text(data: bytes) -> str:
    """UTF-8 text, byte for byte: neither a newline nor a byte order mark is dropped."""
    return data.decode("utf-8")


class Reader(NamedTuple):
    """How files of some extension are read."""

    read: Callable[[bytes], Any] | None
    """Bytes → value, safe on any data; None where there is none without pickle."""
    gives: str
    """What comes out, for the documentation."""
    trusting: Callable[[bytes], Any] | None = None
    """The reader under ``allow: [pickle]``, where that is another one: it may run what the data says."""
    needs: str = ""
    """The library that must be installed, if one must."""
    by_default: bool = True
    """Whether fields of this extension are read so where `decode` is left out."""


_PICKLED = "any Python object; refused without `allow: [pickle]`"

BASIC: dict[str, Reader] = {
    **dict.fromkeys(sorted(TEXT_DECODERS), Reader(read_text, "`str`: UTF-8, kept to the letter")),
    **dict.fromkeys(sorted(INTEGER_DECODERS), Reader(int, "`int`; spaces and newlines around it are fine")),
    **dict.fromkeys(sorted(JSON_DECODERS), Reader(read_json, "what the JSON says; `null` is None")),
    **dict.fromkeys(
        sorted(NUMPY_DECODERS),
        Reader(read_numpy, "a writable numpy array, or for npz a dict of them", read_numpy_objects),
    ),
    **dict.fromkeys(("mp", "msg", "msgpack"), Reader(read_msgpack, "the MessagePack value", needs="msgpack")),
    "cbor": Reader(read_cbor, "the CBOR value", needs="cbor2"),
    "pth": Reader(
        read_torch,
        "tensors and plain containers on the CPU (`weights_only`, from torch 2.10 on)",
        read_torch_objects,
        needs="torch",
    ),
    "safetensors": Reader(read_safetensors, "a dict of numpy arrays", needs="safetensors"),
    "torch_safetensors": Reader(read_torch_safetensors, "a dict of torch tensors", needs="safetensors"),
    **dict.fromkeys(sorted(PICKLE_DECODERS), Reader(None, _PICKLED, read_pickle)),
}
"""Extension, which is also the decoder's name → its reader."""


def reader_of(name: str, allow_pickle: bool, secure: bool) -> Callable[[bytes], Any]:
    """The function that reads files of an extension of the table, or one that refuses to.

    A refusal is an error of each sample that has such a file, and says what a spec can do about it.
    """
    if name in LEFT_OUT_DECODERS:
        return partial(refuse_tenbin, name)
    reader = BASIC[name]
    if allow_pickle and reader.trusting is not None:
        return reader.trusting
    if reader.read is None or (secure and name == "pth"):
        return partial(refuse_pickle, name, secure)
    return reader.read


def refuse_pickle(name: str, secure: bool, data: bytes) -> Any:
    """Raises ValueError: nobody said that pickles may be read, or nobody may."""
    consent = "which WDS_SECURE=1 forbids;" if secure else "so it needs your consent, `allow: [pickle]`; or"
    raise ValueError(
        f"a pickle can run code hidden in the data, {consent} leave it out by `extensions`, or keep the bytes by "
        f"`decode: {{{name}: raw}}`"
    )


def refuse_tenbin(name: str, data: bytes) -> Any:
    """Raises ValueError: there is no reader on purpose."""
    raise ValueError(
        f"tenbin, a format of webdataset alone, is left out on purpose; keep the bytes by `decode: {{{name}: raw}}` "
        "and read them in `map`, or store arrays as npz or safetensors"
    )
