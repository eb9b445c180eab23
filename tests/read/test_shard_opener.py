"""A piece of a shard: the samples with index ≡ residue (mod stride) from an offset on, of every format."""

import io
import json
import sys
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import Listed
from shardmaking import write_shard

from wdspec.base.errors import MissingShardError, UsageError
from wdspec.read.shard import Piece
from wdspec.spec.load import load
from wdspec.urls.urls import ShardUrl

SAMPLES = 23


@pytest.fixture(scope="module", params=["tar", "jsonl"])
def shard(request, tmp_path_factory):
    """(opener, shard): 23 samples whose `n` counts from 0, of growing size."""
    path = tmp_path_factory.mktemp("pieces") / f"x.{request.param}"
    if request.param == "tar":
        write_shard(path, [(f"k{n:02}", {"n": str(n).encode() + b" " * 600 * n}) for n in range(SAMPLES)])
    else:
        path.write_text("".join(json.dumps({"n": n, "pad": "x" * 50 * n}) + "\n" for n in range(SAMPLES)))
    parts = Listed.of(load({"dataset": [{"shards": str(path), "decode": "raw"}]})).parts["x"]
    return parts.open, ShardUrl(str(path), "/")


def numbers(opened):
    try:
        return [int(sample["n"]) for sample in opened]
    finally:
        opened.close()


def no_error(error):
    raise error


def test_the_whole_shard_is_read_by_default(shard):
    opener, url = shard
    assert numbers(opener(Piece(url), on_error=no_error)) == list(range(SAMPLES))


def test_errors_of_a_shard_name_its_requirements_and_url(tmp_path, monkeypatch):
    for module in ("backports.zstd", "compression", "compression.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "x.tar.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    opener = Listed.of(load({"dataset": [{"name": "x", "shards": str(path)}]})).parts["x"].open
    with pytest.raises(UsageError, match=rf"compressed with zstd needs .*\[source x, url {path}\]"):
        opener(Piece(ShardUrl(str(path), "/")), on_error=no_error)


@given(stride=st.integers(1, 30), residue=st.integers(0, 29), begin=st.integers(0, SAMPLES))
def test_it_matches_slicing(shard, stride, residue, begin):
    opener, url = shard
    opened = opener(Piece(url), on_error=no_error)
    reading = iter(opened)
    for _ in range(begin):
        next(reading)
    piece = Piece(url, stride, residue % stride, opened.next_offset, opened.next_index)
    opened.close()
    expected = [n for n in range(begin, SAMPLES) if n % stride == residue % stride]
    assert numbers(opener(piece, on_error=no_error)) == expected


def test_headers_deliver_the_samples_without_fields(shard):
    opener, url = shard
    opened = opener.headers(Piece(url), on_error=no_error)
    fields = [set(sample) - {"__key__", "__url__", "__source__"} for sample in opened]
    assert fields == [set()] * SAMPLES
    assert opened.next_index == SAMPLES
    opened.close()


def test_a_shard_that_does_not_exist_is_a_missing_shard(shard):
    opener, url = shard
    with pytest.raises(MissingShardError, match="gone"):
        opener(Piece(ShardUrl(url.text + ".gone.tar", "/")), on_error=no_error)


def test_samples_contain_their_origin(shard):
    opener, url = shard
    opened = opener(Piece(url), on_error=no_error)
    sample = next(iter(opened))
    assert (sample["__url__"], sample["__source__"]) == (url.text, "x")
    opened.close()


def test_tar_members_match_tarfile(tmp_path):
    write_shard(tmp_path / "x.tar", [(f"k{n:02}", {"txt": b"%d" % n}) for n in range(9)])
    parts = Listed.of(load({"dataset": [{"shards": f"{tmp_path}/x.tar", "decode": "raw"}]})).parts["x"]
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "x.tar").read_bytes())) as archive:
        theirs = [archive.extractfile(member).read() for member in archive.getmembers()]
    for stride in (1, 2, 4):
        read = []
        for residue in range(stride):
            with_stride = Piece(ShardUrl(f"{tmp_path}/x.tar", "/"), stride, residue)
            opened = parts.open(with_stride, on_error=no_error)
            samples = [sample["txt"] for sample in opened]
            opened.close()
            assert samples == theirs[residue::stride]
            read += samples
        assert sorted(read) == sorted(theirs)
