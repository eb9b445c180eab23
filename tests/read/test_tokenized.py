"""`make` with `tokenize`: documents become rows of tokens, in one spec, and none is lost or repeated."""

import json
import math
import os
import random
import sys
from collections import Counter

import numpy as np
import pytest
from shardmaking import write_shard
from tokenizers_made import END, texts, trained, words

import wdspec
from wdspec.steps import tokenize as module
from wdspec.testing import assert_resumable


@pytest.fixture
def tokenizer(tmp_path):
    trained("bpe").save(str(tmp_path / "tokenizer.json"))
    library = trained("bpe")
    library.encode_special_tokens = True
    return library


def documents(count, seed=0):
    draw = random.Random(seed)
    known = words()
    return [" ".join(draw.choices(known, k=int(draw.lognormvariate(2.5, 1)))) for _ in range(count)]


def write_lines(folder, found, name="a", key="text"):
    lines = [json.dumps({"__key__": f"{name}{n:05}", key: each}) for n, each in enumerate(found)]
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return str(folder / f"{name}.jsonl")


def write_tar(folder, found):
    write_shard(folder / "a.tar", [(f"a{n:05}", {"txt": each.encode()}) for n, each in enumerate(found)])
    return str(folder / "a.tar")


def write_parquet(folder, found):
    parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow").table
    keys = [f"a{n:05}" for n in range(len(found))]
    parquet.write_table(table({"__key__": keys, "text": found}), folder / "a.parquet")
    return str(folder / "a.parquet")


def write_json_in_tar(folder, found):
    pages = [
        (f"a{n:05}", {"json": json.dumps({"page": {"text": each}}).encode()}) for n, each in enumerate(found)
    ]
    write_shard(folder / "a.tar", pages)
    return str(folder / "a.tar")


SHARDS = {
    "jsonl": (write_lines, "text"),
    "tar": (write_tar, "txt"),
    "parquet": (write_parquet, "text"),
    "json": (write_json_in_tar, "json.page.text"),
}


def spec_of(folder, shards, origin="text", options=None, **keys):
    top = {
        key: keys.pop(key)
        for key in ("elastic", "batch", "epoch", "to_tuple", "mix", "loader", "fields", "map")
        if key in keys
    }
    make = {"ids": {"tokenize": origin, "file": str(folder / "tokenizer.json"), "eos": END} | (options or {})}
    return wdspec.load({"dataset": [{"name": "a", "shards": shards, "make": make, **keys}], **top})


def expected_ids(library, found):
    return [[*library.encode(each).ids, 0] for each in found]


@pytest.mark.parametrize("kind", SHARDS)
def test_ids_are_delivered_as_int64_from_any_kind_of_shard(kind, tokenizer, tmp_path):
    write, origin = SHARDS[kind]
    found = [each.replace("\r", "").replace("\x00", "") for each in texts(60)]
    spec = spec_of(tmp_path, write(tmp_path, found), origin, order="sequential", shuffle=0)
    with wdspec.loader(spec, num_workers=0) as loader:
        made = [sample["ids"] for sample, _ in zip(loader, found, strict=False)]
    assert [each.tolist() for each in made] == expected_ids(tokenizer, found)
    assert {each.dtype for each in made} == {np.dtype(np.int64)}


@pytest.mark.parametrize("pack", [{}, {"overlong": "split"}, {"method": "concatenate"}], ids=str)
@pytest.mark.parametrize("where", [{}, {"where": "ids.length <= 40"}], ids=["all", "where"])
def test_a_pass_over_packed_documents_has_every_token_once(pack, where, tokenizer, tmp_path):
    found = documents(200)
    whole = [ids for ids in expected_ids(tokenizer, found) if not where or len(ids) <= 40]
    method = {"method": pack["method"]} if "method" in pack else {}
    packing = {"fields": "ids", "length": 64, "segment_ids": "segments", **method}
    batch = {"window": 50, "pack": packing, "overlong": pack.get("overlong", "split")}
    if method:
        del batch["overlong"]
    spec = spec_of(tmp_path, write_lines(tmp_path, found), batch=batch, epoch="pass", **where)
    tokens, rows = Counter(), 0
    with wdspec.loader(spec, num_workers=0) as loader:
        for each in loader:
            assert each["ids"].shape == each["segments"].shape
            tokens.update(each["ids"][each["segments"] > 0].tolist())
            rows += each["ids"].numel() // 64
    assert tokens == Counter(number for ids in whole for number in ids)
    assert tokens.total() / (rows * 64) > 0.9


def test_ids_are_selected_by_their_length_and_texts_by_their_characters(tokenizer, tmp_path):
    found = documents(100)
    shards, lengths = write_lines(tmp_path, found), [len(ids) for ids in expected_ids(tokenizer, found)]
    for where, kept in (
        ("ids.length <= 20", [n for n in range(100) if lengths[n] <= 20]),
        ("text.length <= 80", [n for n in range(100) if len(found[n]) <= 80]),
    ):
        spec = spec_of(tmp_path, shards, where=where, order="sequential", shuffle=0, batch=1, epoch="pass")
        with wdspec.loader(spec, num_workers=0) as loader:
            keys = [batch["__key__"][0] for batch in loader if batch["__mask__"].all()]
        assert keys == [f"a{number:05}" for number in kept]


