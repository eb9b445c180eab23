"""Answers that no server library would send: cut in their headers, with nonsense for numbers, or never complete."""

from __future__ import annotations

import io
import socket
import tarfile
import threading
import time
from contextlib import contextmanager

import pytest

import wdspec
from wdspec.base.errors import ShardError
from wdspec.storage.storage import Storage
from wdspec.stores.retry import RetryPolicy

DATA = bytes(range(256)) * 40
WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: "a"\r\n\r\n' % len(DATA) + DATA
QUICK = RetryPolicy(budget=0.5, brief=0.5, delay=0.001, longest_delay=0.01, read_timeout=0.5)


@contextmanager
def answering(*answers, hangs=False):
    """A server that sends these bytes in turn, the last ones again and again; yields its URL and the requests."""
    requests = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        held = []
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                for each in held:
                    each.close()
                return
            request = b""
            while b"\r\n\r\n" not in request and (piece := connection.recv(4096)):
                request += piece
            answer = answers[min(len(requests), len(answers) - 1)]
            requests.append(request)
            connection.sendall(answer)
            if hangs:
                held.append(connection)
            else:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/a.tar", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def read(url):
    with Storage(retry_policy=QUICK).open_location(url) as stream:
        return stream.read()


def failure_of(url):
    """The error of reading, or, if there is none, text that contains all that an error should."""
    try:
        assert read(url) == DATA
    except ShardError as error:
        return str(error)
    return f"{url} status 503"


@pytest.mark.parametrize("cut", [0, 5, 15, 17, 30, 36, 38, 40, 50, WHOLE.index(b"\r\n\r\n") + 2])
def test_an_answer_cut_in_its_headers_is_retried_and_never_an_empty_object(cut):
    with answering(WHOLE[:cut], WHOLE) as (url, requests):
        assert read(url) == DATA
        assert len(requests) == 2
    with answering(WHOLE[:cut]) as (url, _), pytest.raises(ShardError, match="given up after"):
        read(url)


def test_an_empty_object_of_known_length_is_empty():
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (url, _):
        assert read(url) == b""
    with answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") as (url, _):
        assert read(url) == b""


def test_an_object_without_a_length_is_read_to_the_end_of_the_connection():
    with answering(b"HTTP/1.0 200 OK\r\n\r\n" + DATA) as (url, _):
        assert read(url) == DATA


def test_the_length_of_an_answer_without_a_byte_does_not_count():
    other = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: "b"\r\n\r\n'
    with answering(other, WHOLE) as (url, _):
        assert read(url) == DATA
    with (
        answering(other + b"abc", WHOLE) as (url, _),
        Storage(retry_policy=QUICK).open_location(url) as stream,
    ):
        assert stream.read(2) == b"ab"
        with pytest.raises(ShardError, match="the object changed"):
            stream.read()


NONSENSE = ["x", "-5", "1e3", "0x10", "²", "1" * 20, "9" * 5000, "1,2", "", " "]


@pytest.mark.parametrize("said", NONSENSE)
def test_a_content_length_that_is_no_number_is_a_clear_error(said):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: " + said.encode() + b"\r\n\r\n" + DATA
    with answering(answer) as (url, _):
        assert url in failure_of(url)


@pytest.mark.parametrize("said", NONSENSE)
def test_a_retry_after_that_is_no_number_is_ignored(said):
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: " + said.encode() + b"\r\n\r\n"
    with answering(busy, WHOLE) as (url, _):
        assert "status 503" in failure_of(url), "a long time to wait, if it is a number"


@pytest.mark.parametrize("size", [b"-5", b"-1000", b"zz", b"", b"f" * 5000])
def test_a_chunk_of_an_impossible_size_is_a_clear_error(size):
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + DATA
    with answering(answer) as (url, _), pytest.raises(ShardError, match="given up after"):
        read(url)


def write_tar():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(400):
            info = tarfile.TarInfo(f"{number:04d}.txt")
            info.size = 1000
            tar.addfile(info, io.BytesIO(bytes(1000)))
    return file.getvalue()


@pytest.mark.parametrize("sent", [0, 200, 100_000, 300_000])
@pytest.mark.parametrize("readers", [1, 3])
def test_a_read_from_a_copy_that_a_hanging_server_fills_ends_at_the_timeout(tmp_path, sent, readers):
    tar = write_tar()
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: "a"\r\n\r\n' % len(tar) + tar
    with answering(answer[:sent], hangs=True) as (url, _):
        spec = {
            "dataset": [{"shards": [url], "cache": str(tmp_path / "cache")}],
            "errors": {"timeout": "0.5s"},
        }
        errors = []

        def consume():
            try:
                list(wdspec.compile(spec))
            except ShardError as error:
                errors.append(str(error))

        begin = time.monotonic()
        threads = [threading.Thread(target=consume) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert time.monotonic() - begin < 8
        assert len(errors) == readers
        for each in errors:
            assert "a read took more than 0.5 s" in each
