"""The bytes of a copy are compared with the checksum that was computed while they were fetched."""

import os
import time

import pytest
from commandline import within
from servers.counting import CountingServer
from shardmaking import write_shard

import wdspec
from wdspec.cache import shard_cache
from wdspec.cache.index import Index

SAMPLES = [(f"{i:03d}", {"txt": b"%d" % i * 400}) for i in range(50)]


@pytest.fixture
def served(tmp_path):
    write_shard(tmp_path / "served" / "a.tar", SAMPLES)
    with CountingServer(tmp_path / "served") as server:
        yield server


@pytest.fixture
def read(served, tmp_path):
    """Reads all texts as a new process would, and returns them."""

    def read(**cache):
        shard_cache._intact.value.clear()
        return again(**cache)

    def again(**cache):
        found = {"dir": str(tmp_path / "copies"), **cache}
        spec = {
            "wdspec": 1,
            "cache": found,
            "dataset": [{"shards": f"{served.url}/a.tar", "decode": "raw", "shuffle": 0}],
            "epoch": "pass",
        }
        return [sample["txt"] for sample in wdspec.compile(spec)]

    read.again = again
    return read


@pytest.fixture
def copy(served, tmp_path):
    return tmp_path / "copies" / "http" / served.url.removeprefix("http://") / "a.tar"


def change(path, *, keeps_time):
    """Change a byte within a file of the tar, which no structure shows."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    later = before.st_mtime_ns + (0 if keeps_time else 10**9)
    os.utime(path, ns=(later, later))


WHOLE = [fields["txt"] for _, fields in SAMPLES]


@pytest.mark.parametrize(
    ("cache", "keeps_time", "is_found"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"verify": "once"}, True, True),
        ({"verify": "always"}, True, True),
        ({"verify": "never"}, False, False),
    ],
)
def test_a_copy_with_other_bytes_is_fetched_again(read, copy, served, cache, keeps_time, is_found, caplog):
    assert read(**cache) == WHOLE
    change(copy, keeps_time=keeps_time)
    fetched = sum(served.fetched.values())
    assert (read(**cache) == WHOLE) == is_found
    assert (sum(served.fetched.values()) > fetched) == is_found
    assert (f"the copy {copy} has other bytes than those fetched" in caplog.text) == is_found
    caplog.clear()
    assert (read(**cache) == WHOLE) == is_found
    assert not caplog.text


def test_a_process_computes_a_checksum_once_unless_it_is_always(read, monkeypatch):
    computed = []
    crc_of = shard_cache.crc_of
    monkeypatch.setattr(shard_cache, "crc_of", lambda file: computed.append(file) or crc_of(file))
    read()
    # A pass opens a copy twice, as it first counts the samples.
    for verify, expected in (("changed", 0), ("once", 1), ("always", 6), ("never", 0)):
        computed.clear()
        read(verify=verify)
        for _ in range(2):
            read.again(verify=verify)
        assert len(computed) == expected, verify


def test_a_copy_that_was_only_touched_is_compared_once_for_all_processes(read, copy, served, monkeypatch):
    read()
    later = time.time_ns() + 10**9
    os.utime(copy, ns=(later, later))
    fetched = sum(served.fetched.values())
    assert read() == WHOLE
    monkeypatch.setattr(shard_cache, "crc_of", pytest.fail)
    assert read() == WHOLE
    assert sum(served.fetched.values()) == fetched


def test_the_room_for_the_checksum_is_counted(read, tmp_path):
    read()
    index = Index(str(tmp_path / "copies"))
    with index._counting() as count:
        assert count.total == sum(entry.total for entry in index.entries.by_use())


def test_copies_without_a_checksum_are_read(read, copy, tmp_path, served):
    read()
    [entry] = Index(str(tmp_path / "copies")).entries.by_use()
    with open(entry.path, "rb") as file:
        lines = file.read().split(b"\n")
    with open(entry.path, "wb") as file:  # as an earlier version writes it
        file.write(b"\n".join(lines[:3]))
    change(copy, keeps_time=False)
    assert read(verify="always") != WHOLE


@pytest.mark.parametrize("keeps_time", [True, False])
def test_cache_verify_finds_a_changed_byte_within_a_file(read, copy, tmp_path, keeps_time):
    read()
    assert "1 intact, 0 damaged" in within("cache", "verify", tmp_path / "copies")[0]
    change(copy, keeps_time=keeps_time)
    shown, said = within("cache", "verify", tmp_path / "copies", code=1)
    assert "its checksum differs" in shown + said
    within("cache", "verify", tmp_path / "copies", "--remove", code=1)
    assert not copy.exists()
    assert read() == WHOLE
