"""The index keeps its sum: right after every change and every kill, and without listing the copies for each new one."""

import os
import random

import pytest

from wdspec.cache.index import BASE, Content, Entries, Index, key_of

SIZE = 1000


class Killed(BaseException):
    """Ends a change where it is, as a kill does: nothing that comes after it is done."""


@pytest.fixture
def index(tmp_path):
    index = Index(str(tmp_path))
    index.make()
    return index


@pytest.fixture
def listings(monkeypatch):
    """Grows by one with each listing of an index."""
    real, seen = os.scandir, []

    def scandir(path="."):
        if str(path).endswith(os.path.join(".wdspec", "index")):
            seen.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return seen


def name_of(number):
    return f"gs/b/{number}.tar"


def reserve(index, number, limit=None, size=SIZE, before=None):
    name = name_of(number)
    return index.reserve(key_of(name), Content(name, "gs://b"), size, before, limit)


def keep(index, number, limit=None):
    """Makes a copy; whether there was room."""
    if not reserve(index, number, limit):
        return False
    key = key_of(name_of(number))
    with open(index.part(key), "wb") as file:
        file.write(bytes(SIZE))
    index.commit(key, name_of(number), SIZE, SIZE)
    return True


def counted(index):
    return sum(entry.total for entry in index.entries.by_use())


def kept(index):
    return {index.entries.content(entry.key, entry.path).name for entry in index.entries.by_use()}


def test_adding_a_copy_does_not_list_existing_ones(index, listings):
    for number in range(100):
        assert keep(index, number, limit=10**9)
    assert len(listings) <= 1


def test_one_listing_serves_many_deletions_oldest_first(index, listings):
    for number in range(300):
        assert keep(index, number)
    limit = BASE + counted(index)
    listings.clear()
    for number in range(300, 500):
        for often in (1, 2, 3):
            index.entries.touch(key_of(name_of(often)), SIZE)
        assert keep(index, number, limit)
    assert len(listings) <= 1 + 200 // 60
    assert BASE + counted(index) <= limit
    assert kept(index) >= {name_of(number) for number in (1, 2, 3, 498, 499)}
    assert name_of(0) not in kept(index)


def test_the_sum_is_right_after_every_change(index):
    chance = random.Random(3)
    limit = BASE + 20 * (SIZE + 100)
    reserved = {}
    for step in range(400):
        number = chance.randrange(40)
        action = chance.choice(["keep", "reserve", "grow", "drop", "delete", "make room"])
        if action == "keep" and number not in reserved:
            keep(index, number, limit)
        elif action == "reserve" and number not in reserved and reserve(index, number, limit, 500):
            reserved[number] = 500
        elif action == "grow" and number in reserved:
            if reserve(index, number, limit, reserved[number] + 77, reserved[number]):
                reserved[number] += 77
        elif action == "drop" and number in reserved:
            index.drop(key_of(name_of(number)), reserved.pop(number))
        elif action == "delete" and (entries := index.entries.by_use()):
            chosen = chance.choice(entries)
            index.delete(chosen)
            index.delete(chosen)  # it is gone
            reserved = {n: size for n, size in reserved.items() if key_of(name_of(n)) != chosen.key}
        elif action == "make room":
            index.make_room(chance.randrange(limit))
            left = {entry.key for entry in index.entries.by_use()}
            reserved = {n: size for n, size in reserved.items() if key_of(name_of(n)) in left}
        if (total := index._read_total()) is not None:
            assert total == counted(index), (step, action)
        assert BASE + counted(index) <= limit


@pytest.mark.parametrize("function", ["replace", "unlink", "stat", "utime"])
@pytest.mark.parametrize("calls", range(1, 6))
def test_a_kill_anywhere_never_undercounts(function, calls, index, monkeypatch):
    limit = BASE + 5 * (SIZE + 100)
    for number in range(4):
        assert keep(index, number, limit)
    real, left = getattr(os, function), [calls]

    def killing(*arguments, **options):
        result = real(*arguments, **options)
        left[0] -= 1
        if not left[0]:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(os, function, killing)
        try:
            for number in range(4, 9):
                keep(index, number, limit)
        except Killed:
            pass
    total = index._read_total()
    assert total is None or total >= counted(index)
    for number in range(10, 30):
        keep(index, number, limit)
        assert BASE + counted(index) <= limit
    assert name_of(29) in kept(index)


def test_a_cache_with_a_missing_or_wrong_sum_is_counted(index):
    limit = BASE + 3 * (SIZE + 100)
    for number in range(3):
        assert keep(index, number, limit)
    total = os.path.join(index.directory, ".wdspec", "total")
    for damage in (None, b"", b"12", b"\xff\xfe", b"0 0"):
        if damage is None:
            os.unlink(total)
        else:
            with open(total, "wb") as file:
                file.write(damage)
        assert keep(index, f"after {damage}", limit)
        assert BASE + counted(index) <= limit


def test_index_entries_of_other_processes_are_counted(index):
    limit = BASE + 10 * (SIZE + 100)
    assert keep(index, 0, limit)
    older = Entries(index.entries.folder, index.permissions)  # as a version of wdspec that keeps no sum would
    for number in range(1, 9):
        older.add(key_of(name_of(number)), SIZE, name_of(number).encode() + b"\ngs://b")
        with open(os.path.join(index.directory, name_of(number)), "wb") as file:
            file.write(bytes(SIZE))
    for number in range(9, 13):
        assert keep(index, number, limit)
        assert BASE + counted(index) <= limit


def test_space_reserved_by_a_killed_process_is_freed_when_needed(index):
    limit = BASE + 3 * (SIZE + 100)
    assert reserve(index, 0, limit, 2 * SIZE)  # and is killed
    assert keep(index, 0, limit)
    assert keep(index, 1, limit)
    assert keep(index, 2, limit)
    assert kept(index) == {name_of(number) for number in range(3)}
    assert [entry.size for entry in index.entries.by_use()] == [SIZE] * 3
