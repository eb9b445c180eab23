"""Operators of expressions take values of one kind, and say what to write for others."""

import datetime
import itertools
import json
import math
import pickle
import random
from decimal import Decimal

import numpy as np
import pytest

import wdspec
from wdspec.spec.language.expressions import ExpressionError, describe_path, parse_expression
from wdspec.spec.language.operators import NullOperandError, OperandError
from wdspec.spec.load import check

OF_KINDS = {
    "number": (0, 3, 0.5, Decimal(2), np.float32(1.5)),
    "boolean": (True, False, np.bool_(True)),
    "text": ("", "3", np.str_("de")),
    "bytes": (b"3",),
    "list": ([3], ["3"]),
    "map": ({"a": 3},),
    "date": (datetime.date(2024, 5, 17),),
}


def problems_of(spec):
    return [problem for problem in check(spec)[1] if problem.code in ("E316", "E330", "W392")]


def evaluate(text, *values):
    return parse_expression(text).evaluate(*values)


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_comparing_two_kinds_is_an_error_that_shows_both_values(sign):
    for (left, values), (right, others) in itertools.permutations(OF_KINDS.items(), 2):
        for value, other in itertools.product(values, others):
            with pytest.raises(OperandError, match=f"^`a {sign} b` compares the {left}.* with the {right} "):
                evaluate(f"a {sign} b", value, other)


@pytest.mark.parametrize("values", OF_KINDS.values())
def test_values_of_one_kind_compare_as_in_python(values):
    for value, other in itertools.product(values, values):
        assert bool(evaluate("a == b", value, other)) is bool(value == other)
        assert bool(evaluate("a != b", value, other)) is bool(value != other)


