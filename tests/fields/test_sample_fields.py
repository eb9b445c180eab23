"""Whole samples: which decoder a field gets, one factor for all images, layouts, errors, workers."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from wdspec.base.errors import FieldError, SpecError
from wdspec.fields.samples import MAX_LAYOUT_TEXT, MAX_LAYOUTS, SampleFields
from wdspec.spec.language.samples import Decode
from wdspec.spec.spec import Source

PLACE = {"__key__": "0001", "__url__": "a-000000.tar", "__source__": "a"}


def png(size: tuple[int, int] = (20, 10), mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 7).save(file, "PNG")
    return file.getvalue()


def values(raw: dict[str, bytes], factor: float | None = None, **options: Any) -> dict[str, Any]:
    sample = SampleFields(secure=False, **options)({**PLACE, **raw}, factor)
    assert sample is not None
    assert {name: sample.pop(name) for name in PLACE} == PLACE
    return sample


def test_by_default_fields_decode_by_extension_and_images_stay_bytes() -> None:
    raw = {"jpg": b"...", "left.cls": b"3", "json": b"null", "txt": b"hi", "bin": b"\0"}
    assert values(raw) == {"jpg": b"...", "left.cls": 3, "json": None, "txt": "hi", "bin": b"\0"}


def test_an_image_decoder_decodes_all_images_and_nothing_else() -> None:
    sample = values({"png": png(), "seg.png": png(), "cls": b"3", "bin": b"\0"}, names=("rgb8",))
    assert sample["png"].shape == sample["seg.png"].shape == (10, 20, 3)
    assert (sample["cls"], sample["bin"]) == (3, b"\0")


def test_raw_keeps_all_fields_that_no_earlier_decoder_takes_as_bytes() -> None:
    raw = {"png": png(), "cls": b"3"}
    assert values(raw, names=("raw",)) == raw
    assert values(raw, names=("l8", "raw"))["cls"] == b"3"
    assert values(raw, names=("l8", "raw"))["png"].shape == (10, 20)


def test_decode_keys_match_the_name_first_then_the_suffix_after_a_dot() -> None:
    raw = {"a.txt": b"1", "txt": b"2", "b.c.txt": b"3", "num": b"4"}
    fields = {"txt": "cls", "a.txt": "raw", "c.txt": "json", "num": "json"}
    assert values(raw, fields=fields) == {"a.txt": b"1", "txt": 2, "b.c.txt": 3, "num": 4}
    renamed = values({"b.txt": b"1"}, rename={"label": ("b.txt",)}, fields={"label": "json", "txt": "raw"})
    assert renamed == {"label": 1}


def test_decode_keys_match_the_original_suffix_of_a_renamed_field() -> None:
    assert values({"nrm.jpg": b"x"}, rename={"image": ("nrm.jpg",)}, fields={"jpg": "txt"}) == {"image": "x"}


def test_decode_ignores_the_letter_case_of_suffixes() -> None:
    assert values({"JPG": b"x"}, extensions=["JPG"], fields={"jpg": "txt"}) == {"JPG": "x"}
    assert values({"jpg": b"x"}, fields={"JPG": "txt"}) == {"jpg": "x"}


def test_only_the_images_of_a_sample_share_one_factor() -> None:
    raw = {"png": png((20, 10)), "seg.png": png((40, 20), "L"), "cls": b"3"}
    sample = values(raw, 0.5, names=("rgb8",), scales=True)
    assert sample["png"].shape == (5, 10, 3)
    assert sample["seg.png"].shape == (10, 20, 3)
    assert sample["cls"] == 3
    assert values(raw, None, names=("rgb8",), scales=True)["png"].shape == (10, 20, 3)


def test_scaling_decodes_images_that_nothing_else_decodes() -> None:
    assert values({"png": png()}, 0.5, scales=True)["png"].dtype == np.uint8
    sample = values({"png": png(), "ppm": png()}, 0.5, scales=True, fields={"png": "l"})
    assert (sample["png"].dtype, sample["ppm"].shape) == (np.float32, (5, 10, 3))


@pytest.mark.parametrize("name", ["seg.png", "a.MASK.png", "seg", "x.mask"])
def test_labels_are_rescaled_by_nearest_neighbour(name: str) -> None:
    labels = np.random.default_rng(0).integers(0, 2, (9, 9), dtype=np.uint8) * 255
    file = io.BytesIO()
    Image.fromarray(labels).save(file, "PNG")
    by_name = SampleFields(rename={name: ("png",)}, names=("l8",), scales=True)({"png": file.getvalue()}, 1.7)
    assert by_name is not None
    assert set(np.unique(by_name[name])) == {0, 255}
    by_suffix = values(
        {"seg.png": file.getvalue()}, 1.7, rename={"y": ("seg.png",)}, names=("l8",), scales=True
    )
    assert set(np.unique(by_suffix["y"])) == {0, 255}
    smooth = values({"segment.png": file.getvalue()}, 1.7, names=("l8",), scales=True)
    assert len(np.unique(smooth["segment.png"])) > 2


@pytest.mark.parametrize(
    "options",
    [
        {"names": ("raw",)},
        {"names": ("mylib:read",)},
        {"fields": {"jpg": "raw"}},
        {"fields": {"seg.png": "mylib:read"}},
        {"fields": {"image": "raw"}, "rename": {"image": ("jpg",)}},
    ],
)
def test_scaling_undecoded_images_is_rejected_at_construction(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="`scale` needs"):
        SampleFields(scales=True, secure=False, **options)
    SampleFields(scales=True, fields={"txt": "raw"})


def test_an_undecodable_image_is_reported_with_kind_and_place() -> None:
    with pytest.raises(FieldError, match=r"^cannot decode as jpeg: ") as caught:
        values({"left.jpg": b"junk"}, names=("rgb",))
    assert caught.value.place == {"source": "a", "url": "a-000000.tar", "key": "0001", "field": "left.jpg"}
    with pytest.raises(FieldError, match=r"^cannot decode as png: rescaling 20×10 by 1e\+06"):
        values({"png": png()}, 1e6, names=("rgb",), scales=True)


def test_a_bad_image_does_not_affect_the_next_sample() -> None:
    fields = SampleFields(names=("rgb8",))
    good = 0
    for index in range(47):
        try:
            good += fields({**PLACE, "png": b"junk" if index % 2 else png()}) is not None
        except FieldError:
            continue
    assert good == 24


def test_reserved_names_come_first_and_unchanged() -> None:
    raw = {**PLACE, "txt": b"x", "__offset__": 17, "json": b"1"}
    sample = SampleFields(extensions=["json", "txt"], rename={"a": ("txt",)})(raw)
    assert sample is not None
    assert list(sample.items()) == [*PLACE.items(), ("__offset__", 17), ("a", "x"), ("json", 1)]


@pytest.mark.parametrize("options", [{}, {"names": ("raw",)}, {"rename": {"label": ("cls",)}}])
def test_the_raw_sample_is_neither_changed_nor_returned(options: dict[str, Any]) -> None:
    raw = {**PLACE, "cls": b"3"}
    sample = SampleFields(**options)(raw)
    assert raw == {**PLACE, "cls": b"3"}
    assert sample is not raw


def test_hostile_layouts_do_not_accumulate() -> None:
    fields = SampleFields(missing="skip", required=("cls",))
    for index in range(3 * MAX_LAYOUTS):
        assert fields({"__key__": "k", f"x{index}": b""}) is None
    assert fields({"__key__": "k", "cls": b"1", "x" * MAX_LAYOUT_TEXT: b""})["cls"] == 1  # type: ignore[index]
    assert len(fields._layouts) <= MAX_LAYOUTS
    assert all(sum(map(len, names)) <= MAX_LAYOUT_TEXT for names in fields._layouts)


def test_a_cached_error_has_the_place_of_each_sample() -> None:
    fields = SampleFields(["jpg"])
    for key in ("a", "b"):
        with pytest.raises(FieldError, match=f"key {key}"):
            fields({"__key__": key})


@pytest.fixture
def mylib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable user module."""
    (tmp_path / "mylib_h.py").write_text(
        "print('imported')\n"
        "class Readers:\n    shout = staticmethod(lambda data: data.decode().upper())\n"
        "def fail(data): raise KeyError('page')\n"
        "constant = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mylib_h", raising=False)
    return tmp_path


