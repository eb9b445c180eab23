"""Sorting with little memory gives the same order as sorting in memory."""

import datetime
import io
import os
import random
import tarfile
import tempfile

import numpy as np
import pytest
from commandline import within
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.base.errors import FieldError
from wdspec.cli import sort as sorting
from wdspec.cli.sort import sort_samples
from wdspec.testing import difference


def key(sample):
    return sample["__key__"]


@settings(deadline=None, max_examples=40)
@given(keys=st.lists(st.text(max_size=5), max_size=60), memory=st.integers(1, 20_000), reverse=st.booleans())
def test_the_order_equals_sorted_with_any_memory_limit(keys, memory, reverse):
    samples = [{"__key__": name, "n": n, "bin": b"x" * n} for n, name in enumerate(keys)]
    assert list(sort_samples(iter(samples), memory, key, reverse)) == sorted(
        samples, key=key, reverse=reverse
    )


def test_many_runs_are_merged_in_levels_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "_MOST_RUNS", 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keys = [f"{n:03d}" for n in range(50)]
    random.Random(0).shuffle(keys)
    samples = sort_samples(({"__key__": name} for name in keys), 700, key)
    assert [sample["__key__"] for sample in samples] == sorted(keys)
    assert os.listdir(tmp_path) == []


def test_a_value_that_cannot_be_written_to_disk_is_an_error():
    with pytest.raises(FieldError, match=r"increase --memory \[key a\]"):
        list(sort_samples([{"__key__": "a", "x": lambda: 0}], 1, key))


def test_arrays_and_nested_values_stay_equal_on_disk():
    values = [np.arange(3), [np.ones(2), None], {"day": datetime.date(2026, 1, 2)}, "text", b"bytes", 1.5]
    samples = [{"__key__": "b", "x": value} for value in values]
    assert difference(samples, list(sort_samples(iter(samples), 1, key))) is None


def test_large_arrays_count_as_memory(monkeypatch):
    spilled = []
    spill = sorting._spill
    monkeypatch.setattr(sorting, "_spill", lambda *given: spilled.append(len(given[0])) or spill(*given))
    list(sort_samples(({"__key__": "b", "x": [np.zeros(1000)]} for _ in range(3)), 8000, key))
    assert spilled == [1, 1, 1]


def pack(path, names):
    """Write a tar whose files have their names as content."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return str(path)


def unpack(path):
    with tarfile.open(path) as tar:
        return [(each.name, tar.extractfile(each).read().decode()) for each in tar]


@pytest.mark.parametrize("memory", ["1", "20KB", "500MB"])
def test_files_that_a_tar_has_by_type_are_put_together(tmp_path, memory):
    stems = [f"k{n:03d}" for n in range(200)]
    random.Random(1).shuffle(stems)
    names = [f"{stem}.{suffix}" for suffix in ("jpg", "txt", "seg.png") for stem in stems]
    shard = pack(tmp_path / "by-type.tar", [name for name in names if name != "k007.txt"])
    within("sort", shard, "-o", tmp_path / "o.tar", "--memory", memory)
    parts = [(f"{stem}.{suffix}",) * 2 for stem in sorted(stems) for suffix in ("jpg", "seg.png", "txt")]
    assert unpack(tmp_path / "o.tar") == [each for each in parts if each[0] != "k007.txt"]


def test_samples_with_the_same_key_are_not_put_together(tmp_path):
    twice = pack(tmp_path / "twice.tar", ["a.jpg", "b.jpg", "a.jpg"])
    _, said = within("sort", twice, "-o", tmp_path / "o.tar", code=1)
    assert "each time with the field `jpg`" in said
    assert "key a]" in said
    whole = pack(tmp_path / "whole.tar", ["a.jpg", "b.jpg", "a.txt"])
    other = pack(tmp_path / "other.tar", ["a.png"])
    _, said = within("sort", whole, other, "-o", tmp_path / "o.tar", code=1)
    assert f"in `{whole}`, `{other}`" in said
    _, said = within("sort", whole, whole, "-o", tmp_path / "o-%d.tar", "--maxcount", "1", code=1)
    assert f"in `{whole}`, and a shard has each key only once; leave out a shard that is listed twice" in said
    (tmp_path / "a.jsonl").write_text('{"__key__": "a", "x": 1}\n{"__key__": "a", "y": 1}\n')
    within("sort", tmp_path / "a.jsonl", "-o", tmp_path / "o.jsonl", code=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.jsonl",
        "other.tar",
        "twice.tar",
        "whole.tar",
    ]
