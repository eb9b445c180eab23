"""Sources from a table, `dataset: "@sources.csv"`, and from folders, `each: folder`: what they are written out."""

import os

import pytest

import wdspec
from wdspec.base.errors import SpecError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_shards(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def load_table(folder, text, name="sources.csv", **keys):
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return wdspec.load({"dataset": f"@{name}", **keys})


def problems_of(folder, text, name="sources.csv", **keys):
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    found = wdspec.validate({"dataset": f"@{name}", **keys})
    return [(each.code, each.file, each.line, each.column) for each in found]


def test_a_table_means_the_sources_that_one_would_write(folder):
    written = [
        {"name": "en", "shards": "en-{0..3}.tar", "samples": 400, "license": "CC-BY", "weight": 1.5},
        {"name": "007", "shards": "de, old/*.tar", "weight": 2},
    ]
    table = 'name,shards,samples,license,weight\nen,en-{0..3}.tar,400,CC-BY,1.5\n\n007,"de, old/*.tar",,,2\n'
    found, expected = load_table(folder, table), wdspec.load({"dataset": written})
    assert [each.model_dump() for each in found.sources] == [each.model_dump() for each in expected.sources]


def test_a_table_may_have_tabs_windows_line_ends_and_variables_and_stand_in_a_nested_mix(folder):
    (folder / "lists").mkdir()
    text = "name\tshards\r\na\t${root}/a, 1.tar\r\nb\tb.tar\r\n"
    (folder / "lists/all.tsv").write_bytes(text.encode())
    mix = {"name": "web", "mix": {"by": "shards"}, "dataset": "@lists/all.tsv"}
    found = wdspec.load({"vars": {"root": "data"}, "dataset": [mix], "defaults": {"shuffle": 7}})
    assert [(each.name, each.shards, each.shuffle) for each in found.sources] == [
        ("a", ("data/a, 1.tar",), 7),
        ("b", ("b.tar",), 7),
    ]
    assert found.sources[1].base == str(folder / "lists")
    assert wdspec.validate({"vars": {"root": "data"}, "dataset": [mix]}) == []


def test_sources_of_a_table_are_changed_by_name_and_mixed_by_size(folder):
    text = "name,shards,samples\na,a.tar,100\nb,b.tar,900\nc,c.tar,900\n"
    changes = {"sources": {"c": None, "b": {"shuffle": 5}}, "mix": {"by": "samples", "temperature": 2}}
    found = load_table(folder, text, **changes)
    assert [(each.name, each.shuffle) for each in found.sources][1] == ("b", 5)
    assert [float(each.share) for each in wdspec.plan(found).sources] == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name,shards,wieght\na,a.tar,1\n", [("E201", 1, 13)]),
        ("name,shards,name\na,a.tar,b\n", [("E201", 1, 1), ("E201", 1, 13)]),
        ("root:x:0:0\nsecret:y\n", [("E201", 1, 1)]),
        ("name,weight\na,1\n", [("E206", 1, 1)]),
        ("name,shards\na,\nb,b.tar\n", [("E206", 2, 3)]),
        ("name,shards\na,a.tar\n,b.tar\n", [("E206", 3, 1)]),
        ("name,shards,weight\na,a.tar,1\nb,b.tar,\n", [("E301", 3, 3)]),
        ("name,shards\na,a.tar\na,b.tar\n", [("E304", 3, 1)]),
        ("name,shards,weight\na,a.tar,x\nb,b.tar,-2\n", [("E202", 2, 9), ("E204", 3, 9)]),
        ("name,shards,weight\na,a.tar,0\nb,b.tar,0\n", [("E303", 2, 9)]),
        (b"\xef\xbb\xbfname,shards\na,a.tar\n", [("W001", 1, 1)]),
        ("name,shards\n".encode("utf-16"), [("E003", 1, 1)]),
        ('name,shards\n"a\nb",a.tar\n', [("E404", 2, 1)]),
        ("name,shards\na,a.tar,4\n", [("E404", 2, 1)]),
        ("name,shards\n", [("E214", 1, 1)]),
        ("", [("E214", 1, 1)]),
        ("name,shards\na,${nowhere}/a.tar\n", [("E107", 2, 3)]),
    ],
)
def test_a_mistake_in_a_table_has_its_file_line_and_column(folder, text, expected):
    assert problems_of(folder, text) == [(code, "sources.csv", line, at) for code, line, at in expected]


