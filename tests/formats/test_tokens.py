"""Files of token ids: samples as numpy cuts them, exact resumption, and errors with their place."""

import gzip
import io
import json
import struct

import numpy as np
import pytest
from commandline import within
from hypothesis import given, settings
from hypothesis import strategies as st

import wdspec
from wdspec.base.errors import MissingShardError, ShardError, UsageError
from wdspec.formats import tokens
from wdspec.formats.compression import BY_NAME
from wdspec.formats.decompress import decompress
from wdspec.formats.samples import no_field
from wdspec.formats.tokens import TokenSamples
from wdspec.spec.language.options import TokenOptions
from wdspec.testing import assert_resumable, difference

IDS = np.random.default_rng(0).integers(1, 60_000, 1000)


def megatron(documents, kind="u2"):
    """The bytes of `.bin` and of `.idx`, as Megatron-LM's IndexedDatasetBuilder writes them."""
    code = {"u1": 1, "i4": 4, "i8": 5, "u2": 8}[kind]
    lengths = [len(each) for each in documents]
    pointers = np.concatenate([[0], np.cumsum(lengths)])[:-1] * np.dtype(kind).itemsize
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1)
    index += np.array(lengths, "<i4").tobytes() + pointers.astype("<i8").tobytes()
    index += np.arange(len(lengths) + 1, dtype="<i8").tobytes()
    return b"".join(np.asarray(each, f"<{kind}").tobytes() for each in documents), index


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def reader(data, sidecar=None, options=None, **more):
    def open_beside(suffix):
        if sidecar is None:
            raise MissingShardError("no such file")
        return io.BytesIO(sidecar)

    given = {"may_be_empty": True, "constants": {"__url__": "x/web.bin"}, **more}
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    return TokenSamples(file, TokenOptions(**(options or {})), open_beside, **given)


