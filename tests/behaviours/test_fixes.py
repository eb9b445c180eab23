"""Defects of webdataset that were found by running it (appendix A of the reference): what happens here instead.

The rows in order; the number of a test is that of its row.
"""

import io
import json
import os
import pickle
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import wdspec as wds
from wdspec import FieldError, ShardError, SpecError, UsageError

ROWS = 34
ELSEWHERE = {
    15: "tests/cache/test_reading.py::test_what_is_no_whole_shard_is_read_as_it_is_and_leaves_nothing",
    29: "tests/peers/test_writers.py::test_the_requested_tar_format_is_written",
}


def keys(samples):
    return [sample["__key__"] for sample in samples]


def test_every_row_has_its_test():
    own = {int(n) for name in globals() for n in re.findall(r"^test_(\d\d)_", name)}
    assert own | set(ELSEWHERE) == set(range(1, ROWS + 1))
    for id in ELSEWHERE.values():
        path, _, name = id.partition("::")
        assert f"def {name}(" in (Path(__file__).parents[2] / path).read_text()


@pytest.mark.parametrize("name", ["s.yaml", "s.yml", "s.json"])
def test_01_a_dataset_can_be_a_spec(source, tmp_path, name):
    (tmp_path / name).write_text(json.dumps({"dataset": [{"shards": source(2, 3)}], "epoch": 6}))
    dataset = wds.WebDataset(str(tmp_path / name)).to_tuple("cls")
    assert sorted(value for (value,) in dataset) == list(range(6))


@pytest.mark.parametrize(
    "given",
    [
        {"shardshuffle": False},
        {"handler": wds.warn_and_continue},
        {"cache_dir": "x", "cache_size": 5},
        {"nodesplitter": wds.split_by_node},
        {"seed": 0, "repeat": True},
        {"resampled": True, "empty_check": False},
    ],
)
def test_spec_values_are_not_repeated_as_arguments(source, given):
    spec = {"dataset": [{"shards": source(2, 3)}], "epoch": 6}
    names = ", ".join(f"`{name}`" for name in given)
    with pytest.raises(UsageError, match=rf"^{names} would have no effect with a spec"):
        wds.WebDataset(spec, **given)
    assert len(wds.WebDataset(spec, length=3)) == 3


def test_02_each_epoch_draws_different_shards_also_in_workers(source):
    dataset = wds.WebDataset({"datasets": [{"shards": source(6, 1), "choose": 4}]})
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    epochs = [frozenset(keys(loader)) for _ in range(6)]
    assert {len(epoch) for epoch in epochs} == {4}
    assert len(set(epochs)) > 1


def test_03_an_error_explains_what_is_wrong_with_a_spec():
    with pytest.raises(UsageError, match=r"unknown key `shads`; did you mean `shards`"):
        wds.WebDataset({"datasets": [{"shads": "a.tar"}]})
    with pytest.raises(SpecError, match="shads"):
        wds.WebDataset({"dataset": [{"shads": "a.tar"}]})


def test_04_a_spec_in_json_is_a_dict(source, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"dataset": [{"shards": source(1, 3)}], "epoch": 3}))
    assert len(list(wds.WebDataset(json.loads((tmp_path / "s.json").read_text())))) == 3


def test_05_the_cache_of_the_environment_is_used_and_home_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WDS_CACHE", "~/copies")
    dataset = wds.WebDataset("http://h/a.tar")
    copies = dataset.stages[-1].args[0].storage.resolve(dataset.stages[0].urls[0]).copies
    assert copies.path.startswith(f"{tmp_path}/copies/")


def test_06_a_seed_in_the_environment_works_with_detshuffle(source, monkeypatch):
    urls = source(6, 1)
    orders = []
    for seed in ("41", "42", "42"):
        monkeypatch.setenv("WDS_SEED", seed)
        orders.append(keys(wds.WebDataset(urls, detshuffle=True)))
    assert orders[0] != orders[1] == orders[2]


def test_07_each_pass_has_a_different_shard_order(source):
    dataset = wds.WebDataset(source(6, 1), shardshuffle=True)
    assert keys(dataset) != keys(dataset)


