"""Mistakes that users make in specs: each is found before data is read, at its place, with what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from wdspec.spec.load import check

SOURCE = "dataset:\n  - {name: train, shards: 's3://bucket/a-{000..099}.tar'}\n"
"""What a mistake that is not about sources stands above."""


def cases() -> list[Any]:
    """The mistakes in the files next to this one.

    Each has `spec`, the `line` where the problem stands, what its text `says` (message or remedy) and `never` says.
    """
    files = sorted((Path(__file__).parent / "mistakes").glob("*.yaml"))
    return [
        pytest.param(case, id=f"{file.stem}-{number}-{case['spec'].splitlines()[-1].strip()[:40]}")
        for file in files
        for number, case in enumerate(yaml.safe_load(file.read_text(encoding="utf-8")))
    ]


@pytest.mark.parametrize("case", cases())
def test_a_mistake_is_found_at_its_place_with_its_remedy(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WDSPEC_ENV", "AIS_ENDPOINT", "USE_AIS_FOR", "WDS_SECURE"):
        monkeypatch.delenv(name, raising=False)
    text = case["spec"] if "dataset" in case["spec"] else f"{case['spec']}\n{SOURCE}"
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    problems = check("spec.yaml")[1]
    told = "\n".join(map(str, problems))
    there = [problem.advice for problem in problems if problem.line == case["line"]]
    assert any(all(word in advice for word in case["says"]) for advice in there), told
    assert not any(word in told for word in case.get("never", ())), told


def test_the_list_is_long() -> None:
    assert len(cases()) >= 150
