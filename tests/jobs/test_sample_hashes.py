"""Hashes of many samples at once: each equals its single hash, and similar samples differ."""

import random

import numpy as np

from wdspec.jobs.check.hashes import END, FEWEST, content_hashes, content_part, key_hashes


def test_the_hash_of_a_key_does_not_depend_on_its_neighbours():
    keys = ["a", "b" * 40, "ä\udcff", "c" * 5000, "c" * 4999 + "d", "", "a\0", "0001", "00010"]
    alone = np.concatenate([key_hashes([key]) for key in keys])
    assert key_hashes(keys).tolist() == alone.tolist()
    assert len(set(alone.tolist())) == len(keys)
    assert key_hashes([None, "a", None]).tolist() == [0, alone[0], 0]
    assert len(key_hashes([])) == 0


def test_numbered_keys_have_distinct_hashes():
    hashes = key_hashes([f"{shard:05}/{number:07}" for shard in (1, 8, 64) for number in range(20_000)])
    assert len(np.unique(hashes)) == len(hashes)
    # Spread over all of their range: nothing of the form of the keys is left.
    counts = np.bincount((hashes >> np.uint64(56)).astype(np.int64), minlength=256)
    assert 160 < counts.min() <= counts.max() < 310


def hashed(datas):
    return content_hashes([content_part(data) for data in datas], [len(data) for data in datas]).tolist()


def test_content_hashes_cover_length_end_and_spread_samples():
    rng = random.Random(5)
    for size in (FEWEST, 255, 256, 257, 1000, 20_000):
        data = rng.randbytes(size)
        others = [data, bytes(data), data + b"\0", data[:-1], data[:-END] + rng.randbytes(END), data[::-1]]
        others.append(rng.randbytes(size // 2) + data[size // 2 :])
        first, same, *rest = hashed(others)
        assert first == same
        assert first not in rest
        assert hashed([data]) == [first]
    assert hashed([b"short", rng.randbytes(FEWEST), b""])[::2] == [0, 0]
