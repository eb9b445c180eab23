"""Reading through a cache gives the store's bytes, whether a copy exists, is being made, or cannot be made."""

import errno
import io
import os
import threading

import pytest
from cachestores import Caching, Store, bytes_in, drained, tar_of

from wdspec.base.errors import MissingShardError, ShardError
from wdspec.cache import fill as filling_module
from wdspec.cache import shard_cache

URL = "gs://bucket/a/0.tar"
DATA = tar_of(3_000_000)


@pytest.mark.parametrize("seekable", [True, False])
def test_the_first_reader_gets_the_bytes_and_leaves_a_copy(caching, seekable):
    store = Store({URL: DATA}, seekable=seekable)
    assert caching.read(URL, store) == DATA
    assert caching.path(URL).read_bytes() == DATA
    assert caching.files == ["gs/bucket/a/0.tar"]
    assert caching.read(URL, store) == DATA
    assert store.fetched == [URL]


def test_a_copy_is_read_as_a_plain_file(caching, monkeypatch):
    monkeypatch.setattr(shard_cache, "FEW", 1 << 20)  # other tests may have left many descriptors open
    caching.read(URL, Store({URL: DATA}))
    with caching.open(URL, Store()) as stream:
        assert isinstance(stream, io.FileIO)
        assert type(stream).read is io.FileIO.read
        assert stream.name == str(caching.path(URL))
        stream.seek(1000)
        assert stream.read(10) == DATA[1000:1010]


def test_two_readers_of_an_uncached_shard_fetch_it_once(caching):
    store = Store({URL: DATA}, piece=10_000)
    first, second = caching.open(URL, store), caching.open(URL, store)
    pieces = [], []
    while True:
        got = [stream.read(50_000) for stream in (first, second)]
        for piece, kept in zip(got, pieces, strict=True):
            kept.append(piece)
        if not any(got):
            break
    assert [b"".join(each) for each in pieces] == [DATA, DATA]
    assert store.fetched == [URL]


def test_the_copy_is_completed_after_its_reader_stops(caching):
    store = Store({URL: DATA}, piece=10_000)
    stream = caching.open(URL, store)
    assert stream.read(10)
    while not caching.path(URL).exists():
        threading.Event().wait(0.005)
    assert stream.read(20) == DATA[10:30]
    assert caching.read(URL, Store()) == DATA


@pytest.mark.parametrize("seekable", [True, False])
def test_an_uncached_shard_can_be_peeked_and_read_from_an_offset(caching, seekable):
    stream = caching.open(URL, Store({URL: DATA}, piece=10_000, seekable=seekable))
    assert stream.read(10) == DATA[:10]
    assert stream.seekable() == seekable
    stream.seek(2_000_000)
    assert stream.read(10) == DATA[2_000_000:2_000_010]
    stream.seek(0)
    assert stream.read(10) == DATA[:10]
    assert stream.seek(0, os.SEEK_END) == len(DATA)
    assert stream.read(1) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE html><title>log in</title>",
        b'{"error": "no such object"}',
        b"",
        DATA[: 3_000_832 + 512],
        DATA[:1000],
        DATA[:3] + b"\xff" + DATA[4:],  # in the name of the first header: only the checksum shows it
    ],
)
def test_what_is_no_whole_shard_is_read_as_it_is_and_leaves_nothing(caching, data):
    """The reader of its samples says what is wrong with it, and where."""
    for _ in range(2):
        assert caching.read(URL, Store({URL: data})) == data
    assert caching.files == []
    assert os.listdir(caching.directory / ".wdspec" / "index") == []


def test_an_html_page_is_not_a_shard_of_any_format(caching):
    assert caching.read("http://h/a.jsonl", Store({"http://h/a.jsonl": b" <html>"})) == b" <html>"
    assert caching.files == []
    assert caching.read("http://h/b.jsonl", Store({"http://h/b.jsonl": b"{}\n"})) == b"{}\n"


