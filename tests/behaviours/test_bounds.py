"""Unreasonable values are errors with a reason, and values that only look valid are not accepted."""

import bz2
import gzip
import io
import json
import lzma
import tracemalloc

import numpy as np
import pytest

import wdspec
from wdspec.base.errors import UrlError
from wdspec.fields.codecs.arrays import read_numpy
from wdspec.fields.codecs.text import read_integer, write_integer
from wdspec.formats import compression as kinds
from wdspec.planning.plan import choose_batching as batching
from wdspec.spec.load import check
from wdspec.urls.braces import Braces


def spec(**more):
    return {"dataset": [{"name": "a", "shards": "a.tar"}], **more}


@pytest.mark.parametrize(
    "more",
    [
        {"batch": 10**9},
        {"batch": {"size": 1_000_001}},
        {"loader": {"workers": 10**9}},
        {"dataset": [{"shards": "a\0b.tar"}]},
        {"dataset": [{"shards": "a.tar"}], "cache": "/x\0y"},
        {"errors": {"log": "x\0y"}},
    ],
)
def test_an_unreasonable_spec_is_rejected(more):
    with pytest.raises(wdspec.SpecError):
        wdspec.load(spec(**more))


@pytest.mark.parametrize(
    "more",
    [
        {"extends": "a\0b"},
        {"extends": ["a\0b"]},
        {"vars": {"a\0b": 1}},
        {"splits": {"a\0b": spec()}},
        {"rewrite": [{"from": "a", "to": "a\0b"}]},
        {"dataset": [{"name": "z", "dataset": "a\0b"}]},
    ],
    ids=repr,
)
@pytest.mark.parametrize("written", [dict, "yaml"], ids=["dict", "file"])
def test_a_nul_character_is_a_problem_everywhere(more, written, tmp_path):
    given = {**spec(), **more}
    if written == "yaml":
        given = tmp_path / "spec.yaml"
        given.write_text(json.dumps({**spec(), **more}))
    with pytest.raises(wdspec.SpecError, match="E004"):
        wdspec.load(given)


@pytest.mark.parametrize(
    "call",
    [
        wdspec.load,
        wdspec.loader,
        wdspec.DBCache,
        lambda path: wdspec.loader(spec(epoch=1), lock=path),
        lambda path: wdspec.WebDataset("a.tar", cache_dir=path),
    ],
)
def test_a_nul_character_in_the_name_of_a_file_is_an_error(call):
    with pytest.raises(wdspec.UsageError, match=r"NUL|x00"):
        call("a\0b")


def test_an_error_writes_the_limit_with_separators():
    with pytest.raises(wdspec.SpecError, match="at most 1,000,000, but"):
        wdspec.load(spec(batch=1_000_001))


def test_the_batch_of_a_rank_limits_the_global_batch():
    loaded = wdspec.load(spec(batch={"global_size": 10**9}))
    with pytest.raises(wdspec.UsageError, match=r"hold 500,000,000 samples at once; the limit is 1,000,000"):
        batching(loaded, 2)
    assert batching(loaded, 1000).per_slot == 10**6


def test_a_loader_has_a_limited_number_of_workers():
    with pytest.raises(wdspec.UsageError, match="from 0 to 4,096"):
        wdspec.loader(spec(), num_workers=10**9)


def test_names_contain_no_nul():
    for name in ("a\0.tar", "file:///a%00.tar"):
        with pytest.raises(UrlError, match=r"NUL|%00"):
            list(wdspec.WebDataset(name))


def test_a_number_with_a_leading_zero_is_reported(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("dataset: [{name: a, shards: a.tar}]\nbatch: 017\n")
    loaded, (problem,) = check(path)
    assert loaded.batch.size == 17
    assert problem.code == "W106"
    assert "`017` is the number 17" in problem.message


@pytest.mark.parametrize("pattern", ["{1..10..0}", "{a..f..0}", "{1..10..-0}", "{1..10..00}"])
def test_a_range_accepts_a_step(pattern):
    with pytest.raises(UrlError, match="step of 0"):
        Braces(pattern)


@pytest.mark.parametrize("text", ["1_0", "1_000", "_1"])
def test_an_integer_has_only_digits(text):
    for read in (lambda: read_integer(text.encode()), lambda: write_integer(text)):
        with pytest.raises(ValueError, match="digits"):
            read()
    assert read_integer(b" -17\n") == -17


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_an_npy_file_ends_with_its_array(version):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.arange(5), version=version)
    data = file.getvalue()
    assert read_numpy(data).tolist() == [0, 1, 2, 3, 4]
    for more in (b"\0", data):
        with pytest.raises(ValueError, match=f"{len(more)} bytes follow the array"):
            read_numpy(data + more)


@pytest.mark.parametrize(
    ("name", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]
)
def test_a_bomb_uses_bounded_memory(monkeypatch, name, pack):
    monkeypatch.setattr(kinds, "_AT_ONCE", 1 << 20)
    monkeypatch.setattr(kinds, "MAX_DECOMPRESSED", 1 << 24)
    bomb, large = pack(bytes((1 << 24) + 1)), pack(bytes(1 << 24))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 16,777,216 bytes"):
            kinds.BY_NAME[name].decompress(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 15 << 20  # of which xz takes 8 for its window
    assert kinds.BY_NAME[name].decompress(large) == bytes(1 << 24)
    assert kinds.BY_NAME[name].decompress(large * 1 + pack(b"")) == bytes(1 << 24)
