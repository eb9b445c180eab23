from __future__ import annotations

import io
import random
import tarfile

import pytest

from wdspec.base.errors import ShardError
from wdspec.formats.tar.headers import byte_sum, read_header, read_number, read_records
from wdspec.formats.tar.members import iter_members
from wdspec.formats.tar.reader import Numbers, TarSamples


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"00000001750\0", 1000),
        (b"       1750\0", 1000),
        (b"00000001750 ", 1000),
        (b"1750 \0ignored", 1000),
        (b"777777777777", 8**12 - 1),
        (b"\0" * 12, 0),
        (b" " * 12, 0),
        (b"\x80" + (9 * 2**30).to_bytes(11, "big"), 9 * 2**30),
    ],
)
def test_numbers_are_octal_text_or_base_256(field, value):
    assert read_number(field) == value == Numbers()[field] == tarfile.nti(field)


@pytest.mark.parametrize(
    "field", [b"0000000008\0", b"-0000000001\0", b"0o17", b"1_7", b"17 7", b"\xff" * 12, b"abc"]
)
def test_other_spellings_of_a_number_are_rejected(field):
    with pytest.raises(ShardError, match="instead of a number"):
        Numbers()[field]


def test_byte_sums_are_exact():
    assert byte_sum(b"\xff" * 512) == 512 * 255
    for seed in range(200):
        data = random.Random(seed).randbytes(seed * 3)
        assert byte_sum(data) == sum(data)


def test_signed_checksums_of_old_tars_are_accepted():
    block = bytearray(tarfile.TarInfo("höhe.txt").tobuf(tarfile.GNU_FORMAT, "utf-8", "strict"))
    signed = tarfile.calc_chksums(bytes(block))[1]
    block[148:156] = b"%06o\0 " % signed
    assert read_header(bytes(block)).name == "höhe.txt".encode()


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b'{"error": {"code": 403', "JSON"),
        (b"PK\3\4", "zip"),
    ],
)
def test_files_that_are_not_tars_are_recognized(start, what):
    with pytest.raises(ShardError, match=what):
        read_header(start.ljust(512, b"\n"))


def test_pax_records_are_read_by_their_lengths():
    assert read_records(b"12 path=a\nb\n") == {b"path": b"a\nb"}
    assert read_records(b"9 path=a\n11 size=17\n\0\0") == {b"path": b"a", b"size": b"17"}


@pytest.mark.parametrize(
    "body",
    [
        b"9 path=ab\n",
        b"8 path=a\n",
        b"99 path=a\n",
        b"0 path=a\n",
        b"path=a\n",
        b"9 path:a\n",
        b"-9 path=a\n",
        b"9 path=a\n\0x",
    ],
)
def test_pax_records_with_wrong_lengths_are_rejected(body):
    with pytest.raises(ShardError, match="pax header"):
        read_records(body)


@pytest.mark.parametrize("read", [iter_members, TarSamples])
@pytest.mark.parametrize(
    ("text", "likeness"),
    [
        (b"<html>log in</html>", "an HTML page"),
        (b'<?xml version="1.0"?><Error/>', "an XML page"),
        (b'{"error": "no such key"}', "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_text_shorter_than_a_header_is_recognized_as_text(text, likeness, read):
    with pytest.raises(ShardError, match=f"the shard has {len(text)} bytes and is not a tar .*{likeness}"):
        list(read(io.BytesIO(text)))
