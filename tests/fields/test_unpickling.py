"""Data never runs code: every way to pickle, tried with a payload that would leave a file."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import msgpack
import numpy as np
import pytest
import torch

import wdspec
from wdspec import Decoder
from wdspec.base.errors import FieldError, SpecError, UsageError
from wdspec.fields.samples import SampleFields


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def npy_of(value: Any) -> bytes:
    array = np.empty(1, dtype=object)
    array[0] = value
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz_of(value: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", npy_of(value))
    return file.getvalue()


def torch_of(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


DOORS: dict[str, tuple[str, Callable[[Any], bytes]]] = {
    "pyd": ("pyd", pickle.dumps),
    "pkl": ("pkl", pickle.dumps),
    "pickle": ("pickle", pickle.dumps),
    "a component": ("left.pkl", pickle.dumps),
    "upper case": ("PKL", pickle.dumps),
    "packed": ("pkl.gz", lambda value: gzip.compress(pickle.dumps(value))),
    "npy": ("npy", npy_of),
    "npz": ("npz", npz_of),
    "pth": ("pth", torch_of),
    "legacy pth": ("pth", lambda value: torch_of(value, _use_new_zipfile_serialization=False)),
    "a pickle called pth": ("pth", pickle.dumps),
    "a pickle called npy": ("npy", pickle.dumps),
    "a pickle called json": ("json", pickle.dumps),
    "a pickle called cbor": ("cbor", pickle.dumps),
    "a pickle called mp": ("mp", pickle.dumps),
    "a pickle called safetensors": ("safetensors", pickle.dumps),
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("secure", [False, True], ids=["by default", "WDS_SECURE=1"])
@pytest.mark.parametrize("face", ["spec", "python"])
def test_no_way_in_unpickles(
    door: str, secure: bool, face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if secure:
        monkeypatch.setenv("WDS_SECURE", "1")
    suffix, pack = DOORS[door]
    made = tmp_path / "made"
    sample = {"__key__": "0001", suffix: pack(Payload(made))}
    decode = SampleFields() if face == "spec" else Decoder()
    with pytest.raises((FieldError, UsageError), match="field"):
        decode(sample)
    assert not made.exists()


@pytest.mark.parametrize(
    "door", ["pyd", "pkl", "pickle", "a component", "packed", "npy", "npz", "pth", "legacy pth"]
)
@pytest.mark.parametrize("face", ["spec", "python"])
def test_the_same_payloads_run_when_pickle_is_allowed(door: str, face: str, tmp_path: Path) -> None:
    suffix, pack = DOORS[door]
    made = tmp_path / "made"
    data = pack(Payload(made))
    decode = SampleFields(allow_pickle=True, secure=False) if face == "spec" else Decoder(allow=("pickle",))
    decode({"__key__": "0001", suffix: data})
    assert made.exists()


@pytest.mark.parametrize("suffix", ["x", "jpg", "txt", "pkl", "npy"])
@pytest.mark.parametrize("name", ["pkl", "pickle", "pyd"])
def test_no_decoder_name_leads_to_pickle(suffix: str, name: str) -> None:
    with pytest.raises(SpecError, match=r"allow: \[pickle\]"):
        SampleFields(fields={suffix: name}, secure=False)
    with pytest.raises(SpecError, match=r"allow: \[pickle\]"):
        SampleFields(names=(name,), secure=False)
    with pytest.raises(SpecError, match=r"in Python: `decode\(allow=\['pickle'\]\)`"):
        Decoder(name)


@pytest.mark.parametrize("name", ["pkl", "pth"])
def test_secure_mode_cannot_be_overridden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    for options in ({"fields": {"x": name}}, {"names": (name,)}, {"allow_pickle": True}):
        with pytest.raises(SpecError):
            SampleFields(**options)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="WDS_SECURE=1 forbids"):
        Decoder(allow=("pickle",))


def test_a_rejection_explains_the_remedy() -> None:
    sample = {"__key__": "0001", "__url__": "a.tar", "pyd": pickle.dumps(1)}
    with pytest.raises(UsageError, match=r"allow: \[pickle\].*raw.*\[url a.tar, key 0001, field pyd\]"):
        SampleFields(secure=False)(sample)
    with pytest.raises(UsageError, match=r"WDS_SECURE=1 forbids.*raw"):
        SampleFields(secure=True)(sample)
    assert SampleFields(fields={"pyd": "raw"}, secure=True)(sample) == sample


def test_a_pth_of_tensors_is_allowed_except_in_secure_mode() -> None:
    data = torch_of({"a": torch.arange(3), "b": [1, "x"]})
    found = SampleFields(secure=False)({"pth": data})
    assert found is not None
    assert found["pth"]["a"].tolist() == [0, 1, 2]
    with pytest.raises(UsageError, match="WDS_SECURE=1"):
        SampleFields(secure=True)({"pth": data})


def test_the_error_for_a_pth_of_objects_names_the_remedy() -> None:
    with pytest.raises(FieldError, match=r"more than tensors.*allow: \[pickle\]"):
        SampleFields(secure=False)({"pth": torch_of({"a": object})})


@pytest.mark.parametrize("version", ["2.5.1+cpu", "2.9.1"])
def test_vulnerable_torch_versions_do_not_read_pth(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(UsageError, match="CVE"):
        SampleFields(secure=False)({"pth": torch_of(torch.ones(1))})


def test_a_variable_that_weakens_torch_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(FieldError):
        SampleFields(secure=False)({"pth": torch_of(Payload(tmp_path / "made"))})
    assert not (tmp_path / "made").exists()


def ext_types(payload: bytes) -> Iterator[tuple[str, bytes]]:
    """CBOR of every tag, and MessagePack of every extension type, about the bytes of a pickle."""
    for tag in range(1100):
        yield f"cbor tag {tag}", cbor2.dumps(cbor2.CBORTag(tag, payload))
    for code in range(128):
        yield f"mp type {code}", msgpack.packb(msgpack.ExtType(code, payload))


@pytest.mark.parametrize("secure", ["", "1"], ids=["by default", "WDS_SECURE=1"])
def test_cbor_tags_and_messagepack_extensions_never_unpickle(
    secure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDS_SECURE", secure)
    made = tmp_path / "made"
    decoders = (SampleFields(), Decoder())
    for name, data in ext_types(pickle.dumps(Payload(made))):
        for decode in decoders:
            with contextlib.suppress(FieldError):
                decode({"__key__": name, name.split()[0]: data})
    assert not made.exists()


@pytest.mark.parametrize("secure", ["", "1"], ids=["by default", "WDS_SECURE=1"])
@pytest.mark.parametrize("suffix", ["cbors", "mps", "jsonl"])
def test_record_sequences_never_unpickle(
    suffix: str, secure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDS_SECURE", secure)
    made = tmp_path / "made"
    payload = pickle.dumps(Payload(made))
    pack: Callable[[Any], bytes] = {"cbors": cbor2.dumps, "mps": msgpack.packb}.get(
        suffix, lambda record: json.dumps({**record, "pyd": record["pyd"].hex()}).encode() + b"\n"
    )
    (tmp_path / f"x.{suffix}").write_bytes(pack({"__key__": "a", "pyd": payload}))
    dataset = wdspec.WebDataset(str(tmp_path / f"x.{suffix}"))
    assert len(list(dataset)) == 1
    with pytest.raises((FieldError, UsageError)):
        list(dataset.decode())
    (tmp_path / f"y.{suffix}").write_bytes(payload)
    with pytest.raises(wdspec.WdspecError):
        list(wdspec.WebDataset(str(tmp_path / f"y.{suffix}")))
    assert not made.exists()


@pytest.mark.parametrize("secure", ["", "1"], ids=["by default", "WDS_SECURE=1"])
def test_a_map_of_functions_never_enables_pickle(
    secure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """webdataset's `xdecode` unpickles `pyd` by itself, and its chains of handlers end in readers that do."""
    monkeypatch.setenv("WDS_SECURE", secure)
    made = tmp_path / "made"
    sample = {"__key__": "a", "pyd": pickle.dumps(Payload(made)), "left.pkl": pickle.dumps(Payload(made))}
    pipeline = wdspec.DataPipeline([sample])
    assert list(pipeline.xdecode(must_decode=False)) == [sample]
    with pytest.raises(FieldError, match="xdecode"):
        list(pipeline.xdecode(cls=json.load))
    for handlers in (
        [lambda key, data: None],
        [wdspec.handle_extension("cls", int)],
        ["rgb8", "torch_audio"],
    ):
        with pytest.raises(UsageError, match="pickle"):
            list(pipeline.decode(*handlers))
    assert list(pipeline.decode(post=[])) == [sample]
    assert not made.exists()


