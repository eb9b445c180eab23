"""Random mistakes in specs: each is reported on the right line, with what was probably meant."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml
from jsonschema import Draft202012Validator
from spec_mutations import KINDS, Mutation, mutations

from wdspec.spec.load import check
from wdspec.spec.schema import json_schema

SCHEMA = Draft202012Validator(json_schema())
MANY, SOME = 1000, 72


def is_wrong(mutation: Mutation) -> bool:
    """Whether it is wrong for certain, or by the JSON Schema."""
    return mutation.sure or not SCHEMA.is_valid(yaml.safe_load(mutation.text))


def campaign(count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WDSPEC_ENV", "AIS_ENDPOINT", "USE_AIS_FOR", "WDS_SECURE"):
        monkeypatch.delenv(name, raising=False)
    missed, suggested = [], Counter()
    seen = Counter()
    for mutation in mutations(count):
        if not is_wrong(mutation):
            continue
        seen[mutation.kind] += 1
        (tmp_path / "spec.yaml").write_text(mutation.text, encoding="utf-8")
        problems = check("spec.yaml")[1]
        there = [problem for problem in problems if problem.line in mutation.lines]
        if not there:
            reported = "; ".join(f"{each.line}: {each.code} {each.message}" for each in problems[:3])
            missed.append(
                f"{mutation.kind} at {mutation.path} in {sorted(mutation.lines)[:3]}: {reported or 'nothing'}"
            )
        if mutation.meant:
            found = any(f"`{mutation.meant}`" in problem.advice for problem in there)
            suggested[found] += 1
            if not found:
                suggested[f"{mutation.path[-1]} for {mutation.meant}"] += 1
    assert missed == []
    assert suggested[True] >= 9 * suggested[False], suggested
    return seen


def test_every_sampled_mistake_is_reported_on_its_line(tmp_path, monkeypatch):
    assert set(campaign(SOME, tmp_path, monkeypatch)) == set(KINDS)


@pytest.mark.long
def test_a_thousand_mistakes_are_each_reported_on_their_line(tmp_path, monkeypatch):
    seen = campaign(MANY, tmp_path, monkeypatch)
    assert sum(seen.values()) > 0.9 * MANY
    assert min(seen.values()) >= 50


def test_the_same_seed_gives_the_same_mistakes():
    assert mutations(9) == mutations(12)[:9]
    assert mutations(9, seed=1) != mutations(9)
