"""`RecordWriter`, and writers chosen by name: a spec reads back what they write."""

import io
import json
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import wdspec
from wdspec.api import sample_reader
from wdspec.fields.samples import SampleFields
from wdspec.formats.records import RecordSamples, splitter_of
from wdspec.spec.load import load
from wdspec.testing import assert_resumable

NAMES = ["a.cbors", "a.cbor.gz", "a.msgpack", "a.mps.zst", "a.jsonl", "a.ndjson.xz", "a.jsonl.bz2", "a.tar"]
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def written(format, *samples, **options):
    file = io.BytesIO()
    with wdspec.RecordWriter(file, format, **options) as writer:
        for sample in samples:
            writer.write(sample)
    return file.getvalue()


def decoded(data, format):
    return list(map(SampleFields(secure=False), RecordSamples(io.BytesIO(data), splitter_of(format))))


@pytest.mark.parametrize("format", ["cbor", "msgpack", "jsonl"])
@settings(max_examples=50, deadline=None)
@given(value=PLAIN)
def test_values_of_the_format_round_trip_under_any_field_name(format, value):
    sample = {"__key__": "a", "x": value, "json": value, "cls": value, "npy": value}
    assert decoded(written(format, sample), format) == [sample]


@pytest.mark.parametrize("format", ["cbor", "msgpack"])
def test_arrays_tensors_and_images_are_encoded_by_their_extension(format):
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    sample = {"__key__": "a", "npy": np.arange(3), "x.npy": torch.ones(2), "png": image, "bin": b"\0\1"}
    (back,) = RecordSamples(io.BytesIO(written(format, sample)), splitter_of(format))
    assert isinstance(back["png"], bytes)
    back = SampleFields(names=("rgb8",), secure=False)(back)
    assert (back["npy"] == np.arange(3)).all()
    assert (back["x.npy"] == 1).all()
    assert (back["png"] == image).all()
    assert back["bin"] == b"\0\1"


def test_json_lines_store_arrays_as_lists_and_reject_bytes():
    assert json.loads(written("jsonl", {"__key__": "a", "x": np.arange(3), "y": np.float32(0.5)})) == {
        "__key__": "a",
        "x": [0, 1, 2],
        "y": 0.5,
    }
    with pytest.raises(
        wdspec.FieldError, match=r"use `\.cbors`, `\.msgpack` or `\.parquet`, which can \[key a, field bin\]"
    ):
        written("jsonl", {"__key__": "a", "bin": b"x"})


@pytest.mark.parametrize("format", ["cbor", "msgpack"])
def test_a_value_that_no_format_can_hold_names_key_and_field(format):
    with pytest.raises(wdspec.FieldError, match=r"\[key a, field x\]"):
        written(format, {"__key__": "a", "x": object()})
    with pytest.raises(wdspec.FieldError, match=r"\[key a, field y\]"):
        written(format, {"__key__": "a", "x": 1, "y": [object()]})


