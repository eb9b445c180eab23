"""`requires` is read before other keys; `meta` changes nothing; `revision` on the Hub needs `@`."""

import subprocess

import pytest
import yaml

import wdspec
from wdspec.base.errors import SpecError
from wdspec.spec.language.requirements import installed_version, parse_requirement


def problems_of(text, tmp_path, name="spec.yaml"):
    (tmp_path / name).write_text(text)
    return [
        (each.code, each.line, each.column, each.message) for each in wdspec.validate(str(tmp_path / name))
    ]


FUTURE = "wdspec >= 9.1"
SOURCE = "dataset: [{shards: a.tar}]\n"


def test_a_spec_for_a_later_version_has_one_problem_and_no_unknown_keys(tmp_path):
    text = f"new_key: 1  # wdspec: ignore=W301\nvars: {{a: 1}}\ndataset: [{{shreds: a.tar}}]\nrequires: {FUTURE}\n"
    found = problems_of(text, tmp_path)
    version = installed_version()
    assert found == [
        ("E392", 4, 11, f"this file needs wdspec 9.1 or later, and this is wdspec {version}"),
    ]
    with pytest.raises(SpecError, match=r"needs wdspec 9\.1 or later") as caught:
        wdspec.load(str(tmp_path / "spec.yaml"))
    assert "new_key" not in str(caught.value)


def test_so_has_a_base_or_a_nested_spec_for_a_later_version(tmp_path):
    (tmp_path / "base.yaml").write_text(f"requires: {FUTURE}\nnew_key: 1\n{SOURCE}")
    assert [code for code, *_ in problems_of("extends: base.yaml\n" + SOURCE, tmp_path)] == ["E392"]
    found = problems_of("dataset: [{spec: base.yaml}]\n", tmp_path)
    assert [code for code, *_ in found if code[0] == "E"] == ["E392"]


@pytest.mark.parametrize(
    "where",
    [
        "environments: {{x: {{requires: {}}}}}",
        "splits: {{x: {{requires: {}, dataset: [{{shards: a.tar}}]}}}}",
    ],
)
def test_variants_cannot_hide_a_requirement(where, tmp_path):
    own = "" if "splits" in where else SOURCE
    assert [code for code, *_ in problems_of(where.format(FUTURE) + "\n" + own, tmp_path)] == ["E392"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wdspec >= 0.2", (0, 2)),
        ("wdspec>=1", (1,)),
        (" wdspec  >= 1.10.0 ", (1, 10)),
        ("wdspec >= 0", ()),
        ("wdspec == 0.2", None),
        ("wdspec >= 0.2, < 1", None),
        ("wdspec >= 0.2rc1", None),
        ("torch >= 2", None),
        ("0.2", None),
    ],
)
def test_a_requirement_is_one_lower_bound(text, expected):
    found = parse_requirement(text)
    assert (None if found is None else found.parts) == expected


def test_versions_are_compared_by_number():
    versions = [parse_requirement(f"wdspec >= {text}") for text in ("0.2", "0.10", "0.10.1", "1.0")]
    assert versions == sorted(versions)
    assert parse_requirement("wdspec >= 1") == parse_requirement("wdspec >= 1.0.0")


@pytest.mark.parametrize("value", ["wdspec > 0.1", "0.1", "[wdspec]", "''", "${nothing:-x}"])
def test_another_form_is_an_error_at_its_place(value, tmp_path):
    [(code, line, column, _)] = problems_of(f"{SOURCE}requires: {value}\n", tmp_path)
    assert (code[0], line, column) == ("E", 2, 11)


def test_a_requirement_that_is_met_says_nothing(tmp_path):
    assert problems_of(f"requires: wdspec >= {installed_version()}\n{SOURCE}", tmp_path) == []
    assert problems_of(f"requires: null\n{SOURCE}", tmp_path) == []


def test_meta_is_free_form_and_merged_with_defaults_and_bases(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "meta: {owner: platform, rewrite: [1]}\ndefaults: {meta: {owner: vision}}\n"
    )
    text = "extends: base.yaml\nmeta: {ticket: DATA-12}\ndataset: [{shards: a.tar, meta: {contact: [a, {b: 1}]}}]\n"
    assert problems_of(text, tmp_path) == []
    spec = wdspec.load(str(tmp_path / "spec.yaml"))
    assert spec.meta == {"owner": "platform", "rewrite": [1], "ticket": "DATA-12"}
    assert spec.sources[0].meta == {"owner": "vision", "contact": ["a", {"b": 1}]}


def test_meta_is_not_in_the_samples(tmp_path):
    (tmp_path / "0.txt").write_text("x")
    subprocess.run(["tar", "cf", "a.tar", "0.txt"], cwd=tmp_path, check=True)
    spec = {
        "meta": {"a": 1},
        "dataset": [{"shards": str(tmp_path / "a.tar"), "meta": {"owner": "vision"}}],
        "batch": 1,
    }
    with wdspec.loader(spec | {"epoch": 1}, num_workers=0) as loader:
        [batch] = loader
    assert not {"owner", "meta", "a"} & batch.keys()


@pytest.mark.parametrize(
    ("shards", "is_pinned"),
    [
        ("hf://datasets/a/b/x.tar", False),
        ("hf://a/b/x-{0..9}.tar", False),
        ("hf://datasets/a/b@v2/x.tar", True),
        ("https://host/a@b/x.tar", True),
        ("x.tar", True),
    ],
)
def test_a_revision_on_the_hub_needs_an_at_sign(shards, is_pinned, tmp_path):
    text = yaml.safe_dump({"dataset": [{"shards": shards, "revision": "v2"}]})
    found = problems_of(text, tmp_path)
    assert [code for code, *_ in found] == [] if is_pinned else ["W453"]
    assert "W453" not in [code for code, *_ in problems_of(text.replace("revision", "homepage"), tmp_path)]