@pytest.mark.parametrize("secure", ["", "1"], ids=["by default", "WDS_SECURE=1"])
@pytest.mark.parametrize("form", ["array", "tensor", "json", "bytes"])
def test_samples_in_a_database_never_unpickle(
    form: str, secure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDS_SECURE", secure)
    made = tmp_path / "made"
    cached = wdspec.DataPipeline([{"__key__": "a", "x": b"1"}]).compose(wdspec.DBCache, tmp_path / "db", 1)
    assert len(list(cached)) == 1
    payload = npy_of(Payload(made)) if form in ("array", "tensor") else pickle.dumps(Payload(made))
    header = json.dumps(["dict", [["x", form, len(payload)]]]).encode()
    with contextlib.closing(sqlite3.connect(tmp_path / "db")) as database, database:
        hostile = len(header).to_bytes(4, "little") + header + payload
        assert database.execute("UPDATE samples SET data = ?", (hostile,)).rowcount == 1
    if form == "bytes":
        assert list(cached) == [{"x": payload}]
    else:
        with pytest.raises(Exception, match=r"pickle|Expecting|decode|codec"):
            list(cached)
    assert not made.exists()


def test_safetensors_are_always_numbers(tmp_path: Path) -> None:
    made = tmp_path / "made"
    payload = pickle.dumps(Payload(made))
    for dtype in ("O", "object", "U8", "BF16"):
        entry = {"x": {"dtype": dtype, "shape": [len(payload)], "data_offsets": [0, len(payload)]}}
        header = json.dumps({**entry, "__metadata__": {"pickle": payload.hex()}}).encode()
        data = len(header).to_bytes(8, "little") + header + payload
        for decode in (SampleFields(), Decoder()):
            with contextlib.suppress(FieldError):
                decode({"__key__": "a", "safetensors": data})
    assert not made.exists()
