"""`sources:` of splits, environments and overrides: changes of sources by name, and their removal."""

from __future__ import annotations

from typing import Any

import pytest

import wdspec


def source(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "shards": f"s3://b/{name}-{{0..9}}.tar", **keys}


def names(spec: dict[str, Any], **choice: Any) -> list[str]:
    return [each.name for each in wdspec.load(spec, **choice).sources]


MIX = {"dataset": [source("a", weight=3), source("nc", weight=1)]}


@pytest.mark.parametrize(
    "choice", [{"env": "e"}, {"overrides": ["sources.nc=null"]}, {"overrides": {"sources.nc": None}}]
)
def test_null_removes_a_source_and_the_shares_are_divided_anew(choice: dict[str, Any]) -> None:
    spec = {**MIX, "environments": {"e": {"sources": {"nc": None}}}}
    assert names(spec, **choice) == ["a"]
    assert [each.share for each in wdspec.plan(wdspec.load(spec, **choice)).sources] == [1]
    assert wdspec.validate(spec) == []
    assert names(spec, env="e", overrides=["sources.nc.weight=2"]) == ["a", "nc"]  # a later layer restores it


def test_probabilities_must_sum_to_1_without_the_removed_source() -> None:
    halves = {"dataset": [source("a", probability=0.5), source("b", probability=0.5)]}
    with pytest.raises(wdspec.SpecError, match="E302"):
        wdspec.load(halves, overrides=["sources.b=null"])
    assert names(halves, overrides=["sources.b=null", "sources.a.probability=1"]) == ["a"]


def test_null_removes_a_nested_mix_or_a_source_in_it() -> None:
    spec = {"dataset": [source("a"), {"name": "mix", "dataset": [source("x"), source("y")]}]}
    assert names(spec, overrides=["sources.mix=null"]) == ["a"]
    assert names(spec, overrides=["sources.x=null"]) == ["a", "y"]
    for removed in (["sources.x=null", "sources.y=null"], ["sources.a=null", "sources.mix=null"]):
        with pytest.raises(wdspec.SpecError, match=r"E214 `null` removes every source of this list"):
            wdspec.load(spec, overrides=removed)


def test_removing_an_unknown_source_is_an_error() -> None:
    with pytest.raises(wdspec.SpecError, match=r"E105 there is no source `nd`"):
        wdspec.load(MIX, overrides=["sources.nd=null"])


SPLITS = {
    "splits": {
        "train": {"dataset": [source("a"), source("laion")]},
        "val": {"epoch": "pass", "dataset": [source("v")]},
    },
}


def test_a_source_of_another_split_is_named_with_the_split() -> None:
    spec = {**SPLITS, "environments": {"laptop": {"sources": {"laion": {"weight": 0}}}}}
    (problem,) = [each for each in wdspec.validate(spec) if each.code == "E105"]
    assert problem.message == "there is no source `laion` in the split `val` (in the environment `laptop`)"
    assert "`laion: {if_present: true, …}`" in problem.hint


def test_a_change_can_be_for_specs_that_have_the_source() -> None:
    change = {"shuffle": 10, "if_present": True}  # as the hint says
    spec = {**SPLITS, "environments": {"laptop": {"sources": {"laion": change}}}}
    assert wdspec.validate(spec) == []
    assert wdspec.load(spec, split="train", env="laptop").sources[1].shuffle == 10
    assert names(spec, split="val", env="laptop") == ["v"]
    change["if_present"] = False
    assert "E105" in [each.code for each in wdspec.validate(spec)]
    change["if_present"] = "x"
    assert "E202" in [each.code for each in wdspec.validate(spec)]


def test_if_present_belongs_only_to_changes() -> None:
    spec = {"dataset": [source("a", if_present=True)]}
    assert [each.code for each in wdspec.validate(spec)] == ["E201"]
