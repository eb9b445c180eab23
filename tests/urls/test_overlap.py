"""What is looked for among patterns of shards, compared with trying all strings."""

import fnmatch
import functools
import itertools
import random
import re

import pytest

from wdspec.urls.overlap import Wanted


@pytest.mark.parametrize(
    ("wanted", "texts", "others"),
    [
        (
            "s3://b",
            ["s3://b", "s3://b/a.tar", "s3://b/{a,b}/*.tar"],
            ["s3://b2/a.tar", "gs://b/a.tar", "s3://a/b"],
        ),
        ("s3://b/", ["s3://b/a.tar", "s3://b/"], ["s3://b2/a.tar"]),
        ("b", ["s3://b/a.tar", "a/b/c.tar"], ["s3://bb/a.tar", "b.tar"]),
        (
            "s3://b/laion-003.tar",
            ["s3://b/laion-{000..999}.tar", "s3://b/*", "s3://b/", "s3://{a,b}/laion-0?3.tar"],
            ["s3://b/laion-{004..999}.tar", "s3://b/laion-03.tar", "s3://{a,c}/laion-003.tar"],
        ),
        (
            "s3://b/laion-*",
            ["s3://b/laion-{0..9}.tar", "s3://b/l*", "s3://{b,c}/laion-x/y.tar"],
            ["s3://b/lion-*.tar", "x/s3://b/laion-1.tar"],
        ),
        ("*/a-00?.tar", ["s3://b/a-{000..100}.tar"], ["s3://b/a-{100..200}.tar", "a-001.tar"]),
        ("data/[1].tar", ["data/\\[1\\].tar"], ["data/\\[12\\].tars"]),
        ("b/x-5000000.tar", ["b/x-{0000000..9999999}.tar"], ["c/x-{0000000..9999999}.tar"]),
        ("laion", ["s3://{coyo,laion}/*.tar"], ["s3://b/*/x.tar", "s3://b/", "s3://b/**/x.tar"]),
        ("s3://b/laion", ["s3://b/*/x.tar", "s3://b/", "s3://b/**/x.tar"], ["s3://c/"]),
        ("train", ["s3://b/[st]rain/x.tar"], ["s3://b/rain/x.tar"]),
    ],
)
def test_patterns_of_shards(wanted, texts, others):
    assert [text for text in texts if not Wanted(wanted).may_be(text)] == []
    assert [text for text in others if Wanted(wanted).may_be(text)] == []


def test_texts_are_no_patterns_and_may_fold_case():
    license = Wanted("cc-by-4.0", folds_case=True)
    assert license.is_in("CC-BY-4.0")
    assert license.is_in("(CC-BY-4.0 OR MIT)")
    assert not license.is_in("CC-BY-4.0-IGO")
    assert not Wanted("a").is_in("*")
    assert Wanted("transforms").is_in("transforms:crop")
    assert Wanted("crop").is_in("transforms:crop")


LETTERS = "ab/"


def strings(most):
    return ["".join(each) for n in range(most + 1) for each in itertools.product(LETTERS, repeat=n)]


def contains(wanted, text):
    """Whether a text stands alone in another."""
    after = "" if wanted.endswith("/") else r"(?:/|\Z)"
    return re.search(rf"(?:/|\A){re.escape(wanted)}{after}", text) is not None


def translate(shards):
    """The regex of a glob of shards."""
    parts = {"*": "[^/]*", "?": "[^/]", "**": ".*", "[ab]": "[ab]"}
    tokens = re.findall(r"\*\*|\[ab\]|.", shards)
    return "".join(parts.get(each, re.escape(each)) for each in tokens) + ".*" * shards.endswith("/") + r"\Z"


def is_named(wanted, text):
    if re.search(r"[*?]", wanted):
        return re.match(fnmatch.translate(wanted), text) is not None
    return contains(wanted, text)


@pytest.mark.parametrize("seed", range(6))
def test_patterns_overlap_if_a_string_matches_both(seed):
    rng = random.Random(seed)
    universe = strings(6)
    for _ in range(12):
        shards = "".join(
            rng.choice([*LETTERS, "a", "*", "?", "{a,b/}", "[ab]"]) for _ in range(rng.randint(1, 4))
        )
        globs = ["*", "?"] if rng.random() < 0.7 else []
        wanted = "".join(rng.choice([*LETTERS, "a", *globs]) for _ in range(rng.randint(1, 4)))
        if not re.search(r"[*?]", wanted):  # what a glob may be is not guessed
            shards = re.sub(r"[*?]|/\Z", "b", shards.replace("{a,b/}", "{a,b}"))
        alternatives = (
            [re.sub(r"\{(a),(b/?)\}", rf"\{n}", shards) for n in (1, 2)] if shards.count("{") < 2 else []
        )
        regexes = [re.compile(translate(each)) for each in alternatives]
        named = [text for text in universe if any(regex.match(text) for regex in regexes)]
        test = functools.partial(is_named, wanted)
        if alternatives:
            assert Wanted(wanted).may_be(shards) == any(map(test, named)), (wanted, shards)
