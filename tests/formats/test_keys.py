from __future__ import annotations

import pytest

from wdspec.formats.tar.reader import splitter
from wdspec.spec.language.samples import KeyRule

FIRST_DOT = [
    ("a.jpg", ("a", "jpg")),
    ("a.b.jpg", ("a", "b.jpg")),
    ("d.x/a.jpg", ("d.x/a", "jpg")),
    ("/some/path/22.0/1.1.png", ("/some/path/22.0/1", "1.png")),
    ("./a.jpg", ("./a", "jpg")),
    ("../a.jpg", ("../a", "jpg")),
    ("a.", ("a", "")),
    ("a..jpg", ("a", ".jpg")),
    ("a.JPG", ("a", "JPG")),
    ("d/.x/a.jpg", ("d/.x/a", "jpg")),
    ("a\nb.jpg\n", ("a\nb", "jpg\n")),
    ("__a.jpg", ("__a", "jpg")),
    ("__foo__.json", ("__foo__", "json")),
    ("x.__m__", ("x", "__m__")),
    ("d/__m__", None),
    ("d/__m__/x.json", ("d/__m__/x", "json")),
    (".hidden", None),
    (".hidden.jpg", None),
    ("d/.h.jpg", None),
    ("d/._a.jpg", None),
    ("d/.DS_Store", None),
    ("noext", None),
    ("d.x/noext", None),
    ("a.b/", None),
    ("", None),
    ("/", None),
    (".", None),
    ("__index__/x.json", None),
    ("__meta__", None),
    ("__a.b__", None),
    ("__", None),
]


@pytest.mark.parametrize(("name", "parts"), FIRST_DOT)
def test_a_name_splits_at_the_first_dot_of_its_base(name, parts):
    assert splitter(KeyRule())(name.encode()) == (parts and tuple(part.encode() for part in parts))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (b"a.b.jpg", (b"a.b", b"jpg")),
        (b"d.x/a.jpg", (b"d.x/a", b"jpg")),
        (b"a.", (b"a", b"")),
        (b"a..jpg", (b"a.", b"jpg")),
        (b"d.x/noext", None),
        (b"d/.h.jpg", None),
        (b"__index__/x.json", None),
        (b"", None),
    ],
)
def test_last_dot_splits_at_the_last(name, parts):
    assert splitter(KeyRule(kind="last_dot"))(name) == parts


def test_a_regex_matches_the_whole_name_with_a_group_for_key_and_suffix():
    split = splitter(KeyRule(kind="regex", regex=r"(?:.*/)?(\d+)_(\w+)[.]png"))
    assert split(b"x/17_mask.png") == (b"17", b"mask")
    assert split(b"17_mask.png~") is None
    assert split(b"d/.17_mask.png") is None


def test_names_that_are_not_utf8_keep_their_bytes():
    assert splitter(KeyRule(kind="regex", regex=r"(.)[.](.+)"))(b"\xff.\xfe\xfd") == (b"\xff", b"\xfe\xfd")
