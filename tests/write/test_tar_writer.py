"""`TarWriter`: one whole shard, the same bytes each time, and only content that can be read back."""

import io
import os
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import wdspec
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.reader import TarSamples

SAMPLE = {"__key__": "a/000", "txt": "seven", "cls": 7}


def rewound(file):
    file.seek(0)
    return file


def read(path):
    with open(path, "rb") as file:
        return list(TarSamples(decompress(file)))


def test_a_sample_becomes_one_member_for_each_field_sorted_by_name(tmp_path):
    with wdspec.TarWriter(tmp_path / "a.tar") as writer:
        writer.write({"__key__": "k", "png": b"p", "cls": 3, "b.txt": "x"})
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == ["k.b.txt", "k.cls", "k.png"]
    assert read(tmp_path / "a.tar") == [{"__key__": "k", "b.txt": b"x", "cls": b"3", "png": b"p"}]


def test_the_same_samples_give_the_same_bytes_at_any_time_and_field_order(tmp_path):
    files = []
    for sample in (SAMPLE, dict(reversed(SAMPLE.items()))):
        file = io.BytesIO()
        with wdspec.TarWriter(file, compress=True) as writer:
            writer.write({**sample, "npz": {"a": np.arange(3)}, "json.gz": {"x": 1}})
        files.append(file.getvalue())
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("name", "magic"),
    [("a.tar.gz", b"\x1f\x8b"), ("a.tgz", b"\x1f\x8b"), ("a.tar.bz2", b"BZh"), ("a.txz", b"\xfd7zXZ"),
     ("a.tar.zst", b"\x28\xb5\x2f\xfd")],
)  # fmt: skip
def test_the_name_sets_the_compression(tmp_path, name, magic):
    with wdspec.TarWriter(tmp_path / name) as writer:
        writer.write(SAMPLE)
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert read(tmp_path / name) == [{"__key__": "a/000", "cls": b"7", "txt": b"seven"}]


def test_an_argument_sets_the_compression(tmp_path):
    for compress, magic in [("gz", b"\x1f\x8b"), ("xz", b"\xfd7zXZ"), (False, b"k.cls")]:
        with wdspec.TarWriter(str(tmp_path / "a.tar.gz"), compress=compress) as writer:
            writer.write({"__key__": "k", "cls": 1})
        assert (tmp_path / "a.tar.gz").read_bytes().startswith(magic)
    with pytest.raises(wdspec.UsageError, match="unknown compression 'lz4'"):
        wdspec.TarWriter(tmp_path / "x.tar", compress="lz4")


def test_an_exception_removes_everything(tmp_path):
    def fail():
        with wdspec.TarWriter(tmp_path / "a.tar") as writer:
            writer.write(SAMPLE)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert os.listdir(tmp_path) == []