DOCUMENTS = [IDS[:10], IDS[10:10], IDS[10:400], IDS[400:401], IDS[401:1000]]
FLAT = np.concatenate([np.append(each, 0) for each in DOCUMENTS])
CUT = [IDS[at : at + 64] for at in range(0, 960, 64)]
WITH_EOS = [np.append(each, 0) for each in DOCUMENTS]
CASES = {
    "flat": (IDS.astype("<u2").tobytes(), None, {"length": 64, "dtype": "uint16"}, CUT),
    "flat, 32 bits": (IDS.astype("<u4").tobytes(), None, {"length": 64, "dtype": "uint32"}, CUT),
    "npy": (npy(IDS.astype("u4")), None, {"length": 64}, CUT),
    "npy, rows": (npy(IDS[:960].reshape(15, 64)), None, {}, CUT),
    "megatron, documents": (*megatron(DOCUMENTS), {}, DOCUMENTS),
    "megatron, cut": (*megatron(DOCUMENTS), {"length": 64}, CUT),
    "megatron, 32 bits": (*megatron(DOCUMENTS, "i4"), {}, DOCUMENTS),
    "eos": (FLAT.astype("<u2").tobytes(), None, {"eos": 0, "dtype": "uint16"}, WITH_EOS),
    "eos, the last is missing": (
        FLAT[:-1].astype("<u2").tobytes(), None, {"eos": 0, "dtype": "uint16"}, [*WITH_EOS[:-1], DOCUMENTS[-1]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_samples_equal_numpy_slices(case):
    data, index, options, expected = CASES[case]
    found = list(reader(data, index, options))
    assert [each["__key__"] for each in found] == [f"web/{n}" for n in range(len(expected))]
    assert (
        difference([each.astype(np.int64) for each in expected], [each["tokens"] for each in found]) is None
    )
    assert [each["__key__"] for each in reader(data, index, options, field_of=no_field)] == [
        each["__key__"] for each in found
    ]


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=25, deadline=None)
@given(
    chunk=st.integers(8, 400), start=st.integers(0, 15), stride=st.integers(1, 3), residue=st.integers(0, 2)
)
def test_reading_resumes_at_any_sample_in_any_part(case, chunk, start, stride, residue):
    data, sidecar, options, expected = CASES[case]
    residue, start = residue % stride, min(start, len(expected))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "CHUNK", chunk * 2)
        first = reader(data, sidecar, options)
        places = [(0, 0), *((first.next_offset, first.next_index) for _ in first)]
        offset, at = places[start]
        later = reader(data, sidecar, options, offset=offset, index=at, stride=stride, residue=residue)
        wanted = [n for n in range(start, len(expected)) if n % stride == residue]
        found = []
        for sample in later:
            found.append(sample["tokens"])
            assert (later.next_offset, later.next_index) == places[later.next_index]
    assert difference([expected[n].astype(np.int64) for n in wanted], found) is None


def error_of(data, sidecar=None, options=None, **more):
    with pytest.raises((ShardError, UsageError)) as caught:
        list(reader(data, sidecar, options, **{"may_be_empty": False, **more}))
    return caught.value.code, str(caught.value)


def test_damaged_files_are_errors_that_describe_the_damage():
    data, index = megatron(DOCUMENTS)
    assert error_of(b"", None, {"length": 4, "dtype": "uint16"})[0] == "D103"
    code, said = error_of(b"1" * 6, None, {"length": 4, "dtype": "uint16"})
    assert (code, "fewer than 4 numbers (`length`), so no sample" in said) == ("D105", True)
    assert error_of(data[:-1], None, {"length": 4, "dtype": "uint16"})[0] == "D107"
    assert error_of(data[:-100], index)[0] == "D107"
    assert error_of(data, index[:-5])[0] == "D124"
    assert error_of(data, b"\0" * 100)[0] == "D124"
    assert error_of(data, index[:40] + b"\xff" + index[41:])[0] == "D124"
    assert error_of(data + b"12", index)[0] == "D124"
    for cut in (2, 100):  # whole numbers, which the header or the index does not describe
        assert error_of(data[:-cut], index, {"length": 4})[0] == "D107"
        assert error_of(npy(IDS)[:-cut], None, {"length": 4})[0] == "D107"
    assert error_of(npy(IDS) + b"12345678", None, {"length": 4})[0] == "D124"
    assert error_of(data + b"12", index, {"length": 4})[0] == "D124"
    assert error_of(npy(IDS).replace(b"shape': (", b"shape': [", 1), None, {"length": 4})[0] == "D124"
    assert error_of(npy(np.ones(5)))[0] == "D124"
    assert error_of(npy(IDS)[:20], None, {"length": 4})[0] == "D124"
    assert error_of(npy(IDS), None, {"length": 4, "dtype": "uint16"})[0] == "D123"
    assert "without an index need" in error_of(data, None, {})[1]


def test_a_token_above_the_vocabulary_is_an_error_of_its_sample():
    data = IDS.astype("<u2").tobytes()
    errors = []
    options = {"length": 64, "dtype": "uint16", "vocabulary": int(IDS[64:128].max())}
    found = list(reader(data, None, options, on_error=errors.append))
    assert len(found) + len(errors) == len(CUT)
    assert {error.code for error in errors} == {"D122"}
    assert errors[0].place["key"] not in {sample["__key__"] for sample in found}


def test_a_changed_file_is_noticed_when_a_run_resumes():
    data = IDS.astype("<u2").tobytes()
    assert error_of(data, None, {"length": 32, "dtype": "uint16"}, offset=128, index=1)[0] == "D123"


def test_specs_read_token_files_with_other_sources_and_resume(tmp_path):
    for n in range(3):
        data, index = megatron(DOCUMENTS)
        (tmp_path / f"web-{n}.bin").write_bytes(data)
        (tmp_path / f"web-{n}.idx").write_bytes(index)
        (tmp_path / f"code-{n}.npy").write_bytes(IDS.astype("<u2").tobytes())
    spec = {
        "dataset": [
            {"name": "web", "shards": f"{tmp_path}/web-*.bin", "tokens": {"length": 16}},
            {"name": "code", "shards": f"{tmp_path}/code-*.npy", "tokens": {"length": 16, "dtype": "uint16"}},
        ],
        "batch": 6,
        "epoch": {"batches": 20},
    }  # fmt: skip
    for source, weight in zip(spec["dataset"], (2, 1), strict=True):
        source["weight"] = weight
    with wdspec.loader(spec, num_workers=0) as loader:
        batch = next(iter(loader))
    assert (tuple(batch["tokens"].shape), str(batch["tokens"].dtype)) == ((6, 16), "torch.int64")
    assert batch["__source__"].count("web") == 4
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0))
    assert_resumable(lambda: wdspec.loader(spec, num_workers=2), stops=[3, 14])
    for source in spec["dataset"]:
        del source["weight"]
    spec["epoch"] = "pass"
    with wdspec.loader(spec, num_workers=0) as loader:
        keys = [
            key
            for batch in loader
            for key, mine in zip(batch["__key__"], batch["__mask__"], strict=True)
            if mine
        ]
    assert len(keys) == len(set(keys)) == 6 * (1000 // 16)


def test_the_index_of_a_token_file_is_read_from_any_store(tmp_path):
    data, index = megatron(DOCUMENTS)
    (tmp_path / "web-0.bin").write_bytes(data)
    (tmp_path / "web-0.idx").write_bytes(index)
    source = {
        "name": "web",
        "shards": "s3://bucket/web-0.bin",
        "rewrite": [{"from": "s3://bucket/", "to": f"{tmp_path}/"}],
        "tokens": {"length": 16},
    }
    with wdspec.loader({"dataset": [source], "batch": 6}, num_workers=0) as loader:
        assert len(next(iter(loader))["__key__"]) == 6


@pytest.mark.parametrize("name", ["a.npy.gz", "a.ds.gz", "a.bin.zst", "a.npy.xz", "a.ds.bz2"])
def test_a_compressed_file_is_an_error_and_its_bytes_are_never_tokens(tmp_path, name):
    packing = BY_NAME[name.rpartition(".")[2]].compressor()
    data = IDS.astype("<u2").tobytes()
    written = packing.compress(data) + packing.flush()
    (tmp_path / name).write_bytes(written + bytes(len(written) % 2))  # a whole number of ids
    source = {"shards": name, "tokens": {"length": 8, "dtype": "uint16"}, "errors": "skip"}
    (tmp_path / "s.yaml").write_text(json.dumps({"dataset": [source], "epoch": "pass"}))
    expected = f"the file is compressed .* decompress it, and name `{name.rpartition('.')[0]}` in `shards`"
    with (
        pytest.raises(UsageError, match=expected),
        wdspec.loader(tmp_path / "s.yaml", num_workers=0) as loader,
    ):
        list(loader)
    said, _ = within("check", "s.yaml", "--jobs", "0", folder=tmp_path, code=1)
    assert "decompress it" in said
    assert "not compressed" not in said


def test_numbers_that_look_like_gzip_are_tokens():
    ids = np.array([0x8B1F, 8, 5, 6])
    for url in ("x/a.ds", "x/a.bin", "x/a.npy"):
        options = {"length": 2, "dtype": "uint16"}
        found = list(reader(ids.astype("<u2").tobytes(), None, options, constants={"__url__": url}))
        assert [each["tokens"].tolist() for each in found] == [[0x8B1F, 8], [5, 6]]


@pytest.mark.parametrize("case", ["npy", "npy, rows", "megatron, documents", "megatron, cut"])
@pytest.mark.parametrize("lost", [0, 64, 512, -64])
def test_a_stream_that_ends_between_gzip_members_is_noticed(case, lost):
    """As a server sends a file with `Content-Encoding: gzip`, of which only the header or the index knows the size."""
    data, index, options, expected = CASES[case]
    parts = (data[: len(data) - lost],) if lost >= 0 else (data, bytes(-lost))
    stream = decompress(OnlyForward(b"".join(map(gzip.compress, parts))))
    errors = []
    found = list(reader(stream, index, options, on_error=errors.append))
    assert len(found) <= len(expected) or lost < 0
    assert [each.code for each in errors] == ([] if not lost else ["D107"] if lost > 0 else ["D124"])


class OnlyForward(io.BytesIO):
    def seekable(self):
        return False
