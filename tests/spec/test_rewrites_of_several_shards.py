"""Warnings about rewrite rules that change more than they should, or make one file of several shards."""

from __future__ import annotations

from typing import Any

import pytest

import wdspec


def problems(rule: dict[str, Any], *shards: str, **keys: Any) -> list[Any]:
    sources = [{"name": f"s{number}", "shards": each} for number, each in enumerate(shards)]
    found = wdspec.validate({"rewrite": [rule], "dataset": sources, **keys})
    return [each for each in found if each.code in ("W395", "W508")]


@pytest.mark.parametrize(
    ("pattern", "shards", "warns"),
    [
        ("s3://corp", ["s3://corp/a.tar", "s3://corp-private/b.tar"], True),
        ("s3://corp", ["s3://corp-private/b-{00..99}.tar"], True),
        ("s3://b/web", ["s3://b/web/a.tar", "s3://b/web2/a.tar"], True),
        ("s3://corp", ["s3://corp/a.tar", "s3://corp/b.tar"], False),
        ("s3://corp/", ["s3://corp/a.tar", "s3://corp-private/b.tar"], False),
        ("s3://team-", ["s3://team-a/a.tar"], False),
        ("s3://b/web", ["s3://b/web-{00..99}.tar"], False),
        ("s3://", ["s3://b/a.tar"], False),
        ("s3://[^/]*", ["s3://b/a.tar", "s3://bb/b.tar"], False),
    ],
)
def test_a_rule_that_ends_inside_a_name(pattern: str, shards: list[str], warns: bool) -> None:
    rule = {"from": pattern, "to": "/mnt/x"}
    found = problems(rule, *shards)
    assert [each.code for each in found] == ["W395"] * warns
    if warns:
        assert f"`from: {pattern}/`" in found[0].hint
        assert not problems({"from": f"{pattern}/", "to": "/mnt/x/"}, *shards)  # as the hint says


@pytest.mark.parametrize(
    ("rule", "shards", "warns"),
    [
        ({"from": "s3://b/.*", "to": "/mnt/a.tar"}, ["s3://b/a-{0..9}.tar"], True),
        ({"from": "s3://b/.*/", "to": "/mnt/"}, ["s3://b/x/a.tar", "s3://b/y/a.tar"], True),
        ({"from": "s3://b/.*", "to": "/mnt/a.tar"}, ["s3://b/a.tar"], False),
        ({"from": "s3://b/(.*)/", "to": "/mnt/\\1/"}, ["s3://b/x/a.tar", "s3://b/y/a.tar"], False),
        (
            {"from": "s3://b/", "to": "/mnt/"},
            ["s3://b/a.tar", "s3://b/a.tar"],
            False,
        ),  # E303 or W303, not of the rule
    ],
)
def test_a_rule_that_makes_one_file_of_several_shards(
    rule: dict[str, Any], shards: list[str], warns: bool
) -> None:
    found = problems(rule, *shards)
    assert [each.code for each in found] == ["W508"] * warns
    if warns:
        assert "one file of several shards" in found[0].message


def test_a_rule_of_a_source_is_tried_on_its_own_shards() -> None:
    rule = {"from": "s3://b/.*", "to": "/mnt/a.tar"}
    source = {"shards": ["s3://b/a.tar", "s3://b/b.tar"], "rewrite": [rule]}
    assert "W508" in [each.code for each in wdspec.validate({"dataset": [source]})]
