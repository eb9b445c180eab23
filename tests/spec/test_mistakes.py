"""Mistakes that users make in specs: each is found before data is read, at its place, with what to do about it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from wdspec.spec.language.values import Model
from wdspec.spec.load import check
from wdspec.spec.spec import Source, Spec
from wdspec.spec.validation import keys_of, maps_of

SOURCE = "dataset:\n  - {name: train, shards: 's3://bucket/a-{000..099}.tar'}\n"
"""The rest of the spec, for a mistake that is not about sources."""


def cases() -> list[Any]:
    """The mistakes in the files next to this one.

    Each has `spec`, the `line` of the problem, what its text `says` (message or remedy) and what it `never` says.
    """
    files = sorted((Path(__file__).parent / "mistakes").glob("*.yaml"))
    return [
        pytest.param(case, id=f"{file.stem}-{number}-{case['spec'].splitlines()[-1].strip()[:40]}")
        for file in files
        for number, case in enumerate(yaml.safe_load(file.read_text(encoding="utf-8")))
    ]


@pytest.mark.parametrize("case", cases())
def test_a_mistake_is_reported_at_its_place_with_its_remedy(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WDSPEC_ENV", "AIS_ENDPOINT", "USE_AIS_FOR", "WDS_SECURE"):
        monkeypatch.delenv(name, raising=False)
    text = case["spec"] if "dataset" in case["spec"] else f"{case['spec']}\n{SOURCE}"
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    problems = check("spec.yaml")[1]
    report = "\n".join(map(str, problems))
    there = [problem.advice for problem in problems if problem.line == case["line"]]
    assert any(all(word in advice for word in case["says"]) for advice in there), report
    assert not any(word in report for word in case.get("never", ())), report


def test_the_list_is_long() -> None:
    assert len(cases()) >= 150


def keys_with_paths(model: type[Model], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a model and of the maps below it, as a path."""
    inner = maps_of(model)
    for key in keys_of(model):
        yield (*above, key)
        if key in inner and inner[key] is not model and len(above) < 3:
            yield from keys_with_paths(inner[key], (*above, key))


@pytest.mark.parametrize("model", [Spec, Source])
@pytest.mark.parametrize("value", [True, "abc", 0.5, -1, [1], {}, 10**30], ids=repr)
def test_every_wrong_value_has_a_remedy(model: type[Model], value: Any) -> None:
    for path in keys_with_paths(model):
        source: dict[str, Any] = {"name": "a", "shards": "a-{0..9}.tar"}
        spec: dict[str, Any] = {"batch": 4, "dataset": [source]}
        nested = functools.reduce(lambda inner, key: {key: inner}, reversed(path), value)
        (spec if model is Spec else source).update(nested)
        problems = check(spec)[1]
        assert all(problem.hint for problem in problems if problem.is_error), (path, problems)
