"""Reading through AIStore: redirects, resuming, refusals, against the double; the plain parts also a real cluster."""

import random
import socket
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.aistore_double import AisDouble, cut, fine, redirect, status

from wdspec.base.errors import MissingShardError, ShardError, StoreError, install_command
from wdspec.storage.storage import Storage
from wdspec.stores import ais as ais_store
from wdspec.stores import ais_client as missing_objects
from wdspec.stores import retry as retrying
from wdspec.stores.ais_client import PATIENCE
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.retry import RetryPolicy

DATA = random.Random(0).randbytes(3_000_000)
QUICK = RetryPolicy(budget=5, delay=0.001, longest_delay=0.02)
URL = "gs://imgs/a/b/x.tar"


@pytest.fixture
def double():
    with AisDouble() as double:
        double.put(URL, DATA)
        yield double
    assert not double.violations


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only where a failed request waits: its list has the waits."""
    waits = []
    monkeypatch.setattr(missing_objects, "PATIENCE", PATIENCE)
    for module in (missing_objects, ais_store, retrying):
        monkeypatch.setattr(module, "monotonic", lambda: 100 + sum(waits))
    monkeypatch.setattr(retrying.Retries, "_pause", lambda self, seconds: waits.append(seconds))
    return waits


def storage(double, retry_policy=QUICK, **settings):
    settings.setdefault("schemes", frozenset({"ais", "gs", "s3"}))
    return Storage(retry_policy=retry_policy, ais=AisCluster((double.endpoint,), **settings))


def stream(double, url=URL, **settings):
    return storage(double, **settings).open_location(f"ais+{url}")


def read(double, url=URL, **settings):
    with stream(double, url, **settings) as file:
        return file.read()


def test_one_gateway_request_and_one_target_request_read_a_shard(double):
    assert read(double) == DATA
    assert [(each.node[0], each.method) for each in double.seen()] == [("p", "GET"), ("t", "GET")]
    first = double.requests[0]
    assert (first.path, first.query) == ("/v1/objects/imgs/a/b/x.tar", "provider=gcp")


@pytest.mark.parametrize("name", ["a b+c%20#?&;.tar", "q\"{x}'!*().tar", "ünï/日本.tar", "a=b,c@d~e.tar"])
def test_any_name_reaches_its_object(double, name):
    double.put(f"s3://b/{name}", b"here")
    assert read(double, f"s3://b/{name}") == b"here"


def test_repeated_slashes_count_as_one(double):
    assert read(double, "gs://imgs/a//b///x.tar") == DATA


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("after", [0, 1, 262_144, 1_000_001, 2_999_999])
def test_an_interrupted_transfer_resumes_through_the_gateway(double, after, reset):
    double.script("t", cut(after, reset))
    assert read(double) == DATA
    asked = [each.headers.get("range") for each in double.seen("p")]
    assert asked[0] is None
    assert len(asked) == 2
    if asked[1] is not None:
        assert int(asked[1].removeprefix("bytes=").removesuffix("-")) <= after


def test_an_object_that_changes_between_two_responses_is_an_error(double):
    double.put("ais://b/o", DATA)
    double.script("t", cut(500_000))
    with stream(double, "ais://b/o", retry_policy=replace(QUICK, brief=0.2)) as file:
        assert file.read(100_000)
        double.put("ais://b/o", DATA[::-1])
        with pytest.raises(ShardError, match=r"changed while it was read: .*ais-version 1.*ais-version 2"):
            file.readall()


@pytest.mark.parametrize("kind", ["xxhash2", "xxhash", "md5", "sha256", "none"])
def test_checksums_are_verified(double, kind):
    double.checksum = kind
    assert read(double) == DATA


def test_changed_bytes_are_an_error_before_the_end_is_delivered(double):
    double.digest = lambda data: "0123"
    with stream(double) as file, pytest.raises(ShardError, match=r"checksum is \w+, but AIStore keeps 0123"):
        file.readall()
    assert read(double, verifies=False) == DATA


@pytest.mark.parametrize("after", [1, 300_000, 2_999_000])
def test_the_checksum_covers_resumed_transfers(double, after):
    """The target gives other bytes after it came back than the cluster keeps the checksum of."""
    right = double.digest(DATA)
    double.digest = lambda data: right
    double.script("t", cut(after), cut(1_000_000))
    assert read(double) == DATA
    double.script("t", cut(after))
    with stream(double) as file:
        assert file.read(1) == DATA[:1]
        double.cached.clear()
        double.remote[("gcp", "", "imgs")]["a/b/x.tar"].data = DATA[:-1] + bytes([DATA[-1] ^ 1])
        with pytest.raises(ShardError, match=r"checksum is \w+, but AIStore keeps"):
            file.readall()
    double.remote[("gcp", "", "imgs")]["a/b/x.tar"].data = DATA


def test_an_unsupported_checksum_is_reported_once(double, caplog, monkeypatch):
    monkeypatch.setattr("wdspec.stores.ais._warned", set())
    double.checksum, double.digest = "crc32c", lambda data: "0123"
    assert read(double) == read(double) == DATA
    assert [record.message for record in caplog.records if "crc32c" in record.message] == [
        "AIStore's checksums of the type crc32c cannot be verified here: give the bucket checksums of the type "
        "xxhash2, md5, sha256 or sha512, or silence this with `aistore: {checksum: ignore}`"
    ]


def test_the_default_checksum_names_its_missing_package(double, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    monkeypatch.setattr("wdspec.stores.ais._warned", set())
    double.digest = lambda data: "0123"
    assert read(double) == read(double, verifies=False) == DATA
    assert caplog.text.count(install_command("wdspec[aistore]")) == 1


@pytest.mark.parametrize(
    "fault",
    [
        status(503),
        status(400, "cannot handle bucket request: Smap v0"),
        status(429, "rate limit"),
        status(500, "internal"),
        status(502),
        status(504),
        status(409, "conflict getting remote"),
    ],
)
@pytest.mark.parametrize("node", ["p", "t"])
def test_temporary_errors_are_retried_through_the_gateway(double, node, fault):
    double.script(node, fault, fault, fault)
    assert read(double) == DATA
    assert len(double.seen("p")) == 4
    assert len(double.seen("t")) == (1 if node == "p" else 4)


def test_permanent_errors_name_the_cause_and_the_duration(double):
    double.script("p", *[status(503)] * 1000)
    with pytest.raises(
        ShardError, match=r"given up after \d+ attempts in 0 s.*gateway 127.* answers 503.*imgs"
    ):
        read(double, retry_policy=RetryPolicy(budget=0.2, delay=0.01, longest_delay=0.02))


def test_a_permanent_internal_error_is_not_retried_for_minutes(double):
    double.script("t", *[status(500, "disk on fire")] * 1000)
    with pytest.raises(ShardError, match=r"AIStore fails: the target .* answers 500: disk on fire"):
        read(double)
    assert len(double.seen("t")) == 6


def test_a_missing_object_is_a_missing_shard(double):
    with pytest.raises(
        MissingShardError, match=r"no such object in AIStore: the target .*NoSuchKey.*location gs://imgs/y"
    ):
        read(double, "gs://imgs/y.tar")
    double.put("ais://b/o", b"")
    with pytest.raises(MissingShardError, match="does not exist"):
        read(double, "ais://b/other")


def test_a_404_of_a_new_target_is_retried_through_the_gateway(double, clock):
    double.script("t", *[status(404, "ais://imgs/a/b/x.tar does not exist")] * 4)
    assert read(double) == DATA
    assert len(double.seen("p")) == len(double.seen("t")) == 5


NO_NODES = status(400, "no storage targets in the cluster", tcode="ErrNoNodes")


def test_a_gateway_without_its_targets_is_retried(double):
    double.script("p", *[NO_NODES] * 3)
    assert read(double) == DATA
    double.script("p", fine, *[NO_NODES] * 3)  # in the middle of a shard
    double.script("t", cut(1_000_000))
    assert read(double) == DATA


def test_a_404_after_an_opened_stream_is_retried_like_an_interruption(double, clock):
    double.script("t", cut(1_000_000), *[status(404, "does not exist")] * 9)
    assert read(double, retry_policy=RetryPolicy()) == DATA
    assert sum(clock) > 40
    double.script("t", cut(1_000_000), *[status(404, "does not exist")] * 99)
    clock.clear()
    with pytest.raises(MissingShardError):
        read(double, retry_policy=RetryPolicy())
    assert 90 < sum(clock) <= 120


def test_while_a_target_is_lost_a_404_is_retried_like_a_refused_connection(double, clock):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def target_is_back(node, handler):
        double.dead_port = None
        return False

    double.dead_port = port
    double.script("p", fine, target_is_back)
    double.script("t", *[status(404, "does not exist")] * 9)
    double.put("gs://imgs/z.tar", DATA)
    assert read(double, retry_policy=RetryPolicy()) == DATA
    assert sum(clock) > 40
    double.script("t", *[status(404, "does not exist")] * 6)  # another shard of the same cluster
    assert read(double, "gs://imgs/z.tar", retry_policy=RetryPolicy()) == DATA
    clock.append(1000)
    before = sum(clock)
    with pytest.raises(MissingShardError):
        read(double, "gs://imgs/y.tar", retry_policy=RetryPolicy())
    assert sum(clock) - before <= 30


def test_a_404_is_final_after_a_while_and_then_immediately(double, clock):
    double.targets = 1
    for name, least, most in [("y", 10, 30), ("z", 0, 0)]:
        clock[:] = [sum(clock)]
        with pytest.raises(MissingShardError, match="no such object in AIStore"):
            read(double, f"gs://imgs/{name}.tar", retry_policy=RetryPolicy())
        assert least <= sum(clock[1:]) <= most
    clock[:] = [sum(clock) + 30]
    with pytest.raises(MissingShardError):  # also for who waits for less
        read(double, "gs://imgs/z.tar", retry_policy=RetryPolicy(budget=5))
    assert sum(clock[1:]) <= 5
    double.put("gs://imgs/z.tar", DATA)
    assert read(double, "gs://imgs/z.tar") == DATA


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("gs://nobucket/o.tar", "gcp-error.NoSuchBucket"),
        ("ais://imgs/a/b/x.tar", "bucket ais://imgs does not exist"),
        ("s3://imgs/o.tar", "AWS backend is missing in the cluster configuration"),
    ],
)
def test_a_404_of_the_gateway_is_a_setup_error(double, url, seen):
    double.backends.discard("aws")
    with pytest.raises(
        StoreError, match=f"the gateway .* answers 404: {seen}.*; does the bucket exist.*location {url}"
    ):
        read(double, url)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (status(403, "no permission"), "answers 403: no permission; ask for permission"),
        (status(400, "errInvalidPath"), "answers 400: errInvalidPath; check the bucket and the name"),
        (status(507, "out of space"), "answers 507: out of space; the cluster has no room"),
    ],
)
def test_rejected_requests_fail_immediately(double, fault, said):
    double.script("t", fault)
    with pytest.raises(StoreError, match=said):
        read(double)
    assert len(double.seen("p")) == 1


def test_a_head_response_without_a_reason_names_likely_causes(double):
    double.script("t", status(400, ""))
    with pytest.raises(StoreError, match="and whether the cluster's copy is damaged"):
        storage(double).stat_location(f"ais+{URL}")


def test_a_missing_cloud_bucket_is_a_setup_error(double):
    double.script("t", status(404, "aws-error[NoSuchBucket: The specified bucket does not exist]"))
    with pytest.raises(StoreError, match=r"the target .*NoSuchBucket.*does the bucket exist"):
        read(double)
    double.script("t", status(404, 'bucket "aws://imgs" does not exist'))
    with pytest.raises(StoreError, match="does the bucket exist"):
        read(double)


@pytest.mark.parametrize(
    ("node", "who", "never"), [("p", "the gateway", "the target"), ("t", "the target", "the gateway")]
)
@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 500, 501, 507])
def test_a_rejection_names_its_host_and_shows_no_token(double, node, who, never, code):
    double.tokens = {"s3cret-t0ken"}
    double.script(node, *[status(code, "the token s3cret-t0ken expired")] * 100)
    with pytest.raises((ShardError, StoreError)) as caught:
        read(double, token="s3cret-t0ken")
    said = str(caught.value)
    assert who in said
    assert never not in said
    assert "t0ken" not in said
    assert "ais+" not in said


def test_an_object_that_shrank_is_an_error(double):
    double.script("t", cut(1_000_000), status(416, "invalid range"))
    with pytest.raises(ShardError, match="shorter than it was"):
        read(double)


def test_an_unreachable_target_is_named(double):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    double.dead_port = port
    with pytest.raises(ShardError, match=rf"redirects to 127.0.0.1:{port}, which cannot be reached.*targets"):
        read(double, retry_policy=RetryPolicy(budget=0.1, delay=0.01))


def test_a_lost_target_is_retried_until_the_map_changes(double):
    with socket.create_server(("127.0.0.1", 0)) as free:
        double.dead_port = free.getsockname()[1]

    def remap(node, handler):
        double.dead_port, double.shift = None, 1
        return False

    double.script("p", fine, fine, remap)
    assert read(double) == DATA
    assert len(double.seen("p")) == 3


def test_gateways_are_tried_in_turn(double):
    with socket.create_server(("127.0.0.1", 0)) as free:
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    cluster = AisCluster((dead, double.endpoint), schemes=frozenset({"gs"}))
    access = Storage(retry_policy=QUICK, ais=cluster)
    for _ in range(2):
        with access.open_location(f"ais+{URL}") as file:
            assert file.read() == DATA
    unreachable = Storage(retry_policy=RetryPolicy(budget=0.1), ais=AisCluster((dead,)))
    with pytest.raises(
        ShardError, match=r"no gateway of AIStore answers: 127.*refused; is the endpoint right"
    ):
        unreachable.open_location("ais+ais://b/o").read(1)


def test_broken_redirects_are_errors(double):
    double.script(
        "p",
        redirect(f"{double.endpoint}/v1/objects/imgs/a/b/x.tar?provider=gcp"),
        *[redirect(f"{double.endpoint}/v1/objects/imgs/a/b/x.tar?provider=gcp")] * 9,
    )
    with pytest.raises(StoreError, match="answers with more than 5 redirects, the last one to http://127"):
        read(double)
    double.forget()
    double.script("p", redirect("ftp://127.0.0.1/x"))
    with pytest.raises(StoreError, match=r"a redirect from http to ftp://127\.0\.0\.1/x, which is refused"):
        read(double)
    double.forget()
    double.script("p", redirect("http://[::1/x.tar"))
    with pytest.raises(StoreError, match=r"a redirect to http://\[::1/x.tar, which is not a valid URL"):
        read(double)


def test_the_token_is_sent_only_to_gateways(double, tmp_path):
    double.tokens = {"s3cret"}
    assert read(double, token="s3cret") == DATA
    assert all(("authorization" in each.headers) == each.by_gateway for each in double.seen())
    with pytest.raises(
        StoreError, match="answers 401: token required; log in with `ais auth login`"
    ) as caught:
        read(double)
    with pytest.raises(StoreError, match="invalid token") as caught:
        read(double, token="0ther")
    assert "0ther" not in str(caught.value)


def test_an_expired_token_is_read_again(double, tmp_path):
    file = tmp_path / "auth.token"
    file.write_text('{"token": "old"}')
    double.tokens = {"old"}
    settings = {"token_file": str(file), "token_named": True}
    assert read(double, **settings) == DATA
    double.tokens = {"new"}
    file.write_text('{"token": "new"}')
    assert read(double, **settings) == DATA
    file.unlink()
    double.tokens = {"newer"}
    with pytest.raises(StoreError, match=r"no such file, where AIStore's token should be.*auth.token"):
        read(double, **settings)


def test_ranges_are_requested_when_a_reader_skips(double):
    with stream(double) as file:
        assert file.seekable()
        file.seek(2_500_000)
        assert file.read(1000) == DATA[2_500_000:2_501_000]
    assert [each.headers.get("range") for each in double.seen("t")] == [None, "bytes=2500000-"]


def test_latest_avoids_stale_copies(double):
    assert read(double) == DATA
    double.put(URL, b"new")
    assert read(double) == DATA
    assert read(double, latest=True) == b"new"
    assert "latest-ver=true" in double.seen("p")[-1].query


FAULTS = st.one_of(
    st.sampled_from([503, 502, 504, 429, 409]).map(lambda code: status(code, "it may pass")),
    st.just(status(400, "cannot handle bucket request: Smap v0")),
    st.builds(cut, st.integers(0, len(DATA) - 1), st.booleans()),
    st.just(fine),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gateway=st.lists(FAULTS, max_size=6),
    target=st.lists(FAULTS, max_size=6),
    internal=st.integers(0, ais_store.MAX_INTERNAL),
    md5=st.booleans(),
)
def test_any_sequence_of_faults_changes_no_byte(double, gateway, target, internal, md5):
    double.forget()
    double.checksum = "md5" if md5 else "xxhash2"
    double.script("p", *gateway)
    double.script("t", *target, *[status(500, "it may pass")] * internal)
    assert read(double) == DATA
    assert {each.method for each in double.requests} == {"GET"}
    assert all("pid=" in each.query for each in double.seen("t"))