@pytest.mark.parametrize("value", [3, "x", True, 0.0, [], {}, b"x", None, np.arange(3)], ids=repr)
@pytest.mark.parametrize("none", ["none", "null", "None"])
def test_equality_compares_every_kind_with_none(value, none):
    assert evaluate(f"a == {none}", value) is (value is None)
    assert evaluate(f"{none} != a", value) is (value is not None)
    assert evaluate("a == b", value, None) is (value is None)
    if not isinstance(value, np.ndarray):
        assert evaluate(f"a in [{none}]", value) is (value is None)


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        ("cls != '3'", 3, "compares the number 3 with the text '3'; write `cls != 3`"),
        ("'3' == cls", 3, "compares the text '3' with the number 3; write `3 == cls`"),
        ("cls == 3", "3", "compares the text '3' with the number 3; write `cls == '3'`"),
        ("cls in ['1', '3']", 3, "compares the number 3 with the text '1'; write `cls in [1, 3]`"),
        ("cls == [1, 2]", 3, "compares the number 3 with the list [1, 2]; write `cls in [1, 2]`"),
        ("['a'] != cls", "b", "write `cls not in ['a']`"),
        ("cls in ['1', none]", 3, r"with the text '1'; write `cls in \[1, none\]`"),
        ("cls not in [1, 3]", "x", "compares the text 'x' with the number 1; write `cls not in ['1', '3']`"),
        ("json.ok == 1", True, "compares the boolean true with the number 1; write `json.ok == true`"),
        ("json.ok == 'true'", False, "compares the boolean false with the text 'true'; write `json.ok == true`"),
        ("json.ok == true", 1, "compares the number 1 with the boolean true; write `json.ok == 1`"),
        ("foo == 'a'", b"a", "compares the bytes b'a' with the text 'a'; .* write `decode: {foo: txt}`"),
        ("json.n > 5", "7", "compares the text '7' with the number 5; give the values in the data one kind"),
        ("'a' in json.tags", [1], "compares the text 'a' with the number 1"),
        ("'a' in json.tags", 5, "`json.tags` is the number 5, and neither a list nor a text"),
        ("3 in json.text", "abc3", "compares the number 3 with the text 'abc3'; write `'3' in json.text`"),
        ("json.s * 3", "ab", r"`\*` is for numbers, but `json.s` is the text 'ab'"),
        ("3 * json.s", [1], r"`\*` is for numbers, but `json.s` is the list \[1\]"),
        ("json.s - 1", "ab", "`-` is for numbers, but `json.s` is the text 'ab'"),
        ("json.s + 1", "ab", r"`\+` is for numbers, but `json.s` is the text 'ab'"),
        ("-json.s", "ab", "`-` is for numbers, but this is the text 'ab'"),
        ("max(json.s, 1)", "ab", "`max` is for numbers, but this is the text 'ab', the number 1"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_an_error_with_what_to_write(text, value, message):
    pattern = message if "\\" in message else message.replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(OperandError, match=pattern):
        evaluate(text, value)


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_smallest_and_largest_value_is_nan_if_any_is(name):
    """Python's `max(2, nan)` is 2, so a broken cost would look like a good one."""
    for values in itertools.permutations((1, 2.5, math.nan)):
        assert math.isnan(evaluate(f"{name}(a, b, c)", *values))
    for values in itertools.permutations((1, 2.5, Decimal(4))):
        assert evaluate(f"{name}(a, b, c)", *values) == {"min": min, "max": max}[name](values)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("json.score > 5", "default(json.score, 0) > 5"),
        ("json.lang < 'x'", "default(json.lang, '') < 'x'"),
        ("5 < json.score < 10", "5 < default(json.score, 0)"),
        ("json.score + 1 > 5", "default(json.score, 0) + 1"),
        ("min(json.score, 3) > 2", "min(default(json.score, 0), 3)"),
        ("ceil(json.score) > 2", "ceil(default(json.score, 0))"),
        ("-json.score > 2", "-default(json.score, 0)"),
        ("'a' in json.tags", "'a' in default(json.tags, [])"),
    ],
)
def test_a_null_names_the_default_that_can_be_pasted(text, remedy):
    with pytest.raises(NullOperandError) as said:
        evaluate(text, None)
    assert str(said.value).endswith(f"write `{remedy}`")
    assert evaluate(remedy, None) is not None


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("3 == '3'", "compares a number with a text", ""),
        ("ceil(json.a) == '3'", "compares a number with a text", "write `ceil(json.a) == 3`"),
        ("json.a in [1, 'x']", "compares with values of several kinds", "write values of one kind"),
        ("default(json.a, 0) == 'en'", "compares a number with a text", "write `default(json.a, '')`"),
        ("default(json.a, '') > 3", "compares a text with a number", "write `default(json.a, 0)`"),
        ("json.a > null", "compares with none", "write `json.a != none`"),
        ("'a' in default(json.a, 0)", "looks into", "write `'a' in default(json.a, [])`"),
        ("json.a in 3", "looks into a number", "write `json.a in [3]`"),
        ("'a' * 300000000 == json.a", "has the text `'a'`", "write numbers without quotes"),
        ("ceil('a') > json.b", "calls `ceil` with the text `'a'`", "`ceil` is for numbers"),
        ("json.a + none > 1", "has none in", "write a number"),
    ],
)
def test_kinds_that_the_text_determines_are_reported_by_validation(text, message, hint):
    (problem,) = problems_of({"dataset": [{"shards": "a.tar", "where": text}]})
    assert problem.code == "E330"
    assert message in problem.message
    assert (problem.hint or "").startswith(hint)
    (problem,) = problems_of({"dataset": [{"shards": "a.tar"}], "batch": {"size": 2, "group_by": text}})
    assert problem.code == "E330"


@pytest.mark.parametrize(
    "text",
    ["default(json.a, none) == 'en'", "json.a in ['x', none]", "json.a == json.b", "json.a + 'x' == 'yx'"],
)
def test_kinds_that_may_fit_are_no_problem(text):
    assert not problems_of({"dataset": [{"shards": "a.tar", "where": text}]})


def test_expressions_over_numbers_are_worth_what_python_says():
    draw = random.Random(3)

    def write(depth):
        if depth == 0:
            return draw.choice(["a", "b", "c", "2", "0.5", "-3"])
        one, other = write(draw.randrange(depth)), write(draw.randrange(depth))
        third = write(draw.randrange(depth))
        return draw.choice(
            [
                f"({one} {draw.choice('+-*/')} {other})",
                f"min({one}, {other}, {third})",
                f"max({one}, {other})",
                f"abs({one})",
                f"ceil({one})",
                f"-{one}",
                f"(1 * ({one} < {other} <= {third}))",
                f"(({one} == {other}) + ({one} != {third}))",
                f"({one} - ({other} >= {third}))",
            ]
        )

    for _ in range(400):
        text, values = write(4), [draw.choice([1, 2, -1.5, 4, 0]) for _ in "abc"]
        names = dict(zip("abc", values, strict=True))
        try:
            expected = eval(text, {"ceil": math.ceil}, names)
        except ZeroDivisionError:
            continue
        try:
            expression = parse_expression(text)
        except ExpressionError:
            continue
        found = expression.evaluate(*(names[str(path[0])] for path in expression.paths))
        assert found == expected, text


