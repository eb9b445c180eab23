"""Servers that hang, cut their answers or send nonsense: an error in time, and never wrong bytes."""

from __future__ import annotations

import contextlib
import gzip
import io
import socket
import tarfile
import threading
from dataclasses import replace

import pytest

import wdspec
from wdspec.api import sample_reader
from wdspec.base.errors import ShardError
from wdspec.cache.names import CacheNames
from wdspec.cache.shard_cache import ShardCache
from wdspec.spec.load import load
from wdspec.storage.storage import Storage
from wdspec.stores.retry import RetryPolicy
from wdspec.stores.watchdog import open_watched
from wdspec.urls.urls import ShardUrl

PATIENT = RetryPolicy(budget=1000, brief=1000, delay=0.01, longest_delay=0.02)
QUICK = replace(PATIENT, budget=0.5, brief=0.3)
HASTY = replace(PATIENT, read_timeout=1)
"""Ends also what the watchdog cannot end: waiting for the first bytes of an answer."""
HANGS = 1000
"""Seconds that a server keeps its client waiting: longer than a test may take."""


def make_tar(size=600_000):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("000.bin", "001.bin"):
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)))
    return file.getvalue()


TAR = make_tar()
HEAD = b"HTTP/1.1 200 OK\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(TAR) + TAR


class Server:
    """Sends the next of some answers to each connection, and the last one to all later ones; then closes it.

    An answer is bytes, or a list of bytes and of seconds to wait.
    """

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/a.tar"
        self._ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._listener.accept()[0],), daemon=True).start()

    def _answer(self, connection):
        with contextlib.suppress(OSError), connection:
            if not connection.recv(65536):
                return
            answer = self.answers[min(self.requests, len(self.answers) - 1)]
            self.requests += 1
            for part in answer if isinstance(answer, list) else [answer]:
                if isinstance(part, bytes):
                    connection.sendall(part)
                elif self._ended.wait(part):
                    return

    def close(self):
        self._ended.set()
        self._listener.close()


