"""Shards of CBOR, MessagePack and JSON lines: whole records, exact offsets, and errors with offsets."""

import io
import json
import re

import cbor2
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wdspec
from wdspec.base.errors import ShardError, install_command
from wdspec.fields.codecs.text import read_cbor
from wdspec.formats import records
from wdspec.formats.records import MAX_DEPTH, RecordSamples, splitter_of

FORMATS = ("cbor", "msgpack", "jsonl")
DUMPS = {
    "cbor": cbor2.dumps,
    "msgpack": msgpack.packb,
    "jsonl": lambda value: json.dumps(value).encode() + b"\n",
}


def pack(format, values):
    return b"".join(map(DUMPS[format], values))


def samples(count, format="cbor", size=20):
    fill = "x" * size if format == "jsonl" else b"x" * size
    return [{"__key__": f"k{n}", "n": n, "bin": fill} for n in range(count)]


def reader(data, format, **options):
    file = data if hasattr(data, "read") else io.BytesIO(data)
    return RecordSamples(file, splitter_of(format), **{"may_be_empty": True, **options})


def read(data, format, **options):
    """The samples before the first error, and the error."""
    found = []
    try:
        for sample in reader(data, format, **options):
            found.append(sample)
    except ShardError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("format", FORMATS)
def test_each_record_is_a_sample_with_the_constants_and_its_own_values(format):
    data = pack(format, [{"__key__": "a", "TXT": "t", "n": [1, {"x": None}]}])
    found, error = read(data, format, constants={"__url__": "u", "__source__": "s"})
    assert error is None
    assert found == [{"__key__": "a", "__url__": "u", "__source__": "s", "txt": "t", "n": [1, {"x": None}]}]


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(0, 12), size=st.integers(0, 200), chunk=st.integers(1, 300), start=st.integers(0, 12)
)
def test_reading_resumes_at_any_sample_with_any_chunk_size(format, count, size, chunk, start):
    expected = samples(count, format, size)
    data = pack(format, expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "CHUNK", chunk)
        first = reader(data, format)
        places = [(0, 0)] + [(first.next_offset, first.next_index) for _ in first]
        assert (first.next_offset, first.next_index) == (len(data), count)
        offset, index = places[min(start, count)]
        assert read(data, format, offset=offset, index=index) == (expected[min(start, count) :], None)


@pytest.mark.parametrize("format", FORMATS)
def test_an_unseekable_stream_is_read_from_any_offset(format, trickle):
    expected = samples(50, format)
    data = pack(format, expected)
    places = [(0, 0)]
    first = reader(data, format)
    places += [(first.next_offset, first.next_index) for _ in first]
    for offset, index in places[::7]:
        assert read(trickle(data, 37), format, offset=offset, index=index) == (expected[index:], None)


