"""Filters of `defaults` and of a source both apply; `null` removes the inherited one. Layers replace, as before."""

from __future__ import annotations

import io
import json
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import wdspec
from wdspec.spec.filters import _COMBINE
from wdspec.spec.sources import FILTERS


def codes(spec: dict[str, Any]) -> list[str]:
    return [problem.code for problem in wdspec.validate(spec)]


def source_of(defaults: dict[str, Any], own: dict[str, Any], **top: Any) -> Any:
    (source,) = wdspec.load({"defaults": defaults, "dataset": [{"shards": "a.tar", **own}], **top}).sources
    return source


def keys_read(spec: dict[str, Any]) -> list[str]:
    samples = wdspec.loader({"epoch": "pass", **spec})
    return sorted({sample["__key__"] for sample in samples if sample.get("__mask__", True)})


@pytest.fixture
def shards(tmp_path: Path) -> str:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(8):
            data = json.dumps({"nsfw": number % 2, "score": number}).encode()
            member = tarfile.TarInfo(f"k{number}.json")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(tmp_path / "a.tar")


def test_every_filter_that_is_declared_is_combined() -> None:
    assert frozenset(_COMBINE) == FILTERS


def test_the_filter_of_a_base_stays_when_a_source_has_its_own(shards: str) -> None:
    spec = {
        "defaults": {"where": "json.nsfw < 1"},
        "dataset": [{"shards": shards, "where": "json.score > 3 or json.score == 1"}],
    }
    assert keys_read(spec) == ["k4", "k6"]


def test_null_removes_the_inherited_filter_and_a_nested_mix_replaces_it(shards: str) -> None:
    plain = {"shards": shards, "where": None}
    assert len(keys_read({"defaults": {"where": "json.nsfw < 1"}, "dataset": [plain]})) == 8
    inner = {"dataset": [{"shards": shards, "where": "json.score > 6"}], "defaults": {"where": None}}
    assert keys_read({"defaults": {"where": "json.nsfw < 1"}, "dataset": [inner]}) == ["k7"]


