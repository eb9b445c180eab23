"""A store that sends bytes slowly is logged, and is an error below a minimum rate."""

import itertools
import logging

import pytest
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import StoreError
from wdspec.storage.storage import Storage
from wdspec.stores import rates
from wdspec.stores.rates import RateRules, RateWatch
from wdspec.stores.retry import RetryPolicy


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time of warnings, which the test advances."""
    rates._warnings.value.next = 0.0
    now = [1000.0]
    monkeypatch.setattr(rates.time, "monotonic", lambda: now[0])
    return now


def test_a_slow_read_is_logged_once_a_minute_with_its_rate_and_since_when(caplog, clock):
    watch = RateWatch(RateRules(), "https://user:s3cret@x.org/a.tar")
    for _ in range(30):  # five minutes at 50 kB/s
        clock[0] += 10
        watch.note(500_000, 10.0)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 5
    assert "0.05 MB/s from https://***@x.org/a.tar in the last 30 s, and below 1.00 MB/s for 30 s" in said[0]
    assert "for 90 s" in said[1]
    assert "s3cret" not in caplog.text
    assert caplog.records[0].url == "https://***@x.org/a.tar"


def test_time_in_which_nobody_reads_does_not_count(caplog, clock):
    watch = RateWatch(RateRules(), "u")
    for _ in range(100):  # a slow training loop: the bytes are there at once
        clock[0] += 10
        watch.note(500_000, 0.01)
    assert not caplog.records


def test_a_fast_read_is_silent_and_ends_a_slow_time(caplog, clock):
    watch = RateWatch(RateRules(seconds=10), "u")
    for size in (1e6, 1e6, 1e9, 1e6):
        clock[0] += 61
        watch.note(int(size), 10.0)
    assert [
        each.getMessage().partition("and below 1.00 MB/s ")[2].partition(" (")[0] for each in caplog.records
    ] == ["for 10 s", "for 20 s", "for 10 s"]


def test_a_minimum_rate_is_an_error_that_names_the_key():
    watch = RateWatch(RateRules(least=100_000), "u")
    with pytest.raises(
        StoreError, match=r"only 0.05 MB/s arrived for 30 s, below `errors.min_rate` of 0.10 MB/s"
    ):
        watch.note(1_500_000, 30.0)


def spec_of(nginx, **errors):
    write_shard(nginx.root / "rates.tar", [(f"{n}", {"bin": bytes(400_000)}) for n in range(10)])
    return {
        "dataset": [{"name": "slow", "shards": f"{nginx.url}/slow/rates.tar", "decode": "raw", "shuffle": 0}],
        "errors": {"skip": True, **errors},
    }


def test_a_real_slow_server_is_logged_and_refused(nginx, caplog):
    slow = spec_of(nginx, slow_rate="100MB", slow_after="100ms")
    with caplog.at_level(logging.WARNING):
        assert len(list(itertools.islice(wdspec.compile(slow), 9))) == 9
    records = [each for each in caplog.records if "a store is slow" in each.getMessage()]
    assert records
    assert {(each.source, each.url) for each in records} == {("slow", slow["dataset"][0]["shards"])}
    caplog.clear()
    assert len(list(itertools.islice(wdspec.compile(spec_of(nginx, slow_rate=0, slow_after="50ms")), 9))) == 9
    assert "a store is slow" not in caplog.text
    with pytest.raises(StoreError, match=r"`errors\.min_rate`"):  # never skipped
        list(itertools.islice(wdspec.compile(spec_of(nginx, min_rate="100MB", slow_after="100ms")), 9))


def test_the_defaults_are_those_of_the_reference():
    assert Storage().retry_policy.rates == RetryPolicy().rates == RateRules(1_000_000, 30.0, 0)
