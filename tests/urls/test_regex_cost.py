"""Regexes in specs and variables always finish soon: slow ones are rejected, or their texts are."""

import contextlib
import re
import signal
import time
from random import Random

import pytest

import wdspec
from wdspec.base.errors import UrlError
from wdspec.urls.rewrite import check_length, nested_repeat, parse_rules, rewrite


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
        "(a{1,15}){1,15}b",
        "((a{0,15}){0,15}){0,15}b",
        "(a?b?a?)*$",
        "(x)?(?(1)(a+)+|(a+)+)$",
        "(?i)([b]+B)*$",
        "(?i:a+A)*$",
        r"(?s)(?:.|\n)*x",
        "(a*xa*)*$",
        "(?:ab*|b)*$",
        "((/[^/]+)*x)*$",
        "(?=(a+)+$)x",
        "(a?){26}a{26}$",
        "(?i)(k+\u212a)*$",
    ],
)
def test_nested_repeats_are_rejected(regex):
    assert nested_repeat(regex)
    with pytest.raises(UrlError, match="repeat inside a repeat"):
        parse_rules(f"{regex.replace('=', chr(92) + '=')}=x")
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
        r"^gs://bucket/(.*)$",
        r".*/([0-9]+)\.tar",
        r"(?:train|test|val)-(\d+)\.tar",
        r"(?:[^/]+/)*([^/]+)\.(jpg|jpeg|png)",
        r"([^.]+)\.((?:[^.]+\.)*[^.]+)",
        r"https?://(?:www\.)?host(?::\d+)?/(.*)",
        r"(?i)(?:k+/)*x",
        r"(?:\w+-)*\w+",
        r"(?:[a-z]+\d+)*x",
        r"(?:a++)+b",
    ],
)
def test_accepted_patterns_are_fast_on_any_text(regex):
    assert not nested_repeat(regex)
    (rule,) = parse_rules(f"{regex}=x")
    for piece in ("a", "/", "http://", "0", "aa/", "1."):
        for length in (100, 1000, 10_000):
            text = (piece * length)[:length]
            started = time.process_time()
            with contextlib.suppress(UrlError):
                rewrite(text, [rule])
            assert time.process_time() - started < 5


def test_many_open_repeats_limit_the_length():
    check_length(".*.*.*x", "a" * 500)
    with pytest.raises(UrlError, match="3 open repeats"):
        check_length(".*.*.*x", "a" * 5000)
    with pytest.raises(UrlError, match="67,108,864 other choices"):
        check_length("a?" * 26 + "a" * 26 + "$", "a" * 26)
    check_length("[^/]*/[^/]*/[^/]*/x", "a" * 100_000)


PIECES = ["a", "b", "x", "[ab]", "[^b]", ".", "a", "b", "(?=a)", "$", "\\b", "(?i:A)", "(a)"]


def drawn(random, depth):
    """A regex of few characters, so that its parts often meet."""
    if depth == 0 or random.random() < 0.3:
        return random.choice(PIECES)
    parts = [drawn(random, depth - 1) for _ in range(random.randint(1, 3))]
    inner = random.choice(["", "|"]).join(parts)
    return f"(?:{inner}){random.choice(['', '', '*', '+', '?', '*?', '{0,3}', '{2}', '{2,15}', '*+', '+?'])}"


def late(number, frame):
    raise TimeoutError


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_no_accepted_regex_is_slow(seed):
    random = Random(seed)
    before = signal.signal(signal.SIGVTALRM, late)
    taken = 0
    try:
        for _ in range(2000):
            regex = "".join(drawn(random, 3) for _ in range(random.randint(1, 3))) + random.choice(
                ["", "$", "!"]
            )
            if nested_repeat(regex):
                continue
            taken += 1
            for piece in ("a", "b", "ab", "ax", "aab", "abb", "xab"):
                text = (piece * 40)[:40] + "c"
                with contextlib.suppress(UrlError):
                    check_length(regex, text)
                    signal.setitimer(signal.ITIMER_VIRTUAL, 5)
                    try:
                        re.match(regex, text)
                    except TimeoutError:
                        pytest.fail(f"{regex!r} is busy with {text!r}")
                    finally:
                        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert taken > 200
