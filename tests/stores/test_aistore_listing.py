"""Globs and directories in AIStore: listed page by page, in the parent, spelt as in the spec."""

from dataclasses import replace

import pytest
from servers.aistore_double import AisDouble, cut, status

from wdspec.base.errors import ShardError, StoreError
from wdspec.shards.listing import list_texts
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.retry import RetryPolicy

NAMES = [
    "d/a-2.tar",
    "d/a-10.tar",
    "d/a-1.tar",
    "d/b.tgz",
    "d/notes.txt",
    "d/.hidden.tar",
    "d/e/a-3.tar",
    "top.tar",
]


@pytest.fixture
def double():
    with AisDouble(page_size=2) as double:
        for name in NAMES:
            double.put(f"gs://imgs/{name}", b"x")
        yield double
    assert not double.violations


def listed(double, text, rewrite="", **settings):
    environ = {"AIS_ENDPOINT": double.endpoint, "USE_AIS_FOR": "gs", "WDS_REWRITE": rewrite}
    cluster = AisCluster((double.endpoint,), schemes=frozenset({"gs", "ais"}), **settings)
    storage = replace(
        Storage.of(Environment.read(environ)),
        retry_policy=RetryPolicy(budget=2, delay=0.001, longest_delay=0.01),
        ais=cluster,
    )
    return [each.text for each in list_texts([text], "/", storage)]


def test_a_directory_lists_its_shards_in_order(double):
    assert listed(double, "gs://imgs/d/") == [
        f"gs://imgs/d/{name}" for name in ("a-1.tar", "a-10.tar", "a-2.tar", "b.tgz")
    ]
    assert len(double.seen("p", path="/v1/buckets/")) == 4
    assert {each.method for each in double.requests} == {"GET"}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("d/a-?.tar", ["d/a-1.tar", "d/a-2.tar"]),
        ("**/a-*.tar", ["d/a-1.tar", "d/a-10.tar", "d/a-2.tar", "d/e/a-3.tar"]),
        ("*.tar", ["top.tar"]),
        ("d/.h*", ["d/.hidden.tar"]),
        ("{d,d/e}/a-[13].tar", ["d/a-1.tar", "d/e/a-3.tar"]),
    ],
)
def test_a_glob_lists_only_its_fixed_prefix(double, glob, expected):
    assert listed(double, f"gs://imgs/{glob}") == [f"gs://imgs/{name}" for name in expected]
    if glob == "d/a-?.tar":
        assert b'"prefix": "d/a-"' in double.requests[0].body


def test_listed_shards_keep_the_urls_of_the_spec(double):
    assert listed(double, "s3://other/d/a-*.tar", "s3://other/=gs://imgs/") == [
        f"s3://other/d/a-{n}.tar" for n in ("1", "10", "2")
    ]
    with pytest.raises(ShardError, match="changes names that a glob or directory must find"):
        listed(double, "s3://other/d/a-*.tar", r"s3://other/d/a-(.)=gs://imgs/d/\1")


def test_faults_while_listing_change_nothing(double):
    double.script("p", status(503), cut(20), status(429, "later"), status(500, "x"), cut(0, reset=True))
    assert len(listed(double, "gs://imgs/d/")) == 4


def test_empty_and_rejected_listings_are_errors(double):
    with pytest.raises(ShardError, match=r"no shards in the directory `gs://imgs/none/`"):
        listed(double, "gs://imgs/none/")
    with pytest.raises(ShardError, match=r"no file in `gs://imgs/d/` matches `z\*`"):
        listed(double, "gs://imgs/d/z*")
    with pytest.raises(StoreError, match=r"404: gcp-error.NoSuchBucket.*location gs://other/"):
        listed(double, "gs://other/")
    double.tokens = {"s3cret"}
    with pytest.raises(StoreError, match="401: token required"):
        listed(double, "gs://imgs/d/")
    assert len(listed(double, "gs://imgs/d/", token="s3cret")) == 4


def test_a_permanently_failing_listing_is_abandoned_soon(double):
    double.script("p", *[status(500, "disk on fire")] * 1000)
    with pytest.raises(ShardError, match="answers 500: disk on fire"):
        listed(double, "gs://imgs/d/")
    assert len(double.seen("p", path="/v1/buckets/")) <= 6


def test_requests_contain_the_namespace(double):
    double.remote["ais", "#mine", "imgs"] = dict(double.remote["gcp", "", "imgs"])
    assert listed(double, "ais://#mine/imgs/*.tar") == ["ais://#mine/imgs/top.tar"]