@pytest.mark.parametrize("format", FORMATS)
def test_parts_by_stride_and_residue_cover_every_sample(format):
    expected = samples(23, format)
    data = pack(format, expected)
    parts = [read(data, format, stride=3, residue=r)[0] for r in range(3)]
    assert [parts[n % 3][n // 3] for n in range(23)] == expected


@pytest.mark.parametrize("format", FORMATS)
def test_a_truncated_record_is_an_error_at_its_first_byte(format):
    expected = samples(5, format)
    data = pack(format, expected)
    ends = [len(pack(format, expected[:n])) for n in range(6)]
    for cut in range(len(data)):
        found, error = read(data[:cut], format, constants={"__url__": "u"})
        whole = sum(end <= cut for end in ends) - 1
        if format == "jsonl" and cut + 1 in ends:
            whole += 1  # all but its newline
            assert (len(found), error) == (whole, None)
        elif cut in ends:
            assert (len(found), error) == (whole, None)
        else:
            assert len(found) == whole
            assert error.place["offset"] == ends[whole]
            assert "truncated" in str(error)
            assert error.place["url"] == "u"


class Failing(io.BytesIO):
    """A stream that cannot be read beyond what it has."""

    def seekable(self):
        return False

    def read(self, size=-1):
        if not (data := super().read(size)):
            raise ShardError("the line is dead")
        return data


@pytest.mark.parametrize("format", FORMATS)
def test_complete_records_before_a_failing_read_are_delivered(format):
    expected = samples(5, format)
    data = pack(format, expected)
    ends = [len(pack(format, expected[:n])) for n in range(6)]
    for cut in range(1, len(data) + 1):
        found, error = read(Failing(data[:cut]), format)
        assert [sample["n"] for sample in found] == list(range(sum(end <= cut for end in ends) - 1))
        assert "the line is dead" in str(error)


@pytest.mark.parametrize("format", ["cbor", "msgpack"])
def test_garbage_is_an_error_with_its_offset_and_ends_the_shard(format):
    data = pack(format, samples(3)) + (b"\x1c" if format == "cbor" else b"\xc1") + pack(format, samples(3))
    found, error = read(data, format)
    assert len(found) == 3
    assert error.place["offset"] == len(pack(format, samples(3)))
    assert "what follows in this shard cannot be read" in str(error)
    noted = []
    found, error = read(data, format, on_error=noted.append)
    assert (len(found), error, len(noted)) == (3, None, 1)


def test_a_line_that_is_not_json_costs_only_itself():
    data = b'{"n": 1}\n{"n": \n\n{"n": 3}'
    found, error = read(data, "jsonl")
    assert [sample["n"] for sample in found] == [1]
    assert error.place["offset"] == 9
    noted = []
    found, _ = read(data, "jsonl", on_error=noted.append)
    assert [(sample["__key__"], sample["n"]) for sample in found] == [("0", 1), ("2", 3)]
    assert "a line is not JSON" in str(noted[0])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, 2], "a record is a list"),
        ({"a": 1, "A": 2}, "both become 'a'"),
        ({"__key__": [1], "a": 1}, r"the `__key__` of a record is \[1\]"),
    ],
)
def test_a_record_that_is_not_a_sample_is_an_error_and_the_next_one_is_found(format, value, said):
    good = {"__key__": "good", "n": 1}
    data = pack(format, [good, value, good])
    noted = []
    found, _ = read(data, format, on_error=noted.append)
    assert [sample["n"] for sample in found] == [1, 1]
    (error,) = noted
    assert error.place["offset"] == len(pack(format, [good]))
    with pytest.raises(ShardError, match=said):
        raise error


@pytest.mark.parametrize("format", ["cbor", "msgpack"])
def test_a_field_whose_name_is_not_text_is_an_error(format):
    with pytest.raises(ShardError, match="is 7, which is not text"):
        list(reader(pack(format, [{7: 1}]), format))


def test_without_a_key_a_sample_is_named_after_its_shard_and_number():
    data = pack("jsonl", [{"n": 1}, {"__key__": 7, "n": 2}, {"n": 3}])
    found, _ = read(data, "jsonl", constants={"__url__": "gs://bucket/part-03.jsonl.gz"})
    assert [sample["__key__"] for sample in found] == ["part-03/0", "7", "part-03/2"]


@pytest.mark.parametrize("format", FORMATS)
def test_only_selected_fields_are_kept_under_their_new_name(format):
    data = pack(format, [{"__key__": "a", "jpg": "1", "txt": "2", "__note__": "3", "__url__": "4"}])
    found, _ = read(data, format, field_of={"jpg": "image"}.get, constants={"__url__": "u"})
    assert found == [{"__key__": "a", "__url__": "u", "image": "1", "__note__": "3"}]


def test_endless_nesting_is_an_error_in_every_format():
    deep = {
        "cbor": b"\x81" * (MAX_DEPTH + 1) + b"\0",
        "msgpack": b"\x91" * 5000 + b"\0",
        "jsonl": b"[" * 200_000 + b"]" * 200_000,
    }
    for format, data in deep.items():
        with pytest.raises(ShardError):
            list(reader(data, format))


