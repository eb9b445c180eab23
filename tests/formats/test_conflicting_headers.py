"""Names that a tar has twice: damage to one is an error, but another way of truncating them is not."""

import io
import random
import tarfile

import pytest
from tarblocks import filled, header

from wdspec.formats.tar.members import iter_members

LONG = "d" * 60 + "/" + "n" * 60 + ".jpg"
ACCENTS = "ä" * 40 + "/" + "ö" * 40 + ".jpg"
BLOCK = 512


def record(key, value):
    body = b" %s=%s\n" % (key, value)
    size = len(body)
    while len(b"%d" % size) + len(body) != size:
        size = len(b"%d" % size) + len(body)
    return b"%d" % size + body


def shard(kind, body, own, data=b"1", size=None):
    """A tar of one member with an extended header before its own."""
    size = len(data) if size is None else size
    return header(b"ext", len(body), kind) + filled(body) + header(own, size) + filled(data) + bytes(1024)


def pax(own, *, path=None, **records):
    lines = [(b"path", path)] if path is not None else []
    lines += [(key.encode(), value) for key, value in records.items()]
    return shard(b"x", b"".join(record(*line) for line in lines), own)


@pytest.mark.parametrize("name", [LONG, ACCENTS, "é" * 60 + ".jpg", "a" * 100 + ".jpg", "ä.jpg"])
@pytest.mark.parametrize(
    "cut",
    [
        lambda name: name.encode()[:100],  # GNU tar, Rust, commons-compress
        lambda name: name.encode("ascii", "replace")[:100],  # Python
        lambda name: name.encode("ascii", "ignore")[:100],  # Go
        lambda name: name.encode()[:99],  # node-tar
        lambda name: b"PaxHeader",  # tar-stream
        lambda name: name.encode("latin-1", "replace")[:100],
        lambda name: name.encode().rpartition(b"/")[2][-99:],  # libarchive keeps the end
    ],
)
def test_every_way_to_truncate_a_name_is_known(read, name, cut):
    own = cut(name)
    samples, error = read(pax(own, path=name.encode()))
    assert error is None
    assert samples == [{"__key__": name[:-4], "jpg": b"1"}]
    if len(name.encode()) > 100:
        assert read(shard(b"L", name.encode() + b"\0", own))[0] == samples


@pytest.mark.parametrize("own", [LONG.encode()[:100], b"a" * 100])
def test_a_name_that_differs_from_the_one_in_its_header_is_an_error(read, own):
    changed = LONG.replace("d", "e", 1).encode()
    for data in (pax(own, path=changed), shard(b"L", changed + b"\0", own)):
        samples, error = read(data)
        assert samples == []
        assert "one of them is damaged" in error.message
        assert error.place["offset"] == 0


def test_two_conflicting_names_for_one_member_are_an_error(read):
    start = header(b"ext", 14, b"x") + filled(b"14 path=b.jpg\n")
    for again in (
        header(b"ext", 14, b"x") + filled(b"14 path=c.jpg\n"),
        header(b"ext", 6, b"L") + filled(b"c.jpg\0"),
    ):
        samples, error = read(start + again + header(b"a.jpg") + bytes(1024))
        assert samples == []
        assert "two long names, 'b.jpg' and 'c.jpg'" in error.message


def test_a_long_name_with_a_nul_is_an_error(read):
    name = bytearray(LONG.encode() + b"\0")
    name[70] = 0
    assert "cuts off a long name" in read(shard(b"L", bytes(name), LONG.encode()[:100]))[1].message


@pytest.mark.parametrize("key", [b"qath", b"pati", b"linkpatj", b"sixe"])
def test_a_damaged_key_that_matters_is_an_error(read, key):
    _, error = read(shard(b"x", record(key, LONG.encode()), LONG.encode()[:100]))
    assert "which is a damaged" in error.message


def test_other_keys_are_ignored(read):
    data = pax(b"a.jpg", comment=b"x", foo=b"1", uid=b"3", **{"SCHILY.xattr.user": b"\xff\0"})
    assert read(data)[1] is None


def test_a_size_in_both_headers_must_be_the_same(read):
    assert read(shard(b"x", record(b"size", b"3"), b"a.jpg", b"123"))[1] is None
    assert read(shard(b"x", record(b"size", b"3"), b"a.jpg", b"123", size=0))[1] is None
    _, error = read(shard(b"x", record(b"size", b"2"), b"a.jpg", b"123"))
    assert "gives a member 2 bytes" in error.message


def test_link_names_are_compared(read):
    start = header(b"t.jpg", 1) + filled(b"1")
    link = header(b"a.jpg", 0, b"1", linkname=LONG[:100])
    for target, seen in (
        (LONG, "not an earlier file"),
        (LONG.replace("d", "e", 1), "one of them is damaged"),
    ):
        data = start + header(b"ext", len(target) + 1, b"K") + filled(target.encode() + b"\0") + link
        assert seen in read(data + bytes(1024))[1].message


def flips(read, pack, seed, count):
    """Count flipped bits in the bodies of extended headers that go unseen; all of them are in names."""
    generator = random.Random(seed)
    unseen = 0
    for _ in range(count):
        format = generator.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
        names = [
            f"{'d' * generator.randrange(100, 160)}/{n:0{generator.randrange(8, 60)}}.jpg" for n in range(3)
        ]
        data = bytearray(pack([(name, b"1") for name in names], format))
        member = generator.choice(list(iter_members(io.BytesIO(data))))
        body = [
            at
            for at in range(member.offset + BLOCK, member.data_offset - BLOCK)
            if data[at] or generator.random() < 0.02
        ]
        at = generator.choice(body)
        data[at] ^= 1 << generator.randrange(8)
        samples, error = read(bytes(data))
        keys = [name[:-4] for name in names]
        if error is None:
            unseen += 1
            # Only in the part of a name that is nowhere else; a member without a dot there belongs to no sample.
            found = [sample["__key__"] for sample in samples]
            assert len(set(found) & set(keys)) >= 2
            assert {key[:95] for key in found} <= {key[:95] for key in keys}
        else:
            assert [sample["__key__"] for sample in samples] == keys[: len(samples)]
    return unseen


def test_a_flipped_bit_in_an_extended_header_is_detected(read, pack):
    assert flips(read, pack, 1, 300) < 300 * 0.4


@pytest.mark.long
def test_many_flipped_bits_in_extended_headers(read, pack):
    assert flips(read, pack, 2, 20_000) < 20_000 * 0.4