@pytest.mark.parametrize(
    "keys",
    [
        {"batch": 2},
        {"batch": {"window": 20, "pack": {"fields": "ids", "length": 512}}},
        {"where": "ids.length > 0"},
        {
            "batch": {
                "cost": "ids.length",
                "max_cost": 9,
                "window": 5,
                "collate": {"ids": {"pad": {"lengths": "n"}}},
            }
        },
        {"batch": {"cost": "text.length + 1", "max_cost": 9, "window": 5, "collate": {"ids": "pad"}}},
        {"batch": {"size": 2, "collate": {"ids": {"pad": {"lengths": "n"}}}}},
        {"epoch": {"pass": "pad", "reshuffle": True}},
    ],
    ids=["batches", "packed", "where", "by tokens", "by another cost", "padded", "reshuffled"],
)
def test_empty_documents_without_an_end_are_left_out_and_counted(keys, tokenizer, tmp_path):
    found = ["", "a", "", "b b", ""]
    shards = write_lines(tmp_path, found)
    spec = spec_of(tmp_path, shards, options={"eos": None}, **({"batch": 1, "epoch": "pass"} | keys))
    seen = Counter()
    with wdspec.loader(spec, num_workers=0) as loader:
        for batch in loader:
            keys_of, real = (np.hstack([*map(np.asarray, batch[name])]) for name in ("__key__", "__mask__"))
            seen.update(keys_of[real].tolist())
        dropped = loader.stats().sources["a"].dropped
    assert seen == {"a00001": 1, "a00003": 1}
    assert dropped["empty"] == 3


def test_runs_of_packed_rows_resume_exactly(tokenizer, tmp_path):
    batch = {
        "window": 30,
        "overlong": "split",
        "pack": {"fields": "ids", "length": 64, "segment_ids": "segments"},
    }
    spec = spec_of(
        tmp_path,
        write_lines(tmp_path, documents(100)),
        batch=batch,
        epoch={"batches": 6},
        where="ids.length < 60",
        shuffle=20,
    )
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), batches=12, live=False)


