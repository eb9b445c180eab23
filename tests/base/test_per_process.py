"""Values that a forked child creates again, streams built from `read`, and locks that end with their process."""

from __future__ import annotations

import io
import threading

import pytest
from forked import in_child

from wdspec.base.files import LockFile, RawStream, lock_open_file
from wdspec.base.process import KeyedValues, PerProcess


def test_a_forked_child_creates_its_own_value_and_sees_its_parents():
    seen = []
    values = PerProcess(list, seen.append)
    values.value.append("the parent's")
    assert in_child(lambda: values.value == [] and seen == [["the parent's"]])
    assert values.value == ["the parent's"]
    assert seen == []


def test_a_lock_held_during_a_fork_does_not_block_the_child():
    tables = PerProcess(KeyedValues)
    started, go_on = threading.Event(), threading.Event()

    def make():
        started.set()
        go_on.wait()
        return "made"

    thread = threading.Thread(target=lambda: tables.value.get("key", make))
    thread.start()
    started.wait()
    try:
        assert in_child(lambda: tables.value.get("key", lambda: "the child's") == "the child's")
    finally:
        go_on.set()
        thread.join()
    assert tables.value.get("key", lambda: "another") == "made"


def test_a_value_whose_creation_failed_is_created_on_the_next_call():
    table = KeyedValues()
    with pytest.raises(ZeroDivisionError):
        table.get("key", lambda: 1 // 0)
    assert table.get("key", lambda: 1) == 1


class Slowly(RawStream):
    def __init__(self, data):
        self._file = io.BytesIO(data)

    def read(self, size=-1):
        return self.readall() if size < 0 else self._file.read(min(size, 3))


def test_a_stream_that_can_read_can_all_the_rest():
    data = bytes(range(20))
    assert Slowly(data).read() == data
    assert io.BufferedReader(Slowly(data), 7).read() == data
    buffer = bytearray(5)
    assert Slowly(data).readinto(buffer) == 3
    assert buffer == data[:3] + b"\0\0"
    assert Slowly(b"").readinto(buffer) == 0


def test_an_open_file_has_one_exclusive_or_many_shared_locks(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    with open(path) as first, open(path) as second:
        assert lock_open_file(first.fileno(), shared=True)
        assert lock_open_file(second.fileno(), shared=True)
        assert not lock_open_file(second.fileno())
        first.close()
        assert lock_open_file(second.fileno())
        with open(path) as third:
            assert not lock_open_file(third.fileno(), shared=True)


def test_a_forked_child_does_not_inherit_a_lock_file(tmp_path):
    lock = LockFile(str(tmp_path / "lock"))
    assert lock.try_acquire()
    assert in_child(lambda: not LockFile(str(tmp_path / "lock")).try_acquire())
    lock.release()
    assert in_child(lambda: LockFile(str(tmp_path / "lock")).try_acquire())
