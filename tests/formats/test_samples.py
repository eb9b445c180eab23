from __future__ import annotations

import io
import tarfile
import warnings

import pytest

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import CHUNK
from wdspec.formats.tar.members import iter_members
from wdspec.formats.tar.reader import ShardWarning, TarSamples, count_samples
from wdspec.spec.language.samples import KeyRule

PAIRS = [(f"{key}.{suffix}", f"{key}{suffix}".encode()) for key in "abcdefghij" for suffix in ("jpg", "cls")]


def test_adjacent_members_with_one_key_are_one_sample(pack, read):
    samples, error = read(pack([("a.jpg", b"1"), ("a.CLS", b"2"), ("b.seg.jpg", b"3"), ("b.", b"")]))
    assert error is None
    assert [list(sample.items()) for sample in samples] == [
        [("__key__", "a"), ("jpg", b"1"), ("cls", b"2")],
        [("__key__", "b"), ("seg.jpg", b"3"), ("", b"")],
    ]


def test_constants_come_after_the_key(pack, read):
    constants = {"__url__": "gs://b/x.tar", "__source__": "s"}
    samples, _ = read(pack([("a.jpg", b"1")]), constants=constants)
    assert list(samples[0].items()) == [("__key__", "a"), *constants.items(), ("jpg", b"1")]


def test_members_without_a_key_are_skipped_and_split_no_sample(pack, read):
    between = ["d/", ".x.jpg", "README", "d/._a.jpg", "__meta__/x.json", "__index__"]
    files = [
        ("a.jpg", b"1"),
        *((name, b"") for name in between),
        ("a.cls", b"2"),
        ("noext", b"x"),
        ("b.jpg", b"3"),
    ]
    samples, error = read(pack(files))
    assert error is None
    assert samples == [{"__key__": "a", "jpg": b"1", "cls": b"2"}, {"__key__": "b", "jpg": b"3"}]


def test_a_meta_name_similar_to_a_sample_key_is_skipped(pack, read):
    samples, _ = read(pack([("__a__.json", b"1"), ("__a__.txt__", b"2"), ("__a__.cls", b"3")]))
    assert samples == [{"__key__": "__a__", "json": b"1", "cls": b"3"}]


def test_dots_in_folder_names_do_not_split_names(pack, read):
    samples, _ = read(pack([("a.jpg", b"1"), ("a.d/x.jpg", b"2"), ("a.d/x.cls", b"3")]))
    assert samples == [{"__key__": "a", "jpg": b"1"}, {"__key__": "a.d/x", "jpg": b"2", "cls": b"3"}]


def test_last_dot_separates_keys_with_a_common_prefix(pack, read):
    files = [("a.jpg", b"1"), ("a.b.jpg", b"2"), ("a.b.cls", b"3"), ("a.c.jpg", b"4")]
    samples, error = read(pack(files), key_rule=KeyRule(kind="last_dot"))
    assert error is None
    assert [(sample.pop("__key__"), sample) for sample in samples] == [
        ("a", {"jpg": b"1"}),
        ("a.b", {"jpg": b"2", "cls": b"3"}),
        ("a.c", {"jpg": b"4"}),
    ]


def test_a_regex_can_match_the_field_anywhere_in_the_name(pack, read):
    rule = KeyRule(kind="regex", regex=r"(?:\w+)/(\d+)[.](\w+)")
    samples, _ = read(
        pack([("x/1.jpg", b"1"), ("y/1.cls", b"2"), ("y/2.jpg", b"3"), ("z.jpg", b"")]), key_rule=rule
    )
    assert samples == [{"__key__": "1", "jpg": b"1", "cls": b"2"}, {"__key__": "2", "jpg": b"3"}]


def test_field_of_sees_the_suffix_as_written_and_names_the_field(pack, read):
    seen = []

    def field_of(suffix):
        seen.append(suffix)
        return {"JPG": "image", "cls": None}.get(suffix)

    samples, _ = read(
        pack([("a.JPG", b"1"), ("a.cls", b"2"), ("b.JPG", b"3"), ("b.cls", b"4")]), field_of=field_of
    )
    assert set(seen) == {"JPG", "cls"}
    assert samples == [{"__key__": "a", "image": b"1"}, {"__key__": "b", "image": b"3"}]