@pytest.fixture
def serve():
    servers = []

    def start(*answers):
        servers.append(Server(*answers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(params=["plain", "cached"])
def read(request, tmp_path):
    """Read a URL completely, with or without a cache."""

    def read(url, seconds=200, policy=PATIENT):
        storage = replace(Storage(), retry_policy=policy)
        if request.param == "cached":
            storage = replace(storage, cache=ShardCache(CacheNames(str(tmp_path))))
        shard = ShardUrl(url, "/d")
        with contextlib.closing(
            open_watched(lambda: storage.open(storage.resolve(shard)), seconds, "s", url)
        ) as stream:
            return b"".join(iter(lambda: stream.read(1 << 18), b""))

    return read


CUT_OR_WRONG = {
    "headers cut": HEAD + b"Content-Type: x\r\n",
    "headers cut within a line": HEAD + b"Content-Le",
    "only the status": HEAD,
    "no body": HEAD + b"\r\n",
    "no body over HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n",
    "nothing": b"",
    "no bytes of those announced": HEAD + b'Content-Length: 5\r\nETag: "old"\r\n\r\n',
    "length in words": HEAD + b"Content-Length: abc\r\n\r\nxx",
    "negative length": HEAD + b"Content-Length: -5\r\n\r\nxx",
    "superscript length": HEAD + b"Content-Length: \xb2\r\n\r\nxx",
    "length of 5,000 digits": HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nxx",
    "two lengths": HEAD + b"Content-Length: 5, 6\r\n\r\nxx",
    "chunk of negative length": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nxx\r\n0\r\n\r\n",
    "chunk of length -1": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nxx\r\n0\r\n\r\n",
    "chunk of a length of 5,000 digits": HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"9" * 5000
    + b"\r\nxx\r\n0\r\n\r\n",
    "chunk of no length": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nxx\r\n0\r\n\r\n",
    "chunks cut": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nxx",
    "chunks without an end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    "206 without a range": b"HTTP/1.1 206 OK\r\nContent-Length: 2\r\n\r\nxx",
    "206 of nonsense": b"HTTP/1.1 206 OK\r\nContent-Length: 2\r\nContent-Range: bytes x-y/z\r\n\r\nxx",
    "206 of large numbers": b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-1/" + b"9" * 5000 + b"\r\n\r\nxx",
    "206 of another range": b"HTTP/1.1 206 OK\r\nContent-Range: bytes 7-8/9\r\nContent-Length: 2\r\n\r\nxx",
    "416 without a range": b"HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n",
    "wait for ² seconds": b"HTTP/1.1 503 No\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n",
    "wait until the year 9999999": b"HTTP/1.1 429 No\r\nRetry-After: Mon, 01 Jan 9999999 00:00:00 GMT\r\n"
    b"Content-Length: 0\r\n\r\n",
    "gzip that is cut": HEAD
    + b"Content-Encoding: gzip\r\nContent-Length: 10\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\x03",
    "gzip that is damaged": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nxxxxxxxxx",
    "HTTP/0.9": b"xxxx",
    "HTTP/7": b"HTTP/7.1 200 OK\r\nContent-Length: 2\r\n\r\nxx",
    "status in words": b"HTTP/1.1 abc OK\r\n\r\n",
    "negative status": b"HTTP/1.1 -20 OK\r\n\r\n",
    "a line of 100,000 characters": HEAD + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
    "headers of 1 MB": HEAD
    + b"".join(b"X-%d: %s\r\n" % (each, b"x" * 1000) for each in range(1000))
    + b"\r\n",
    "not HTTP": b"\x00\xff\x00\xff\r\n\r\n",
    "endless redirects": b"HTTP/1.1 302 Go\r\nLocation: \r\nContent-Length: 0\r\n\r\n" + b"",
}
PERMANENT = {"endless redirects", "gzip that is damaged"}


@pytest.mark.parametrize("name", [name for name in CUT_OR_WRONG if name not in PERMANENT])
def test_a_bad_first_answer_is_retried_and_leaves_nothing(name, serve, read):
    server = serve(CUT_OR_WRONG[name], WHOLE)
    assert read(server.url) == TAR
    assert server.requests == 2


@pytest.mark.parametrize("name", CUT_OR_WRONG)
def test_bad_answers_are_an_error_that_names_the_url(name, serve, read):
    server = serve(CUT_OR_WRONG[name])
    with pytest.raises(ShardError) as caught:
        read(server.url, policy=QUICK)
    assert server.url in str(caught.value)
    assert len(str(caught.value)) < 1000


IDS = bytes(range(256)) * 8
LENGTHS = {
    "none": (b"\r\n" + IDS, True),
    "none, compressed": (b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(IDS), True),
    "stated": (b"Content-Length: 2048\r\n\r\n" + IDS, False),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n800\r\n" + IDS + b"\r\n0\r\n\r\n", False),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_bare_numbers_without_an_end_are_refused_as_cut_ones_would_look_complete(name, serve, read):
    rest, is_refused = LENGTHS[name]
    url = serve(HEAD + rest).url.replace("a.tar", "a.ds")
    if is_refused:
        with pytest.raises(
            ShardError, match=r"neither says the length .* Let the server send `Content-Length`"
        ):
            read(url)
    else:
        assert read(url) == IDS


def test_a_time_of_5000_digits_to_wait_is_ignored(serve, read):
    busy = b"HTTP/1.1 503 No\r\nRetry-After: " + b"9" * 5000 + b"\r\nContent-Length: 0\r\n\r\n"
    assert read(serve(busy, WHOLE).url) == TAR


def test_an_object_is_empty_if_its_server_says_so(serve):
    for framing in (b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        with Storage(retry_policy=PATIENT).open_location(serve(HEAD + framing).url) as stream:
            assert stream.read() == b""


TOO_LONG = r"a read took more than 0.5 s.*\[source s, url http"


@pytest.mark.parametrize("after", [-30, 0, 1000, 700_000])
def test_a_read_from_a_hanging_server_ends_at_the_timeout(after, serve, read):
    server = serve([WHOLE[: len(WHOLE) - len(TAR) + after], HANGS])
    with pytest.raises(ShardError, match=TOO_LONG):
        read(server.url, 0.5, HASTY)
    assert server.requests == 1


def test_an_interrupted_connection_is_not_the_end_of_an_object_of_unknown_length(serve, read):
    unframed = HEAD + b"\r\n"
    with pytest.raises(ShardError, match=TOO_LONG):
        read(serve([unframed + TAR[:700_000], HANGS]).url, 0.5, HASTY)
    trickle = [part for each in range(10 * HANGS) for part in (TAR[each : each + 1], 0.1)]
    with pytest.raises(ShardError, match=TOO_LONG):
        read(serve([unframed, *trickle]).url, 0.5, HASTY)


@pytest.mark.parametrize("where", ["headers", "body"])
def test_trickling_bytes_are_not_waited_for(where, serve, read):
    trickle = [HEAD + b"X: "] if where == "headers" else [WHOLE[:100]]
    for number in range(10 * HANGS):
        trickle += [WHOLE[100 + number : 101 + number], 0.1]
    with pytest.raises(ShardError, match=TOO_LONG):
        read(serve(trickle).url, 0.5, HASTY)


@pytest.mark.parametrize("cached", [False, True])
def test_reads_of_a_spec_from_a_hanging_server_end_in_time(cached, serve, tmp_path):
    server = serve([WHOLE[:1000], HANGS])
    spec = {
        "dataset": [{"name": "pages", "shards": server.url, "order": "sequential", "shuffle": 0}],
        "errors": {"timeout": "0.5s"},
        **({"cache": str(tmp_path)} if cached else {}),
    }
    reader = sample_reader(load(spec))
    try:
        with pytest.raises(ShardError, match=r"0.5 s.*\[source pages, url http"):
            reader.batch(0)
    finally:
        reader.close()


@pytest.mark.parametrize("sent", [0, 1000, 700_000])
def test_all_readers_of_a_copy_that_a_hanging_server_fills_end_in_time(sent, serve, tmp_path):
    url = serve([WHOLE[:sent], HANGS]).url
    spec = {"dataset": [{"shards": url, "cache": str(tmp_path)}], "errors": {"timeout": "0.5s"}}
    errors = []

    def consume():
        try:
            list(wdspec.compile(spec))
        except ShardError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 3
    for each in errors:
        assert "a read took more than 0.5 s" in each


def test_a_url_that_is_the_start_of_another_is_named_as_the_reason(serve, tmp_path, caplog):
    url = serve(WHOLE).url
    storage = Storage(retry_policy=PATIENT, cache=ShardCache(CacheNames(str(tmp_path))))
    for each in (url, url + "/b.tar"):
        with contextlib.closing(storage.open(storage.resolve(ShardUrl(each, "/d")))) as stream:
            assert stream.read() == TAR
    assert "the URL of one shard is the start of another's" in caplog.text


WEAK = HEAD + b'ETag: W/"1"\r\nContent-Length: %d\r\n' % len(TAR)
OTHER = TAR.replace(b"\0" * 100, b"x" * 100)


def cut_then(serve, first, then, data):
    """A server whose first answer is cut in the middle; later ones are complete, with other headers and data."""
    return serve(first + b"\r\n" + TAR[: len(TAR) // 2], WEAK + then + b"\r\n" + data)


def test_a_weak_etag_that_stays_does_not_hide_a_change(serve, read):
    server = cut_then(serve, WEAK, b"", OTHER)
    with pytest.raises(ShardError, match="other bytes than before"):
        read(server.url, policy=QUICK)


def test_the_time_of_the_last_change_counts_next_to_a_weak_etag(serve, read):
    first, later = (b"Last-Modified: Thu, 01 Jan 2026 00:00:0%d GMT\r\n" % second for second in (1, 2))
    server = cut_then(serve, WEAK + first, later, OTHER)
    with pytest.raises(ShardError, match=r"the object changed while it was read: .* 00:00:01 GMT before"):
        read(server.url, policy=QUICK)


def test_an_object_with_a_weak_etag_that_did_not_change_is_read_again_from_the_start(serve, read):
    assert read(cut_then(serve, WEAK, b"", TAR).url) == TAR


def test_a_damaged_size_of_a_chunk_delivers_no_bytes_after_it(serve):
    good = TAR[: len(TAR) // 2]
    chunks = b"%x\r\n" % len(good) + good + b"\r\n" + b"9" * 5000 + b"\r\n" + TAR[len(good) :]
    server = serve(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    found = []
    with (
        pytest.raises(ShardError, match="the size of a chunk is damaged"),
        Storage(retry_policy=QUICK).open_location(server.url) as stream,
    ):
        found.extend(iter(lambda: stream.read(10_000), b""))
    assert good.startswith(b"".join(found))
