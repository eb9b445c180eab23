"""The JSON Schema refuses what the loader refuses, and takes what it takes, as far as JSON Schema can say it."""

import copy
import math
import random

import pytest
import yaml
from jsonschema import Draft202012Validator
from whole_spec import DOCUMENT, places

from wdspec.spec.load import check
from wdspec.spec.schema import json_schema

BEYOND = {
    "E004": "characters that no YAML file may hold",
    "E105": "duplicate names, and names that another key refers to",
    "E107": "variables that have no value",
    "E112": "variables whose values do not fit their place",
    "E205": "numbers as text that are too large to be finite",
    "E207": "keys that exclude each other",
    "E210": "ranges that run backwards, and factors as text",
    "E212": "what is a regex to Python",
    "E216": "keys that other keys leave no place for",
    "E217": "ranges of steps that run backwards",
    "E301": "sources without a share next to those with one",
    "E302": "shares that do not sum to 1",
    "E306": "epochs shorter than a batch",
    "E307": "batches that ranks cannot share",
    "E308": "fields that no source has",
    "E312": "what has no place in a pass",
    "E315": "decoders of fields that no source has",
    "E317": "ranges of steps that overlap",
    "E316": "functions and collations of fields that no source has",
}
"""What JSON Schema cannot say: it would have to look at two values at once, or at more than their form."""
EXCUSED = {
    "E202": {("cache",), "output"},  # a size in place of a folder; an output without both its ends
    "E204": {"text"},  # numbers as text that are beyond the limits
    "E206": {"dataset", "shards", "batch", "epoch"},  # one of several keys, which a file below may have
    "E211": {"text"},
}

FULL = copy.deepcopy(DOCUMENT)
FULL["dataset"][0] |= {
    "cache": {"dir": "c", "size": "5GB"},
    "aistore": {"endpoint": "http://h", "use_for": ["s3"], "read_timeout": "5m"},
    "select": "m:f",
    "shuffle": 3,
    "interleave": 2,
    "order": "shuffled",
    "upsample": None,
}
FULL |= {
    "cache": "x",
    "elastic": {"ranks": 2, "workers": 2},
    "output": {"from": "a/", "to": "b/"},
    "seed": 1,
}
VALUES = [
    *(None, True, False, 0, 1, -1, 2.5, 5000, 10**20, math.inf, "\0"),
    *("", " ", "x", "a b", "5", "5.5", "-1", "1_000", "017", "1e3", "1e400", "5m", "5 m", "500GB", "GB"),
    *("${v}", "a${v}b", "rgb", "rgb8", "rgb8+upright", "rgb8+nothing", "nothing", "auto", "even", "pass"),
    *("m:f", "m.n:f", "m.f", ".jpg", "a,b", "a;b", "a|b", "jpg;png txt", "a/b", "skip", "raise"),
    *([], ["x"], ["m:f"], [1], [1, 2], [0.5, 2.0], [2, 1], [1, 2, 3], [None]),
    *({}, {"x": 1}, {"call": "m:f"}, {"size": 3}),
]
CASES = [(path, value) for path in places(FULL) for value in VALUES]
SCHEMA = Draft202012Validator(json_schema())


def is_excused(code, path, value):
    excuses = EXCUSED.get(code, ())
    return (
        code in BEYOND
        or path[0] == "vars"  # what comes of a variable is seen where it is used
        or (isinstance(value, str) and ("${" in value or "\0" in value))
        or path in excuses
        or path[-1:] in excuses
        or path[-1] in excuses
        or (len(path) > 1 and path[-2] in excuses)
        or ("text" in excuses and isinstance(value, str))
    )


def disagreement(path, value):
    document = copy.deepcopy(FULL)
    node = document
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    errors = [problem for problem in check(document)[1] if problem.is_error]
    if SCHEMA.is_valid(document):
        wrong = [problem for problem in errors if not is_excused(problem.code, path, value)]
        return f"the editor takes {path}: {value!r}, the loader says {wrong[0]}" if wrong else None
    return None if errors else f"the editor refuses {path}: {value!r}, which loads"


def test_editor_and_loader_agree_on_a_sample_of_values():
    rng = random.Random(13)
    found = [disagreement(*case) for case in rng.sample(CASES, 300)]
    assert [each for each in found if each] == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_editor_and_loader_agree_on_every_value_everywhere(part):
    found = [disagreement(*case) for case in CASES[part::8]]
    assert [each for each in found if each] == []


def test_both_accept_the_full_document():
    assert SCHEMA.is_valid(FULL)
    assert [problem for problem in check(FULL)[1] if problem.is_error] == []


def test_every_pattern_is_valid_in_javascript():
    """What Python's `re` has beyond ECMA-262 has no place in a schema for editors."""
    text = yaml.safe_dump(json_schema())
    for beyond in ("(?P<", "(?P=", r"\A", r"\Z", "(?i)", "(?x)", "(?a"):
        assert beyond not in text