def test_a_sample_of_unwanted_members_is_yielded_without_fields(pack, read):
    samples, _ = read(pack(PAIRS[:4]), field_of=lambda suffix: None)
    assert samples == [{"__key__": "a"}, {"__key__": "b"}]


def test_very_long_suffixes_are_read(pack, read, reference):
    data = pack([(f"k{n % 7}x{n}.{n}.jpg", b"%d" % n) for n in range(11_000)])
    samples, error = read(data)
    assert error is None
    assert samples == reference(data)


@pytest.mark.parametrize("suffix", ["jpg", "JPG"])
def test_a_duplicate_member_is_an_error_that_costs_only_its_sample(pack, read, suffix):
    data = pack([*PAIRS[:4], ("b." + suffix, b"2"), *PAIRS[4:6]])
    samples, error = read(data)
    assert [sample["__key__"] for sample in samples] == ["a"]
    assert "duplicate member" in error.message
    assert error.place == {"offset": 4096, "key": "b", "member": "b." + suffix}
    errors = []
    samples, error = read(data, on_error=errors.append)
    assert error is None
    assert [sample["__key__"] for sample in samples] == ["a", "c"]
    assert len(errors) == 1


def test_two_members_that_become_one_field_are_an_error(pack, read):
    _, error = read(pack([("a.jpg", b"1"), ("a.png", b"2")]), field_of=lambda suffix: "image")
    assert "both become the field 'image'" in str(error)


def test_no_member_overwrites_the_key_or_a_constant(pack, read):
    for name in ("a.__key__", "a.__url__"):
        samples, error = read(pack([(name, b"1")]), constants={"__url__": "x"})
        assert samples == []
        assert "would overwrite" in str(error)


def test_a_repeated_key_is_an_error_that_costs_only_the_second_part(pack, read):
    data = pack([("0.a", b"1"), ("1.a", b"2"), ("0.b", b"3"), ("0.c", b"4"), ("2.a", b"5")])
    samples, error = read(data, constants={"__url__": "u", "__source__": "s"})
    assert [sample["__key__"] for sample in samples] == ["0", "1"]
    assert "other keys since" in error.message
    assert error.place == {"offset": 2048, "key": "0", "member": "0.b", "url": "u", "source": "s"}
    errors = []
    reader = TarSamples(io.BytesIO(data), on_error=errors.append)
    assert [(sample["__key__"], reader.next_index) for sample in reader] == [("0", 1), ("1", 2), ("2", 4)]
    assert len(errors) == 1


def test_only_the_reader_of_a_residue_reports_its_bad_sample(pack, read):
    data = pack([("0.a", b"1"), ("1.a", b"2"), ("1.A", b"3"), ("2.a", b"4")])
    assert read(data, stride=2, residue=0)[1] is None
    assert "duplicate" in str(read(data, stride=2, residue=1)[1])


def test_an_error_raised_by_the_policy_ends_reading(pack, read):
    class OverBudgetError(ShardError):
        pass

    def policy(error):
        raise OverBudgetError("too many") from error

    for data in (pack([("a.x", b""), ("a.x", b"")]), pack([("a.x", b"")])[:600]):
        with pytest.raises(OverBudgetError, match="too many"):
            list(TarSamples(io.BytesIO(data), on_error=policy))


def test_a_broken_header_ends_the_shard_with_an_error(pack, read):
    data = bytearray(pack(PAIRS))
    data[4 * 2048 + 3] ^= 1
    errors = []
    samples, error = read(bytes(data), on_error=errors.append)
    assert error is None
    assert [sample["__key__"] for sample in samples] == ["a", "b", "c"]
    (error,) = errors
    assert "bad checksum" in error.message
    assert "what follows in this shard cannot be read" in error.message
    assert error.place == {"offset": 4 * 2048, "key": "d"}


