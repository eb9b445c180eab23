"""The documented table of decoders is the one that decodes, and every entry of it works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from decoded import decode
from fieldfiles import whole_files
from PIL import Image

from wdspec.errors import FieldError
from wdspec.fields.decoders.by_extension import BASIC
from wdspec.fields.decoders.images import IMAGE_SPECS
from wdspec.fields.decoders_page import decoders_text
from wdspec.spec.language import vocabulary

PAGE = Path(__file__).parents[2] / "docs" / "decoders.md"


def test_the_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text() == decoders_text(), (
        "run `python -m wdspec.fields.decoders_page > docs/decoders.md`"
    )


def test_the_page_names_every_decoder_and_extension() -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", decoders_text()))
    assert named >= vocabulary.DECODERS | vocabulary.LEFT_OUT_DECODERS | vocabulary.IMAGE_EXTENSIONS


def test_every_decoder_has_a_file_in_the_tests() -> None:
    read = {name for name, reader in BASIC.items() if reader.read} - {"torch_safetensors"}
    extensions = vocabulary.IMAGE_EXTENSIONS | vocabulary.AUDIO_EXTENSIONS | vocabulary.VIDEO_EXTENSIONS
    assert read | extensions <= set(whole_files())


KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(vocabulary.TEXT_DECODERS, str),
    **dict.fromkeys(vocabulary.INTEGER_DECODERS, int),
    **dict.fromkeys(vocabulary.JSON_DECODERS | vocabulary.PACKED_DECODERS, dict),
    "npy": np.ndarray,
    "npz": dict,
    "pth": dict,
    "safetensors": dict,
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_extension_gives_its_kind_by_default_and_by_name(name: str) -> None:
    data = whole_files()[name]
    for value in (decode(name, data), decode("bin", data, fields={"bin": name}), decode(f"a.{name}", data)):
        assert isinstance(value, KINDS[name])


@pytest.mark.parametrize("name", sorted(vocabulary.LEFT_OUT_DECODERS))
def test_tenbin_is_refused_aloud(name: str) -> None:
    with pytest.raises(FieldError, match="tenbin, a format of webdataset alone, is left out on purpose"):
        decode(name, b"~TenBin~")
    assert decode(name, b"~TenBin~", fields={name: "raw"}) == b"~TenBin~"


@pytest.mark.parametrize("spec", sorted(IMAGE_SPECS))
def test_each_image_decoder_gives_what_its_row_says(spec: str) -> None:
    row = next(line for line in decoders_text().splitlines() if line.startswith(f"| `{spec}` |"))
    value = decode("png", whole_files()["png"], names=(spec,))
    if isinstance(value, Image.Image):
        assert row == f"| `{spec}` | `PIL.Image`, mode {value.mode} | |"
        return
    kind = "torch" if isinstance(value, torch.Tensor) else "numpy"
    dtype = str(value.dtype).removeprefix("torch.") + (" in 0..1" if "float" in str(value.dtype) else "")
    shape = str(tuple(value.shape)).replace("12", "height").replace("20", "width")
    assert row == f"| `{spec}` | {kind} {dtype} | {shape} |"
