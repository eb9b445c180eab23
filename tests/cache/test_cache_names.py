"""Names of copies in a cache directory: readable, different for different URLs, never outside it."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wdspec.base.errors import UsageError
from wdspec.cache.names import CacheNames, find_shared_names, own_name
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import CacheSettings
from wdspec.urls.urls import ShardUrl


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("gs://bucket/a/b-000.tar", "gs/bucket/a/b-000.tar"),
        ("http://h:8080/a/b.tar", "http/h:8080/a/b.tar"),
        ("HTTPS://Host/A.tar", "https/host/A.tar"),
        ("s3://b/caf\u00e9 1.tar", "s3/b/caf\u00e9 1.tar"),
        ("ais://b/x.tar", "ais/b/x.tar"),
        ("/data/x.tar", "file/data/x.tar"),
    ],
)
def test_a_simple_url_is_its_own_cache_name(url, name):
    assert own_name(url) == name


def test_urls_with_the_same_file_name_have_different_copies():
    urls = [
        *("s3://b/x/0.tar", "s3://b/y/0.tar", "gs://b/x/0.tar", "https://h/0.tar", "https://h/0.tar?sig=1"),
        *("https://h/0.tar?sig=2", "https://u:p@h/0.tar", "https://v:p@h/0.tar", "http://h/0.tar"),
        *("pipe:cat 0.tar", "pipe:cat  0.tar", "gs://b//x/0.tar", "gs://b/./x/0.tar", "gs://b/y/../x/0.tar"),
        *("gs://b/x\x01/0.tar", "gs://b/x\x02/0.tar", "gs://b/" + "x" * 300, "gs://b/" + "x" * 301),
    ]
    assert len({own_name(url) for url in urls}) == len(urls)


def test_passwords_do_not_appear_in_names():
    assert "secret" not in own_name("https://me:secret@h/0.tar?token=secret")


def test_each_etl_has_its_own_copy():
    names = {own_name("gs://b/0.tar", variant) for variant in ("", "etl_name=a", "etl_name=b")}
    assert len(names) == 3
    assert all(name.endswith(".tar") for name in names)


def test_names_differ_on_case_insensitive_file_systems():
    assert own_name("gs://b/A.tar") == "gs/b/A.tar"
    assert own_name("gs://b/A.tar", folds_case=True).lower() != own_name("gs://b/a.tar", folds_case=True)


_HOSTILE = st.lists(
    st.sampled_from(
        ["gs:", "http:", "pipe:", "file:", "/", "//", "..", ".", "a", "\0", "?", "#", "@", "\\", "~"]
    ),
    max_size=12,
).map("".join)


@given(_HOSTILE | st.text(), st.booleans())
@example("gs://" + "../" * 20 + "etc/passwd", False)
@example("gs://.wdspec/../../x", True)
@example("gs:///etc/passwd", False)
@example("gs://b/" + "a/" * 3000 + "x.tar", False)
@example("pipe:../../x", False)
@example("gs://b/\ud800.tar", False)
def test_no_name_escapes_the_directory(text, folds):
    if text.startswith("file:") and ("\0" in text or "%00" in text):
        return  # refused before
    if text.startswith("file://") and not text.startswith("file:///"):
        return  # names another host, and is refused before
    for url in (text, "gs://" + text):
        if url.startswith("file:") and any(part in url for part in ("//", "\0", "%00")):
            continue  # NULs are refused, too
        copies = CacheNames("/c", folds, frozenset())(ShardUrl(url, "/base"), url)
        for name in (copies.own, *copies.filled):
            assert os.path.normpath(os.path.join("/c", name)) == os.path.join("/c", name)
            assert name
            assert not name.startswith(("/", ".wdspec"))
            assert "\0" not in name
            assert all(len(part.encode()) < 256 for part in name.split("/"))
            assert len(name.encode()) < 4096 - 256, url[:50]


def test_the_key_is_the_rewritten_url_except_for_pipes():
    names = CacheNames("/c")
    assert names(ShardUrl("gs://b/0.tar", "/d"), "http://h/0.tar").own == "http/h/0.tar"
    assert names(ShardUrl("gs://b/0.tar", "/d"), "pipe:ssh h cat 0.tar").own == "gs/b/0.tar"
    assert names(ShardUrl("x/0.tar", "/d"), "pipe:ssh h cat 0.tar").own == "file/d/x/0.tar"


def test_a_directory_filled_by_hand_is_searched_by_path_and_unique_name():
    def filled(url, ambiguous=frozenset({"1.tar"}), variant=""):
        return CacheNames("/c", ambiguous=ambiguous)(ShardUrl(url, "/d"), url, variant).filled

    assert filled("gs://b/a/0.tar") == ("b/a/0.tar", "0.tar")
    assert filled("gs://b/a/1.tar") == ("b/a/1.tar",)
    assert filled("gs://b/a/0.tar", ambiguous=None) == ("b/a/0.tar",)
    assert filled("https://h/a/0.tar?sig=1") == ("0.tar",)
    assert filled("pipe:cat /x/0.tar") == ()
    assert filled("gs://b/a/0.tar", variant="etl_name=a") == ()
    assert filled("gs://b/../0.tar") == ("0.tar",)
    assert filled("gs://.wdspec/index/0") == ("0",)


def test_a_name_is_ambiguous_if_two_different_urls_have_it():
    urls = [ShardUrl(text, "/d") for text in ("gs://a/0.tar", "gs://b/0.tar", "gs://a/1.tar", "gs://a/1.tar")]
    assert find_shared_names(urls, {"0.tar", "1.tar"}) == {"0.tar"}
    assert find_shared_names(
        [ShardUrl("http://h/0.tar?a", ""), ShardUrl("http://h/0.tar?b", "")], {"0.tar"}
    ) == {"0.tar"}


def settings_of(environ=(), top=None, **source):
    leaf = Source.model_validate({"name": "a", "shards": ["x"], **source})
    top = {} if top is None else {"cache": top}
    return CacheSettings.of(
        Environment.read(dict(environ)), Spec.model_validate({"dataset": (leaf,), **top}), leaf
    )


def test_the_nearest_cache_applies_unless_the_variable_is_set():
    assert settings_of() is None
    assert settings_of(top={"dir": "/c", "size": "5kB"}) == CacheSettings("/c", 5000)
    assert settings_of(top="/c", cache="/d") == CacheSettings("/d")
    assert settings_of(top={"dir": "/c", "size": 5}, cache="/c") == CacheSettings("/c", 5)
    assert settings_of(top={"dir": "/c", "size": 5}, cache="/d") == CacheSettings("/d")
    assert settings_of({"WDS_CACHE": "/e"}) == CacheSettings("/e")
    assert settings_of({"WDS_CACHE": "/e", "WDS_CACHE_SIZE": "1GiB"}, top="/c") == CacheSettings("/e", 2**30)
    assert settings_of({"WDS_CACHE_SIZE": "1e12"}, top="/c") == CacheSettings("/c", 10**12)


def test_false_disables_the_cache_regardless_of_other_settings():
    assert settings_of(top="/c", cache=False) is None
    assert settings_of({"WDS_CACHE": "/e"}, top="/c", cache=False) is None
    assert settings_of({"WDS_CACHE": "/e"}, top=False) is None
    assert settings_of(top=False, cache="/c") == CacheSettings("/c")


def test_tildes_are_expanded_and_the_variable_is_relative_to_the_cwd():
    home = os.path.expanduser("~")
    assert settings_of(top="~/wds").directory == f"{home}/wds"
    assert settings_of({"WDS_CACHE": "~"}).directory == home
    assert settings_of({"WDS_CACHE": "c/"}).directory == os.path.join(os.getcwd(), "c")


def test_an_invalid_size_is_rejected():
    for text in ("lots", "1.2.3e5", ".e5"):
        with pytest.raises(
            UsageError, match=rf"WDS_CACHE_SIZE={text}: .*is not a size; write for example `500GB`"
        ):
            Environment.read({"WDS_CACHE_SIZE": text})