def test_shares_are_of_tokens(tokenizer, tmp_path):
    draw = random.Random(3)
    known, sources = words(), []
    for name, mean, share in (("a", 20, 0.6), ("b", 60, 0.4)):
        found = [" ".join(draw.choices(known, k=draw.randint(mean // 2, mean * 3 // 2))) for _ in range(200)]
        cost = sum(map(len, expected_ids(tokenizer, found))) / 200
        sources.append(
            {"name": name, "shards": write_lines(tmp_path, found, name), "weight": share, "mean_cost": cost}
        )
    make = {"ids": {"tokenize": "text", "file": str(tmp_path / "tokenizer.json"), "eos": END}}
    spec = wdspec.load(
        {
            "dataset": sources,
            "defaults": {"make": make},
            "mix": {"shares_in": "cost"},
            "batch": {
                "window": 60,
                "overlong": "split",
                "pack": {"fields": "ids", "length": 256, "segment_ids": "s"},
            },
            "epoch": {"batches": 150},
        }
    )
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in loader:
            pass
        received = {name: each.received_cost for name, each in loader.stats().sources.items()}
    assert math.isclose(received["a"] / sum(received.values()), 0.6, abs_tol=0.04)


CODE = """
import os, threading
import wdspec.steps.tokenize as module

def note(sample):
    native = len(os.listdir("/proc/self/task")) - threading.active_count()
    loaded = [id(each) for each in module._tokenizers.values()]
    return {**sample, "native": native, "loaded": loaded, "fast": module._is_fast.value, "pid": os.getpid()}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked, and threads counted, on Linux")
def test_forked_workers_start_no_threads_and_share_the_tokenizer(tokenizer, tmp_path, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "_tokenizers", {})
    (tmp_path / "noting.py").write_text(CODE)
    spec = spec_of(tmp_path, write_lines(tmp_path, documents(40)), map="noting:note")
    native = {}
    for name, each in (
        ("with", spec),
        ("without", spec.model_copy(update={"dataset": (spec.dataset[0].model_copy(update={"make": {}}),)})),
    ):
        with wdspec.loader(each, num_workers=1, multiprocessing_context="fork") as loader:
            seen = [sample for sample, _ in zip(loader, range(20), strict=False)]
        native[name] = min(sample["native"] for sample in seen)
        assert os.getpid() not in {sample["pid"] for sample in seen}
        if name == "with":
            assert {tuple(sample["fast"]) for sample in seen} == {(True,)}
            here = [
                id(tokenizer) for tokenizer in module._tokenizers.values()
            ]  # it was loaded before the fork
            assert {tuple(sample["loaded"]) for sample in seen} == {tuple(here)}
    assert native["with"] <= native["without"]


def test_a_tokenizer_of_bytes_says_how_to_decode_them(tokenizer, tmp_path):
    write_shard(tmp_path / "a.tar", [("a", {"bin": b"abc"})])
    with (
        wdspec.loader(spec_of(tmp_path, str(tmp_path / "a.tar"), "bin"), num_workers=0) as loader,
        pytest.raises(wdspec.FieldError, match="decode it with `txt`"),
    ):
        next(iter(loader))


def test_a_file_that_is_no_tokenizer_is_an_error_before_anything_is_read(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(wdspec.SpecError, match="is not a tokenizer that tokenizers"):
        wdspec.loader(spec_of(tmp_path, write_lines(tmp_path, ["a"])), num_workers=0)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(wdspec.SpecError, match="does not exist"):
        wdspec.plan(spec_of(tmp_path, write_lines(tmp_path, ["a"])))


def test_a_step_with_two_results_makes_two_fields(tmp_path):
    trained("wordpiece").save(str(tmp_path / "tokenizer.json"))
    library = trained("wordpiece")
    rows = [("a question", "an answer"), ("b", None), ("", "c d e f g h i")]
    lines = [json.dumps({"__key__": f"a{n}", "q": q, "a": a}) for n, (q, a) in enumerate(rows)]
    (tmp_path / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    options = {"eos": None, "pair": "a", "type_ids": "types"}
    keys = {"order": "sequential", "shuffle": 0, "missing": "none"}
    spec = spec_of(tmp_path, str(tmp_path / "a.jsonl"), "q", options, **keys)
    with wdspec.loader(spec, num_workers=0) as loader:
        first, second, third = (sample for sample, _ in zip(loader, rows, strict=False))
    for sample, (q, a) in ((first, rows[0]), (third, rows[2])):
        expected = library.encode(q, a)
        assert sample["ids"].tolist() == expected.ids
        assert sample["types"].tolist() == expected.type_ids
        assert sample["types"].dtype == np.int64
    assert (second["ids"], second["types"]) == (None, None)
    spec = spec_of(
        tmp_path,
        str(tmp_path / "a.jsonl"),
        "q",
        options,
        **keys | {"missing": "skip"},
        where=f"types.length == {len(third['types'])} and ids.length != {len(first['ids'])}",
    )
    with wdspec.loader(spec, num_workers=0) as loader:
        assert next(iter(loader))["__key__"] == "a2"


def test_several_texts_become_one_document(tokenizer, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"title": "a b", "page": {"text": "c"}}) + "\n")
    options = {"join": "\n\n"}
    spec = spec_of(tmp_path, str(tmp_path / "a.jsonl"), ["title", "page.text"], options)
    with wdspec.loader(spec, num_workers=0) as loader:
        assert next(iter(loader))["ids"].tolist() == [*tokenizer.encode("a b\n\nc").ids, 0]


def test_threads_give_the_same_as_one_process(tokenizer, tmp_path):
    shards = write_lines(tmp_path, documents(60))
    found = []
    for loader in ({}, {"kind": "threads", "workers": 2}):
        keys = {"batch": {"size": 4, "ragged": "list"}, "epoch": {"batches": 8}, "loader": loader}
        keys["elastic"] = {"ranks": 1, "workers": 2}
        spec = spec_of(tmp_path, shards, where="ids.length > 9", **keys)
        with wdspec.loader(spec) as batches:
            found.append([[ids.tolist() for ids in batch["ids"]] for batch in batches])
    assert found[0] == found[1]
    assert len(found[0]) == 8


def test_labels_are_the_ids_in_an_array_of_their_own(tokenizer, tmp_path):
    found = documents(8)
    make = {"tokenize": "text", "file": str(tmp_path / "tokenizer.json"), "labels": "labels"}
    source = {"shards": write_lines(tmp_path, found), "make": {"ids": make}}
    with wdspec.loader({"dataset": [source], "epoch": "pass"}, num_workers=0) as loader:
        for sample in loader:
            assert sample["ids"].tolist() == sample["labels"].tolist() == tokenizer.encode(sample["text"]).ids
            assert not np.shares_memory(sample["ids"], sample["labels"])


@pytest.mark.parametrize("keys", [{}, {"missing": "error"}])
def test_labels_that_no_step_makes_are_an_error_that_says_in_which_step_to_write_them(
    keys, tokenizer, tmp_path
):
    write_lines(tmp_path, documents(4))
    make = {"ids": {"tokenize": "text", "file": str(tmp_path / "tokenizer.json")}}
    source = {"shards": str(tmp_path / "a.jsonl"), "make": make, **keys}
    spec = {"dataset": [source], "fields": ["ids", "labels"], "epoch": 4}
    with (
        pytest.raises(wdspec.FieldError, match="write `labels: labels` in `make: ids`, whose step makes it"),
        wdspec.loader(spec, num_workers=0) as loader,
    ):
        next(iter(loader))
    make["ids"]["labels"] = "labels"
    with wdspec.loader(spec, num_workers=0) as loader:
        assert all(sample["labels"].size for sample in loader)
