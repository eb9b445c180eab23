"""The table of features that cannot be combined is what the rules forbid."""

import json
import lzma
from pathlib import Path

import pytest
import yaml

import wdspec
from wdspec.planning.shares import checked_shares
from wdspec.spec.exclusions import list_exclusions
from wdspec.spec.language.effects import Excludes, rows_of
from wdspec.spec.load import load
from wdspec.spec.reference import with_tables
from wdspec.spec.spec import Source, Spec

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


def test_every_pair_of_keys_that_exclude_each_other_is_in_the_table():
    rows = [f"{each.feature} {each.other}" for each in EXCLUSIONS]
    twice = {"size", "global_size", "samples", "batches", "probability", "weight", "upsample", "max_size"}
    twice |= {"max_tokens", "max_cost", "tokens"}
    for row in (*rows_of(Spec), *rows_of(Source)):
        key, mark = row.keys[-1], row.mark
        if not isinstance(mark, Excludes) or mark.code == "W102":
            continue
        for other in (term.rpartition(".")[2].partition("=")[0].lstrip("/") for term in mark.others.split()):
            says_one_thing_twice = key in twice and other in {*twice, "cost", "pack", "pass", "group_by"}
            is_choice = other == "skip" or (key == "overlong" and mark.value == "alone")
            ways = [{"pass": "epoch: pass"}.get(other, other)]
            ways += ["batches by cost"] if other in ("cost", "group_by", "pack") else []
            assert (
                says_one_thing_twice
                or is_choice
                or any(key in each and any(way in each for way in ways) for each in rows)
            ), (key, other)


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
