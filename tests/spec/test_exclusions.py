"""The table of features that cannot be combined is what the rules forbid."""

import json
import lzma
from pathlib import Path

import pytest
import yaml

import wdspec
from wdspec.planning.shares import checked_shares
from wdspec.spec.exclusions import list_exclusions
from wdspec.spec.load import load
from wdspec.spec.reference import with_tables
from wdspec.spec.rules import batches

REPOSITORY = Path(__file__).parents[2]
EXCLUSIONS = list_exclusions()
EXAMPLES = [{"dataset": [{"shards": "a.tar"}], **yaml.safe_load(each.bad)} for each in EXCLUSIONS]


def test_the_page_is_generated_from_the_rules():
    page = (REPOSITORY / "docs" / "batches.md").read_text()
    assert page == with_tables(page), "run `python -m wdspec.spec.reference docs/batches.md`"
    assert page.count("<!-- table: exclusions -->") == 1


@pytest.mark.parametrize(("each", "spec"), [*zip(EXCLUSIONS, EXAMPLES, strict=True)])
def test_each_example_is_refused_for_this_reason_alone(each, spec):
    found = {problem.code for problem in wdspec.validate(spec) if problem.is_error}
    if each.code != "set_shares":
        assert found == {each.code}
        return
    assert not found
    with pytest.raises(wdspec.UsageError, match=r"shares (have no effect|cannot be set)"):
        checked_shares(load(spec), {"a": 1})


def test_every_pair_of_keys_of_batches_that_exclude_each_other_is_in_the_table():
    rows = [(each.feature, each.other) for each in EXCLUSIONS]
    kinds = {"cost", "group_by", "pack"}
    for key, others in batches._NOT_WITH.items():
        for other in others:
            pair = {f"`{key}`", "batches by cost" if other in kinds and key != "group_by" else f"`{other}`"}
            sizes = {key, other} <= {"size", "cost", "pack", "max_size"}  # two sizes of one batch
            assert sizes or any(all(part in " ".join(row) for part in pair) for row in rows), (key, other)


def test_every_code_of_a_pair_that_the_golden_specs_find_forbidden_is_in_the_table():
    path = REPOSITORY / "tests" / "support" / "oracle" / "golden.json.xz"
    cases = json.loads(lzma.decompress(path.read_bytes()))
    codes = {
        code
        for name, case in cases.items()
        if name.startswith("pair ") and isinstance(case.get("refused"), list)
        for code in case["refused"]
        if code.startswith("E")
    }
    assert {"E207", "E312", "E318"} <= codes <= {each.code for each in EXCLUSIONS}
