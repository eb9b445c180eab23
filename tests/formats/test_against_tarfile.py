"""Every dialect, written by tarfile and by GNU tar, is read as tarfile reads it."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.base.errors import ShardError
from wdspec.formats import blocks
from wdspec.formats.tar.members import iter_members
from wdspec.formats.tar.reader import TarSamples

DIALECTS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]

NAMES = [
    "a.jpg",
    "a.cls",
    "dir/b.seg.jpg",
    "dir/b.json",
    "dir.x/noext",
    "ünïcödé/日本.txt",
    "../up.txt",
    "/abs/olute.txt",
    "new\nline.txt",
    "sp ace=.txt",
    "e.mpty",
    "x" * 95 + ".json",
    "d" * 80 + "/" + "n" * 94 + ".jpeg",
    "d" * 80 + "/" + "n" * 94 + ".cls",
    "d" * 80 + "/" + "n" * 93 + ".jpg",
]
LONG_NAMES = [
    "x" * 96 + ".json",
    "p/" * 150 + "long.jpg",
    "p/" * 150 + "long.cls",
    "q" * 300 + ".x",
    "after.x",
]
RAW_NAMES = ["\udcff\udcfe.bin", "\udce9" * 60 + "/" + "\udce9" * 60 + ".bin"]


def contents(names):
    return [
        (name, b"" if name == "e.mpty" else random.Random(1).randbytes(n * 97))
        for n, name in enumerate(names)
    ]


@pytest.mark.parametrize("format", DIALECTS)
@pytest.mark.parametrize(
    "fields",
    [{}, {"mtime": 1.25}, {"uid": 2**24, "uname": "ü"}, {"type": b"7"}, {"type": b"\0"}, {"type": b"?"}],
    ids=str,
)
def test_archives_of_tarfile_are_read(pack, read, reference, format, fields):
    if format == tarfile.USTAR_FORMAT:
        names = NAMES
    elif fields.get("type") == b"\0":  # tarfile takes a long name cut at a slash for a directory
        names = NAMES + RAW_NAMES
    else:
        names = NAMES + LONG_NAMES + RAW_NAMES
    if format == tarfile.USTAR_FORMAT and "uid" in fields:
        fields = {"uid": 2**20, "uname": "ü"}
    data = pack(contents(names), format, **fields)
    assert read(data) == (reference(data), None)
    assert len(read(data)[0]) >= 11


def test_a_long_name_truncated_at_a_slash_is_not_a_directory(pack, read):
    files = [("p/" * 150 + "a.jpg", b"1"), ("p/" * 150 + "a.cls", b"2")]
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        samples, error = read(pack(files, format, type=b"\0"))
        assert (samples, error) == ([{"__key__": "p/" * 150 + "a", "jpg": b"1", "cls": b"2"}], None)


def test_prefixes_apply_only_in_ustar(pack, read):
    """GNU tar keeps times there, which tarfile takes for a part of the name."""
    data = bytearray(pack([("a.jpg", b"1"), ("a.cls", b"2")], tarfile.GNU_FORMAT))
    for at in (0, 1024):
        data[at + 345 : at + 357] = b"14000000000\0"
        data[at + 148 : at + 156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    assert read(bytes(data)) == ([{"__key__": "a", "jpg": b"1", "cls": b"2"}], None)


@pytest.mark.skipif(not shutil.which("tar"), reason="no tar program")
@pytest.mark.parametrize("format", ["gnu", "oldgnu", "pax", "posix", "ustar", "v7"])
def test_archives_of_gnu_tar_are_read(read, reference, tmp_path, format):
    names = [name for name in NAMES if not name.startswith((".", "/"))]
    if format == "v7":
        names = [name for name in names if len(name.encode()) < 100]
    elif format != "ustar":
        names += [name for name in LONG_NAMES if len(name) != 302]
    folder = tmp_path / "in"
    for name, data in contents(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    os.link(folder / "a.jpg", folder / "a.png")
    subprocess.run(
        ["tar", f"--format={format}", "--sort=name", "-cf", tmp_path / "x.tar", "."],
        cwd=folder,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    data = (tmp_path / "x.tar").read_bytes()
    samples, error = read(data)
    assert error is None
    assert samples == reference(data)
    assert len(samples) >= 6
    assert samples[0]["png"] == samples[0]["jpg"]


SPARSE = ["--format=gnu", *(f"--sparse-version={version}" for version in ("0.0", "0.1", "1.0"))]


def sparse_tar(folder, option, pieces):
    """A tar with a file of 10 MB that has data only in pieces, between two other files."""
    with open(folder / "b.bin", "wb") as file:
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)
        file.truncate(10_000_000)
    (folder / "a.txt").write_bytes(b"a")
    (folder / "c.txt").write_bytes(b"c")
    options = ["--format=pax", option] if "version" in option else [option]
    names = ["a.txt", "b.bin", "c.txt"]
    subprocess.run(["tar", *options, "--sparse", "-cf", folder / "x.tar", *names], cwd=folder, check=True)
    return (folder / "x.tar").read_bytes()


@pytest.mark.skipif(not shutil.which("tar"), reason="no tar program")
@pytest.mark.parametrize("option", SPARSE)
@pytest.mark.parametrize("pieces", [1, 3, 60])
def test_holes_of_sparse_members_are_filled(read, tmp_path, option, pieces):
    random = np.random.default_rng(pieces)
    places = random.choice(9_000_000 // 65_536, pieces, replace=False) * 65_536
    data = sparse_tar(tmp_path, option, [(place, random.bytes(5_000)) for place in sorted(places.tolist())])
    assert len(data) < 2_000_000
    samples, error = read(data)
    assert error is None
    assert [sample["__key__"] for sample in samples] == ["a", "b", "c"]
    assert samples[1]["bin"] == (tmp_path / "b.bin").read_bytes()
    [size] = [
        len(sample["bin"]) for sample in TarSamples(io.BytesIO(data), only_sizes=True) if "bin" in sample
    ]
    assert size == 10_000_000
    members = list(iter_members(io.BytesIO(data)))
    assert [member.file_size for member in members] == [1, 10_000_000, 1]
    cut, error = read(data[: members[1].end - 600])
    assert cut == samples[:1]
    assert error.code == "D107"


@pytest.mark.skipif(not shutil.which("tar"), reason="no tar program")
@pytest.mark.parametrize(
    ("option", "old", "new", "said"),
    [
        ("--format=gnu", b"00000200000", b"00000300000", "bad checksum"),
        ("--sparse-version=0.0", b"GNU.sparse.offset=65536", b"GNU.sparse.offset=65x36", "a text in place"),
        ("--sparse-version=0.1", b"GNU.sparse.size=10000000", b"GNU.sparse.size=00000009", "does not fit"),
        ("--sparse-version=0.1", b"GNU.sparse.size=10000000", b"GNU.sparse.size=99999999", None),
        ("--sparse-version=1.0", b"=10000000", b"=99999999", None),
        ("--sparse-version=1.0", b"GNU.sparse.major=1", b"GNU.sparse.major=2", "is missing"),
        ("--sparse-version=1.0", b"\n65536\n", b"\n65x36\n", "a text in place"),
    ],
)
def test_maps_of_sparse_members_that_do_not_fit_are_errors(read, tmp_path, option, old, new, said):
    data = sparse_tar(tmp_path, option, [(65_536, b"x" * 5000), (8_000_000, b"y")])
    assert old in data
    samples, error = read(data.replace(old, new, 1))
    if said is not None:
        assert said in error.message
        assert samples in ([], [{"__key__": "a", "txt": b"a"}])


@pytest.mark.skipif(not shutil.which("tar"), reason="no tar program")
def test_global_headers_and_labels_are_skipped(read, reference, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"1")
    for options in (
        ["--format=pax", "--pax-option=comment=hi,globexthdr.name=g"],
        ["--format=gnu", "-V", "label.x"],
    ):
        command = ["tar", *options, "-cf", tmp_path / "x.tar", "a.jpg"]
        subprocess.run(command, cwd=tmp_path, check=True)
        assert read((tmp_path / "x.tar").read_bytes()) == ([{"__key__": "a", "jpg": b"1"}], None)


def extended(kind, body):
    """An extended header with its body."""
    info = tarfile.TarInfo("././@Header")
    info.type = kind
    info.size = len(body)
    return info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x", b"14 path=b.jpg\n")],
        [(b"X", b"14 path=b.jpg\n")],
        [(b"x", b"14 path=b.jpg\n"), (b"L", b"b.jpg\0")],
        [(b"L", b"c.jpg\0"), (b"K", b"nowhere\0"), (b"x", b"11 mtime=1\n")],
        [(b"x", b"10 size=3\n")],
        [(b"x", b"10 size=3\n"), (b"x", b"10 size=2\n")],
        [(b"x", b"21 hdrcharset=BINARY\n12 path=\xff.x\n")],
        [(b"g", b"13 comment=p\n"), (b"x", b"14 path=b.jpg\n")],
    ],
)
def test_extended_headers_are_applied_as_in_tarfile(pack, read, reference, headers):
    plain = pack([("a.jpg", b"123"), ("z.jpg", b"1")])
    data = b"".join(extended(*header) for header in headers) + plain
    assert read(data) == (reference(data), None)


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (b"g", b"14 path=b.jpg\n", "gives all members one name"),
        (b"g", b"10 size=3\n", "gives all members one name"),
        (b"x", b"22 GNU.sparse.major=1\n", "sparse"),
        (b"x", b"30 GNU.sparse.size=9999999999\n20 GNU.sparse.map=\n", "sparse"),
        (b"x", b"11 size=-3\n", "as a size"),
        (b"x", b"10011 size=" + b"9" * 9999 + b"\n", "as a size"),
        (b"x", b"14 path=b\0jpg\n", "NUL"),
        (b"x", b"15 path=b.jpg\n", "malformed record"),
        (b"M", b"", "volume"),
    ],
)
def test_unsupported_headers_are_errors(pack, read, kind, body, message):
    good = pack([("0.jpg", b"0")])[:1024]
    samples, error = read(good + extended(kind, body) + pack([("a.jpg", b"123")]))
    assert samples == []
    assert message in error.message
    assert error.place["offset"] == 1024


def test_an_extended_header_needs_a_member(pack, read):
    good = pack([("0.jpg", b"0")])[:1024]
    for body in (b"11 mtime=1\n", b"14 path=b.jpg\n"):
        for end in (b"", bytes(1024)):
            samples, error = read(good + extended(b"x", body) * 2 + end, lenient_end=True)
            assert samples == []
            assert "no member follows" in error.message
            assert error.place["offset"] == 1024


def test_absurdly_long_names_are_rejected(pack, read):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = b"L", 2**33
    assert "not credible" in str(read(info.tobuf(tarfile.GNU_FORMAT) + pack([]))[1])


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 2**40 + 1, 2**62, 2**70])
def test_sizes_above_8_gib_are_supported(read, trickle, format, size):
    info = tarfile.TarInfo("a.bin")
    info.size = size
    header = info.tobuf(format)
    member = next(iter(iter_members(io.BytesIO(header))))
    assert member.size == size
    assert member.end == len(header) + size + -size % 512
    samples, error = read(header + b"the rest is missing")
    assert samples == []
    assert "truncated" in error.message
    assert error.place["member"] == "a.bin"
    with pytest.raises(ShardError, match="truncated"):
        list(TarSamples(trickle(header + b"x"), field_of=lambda suffix: None))


def test_members_larger_than_the_window_are_whole(pack, read, trickle):
    files = [
        (f"{n}.{suffix}", random.Random(1).randbytes(300_000 * n + len(suffix)))
        for n in range(5)
        for suffix in ("a", "bb")
    ]
    data = pack(files)
    samples, error = read(data)
    assert error is None
    assert [value for sample in samples for value in list(sample.values())[1:]] == [
        value for _, value in files
    ]
    assert list(TarSamples(trickle(data, 70_000))) == samples


parts = st.sampled_from(
    ["a", "b", "a.b", ".", "x" * 60, "__", "é", "A", "d/", "./", "\n", " ", "\udcff", "0"]
)
names = st.lists(parts, min_size=1, max_size=6).map("".join)
files = st.lists(st.tuples(names, st.binary(max_size=1200)), max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    files=files,
    format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    mtime=st.sampled_from([0, 1.5]),
    chunk=st.sampled_from([512, 1536, 4096, blocks.CHUNK]),
)
def test_any_archive_reads_as_in_tarfile_or_is_an_error(pack, read, reference, files, format, mtime, chunk):
    data = pack(files, format, mtime=mtime)
    errors = []
    with mock.patch.object(blocks, "CHUNK", chunk):
        samples, error = read(data, on_error=errors.append, may_be_empty=True)
    assert error is None
    expected = reference(data)
    if not errors:
        assert samples == expected
    else:
        by_key = {}
        for sample in expected:
            by_key.setdefault(sample["__key__"], sample)
        for sample in samples:
            assert sample == by_key[sample["__key__"]]
        assert len(samples) + len(errors) == len(expected)


@settings(max_examples=150, deadline=None)
@given(files=files, step=st.integers(1, 3000), stride=st.integers(1, 3), mtime=st.sampled_from([0, 1.5]))
def test_any_archive_resumes_anywhere(pack, trickle, files, step, stride, mtime):
    unique = list(dict(files).items())
    data = pack(sorted(unique), tarfile.PAX_FORMAT, mtime=mtime)
    bad = []
    reader = TarSamples(io.BytesIO(data), stride=stride, on_error=bad.append)
    samples, stops = [], [(0, 0)]
    for sample in reader:
        samples.append(sample)
        stops.append((reader.next_offset, reader.next_index))
    for emitted, (offset, index) in enumerate(stops):
        options = {"offset": offset, "index": index, "stride": stride, "on_error": bad.append}
        if not bad:
            with mock.patch.object(blocks, "CHUNK", step):
                assert list(TarSamples(io.BytesIO(data), **options)) == samples[emitted:]
            assert list(TarSamples(trickle(data, step), **options)) == samples[emitted:]


@pytest.mark.filterwarnings("ignore::wdspec.formats.tar.reader.ShardWarning")
@settings(max_examples=300, deadline=None)
@given(garbage=st.binary(max_size=3000), after=st.booleans(), lenient=st.booleans())
def test_garbage_is_a_shard_error_and_nothing_else(pack, read, garbage, after, lenient):
    start = pack([("a.jpg", b"1")])[:1024] if after else b""
    samples, error = read(start + garbage, lenient_end=lenient)
    if error is None:  # zeros are an end marker, or lenient about one
        assert not garbage.strip(b"\0")
    else:
        assert samples in ([], [{"__key__": "a", "jpg": b"1"}])