class TestEnd:
    """What may follow the last member: two zero blocks, then zeros."""

    def test_the_last_sample_is_delivered_after_the_end_marker(self, pack, read):
        data = pack(PAIRS).rstrip(b"\0")
        data += bytes(-len(data) % 512)
        for zeros in (0, 100, 512, 1000):
            samples, error = read(data + bytes(zeros))
            assert len(samples) == 9
            assert "no end marker" in error.message
            assert "lenient" in error.message
            assert error.place == {"offset": len(data), "key": "j"}

    def test_lenient_turns_a_missing_marker_into_a_warning(self, pack, read):
        data = pack(PAIRS).rstrip(b"\0")
        data += bytes(-len(data) % 512)
        for zeros in (0, 100, 512, 1000):
            with pytest.warns(ShardWarning, match=r"no end marker.*url u") as warned:
                samples, error = read(data + bytes(zeros), lenient_end=True, constants={"__url__": "u"})
            assert (len(samples), error, len(warned)) == (10, None, 1)

    def test_lenient_tolerates_nothing_else(self, pack, read):
        data = pack([*PAIRS[:-1], ("j.cls", bytes(600))])
        whole = len(data.rstrip(b"\0")) // 512 * 512 + 512 + 1024
        for size in (whole - 1, whole - 512, whole - 1000):
            samples, error = read(data[:size], lenient_end=True)
            assert len(samples) == 9
            assert "truncated" in error.message
            assert error.place["member"] == "j.cls"

    def test_one_zero_block_before_more_members_is_not_the_end(self, pack, read):
        data = pack(PAIRS)
        damaged = data[: 8 * 1024] + bytes(512) + data[8 * 1024 :]
        for lenient in (False, True):
            samples, error = read(damaged, lenient_end=lenient)
            assert len(samples) == 3
            assert "after 1 zero block" in error.message

    def test_a_concatenated_tar_is_reported_after_the_first_is_delivered(self, pack, read):
        first = pack(PAIRS)
        samples, error = read(first + pack(PAIRS))
        assert len(samples) == 10
        assert "concatenated tar" in error.message
        assert error.place == {"offset": len(first)}

    def test_other_bytes_after_the_marker_are_an_error(self, pack, read):
        samples, error = read(pack(PAIRS) + b"x")
        assert len(samples) == 10
        assert "other than zeros" in error.message

    def test_the_end_marker_can_be_padded_to_twenty_blocks(self, pack, read):
        for count in range(1, 31):
            data = pack([(f"{n}.x", b"1") for n in range(count)])
            samples, error = read(data)
            assert (len(samples), error) == (count, None)
            content = len(data.rstrip(b"\0")) // 512 * 512 + 512
            assert read(data[:content] + bytes(1024))[1] is None
            assert read(data[:content] + bytes(10_752))[1] is None

    @pytest.mark.parametrize("size", [10_753, 700_001])
    def test_more_trailing_zeros_are_an_error_that_costs_the_last_sample(self, pack, read, size):
        data = pack(PAIRS).rstrip(b"\0")
        data += bytes(-len(data) % 512)
        samples, error = read(data + bytes(size))
        assert len(samples) == 9  # zeros may have started within the last one
        assert f"{size} zero bytes, while a writer" in error.message
        assert "lenient" in error.message
        assert error.place == {"offset": len(data), "key": "j"}
        with pytest.warns(ShardWarning, match=f"{size} zero bytes"):
            samples, error = read(data + bytes(size), lenient_end=True)
        assert (len(samples), error) == (10, None)

    @pytest.mark.parametrize("lenient", [False, True])
    def test_a_shard_without_members_is_an_error_unless_allowed(self, pack, read, lenient):
        assert "empty: 0 bytes" in str(read(b"", lenient_end=lenient, may_be_empty=True)[1])
        assert read(pack([]), lenient_end=lenient, may_be_empty=True) == ([], None)
        samples, error = read(pack([]), lenient_end=lenient)
        assert samples == []
        assert "no members" in error.message
        assert "`empty: allow`" in error.message

    @pytest.mark.parametrize("lenient", [False, True])
    def test_a_shard_of_zeros_is_an_error(self, read, lenient):
        for size in (20_480, 1_000_000):
            assert f"{size} zero bytes" in read(bytes(size), lenient_end=lenient)[1].message


def test_failing_reads_are_shard_errors(pack):
    class Failing(io.BytesIO):
        def read(self, size=-1):
            if self.tell() >= 512 * 1024:
                raise OSError(5, "Input/output error")
            return super().read(size)

    samples = TarSamples(Failing(pack([(f"{n}.x", bytes(99_000)) for n in range(20)])))
    with pytest.raises(ShardError, match="Input/output error") as caught:
        list(samples)
    assert caught.value.place["offset"] > 400_000
    assert isinstance(caught.value.__cause__, OSError)


class Spy(io.BytesIO):
    """Counts the bytes read."""

    total = 0

    def read(self, size=-1):
        data = super().read(size)
        self.total += len(data)
        return data