def test_a_missing_end_marker_is_tolerated_if_the_spec_says_so(tmp_path):
    caching = Caching(tmp_path, lenient_end=True)
    assert caching.read(URL, Store({URL: DATA[: len(DATA) // 512 * 512 - 10240]}))
    assert caching.files


def test_compressed_shards_of_unknown_length_are_checked_to_their_end(caching):
    import bz2
    import gzip
    import lzma

    import zstandard

    compressors = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}
    for name, compress in compressors.items():
        data = compress(tar_of(50_000)[:30_000]) + compress(tar_of(50_000)[30_000:])
        url = f"pipe:cat {name}"
        assert caching.read(url, Store({url: data[:-5]}, seekable=False)) == data[:-5]
        assert not caching.path(url).exists()
        assert caching.read(url, Store({url: data}, seekable=False)) == data
        assert caching.path(url).exists()


def test_store_errors_reach_every_reader_and_nothing_is_cached(caching):
    error = MissingShardError("no such object", url=URL)
    store = Store({URL: DATA}, fails_at=0, error=error)
    streams = [caching.open(URL, store), caching.open(URL, store)]
    for stream in streams:
        with pytest.raises(MissingShardError, match="no such object"):
            stream.read(10)
    store = Store({URL: DATA}, fails_at=1_000_000, error=ShardError("given up", url=URL))
    with pytest.raises(ShardError, match="given up"):
        caching.read(URL, store)
    assert caching.files == []
    assert caching.read(URL, Store({URL: DATA})) == DATA


def test_a_directory_filled_by_hand_is_used_and_never_changed(tmp_path):
    caching = Caching(tmp_path / "cache", limit=100, ambiguous=frozenset())
    for place in ("bucket/a", ""):
        path = caching.directory / place / "0.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(place.encode() or b"flat")
        assert caching.read(URL, Store()) == (place.encode() or b"flat")
        path.unlink()
    (caching.directory / "0.tar").write_bytes(b"flat")
    ambiguous = Caching(tmp_path / "cache", limit=100, ambiguous=frozenset({"0.tar"}))
    assert ambiguous.read(URL, Store({URL: DATA})) == DATA
    assert (caching.directory / "0.tar").read_bytes() == b"flat"


def test_our_copy_takes_precedence_over_a_file_of_the_user(tmp_path):
    caching = Caching(tmp_path / "cache", ambiguous=frozenset())
    caching.read(URL, Store({URL: DATA}))
    (caching.directory / "0.tar").write_bytes(b"flat")
    assert caching.read(URL, Store()) == DATA


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_read_only_directory_is_used_and_missing_shards_are_streamed(tmp_path, caplog):
    caching = Caching(tmp_path / "cache", ambiguous=frozenset())
    caching.directory.mkdir()
    (caching.directory / "0.tar").write_bytes(b"flat")
    caching.directory.chmod(0o555)
    try:
        assert caching.read(URL, Store()) == b"flat"
        for name in ("1", "2"):
            assert caching.read(f"gs://b/{name}.tar", Store({f"gs://b/{name}.tar": DATA})) == DATA
    finally:
        caching.directory.chmod(0o755)
    assert len(caplog.messages) == 1
    assert "read without being kept" in caplog.messages[0]


def test_a_directory_that_cannot_be_created_is_reported_once(caplog):
    caching = Caching("/proc/wdspec")
    for name in ("1", "2"):
        assert caching.read(f"gs://b/{name}.tar", Store({f"gs://b/{name}.tar": DATA}, seekable=False)) == DATA
    assert len(caplog.messages) == 1


def failing_writes(monkeypatch, after):
    """After this many bytes, writes fail with a full disk."""
    written = 0

    def write(descriptor, data):
        nonlocal written
        room = after - written
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(descriptor, data[:room])
        written += count
        return count

    real = os.write
    monkeypatch.setattr(filling_module.os, "write", write)


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("after", [0, 1, 1_000_000, len(DATA) - 1])
def test_all_readers_continue_when_the_disk_fills_up(caching, monkeypatch, caplog, after, seekable):
    filling_module._warned.clear()
    failing_writes(monkeypatch, after)
    store = Store({URL: DATA}, piece=50_000, seekable=seekable)
    streams = [caching.open(URL, store) for _ in range(2)]
    got = [[], []]
    for _ in range(400):
        for stream, pieces in zip(streams, got, strict=True):
            pieces.append(stream.read(9_999))
    assert [b"".join(pieces) for pieces in got] == [DATA, DATA]
    assert len(store.fetched) == 2  # the first reader keeps the stream, the second begins its own
    assert caching.files == []
    assert len(caplog.messages) == 1
    assert "No space left on device; free some" in caplog.messages[0]


def test_a_shard_that_does_not_fit_is_streamed_and_the_others_are_cached(tmp_path, caplog):
    caching = Caching(tmp_path / "cache", limit=1_000_000)
    small = tar_of(300_000)
    store = Store({URL: DATA, "gs://b/small.tar": small})
    assert caching.read("gs://b/small.tar", store) == small
    assert caching.read(URL, store) == DATA
    assert caching.files == ["gs/b/small.tar"]
    assert store.fetched == ["gs://b/small.tar", URL]
    assert len(caplog.messages) == 1


def test_with_a_limit_of_zero_copies_are_used_but_not_made(tmp_path):
    Caching(tmp_path).read(URL, Store({URL: DATA}))
    caching = Caching(tmp_path, limit=0)
    assert caching.read(URL, Store()) == DATA
    other = "gs://b/1.tar"
    assert caching.read(other, Store({other: DATA})) == DATA
    assert caching.files == ["gs/bucket/a/0.tar"]


@pytest.mark.parametrize("first", [0, 1])
def test_an_object_below_the_name_of_another_is_streamed(caching, first):
    urls = ["gs://b/a.tar", "gs://b/a.tar/b.tar"]
    store = Store(dict.fromkeys(urls, DATA))
    for url in (urls[first], urls[1 - first], urls[first]):
        assert caching.read(url, store) == DATA
    assert caching.files == [urls[first].replace("://", "/")]


def test_a_named_pipe_in_place_of_a_copy_does_not_block(caching):
    path = caching.path(URL)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert caching.read(URL, Store({URL: DATA})) == DATA


def test_only_an_empty_directory_is_tagged_as_a_cache(tmp_path):
    caching = Caching(tmp_path / "new")
    caching.read(URL, Store({URL: DATA}))
    assert (
        (tmp_path / "new" / "CACHEDIR.TAG")
        .read_bytes()
        .startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    )
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "thesis.tex").touch()
    Caching(tmp_path / "old").read(URL, Store({URL: DATA}))
    assert sorted(os.listdir(tmp_path / "old")) == [".wdspec", "gs", "thesis.tex"]


def test_the_directory_stays_within_the_limit_and_keeps_recent_copies(tmp_path):
    limit = 1_000_000
    caching = Caching(tmp_path / "cache", limit=limit)
    urls = [f"gs://b/{n}.tar" for n in range(8)]
    store = Store({url: tar_of(150_000) for url in urls})
    most, ended = 0, threading.Event()

    def sample():
        nonlocal most
        while not ended.wait(0.002):
            most = max(most, bytes_in(caching.directory))
        most = max(most, bytes_in(caching.directory))

    sampler = threading.Thread(target=sample)
    sampler.start()
    for url in urls:
        caching.read(url, store)
        caching.read(urls[0], store)
    ended.set()
    sampler.join()
    assert 3 * 150_000 < most <= limit
    assert store.fetched == urls  # the first one was always used again in time
    kept = [path.name for path in (caching.directory / "gs" / "b").iterdir()]
    assert "0.tar" in kept
    assert "7.tar" in kept
    assert "1.tar" not in kept


def test_open_copies_are_not_deleted(tmp_path):
    caching = Caching(tmp_path / "cache", limit=500_000)
    urls = [f"gs://b/{n}.tar" for n in range(4)]
    store = Store({url: tar_of(150_000) for url in urls})
    caching.read(urls[0], store)
    with caching.open(urls[0], store):
        for url in urls[1:]:
            caching.read(url, store)
        assert caching.path(urls[0]).exists()
    assert not caching.path(urls[1]).exists()


def test_a_lowered_limit_applies_from_the_first_open(tmp_path):
    urls = [f"gs://b/{n}.tar" for n in range(4)]
    store = Store({url: tar_of(150_000) for url in urls})
    for url in urls:
        Caching(tmp_path).read(url, store)
    Caching(tmp_path, limit=400_001).read("http://h/x.tar", Store({"http://h/x.tar": tar_of(100)}))
    assert bytes_in(tmp_path) <= 400_001


def test_a_tampered_index_deletes_nothing_outside_the_cache(tmp_path):
    caching = Caching(tmp_path / "cache", limit=300_000)
    url = "gs://b/0.tar"
    caching.read(url, Store({url: tar_of(150_000)}))
    (tmp_path / "victim.tar").write_bytes(bytes(1000))
    (entry,) = (caching.directory / ".wdspec" / "index").iterdir()
    entry.write_text("../victim.tar\nx")
    other = "gs://b/1.tar"
    caching.read(other, Store({other: tar_of(150_000)}))
    assert (tmp_path / "victim.tar").exists()


def test_a_shard_that_changed_between_two_makers_is_an_error(caching):
    tickets = threading.Semaphore(1)
    store = Store(
        {URL: DATA}, piece=100_000, fails_at=1_000_000, error=ShardError("cut"), wait=tickets.acquire
    )
    stream = caching.open(URL, store)
    assert stream.read(2000) == DATA[:2000]
    tickets.release(100)
    with pytest.raises(ShardError, match="cut"):
        drained(stream)
    fill = stream._fill
    assert fill.done
    stream._fill = None  # as for a reader in another process
    changed = bytearray(DATA)
    changed[1000] ^= 1  # no header, so that only the comparison can see it
    stream._fetch = Store({URL: bytes(changed)}).fetch(URL)
    with pytest.raises(ShardError, match="changed while it was read"):
        drained(stream)


def test_a_file_in_place_of_the_directory_is_reported(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(filling_module, "_warned", set())
    (tmp_path / "c").write_text("")
    caching = Caching(tmp_path / "c")
    with caplog.at_level("WARNING"):
        assert caching.read(URL, Store({URL: DATA})) == DATA
    (record,) = caplog.records
    assert "there is a file of this name: give a directory" in record.getMessage()
    assert "permission" not in record.getMessage()
