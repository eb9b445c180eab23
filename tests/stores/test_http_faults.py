"""Temporary faults are retried, permanent ones are reported, and no byte is ever wrong."""

from __future__ import annotations

import logging
import random
import re
from dataclasses import replace
from itertools import count

import pytest
from servers.fault_proxy import Cut, NoRange, Said, Script, Stall, Status

from wdspec.base.errors import ShardError
from wdspec.storage.storage import Storage
from wdspec.stores.retry import RetryPolicy

DATA = random.Random(1).randbytes(2_500_000)
PATIENT = RetryPolicy(budget=120, brief=120, delay=0.001, longest_delay=0.01)
HASTY = replace(PATIENT, read_timeout=0.3)
"""Meets a stall soon, and on a loaded machine perhaps also where there is none."""
_runs = count()


@pytest.fixture
def run(nginx, proxy):
    """Read the data through the proxy under a script; `run.path` is the requested path."""
    (nginx.root / "data.bin").write_bytes(DATA)

    def read(first=(), then=None, retry_policy=PATIENT, seek=0):
        read.path = f"/run-http-{next(_runs)}/data.bin"
        proxy.scripts[read.path] = Script(list(first), then)
        with Storage(retry_policy=retry_policy).open_location(proxy.url + read.path) as stream:
            if seek:
                stream.read(10)
                stream.seek(seek)
            return stream.read()

    return read


@pytest.mark.parametrize(
    "fault",
    [
        *(Status(code) for code in (408, 409, 425, 429, 500, 502, 503, 504)),
        *(Cut(after, reset) for after in (0, 1, 1_000_000, len(DATA) - 1) for reset in (False, True)),
        *(Stall(after) for after in (-1, 0, 1_000_000)),
    ],
)
def test_temporary_failures_are_retried(run, fault):
    policy = HASTY if isinstance(fault, Stall) else PATIENT
    assert run([fault, fault], retry_policy=policy) == DATA


def test_an_interruption_resumes_at_its_offset_with_a_validator(run, proxy):
    assert run([Cut(1_000_000)]) == DATA
    first, second = proxy.asked(run.path)
    assert "range" not in first.headers
    assert int(second.headers["range"].removeprefix("bytes=").removesuffix("-")) <= 1_000_000
    assert second.headers["if-range"].startswith('"')
    assert second.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "lie",
    [
        Said((("content-range", "bytes 7-8/9"),)),
        Said((("content-range", f"bytes 5-{len(DATA)}/{len(DATA)}"),)),
        Said((("content-range", "5"),)),
        Said((("content-range", None),)),
        Said((("content-length", "x"),)),
        Said((("etag", '"another"'),)),
        Said((("etag", None),)),
    ],
)
def test_a_wrong_range_response_is_rejected(run, lie):
    assert run([Cut(1_000_000), lie]) == DATA
    with pytest.raises(ShardError):
        run([Cut(1_000_000)], lie, replace(PATIENT, budget=0.1))


def test_an_ignored_range_costs_rereading_but_no_bytes(run, proxy):
    assert run([Cut(1_000_000), NoRange()]) == DATA
    assert run([None, NoRange()], seek=2_000_000) == DATA[2_000_000:]
    assert len(proxy.asked(run.path)) == 2


def test_a_replaced_object_is_reported_as_an_error(run):
    with pytest.raises(ShardError, match=r"changed while it was read: .* before, .*\"new\" now; start again"):
        run([Cut(1_000_000)], Said((("etag", '"new"'),)), replace(PATIENT, brief=0.05))


def test_without_an_etag_last_modified_is_compared(run, proxy):
    no_etag = Said((("etag", None),))
    assert run([no_etag], no_etag, seek=2_000_000) == DATA[2_000_000:]
    assert proxy.asked(run.path)[1].headers["if-range"].endswith("GMT")


def test_retry_after_is_respected(run, caplog):
    caplog.set_level(logging.WARNING, "wdspec")
    assert run([Status(429, (("Retry-After", "1"),))]) == DATA
    assert "attempt 1 at http://" in caplog.text
    assert "status 429 Too Many Requests: oops; trying again in 1.0 s" in caplog.text
    with pytest.raises(ShardError, match=r"given up after 1 attempt in 0 s: .*status 503"):
        run(then=Status(503, (("Retry-After", "3600"),)))


def test_each_attempt_is_logged_once(run, proxy, caplog):
    caplog.set_level(logging.WARNING, "wdspec")
    assert run([Status(500), Cut(5), Stall(-1)], retry_policy=HASTY) == DATA
    attempts = [record.message.split(" failed: ")[0].split(" at ")[0] for record in caplog.records]
    assert attempts[:3] == ["attempt 1", "attempt 2", "attempt 3"]
    assert len(attempts) == len(proxy.asked(run.path)) - 1


@pytest.mark.parametrize("fault", [Status(503), Cut(0), Cut(0, reset=True), Stall(-1), Stall(0)])
def test_permanent_failures_are_reported_with_the_url(run, fault):
    with pytest.raises(
        ShardError, match=r"given up after \d+ attempts? in .*\[location http://127.*/data.bin\]"
    ):
        run(then=fault, retry_policy=replace(HASTY, budget=0.2, brief=0.2, read_timeout=0.05))


@pytest.mark.parametrize("code", [400, 401, 403, 405, 451])
def test_a_rejected_request_is_reported_immediately(run, proxy, code):
    with pytest.raises(ShardError, match=rf"the server refuses: status {code} .*oops; "):
        run(then=Status(code))
    assert len(proxy.asked(run.path)) == 1


def test_an_interruption_is_reported_once_with_its_offset(run, caplog):
    with caplog.at_level(logging.WARNING):
        assert run([Cut(1000)]) == DATA
    (said,) = [record.getMessage() for record in caplog.records]
    assert re.search(r"broke after [\d,]+ bytes of an answer; [\d,]+ are missing", said)
    assert "IncompleteRead" not in said


def test_an_unrequested_416_is_not_an_empty_object(run):
    assert run([Status(416, (("Content-Range", "bytes */0"),))]) == DATA
    with pytest.raises(ShardError, match="status 416"):
        run(
            then=Status(416, (("Content-Range", "bytes */0"),)),
            retry_policy=replace(PATIENT, budget=0.1),
        )
