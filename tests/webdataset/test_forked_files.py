"""A file that `gopen` opened belongs to its process: a forked child must neither move its position nor close it."""

import random

import pytest
from forked import in_child
from servers.echo import EchoServer

import wdspec

DATA = random.Random(1).randbytes(3_000_000)


def refused(file):
    """Whether reading on is refused, and leaving it does nothing."""
    with pytest.raises(wdspec.UsageError, match="before a fork"):
        file.read()
    file.close()
    return True


@pytest.mark.parametrize("kind", ["file", "http", "pipe"])
@pytest.mark.parametrize("read", [0, 100_000])
def test_files_opened_for_reading_belong_to_their_process(kind, read, tmp_path):
    path = tmp_path / "shard"
    path.write_bytes(DATA)
    with EchoServer(DATA) as server:
        url = {"file": str(path), "http": f"http://{server.host}/shard/a", "pipe": f"pipe:cat {path}"}[kind]
        with wdspec.gopen(url) as file:
            first = file.read(read)
            assert in_child(lambda: refused(file))
            assert first + file.read() == DATA


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_files_opened_for_writing_appear_once_with_the_bytes_of_their_process(kind, tmp_path):
    path = tmp_path / "made"
    file = wdspec.gopen(
        str(path) if kind == "file" else f"pipe:cat > {path}.part && mv {path}.part {path}", "wb"
    )
    file.write(b"started ")

    def child():
        for use in (lambda: file.write(b"more"), file.close):
            with pytest.raises(wdspec.UsageError, match="before a fork"):
                use()
        return not path.exists()

    assert in_child(child)
    file.write(b"and ended")
    file.close()
    assert path.read_bytes() == b"started and ended"