def test_lines_of_another_file_than_a_table_are_in_no_message(folder):
    (folder / "shadow").write_text("root:secret:0\n")
    (problem,) = wdspec.validate({"dataset": "@shadow"})
    assert "secret" not in str(problem)


def test_a_file_that_is_missing_remote_or_named_without_an_at_sign_is_an_error(folder):
    found = [wdspec.validate({"dataset": text})[0] for text in ("@no.csv", "@s3://b/x.csv", "x.csv")]
    assert [each.code for each in found] == ["E001", "E102", "E202"]
    assert '`dataset: "@x.csv"`' in found[2].hint


def test_a_table_with_more_sources_than_a_spec_may_have_is_refused(folder):
    lines = "".join(f"n{number},a-{number}.tar\n" for number in range(20_001))
    assert problems_of(folder, f"name,shards\n{lines}") == [("E009", "sources.csv", 20_002, 1)]


def test_each_folder_becomes_a_source_with_its_name(folder):
    make_shards(
        folder, "data/cats/0.tar", "data/dogs/0.tar", "data/dogs/1.tar", "data/a[1]{2}/0.tar", "data/x.tar"
    )
    found = wdspec.load({"dataset": [{"shards": "data/*/*.tar", "each": "folder", "shuffle": 9}]})
    assert [each.name for each in found.sources] == ["a[1]{2}", "cats", "dogs"]
    assert {each.shuffle for each in found.sources} == {9}
    listed = [
        [os.path.normpath(each.text) for each in source.shards] for source in wdspec.plan(found).sources
    ]
    assert listed == [["data/a[1]{2}/0.tar"], ["data/cats/0.tar"], ["data/dogs/0.tar", "data/dogs/1.tar"]]


def test_a_name_is_put_before_those_of_the_folders_and_all_that_varies_is_in_them(folder):
    make_shards(
        folder, "data/en/v1/0.tar", "data/en/v2/0.tar", "data/de/v1/0.tar", "more/b/0.tar", "more/a/0.tar"
    )
    entries = [
        {"name": "web", "shards": "data/*/v*/0.tar", "each": "folder"},
        {"shards": "more/{b,a}/{0..0}.tar", "each": "folder"},
    ]
    found = wdspec.load({"dataset": entries, "sources": {"web/en/v2": None}})
    assert [each.name for each in found.sources] == ["web/de/v1", "web/en/v1", "a", "b"]


def test_folders_at_any_depth_are_found_and_links_in_a_circle_end(folder):
    make_shards(folder, "data/0.tar", "data/a/0.tar", "data/b/c/0.tar")
    (folder / "data/b/up").symlink_to(folder / "data")
    found = wdspec.load({"dataset": [{"shards": "data/**/*.tar", "each": "folder"}]})
    assert [each.name for each in found.sources] == ["a", "b/c", "data"]


def test_a_folder_without_shards_is_named(folder):
    make_shards(folder, "data/a/0.tar", "data/b/notes.txt")
    (problem,) = wdspec.validate({"dataset": [{"shards": "data/*/*.tar", "each": "folder"}]})
    assert problem.code == "W451"
    assert "this folder has no shards: `b`" in problem.message


def test_without_the_data_a_spec_is_checked_and_a_run_fails(folder):
    spec = {"dataset": [{"shards": "data/*/*.tar", "each": "folder", "shufle": 1}]}
    assert [each.code for each in wdspec.validate(spec)] == ["W450", "E201"]
    with pytest.raises(SpecError, match="no folder with shards matches here"):
        wdspec.load({"dataset": [{"shards": "data/*/*.tar", "each": "folder"}]})


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"shards": "s3://b/*/x.tar", "each": "folder"}, "E102"),
        ({"shards": "@x.txt", "each": "folder"}, "E102"),
        ({"shards": "data/*.tar", "each": "folder"}, "E213"),
        ({"shards": ["a/*/x.tar", "b/*/x.tar"], "each": "folder"}, "E202"),
        ({"shards": "data/*/*.tar", "each": "file"}, "E203"),
        ({"each": "folder"}, "E206"),
        ({"shards": "data/*/"}, "E213"),
        ({"shards": "data/{folder}/x.tar"}, "W312"),
    ],
)
def test_what_is_no_pattern_of_local_folders_is_an_error(folder, entry, code):
    assert [each.code for each in wdspec.validate({"dataset": [entry]})] == [code]


def test_each_is_no_default(folder):
    spec = {"defaults": {"each": "folder"}, "dataset": [{"shards": "a.tar"}]}
    assert [each.code for each in wdspec.validate(spec)] == ["E216"]
