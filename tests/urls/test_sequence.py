"""Sequences of shards: cut at `::` before braces, indexed without being listed."""

import pickle
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.base.errors import UrlError
from wdspec.urls.braces import Braces
from wdspec.urls.urls import ShardRun, ShardUrl, UrlSequence, kind_of, magic_start, parse_shards


def sequence_of(texts, base):
    return UrlSequence(ShardRun(part.braces, "", part.base) for part in parse_shards(texts, base))


def texts_of(*texts):
    sequence = sequence_of(texts, "/base")
    assert all(url.base == "/base" for url in sequence)
    return [url.text for url in sequence]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a-{0..1}.tar::b.tar"], ["a-0.tar", "a-1.tar", "b.tar"]),
        (["x-{0..3}.tar"], ["x-0.tar", "x-1.tar", "x-2.tar", "x-3.tar"]),
        (["x.tgz::x.tgz"], ["x.tgz", "x.tgz"]),
        (["b", "a::{d,c}"], ["b", "a", "d", "c"]),
        ([r"a\:\:b"], ["a::b"]),
        (
            ["http://[::1]:80/a.tar::http://[fe80::1%25eth0]/b"],
            ["http://[::1]:80/a.tar", "http://[fe80::1%25eth0]/b"],
        ),
        (["a b\n#?.tar"], ["a b\n#?.tar"]),
        ([" a.tar"], [" a.tar"]),
        (["data-{00..02}"], ["data-00", "data-01", "data-02"]),
    ],
)
def test_texts_are_split_at_double_colons_and_then_expanded(texts, expected):
    assert texts_of(*texts) == expected


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("a-{0..9}.tar", False),
        ("gs://b@v1/a-{0..9}", False),
        (r"a\*.tar", False),
        (r"\@a.tar", False),
        ("pipe:cat *.tar?", False),
        ("https://h/a-{0..9}.tar?sig=1[2]", False),
        ("gs://b/*.tar", True),
        ("a-[0-9].tar", True),
        ("@list.txt", True),
        ("{@a.txt,b.tar}", True),
        ("dir/", True),
        ("{a/,b.tar}", True),
        ("https://h/dir/", True),
        ("{http,https}://h/a?b", True),
    ],
)
def test_only_patterns_that_need_a_store_are_listed(text, listed):
    assert [part.listed for part in parse_shards([text], "/")] == [listed]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("@a/", "list"),
        ("a/", "directory"),
        ("https://h/a/", "directory"),
        ("a*", "glob"),
        ("gs://b/a[1]", "glob"),
        ("https://h/a?b", "url"),
        ("pipe:ls /", "url"),
        ("a.tar", "url"),
    ],
)
def test_an_expanded_text_has_a_kind(text, kind):
    assert kind_of(text) == kind


def test_the_magic_of_a_glob_starts_at_a_path_segment():
    assert magic_start("gs://b/sub/x-*.tar") == len("gs://b/sub/")
    assert magic_start("x[1]/a?") == 0
    assert magic_start("plain") == len("plain")


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("a::", "nothing next to a `::`", 3),
        ("::a", "nothing next to a `::`", 0),
        ("", "an empty text", 0),
        ("b::a-{3..0}", "empty brace range: 3 > 0", 5),
        ("b::a-{3..0", "never closed", 5),
    ],
)
def test_a_bad_text_is_an_error_with_its_column_in_the_whole_text(text, message, column):
    with pytest.raises(UrlError) as caught:
        parse_shards([text], "/")
    assert message in caught.value.message
    assert caught.value.column == column
    assert caught.value.place["url"] == text


def test_empty_text_is_an_error():
    with pytest.raises(UrlError, match="name at least one shard"):
        parse_shards([], "/")


RUNS = st.lists(
    st.builds(
        ShardRun,
        st.one_of(
            st.lists(st.text("ab", max_size=2), max_size=3).map(tuple),
            st.integers(0, 12).map(lambda n: Braces(f"s-{{0..{n}}}")),
        ),
        st.sampled_from(["", "p/"]),
        st.sampled_from(["/x", "/y"]),
    ),
    max_size=5,
)


@given(RUNS)
@settings(deadline=None)
def test_indexing_equals_listing(runs):
    sequence = UrlSequence(runs)
    listing = [ShardUrl(run.prefix + text, run.base) for run in runs for text in run.texts]
    assert list(sequence) == listing
    assert len(sequence) == len(listing)
    assert [sequence[i] for i in range(len(listing))] == listing
    assert [sequence[-i] for i in range(1, len(listing) + 1)] == listing[::-1]
    assert sequence[1:4] == listing[1:4]
    for index in (len(listing), -len(listing) - 1):
        with pytest.raises(IndexError, match=f"index {index} of {len(listing)} shards"):
            sequence[index]
    same = UrlSequence([ShardRun((url.text,), "", url.base) for url in listing])
    assert sequence == same == pickle.loads(pickle.dumps(sequence))
    assert hash(sequence) == hash(same)


def test_sequences_with_different_shards_or_bases_differ():
    one = UrlSequence([ShardRun(("a",), "", "/x")])
    assert one != UrlSequence([ShardRun(("a",), "", "/y")])
    assert one != UrlSequence([ShardRun(("b",), "", "/x")])
    assert one != UrlSequence([]) != "a"


def test_a_million_shards_cost_less_than_a_megabyte():
    tracemalloc.start()
    sequence = sequence_of(["a-{000000..999999}.tar"], "/data")
    assert len(sequence) == 1_000_000
    assert sequence[0].text == "a-000000.tar"
    assert sequence[-1].text == "a-999999.tar"
    assert "1000000" in repr(sequence)
    assert sequence == UrlSequence(sequence.parts)
    assert len(pickle.dumps(sequence)) < 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_million_shards_cost_a_few_steps():
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        sequence = sequence_of(["a-{000000..999999}.tar"], "/data")
        _ = len(sequence), sequence[0], sequence[-1], sequence[123_456]
        pickle.loads(pickle.dumps(sequence))
    finally:
        sys.setprofile(None)
    assert calls < 1000


def test_too_many_shards_in_one_source_are_an_error():
    run = ShardRun(Braces("{0..999999999}"), "", "/")
    with pytest.raises(UrlError, match="2,000,000,000 shards in one source; the limit is 1,000,000,000"):
        UrlSequence([run, run])
