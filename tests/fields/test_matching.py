"""The `extensions` grammar, and the members that the reader keeps."""

from __future__ import annotations

import pickle
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdspec.base.errors import SpecError
from wdspec.fields.extensions import Extensions, is_reserved
from wdspec.spec.language.decoders import endings


def read(extensions: Extensions, suffixes: list[str]) -> dict[str, str | None]:
    """Fields of a sample with these suffixes, as the reader and the matcher make them together."""
    stored = [name for suffix in suffixes if (name := extensions.field_of(suffix)) is not None]
    return extensions.choose(stored)


def test_without_extensions_every_file_is_kept_under_its_suffix_in_lower_case() -> None:
    extensions = Extensions(None)
    assert extensions.field_of("Seg.JPG") == "seg.jpg"
    assert read(extensions, ["JPG", "cls"]) == {"jpg": "jpg", "cls": "cls"}


@pytest.mark.parametrize("suffix", ["seg.jpg", "jpgx", "xjpg", "jpeg", ""])
def test_an_exact_suffix_matches_nothing_else(suffix: str) -> None:
    assert Extensions(["jpg"]).field_of(suffix) is None


def test_letter_case_of_files_is_ignored_and_fields_are_spelt_as_requested() -> None:
    assert Extensions(["nrm.jpg"]).field_of("NRM.Jpg") == "nrm.jpg"
    assert Extensions(["JPG"]).field_of("jpg") == "JPG"


def test_spaces_separate_fields_and_semicolons_alternatives() -> None:
    extensions = Extensions(["jpg;png txt"])
    assert read(extensions, ["png", "txt", "json"]) == {"jpg": "png", "txt": "txt"}
    assert read(extensions, ["png", "jpg"]) == {"jpg": "jpg", "txt": None}
    assert Extensions(["jpg;png", "txt"]) == extensions


def test_the_first_present_alternative_wins_in_any_shard_order() -> None:
    assert read(Extensions(["jpg;png"]), ["png", "jpg"]) == read(Extensions(["jpg;png"]), ["jpg", "png"])


def test_a_glob_keeps_every_match_under_its_own_name() -> None:
    assert read(Extensions(["*.jpg"]), ["a.jpg", "jpg", "B.c.JPG", "seg.png"]) == {
        "a.jpg": "a.jpg",
        "b.c.jpg": "b.c.jpg",
    }
    assert read(Extensions(["seg.*"]), ["seg.png", "seg", "x.seg.png"]) == {"seg.png": "seg.png"}


def test_a_glob_that_matches_nothing_is_not_a_missing_field() -> None:
    assert read(Extensions(["*.jpg"]), ["txt"]) == {}


def test_a_glob_as_an_alternative_stands_in_for_a_named_field() -> None:
    extensions = Extensions(["jpg;*.jpg"])
    assert read(extensions, ["jpg", "a.jpg"]) == {"jpg": "jpg"}
    assert read(extensions, ["a.jpg", "b.jpg"]) == {"a.jpg": "a.jpg", "b.jpg": "b.jpg"}
    assert read(extensions, ["txt"]) == {"jpg": None}


def test_a_file_that_matches_two_entries_goes_to_the_first() -> None:
    extensions = Extensions(["jpg;png png;ppm"])
    assert read(extensions, ["jpg", "png"]) == {"jpg": "jpg", "png": "png"}
    assert read(extensions, ["png", "ppm"]) == {"jpg": "png", "png": "ppm"}
    assert read(extensions, ["png"]) == {"jpg": "png", "png": None}


def test_a_glob_never_takes_the_file_of_a_named_entry() -> None:
    extensions = Extensions(["*.jpg", "seg.png;seg.jpg"])
    assert read(extensions, ["seg.jpg", "a.jpg"]) == {"seg.png": "seg.jpg", "a.jpg": "a.jpg"}


def test_a_glob_as_an_alternative_does_not_affect_other_entries() -> None:
    extensions = Extensions(["jpg;*", "png;ppm"])
    assert read(extensions, ["png", "txt"]) == {"txt": "txt", "png": "png"}
    assert read(extensions, ["png"]) == {"jpg": None, "png": "png"}


@pytest.mark.parametrize("entries", [["jpg jpg"], ["jpg", "JPG;png"], [";"], [""], [], ["__key__"], ["a a"]])
def test_impossible_entries_are_rejected(entries: list[str]) -> None:
    with pytest.raises(SpecError, match="`extensions`"):
        Extensions(entries)


def test_endings_start_after_dots() -> None:
    assert endings("a.seg.jpg") == ["a.seg.jpg", "seg.jpg", "jpg"]
    assert endings("jpg") == ["jpg"]


def test_reserved_names_are_enclosed_in_double_underscores() -> None:
    assert is_reserved("__url__")
    assert not any(map(is_reserved, ["__", "____", "__a", "a__", "_a_"]))


def test_matchers_work_in_spawned_workers() -> None:
    extensions = Extensions(["jpg;png seg.*"])
    extensions.field_of("png")
    assert pickle.loads(pickle.dumps(extensions)) == extensions


SUFFIX = st.sampled_from(["jpg", "png", "seg.jpg", "seg.png", "txt", "a.seg.jpg", "a", "b"])
SPELLING = st.one_of(
    SUFFIX, st.sampled_from(["*", "*.jpg", "seg.*", "?", "[ab]", "*.seg.*"]), SUFFIX.map(str.upper)
)
ENTRY = st.lists(SPELLING, min_size=1, max_size=3).map(";".join)


def slow_choice(entries: list[str], suffixes: list[str]) -> dict[str, str | None]:
    """The simplest implementation of the grammar: a list of files, and entries that remove some."""

    def is_glob(text: str) -> bool:
        return any(sign in text for sign in "*?[")

    left, fields = list(suffixes), {}
    names = {entry.split(";")[0].lower() for entry in entries}
    first = [entry.split(";") for entry in entries]
    for alternatives in [a for a in first if not is_glob(a[0])] + [a for a in first if is_glob(a[0])]:
        for text in alternatives:
            taken = [suffix for suffix in left if fnmatchcase(suffix, text.lower())]
            taken = [suffix for suffix in taken if not is_glob(text) or suffix not in names]
            for suffix in taken:
                left.remove(suffix)
                fields[suffix if is_glob(text) or is_glob(alternatives[0]) else alternatives[0]] = suffix
            if taken:
                break
        else:
            if not is_glob(alternatives[0]):
                fields[alternatives[0]] = None
    return fields


@given(st.lists(ENTRY, min_size=1, max_size=4), st.lists(SUFFIX, unique=True))
def test_matching_agrees_with_a_slow_obvious_implementation(entries: list[str], suffixes: list[str]) -> None:
    try:
        extensions = Extensions(entries)
    except SpecError:
        names = [entry.split(";")[0].lower() for entry in entries]
        assert len(set(names)) < len(names)
        return
    found = read(extensions, suffixes)
    assert {n: f and f.lower() for n, f in found.items()} == slow_choice(entries, suffixes)


@given(st.lists(ENTRY, min_size=1, max_size=4), SUFFIX)
def test_the_stored_name_is_the_suffix_except_for_letter_case(entries: list[str], suffix: str) -> None:
    try:
        extensions = Extensions(entries)
    except SpecError:
        return
    stored = extensions.field_of(suffix.upper())
    assert stored is None or stored.lower() == suffix
    assert (stored is None) == (not any(extensions.choose([suffix]).values()))
