"""Shards of MosaicML Streaming (MDS), as its own library wrote them, and damaged ones."""

import io
import json
import os
import pickle
import struct
import subprocess
from decimal import Decimal
from pathlib import Path
from random import Random

import mdsdata
import numpy as np
import pytest
from commandline import within
from mdsdata import COLUMNS, COMPRESSIONS, MODES, index_of, pixels, plain_shard, show, value
from PIL import Image
from speed import mostly_long

import wdspec
from wdspec.base.errors import ShardError
from wdspec.cache.fill import CopyCheck
from wdspec.formats import mds
from wdspec.formats.mds import MdsSamples
from wdspec.formats.mds_index import read_index
from wdspec.formats.samples import no_field, only_key

FILES = Path(__file__).parent / "mds"
SMALL = {"text": "str", "number": "int"}


def small(count=5):
    rows = [{"text": f"text {n}".encode(), "number": struct.pack("<q", n)} for n in range(count)]
    return plain_shard(SMALL, rows)


def read(data, **options):
    """The samples before the first error, and the error."""
    found = []
    try:
        for sample in MdsSamples(data if hasattr(data, "read") else io.BytesIO(data), **options):
            found.append(sample)
    except ShardError as error:
        return found, error
    return found, None


def loaded(shards, **keys):
    source = {
        "name": "a",
        "shards": str(shards),
        "order": "sequential",
        "shuffle": 0,
        "interleave": 1,
        **keys,
    }
    with wdspec.loader({"dataset": [source], "epoch": "pass"}, num_workers=0) as loader:
        return list(loader)


def same(found, right):
    if isinstance(right, np.ndarray):
        return isinstance(found, np.ndarray) and found.dtype == right.dtype and np.array_equal(found, right)
    return type(found) is type(right) and found == right