def test_user_functions_decode_and_are_imported_on_first_use(
    mylib: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = SampleFields(fields={"txt": "mylib_h:Readers.shout"}, secure=False)
    fields = pickle.loads(pickle.dumps(fields))
    assert capsys.readouterr().out == ""
    for _ in range(2):
        assert fields({"__key__": "k", "txt": b"hi"}) == {"__key__": "k", "txt": "HI"}
    assert capsys.readouterr().out == "imported\n"
    pickle.loads(pickle.dumps(fields))


def test_an_error_in_a_user_function_is_a_field_error(mylib: Path) -> None:
    with pytest.raises(FieldError, match=r"^cannot decode as mylib_h:fail: KeyError: 'page'") as caught:
        values({"txt": b""}, names=("mylib_h:fail",))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("name", ["nosuchmodule_h:fn", "mylib_h:nothing", "mylib_h:constant"])
def test_a_function_that_cannot_be_imported_is_not_an_error_of_the_sample(mylib: Path, name: str) -> None:
    with pytest.raises(SpecError, match="decoder"):
        values({"txt": b""}, fields={"txt": name})


@pytest.mark.parametrize(
    "options", [{"fields": {"txt": "mylib:fn"}}, {"names": ("mylib:fn",)}, {"allow_pickle": True}]
)
def test_secure_mode_forbids_user_functions_and_pickle(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(SpecError, match="WDS_SECURE=1 forbids"):
        SampleFields(**options)
    monkeypatch.delenv("WDS_SECURE")
    SampleFields(**options)


def test_pickle_and_unknown_decoders_are_rejected_at_construction() -> None:
    with pytest.raises(SpecError, match=r"allow: \[pickle\]"):
        SampleFields(fields={"x": "pkl"})
    with pytest.raises(SpecError, match="unknown decoder 'rgb9'"):
        SampleFields(names=("rgb9",))
    with pytest.raises(SpecError, match="`missing` is"):
        SampleFields(missing="ignore")


def test_the_options_of_a_source_are_applied() -> None:
    source = Source(
        name="a",
        shards=("a.tar",),
        extensions=("png;jpg", "cls"),
        rename={"image": ("png",)},
        missing="none",
        decode=Decode(fields={"image": "l8"}),
        scale=(0.5, 2.0),
    )
    sample = SampleFields.of(source, allow=("pickle",), required=("image",))({**PLACE, "png": png()}, 0.5)
    assert sample is not None
    assert (sample["image"].shape, sample["cls"]) == ((5, 10), None)


def test_spawned_workers_produce_the_same_fields() -> None:
    fields = SampleFields(["png;jpg", "json"], rename={"image": ("png",)}, names=("rgb8",), scales=True)
    raw = {**PLACE, "png": png(), "json": json.dumps({"a": 1}).encode()}
    fields(raw)
    program = (
        "import pickle, sys; fields, raw = pickle.load(sys.stdin.buffer);"
        "sample = fields(raw, 0.5); print(sample['image'].shape, sample['json'])"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((fields, raw)), capture_output=True, check=True
    )
    assert child.stdout.decode().split() == ["(5,", "10,", "3)", "{'a':", "1}"]


def test_decoding_to_numpy_needs_no_torch() -> None:
    program = (
        "import sys; from wdspec.fields.samples import SampleFields; from PIL import Image; import io;"
        "b = io.BytesIO();"
        "Image.new('RGB', (2, 2)).save(b, 'PNG'); SampleFields(names=('rgb',))({'png': b.getvalue(), 'cls': b'1'});"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