@pytest.mark.parametrize("key", ["where", "group_by", "cost", "costs", "balance", "limits"])
@pytest.mark.parametrize("sign", ["+", "-", "*", "not", "<"])
def test_many_operators_within_each_other_are_a_problem_of_the_spec(key, sign):
    text = f"{'not ' * 200}a" if sign == "not" else sign.join(["a"] * 200)
    if sign == "<":
        text = "a < (" * 180 + "a" + ")" * 180
    spec = {"dataset": [{"shards": "a.tar"}], "batch": {"cost": "a", "max_cost": 9}}
    if key == "where":
        spec = {"dataset": [{"shards": "a.tar", "where": text}]}
    elif key == "costs":
        spec["costs"] = {"x": text}
    else:
        spec["batch"][key] = {text: 3} if key == "limits" else text
    assert [problem.code for problem in problems_of(spec)][:1] == ["E330"]


@pytest.mark.parametrize(
    "text",
    ["+".join(["a"] * 150), "*".join(["a"] * 150), "not " * 150 + "a", "-" * 150 + "a", "a == " * 150 + "a"],
)
def test_what_validation_accepts_can_be_evaluated(text):
    assert evaluate(text, 1) is not None


def test_the_middle_of_a_chain_is_evaluated_once():
    expression = parse_expression("1 < (2 < (3 < a * b < 9) + a < 9) + a < 9")
    assert expression.source.count("v0 * v1") <= 2
    assert expression.evaluate(2, 3) is True
    assert pickle.loads(pickle.dumps(expression)).evaluate(2, 3) is True


def write_records(folder, records):
    path = folder / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"__key__": f"k{n}", **each}) + "\n" for n, each in enumerate(records))
    )
    return path


def read_keys(path, **source):
    spec = {"dataset": [{"name": "a", "shards": str(path), **source}], "epoch": "pass"}
    loader = wdspec.loader(spec, num_workers=0)
    return [sample["__key__"] for sample in loader if sample["__mask__"]], loader


def test_where_keeps_what_is_null_and_drops_zero(tmp_path):
    path = write_records(tmp_path, [{"score": None}, {"score": 0}, {"score": 7}])
    for none in ("null", "None", "none"):
        assert read_keys(path, where=f"score == {none}")[0] == ["k0"]
        assert read_keys(path, where=f"score != {none} and score > 5")[0] == ["k2"]


def test_a_null_is_dropped_by_where_and_not_damaged_if_errors_are_skipped(tmp_path):
    path = write_records(tmp_path, [{"score": None}, {"score": 0}, {"score": 7}, {"score": "7"}])
    with pytest.raises(
        wdspec.FieldError, match=r"`score` is null in `score > 5`; write `default\(score, 0\) > 5`"
    ):
        read_keys(path, where="score > 5")
    found, loader = read_keys(path, where="score > 5", errors="skip")
    assert found == ["k2"]
    stats = loader.stats().sources["a"]
    assert stats.dropped == {"where": 2}
    assert stats.skipped == {"D202": 1}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("META.score > 3", "Write `meta.score`"),
        ("old == 3", "Write `new`"),
        ("meta.lang == en", "Write `'en'` if it is a text"),
        ("'de' in [en]", "Write `'en'` if it is a text"),
        ("side.json.a == 1", r"""Write `fields\["side.json"\].a`"""),
        ("meta.Score > 3", "there is no `Score` in it, which has the keys score, lang; write `meta.score`"),
        ("meta.scor > 3", "there is no `scor` in it, which has the keys score, lang; write `meta.score`"),
        ("meta.x > 3", r"write `default\(meta.x, 0\)` if samples may lack it"),
        ("meta.score.x > 3", r"as it is null; write `default\(meta.score.x, 0\)`"),
    ],
)
def test_an_unknown_name_is_compared_with_what_samples_have(tmp_path, where, message):
    record = {"meta": {"score": None, "lang": "en"}, "old": 3, "side.json": {"a": 1}}
    with pytest.raises(wdspec.FieldError, match=message.replace("?", r"\?")):
        read_keys(write_records(tmp_path, [record]), where=where, rename={"new": "old"})


