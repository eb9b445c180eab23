"""Cuts, flips and overwrites at every kind of place: the same samples as in tarfile, or an error; nothing merged.

What no reader of tars can notice, and so does not count here: changed bytes in a member's data or in its
padding, and in the records of an extended header (a name changed there is another name). Headers alone have a
checksum, which a swap of two bytes passes too; then both readers see the same header.
"""

from __future__ import annotations

import io
import random
import tarfile

import pytest

from wdspec.formats.tar.members import iter_members

BLOCK = 512


def archive(pack, format):
    """Six samples with extended headers where the format has them, an empty member, and one filled to its block."""
    long = "d" * 60 + "/" + "n" * 60
    files = []
    for key, size in (("a", 5), ("b", 512), (long, 700), ("d", 0), ("é" * 30, 513), ("f", 1)):
        files += [(f"{key}.jpg", bytes([65 + size % 26]) * size), (f"{key}.cls", b"7")]
    return pack(files, format, mtime=1.5 if format == tarfile.PAX_FORMAT else 0)


@pytest.fixture(scope="module", params=[tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def shard(request, pack):
    return archive(pack, request.param)


def by_tarfile(reference, data):
    try:
        return reference(data)
    except Exception:  # tarfile lets many kinds pass (KeyError, OverflowError, RecursionError, …)
        return None


def check(read, reference, data, whole):
    """Reads damaged data: whole samples of the sound shard and then an error, or exactly what tarfile reads."""
    samples, error = read(data)
    if error is None:
        assert samples == by_tarfile(reference, data)
    else:
        assert error.place["offset"] <= len(data)
        as_tarfile = [whole[: len(samples)], (by_tarfile(reference, data) or [])[: len(samples)]]
        assert samples in as_tarfile
    return samples, error


def test_a_truncation_anywhere_is_an_error_after_complete_samples(read, reference, shard):
    whole = reference(shard)
    marker = [member.end for member in iter_members(io.BytesIO(shard))][-1]
    cuts = {at + around for at in range(0, len(shard), BLOCK) for around in (-200, -1, 0, 1, 100)}
    for cut in sorted(cut for cut in cuts if 0 <= cut < len(shard)):
        samples, error = read(shard[:cut])
        if cut >= marker + 2 * BLOCK:
            assert (samples, error) == (whole, None)
        else:
            assert error is not None
            assert samples == whole[: len(samples)]
            assert len(samples) < len(whole)


def test_a_truncation_is_tolerated_only_at_the_end_marker(read, reference, shard):
    marker = [member.end for member in iter_members(io.BytesIO(shard))][-1]
    for cut in range(BLOCK // 2, marker, BLOCK // 2):
        if cut in {member.offset for member in iter_members(io.BytesIO(shard))}:
            continue  # the shard of an interrupted writer looks like one without a marker
        assert read(shard[:cut], lenient_end=True)[1] is not None


def test_a_missing_block_reads_as_in_tarfile_or_is_an_error(read, reference, shard):
    whole = reference(shard)
    errors = [
        check(read, reference, shard[:at] + shard[at + BLOCK :], whole)[1]
        for at in range(0, len(shard.rstrip(b"\0")), BLOCK)
    ]
    # Unseen where another header, or the end marker, takes the place of a member's data.
    assert sum(error is not None for error in errors) > len(errors) // 2


def header_offsets(data):
    """Offsets of all header blocks, extended ones too."""
    for member in iter_members(io.BytesIO(data)):
        yield member.offset
        if member.data_offset - BLOCK > member.offset:
            yield member.data_offset - BLOCK


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_flipped_byte_in_a_header_is_an_error(read, reference, shard, every):
    random.seed(1)
    whole = reference(shard)
    for number, offset in enumerate([*header_offsets(shard)][:9]):
        for at in range(offset + number % every, offset + BLOCK, every):
            data = bytearray(shard)
            data[at] ^= 1 << random.randrange(8)
            _, error = check(read, reference, bytes(data), whole)
            in_checksum_field = 148 <= at - offset < 156
            assert error is not None or in_checksum_field  # whose terminator may be either of two


@pytest.mark.parametrize("every", [41, pytest.param(17, marks=pytest.mark.long)])
def test_flipped_bytes_elsewhere_read_as_in_tarfile_or_are_errors(read, reference, shard, every):
    random.seed(2)
    whole = reference(shard)
    for at in range(random.randrange(every), len(shard), every):
        data = bytearray(shard)
        data[at] = random.choice((0, 255, 48, data[at] ^ 1))
        check(read, reference, bytes(data), whole)


def test_overwritten_blocks_read_as_in_tarfile_or_are_errors(read, reference, shard):
    random.seed(3)
    whole = reference(shard)
    for at in range(0, len(shard), BLOCK):
        for block in (bytes(BLOCK), b"\xff" * BLOCK, random.randbytes(BLOCK), shard[:BLOCK]):
            data = shard[:at] + block + shard[at + BLOCK :]
            samples, error = read(data)
            if error is None:
                assert samples == by_tarfile(reference, data)
            else:
                # A header written over another may take this one's place: tarfile sees the same until then.
                as_tarfile = (by_tarfile(reference, data) or [])[: len(samples)]
                assert samples in (whole[: len(samples)], as_tarfile)


@pytest.mark.parametrize("rounds", [500, pytest.param(5000, marks=pytest.mark.long)])
def test_an_overwritten_header_with_a_valid_checksum_reads_as_in_tarfile(read, reference, shard, rounds):
    random.seed(4)
    whole = reference(shard)
    offsets = list(header_offsets(shard))
    places = [(0, 100), (124, 12), (124, 1), (156, 1), (157, 100)]
    if shard[257:263] == b"ustar\0":  # else the prefix is none for us, but one for tarfile
        places.append((345, 155))
    for _ in range(rounds):
        data = bytearray(shard)
        offset = random.choice(offsets)
        start, length = random.choice(places)
        at = offset + start + random.randrange(length)
        data[at] = random.choice((0, 32, 45, 48, 49, 53, 55, 83, 97, 128, 255, data[at] ^ 1))
        data[offset + 148 : offset + 156] = b" " * 8
        data[offset + 148 : offset + 156] = b"%06o\0 " % sum(data[offset : offset + BLOCK])
        samples, error = read(bytes(data))
        expected = by_tarfile(reference, bytes(data))
        if error is None:
            assert samples == expected
        else:
            assert samples in (whole[: len(samples)], (expected or [])[: len(samples)])


def test_a_damaged_end_marker_is_an_error(read, reference, shard):
    marker = [member.end for member in iter_members(io.BytesIO(shard))][-1]
    for at in range(marker, len(shard), 97):
        data = bytearray(shard)
        data[at] = 1
        samples, error = read(bytes(data))
        assert error is not None
        assert samples in (reference(shard), reference(shard)[:-1])


def test_a_truncated_shard_never_merges_with_the_next(read, pack):
    first = pack([("a.jpg", b"1"), ("a.cls", b"1"), ("b.jpg", b"from the first")])[: 5 * BLOCK]
    second = pack([("b.cls", b"from the second"), ("c.jpg", b"3")])
    errors = []
    samples = [sample for data in (first, second) for sample in read(data, on_error=errors.append)[0]]
    assert [sorted(sample) for sample in samples] == [
        ["__key__", "cls", "jpg"],
        ["__key__", "cls"],
        ["__key__", "jpg"],
    ]
    assert [error.place["key"] for error in errors] == ["b"]


@pytest.mark.parametrize("length", [b"12", b"14", b"03", b"93"])
def test_a_pax_record_with_a_wrong_length_is_an_error(read, pack, length):
    """Also where it only says when: `tarfile` of Python 3.13 ends there without a word, older ones read on."""
    data = archive(pack, tarfile.PAX_FORMAT)
    at = data.index(b"13 mtime=1.5\n", len(data) // 3)
    samples, error = read(data[:at] + length + data[at + 2 :])
    assert error is not None
    assert "pax" in str(error)
    assert 0 < len(samples) < 6
