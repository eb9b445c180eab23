"""The documented table of decoders is the one that decodes, and every entry of it works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from decoded import decode
from fieldfiles import whole_files
from PIL import Image

from wdspec.base.errors import UsageError
from wdspec.spec.language import values as vocabulary
from wdspec.spec.language.decoders import BASIC, BY_NAME, EXTRAS, FORMAT_OF, IMAGES
from wdspec.spec.reference import with_tables

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "decoders.md"


def test_the_page_is_generated_from_the_tables() -> None:
    page = PAGE.read_text()
    assert page == with_tables(page), "run `python -m wdspec.spec.reference docs/decoders.md`"
    assert len(re.findall("<!-- table: ", page)) == 4


def test_the_page_names_every_decoder_and_extension() -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", PAGE.read_text()))
    assert named >= vocabulary.DECODERS | vocabulary.LEFT_OUT_DECODERS | set(FORMAT_OF)


def test_every_decoder_has_a_file_in_the_tests() -> None:
    read = {name for row in BASIC if row.read and not row.left_out for name in row.names} - {
        "torch_safetensors"
    }
    extensions = {*FORMAT_OF, *BY_NAME["audio"].extensions, *BY_NAME["video"].extensions}
    assert read | extensions <= set(whole_files())


KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(BY_NAME["txt"].names, str),
    **dict.fromkeys(BY_NAME["cls"].names, int),
    **dict.fromkeys((*BY_NAME["json"].names, *BY_NAME["mp"].names, "cbor"), dict),
    "npy": np.ndarray,
    "npz": dict,
    "pth": dict,
    "safetensors": dict,
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_extension_selects_its_kind_by_default_and_by_name(name: str) -> None:
    data = whole_files()[name]
    for value in (decode(name, data), decode("bin", data, fields={"bin": name}), decode(f"a.{name}", data)):
        assert isinstance(value, KINDS[name])


@pytest.mark.parametrize("name", sorted(vocabulary.LEFT_OUT_DECODERS))
def test_tenbin_is_rejected(name: str) -> None:
    with pytest.raises(UsageError, match="tenbin, a format of webdataset only, is not supported on purpose"):
        decode(name, b"~TenBin~")
    assert decode(name, b"~TenBin~", fields={name: "raw"}) == b"~TenBin~"


@pytest.mark.parametrize("spec", sorted(name for row in IMAGES for name in row.names))
def test_each_image_decoder_returns_the_type_in_its_row(spec: str) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{spec}` |"))
    value = decode("png", whole_files()["png"], names=(spec,))
    if isinstance(value, Image.Image):
        assert row == f"| `{spec}` | `PIL.Image`, mode {value.mode} | |"
        return
    kind = "torch" if isinstance(value, torch.Tensor) else "numpy"
    dtype = str(value.dtype).removeprefix("torch.") + (" in 0..1" if "float" in str(value.dtype) else "")
    shape = str(tuple(value.shape)).replace("12", "height").replace("20", "width")
    assert row == f"| `{spec}` | {kind} {dtype} | {shape} |"


def test_extras_named_in_hints_exist() -> None:
    extras = re.findall(r"^(\w+) = \[", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(EXTRAS.values()) <= set(extras)


NEW_ROW = """
    DecoderRow(
        ("qp",),
        "the bytes of quoted-printable text",
        read="quopri:decodestring",
        write="quopri:encodestring",
        by_default=True,
        needs={"no_such_library": "mail"},
    ),
"""
USES_OF_IT = """
import array
import wdspec
from wdspec.spec.reference import with_tables
from wdspec.spec.language.decoders import require_libraries
from wdspec.fields.encode import make_encoder
from wdspec.fields.samples import SampleFields
from wdspec.spec.language.values import DECODERS

assert "qp" in DECODERS
spec = wdspec.load({"dataset": [{"shards": "a.tar", "extensions": "mail", "decode": {"mail": "qp"}}]})
assert spec.sources[0].decode.fields == {"mail": "qp"}
assert SampleFields()({"__key__": "k", "qp": b"h=C3=A9"})["qp"].decode() == "h\u00e9"
assert SampleFields(fields={"mail": "qp"})({"__key__": "k", "mail": b"a=3Db"})["mail"] == b"a=b"
assert make_encoder()({"qp": bytearray(b"kept")}) == {"qp": b"kept"}
assert make_encoder()({"qp": array.array("B", b"a=b")}) == {"qp": b"a=3Db"}
tables = with_tables("<!-- table: basic -->\\n<!-- end -->")
assert "| `qp` | the bytes of quoted-printable text | `wdspec[mail]` |" in tables
try:
    require_libraries("qp")
except wdspec.UsageError as error:
    assert "[mail]'" in str(error), error
else:
    raise AssertionError("no hint")
print("all of it")
"""


def python(code: str, *, package: Path) -> str:
    """What a fresh process prints that has the package of a folder."""
    done = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_decoder_is_one_table_row(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "wdspec", tmp_path / "wdspec", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "wdspec" / "spec" / "language" / "decoders.py"
    before = table.read_text()
    start = before.index("    _basic(")
    table.write_text(before[:start] + NEW_ROW.lstrip("\n") + before[start:])
    assert python(USES_OF_IT, package=tmp_path) == "all of it\n"


def test_a_spec_with_decoders_is_validated_without_their_libraries() -> None:
    code = """
import sys, wdspec
for name in ("rgb8", "torch", "npy", "audio", "video+torchcodec", "msgpack"):
    wdspec.load({"dataset": [{"shards": "a.tar", "decode": name}]})
print(sorted({"numpy", "PIL", "torch", "av", "soundfile", "msgpack", "wdspec.fields"} & set(sys.modules)))
"""
    assert python(code, package=REPOSITORY) == "[]\n"
