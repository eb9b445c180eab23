"""`wdspec check` finds token ids that are read as numbers of another width than they were written in."""

import json

import numpy as np
import pytest
from commandline import within


def found(folder, ids, written, read, **tokens):
    np.asarray(ids).astype(written).tofile(folder / "a.bin")
    options = {"length": 129, "dtype": read, **tokens}
    spec = {"dataset": [{"shards": "a.bin", "tokens": options}]}
    (folder / "s.yaml").write_text(json.dumps(spec))
    report = json.loads(within("check", "s.yaml", "--jobs", "0", "--format", "json", folder=folder)[0])
    return [each["message"] for each in report["problems"] if each["code"] == "D365"]


def random_ids(below, count=4096):
    return np.random.default_rng(1).integers(0, below, count)


@pytest.mark.parametrize(
    ("below", "written", "read"),
    [
        (50_257, "uint16", "int32"),
        (50_257, "uint16", "uint32"),
        (50_257, "uint16", "int64"),
        (128_000, "uint32", "int64"),
        (128_000, "uint32", "uint16"),
        (50_257, "uint32", "uint16"),
        (128_000, "uint32", "int16"),
    ],
)
def test_ids_of_another_width_are_found_once_in_a_shard(tmp_path, below, written, read):
    [message] = found(tmp_path, random_ids(below), written, read)
    assert f"read as `dtype: {read}`" in message
    assert f"write `tokens: {{dtype: {written}}}`; otherwise set `vocabulary`" in message
    assert found(tmp_path, random_ids(below), written, written) == []


@pytest.mark.parametrize(
    ("ids", "dtype"),
    [
        (random_ids(200_000), "int32"),
        (np.where(random_ids(10) == 0, -100, random_ids(50_257)), "int64"),  # padding
        (random_ids(65_536), "uint16"),
        (random_ids(8), "uint16"),  # a small vocabulary
        (np.full(4096, 0), "uint16"),
    ],
)
def test_ids_of_usual_vocabularies_are_not_doubted(tmp_path, ids, dtype):
    assert found(tmp_path, ids, dtype, dtype) == []


def test_with_a_vocabulary_large_ids_are_not_doubted(tmp_path):
    ids = random_ids(1 << 30)
    assert "read as `dtype: int32`" in found(tmp_path, ids, "int32", "int32")[0]
    assert found(tmp_path, ids, "int32", "int32", vocabulary=1 << 30) == []
