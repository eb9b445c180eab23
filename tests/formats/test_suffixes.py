"""One table decides which names are shards, with which format and compression."""

import os

import pytest

import wdspec
from wdspec.formats.compression import (
    COMPRESSIONS,
    SUFFIXES,
    TAR_SUFFIXES,
    compression_of,
    format_of,
    is_listed,
    stem_of,
)


@pytest.mark.parametrize("name", [f"b{suffix}" for suffix in TAR_SUFFIXES])
def test_every_tar_name_that_a_writer_accepts_is_listed_as_a_shard(name, tmp_path):
    for each in ("a.tar", name):
        with wdspec.TarWriter(str(tmp_path / each)) as writer:
            writer.write({"__key__": each.partition(".")[0], "txt": "x"})
    spec = {"dataset": [{"shards": f"{tmp_path}/", "decode": "raw"}], "batch": 1, "epoch": "pass"}
    keys = [key for batch in wdspec.compile(spec) for key in batch["__key__"]]
    assert sorted(keys) == ["a", "b"]


def test_each_suffix_has_its_format_its_compression_and_its_stem():
    for format, suffixes in SUFFIXES.items():
        for suffix in suffixes:
            for compression in (None, *COMPRESSIONS):
                for packed in compression.suffixes if compression else ("",):
                    name = f"https://h/d.e/a.b{suffix}{packed}"
                    assert format_of(name) == format_of(name.upper()) == format
                    assert compression_of(name) is compression
                    assert stem_of(name) == "a.b"
                    assert is_listed(os.path.basename(name)) is (format == "tar")
    for compression in COMPRESSIONS:
        for suffix in compression.tar_suffixes:
            assert (stem_of(f"a{suffix}"), format_of(f"a{suffix}")) == ("a", "tar")
            assert compression_of(f"a{suffix}") is compression
            assert is_listed(f"A{suffix}".upper())


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("x.jsonl#f", "jsonl"),
        ("https://h/x.jsonl.gz?sig=a/b#f", "jsonl"),
        ("https://h/a.tar?name=b.jsonl", "tar"),
        ("https://h/get?name=a.jsonl", "jsonl"),
        ("what?.cbors", "cbor"),
        ("a.jsonl/b", "tar"),
        ("a.json", "tar"),
        ("jsonl", "tar"),
    ],
)
def test_the_format_is_recognized_before_a_query_or_fragment(name, format):
    assert format_of(name) == format
    assert format_of(name, "msgpack") == "msgpack"


@pytest.mark.parametrize("name", [".a.tar", "~a.tar", "a.tar.tmp", "a.jsonl", "tar", "a.tar.lz4"])
def test_hidden_partial_and_other_files_are_not_listed(name):
    assert not is_listed(name)