def test_a_killed_writer_leaves_no_file_with_the_final_name(tmp_path):
    code = (
        "import os, wdspec\n"
        f"writer = wdspec.ShardWriter({str(tmp_path)!r} + '/a-%d.tar', maxcount=10, verbose=0)\n"
        "for n in range(25): writer.write({'__key__': str(n), 'bin': os.urandom(500_000)})\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert sorted(os.listdir(tmp_path)) == [".a-2.tar.partial", "a-0.tar", "a-1.tar"]
    assert sum(len(read(tmp_path / f"a-{n}.tar")) for n in range(2)) == 20


def test_a_writer_that_is_never_closed_warns_and_leaves_nothing(tmp_path):
    writer = wdspec.TarWriter(tmp_path / "a.tar")
    writer.write(SAMPLE)
    with pytest.warns(UserWarning, match=r"a\.tar was not closed, so its 1 samples are lost"):
        del writer
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "kind", ["ShardWriter(pattern, maxcount=2, verbose=0)", "RecordWriter(pattern % 0, 'jsonl')"]
)
@pytest.mark.parametrize(
    "reach", ["", "me = [writer]; me.append(me); writer.me = me", "sys.modules['kept'] = writer"]
)
def test_a_program_that_exits_without_closing_its_writer_warns(tmp_path, kind, reach):
    code = f"""
import os, sys, wdspec
pattern = {str(tmp_path)!r} + '/a-%d.tar'
writer = wdspec.{kind}
for n in range(5):
    writer.write({{'__key__': str(n), 'cls': n}})
{reach}
sys.stderr.flush()
if os.fork() == 0:
    sys.exit()
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shards, last, lost = (["a-0.tar", "a-1.tar"], "a-2.tar", 1) if "Shard" in kind else ([], "a-0.tar", 5)
    assert done.stderr.count("was not closed") == 1
    assert (
        f"{last} was not closed, so its {lost} samples are lost; use `with`, or call `close()`" in done.stderr
    )
    assert "Exception ignored" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == shards


def test_a_sample_that_cannot_be_encoded_leaves_no_trace(tmp_path):
    with wdspec.TarWriter(tmp_path / "a.tar") as writer:
        writer.write(SAMPLE)
        with pytest.raises(wdspec.FieldError, match=r"3\.5 is not an integer.*\[key a/001, field txt\.cls\]"):
            writer.write({"__key__": "a/001", "jpg": b"fine", "txt.cls": 3.5})
        writer.write({"__key__": "a/001", "cls": 1})
    assert [sample["__key__"] for sample in read(tmp_path / "a.tar")] == ["a/000", "a/001"]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("a/b.c", "would be read as 'a/b'"),
        ("", "give each sample a unique str"),
        ("a/", "is not a file name"),
        ("/a", "absolute path"),
        ("a/../../b", "leaves its folder"),
        (".a", "like a hidden file"),
        ("a\0b", "NUL"),
        ("__index__/a", "`__meta__` file"),
        (7, "`__key__` is 7, which is not a str"),
        (None, "the sample has no `__key__`"),
    ],
)
def test_keys_that_would_not_round_trip_are_rejected(key, said):
    with pytest.raises(wdspec.FieldError, match=said):
        wdspec.TarWriter(io.BytesIO()).write({"__key__": key, "cls": 1})


def test_a_dot_is_allowed_in_a_folder_and_with_last_dot_in_the_key():
    file = io.BytesIO()
    with wdspec.TarWriter(file) as writer:
        writer.write({"__key__": "v1.2/a", "cls": 1})
    assert next(iter(TarSamples(rewound(file))))["__key__"] == "v1.2/a"
    writer = wdspec.TarWriter(io.BytesIO(), key="last_dot")
    writer.write({"__key__": "v1.2", "cls": 1})
    with pytest.raises(wdspec.FieldError, match="with `key='last_dot'`, it cannot contain a dot"):
        writer.write({"__key__": "v1.3", "seg.png": b""})
    writer.abort()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({".png": b""}, "write 'png', without a leading dot"),
        ({"a/png": b""}, "cannot contain a slash"),
        ({"": b""}, "write 'an extension'"),
        ({7: b""}, "the name of a field is 7"),
        ({"JPG": b"", "jpg": b""}, "the same name except for case"),
        ({}, "the sample has no fields"),
    ],
)
def test_fields_that_would_not_round_trip_are_rejected(fields, said):
    writer = wdspec.TarWriter(io.BytesIO(), encoder=lambda sample: sample)
    with pytest.raises((wdspec.FieldError), match=said):
        writer.write({"__key__": "a", **fields})


def test_a_repeated_key_is_rejected():
    writer = wdspec.TarWriter(io.BytesIO())
    writer.write(SAMPLE)
    with pytest.raises(wdspec.FieldError, match="already has a sample with the same key"):
        writer.write(SAMPLE)
    writer.abort()


def test_without_an_encoder_values_are_bytes_or_text():
    file = io.BytesIO()
    with wdspec.TarWriter(file, encoder=False) as writer:
        writer.write({"__key__": "a", "png": b"p", "txt": "t", "bin": bytearray(b"b")})
        with pytest.raises(wdspec.FieldError, match=r"int instead of bytes.*\[key b, field cls\]"):
            writer.write({"__key__": "b", "cls": 7})
    assert list(TarSamples(rewound(file))) == [{"__key__": "a", "bin": b"b", "png": b"p", "txt": b"t"}]


def test_entries_that_start_with_an_underscore_are_kept_on_request():
    sample = {"__key__": "a", "__url__": "u", "__source__": "s", "_note": "n", "cls": 1}
    for keep, fields in [(False, {"cls": b"1"}), (True, {"cls": b"1", "_note": b"n"})]:
        file = io.BytesIO()
        with wdspec.TarWriter(file, keep_meta=keep) as writer:
            writer.write(sample)
        assert list(TarSamples(rewound(file))) == [{"__key__": "a", **fields}]


def test_a_file_object_stays_open_and_no_samples_write_an_empty_tar():
    file = io.BytesIO()
    wdspec.TarWriter(file).close()
    assert list(TarSamples(rewound(file), may_be_empty=True)) == []
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as tar:
        assert tar.getnames() == []


def test_a_closed_writer_accepts_no_samples():
    writer = wdspec.TarWriter(io.BytesIO())
    writer.close()
    writer.close()
    with pytest.raises(wdspec.UsageError, match="the writer is closed"):
        writer.write(SAMPLE)


def test_user_group_mode_and_time_can_be_set():
    file = io.BytesIO()
    with wdspec.TarWriter(file, user="me", group="us", mode=0o600, mtime=12) as writer:
        writer.write(SAMPLE)
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        info = tar.next()
    assert (info.uname, info.gname, info.mode, info.mtime) == ("me", "us", 0o600, 12)


def test_a_failed_write_discards_the_shard_and_close_reports_it(tmp_path):
    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError(28, "No space left on device")

    writer = wdspec.TarWriter(Full())
    with pytest.raises(OSError, match="No space left"):
        writer.write(SAMPLE)
    with pytest.raises(wdspec.WdspecError, match="the shard was discarded when a write failed"):
        writer.close()
