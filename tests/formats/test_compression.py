from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import re
import sys

import pytest
import zstandard

from wdspec.base.errors import ShardError, UsageError, install_command
from wdspec.formats import compression as gzip_streams
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.reader import TarSamples

COMPRESSORS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
DATA = random.Random(1).randbytes(500_000) + bytes(3_000_000) + b"end"


@pytest.fixture(params=COMPRESSORS)
def compress(request):
    return COMPRESSORS[request.param]


def whole(file):
    pieces = []
    while piece := file.read(100_000):
        assert len(piece) <= 100_000
        pieces.append(piece)
    return b"".join(pieces)


def test_each_format_is_recognized_by_its_first_bytes(compress):
    assert whole(decompress(io.BytesIO(compress(DATA)))) == DATA


def test_concatenated_streams_are_read_to_the_end(compress):
    data = compress(b"one") + compress(b"") + compress(DATA)
    assert whole(decompress(io.BytesIO(data))) == b"one" + DATA


def test_reading_a_few_bytes_at_a_time_changes_nothing(compress, trickle):
    data = compress(DATA[:2000]) + compress(b"two")
    for step in (1, 3, 1000):
        assert whole(decompress(trickle(data, step))) == DATA[:2000] + b"two"


def test_an_uncompressed_shard_stays_the_file_itself(pack, tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(pack([("a.jpg", b"1")]))
    with open(tmp_path / "x.tar.gz", "rb", buffering=0) as file:
        assert decompress(file) is file
        assert list(TarSamples(decompress(file))) == [{"__key__": "a", "jpg": b"1"}]


def test_names_that_look_like_magic_do_not_mislead(pack, trickle):
    data = pack([("BZh91.jpg", b"1")])
    assert list(TarSamples(decompress(io.BytesIO(data)))) == [{"__key__": "BZh91", "jpg": b"1"}]
    assert list(TarSamples(decompress(trickle(data, 3)))) == [{"__key__": "BZh91", "jpg": b"1"}]


def test_files_shorter_than_any_magic_are_accepted():
    for data in (b"", b"\x1f", b"BZh"):
        assert whole(decompress(io.BytesIO(data))) == data


def test_compressed_shards_give_the_same_samples_and_resume(compress, pack):
    data = pack([(f"{n}.{suffix}", bytes(n * 1000)) for n in range(20) for suffix in ("a", "b")])
    expected = list(TarSamples(io.BytesIO(data)))
    reader = TarSamples(decompress(io.BytesIO(compress(data))))
    stops = [(reader.next_offset, reader.next_index) for _ in reader]
    for emitted, (offset, index) in enumerate(stops, 1):
        file = decompress(io.BytesIO(compress(data)))
        assert list(TarSamples(file, offset=offset, index=index)) == expected[emitted:]


def test_truncated_compressed_data_is_an_error(compress):
    data = compress(DATA)
    for cut in [*range(12, 40), len(data) // 2, *range(len(data) - 20, len(data))]:
        with pytest.raises(ShardError, match="truncated"):
            whole(decompress(io.BytesIO(data[:cut])))


def test_a_truncated_compressed_shard_delivers_no_partial_sample(compress, pack, trickle):
    tar = pack([(f"{n}.{s}", random.Random(n).randbytes(5000)) for n in range(20) for s in ("a", "b")])
    expected = list(TarSamples(io.BytesIO(tar)))
    data = compress(tar)
    for cut in range(20, len(data), 9000):
        errors = []
        samples = list(TarSamples(decompress(trickle(data[:cut])), on_error=errors.append))
        assert samples == expected[: len(samples)]
        assert "truncated" in errors[0].message
        assert "offset" in errors[0].place


def until_it_fails(stream):
    try:
        while piece := stream.read(1000):
            yield piece
    except ShardError:
        return


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_all_complete_samples_before_a_truncation_are_delivered(kind, pack):
    tar = pack([(f"{n:03d}.{s}", random.Random(n).randbytes(3000)) for n in range(200) for s in ("a", "b")])
    expected = list(TarSamples(io.BytesIO(tar)))
    data = COMPRESSORS[kind](tar)
    for cut in range(len(data) // 7, len(data) - 20, len(data) // 5):
        stream = decompress(io.BytesIO(data[:cut]))
        arrived = b"".join(until_it_fails(stream))
        errors = []
        samples = list(TarSamples(decompress(io.BytesIO(data[:cut])), on_error=errors.append))
        assert samples == expected[: len(samples)]
        # A sample is known to be whole when the header of the next one is there.
        assert len(samples) >= len(arrived) // (2 * 3584) - 1
        assert "truncated" in errors[0].message


def test_corrupt_compressed_data_is_an_error_with_its_cause(compress):
    data = compress(DATA)
    errors = []
    for at in range(20, len(data) - 8, 19_973):
        bad = bytearray(data)
        bad[at] ^= 0x55
        try:
            assert whole(decompress(io.BytesIO(bytes(bad)))) == DATA
        except ShardError as error:
            errors.append(error)
    assert len(errors) > 10
    for error in errors:
        assert error.message.startswith("truncated") or (
            error.message.startswith("damaged") and error.__cause__
        )


def test_trailing_data_is_an_error_but_trailing_zeros_are_not(compress):
    data = compress(b"one")
    assert whole(decompress(io.BytesIO(data + bytes(1000)))) == b"one"
    with pytest.raises(ShardError):
        whole(decompress(io.BytesIO(data + b"something else")))


@pytest.mark.parametrize("library", ["zlib", "isal.isal_zlib"])
def test_gzip_is_read_the_same_with_and_without_isal(library, monkeypatch, trickle):
    monkeypatch.setattr(gzip_streams, "inflating", pytest.importorskip(library))
    data = gzip.compress(DATA) + gzip.compress(b"") + bytes(600) + gzip.compress(DATA[:50_000], 9)
    assert whole(decompress(io.BytesIO(data))) == DATA + DATA[:50_000]
    small = gzip.compress(DATA[:2000]) + gzip.compress(b"two")
    for step in (1, 7, 1000):
        assert whole(decompress(trickle(small, step))) == DATA[:2000] + b"two"
    for size in (1, 7, 4096):
        file, read = decompress(io.BytesIO(small)), b""
        while piece := file.read(size):
            read += piece
        assert read == DATA[:2000] + b"two"
    for cut in (5, 12, len(small) - 1):
        with pytest.raises(ShardError, match="truncated"):
            whole(decompress(io.BytesIO(small[:cut])))
    for at in (300, len(gzip.compress(DATA[:2000])) - 6):  # in the data, and in the checksum
        damaged = bytearray(small)
        damaged[at] ^= 1
        with pytest.raises(ShardError, match="damaged"):
            whole(decompress(io.BytesIO(bytes(damaged))))


def test_skippable_frames_are_skipped():
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    data = skipped + COMPRESSORS["zst"](DATA) + skipped
    assert whole(decompress(io.BytesIO(data))) == DATA


def test_the_error_for_zstd_without_a_module_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    with pytest.raises(
        UsageError, match=f"compressed with zstd needs .* {re.escape(install_command('wdspec[zstd]'))}"
    ):
        decompress(io.BytesIO(COMPRESSORS["zst"](b"x")))


def test_closing_closes_the_file(compress, trickle):
    for data in (compress(b"x"), b"plain"):
        raw = trickle(data)
        decompress(raw).close()
        assert raw.closed


def test_a_bomb_is_decompressed_in_chunks():
    for data in (gzip.compress(bytes(50_000_000), 1), lzma.compress(bytes(50_000_000), preset=0)):
        assert len(decompress(io.BytesIO(data)).read(1000)) <= 1000