def test_08_detshuffle_changes_with_fresh_workers(source):
    loader = DataLoader(wds.WebDataset(source(2, 20)).detshuffle(40, 40), batch_size=None, num_workers=1)
    epochs = [keys(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]


def test_09_a_sample_of_a_broken_shard_never_merges_with_the_next_shard(tar):
    first, second = tar(("a.jpg", b"1")), tar(("a.cls", b"2"))
    with open(first, "rb+") as file:
        file.truncate(1024)
    assert list(wds.WebDataset([first, second], handler=wds.ignore_and_continue)) == [
        {"__key__": "a", "__url__": second, "cls": b"2"}
    ]


def test_10_a_bad_header_is_an_error(tar):
    url = tar(*((f"{i}.txt", b"x") for i in range(10)))
    with open(url, "rb+") as file:
        file.seek(2048)
        file.write(b"\xff" * 512)
    with pytest.raises(ShardError, match="byte 2048"):
        list(wds.WebDataset(url))


def test_11_the_status_of_a_pipe_is_checked_whatever_the_verbosity(tar, monkeypatch):
    monkeypatch.setenv("GOPEN_VERBOSE", "1")
    url = tar(("a.txt", b"x"))
    for _ in range(3):
        with pytest.raises(ShardError, match="7"):
            list(wds.WebDataset(f"pipe:cat {url}; exit 7"))


@pytest.mark.parametrize("name", ["a#1.tar", "a?b.tar", "a b.tar", "-x.tar"])
def test_12_any_file_name_can_be_read(tar, name):
    url = tar(("a.txt", b"x"), name=name)
    assert keys(wds.WebDataset(url.replace("?", r"\?") if "?" in name else url)) == ["a"]
    assert keys(wds.WebDataset("file:" + url.replace(" ", "%20").replace("?", "%3F"))) == ["a"]


def test_13_rules_can_end_in_a_semicolon_contain_equals_signs_and_match_files(tar, tmp_path, monkeypatch):
    tar(("a.txt", b"x"), name="there.tar")
    monkeypatch.setenv("WDS_REWRITE", rf"/from\=here/={tmp_path}/;")
    assert keys(wds.WebDataset("/from=here/there.tar")) == ["a"]


def test_14_different_urls_have_different_copies(tmp_path):
    urls = ["s3://b/x/0.tar", "s3://b/y/0.tar", "https://h/0.tar?sig=1", "https://h/0.tar"]
    dataset = wds.WebDataset(urls, cache_dir=tmp_path)
    resolver = dataset.stages[-1].args[0].storage.resolve
    assert len({resolver(url).copies.path for url in dataset.stages[0].urls}) == 4


def test_16_the_most_recently_used_copies_are_kept(tmp_path):
    # What counts is use, not age: tests/cache shows it; here that there is a limit at all.
    reader = wds.WebDataset("http://h/a.tar", cache_dir=tmp_path, cache_size=1000).stages[-1].args[0]
    assert reader.storage.cache.rules.limit == 1000


def decoded(sample, *handlers, **options):
    (result,) = wds.DataPipeline([{"__key__": "k", **sample}]).decode(*handlers, **options)
    return result


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def test_17_json_null_is_none():
    assert decoded({"json": b"null"})["json"] is None


def test_18_a_decoding_error_has_a_message():
    with pytest.raises(FieldError, match=r"cannot decode as int|cannot decode as cls"):
        decoded({"cls": b"three"})


def test_19_arrays_are_writable_and_keep_16_bits():
    image = decoded({"png": png(np.zeros((2, 2, 3), np.uint8))}, "rgb8")["png"]
    image += 1
    deep = decoded({"png": png(np.array([[0, 32768, 65535]], np.uint16))}, "l")["png"]
    assert np.allclose(deep, [[0, 32768 / 65535, 1]], atol=1e-4)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_20_nothing_unpickles_unless_allowed_and_never_under_secure_mode(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bomb = pickle.dumps(Bomb())
    for name in ("pyd", "pkl", "pickle", "x.pyd"):
        with pytest.raises(UsageError, match="pickle"):
            decoded({name: bomb})
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(SpecError, match="WDS_SECURE"):
        decoded({"pyd": bomb}, allow=["pickle"])
    assert not (tmp_path / "exploded").exists()


def test_21_renaming_and_mapping_keep_the_key():
    sample = {"__key__": "k", "__url__": "u", "a": 1, "b": 2}
    pipeline = wds.DataPipeline([sample])
    assert list(pipeline.rename(x="a", keep=False)) == [{"__key__": "k", "__url__": "u", "x": 1}]
    assert list(pipeline.rename_keys(x="a")) == [{"__key__": "k", "__url__": "u", "x": 1}]
    assert list(pipeline.map(lambda s: {"a": 3})) == [{"a": 3, "__key__": "k", "__url__": "u"}]
    assert next(iter(pipeline.map(lambda s: {**s, "__key__": "other"})))["__key__"] == "other"


def test_22_a_batch_comes_with_its_last_sample():
    pulled = []

    def numbers():
        for i in range(9):
            pulled.append(i)
            yield i

    next(iter(wds.DataPipeline(numbers).batched(4)))
    assert pulled == [0, 1, 2, 3]


def test_23_an_epoch_counts_all_workers_and_changes_nothing_else(source):
    dataset = wds.WebDataset(source(2, 10))
    epoch = dataset.with_epoch(10, over="job")
    assert epoch is not dataset
    loader = DataLoader(epoch, batch_size=None, num_workers=2)
    assert [len(list(loader)) for _ in range(2)] == [10, 10]
    assert len({key for _ in range(2) for key in keys(epoch)}) == 20


def test_24_repeating_can_be_limited_to_n():
    assert list(wds.DataPipeline(range(10)).repeat(1, nbatches=3)) == [0, 1, 2]


def test_25_a_pipeline_with_a_length_pickles():
    assert len(pickle.loads(pickle.dumps(wds.DataPipeline(range(3)).with_length(7)))) == 7


@pytest.mark.parametrize("shares", [[0, 0], [-1, 2], [1]])
def test_26_shares_are_checked_before_mixing(shares):
    with pytest.raises(UsageError, match="share"):
        wds.RandomMix([[1], [2]], shares)


def test_27_ranks_get_equal_parts(source, monkeypatch):
    dataset = wds.WebDataset(source(6, 10), nodesplitter=wds.split_by_node)
    monkeypatch.setenv("WORLD_SIZE", "4")
    parts = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        parts.append(len(list(dataset)))
    assert parts == [15] * 4


def test_28_every_rank_and_worker_gets_samples(source, monkeypatch):
    loader = DataLoader(wds.WebDataset(source(6, 2)), batch_size=None, num_workers=8)
    assert len(set(keys(loader))) == 12
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "7")
    assert len(list(wds.WebDataset(source(6, 8), nodesplitter=wds.split_by_node))) == 6


def test_30_a_writer_without_samples_writes_no_shard(tmp_path):
    wds.ShardWriter(str(tmp_path / "s-%03d.tar"), verbose=0).close()
    assert os.listdir(tmp_path) == []


def test_31_decoders_read_what_encoders_write(tmp_path):
    with wds.TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write({"__key__": "a", "json": '"a text"', "count": 3, "class": 4})
    (sample,) = wds.WebDataset(str(tmp_path / "a.tar")).decode()
    assert (sample["json"], sample["count"], sample["class"]) == ("a text", 3, 4)


def test_32_every_public_name_can_be_used():
    for name in wds.__all__:
        assert getattr(wds, name) is not None
    with pytest.raises(AttributeError):
        wds.with_epoch  # noqa: B018  # a method, and no class that cannot be made


def test_33_a_handler_that_warns_does_not_wait(monkeypatch):
    items = wds.DataPipeline(range(200)).map(lambda i: 1 / 0, handler=wds.warn_and_continue)
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert list(items) == []
    assert len(seen) == 200
    assert not waits


def test_34_batch_fields_follow_the_order_of_the_first_sample():
    names = [f"field{i}" for i in range(50)]
    batch = next(iter(wds.DataPipeline([dict.fromkeys(names, 1)] * 2).batched(2)))
    assert list(batch) == names
    assert batch["field0"].dtype == torch.int64
