"""Token files that are written are those that Megatron-LM and numpy read, and wdspec reads back."""

import json
import struct

import numpy as np
import pytest
from commandline import within

import wdspec
from wdspec.base.errors import FieldError, UsageError
from wdspec.write.shard_writer import open_writer

DOCUMENTS = [[5, 7, 1], [2], [], [9, 65_000, 3, 4], list(range(300))]
LARGE = [*DOCUMENTS, [70_000]]


def write(path, documents):
    with open_writer(str(path)) as writer:
        for number, ids in enumerate(documents):
            writer.write({"__key__": str(number), "ids": ids})


def read_as_megatron(path):
    """The documents of a file, by the format of `megatron/core/datasets/indexed_dataset.py`."""
    index = path.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack_from("<QBQQ", index, 9)
    assert (version, documents) == (1, sequences + 1)
    kind = {4: np.int32, 8: np.uint16}[code]
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    borders = np.frombuffer(index, "<i8", documents, 34 + 12 * sequences)
    assert borders.tolist() == list(range(documents))
    assert len(index) == 34 + 12 * sequences + 8 * documents
    data = path.read_bytes()
    spans = zip(pointers.tolist(), lengths.tolist(), strict=True)
    return kind, [np.frombuffer(data, kind, length, start).tolist() for start, length in spans]


@pytest.mark.parametrize(("documents", "kind"), [(DOCUMENTS, np.uint16), (LARGE, np.int32), ([], np.int32)])
def test_megatron_reads_the_documents_in_the_smallest_type(tmp_path, documents, kind):
    write(tmp_path / "a.bin", documents)
    assert read_as_megatron(tmp_path / "a.bin") == (kind, documents)


def test_numpy_reads_all_ids_one_after_the_other(tmp_path):
    write(tmp_path / "a.npy", DOCUMENTS)
    found = np.load(tmp_path / "a.npy")
    assert found.dtype == np.uint16
    assert found.tolist() == [token for document in DOCUMENTS for token in document]


def test_what_process_writes_is_read_back(tmp_path):
    lines = (json.dumps({"ids": ids, "lang": "en"}) + "\n" for ids in DOCUMENTS)
    (tmp_path / "raw.jsonl").write_text("".join(lines))
    (tmp_path / "job.yaml").write_text(
        "dataset: [{shards: raw.jsonl}]\nfields: ids\noutput: {from: '(?:.*/)?(.*)\\.jsonl', to: 'out/\\1.bin'}\n"
    )
    within("process", "job.yaml", folder=tmp_path)
    assert read_as_megatron(tmp_path / "out" / "raw.bin")[1] == DOCUMENTS
    (tmp_path / "train.yaml").write_text("dataset: [{shards: out/raw.bin, tokens: {}}]\nepoch: pass\n")
    with wdspec.loader(tmp_path / "train.yaml", num_workers=0) as loader:
        assert [sample["tokens"].tolist() for sample in loader] == DOCUMENTS


@pytest.mark.parametrize("name", ["a.bin", "a.npy"])
def test_a_shard_that_fails_leaves_neither_a_shard_nor_an_index(tmp_path, name):
    with pytest.raises(FieldError, match="tokenize it first"):
        write(tmp_path / name, [[1, 2], "text"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"ids": [1], "labels": [2]}, "one field, and this sample has ids, labels; keep one with `fields`"),
        ({}, "one field, and this sample has none"),
        ({"ids": "text"}, "lists of integers, and this is .*; tokenize it first"),
        ({"ids": [0.5]}, "lists of integers"),
        ({"ids": np.zeros((2, 2), int)}, "lists of integers"),
        ({"ids": [3, -1]}, "from 0 to 2,147,483,647, and these are from -1 to 3"),
        ({"ids": [1 << 31]}, "from 0 to 2,147,483,647"),
    ],
)
def test_what_is_no_list_of_ids_is_an_error_that_says_what_it_is(tmp_path, sample, message):
    with pytest.raises(FieldError, match=message), open_writer(str(tmp_path / "a.bin")) as writer:
        writer.write({"__key__": "0", **sample})


@pytest.mark.parametrize("name", ["a.bin.gz", "a.npy.zst", "a.ds"])
def test_other_token_files_are_not_written(tmp_path, name):
    with pytest.raises(UsageError, match=r"written to `\.bin` or `\.npy`, uncompressed, not to"):
        open_writer(str(tmp_path / name))
