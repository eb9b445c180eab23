"""Warnings about a `limit` that was left in, and about licenses that are almost SPDX names."""

from __future__ import annotations

from typing import Any

import pytest

import wdspec
from wdspec.spec.load import check

MANY, FEW = "s3://b/a-{000..103}.tar", "s3://b/a-{0..8}.tar"


def problems(shards: str = MANY, samples: int | None = None, **top: Any) -> list[Any]:
    source = {"name": "a", "shards": shards} | ({"samples": samples} if samples else {})
    found = wdspec.validate({"dataset": [source], **top})
    return [each for each in found if each.code == "W418"]


@pytest.mark.parametrize(
    ("spec", "much"),
    [
        ({"limit": 104}, "104 samples, of 104 shards"),
        ({"limit": 50, "environments": {"laptop": {"batch": 2}}}, "50 samples, of 104 shards"),
        ({"limit": 900, "shards": FEW, "samples": 1_000_000}, "900 samples, of 1,000,000 samples"),
    ],
)
def test_a_limit_that_leaves_out_nearly_everything_is_a_warning_whose_remedy_ends_it(
    spec: dict[str, Any], much: str
) -> None:
    (problem,) = problems(**spec)
    assert problem.message.endswith(much)
    limit = spec.pop("limit")
    assert f"write `environments: {{quick: {{limit: {limit}}}}}`" in problem.hint
    assert problems(**{**spec, "environments": {"quick": {"limit": limit}}}) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"limit": 105},
        {"limit": 9, "shards": FEW},
        {"limit": 1000, "shards": FEW, "samples": 1_000_000},
        {"limit": 4, "shards": "s3://b/*.tar"},
        {"limit": 4, "shards": "@list.txt"},
        {},
    ],
)
def test_other_limits_have_no_warning(spec: dict[str, Any]) -> None:
    assert problems(**spec) == []


def test_a_limit_of_a_split_or_of_the_command_is_meant() -> None:
    source = {"name": "a", "shards": MANY}
    spec = {"splits": {"train": {"dataset": [source]}, "val": {"dataset": [source], "limit": 50}}}
    assert "W418" not in {each.code for each in wdspec.validate(spec)}
    assert problems(limit=50)
    plain = {"dataset": [source]}
    for overrides in (["limit=50"], {"limit": 50}):
        assert "W418" not in {each.code for each in check(plain, overrides=overrides)[1]}


@pytest.mark.parametrize(
    ("license", "meant"),
    [
        ("CC-BY-NCC-4.0", "CC-BY-NC-4.0"),
        ("CC BY 4.0", "CC-BY-4.0"),
        ("Apache 2.0", "Apache-2.0"),
        ("Apachee-2.0", "Apache-2.0"),
        ("BSD-3-Clauses", "BSD-3-Clause"),
        ("cc0_1.0", "CC0-1.0"),
    ],
)
def test_a_near_miss_of_an_spdx_name_is_a_warning_with_the_name(license: str, meant: str) -> None:
    (problem,) = found_for(license)
    assert (problem.code, problem.hint) == ("W417", f"write `license: {meant}`")
    assert found_for(meant) == []


@pytest.mark.parametrize(
    "license",
    [
        "CC-BY-4.0",
        "cc-by-4.0",
        "CC-BY-3.0",
        "CC-BY-NC-SA-3.0-IGO",
        "BSD-4-Clause",
        "BSD-3-Clause-LBNL",
        "EPL-2.0",
        "ECL-2.0",
        "MIT-0",
        "MIT OR Apache-2.0",
        "proprietary",
        "UNLICENSED",
        "https://example.org/license",
        "LicenseRef-ours",
    ],
)
def test_other_names_of_licenses_have_no_warning(license: str) -> None:
    assert found_for(license) == []


def found_for(license: str) -> list[Any]:
    found = wdspec.validate({"dataset": [{"shards": "a.tar", "license": license}]})
    return [each for each in found if each.code == "W417"]
