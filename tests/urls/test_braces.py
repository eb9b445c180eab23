"""Braces compared with the package braceexpand, and constant cost for any size of range."""

import pickle
import tracemalloc

import pytest
from braceexpand import UnbalancedBracesError, braceexpand
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wdspec.base.errors import UrlError
from wdspec.urls.braces import MAX_DEPTH, Braces

ATOMS = [
    "a",
    "b",
    "0",
    "-",
    ".",
    "..",
    ",",
    "{",
    "}",
    "\\",
    "$",
    " ",
    "\n",
    "1..3",
    "{07..10}",
    "{a,b}",
    "{x}",
]
# Without an escaped backslash: inside braces that are no expansion braceexpand removes escapes twice.
PATTERNS = st.lists(st.sampled_from(ATOMS), max_size=14).map("".join).filter(lambda text: "\\\\" not in text)


def parsed_unless_a_range_leads_nowhere(pattern):
    try:
        return Braces(pattern)
    except UrlError as error:
        if not error.message.startswith(("empty brace range", "a brace range with a step of 0")):
            raise
        return None


@given(PATTERNS)
@example("a\\")
@example("}{")
@example("}{{1,2}")
@example("{1..3\n}")
@example("{1..9..0}")
@example("{1..9..-4}")
@example("{-3..010}")
@example("{-0..2}")
@example("{0..-0}")
@example("{X..c..2}")
@example("{A..A}{a..a}")
@example("{a{1,2}}")
@example("${x}{,.gz}")
@example("{\\,,\\}}")
@settings(max_examples=500, deadline=None)
def test_patterns_expand_as_in_braceexpand(pattern):
    try:
        expected = list(braceexpand(pattern))
    except UnbalancedBracesError:
        with pytest.raises(UrlError, match=r"never closed|closes nothing|empty brace range"):
            Braces(pattern)
        return
    braces = parsed_unless_a_range_leads_nowhere(pattern)
    if braces is None:
        return
    assert list(braces) == expected
    assert len(braces) == len(expected)
    assert [braces[i] for i in range(len(braces))] == expected
    assert [braces[-i] for i in range(1, len(braces) + 1)] == expected[::-1]
    assert braces[1:-1:2] == expected[1:-1:2]


def test_an_escaped_backslash_is_one_backslash_in_any_braces():
    assert list(Braces("{\\\\}")) == ["{\\}"]
    assert list(Braces("{\\\\,b}")) == list(braceexpand("{\\\\,b}")) == ["\\", "b"]


@given(st.integers(-30, 30), st.integers(0, 40), st.integers(1, 7), st.integers(0, 3), st.booleans())
@settings(deadline=None)
def test_numeric_ranges_expand_as_in_braceexpand(first, span, step, zeros, negative):
    texts = ["-" * (n < 0) + "0" * zeros + str(abs(n)) for n in (first, first + span)]
    pattern = f"s-{{{texts[0]}..{texts[1]}..{'-' * negative}{step}}}.tar"
    assert list(Braces(pattern)) == list(braceexpand(pattern))


@pytest.mark.parametrize(
    ("pattern", "message", "column"),
    [
        ("a-{33..0}.tar", "empty brace range: 33 > 0; did you mean {0..33}?", 2),
        ("a-{000033..000000}.tar", "empty brace range: 33 > 0; did you mean {000000..000033}?", 2),
        ("a-{9..1..2}.tar", "empty brace range: 9 > 1; did you mean {1..9..2}?", 2),
        ("x{1,{c..a}}", "empty brace range: c > a; did you mean {a..c}?", 4),
        ("a-{0..3.tar", "this `{` is never closed; add the `}`, or write `\\{` for a literal brace", 2),
        ("{1{2,3}", "this `{` is never closed; add the `}`, or write `\\{` for a literal brace", 0),
        (
            "a-{0..3}}.tar",
            "this `}` closes nothing; add the missing `{` before it, or write `\\}` for a literal brace",
            8,
        ),
    ],
)
def test_a_bad_pattern_is_an_error_with_message_and_column(pattern, message, column):
    with pytest.raises(UrlError) as caught:
        Braces(pattern)
    assert caught.value.message == message
    assert caught.value.column == column
    assert str(caught.value) == f"{message} [url {pattern}, column {column + 1}]"
    assert pickle.loads(pickle.dumps(caught.value)).column == column


@pytest.mark.parametrize(
    "pattern", ["{0..1000000000}", "{0..9}" * 10, "{0..9}" * 50_000, "{0..99999999999999999999}"]
)
def test_a_pattern_for_too_many_strings_is_an_error_with_their_number(pattern):
    with pytest.raises(
        UrlError, match=r"the braces expand to [0-9,]+ strings( or more)?; the limit is 1,000,000,000"
    ):
        Braces(pattern)


def test_hostile_patterns_are_errors_without_a_traceback():
    with pytest.raises(UrlError, match=f"nested more than {MAX_DEPTH} deep"):
        Braces("{" * 100_000)
    with pytest.raises(UrlError, match="digits"):
        Braces("{0.." + "9" * 5000 + "}")
    with pytest.raises(UrlError, match="digits"):
        Braces("{a..c.." + "9" * 5000 + "}")


def test_a_million_shards_cost_no_memory():
    tracemalloc.start()
    braces = Braces("a-{000000..999999}.tar")
    assert len(braces) == 1_000_000
    assert (braces[0], braces[-1]) == ("a-000000.tar", "a-999999.tar")
    assert braces[123_456] == "a-123456.tar"
    assert len(pickle.dumps(braces)) < 200
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_an_index_error_states_the_length():
    with pytest.raises(IndexError, match="index 4 of 4 strings"):
        Braces("{0..3}")[4]
    with pytest.raises(IndexError, match="index -5 of 4 strings"):
        Braces("{0..3}")[-5]


def test_equal_patterns_are_equal_and_survive_pickling():
    assert pickle.loads(pickle.dumps(Braces("{a,b}"))) == Braces("{a,b}") != Braces("{b,a}")
    assert len({Braces("x"), Braces("x")}) == 1
    assert repr(Braces("x{0..1}")) == "Braces('x{0..1}')"