def test_an_impossible_length_allocates_no_memory(monkeypatch):
    monkeypatch.setattr(records, "MAX_RECORD", 1 << 20)
    lengths = {
        "cbor": [b"\x5b" + b"\x7f" * 8, b"\x9b" + b"\x7f" * 8],
        "msgpack": [b"\xc6\x7f\xff\xff\xff", b"\xdd\x7f\xff\xff\xff"],
    }
    for format, heads in lengths.items():
        for head in heads:
            with pytest.raises(ShardError):
                list(reader(head + bytes(3_000_000), format))


def test_a_record_above_the_size_limit_is_an_error(monkeypatch):
    monkeypatch.setattr(records, "MAX_RECORD", 1 << 20)
    data = pack("cbor", samples(1, size=3_000_000))
    with pytest.raises(ShardError, match="a record has more than 1,048,576 bytes"):
        list(reader(data, "cbor"))


def test_the_message_recognizes_a_tar_with_another_suffix(pack):
    tar = pack([("a.txt", b"x")])
    for format in FORMATS:
        _, error = read(tar, format)
        assert "set `format: tar`" in str(error)


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_shard_is_an_error_unless_allowed(format):
    for data in (b"", b"\n \n") if format == "jsonl" else (b"",):
        assert read(data, format, may_be_empty=True) == ([], None)
        found, error = read(data, format, may_be_empty=False)
        assert found == []
        assert f"no records in its {len(data)} bytes" in error.message
        assert "`empty: allow`" in error.message


@pytest.mark.parametrize("format", FORMATS)
def test_zeros_are_never_records(format):
    whole = pack(format, samples(5, format))
    for data, count in ((bytes(10_000), 0), (whole + bytes(100_000), 5), (whole + b"\0", 5)):
        found, error = read(data, format)
        assert len(found) == count
        assert error is not None


def test_a_missing_library_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cbor2", None)
    with pytest.raises(wdspec.UsageError, match=re.escape(install_command("wdspec[formats]"))):
        splitter_of("cbor")


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_samples_before_any_damage_are_complete(format, data):
    expected = samples(6, format)
    whole = bytearray(pack(format, expected))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    ends = [len(pack(format, expected[:n])) for n in range(7)]
    untouched = sum(end <= place for end in ends) - 1
    found, _ = read(bytes(whole), format)
    assert found[:untouched] == expected[:untouched]


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_samples_or_a_shard_error(format, data):
    noted = []
    read(data, format)
    read(data, format, on_error=noted.append)


class Pairs(list):
    """A map as its pairs, whether or not a name occurs twice."""


def encode_value(format, value, indefinite):
    if isinstance(value, Pairs):
        return encode_pairs(format, value, indefinite)
    if isinstance(value, list):
        items = [encode_value(format, item, indefinite) for item in value]
        if format == "jsonl":
            return b"[%s]" % b",".join(items)
        if indefinite:
            return b"\x9f" + b"".join(items) + b"\xff"
        return bytes([{"cbor": 0x80, "msgpack": 0x90}[format] + len(items)]) + b"".join(items)
    if format == "jsonl":
        return json.dumps(value).encode()
    return (cbor2.dumps if format == "cbor" else msgpack.packb)(value)


def encode_pairs(format, pairs, indefinite):
    parts = [encode_value(format, part, indefinite) for pair in pairs for part in pair]
    if format == "jsonl":
        return b"{%s}" % b", ".join(map(b" : ".join, zip(parts[::2], parts[1::2], strict=True)))
    body = b"".join(parts)
    if indefinite:
        return b"\xbf" + body + b"\xff"
    small, head = {"cbor": (0xA0, b"\xb9"), "msgpack": (0x80, b"\xde")}[format]
    return (bytes([small + len(pairs)]) if len(pairs) < 16 else head + len(pairs).to_bytes(2, "big")) + body


def encode_record(format, pairs, indefinite):
    return encode_pairs(format, pairs, indefinite) + (b"\n" if format == "jsonl" else b"")