def as_array(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def is_near(data, row):
    return np.abs(as_array(data).astype(int) - pixels(row)).mean() < 40  # JPEG of noise


def test_all_encodings_are_read_as_the_library_wrote_them():
    samples = [sample for path in sorted(FILES.glob("all/*.mds")) for sample in read(path.read_bytes())[0]]
    assert len(samples) == 12
    for row, sample in enumerate(samples):
        assert sample.keys() == {"__key__", *COLUMNS}
        for name, encoding in COLUMNS.items():
            if encoding == "str_decimal":
                assert Decimal(sample[name]) == value(name, row)
            elif encoding == "pkl":
                assert pickle.loads(sample[name]) == value(name, row)
            elif encoding not in ("pil", "jpeg", "png", "jpeg_array") and "list" not in encoding:
                assert same(sample[name], value(name, row)), (name, row)
        assert np.array_equal(as_array(sample["raw"]), pixels(row, MODES[row % len(MODES)]))
        assert np.array_equal(as_array(sample["drawing"]), pixels(row))
        assert is_near(sample["photo"], row)
        assert len(sample["photos"]) == 1 + row % 2
        assert len(sample["more"]) == row % 3
        assert all(is_near(data, row + n) for n, data in enumerate(sample["photos"] + sample["more"][:0]))
        assert all(is_near(data, row + n) for n, data in enumerate(sample["more"]))
        assert [as_array(data).tolist() for data in sample["drawings"]] == [
            pixels(row + n, "L").tolist() for n in range(2)
        ]
        assert [as_array(data).tolist() for data in sample["raws"]] == [
            pixels(row + n).tolist() for n in range(row % 2)
        ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_compression_of_the_library_is_read_from_its_index(compression):
    found = loaded(f"@{FILES}/{compression}/index.json")
    assert [(each["text"], each["number"]) for each in found] == [(f"text {n}", n) for n in range(20)]
    counts = [
        shard["samples"] for shard in json.loads((FILES / compression / "index.json").read_text())["shards"]
    ]
    keys = [f"shard.{shard:05d}/{n}" for shard, count in enumerate(counts) for n in range(count)]
    assert [each["__key__"] for each in found] == keys


def test_images_and_pickles_are_decoded_as_those_of_other_formats():
    shards = f"{FILES}/all/*.mds"
    found = loaded(shards, extensions="raw photo", decode={"raw": "rgb8", "photo": "rgb8"})
    assert {(each["raw"].shape, each["photo"].shape) for each in found} == {((4, 5, 3), (4, 5, 3))}
    with pytest.raises(wdspec.WdspecError, match="allow"):
        loaded(shards, extensions="thing", decode={"thing": "pkl"})
    spec = {
        "dataset": [{"name": "a", "shards": shards, "extensions": "thing", "decode": {"thing": "pkl"}}],
        "allow": ["pickle"],
        "epoch": "pass",
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        assert sorted(each["thing"][1] for each in loader) == list(range(12))


def test_reading_resumes_at_each_sample_and_takes_a_part():
    data = small(9)
    first = MdsSamples(io.BytesIO(data))
    places = [(0, 0)] + [(first.next_offset, first.next_index) for _ in first]
    whole, _ = read(data)
    assert places[-1] == (first.next_offset, first.next_index) == (len(data), 9)
    for offset, index in places:
        assert read(data, offset=offset, index=index) == (whole[index:], None)
        assert read(data, offset=offset, index=index, stride=3, residue=1) == (
            [each for n, each in enumerate(whole) if n >= index and n % 3 == 1],
            None,
        )


def test_a_stream_is_read_from_any_place(trickle):
    data = small(9)
    whole, _ = read(data)
    assert read(trickle(data, 7)) == (whole, None)
    middle = MdsSamples(io.BytesIO(data))
    samples = iter(middle)
    for index in range(9):
        next(samples)
        assert read(trickle(data, 7), offset=middle.next_offset, index=index + 1) == (
            whole[index + 1 :],
            None,
        )


def test_fields_that_are_not_needed_are_not_decoded():
    wrong = plain_shard(SMALL, [{"text": b"\xff", "number": bytes(8)}])
    assert read(wrong)[1].code == "D120"
    assert read(wrong, field_of=lambda name: name if name == "number" else None)[0] == [
        {"__key__": "0", "number": 0}
    ]
    assert read(wrong, field_of=no_field)[0] == [{"__key__": "0"}]
    assert read(wrong, field_of=only_key)[0] == [{"__key__": "0"}]


def test_a_column_has_the_keys():
    for encoding, data, key in (("str", b"k7", "k7"), ("int", struct.pack("<q", 7), "7")):
        shard = plain_shard({"__key__": encoding, "__note__": "str"}, [{"__key__": data, "__note__": b"x"}])
        assert read(shard)[0] == [{"__key__": key, "__note__": "x"}]
        assert read(shard, field_of=only_key)[0] == [{"__key__": key}]
    wrong = plain_shard({"__key__": "json"}, [{"__key__": b"[1]"}])
    assert "has the key [1]" in str(read(wrong)[1])


def test_a_damaged_sample_does_not_affect_the_others():
    rows = [{"text": f"{n}".encode(), "meta": b"{}"} for n in range(4)]
    rows[1]["meta"] = b"{"
    errors = []
    found, error = read(plain_shard({"text": "str", "meta": "json"}, rows), on_error=errors.append)
    assert error is None
    assert [each["text"] for each in found] == ["0", "2", "3"]
    assert [(each.code, each.place["key"]) for each in errors] == [("D120", "1")]
    assert "the value of 'meta' is damaged" in str(errors[0])


WRONG = {
    "uint8": b"",
    "int": b"1234567",
    "ndarray": b"\x07\x04\x01\x01",
    "ndarray:float32": b"\x08\x02\x02\x00\x00\x00\x00",
    "ndarray:float32:2": b"1234567",
    "pil": struct.pack("<III", 2**31, 2**31, 3) + b"RGB" + bytes(12),
    "list[jpeg]": struct.pack("<III", 0, 2**31, 1),
    "jpeg_array": struct.pack("<II", 1, 9) + b"x",
    "list[pil]": struct.pack("<III", 0, 1, 3) + b"abc",
    "str_int": b"1x",
    "str_float": b"",
    "json": b"[" * 100_000,
}


def test_an_image_without_rows_is_an_error():
    found, error = read(plain_shard({"x": "pil"}, [{"x": struct.pack("<III", 5, 0, 3) + b"RGB"}]))
    assert (found, error.code) == ([], "D120")


@pytest.mark.parametrize("encoding", WRONG)
def test_a_value_that_its_encoding_cannot_have_is_an_error(encoding):
    if encoding in ("uint8", "int", "ndarray:float32:2"):
        size = {"uint8": 1, "int": 8, "ndarray:float32:2": 8}[encoding]
        shard = plain_shard({"x": "str"}, [{"x": WRONG[encoding]}])
        text = json.dumps(encoding).encode()
        shard = shard.replace(b'"str"', text).replace(b"[null]", f"[{size}]".encode())
        start = shard.index(b"{")
        header = shard[start : shard.rindex(b"}") + 1]
        rest = shard[shard.rindex(b"}") + 1 :]
        begin = 4 + 4 * 2
        ends = np.array([begin + len(header), begin + len(header) + len(rest)], "<u4")
        shard = struct.pack("<I", 1) + ends.tobytes() + header + rest
    else:
        shard = plain_shard({"x": encoding}, [{"x": WRONG[encoding]}])
    found, error = read(shard)
    assert not found
    assert error.code == "D120"


@pytest.mark.parametrize("cut", [0, 1, 3, 7, 30, 200, -30, -1])
def test_a_truncated_shard_is_an_error_whether_it_can_seek_or_not(cut, trickle):
    data = small()[:cut]
    for file in (io.BytesIO(data), trickle(data)):
        error = read(file)[1]
        assert error.code == ("D107" if cut else "D103"), error
    assert read(data, field_of=no_field)[1] is not None


def test_bytes_after_the_last_sample_are_an_error(trickle):
    for file in (io.BytesIO(small() + b"x"), trickle(small() + b"x")):
        assert read(file)[1].code == "D121"


def test_any_flipped_bit_is_noticed_or_changes_values_alone():
    data = small()
    whole, _ = read(data)
    start = data.index(b"{")
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        found, error = read(bytes(damaged))
        if error is None and bit // 8 < start:
            pytest.fail(f"bit {bit} of the header")
        if error is None:
            assert len(found) == len(whole)


def test_other_files_are_named():
    tar = bytearray(1024)
    tar[257:262] = b"ustar"
    for data, words in (
        (bytes(tar), "a tar"),
        (b"<html>", "HTML"),
        (b'{"a": 1}', "JSON"),
        (bytes(600), "MDS"),
    ):
        found, error = read(data)
        assert (found, error.code) == ([], "D106")
        assert words in str(error)


@pytest.mark.parametrize("count", [ord("<"), ord("{"), 0x8B1F])
def test_a_number_of_samples_that_looks_like_another_format_is_none(count, tmp_path):
    data = small(count)
    (tmp_path / "a.mds").write_bytes(data)
    assert len(loaded(tmp_path / "a.mds")) == count
    check = CopyCheck("mds", lenient_end=False, may_be_empty=False)
    assert check.feed(data)
    assert check.is_whole()


def test_an_empty_shard_is_an_error_unless_it_is_allowed():
    assert read(small(0))[1].code == "D105"
    assert read(small(0), may_be_empty=True) == ([], None)


def test_claims_are_checked_before_memory_is_allocated():
    many = struct.pack("<II", 2**30, 4 + 4 * (2**30 + 1) & 0xFFFFFFFF) + bytes(100)
    assert read(many)[1].code == "D106"
    assert mds.MOST_SAMPLES * 4 <= 1 << 27


def test_two_columns_that_become_one_field_are_an_error():
    shard = plain_shard({"A": "str", "a": "str"}, [{"A": b"x", "a": b"y"}])
    assert "both become the field 'a'" in str(read(shard)[1])


@pytest.mark.parametrize(
    "name",
    [
        "../a.mds",
        "/etc/passwd",
        "a/b.mds",
        "..\\a.mds",
        ".hidden",
        "",
        "a\0.mds",
        "a?.mds",
        "{0..9}.mds",
        7,
        "pipe:touch a",
        "https:a.mds",
        "~other",
        "-",
    ],
)
def test_names_of_an_index_do_not_leave_its_folder(name, tmp_path):
    with pytest.raises(ValueError, match="not that of a file in its folder"):
        read_index(index_of([name]).encode())
    (tmp_path / "index.json").write_text(index_of([name]))
    with pytest.raises(ShardError, match=r"no `index.json` of MDS shards.*index\.json"):
        loaded(f"@{tmp_path}/index.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shards": []}', '{"shards": [1]}', "[" * 100_000])
def test_another_file_in_place_of_an_index_is_an_error(text, tmp_path):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ShardError, match=r"no `index\.json` of MDS shards"):
        loaded(f"@{tmp_path}/index.json")


def test_a_copy_without_compression_is_read_in_its_place(tmp_path):
    (tmp_path / "a.mds").write_bytes(small(2))
    zipped = {"zip_data": {"basename": "a.mds.zstd"}}
    (tmp_path / "index.json").write_text(index_of(["a.mds"], **zipped))
    assert len(loaded(f"@{tmp_path}/index.json")) == 2
    (tmp_path / "a.mds").unlink()
    with pytest.raises(wdspec.WdspecError, match=r"a\.mds\.zstd"):
        loaded(f"@{tmp_path}/index.json")


def damage(data, random):
    """A copy with one of the usual kinds of damage."""
    data, at, size = bytearray(data), random.randrange(len(data)), random.randrange(1, 64)
    kind = random.choice(("flip", "cut", "zeros", "lost", "more", "twice", "number"))
    if kind == "flip":
        data[at] ^= 1 << random.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == "lost":
        del data[at : at + size]
    elif kind == "more":
        data[at:at] = random.randbytes(size)
    elif kind == "twice":
        data[at:at] = data[at : at + size]
    else:
        at = 4 * random.randrange(16)
        data[at : at + 4] = random.choice((b"\xff" * 4, b"\0\0\0\x80", b"\1\0\0\0", random.randbytes(4)))
    return bytes(data)


@pytest.mark.parametrize("seed", mostly_long(range(500), range(10)))
def test_damage_is_an_error_or_stays_in_the_values(seed, trickle):
    random = Random(seed)
    path = random.choice(sorted(FILES.glob("*/shard.*.mds")))
    whole = path.read_bytes()
    count = len(read(whole)[0])
    for _ in range(4):
        data = damage(whole, random)
        errors = []
        found, error = read(trickle(data, 5000), on_error=errors.append)
        assert error is None
        if not errors:
            assert len(found) == count
            assert len(data) == len(whole)
        assert all(
            each.code in ("D103", "D105", "D106", "D107", "D114", "D120", "D121", "D206") for each in errors
        )


@pytest.mark.long
def test_the_library_itself_reads_the_same_values(tmp_path):
    """MDS_PYTHON is a Python with mosaicml-streaming, in an environment of its own (see `mdsdata.py`)."""
    python = os.environ.get("MDS_PYTHON")
    if python is None:
        pytest.skip("MDS_PYTHON names no Python with mosaicml-streaming")
    code = "import mdsdata, sys; mdsdata.print_values(sys.argv[1])"
    env = {**os.environ, "PYTHONPATH": str(Path(mdsdata.__file__).parent)}
    done = subprocess.run(
        [python, "-c", code, str(FILES / "all")], env=env, capture_output=True, text=True, check=True
    )
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [sample for path in sorted(FILES.glob("all/*.mds")) for sample in read(path.read_bytes())[0]]
    assert len(theirs) == len(ours)
    for row, sample in zip(theirs, ours, strict=True):
        assert row == {name: show(sample[name], COLUMNS[name]) for name in COLUMNS}


def test_policies_and_find_know_the_shards_of_a_local_index(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "index.json").write_text(index_of(["a.mds", "b.mds"]))
    (tmp_path / "s.yaml").write_text("dataset:\n  - {name: a, shards: '@old/index.json'}\n")
    (tmp_path / "p.yaml").write_text("retired:\n  - {shards: '*/old/b.mds', reason: withdrawn}\n")
    out, _ = within("validate", "s.yaml", "--policy", "p.yaml", folder=tmp_path, code=1)
    assert "P102" in out
    assert "cannot be known" not in out
    (tmp_path / "p.yaml").write_text("retired:\n  - {shards: '*/old/c.mds', reason: withdrawn}\n")
    assert "P102" not in within("validate", "s.yaml", "--policy", "p.yaml", folder=tmp_path)[0]
    assert "s.yaml" in within("find", "old/b.mds", ".", folder=tmp_path)[0]
