"""Regexes of specs and variables never take for ever: they are refused before, or their texts are."""

import contextlib
import time

import pytest

import wdspec
from wdspec.errors import UrlError
from wdspec.urls.regex_cost import check_length, nested_repeat
from wdspec.urls.rewrite import parse_rules, rewrite


@pytest.mark.parametrize(
    "regex",
    [
        "gs://(a+)+$",
        "(a*)*b",
        "(a|a)*b",
        "(a|ab)+c",
        "(.*a){20}x",
        "((x|y+)z?)*$",
        "(?:[a-z]+)*!",
        "(a.*)*b",
        r"(\w+\s?)*$",
    ],
)
def test_what_repeats_a_repeat_is_refused(regex):
    assert nested_repeat(regex)
    with pytest.raises(UrlError, match="repeat inside a repeat"):
        parse_rules(f"{regex}=x")
    with pytest.raises(wdspec.SpecError, match="E212"):
        wdspec.load({"dataset": [{"shards": "a.tar"}], "rewrite": [{"from": regex, "to": "x"}]})


@pytest.mark.parametrize(
    "regex",
    [
        "gs://([^/]+)/(.*)",
        "^https://([^/]+)/([^/]+)/([^/]+)/(.*)$",
        "(/[^/]+)*",
        "([^/]+/)*x",
        "(?:a|b)+",
        "(?:http|gs)s?://",
        r"(.*/\d+)\.(.*)",
        r"gs://((?:.|\n)*)",
        "(?i)X.*",
        r"(\d{3}-)*\d+",
    ],
)
def test_others_are_taken_and_fast_on_any_text_that_passes(regex):
    assert not nested_repeat(regex)
    (rule,) = parse_rules(f"{regex}=x")
    for piece in ("a", "/", "http://", "0", "aa/", "1."):
        for length in (100, 1000, 10_000):
            text = (piece * length)[:length]
            begun = time.process_time()
            with contextlib.suppress(UrlError):
                rewrite(text, [rule])
            assert time.process_time() - begun < 5


def test_many_open_repeats_bound_the_length():
    check_length(".*.*.*x", "a" * 500)
    with pytest.raises(UrlError, match="3 open repeats"):
        check_length(".*.*.*x", "a" * 5000)
    check_length("[^/]*/[^/]*/[^/]*/x", "a" * 100_000)
