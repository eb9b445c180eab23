"""Nothing runs what data says: every door that may lead to pickle, tried with a payload that would leave a file."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wdspec.fields.handlers import Decoder
from wdspec.fields.sample import SampleFields
from wdspec.spec.errors import FieldError, SpecError, UsageError


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
def test_no_door_unpickles(
    door: str, secure: bool, face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if secure:
        monkeypatch.setenv("WDS_SECURE", "1")
    suffix, pack = DOORS[door]
    made = tmp_path / "made"
    sample = {"__key__": "0001", suffix: pack(Payload(made))}
    decode = SampleFields() if face == "spec" else Decoder()
    with pytest.raises(FieldError, match="field"):
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
def test_no_map_of_names_leads_to_pickle(suffix: str, name: str) -> None:
    with pytest.raises(SpecError, match=r"allow: \[pickle\]"):
        SampleFields(fields={suffix: name}, secure=False)
    with pytest.raises(SpecError, match=r"allow: \[pickle\]"):
        SampleFields(names=(name,), secure=False)
    with pytest.raises(SpecError, match=r"allow: \[pickle\]"):
        Decoder(name)


@pytest.mark.parametrize("name", ["pkl", "pth"])
def test_secure_mode_cannot_be_talked_out_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    for options in ({"fields": {"x": name}}, {"names": (name,)}, {"allow_pickle": True}):
        with pytest.raises(SpecError):
            SampleFields(**options)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="WDS_SECURE=1 forbids"):
        Decoder(allow=("pickle",))


def test_a_refusal_says_what_to_do() -> None:
    sample = {"__key__": "0001", "__url__": "a.tar", "pyd": pickle.dumps(1)}
    with pytest.raises(FieldError, match=r"allow: \[pickle\].*raw.*\[url a.tar, key 0001, field pyd\]"):
        SampleFields(secure=False)(sample)
    with pytest.raises(FieldError, match=r"WDS_SECURE=1 forbids.*raw"):
        SampleFields(secure=True)(sample)
    assert SampleFields(fields={"pyd": "raw"}, secure=True)(sample) == sample


def test_a_pth_of_tensors_needs_no_consent_but_is_refused_under_secure_mode() -> None:
    data = torch_of({"a": torch.arange(3), "b": [1, "x"]})
    found = SampleFields(secure=False)({"pth": data})
    assert found is not None
    assert found["pth"]["a"].tolist() == [0, 1, 2]
    with pytest.raises(FieldError, match="WDS_SECURE=1"):
        SampleFields(secure=True)({"pth": data})


def test_a_pth_of_objects_names_the_remedy() -> None:
    with pytest.raises(FieldError, match=r"more than tensors.*allow: \[pickle\]"):
        SampleFields(secure=False)({"pth": torch_of({"a": object})})


@pytest.mark.parametrize("version", ["2.5.1+cpu", "2.9.1"])
def test_torch_before_the_holes_were_closed_does_not_read_pth(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(UsageError, match="CVE"):
        SampleFields(secure=False)({"pth": torch_of(torch.ones(1))})


def test_a_variable_that_makes_torch_careless_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(FieldError):
        SampleFields(secure=False)({"pth": torch_of(Payload(tmp_path / "made"))})
    assert not (tmp_path / "made").exists()