MANY = [(f"f{n}", n) for n in range(300)]
REPEATED = {
    "x": [("__key__", "b"), ("x", 1), ("x", 2)],
    "__key__": [("__key__", "b"), ("x", 1), ("__key__", "c")],
    "f7": [("__key__", "b"), *MANY, ("f7", 1)],
    "a": [("__key__", "b"), ("a", {"y": 1}), ("b", [{"y": 1}, {"y": 2}]), ("a", {"y": 1})],
}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize(("format", "indefinite"), [*((format, False) for format in FORMATS), ("cbor", True)])
def test_a_name_that_occurs_twice_in_a_record_is_an_error_and_never_the_last_value(format, indefinite, name):
    good = [("__key__", "a"), ("x", 1), ("in", [{"y": 1}, {"y": 2}])], [("__key__", "z"), *MANY]
    data = b"".join(encode_record(format, pairs, indefinite) for pairs in (good[0], REPEATED[name], good[1]))
    errors = []
    found = list(reader(data, format, on_error=errors.append))
    assert [sample["__key__"] for sample in found] == ["a", "z"]
    [error] = errors
    assert error.code == "D206"
    assert f"two values named {name!r}" in error.message


@pytest.mark.parametrize(
    "value",
    ['{"x": 1, "x": 2}', '[7, {"y": {"x": 1, "z": [3, {}], "x": 1}}]', '{"y": {}, "x": [300], "x": "é"}'],
)
@pytest.mark.parametrize(("format", "indefinite"), [*((format, False) for format in FORMATS), ("cbor", True)])
def test_a_name_that_occurs_twice_in_a_map_within_a_record_is_an_error(format, indefinite, value):
    within = json.loads(value, object_pairs_hook=Pairs)
    good = json.loads(
        '{"x": 1, "y": [{"x": 2}, {"x": [1, 1]}], "z": {"x": {"x": -70000}}}', object_pairs_hook=Pairs
    )
    records = [("a", good), ("b", within), ("c", 1), ("d", good)]
    data = b"".join(
        encode_record(format, [("__key__", key), ("m", content)], indefinite) for key, content in records
    )
    errors = []
    found = list(reader(data, format, on_error=errors.append))
    assert [sample["__key__"] for sample in found] == ["a", "c", "d"]
    assert [(error.code, "two values named 'x'" in error.message) for error in errors] == [("D206", True)]


def test_a_byte_order_mark_is_no_part_of_a_line_of_json_and_utf_16_is_named():
    found, error = read(b"\xef\xbb\xbf" + pack("jsonl", samples(2, "jsonl")), "jsonl")
    assert [sample["__key__"] for sample in found] == ["k0", "k1"]
    assert error is None
    _, error = read('{"__key__": "a"}\n'.encode("utf-16"), "jsonl")
    assert error.message == "this text is UTF-16; save it as UTF-8"


def test_expressions_and_messages_in_cbor_are_texts():
    tagged = {tag: cbor2.dumps(cbor2.CBORTag(tag, "a+: b")) for tag in (35, 36)}
    for data in tagged.values():
        samples, error = read(b"\xa2g__key__akax" + data, "cbor")
        assert error is None
        assert [each["x"] for each in samples] == ["a+: b"]
        assert read_cbor(data) == "a+: b"


ONE_IN_KEYS = b"\xa1\x01\x02"  # the map {1: 2}
SHARED, REFERENCE = b"\xd8\x1c\x81\x01", b"\xd8\x1d\x00"  # a list that others refer to (tags 28 and 29)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ((ONE_IN_KEYS, b"\x01", ONE_IN_KEYS, b"\x01"), "is not text"),
        ((b"\x01", b"\x01", b"\x01", b"\x02"), "is 1, which is not text"),
        ((b"\x61x", b"\x01", b"\x61x", b"\x02", ONE_IN_KEYS, b"\x01"), "two values named 'x'"),
        ((b"\x61x", SHARED, b"\x61x", REFERENCE), "two values named 'x'"),
    ],
)
def test_a_repeated_name_of_any_kind_is_an_error_that_says_which(pairs, said):
    data = bytes([0xA1 + len(pairs) // 2]) + cbor2.dumps("__key__") + b"\x61a" + b"".join(pairs)
    with pytest.raises(ShardError, match=said):
        list(reader(data, "cbor"))
