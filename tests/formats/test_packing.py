"""Headers that we write, as `tarfile` and our own reader read them."""

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.formats.tar.reader import TarSamples
from wdspec.write.tar_writer import END, HeaderMaker, dialect, padding

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=60).map(
    lambda text: text.replace(".", "_")
)
PATHS = st.lists(NAMES, min_size=1, max_size=6).map("/".join)
FORMATS = st.sampled_from(["auto", "gnu", "pax"])


def packed(files, **options):
    maker = HeaderMaker(**options)
    pieces = [maker.header(name.encode(), len(data)) + data + padding(len(data)) for name, data in files]
    return b"".join(pieces) + END


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return [(info, tar.extractfile(info).read()) for info in tar]


@settings(deadline=None)
@given(PATHS, st.binary(max_size=1500), FORMATS)
def test_tarfile_reads_the_written_names_and_bytes(path, data, format):
    name = f"{path}.bin"
    (info, content), (second, _) = members(packed([(name, data), ("last.bin", b"")], format=format))
    assert (info.name, content, second.name) == (name, data, "last.bin")


@settings(deadline=None)
@given(PATHS, st.binary(max_size=1500), FORMATS)
def test_our_reader_reads_the_written_names_and_bytes(path, data, format):
    (sample,) = TarSamples(io.BytesIO(packed([(f"x{path}.bin", data)], format=format)))
    assert sample == {"__key__": f"x{path}", "bin": data}


def test_owner_mode_and_time_are_as_given_and_zero_by_default():
    ((info, _),) = members(packed([("a.txt", b"x")]))
    assert (info.uname, info.gname, info.uid, info.gid, info.mode, info.mtime) == ("", "", 0, 0, 0o444, 0)
    ((info, _),) = members(packed([("a.txt", b"x")], user="u%s", group="gé", mode=0o640, mtime=1_700_000_000))
    assert (info.uname, info.gname, info.mode, info.mtime) == ("u%s", "gé", 0o640, 1_700_000_000)


def test_a_time_too_large_for_octal_is_written_in_base_256():
    ((info, _),) = members(packed([("a.txt", b"x")], mtime=2**40 + 0x25))
    assert info.mtime == 2**40 + 0x25


@pytest.mark.parametrize("length", [99, 100, 101])
def test_names_of_up_to_100_bytes_take_one_block(length):
    header = HeaderMaker().header(b"x" * length, 5)
    assert (len(header) == 512) == (length <= 100)


@pytest.mark.parametrize(("size", "zeros"), [(0, 0), (1, 511), (5, 507), (511, 1), (512, 0), (513, 511)])
def test_a_member_fills_whole_blocks(size, zeros):
    assert padding(size) == bytes(zeros)


def test_a_long_path_is_split_into_prefix_and_name_of_plain_ustar():
    name = "d" * 150 + "/" + "x" * 90 + ".txt"
    header = HeaderMaker().header(name.encode(), 0)
    assert len(header) == 512
    assert members(header + END)[0][0].name == name


@pytest.mark.parametrize("format", ["auto", "gnu", "pax"])
def test_sizes_from_8_gib_can_be_written(format):
    info = tarfile.TarFile.open(
        fileobj=io.BytesIO(HeaderMaker(format=format).header(b"a.bin", 2**34) + END)
    ).next()
    assert info.size == 2**34


def test_ustar_rejects_values_that_it_cannot_express():
    maker = HeaderMaker(format="ustar")
    with pytest.raises(ValueError, match="ustar format cannot store a name of 120 bytes"):
        maker.header(b"x" * 120, 1)
    with pytest.raises(ValueError, match="ustar format cannot store a member of 17,179,869,184 bytes"):
        maker.header(b"x", 2**34)


def test_pax_names_that_are_not_utf8_round_trip():
    name = b"\xff" * 150 + b".txt"
    (sample,) = TarSamples(io.BytesIO(HeaderMaker(format="pax").header(name, 0) + END))
    assert sample["__key__"].encode("utf-8", "surrogateescape") == b"\xff" * 150


@pytest.mark.parametrize(
    ("name", "meant"),
    [(None, "auto"), (tarfile.USTAR_FORMAT, "ustar"), ("GNU_FORMAT", "gnu"), ("pax", "pax")],
)
def test_formats_have_our_names_and_those_of_tarfile(name, meant):
    assert dialect(name) == meant


def test_an_unknown_format_is_rejected():
    with pytest.raises(ValueError, match="'zip' is not a tar format; use auto, ustar, gnu or pax"):
        dialect("zip")


def test_an_owner_that_does_not_fit_is_rejected():
    with pytest.raises(ValueError, match="at most 31 bytes"):
        HeaderMaker(user="u" * 32)
