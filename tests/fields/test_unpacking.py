"""Compressed fields: decompressed by suffix, whole or an error, and never beyond their limit."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import numpy as np
import pytest
from decoded import decode
from fieldfiles import PACKINGS, picture

from wdspec.base.errors import FieldError, UsageError
from wdspec.formats import compression
from wdspec.formats.compression import BY_NAME
from wdspec.spec.language.decoders import split_packing

TEXT = b"hello " * 1000


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_compressed_field_is_unpacked_and_keeps_its_name(packing: str) -> None:
    pack = PACKINGS[packing]
    assert decode(f"txt.{packing}", pack(b"hello\n")) == "hello\n"
    assert decode(f"TXT.{packing}", pack(b"x"), extensions=[f"TXT.{packing}"]) == "x"
    assert decode(f"bin.{packing}", pack(b"\0\1")) == b"\0\1"
    assert decode(packing, pack(b"\0\1")) == b"\0\1"
    assert decode(f"txt.{packing}", b"left", names=("raw",)) == b"left"
    assert decode(f"txt.{packing}", pack(b"")) == ""
    assert decode(f"png.{packing}", pack(picture("png")), names=("rgb8",)).shape == (12, 20, 3)
    assert decode(f"txt.{packing}", pack(b"3"), fields={"txt": "cls"}) == 3


def test_packings_can_be_nested_in_any_order() -> None:
    data = PACKINGS["xz"](PACKINGS["gz"](PACKINGS["zst"](b"[1]")))
    assert decode("json.zst.gz.xz", data) == [1]
    assert split_packing("a.json.zst.gz.xz") == ("a.json", ("xz", "gz", "zst"))
    assert split_packing("gzip") == ("gzip", ())


@pytest.mark.parametrize("packing", PACKINGS)
def test_concatenated_streams_are_one_file(packing: str) -> None:
    pack = PACKINGS[packing]
    assert decode(f"txt.{packing}", pack(b"one ") + pack(b"two")) == "one two"


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("spoil", ["empty", "cut", "plain", "junk after"])
def test_incomplete_data_is_an_error(packing: str, spoil: str) -> None:
    data = PACKINGS[packing](TEXT)
    bad = {"empty": b"", "cut": data[:-3], "plain": b"plain text", "junk after": data + b"junk"}[spoil]
    with pytest.raises(FieldError, match=rf"cannot decode as txt.{packing}: \w.*field txt.{packing}"):
        decode(f"txt.{packing}", bad)


@pytest.mark.parametrize("library", ["zlib", "isal.isal_zlib"])
def test_damaged_gzip_is_the_same_error_in_every_library(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "inflating", pytest.importorskip(library))
    bad = bytearray(PACKINGS["gz"](TEXT))
    bad[12] ^= 0xFF
    with pytest.raises(zlib.error):
        BY_NAME["gz"].decompress(bytes(bad))


@pytest.mark.parametrize("packing", PACKINGS)
def test_bombs_are_rejected_before_they_expand(packing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED", 100_000)
    pack = PACKINGS[packing]
    assert len(decode(f"txt.{packing}", pack(b"a" * 100_000))) == 100_000
    for bomb in (pack(b"a" * 100_001), pack(b"a" * 60_000) * 2, pack(bytes(20_000_000))):
        with pytest.raises(FieldError, match="decompresses to more than 100,000 bytes; read it as `raw`"):
            decode(f"txt.{packing}", bomb)


def test_a_nested_bomb_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED", 100_000)
    inner = PACKINGS["gz"](bytes(20_000_000))
    with pytest.raises(FieldError, match="more than 100,000 bytes"):
        decode("bin.gz.bz2", PACKINGS["bz2"](inner))


def test_the_total_size_of_an_npz_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros(9000), b=np.zeros(9000))
    assert decode("npz", file.getvalue())["b"].shape == (9000,)
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED", 100_000)
    with pytest.raises(FieldError, match="more than 100,000 bytes"):
        decode("npz", file.getvalue())


def test_the_error_for_zst_without_a_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = PACKINGS["zst"](b"x")
    for module in ("backports.zstd", "compression", "compression.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"compressed with zstd needs backports.zstd, .*\[zstd\]"):
        decode("txt.zst", data)


def test_huge_windows_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    import lzma

    filters: list[dict[str, Any]] = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    header_of_a_gigabyte = lzma.compress(b"x", format=lzma.FORMAT_XZ, filters=filters)
    with pytest.raises(FieldError, match="Memory"):
        decode("txt.xz", header_of_a_gigabyte)
