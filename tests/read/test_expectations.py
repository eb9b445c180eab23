"""`expect` describes samples; others are errors or skips, depending on `errors`, and `check` finds them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from commandline import within
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.fields.expect import FEW_ELEMENTS, UnexpectedValueError, expectation_step
from wdspec.spec.language.expect import ExpectedField, read_expected_field


def wrong_with(expected, value, thorough=False):
    """The report on a value; None if it is as expected."""
    field = ExpectedField.model_validate(read_expected_field(expected))
    try:
        expectation_step({"x": field}, thorough)({"__key__": "k", "x": value})
    except UnexpectedValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("expected", "good", "bad", "said"),
    [
        ("uint8", np.zeros((2, 2), np.uint8), np.zeros(2, np.int16), "is an array of int16, where uint8"),
        ("float32", torch.zeros(3), torch.zeros(3, dtype=torch.int64), "is an array of int64, where float32"),
        ("int", 3, "3", "is a str, where int is expected"),
        ("int", np.int64(3), True, "is a bool, where int"),
        ("str", "a", b"a", "is a bytes, where str"),
        ("dict", {}, [], "is a list, where dict"),
        (
            "image",
            Image.new("RGB", (4, 3)),
            np.zeros((3, 4, 3), np.uint8),
            "is an array of uint8, where image",
        ),
        (
            {"shape": [2, None, [1, 3]]},
            np.zeros((2, 9, 3)),
            np.zeros((2, 9, 4)),
            "[2, 9, 4], where [2, any, 1 to 3]",
        ),
        ({"shape": [2, 2]}, np.zeros((2, 2)), np.zeros((2, 2, 1)), "has the shape [2, 2, 1]"),
        ({"shape": [3, 4, 3]}, Image.new("RGB", (4, 3)), Image.new("L", (4, 3)), "has the shape [3, 4, 1]"),
        ({"length": [2, 3]}, "ab", "abcd", "has the length 4, where 2 to 3"),
        ({"length": [1, None]}, [1], [], "has the length 0, where 1 or more"),
        ({"classes": 10}, 9, 10, "is 10, where 0 to 9 is expected"),
        ({"classes": 10}, np.int64(0), -1, "is -1"),
        ({"classes": ["cat", "dog"]}, "dog", "cow", "is 'cow', where one of 2 classes"),
        ({"range": [0, 1]}, 0.5, 1.5, "is 1.5, where 0 to 1"),
        (
            {"range": [None, 1]},
            np.array([-9.0, 1]),
            np.array([0, 2.0]),
            "ranges from 0 to 2, where at most 1",
        ),
        ({"range": [0, 1]}, torch.ones(3), float("nan"), "is nan"),
        (
            {"type": "float32", "shape": [2]},
            np.zeros(2, np.float32),
            np.zeros(3, np.float32),
            "[3], where [2]",
        ),
        ({}, None, None, None),
    ],
)
def test_an_unexpected_value_is_reported(expected, good, bad, said):
    assert wrong_with(expected, good) is None
    if said is not None:
        assert said in wrong_with(expected, bad)


def test_only_check_compares_ranges_of_large_arrays():
    large = np.full(FEW_ELEMENTS + 1, 7)
    assert wrong_with({"range": [0, 1]}, large) is None
    assert "ranges from 7 to 7" in wrong_with({"range": [0, 1]}, large, thorough=True)


def test_a_missing_field_is_reported():
    field = ExpectedField()
    with pytest.raises(UnexpectedValueError, match="has the field `y`, but the sample has `x`") as caught:
        expectation_step({"y": field})({"__key__": "k", "x": 1})
    assert caught.value.place == {"key": "k", "field": "y"}


@pytest.mark.parametrize(
    ("expect", "code", "said"),
    [
        ({"fields": {"cls": "uint9"}}, "E203", "did you mean `uint8`?"),
        ({"fields": {"cls": {"typ": "int"}}}, "E201", "did you mean `type`?"),
        ({"fields": {"cls": {"shape": 3}}}, "E202", "a shape is a list"),
        ({"fields": {"cls": {"range": [3, 1]}}}, "E204", "write `[1, 3]`"),
        ({"fields": {"cls": {"range": [None, None]}}}, "E203", "bounds are two numbers"),
        ({"fields": {"cls": {"length": "long"}}}, "E202", "number"),
        ({"fields": {"cls": {"classes": []}}}, "E202", "expected the classes"),
        ({"fields": {"cls": {"classes": 0}}}, "E202", "expected the classes"),
        ({"fields": {"cls": 3}}, "E202", "expected the description of a field"),
        ({"samples": [2, 1]}, "E204", "no number is between the bounds 2 and 1"),
        ({"dropped": 2}, "E204", "at most 1"),
        ({"dropt": 0.1}, "E201", "did you mean `dropped`?"),
    ],
)
def test_impossible_expectations_are_reported_at_their_place(expect, code, said):
    with pytest.raises(wdspec.SpecError) as caught:
        wdspec.load({"dataset": [{"shards": "a.tar", "expect": expect}]})
    (problem,) = caught.value.problems
    assert problem.code == code
    assert said in f"{problem.message} {problem.hint}"


@pytest.fixture
def spec(tmp_path):
    samples = [(f"k{n:02d}", {"cls": b"%d" % n, "txt": b"t" * (n + 1)}) for n in range(20)]
    write_shard(tmp_path / "a.tar", samples)
    return {
        "dataset": [
            {"name": "a", "shards": str(tmp_path / "a.tar"), "expect": {"fields": {"cls": {"classes": 15}}}}
        ],
        "epoch": "pass",
    }


def test_the_errors_key_decides_what_happens(spec):
    with wdspec.loader(spec) as loader, pytest.raises(UnexpectedValueError, match="is 15, where 0 to 14"):
        list(loader)
    with wdspec.loader(spec | {"errors": "skip"}) as loader:
        found = [sample["cls"] for sample in loader]
        assert loader.stats().sources["a"].skipped == {"D213": 5}
    assert sorted(set(found)) == list(range(15))


def test_expect_applies_to_the_output_of_a_source(spec, tmp_path):
    (source,) = spec["dataset"]
    source |= {"rename": {"label": "cls"}, "tags": {"kind": "a"}}
    source["expect"] = {"fields": {"label": {"range": [0, 19]}, "kind": {"classes": ["a"]}}}
    with wdspec.loader(spec | {"fields": "txt"}) as loader:
        assert len(list(loader)) == 20


def test_check_names_each_sample_and_compares_the_counts(spec, tmp_path):
    spec["dataset"][0]["expect"] |= {"samples": [30, None]}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", "--format", "json", folder=tmp_path, code=1)
    problems = json.loads(out)["problems"]
    assert [each["code"] for each in problems] == ["D213"] * 5 + ["D214"]
    assert problems[0]["member"] == "k15.cls"
    assert "the source has 20 samples, but 30 or more is expected" in problems[-1]["message"]


def test_check_compares_the_dropped_part(spec, tmp_path):
    spec["dataset"][0] |= {"extensions": "cls jpg", "missing": "skip", "expect": {"dropped": 0.5}}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", "--format", "json", folder=tmp_path, code=1)
    (problem,) = json.loads(out)["problems"]
    assert (problem["code"], problem["source"]) == ("D215", "a")
    assert "no sample of `a` is left: 20 of 20 lack `jpg`" in problem["message"]


def test_a_part_that_is_too_large_comes_with_the_place_of_the_first_sample(spec, tmp_path):
    spec["dataset"][0] |= {"expect": {"dropped": 0.2}, "subset": "90%", "where": "cls not in [13, 17]"}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    run = ["check", "s.yaml", "--all", "--jobs", "0", "--format", "json", "--report", "seen.db"]
    assert not json.loads(within(*run, folder=tmp_path)[0])["problems"]
    spec["dataset"][0]["expect"]["dropped"] = 0
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    for _ in range(2):  # the second one reads the report
        (problem,) = json.loads(within(*run, folder=tmp_path, code=1)[0])["problems"]
        assert (problem["code"], problem["source"], problem["key"]) == ("D215", "a", "k13")
        assert problem["shard"].endswith("a.tar")
        assert (
            "dropped by `where`, but at most 0% is expected; the first of them is here" in problem["message"]
        )


def test_the_spec_on_the_page_is_valid():
    page = (Path(__file__).parents[2] / "docs" / "checking.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    (source,) = wdspec.load(yaml.safe_load(block)).sources
    assert sorted(source.expect.fields) == ["cls", "jpg", "txt"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.tensor([3], dtype=torch.uint16), None),
        (torch.tensor([30], dtype=torch.uint16), "ranges from 30 to 30"),
        (torch.tensor([1 + 2j]), "is an array of torch.complex64, whose range cannot be checked"),
        (np.array(["a"]), "whose range cannot be checked"),
        (np.array([None], dtype=object), "whose range cannot be checked"),
        (10**400, "is a int, which is not a number"),
        ("5", "is a str, which is not a number"),
        (b"5", "is a bytes, which is not a number"),
    ],
    ids=str,
)
def test_values_without_a_range_are_reported(value, said):
    found = wrong_with({"range": [0, 9]}, value)
    assert found is None if said is None else said in found


def test_a_valid_shape_does_not_hide_another_type():
    field = ExpectedField.model_validate(read_expected_field("float"))
    step = expectation_step({"x": field})
    step({"x": np.float64(1)})
    with pytest.raises(UnexpectedValueError, match="is an array of float64, where float is expected"):
        step({"x": np.array(1.0)})


def test_the_type_of_an_open_file_is_reported():
    with open(__file__, "rb") as file:
        assert "is a BufferedReader, where int is expected" in wrong_with("int", file)
