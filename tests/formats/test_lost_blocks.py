"""Blocks cut out of tars of each dialect: what is read afterwards is what was written, or an error says otherwise.

The reference is the list of what was written. What no reader can notice is listed in `docs/reliability.md`, and does
not count here: whole members that are lost, and data in whose place other data of the shard moves up.
"""

import io
import random
import tarfile

import pytest
from tarblocks import BLOCK, filled, header

V7 = -1
DIALECTS = {"v7": V7, "ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
SIZES = (5, 512, 700, 0, 513, 1500)
KEYS = {
    "short": lambda number: f"a{number}",
    "just too long": lambda number: f"{number:03d}" + "x" * 97,
    "long": lambda number: "d" * 40 + f"/n{number:03d}" + "n" * 76,
    "longer than two fields": lambda number: "d" * 120 + f"/n{number:03d}" + "e" * 130,
    "of both kinds": lambda number: f"a{number}" + "long" * 30 * (number % 2),
}


def write(keys, dialect, **fields):
    """A tar, and what was written: (name, data). Data says which file it is of, in each of its parts."""
    files = []
    for number, key in enumerate(keys):
        for suffix, size in (("jpg", SIZES[number % len(SIZES)]), ("cls", 9)):
            files.append((f"{key}.{suffix}", (f"<{key[-40:]}.{suffix}>".encode() * 400)[:size]))
    if dialect == V7:
        return b"".join(v7(name.encode(), data) for name, data in files) + bytes(2 * BLOCK), files
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=dialect) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue(), files


def v7(name, data):
    block = bytearray(header(name, len(data)))
    block[257:] = bytes(BLOCK - 257)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + filled(data)


def parts(data):
    """(kind, offset, end) of each header, each extended header with its body, and each block of data."""
    at = 0
    while data[at : at + BLOCK].strip(b"\0"):
        kind = data[at + 156 : at + 157]
        end = at + BLOCK + int(data[at + 124 : at + 135], 8)
        end += -end % BLOCK
        if kind in b"xLKg":
            yield "extended header", at, end
            yield "start of an extended header", at, at + BLOCK
            yield "body of an extended header", at + BLOCK, end
        else:
            yield "header", at, at + BLOCK
            for block in range(at + BLOCK, end, BLOCK):
                yield "data", block, block + BLOCK
        at = end
    yield "end", at, at + BLOCK


def names_of(files, keys):
    """The samples that files make, as (key, suffixes)."""
    return [(key, [name[len(key) + 1 :] for name, _ in files if name.startswith(f"{key}.")]) for key in keys]


CASES = [
    (dialect, keys)
    for dialect in DIALECTS
    for keys in KEYS
    if keys == "short" or dialect in ("gnu", "pax") or (dialect, keys) == ("ustar", "long")
]


@pytest.mark.parametrize("times", [0, 1.5])
@pytest.mark.parametrize(("dialect", "keys"), CASES)
def test_a_lost_header_never_drops_a_file_silently(read, dialect, keys, times):
    names = [KEYS[keys](number) for number in range(6)]
    data, files = write(names, DIALECTS[dialect], mtime=times if dialect == "pax" else 0)
    whole = names_of(files, names)
    assert [(each.pop("__key__"), list(each)) for each in read(data)[0]] == whole
    cuts = [part for part in parts(data) if part[0] != "data"]
    assert len(cuts) > len(files)
    for kind, start, end in cuts:
        samples, error = read(data[:start] + data[end:])
        if error is not None or (kind == "end" and len(data) - end >= 2 * BLOCK):
            continue
        found = [(each["__key__"], [name for name in each if name != "__key__"]) for each in samples]
        # The header of an empty file is the file. Times, which no sample has, are lost without a trace.
        is_file = kind == "header" and not int(data[start + 124 : start + 135], 8)
        assert is_file or (found == whole and b" path=" not in data[start:end]), (kind, start)


@pytest.mark.parametrize("own", [b"d" * 50 + b"/" + b"n" * 49, b"n" * 99, b"PaxHeader"])
def test_a_name_that_is_left_of_a_longer_one_is_an_error(read, own):
    first, last = header(b"a.jpg", 1) + filled(b"1"), header(b"b.jpg", 1) + filled(b"1") + bytes(2 * BLOCK)
    for lost in (header(own, 1) + filled(b"1"), header(own, 1, type=b"\0") + filled(b"1")):
        samples, error = read(first + lost + last)
        assert (error.code, error.place["offset"]) == ("D113", 2 * BLOCK)
        assert "the extended header with its whole name is lost" in error.message
        assert samples == []  # the lost name may be of the sample before it


@pytest.mark.parametrize(
    "aside",
    [
        header(b"n" * 98) + b"",
        header(b"__meta__/" + b"n" * 91),
        header(b"d" * 60 + b"/." + b"n" * 38),
        header(b"d" * 100, type=b"5"),
        header(b"ext", 0, b"x") + header(b"n" * 100),
        header(b"ext", 101, b"L") + filled(b"n" * 100 + b"\0") + header(b"n" * 100),
    ],
    ids=["shorter", "meta", "hidden", "directory", "with a pax header", "with a long name"],
)
def test_whole_names_of_other_files_are_no_error(read, aside):
    data = aside + header(b"a.jpg", 1) + filled(b"1") + bytes(2 * BLOCK)
    assert read(data) == ([{"__key__": "a", "jpg": b"1"}], None)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_sample_is_never_merged_with_another_by_lost_blocks(read, dialect):
    """Any piece is cut out: no sample has a file that was not written under its key, by the names in headers."""
    generator = random.Random(dialect)
    names = [KEYS["short" if dialect == "v7" else "long"](number) for number in range(6)]
    data, files = write(names, DIALECTS[dialect])
    written = {name.rpartition(".")[0] for name, _ in files}
    blocks = len(data.rstrip(b"\0")) // BLOCK
    for _ in range(150):
        start, count = generator.randrange(blocks), generator.choice((1, 1, 2, 3, 8))
        samples, error = read(data[: start * BLOCK] + data[(start + count) * BLOCK :])
        assert {each["__key__"] for each in samples} <= written
        assert [each["__key__"] for each in samples] == sorted({each["__key__"] for each in samples})
        assert error is not None or samples