def test_the_same_samples_give_the_same_bytes():
    sample = {"__key__": "a", "x": 1, "y": [2]}
    for format in ("cbor", "msgpack", "jsonl"):
        turned = dict(reversed(sample.items()))
        assert written(format, sample, compress=True) == written(format, turned, compress=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_shard_sets_its_format(name, tmp_path):
    stem, suffix = name.split(".", 1)
    with wdspec.ShardWriter(f"{tmp_path}/{stem}-%02d.{suffix}", maxcount=5, verbose=0) as writer:
        for n in range(20):
            writer.write({"__key__": f"{n:03d}", "cls": n, "txt": f"number {n}"})
    assert sorted(os.listdir(tmp_path)) == [f"{stem}-{n:02d}.{suffix}" for n in range(4)]
    spec = load(
        {
            "dataset": [{"shards": f"{tmp_path}/{stem}-{{00..03}}.{suffix}", "extensions": "cls txt"}],
            "batch": 2,
            "epoch": 20,
            "elastic": {"ranks": 1, "workers": 2},
        }
    )
    reader = sample_reader(spec)
    found = [sample for number in range(20) for sample in reader.batch(number)]
    reader.close()
    assert sorted((s["__key__"], s["cls"], s["txt"]) for s in found) == [
        (f"{n:03d}", n, f"number {n}") for n in range(20)
    ]


@pytest.mark.parametrize("suffix", ["cbors", "msgpack.gz", "jsonl", "ndjson.zst"])
@pytest.mark.parametrize("more", [{}, {"interleave": 2}, {"order": "sequential", "shuffle": 0}])
def test_a_run_over_records_resumes_exactly_from_any_state(suffix, more, tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.{suffix}", maxcount=6, verbose=0) as writer:
        for n in range(18):
            writer.write({"__key__": f"{n:03d}", "cls": n})
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a-{{0..2}}.{suffix}", "shuffle": 5, **more}],
        "batch": 3,
        "epoch": 24,
        "elastic": {"ranks": 1, "workers": 2},
    }
    assert_resumable(lambda: wdspec.loader(spec), batches=18, stops=range(0, 18, 3))


@pytest.mark.parametrize("suffix", ["cbors", "jsonl.gz"])
def test_every_legal_topology_reads_the_same_batches_of_records(suffix, tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.{suffix}", maxcount=10, verbose=0) as writer:
        for n in range(40):
            writer.write({"__key__": f"{n:03d}", "cls": n})
    spec = load(
        {
            "dataset": [{"name": "a", "shards": f"{tmp_path}/a-{{0..3}}.{suffix}"}],
            "batch": {"global_size": 8},
            "epoch": 80,
            "elastic": {"ranks": 4, "workers": 2},
        }
    )
    runs = []
    for ranks in (1, 2, 4):
        parts = []
        for rank in range(ranks):
            with wdspec.loader(spec, rank=rank, world_size=ranks) as loader:
                parts.append([batch["__key__"] for batch in loader])
        runs.append(
            [sorted(key for batch in batches for key in batch) for batches in zip(*parts, strict=True)]
        )
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("suffix", ["cbors", "msgpack", "jsonl.gz"])
def test_a_pass_reads_every_record_once(suffix, tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.{suffix}", maxcount=7, verbose=0) as writer:
        for n in range(17):
            writer.write({"__key__": f"{n:03d}", "cls": n})
    spec = {"dataset": [{"shards": f"{tmp_path}/a-{{0..2}}.{suffix}"}], "batch": 1, "epoch": "pass"}
    with wdspec.loader(spec) as loader:
        keys = [key for batch in loader for key in batch["__key__"]]
    assert sorted(keys) == [f"{n:03d}" for n in range(17)]


def test_rename_decode_missing_and_format_apply_as_to_tars(tmp_path):
    lines = [{"__key__": "a", "caption": "x", "n": 1}, {"__key__": "b", "n": 2}]
    (tmp_path / "data.txt").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {
        "shards": f"{tmp_path}/data.txt",
        "format": "jsonl",
        "rename": {"text": "caption;title"},
        "missing": "none",
        "shuffle": 0,
        "order": "sequential",
    }
    reader = sample_reader(load({"dataset": [source], "epoch": 2}))
    found = [reader.batch(number)[0] for number in range(2)]
    reader.close()
    assert [(s["__key__"], s["text"], s["n"]) for s in found] == [("a", "x", 1), ("b", None, 2)]


def test_bytes_in_cbor_are_decoded_like_tar_members(tmp_path):
    with (
        wdspec.TarWriter(tmp_path / "a.tar") as tar,
        wdspec.RecordWriter(tmp_path / "a.cbor", "cbor") as cbor,
    ):
        for writer in (tar, cbor):
            writer.write({"__key__": "a", "png": np.eye(3, dtype=np.uint8), "json": b"[1]", "cls": b"7"})
    found = []
    for name in ("a.tar", "a.cbor"):
        reader = sample_reader(
            load({"dataset": [{"shards": f"{tmp_path}/{name}", "decode": "l8"}], "epoch": 1})
        )
        found += reader.batch(0)
        reader.close()
    for name in ("png", "json", "cls"):
        assert np.array_equal(found[0][name], found[1][name])
    assert found[1]["cls"] == 7


def test_options_of_another_format_are_rejected(tmp_path):
    with (
        wdspec.ShardWriter(f"{tmp_path}/a-%d.jsonl", user="me", verbose=0) as writer,
        pytest.raises(wdspec.UsageError, match=r"a writer of jsonl does not accept these options: .*'user'"),
    ):
        writer.write({"__key__": "a"})
    with pytest.raises(wdspec.UsageError, match="'tar' is not a format of records"):
        wdspec.RecordWriter(io.BytesIO(), "tar")


def test_the_format_can_be_set_if_the_name_lacks_it(tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.dat", format="jsonl", verbose=0) as writer:
        writer.write({"__key__": "a", "n": 1})
    assert (tmp_path / "a-0.dat").read_bytes() == b'{"__key__": "a", "n": 1}\n'
    with wdspec.ShardWriter(f"{tmp_path}/b-%d.dat", format="gnu", verbose=0) as writer:
        writer.write({"__key__": "a", "cls": 1})
    assert (tmp_path / "b-0.dat").read_bytes()[:5] == b"a.cls"


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_record_needs_a_string_key(key):
    with pytest.raises(wdspec.FieldError, match="give each sample a unique str"):
        written("jsonl", {"__key__": key, "x": 1})


def lines(path, count, bad=()):
    path.write_bytes(
        b"".join(
            b"{no json\n" if n in bad else json.dumps({"__key__": f"{n:03d}", "n": n}).encode() + b"\n"
            for n in range(count)
        )
    )


def test_a_damaged_line_is_an_error_with_its_place_or_a_counted_skip(tmp_path):
    lines(tmp_path / "a.jsonl", 20, bad=(3, 7))
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.jsonl", "shuffle": 0}],
        "epoch": 18,
        "elastic": {"ranks": 1, "workers": 1},
    }
    reader = sample_reader(load(spec))
    with pytest.raises(wdspec.ShardError, match=r"a line is not JSON.*source a, url .*a\.jsonl, byte \d+"):
        [reader.batch(number) for number in range(18)]
    reader.close()
    reader = sample_reader(load({**spec, "errors": "skip"}))
    found = [sample["n"] for number in range(18) for sample in reader.batch(number)]
    assert found == [n for n in range(20) if n not in (3, 7)]
    assert sum(reader.budgets["a"].skipped.values()) == 2
    reader.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_pass_pads_skipped_lines_and_moves_nothing(tmp_path, workers):
    lines(tmp_path / "a.jsonl", 12, bad=(5,))
    spec = {
        "dataset": [{"shards": f"{tmp_path}/a.jsonl"}],
        "batch": 1,
        "epoch": "pass",
        "errors": "skip",
        "elastic": {"ranks": 1, "workers": workers},
    }
    with wdspec.loader(spec) as loader:
        batches = list(loader)
    assert len(batches) == 12
    assert {int(n) for batch in batches for n in batch["n"]} == set(range(12)) - {5}
