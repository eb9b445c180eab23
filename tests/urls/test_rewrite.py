"""Rewrite rules: the golden table, escapes, errors that name the rule, and quoting for the shell."""

import pickle
import re
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.base.errors import UrlError
from wdspec.urls.rewrite import Rule, parse_rules, rewrite


@pytest.mark.parametrize(
    ("rules", "url", "result"),
    [
        ("gs://=/shared/data/", "gs://b/o.tar", "/shared/data/b/o.tar"),
        ("gs://=/a/;gs://b=/c/", "gs://b/o.tar", "/a/b/o.tar"),
        (r"gs://(\w+)/=/mnt/\1/", "gs://bk/o.tar", "/mnt/bk/o.tar"),
        ("gs://b.c=/x", "gs://bXc/o.tar", "/x/o.tar"),
        ("gs://=/a/;", "s3://b/o.tar", "s3://b/o.tar"),
        (r"http://x/\?a\=b=/y", "http://x/?a=b", "/y"),
        (
            "gs://=pipe:ssh proxyhost gsutil cat gs://",
            "gs://b/o.tar",
            "pipe:ssh proxyhost gsutil cat gs://b/o.tar",
        ),
        (";;gs://=/a/;;", "gs://b/o.tar", "/a/b/o.tar"),
        ("gs://=https://h/?k=v&x=", "gs://b", "https://h/?k=v&x=b"),
        (r"gs://a\;b=/x\;y", "gs://a;b", "/x;y"),
        (r"gs://a\\.b=/x", "gs://a.b", "/x"),
        (r"gs://a\.b=/x", "gs://aXb", "gs://aXb"),
        (r"a=\\g<0>b", "ac", "abc"),
        (" gs://=/a", "gs://b", "gs://b"),
        ("gs://=", "gs://b", "b"),
        ("x=y", "ax", "ax"),
        ("gs://|s3://=/d/", "gs://s3://", "/d/s3://"),
        ("(?i)GS://=/d/", "gs://b", "/d/b"),
        ("(a)|b=[\\1]", "bc", "[]c"),
        ("data/=/fast/", "data/x.tar", "/fast/x.tar"),
    ],
)
def test_rules_rewrite_as_in_the_table(rules, url, result):
    assert rewrite(url, parse_rules(rules))[0] == result


def test_only_the_first_matching_rule_is_applied():
    rules = parse_rules("gs://=gs://;gs://b=gs://c;gs://c=/never/;gs://=/late/")
    changed, fired = rewrite("gs://b/o.tar", rules)
    assert changed == "gs://c/o.tar"
    assert str(fired) == "WDS_REWRITE rule 2: gs://b -> gs://c"
    assert rewrite("s3://b", rules) == ("s3://b", None)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("a=b;noequals", "GOPEN_REWRITE rule 2, `noequals`, has no `=`; write `regex=replacement`", 4),
        ("a=b;=c", "GOPEN_REWRITE rule 2, `=c`, has no regex before its `=`", 4),
        (r"a\=b", "GOPEN_REWRITE rule 1, `a=b`, has no `=`", 0),
        (
            "gs://(=x",
            "the regex `gs://(` of GOPEN_REWRITE rule 1 is wrong: missing ), unterminated subpattern",
            5,
        ),
        (
            r"gs://=\1",
            r"the replacement `\1` of GOPEN_REWRITE rule 1 is wrong: invalid group reference 1",
            None,
        ),
        ("gs://=\\g<x>", "unknown group name 'x'", None),
        ("gs://=\\q", r"bad escape \q", None),
    ],
)
def test_a_malformed_rule_is_an_error_that_names_it_and_its_place(text, message, column):
    with pytest.raises(UrlError) as caught:
        parse_rules(text, "GOPEN_REWRITE")
    assert message in caught.value.message
    assert caught.value.column == column


TEXTS = st.text(alphabet="ab;=\\", max_size=6)


@given(st.lists(st.tuples(TEXTS.filter(bool), TEXTS), min_size=1, max_size=4))
@settings(deadline=None)
def test_any_text_can_be_written_in_a_rule_by_escaping(pairs):
    def escaped(text):
        return "".join("\\" + c if c in ";=\\" else c for c in text)

    def literal(text):
        return text.replace("\\", "\\\\")

    text = ";".join(f"{escaped(literal(a))}={escaped(literal(b))}" for a, b in pairs)
    assert [(r.pattern, r.replacement) for r in parse_rules(text)] == [
        (literal(a), literal(b)) for a, b in pairs
    ]


@given(st.text(alphabet="ab $`\"'\\;&|*?\n()<>#~!{}", min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_url_text_in_a_pipe_command_is_one_shell_word(name):
    for template in (r"pipe:printf %s [\1]", r"pipe:printf %s '[\1]'", r'pipe:printf %s "[\1]"'):
        rule = Rule(r"gs://((?:.|\n)*)", template, "test")
        command = rule.apply("gs://" + name).removeprefix("pipe:")
        assert (
            subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout.decode()
            == f"[{name}]"
        )
    rest = Rule("gs://", "pipe:printf %s gs://", "test").apply("gs://" + name).removeprefix("pipe:")
    assert shlex.split(rest)[-1] == "gs://" + name


def test_harmless_text_is_not_quoted_and_a_pipe_stays_the_command_it_was():
    assert (
        Rule("gs://", "pipe:gsutil cat gs://", "test").apply("gs://b/a-0.tar")
        == "pipe:gsutil cat gs://b/a-0.tar"
    )
    assert (
        Rule("pipe:cat ", "pipe:ssh h cat ", "test").apply("pipe:cat a | zcat") == "pipe:ssh h cat a | zcat"
    )


def test_a_url_cannot_smuggle_in_a_pipe():
    assert Rule("gs://", "", "test").apply("gs://pipe:rm -r x") == "'pipe:rm -r x'"


def test_text_that_cannot_be_quoted_safely_is_an_error():
    rule = Rule("gs://(.*)", r'pipe:cat "$(locate \1)"', "test")
    assert rule.apply("gs://b") == 'pipe:cat "$(locate b)"'
    with pytest.raises(UrlError, match=r"`b; rm -r x` has characters that are special to the shell"):
        rule.apply("gs://b; rm -r x")


def test_the_replacement_is_parsed_once_for_all_urls(monkeypatch):
    """Parsing it took ten times as long as matching, for each of a million shards."""
    parsed, parse = [], re._parser.parse_template
    monkeypatch.setattr(re._parser, "parse_template", lambda *given: parsed.append(given) or parse(*given))
    rule = Rule(r"s3://(?P<bucket>\w*)(-x)?/(?=a)", r"/mnt/\g<bucket>\2\\/", "a test")
    expected = {
        "s3://b/a0.tar": "/mnt/b\\/a0.tar",
        "s3://b/b.tar": "s3://b/b.tar",
        "s3://-x/a": "/mnt/-x\\/a",
    }
    assert {url: rule.apply(url) for url in expected} == expected
    assert rule.apply("s3://b/as3://b/a") == "/mnt/b\\/as3://b/a", "its start alone"
    assert len(parsed) == 1


def test_rules_survive_pickling():
    rules = parse_rules(r"gs://(\w+)=/mnt/\1", base="/home")
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert pickle.loads(pickle.dumps(rules))[0].apply("gs://b") == "/mnt/b"