@pytest.mark.parametrize(
    ("where", "code", "hint"),
    [
        ("JSON.score == 0", "E316", "write `json.score`"),
        ("jpg.width > 3", "E316", "write `image.width`"),
        ("side.json.a == 1", "W392", 'write `fields["side.json"].a`'),
        ("json.lang == en", "W392", "write `'en'` if it is a text"),
        ("json.lang in ['de', en]", "W392", "write `'en'` if it is a text"),
    ],
)
def test_validation_compares_unknown_names_with_the_fields(where, code, hint):
    source = {
        "shards": "a.tar",
        "extensions": "jpg json side.json",
        "rename": {"image": "jpg"},
        "where": where,
    }
    (problem,) = problems_of({"dataset": [source]})
    assert (problem.code, problem.hint) == (code, hint)


def test_a_path_may_go_through_each_item_of_one_list():
    parsed = parse_expression('"a" in json.turns[:].role and fields["x.y"][:] != json["[:]"]')
    assert [describe_path(path) for path in parsed.paths] == [
        "json.turns[:].role",
        'fields["x.y"][:]',
        "json['[:]']",
    ]
    assert pickle.loads(pickle.dumps(parsed)).paths == parsed.paths
    assert parsed.paths[1] != parse_expression('fields["x.y"]["[:]"]').paths[0]
    assert parsed.evaluate(["b", "a"], [1], [2]) is True


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("json.turns[].role", "write `json.turns[:].role`"),
        ("json.turns[*].role", "write `json.turns[:].role`"),
        ("json.turns[:].parts[:].text", "write `[:]` once"),
        ("json.turns[1:].role", ""),
    ],
)
def test_other_ways_to_write_each_item_have_a_remedy(text, hint):
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert hint in caught.value.hint


NAMES_IN_QUOTES = {
    "json.class": 'json["class"]',
    "json.objects[:].class": 'json.objects[:]["class"]',
    "json.objects[].class": 'json.objects[:]["class"]',
    "json.objects[:].class.name": 'json.objects[:]["class"].name',
    "objects[0].in": 'objects[0]["in"]',
    "class.from[:].x": 'fields["class"]["from"][:].x',
    "json.objects[:].my-class": 'json.objects[:]["my-class"]',
    "seg-map": 'fields["seg-map"]',
    "json.2d": 'json["2d"]',
    "json.@id": 'json["@id"]',
}


@pytest.mark.parametrize(("written", "meant"), NAMES_IN_QUOTES.items())
def test_each_name_of_a_path_that_needs_quotes_is_written_with_them(written, meant):
    spec = {"dataset": [{"shards": "a.tar", "make": {"new": {"take": written}}}]}
    [problem] = wdspec.validate(spec)
    assert f"write `{meant}`" in problem.hint
    spec["dataset"][0]["make"]["new"]["take"] = meant
    assert wdspec.validate(spec) == []
    assert (
        parse_expression(describe_path(parse_expression(meant).paths[0])).paths
        == parse_expression(meant).paths
    )


@pytest.mark.parametrize("written", ["json.n - 1", "width/2", "text + title", "5", "-x", "json..x"])
def test_what_is_no_path_is_not_put_in_quotes(written):
    [problem] = wdspec.validate({"dataset": [{"shards": "a.tar", "make": {"new": {"take": written}}}]})
    assert f"write `{written}`" not in problem.hint
    assert 'write `fields["' not in problem.hint


def test_a_word_of_python_within_an_expression_is_put_in_quotes():
    with pytest.raises(ExpressionError) as caught:
        parse_expression("'cat' in json.objects[:].class and json.lang == 'de'")
    assert 'write `json.objects[:]["class"]` for' in caught.value.hint


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"shards": "a.jsonl"}, 0),
        ({"shards": "a.parquet", "extensions": "id"}, 0),
        ({"shards": "a", "format": "cbor"}, 0),
        ({"shards": ["a.tar", "@list.txt"]}, 0),
        ({"shards": "a.tar", "join": [{"shards": "b.jsonl", "fields": "id"}]}, 0),
        ({"shards": "a.tar", "lookup": [{"table": "t.csv", "fields": "id"}]}, 0),
        ({"shards": "a.tar"}, 1),
    ],
)
def test_only_in_tars_the_name_of_a_field_says_its_kind(source, found):
    """A column `id` may be a text; a file `id` is an integer."""
    spec = {"dataset": [{**source, "where": "id.length >= 5"}]}
    assert [each.code for each in problems_of(spec)] == ["E316"] * found
    spec = {"dataset": [source], "batch": {"cost": "id.length", "max_cost": 9}}
    assert [each.code for each in problems_of(spec)] == ["E316"] * found
