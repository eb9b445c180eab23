"""`rename`, `missing`, and fields that later stages need or cannot see."""

from __future__ import annotations

from typing import Any

import pytest

from wdspec.base.errors import FieldError
from wdspec.fields.samples import SampleFields

PLACE = {"__key__": "0001", "__url__": "a-000000.tar", "__source__": "a"}


def sample_of(suffixes: str, **options: Any) -> dict[str, Any] | None:
    """What becomes of a sample whose files hold their own suffixes, without the place."""
    fields = SampleFields(options.pop("extensions", None), names=("raw",), **options)
    stored = {name: suffix.encode() for suffix in suffixes.split() if (name := fields.field_of(suffix))}
    sample = fields({**PLACE, **stored})
    return sample and {name: value for name, value in sample.items() if name not in PLACE}


def test_rename_uses_the_first_present_field_and_keeps_the_others() -> None:
    rename = {"image": ("png", "jpg")}
    assert sample_of("jpg cls", rename=rename) == {"image": b"jpg", "cls": b"cls"}
    assert sample_of("png cls", rename=rename) == {"image": b"png", "cls": b"cls"}


def test_unused_alternatives_are_dropped() -> None:
    assert sample_of("jpg png cls", rename={"image": ("png", "jpg")}) == {"image": b"png", "cls": b"cls"}


def test_names_can_be_swapped() -> None:
    assert sample_of("a b", rename={"a": ("b",), "b": ("a",)}) == {"a": b"b", "b": b"a"}


def test_one_file_can_become_two_fields() -> None:
    assert sample_of("jpg", rename={"image": ("jpg",), "copy": ("jpg",)}) == {"image": b"jpg", "copy": b"jpg"}


def test_rename_uses_the_names_set_by_extensions() -> None:
    options: dict[str, Any] = {"extensions": ["jpg;png", "txt"], "rename": {"image": ("jpg",)}}
    assert sample_of("png txt json", **options) == {"image": b"png", "txt": b"txt"}


def test_rename_finds_a_field_in_another_letter_case() -> None:
    assert sample_of("JPG", rename={"image": ("Jpg",)}) == {"image": b"JPG"}


def test_rename_never_overwrites_a_field_it_does_not_mention() -> None:
    with pytest.raises(FieldError, match="write `image: image;jpg`"):
        sample_of("jpg image", rename={"image": ("jpg",)})
    assert sample_of("jpg image", rename={"image": ("image", "jpg")}) == {"image": b"image"}


@pytest.mark.parametrize("missing", ["skip", "none"])
def test_a_name_clash_is_an_error_under_every_policy(missing: str) -> None:
    with pytest.raises(FieldError, match="already has one"):
        sample_of("jpg image", rename={"image": ("jpg",)}, missing=missing)


ASKED: list[dict[str, Any]] = [
    {"extensions": ["jpg", "txt"]},
    {"rename": {"txt": ("text", "transcript")}},
    {"required": ["jpg", "txt"]},
    {"required": ["txt;text"]},
]


@pytest.mark.parametrize("options", ASKED)
def test_a_missing_field_is_an_error_that_lists_existing_fields_and_a_remedy(options: dict[str, Any]) -> None:
    with pytest.raises(FieldError) as caught:
        sample_of("jpg", **options)
    assert "no field 'txt'" in str(caught.value)
    assert "it has 'jpg'" in str(caught.value)
    assert "missing: skip" in str(caught.value)
    assert caught.value.place == {"source": "a", "url": "a-000000.tar", "key": "0001", "field": "txt"}


@pytest.mark.parametrize("options", ASKED)
def test_missing_skip_drops_the_sample(options: dict[str, Any]) -> None:
    assert sample_of("jpg", **options, missing="skip") is None


@pytest.mark.parametrize("options", ASKED)
def test_missing_none_sets_the_value_to_none(options: dict[str, Any]) -> None:
    assert sample_of("jpg", **options, missing="none") == {"jpg": b"jpg", "txt": None}


def test_all_missing_fields_are_reported_at_once() -> None:
    with pytest.raises(FieldError, match=r"'jpg' \(and 'txt'\).*it has no other field of the fields"):
        sample_of("cls", extensions=["jpg", "txt"])


def test_fields_missing_from_extensions_but_renamed_are_none_under_their_new_name() -> None:
    options: dict[str, Any] = {"extensions": ["jpg", "txt"], "rename": {"text": ("txt",)}, "missing": "none"}
    assert sample_of("jpg", **options) == {"jpg": b"jpg", "text": None}


def test_one_of_the_required_alternatives_is_enough() -> None:
    assert sample_of("jpg text", required=["txt;text"]) == {"jpg": b"jpg", "text": b"text"}


def test_files_that_nothing_uses_are_not_read() -> None:
    fields = SampleFields(only=["image;photo", "cls"], rename={"image": ("jpg", "png")})
    wanted = ["jpg", "PNG", "image", "photo", "cls"]
    assert [fields.field_of(suffix) for suffix in wanted] == [suffix.lower() for suffix in wanted]
    assert fields.field_of("json") is None
    assert sample_of("jpg cls json", only=["cls"]) == {"cls": b"cls"}


def test_a_required_file_is_read_even_if_nothing_uses_it() -> None:
    options: dict[str, Any] = {"extensions": ["jpg;*.jpg", "txt", "seg.*"], "only": ["txt"]}
    assert sample_of("a.jpg txt seg.png", **options) == {"txt": b"txt"}
    assert SampleFields(options["extensions"], only=["txt"]).field_of("seg.png") is None
    with pytest.raises(FieldError, match="no field 'jpg'"):
        sample_of("txt", **options)
