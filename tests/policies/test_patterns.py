"""Patterns, against every text that an outline stands for; rewriting of braces, against each shard alone."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.policies.canonical import canonical
from wdspec.policies.judge import Answer, example, judge
from wdspec.policies.patterns import ANY_CHARACTER, ANY_TEXT, common_outline, matches, may_match
from wdspec.policies.places import Place, _of_braces, _rewritten
from wdspec.urls.braces import Braces
from wdspec.urls.rewrite import Rule, rewrite

SHORT = ["".join(letters) for length in range(4) for letters in itertools.product("ab", repeat=length)]
"""Stand-ins for any text: patterns of two characters cannot tell longer ones apart from one of these."""


def expand(outline):
    """The texts of an outline, with short texts in place of any."""
    parts = re.split(f"([{ANY_TEXT}{ANY_CHARACTER}])", outline)
    choices = [SHORT if part == ANY_TEXT else "ab" if part == ANY_CHARACTER else [part] for part in parts]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def fits(pattern, text):
    """Slow and obvious."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(fits(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return text[:1] == pattern[0] and fits(pattern[1:], text[1:])


@settings(deadline=None)
@given(st.text("ab*", max_size=4), st.text("ab", max_size=6))
def test_a_pattern_matches_whole_texts(pattern, text):
    assert matches(pattern, text) == fits(pattern, text)


@settings(max_examples=100, deadline=None)
@given(st.text("ab*", max_size=3), st.text(f"ab{ANY_TEXT}{ANY_CHARACTER}", max_size=3))
def test_a_pattern_may_match_an_outline_if_it_matches_one_of_its_texts(pattern, outline):
    texts = expand(outline)
    assert may_match(pattern, outline) == any(fits(pattern, text) for text in texts)
    if matches(pattern, outline):
        assert all(fits(pattern, text) for text in texts)


@settings(deadline=None)
@given(st.lists(st.text("ab/", max_size=5), min_size=1, max_size=4))
def test_a_common_outline_describes_all_texts(texts):
    outline = common_outline(texts)
    assert all(may_match(text, outline) for text in texts)
    assert outline.count(ANY_TEXT) == (len(set(texts)) > 1)


PATTERNS = [
    "gs://b/a-{0..11}.tar",
    "gs://b/{x,y\\,z}/{00..02}/q",
    "gs://c/{0..1}",
    "{gs,s3}://b/{0..1}",
    "gs://b/\\{{0..1}",
]
RULES = [
    ("gs://b/", "/data/"),
    ("gs://b/a", "s3://{c},d/"),
    ("gs://b/(.*)", r"https://h/\1?x"),
    ("gs://b/.*", "x"),
    ("gs://(.*)/(.*)", r"\2"),
    (r"gs://b/a-(\d)", r"q\1"),
    ("(?i)GS://B", "z:"),
    ("gs://b/(.*)", r"pipe:cat \1"),
    ("^gs://b/", "z"),
    ("gs://b/(.*)", r"\1\1"),
    ("gs://b/a|gs://b/x", "u"),
    ("gs://b?/", "u"),
    ("gs://b/a-1", "http://evil/"),
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("rules", [*((rule,) for rule in RULES), (RULES[12], RULES[2]), (RULES[0], RULES[2])])
def test_braces_are_rewritten_as_each_of_their_shards(pattern, rules):
    rules = tuple(Rule(*rule, f"rule {number}") for number, rule in enumerate(rules))
    found = {}
    for place in _rewritten(_of_braces(None, Braces(pattern), "/"), rules):
        texts = [place.text] if place.many is None else list(place.many)
        for text in texts:  # what stands for all of them describes each of them
            answer = judge(place, "shards", (canonical(text, "/"),), False)[0]
            assert answer in (Answer.ALL, Answer.SOME)
        found.setdefault(place.how, []).extend(texts)
    expected = {}
    for text in Braces(pattern):
        changed, rule = rewrite(text, rules)
        if rule is not None:
            expected.setdefault(f" after the rewrite rule of {rule.origin}", []).append(changed)
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/../b.tar", "/base/b.tar"),
        ("file:///data/a%20b.tar", "/data/a b.tar"),
        ("HTTP://ann:pw@Host:80/a/./b/../c?x=1#y", "http://host/a/c?x=1"),
        ("https://host/../../a", "https://host/a"),
        ("https://host:8443/a", "https://host:8443/a"),
        ("S3A://b/a/../c", "s3://b/a/../c"),  # the key of an object
        ("abfs://box@acc.dfs.core.windows.net/a", "az://box@acc.dfs.core.windows.net/a"),
        ("https://h\\@other/a", "https://h/\\@other/a"),  # as urllib3 reads it
        ("https://h%6Fst.:0443//a/..%2Fb", "https://host/b"),
        ("http://127.1/a", "http://127.0.0.1/a"),
        ("http://2130706433:8080/a", "http://127.0.0.1:8080/a"),
        ("http://[::FFFF:127.0.0.1]:80/a", "http://127.0.0.1/a"),
        ("http://[::1]:81/a", "http://[::1]:81/a"),
        ("pipe:cat x", "pipe:cat x"),
        ("http://[broken/a", "http://[broken]/a"),
    ],
)
def test_urls_have_one_form(text, expected):
    assert canonical(text, "/base") == expected


def test_many_shards_are_counted_without_looking_at_each():
    place = _of_braces(None, Braces("s3://b/a-{000000000..999999998}.tar"), "/")
    assert judge(place, "shards", ("s3://b/*",), True)[0] is Answer.ALL
    assert judge(place, "shards", ("s3://c/*",), True)[0] is Answer.NONE
    assert judge(place, "shards", ("s3://b/a-5*",), True)[0] is Answer.UNKNOWN
    assert judge(place, "bucket", ("b",), True)[0] is Answer.ALL


def test_an_answer_about_some_shards_has_an_example_of_both_kinds():
    place = _of_braces(None, Braces("s3://b/{0..9}"), "/")
    found = judge(place, "shards", ("s3://b/3", "s3://b/4"), True)
    assert found[0] is Answer.SOME
    assert (example(found, True), example(found, False)) == ("s3://b/3", "s3://b/0")
    assert judge(Place(None, "", "", unknown="it is remote"), "scheme", ("*",), True)[0] is Answer.UNKNOWN
