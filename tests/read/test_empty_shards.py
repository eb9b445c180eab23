"""An empty shard is an error, wherever it comes from, unless the spec allows it."""

import pytest
from servers.counting import CountingServer
from shardmaking import write_shard

import wdspec

RECORDS = {"cbor": b"\xa1\x63txt\x61a", "jsonl": b'{"txt": "a"}\n', "msgpack": b"\x81\xa3txt\xa1a"}


@pytest.fixture(params=["tar", *RECORDS])
def folder(tmp_path, request):
    """Three shards, the second of them empty, over HTTP."""
    format, served = request.param, tmp_path / "served"
    served.mkdir()
    for n in range(3):
        path = served / f"{n}.{format}"
        if format == "tar":
            write_shard(path, [(f"{n}", {"txt": b"a"})] if n != 1 else [])
        else:
            path.write_bytes(RECORDS[format] if n != 1 else b"")
    with CountingServer(served) as server:
        yield f"{server.url}/{{0..2}}.{format}", format, tmp_path / "cache"


def read(folder, **options):
    shards, _, cache = folder
    source = {"shards": shards, "order": "sequential", "shuffle": 0, "decode": {"txt": "text"}}
    document = {"dataset": [source], "epoch": "pass", "cache": str(cache)}
    spec = wdspec.load({**document, "dataset": [{**source, **options}]})
    return [sample["txt"] for sample in wdspec.compile(spec)]


def test_it_is_an_error_each_time(folder):
    for _ in range(2):
        with pytest.raises(wdspec.ShardError, match=r"(?s)has no (members|records)|is empty") as caught:
            read(folder)
        assert "/1." in str(caught.value)


def test_it_is_skipped_and_counted_under_a_policy(folder):
    assert read(folder, errors="skip") == ["a", "a"]
    with pytest.raises(wdspec.ShardError, match="exceed the budget of 0"):
        read(folder, errors={"skip": True, "max_count": 0})


def test_it_is_read_if_allowed(folder):
    for _ in range(2):
        assert read(folder, empty="allow") == ["a", "a"]


def test_pipelines_in_python_reject_it_unless_allowed(folder):
    shards, _, _ = folder
    with pytest.raises(wdspec.ShardError):
        list(wdspec.WebDataset(shards, shardshuffle=False))
    assert len(list(wdspec.WebDataset(shards, shardshuffle=False, empty_check=False))) == 2