def test_large_unwanted_members_are_not_read(pack):
    data = pack(
        [
            (f"{n}.{suffix}", bytes(size))
            for n in range(3)
            for suffix, size in (("mp4", 9_000_000), ("cls", 1))
        ]
    )
    file = Spy(data)
    wanted = TarSamples(file, field_of={"cls": "cls"}.get)
    assert [sample["cls"] for sample in wanted] == [b"\0"] * 3
    assert file.total < 3_000_000
    file = Spy(data)
    assert count_samples(file) == 3
    assert file.total < 3_000_000


@pytest.mark.parametrize("size", [1, 700, 5000, 16_000, 39_999])
def test_a_window_takes_one_read_wherever_members_cross_its_end(pack, size):
    bodies = [bytes([number % 251]) * (size + number % 3) for number in range(1_000_000 // size % 2000 + 30)]
    data, reads = pack([(f"{number:05}.bin", body) for number, body in enumerate(bodies)]), []

    class Counting(io.BytesIO):
        def read(self, size=-1):
            reads.append(size)
            return super().read(size)

    assert [sample["bin"] for sample in TarSamples(Counting(data))] == bodies
    windows = -(-len(data) // CHUNK)
    assert len(reads) <= (windows + 3 if size <= 16_000 else 2 * windows + 3)


def test_a_truncated_large_unwanted_member_is_detected(pack, read):
    data = pack([("a.mp4", bytes(9_000_000)), ("a.cls", b"1")])[:8_000_000]
    samples, error = read(data, field_of={"cls": "cls"}.get, lenient_end=True)
    assert samples == []
    assert "ends at byte 8000000" in error.message
    assert error.place == {"offset": 0, "key": "a", "member": "a.mp4"}


@pytest.mark.parametrize("stride", [1, 2, 3, 20])
def test_residues_partition_the_samples(pack, read, stride):
    data = pack(PAIRS)
    whole, _ = read(data)
    for residue in range(stride):
        assert read(data, stride=stride, residue=residue) == (whole[residue::stride], None)


MANY = [
    (f"{n:03}.{suffix}", bytes(n * size))
    for n in range(40)
    for suffix, size in (("x", 1), ("y", 900), ("z", 13))
]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("stride", [1, 3])
def test_a_reader_resumes_exactly_where_another_stopped(pack, read, trickle, format, stride):
    long = [("d" * 90 + f"/{'é' * 40}{n}.x", b"%d" % n) for n in range(5)]
    data = pack([*MANY, ("folder/", b""), *long], format, mtime=1.5)
    reader = TarSamples(io.BytesIO(data), stride=stride, residue=stride - 1)
    samples, stops = [], [(0, 0)]
    for sample in reader:
        samples.append(sample)
        stops.append((reader.next_offset, reader.next_index))
    assert len(samples) == 45 // stride
    for emitted, (offset, index) in enumerate(stops):
        options = {"offset": offset, "index": index, "stride": stride, "residue": stride - 1}
        assert read(data, **options) == (samples[emitted:], None)
        assert list(TarSamples(trickle(data), **options)) == samples[emitted:]


def test_an_offset_that_is_not_a_header_or_beyond_the_end_is_an_error(pack, read):
    data = pack(PAIRS)
    assert "bad checksum" in str(read(data, offset=512)[1])
    assert "ends at byte" in str(read(data, offset=len(data) + 512)[1])


def test_short_reads_change_nothing(pack, read, trickle):
    data = pack(MANY)
    for step in (1, 511, 512, 4000):
        assert list(TarSamples(trickle(data, step))) == read(data)[0]


def test_an_unbuffered_file_reads_like_one_in_memory(pack, read, tmp_path):
    data = pack(MANY)
    (tmp_path / "x.tar").write_bytes(data)
    with open(tmp_path / "x.tar", "rb", buffering=0) as file:
        assert list(TarSamples(file)) == read(data)[0]


class TestLinks:
    """Hard links hold their file's data; other links and devices hold none."""

    @staticmethod
    def tar(*entries):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, type, content in entries:
                info = tarfile.TarInfo(name)
                info.type = type
                if type == tarfile.REGTYPE:
                    info.size = len(content)
                else:
                    info.linkname = content
                tar.addfile(info, io.BytesIO(content) if type == tarfile.REGTYPE else None)
        return out.getvalue()

    def test_hard_links_are_resolved(self, read):
        data = self.tar(
            ("./a.jpg", tarfile.REGTYPE, b"first"),
            ("./b.jpg", tarfile.LNKTYPE, "a.jpg"),
            ("b.cls", tarfile.REGTYPE, b"0"),
            ("./c.jpg", tarfile.LNKTYPE, "./b.jpg"),
            ("./c.cls", tarfile.REGTYPE, b"1"),
        )
        samples, error = read(data)
        assert error is None
        assert [list(sample.values()) for sample in samples] == [
            ["./a", b"first"],
            ["./b", b"first"],
            ["b", b"0"],
            ["./c", b"first", b"1"],
        ]

    def test_unwanted_hard_links_are_ignored(self, read, trickle):
        data = self.tar(("a.cls", tarfile.REGTYPE, b"1"), ("a.jpg", tarfile.LNKTYPE, "gone.jpg"))
        assert list(TarSamples(trickle(data), field_of={"cls": "cls"}.get)) == [{"__key__": "a", "cls": b"1"}]

    @pytest.mark.parametrize("target", ["gone.jpg", "b.jpg", "later.jpg"])
    def test_a_hard_link_to_no_earlier_file_costs_its_sample(self, read, target):
        data = self.tar(
            ("a.jpg", tarfile.REGTYPE, b"1"),
            ("b.jpg", tarfile.LNKTYPE, target),
            ("later.jpg", tarfile.REGTYPE, b"2"),
        )
        errors = []
        samples, _ = read(data, on_error=errors.append)
        assert [sample["__key__"] for sample in samples] == ["a", "later"]
        assert "hard link" in errors[0].message
        assert "--hard-dereference" in errors[0].message
        assert errors[0].place["member"] == "b.jpg"

    def test_a_stream_reports_hard_links(self, trickle):
        data = self.tar(("a.jpg", tarfile.REGTYPE, b"1"), ("b.jpg", tarfile.LNKTYPE, "a.jpg"))
        with pytest.raises(ShardError, match="hard-dereference"):
            list(TarSamples(trickle(data)))

    @pytest.mark.parametrize(
        ("type", "what"),
        [
            (tarfile.SYMTYPE, "a symbolic link to 'x'"),
            (tarfile.CHRTYPE, "a device"),
            (tarfile.BLKTYPE, "a device"),
            (tarfile.FIFOTYPE, "a FIFO"),
        ],
    )
    def test_a_member_without_data_costs_its_sample(self, read, type, what):
        data = self.tar(
            ("a.cls", tarfile.REGTYPE, b"1"),
            ("a.jpg", type, "x"),
            ("b.jpg", type, "x"),
            ("c.cls", tarfile.REGTYPE, b"2"),
        )
        errors = []
        samples, _ = read(data, on_error=errors.append)
        assert samples == [{"__key__": "c", "cls": b"2"}]
        assert [error.place["member"] for error in errors] == ["a.jpg", "b.jpg"]
        assert what in errors[0].message
        assert "tar --dereference" in errors[0].message

    @pytest.mark.parametrize("type", [tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
    def test_a_member_without_data_is_ignored_if_not_selected(self, read, type):
        data = self.tar(("a.cls", tarfile.REGTYPE, b"1"), ("a.jpg", type, "x"), ("link", type, "y"))
        assert read(data, field_of={"cls": "cls"}.get) == ([{"__key__": "a", "cls": b"1"}], None)

    def test_folders_belong_to_no_sample(self, read):
        data = self.tar(("a.cls", tarfile.REGTYPE, b"1"), ("a.jpg", tarfile.DIRTYPE, ""))
        assert read(data) == ([{"__key__": "a", "cls": b"1"}], None)


def test_an_undamaged_shard_causes_no_warning(pack, read):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(pack(PAIRS), lenient_end=True)[1] is None


def test_iter_members_returns_the_offset_of_every_member(pack):
    data = pack([("a.jpg", b"123"), ("d/", b""), ("é" * 90 + ".x", bytes(1000))], tarfile.PAX_FORMAT)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        expected = [(info.name, info.type, info.offset, info.offset_data, info.size) for info in tar]
    members = iter_members(io.BytesIO(data))
    assert [(m.name.decode(), m.type, m.offset, m.data_offset, m.size) for m in members] == expected
