"""A process keeps few descriptors open, for any number of files that it reads in turn."""

import contextlib
import gc
import os
import threading

import pytest
from cachestores import Caching, Store, Stream, tar_of
from descriptors import count_descriptors, few_descriptors

from wdspec.base import handles as handles_module
from wdspec.base.errors import ShardError, UnusableStoreError, find_lack
from wdspec.base.handles import FEW, Handles, ReleasableFile, handles
from wdspec.stores.http_requests import close_idle_connections
from wdspec.stores.local import open_file

__all__ = ["few_descriptors"]
PIECE = 1000


@pytest.fixture(autouse=True)
def no_descriptors_of_other_tests():
    """They would be closed for lack of descriptors, or with what has left them open."""
    close_idle_connections()
    gc.collect()


@pytest.fixture
def crowded(monkeypatch):
    """Many descriptors are open, and a new budget of four handles."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(FEW)]
    monkeypatch.setattr(handles_module._files, "value", Handles(4))
    yield
    for descriptor in opened:
        os.close(descriptor)


def write_files(folder, count):
    """Files of 5,000 bytes, and their bytes."""
    contents = {folder / f"{n}.bin": bytes((n + i) % 251 for i in range(5 * PIECE)) for n in range(count)}
    for path, data in contents.items():
        path.write_bytes(data)
    return contents


def release(stream):
    assert stream.release()


def test_few_files_are_plain(tmp_path, monkeypatch):
    monkeypatch.setattr("wdspec.stores.local.FEW", 1 << 16)  # other tests may have left many open
    for path in write_files(tmp_path, 1):
        with open_file(str(path)) as file:
            assert not isinstance(file, ReleasableFile)


def test_files_read_in_turn_have_their_bytes_with_four_descriptors(tmp_path, crowded):
    contents = write_files(tmp_path, 20)
    before = count_descriptors()
    files = [open_file(str(path)) for path in contents]
    pieces = [[] for _ in files]
    for _ in range(6):
        for file, read in zip(files, pieces, strict=True):
            read.append(file.read(PIECE))
            assert count_descriptors() <= before + 4
    assert [b"".join(read) for read in pieces] == list(contents.values())
    for file in files:
        file.close()
    assert count_descriptors() == before
    assert not len(handles())


def test_a_released_file_answers_like_an_open_one(tmp_path, crowded):
    [(path, data)] = write_files(tmp_path, 1).items()
    with open_file(str(path)) as file:
        for use, expected in (
            (lambda: file.read(7), data[:7]),
            (lambda: file.tell(), 7),
            (lambda: file.seekable(), True),
            (lambda: file.seek(-10, os.SEEK_END), len(data) - 10),
            (lambda: file.readall(), data[-10:]),
            (lambda: file.seek(0), 0),
            (lambda: file.readinto(bytearray(3)), 3),
            (lambda: file.closed, False),
            (lambda: file.name, str(path)),
            (lambda: os.fstat(file.fileno()).st_size, len(data)),
        ):
            release(file)
            assert use() == expected
        release(file)
    assert file.closed
    with pytest.raises(ValueError, match="closed file"):
        file.read(1)


def test_the_file_that_was_not_used_for_longest_is_released(tmp_path, crowded):
    paths = list(write_files(tmp_path, 5))
    files = [open_file(str(path)) for path in paths[:4]]
    files[0].read(1)
    files.append(open_file(str(paths[4])))
    assert [file._at is None for file in files] == [True, False, True, True, True]


def test_files_that_are_collected_are_forgotten(tmp_path, crowded):
    before = count_descriptors()
    for path in write_files(tmp_path, 10):
        open_file(str(path)).read(1)
    assert (count_descriptors(), len(handles())) == (before, 0)


def replace(path):
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").rename(path)


def touch(path):
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace, "it was replaced or changed while it was read"),
        (touch, "it was replaced or changed while it was read"),
        (lambda path: path.write_bytes(b"short"), "it was replaced or changed while it was read"),
        (os.unlink, "it was removed while it was read"),
    ],
    ids=["replaced", "touched", "rewritten", "removed"],
)
def test_a_file_that_is_another_one_when_it_is_opened_again_is_an_error(tmp_path, crowded, change, message):
    [path] = write_files(tmp_path, 1)
    with open_file(str(path)) as file:
        file.read(PIECE)
        release(file)
        change(path)
        for _ in range(2):
            with pytest.raises(ShardError, match=message) as caught:
                file.read(PIECE)
            assert (caught.value.code, caught.value.place["location"]) == ("D256", str(path))


def test_a_file_that_is_being_read_is_not_released(tmp_path, crowded):
    [path] = write_files(tmp_path, 1)
    with open_file(str(path)) as file, file._using:
        found = []
        thread = threading.Thread(target=lambda: found.append(file.release()))
        thread.start()
        thread.join()
        assert found == [False]
        assert file._at is None


def test_threads_that_read_many_files_get_their_bytes(tmp_path, crowded):
    contents = write_files(tmp_path, 12)
    wrong = []

    def read(paths):
        for _ in range(30):
            files = [open_file(str(path)) for path in paths]
            parts = [[file.read(PIECE) for file in files] for _ in range(5)]
            for path, *pieces in zip(paths, *parts, strict=True):
                if b"".join(pieces) != contents[path]:
                    wrong.append(path)
            for file in files:
                file.close()

    threads = [threading.Thread(target=read, args=(list(contents)[n::3],)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_file_that_is_being_opened_is_not_released(tmp_path, crowded, monkeypatch):
    [(path, data)] = write_files(tmp_path, 1).items()

    def identify_late(descriptor, identity_of=handles_module.identity_of):
        handles().release_half()  # as another thread may
        return identity_of(descriptor)

    monkeypatch.setattr(handles_module, "identity_of", identify_late)
    with open_file(str(path)) as file:
        assert file.read() == data


@pytest.fixture
def take_all(few_descriptors):
    """Opens descriptors until the process has no more."""
    held = []

    def take():
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))

    yield take
    for descriptor in held:
        os.close(descriptor)


def test_files_are_released_if_the_system_gives_no_more_descriptors(tmp_path, crowded, take_all, monkeypatch):
    contents = write_files(tmp_path, 8)
    monkeypatch.setattr(handles(), "limit", 1000)
    files = [open_file(str(path)) for path in list(contents)[:6]]
    take_all()
    files += [open_file(str(path)) for path in list(contents)[6:]]
    assert [file.read() for file in files] == list(contents.values())


def test_a_process_without_descriptors_is_told_how_to_have_more_and_never_to_skip(
    tmp_path, crowded, take_all
):
    first, second = write_files(tmp_path, 2)
    with open_file(str(first)) as file:
        release(file)
        take_all()
        with pytest.raises(OSError, match="Too many open files") as again:
            file.read(1)
        with pytest.raises(UnusableStoreError) as caught:
            open_file(str(second))
    assert "too many open files: raise the limit" in find_lack(again.value)
    assert "too many open files: raise the limit" in str(caught.value)
    assert "skip" not in str(caught.value)


class Tagged(Stream):
    validator = '"one"'


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "made while it is read"])
def test_a_deleted_copy_goes_on_with_the_same_object(tmp_path, crowded, is_finished):
    url, data = "gs://bucket/a.tar", tar_of(50_000)
    caching, store = Caching(tmp_path), TaggedStore({url: data})
    if is_finished:
        caching.read(url, store)
    with caching.open(url, store) as stream:
        first = stream.read(1000)
        while not is_finished and not caching.path(url).exists():
            threading.Event().wait(0.005)
        for at in (1000, 2000):
            release(stream)
            if at == 2000:
                caching.path(url).unlink()
            first += stream.read(1000)
        assert first + b"".join(iter(lambda: stream.read(PIECE), b"")) == data


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "made while it is read"])
@pytest.mark.parametrize("now", ['"two"', None])
def test_a_deleted_copy_of_another_object_is_an_error(tmp_path, crowded, is_finished, now, monkeypatch):
    url, data = "gs://bucket/a.tar", tar_of(50_000)
    caching, store = Caching(tmp_path), TaggedStore({url: data})
    if is_finished:
        caching.read(url, store)
    with caching.open(url, store) as stream:
        stream.read(1000)
        while not is_finished and not caching.path(url).exists():
            threading.Event().wait(0.005)
        release(stream)
        caching.path(url).unlink()
        monkeypatch.setattr(Tagged, "validator", now)
        with pytest.raises(ShardError, match="the copy was deleted or replaced while it was read") as caught:
            stream.read(1000)
    assert "give the cache more room" in str(caught.value)


class TaggedStore(Store):
    """A store whose objects have a validator."""

    def fetch(self, url):
        return lambda: Tagged(self.objects[url], **self.how)
