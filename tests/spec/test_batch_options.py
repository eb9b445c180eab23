"""What `batch: {ragged, collate}` may say, and what is said to other things."""

import pytest
from jsonschema import Draft202012Validator

from wdspec.base.errors import SpecError
from wdspec.spec.load import load, validate
from wdspec.spec.schema import json_schema

GOOD = [
    "ragged: list",
    "ragged: error",
    "ragged: list, collate: {boxes: stack}",
    "group_by: cls, max_size: null",
    "collate: {tokens: pad, boxes: list, cls: stack, words: nested}",
    "collate: {tokens: {pad: left}}",
    "collate: {tokens: {pad: {side: left, value: -100, axis: 0, multiple: 8, limit: 2_048}}}",
    "collate: {tokens: {pad: {length: 2048, value: 0.5, axis: [0, 1]}}}",
    "collate: my.module:function",
    "collate: {call: my.module:function, args: {a: 1}}",
    "collate: {tokens: my.module:function, words: {call: my.module:Class, args: {a: 1}}}",
]
BAD = {
    "ragged: lists": ("E203", "did you mean `list`?"),
    "ragged: 3": ("E203", "write `error` or `list`"),
    "ragged: {}": ("E203", "write `error` or `list`"),
    "ragged: {boxes: list}": ("E203", "write `collate: {boxes: list}`"),
    "ragged: {boxes: list, words: error}": ("E203", "write `collate: {boxes: list, words: stack}`"),
    "ragged: [boxes, words]": ("E203", "write `collate: {boxes: list, words: list}`"),
    "ragged: [boxes], collate: {boxes: pad}": ("E203", "write `collate: {boxes: list}`"),
    "group_by: cls, max_size: 8": ("E207", "write `size: 8`"),
    "collate: pad": ("E202", "name the fields, `collate: {tokens: pad}`"),
    "collate: list": ("E202", "write `ragged: list`"),
    "collate: {tokens: padd}": ("E203", "did you mean `pad`?"),
    "collate: {tokens: 3}": ("E202", "write `stack`"),
    "collate: {tokens: {side: left}}": ("E201", "write `{pad: {…}}`"),
    "collate: {tokens: {pad: {sid: left}}}": ("E201", "did you mean `side`?"),
    "collate: {tokens: {pad: {side: top}}}": ("E203", "write `left` or `right`"),
    "collate: {tokens: {pad: {multiple: 0}}}": ("E204", ""),
    "collate: {tokens: {pad: {multiple: 8, limit: 100}}}": ("E203", "a multiple of 8"),
    "collate: {tokens: {pad: {length: 8, limit: 8}}}": ("E203", "one or the other"),
    "collate: {tokens: {pad: {axis: x}}}": ("E202", ""),
    "collate: {tokens: {pad: 3}}": ("E202", "write `{pad:"),
    "collate: {tokens: my.module}": ("E203", "package.module:function"),
    "collate: {tokens: {call: my.module:f, arg: {}}}": ("E201", "args"),
    "collate: {tokens: {call: my.module:f, args: 3}}": ("E202", "write `args:"),
}


def text(options):
    return f"batch: {{size: 4, {options}}}\ndataset:\n  - shards: a.tar\n"


@pytest.mark.parametrize("options", GOOD)
def test_ways_to_collate(tmp_path, options):
    path = tmp_path / "a.yaml"
    path.write_text(text(options))
    assert load(path).batch.size == 4


@pytest.mark.parametrize("options", BAD)
def test_mistakes_are_reported_with_their_remedy(tmp_path, options):
    path = tmp_path / "a.yaml"
    path.write_text(text(options))
    with pytest.raises(SpecError) as caught:
        load(path)
    (problem,) = caught.value.problems
    code, hint = BAD[options]
    assert problem.code == code
    assert hint in problem.hint
    assert problem.line == 1


def test_groups_have_a_size_and_only_groups_by_cost_a_largest_size():
    spec = {"dataset": [{"shards": "a.tar"}], "batch": {"group_by": "cls", "max_size": 8}}
    (problem,) = validate(spec)
    assert (problem.code, problem.hint) == ("E207", "write `size: 8`")
    spec["batch"] |= {"cost": "txt.length", "max_cost": 90}
    assert not validate(spec)


@pytest.mark.parametrize("ragged", [{"boxes": "list"}, ["boxes"], {}])
def test_an_editor_allows_no_fields_in_ragged(ragged):
    allowed = json_schema()["$defs"]["Batch"]["properties"]["ragged"]
    assert not Draft202012Validator(allowed).is_valid(ragged)
    assert Draft202012Validator(allowed).is_valid("list")
    assert all("`collate: {boxes: list}`" in form["errorMessage"] for form in allowed["anyOf"])