def test_filters_of_every_level_of_nested_mixes_apply(shards: str, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(
        f"defaults: {{exclude: [k2]}}\ndataset: [{{shards: '{shards}', exclude: k4}}]\n"
    )
    inner = {"spec": str(tmp_path / "child.yaml"), "defaults": {"exclude": ["k6"], "where": "json.score < 7"}}
    spec = {"defaults": {"where": "json.nsfw < 1"}, "dataset": [{"name": "mix", "dataset": [inner]}]}
    assert keys_read(spec) == ["k0"]


def test_lists_are_added_and_keys_and_parts_overlap() -> None:
    source = source_of(
        {"exclude": ["a", "b"], "keys": ["x", "y"], "subset": "50%", "select": "m:f"},
        {"exclude": ["b", "c"], "keys": ["y", "z"], "subset": ["12.5%", 1], "select": ["m:g", "m:h"]},
    )
    assert source.exclude == ("a", "b", "c")
    assert source.only_keys == ("y",)
    assert [float(end) for end in source.subset.part] == [0.125, 0.5]
    assert source.selects == ("m:f", "m:g", "m:h")


def test_equal_filters_are_one() -> None:
    source = source_of({"where": "json.a", "select": "m:f"}, {"where": "json.a", "select": "m:f"})
    assert (source.where, source.select) == ("json.a", "m:f")


@pytest.mark.parametrize(
    ("defaults", "own", "code", "says"),
    [
        ({"subset": "10%"}, {"subset": ["50%", "60%"]}, "E210", "0% to 10% and 50% to 60%"),
        ({"subset": "10%"}, {"subset": {"part": "50%", "seed": 1}}, "E207", "different hashes"),
        ({"subset": "10%"}, {"subset": {"part": "50%", "of": "json.a"}}, "E207", "different hashes"),
        ({"keys": ["a"]}, {"keys": ["b"]}, "E210", "no key is in"),
        ({"keys": "@a.txt"}, {"keys": ["b"]}, "E207", "one of them is in a file"),
        ({"exclude": "@a.txt"}, {"keys": "@b", "keys_of": "json.uid"}, "E207", "lists keys of samples"),
    ],
)
def test_filters_that_cannot_both_apply_are_an_error_with_a_remedy(
    defaults: dict[str, Any], own: dict[str, Any], code: str, says: str
) -> None:
    source = {"shards": "s3://b/a-{0..9}.tar", **own}
    (problem,) = wdspec.validate({"defaults": defaults, "dataset": [source]})
    assert (problem.code, says in problem.message) == (code, True), problem
    remedy = problem.hint.rpartition("`defaults: {")[2].partition(":")[0]  # as the hint says
    mix = {"dataset": [source], "defaults": {remedy: None}}
    assert codes({"defaults": defaults, "dataset": [mix]}) == []


def test_the_problem_of_one_expression_is_reported_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("defaults:\n  where: json.a >\ndataset:\n  - {shards: a.tar, where: json.b}\n")
    assert [(each.code, each.line) for each in wdspec.validate(file)] == [("E330", 2)]
    file.write_text(
        "defaults:\n  where: json.a\ndataset:\n  - {shards: a.tar, where: (json.b)) or (json.c}\n"
    )
    assert [(each.code, each.line) for each in wdspec.validate(file)] == [("E330", 4)]


def test_layers_still_replace_a_filter_at_its_place() -> None:
    source = source_of(
        {}, {"name": "a", "where": "json.a"}, environments={"e": {"sources": {"a": {"where": "json.b"}}}}
    )
    assert source.where == "json.a"
    spec = {
        "defaults": {"where": "json.a"},
        "dataset": [{"name": "a", "shards": "a.tar"}],
        "environments": {"e": {"defaults": {"where": "json.b"}}},
    }
    assert wdspec.load(spec, env="e").sources[0].where == "json.b"
    assert wdspec.load(spec, overrides=["sources.a.where=json.c"]).sources[0].where == "(json.a) and (json.c)"


def test_files_of_keys_are_relative_to_the_file_that_names_them(shards: str, tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "base.yaml").write_text("epoch: pass\ndefaults: {exclude: '@bad.txt'}\n")
    (tmp_path / "common" / "bad.txt").write_text("k1\nk2\n")
    (tmp_path / "own.txt").write_text("k3\n")
    head = f"extends: common/base.yaml\ndataset:\n  - {{shards: '{shards}'"
    (tmp_path / "one.yaml").write_text(head + "}\n")
    (tmp_path / "two.yaml").write_text(head + ", exclude: [k4, '@own.txt']}\n")
    read = {
        name: sorted(each["__key__"] for each in wdspec.loader(tmp_path / name))
        for name in ("one.yaml", "two.yaml")
    }
    assert read == {"one.yaml": ["k0", "k3", "k4", "k5", "k6", "k7"], "two.yaml": ["k0", "k5", "k6", "k7"]}


KEEPING = """
def even(sample):
    return sample["json"]["score"] % 2 == 0
def large(sample):
    return sample["json"]["score"] > 3
"""


def test_several_functions_of_select_must_all_hold(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keeping.py").write_text(KEEPING)
    monkeypatch.syspath_prepend(tmp_path)
    spec = {
        "defaults": {"select": "keeping:even"},
        "dataset": [{"shards": shards, "select": "keeping:large"}],
    }
    assert {each["__key__"] for each in islice(wdspec.loader(spec), 8)} == {"k4", "k6"}
    assert wdspec.load(spec).functions["select"] == ["keeping:even", "keeping:large"]
    listed = {"dataset": [{"shards": shards, "select": ["keeping:even"]}]}
    assert wdspec.load(listed).sources[0].select == "keeping:even"
