"""Code written for webdataset finds the names of its modules and its forms of calls, or a correct hint."""

from __future__ import annotations

import glob
import importlib
import os
import pickle
import random
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shardmaking import write_source

import wdspec as wds

NAMES = {
    "filters": "_shuffle _map _select _batched pipelinefilter default_collation_fn detshuffle shuffle Cached",
    "tariterators": "base_plus_ext url_opener tar_file_expander valid_sample group_by_keys tarfile_samples",
    "shardlists": "expand_urls DirectoryShardList ResampledShards split_by_node split_by_worker single_node_only",
    "utils": "pytorch_worker_seed pytorch_worker_info PipelineStage identity repeatedly",
    "pipeline": "DataPipeline PipelineStage",
    "handlers": "warn_and_continue reraise_exception",
    "mix": "RandomMix RoundRobin",
    "autodecode": "imagehandler ImageHandler Decoder handle_extension imagespecs DecodingError",
    "compat": "FluidInterface WebDataset WebLoader FluidWrapper",
    "writer": "TarWriter ShardWriter",
    "gopen": "gopen rewrite_url",
}


@pytest.mark.parametrize("module", NAMES)
def test_modules_of_webdataset_have_the_names_that_code_imports(module: str) -> None:
    found = importlib.import_module(f"wdspec.{module}")
    for name in NAMES[module].split():
        assert callable(getattr(found, name)) or name == "imagespecs"
    assert module == "gopen" or getattr(wds, module) is found
    with pytest.raises(
        AttributeError, match=rf"module 'wdspec\.{module}' has no attribute 'nothing'; webdataset's"
    ):
        found.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("cache", "FileCache", "cache_dir="),
        ("cache", "pipe_cleaner", "cache_dir="),
        ("autodecode", "decoders", "docs/decoders.md"),
        ("writer", "numpy_dumps", "TarWriter"),
    ],
)
def test_a_missing_name_suggests_a_replacement(module: str, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match="use ") as error:
        getattr(importlib.import_module(f"wdspec.{module}"), name)
    assert hint in str(error.value)


def test_stages_are_built_as_in_webdataset() -> None:
    class Doubled(wds.PipelineStage):
        def run(self, source: Any) -> Any:
            return (2 * item for item in source)

    class Loose(wds.DataPipeline, wds.compat.FluidInterface):
        pass

    @wds.pipelinefilter
    def plus(source: Any, amount: int = 1) -> Any:
        return (item + amount for item in source)

    assert list(Loose(range(3), Doubled(), plus(amount=10)).shuffle(1)) == [10, 12, 14]
    assert list(wds.compat.FluidWrapper([1, 2]).map(str)) == ["1", "2"]
    shuffled = list(wds.filters._shuffle(range(50), 10, 5, random.Random(1)))
    assert sorted(shuffled) == list(range(50)) != shuffled
    stage = wds.pipelinefilter(wds.utils.identity)
    assert pickle.loads(pickle.dumps(stage()))  # workers are spawned with it


def test_members_are_split_and_grouped() -> None:
    assert wds.tariterators.base_plus_ext("a/b.seg.png") == ("a/b", "seg.png")
    assert wds.tariterators.base_plus_ext("a.b/c") == (None, None)
    assert not wds.tariterators.valid_sample({})
    assert not wds.tariterators.valid_sample({"a": 1, "__bad__": True})
    members = [{"fname": f"{key}-{end}", "data": end, "__url__": "u"} for key in "ab" for end in ("X", "Y")]
    cut = partial(wds.group_by_keys, keys=lambda name: tuple(name.split("-")))
    assert [set(sample) - {"__key__", "__url__"} for sample in cut(members)] == [{"x", "y"}] * 2
    assert [sample.get("X") for sample in cut(members, lcase=False, suffixes={"X"})] == ["X", "X"]


def test_shard_lists_contain_strings() -> None:
    shards = wds.SimpleShardList("a-{0..9}.tar")
    assert shards.urls == [f"a-{i}.tar" for i in range(10)]
    assert shards.urls[3].endswith("3.tar")
    assert ", ".join(shards.urls[:2]) == "a-0.tar, a-1.tar"
    assert wds.shardlists.expand_urls("a-{0..1}.tar::b.tar") == ["a-0.tar", "a-1.tar", "b.tar"]


def test_resampled_shards_with_and_without_a_seed() -> None:
    def drawn(**more: Any) -> list[str]:
        shards = wds.ResampledShards("a-{000..999}.tar", 20, 5, **more)
        return [shard["url"] for shard in shards]

    again = wds.ResampledShards("a-{000..999}.tar", 20, 5)
    assert list(again) != list(again)  # each iteration is a separate pass
    assert drawn() == drawn(deterministic=True)
    assert drawn(worker_seed=lambda: 7) != drawn(worker_seed=lambda: 8)
    assert set(drawn(max_urls=2)) == {"a-000.tar", "a-001.tar"}
    assert len(list(wds.DataPipeline([{"url": "a"}, {"url": "b"}], wds.resampled(30)))) == 30


def test_a_directory_is_read_while_it_is_filled(tmp_path: Path) -> None:
    def fill(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_text("")

    fill("a.tar", "b.tgz", "c.txt")
    shards = wds.shardlists.DirectoryShardList(str(tmp_path), poll=None, mode="unlink")
    first = next(source := iter(shards))
    assert first["url"].endswith(f"._{os.getpid()}_")
    fill("d.tar")
    assert len([*source]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["c.txt"]
    fill("e.tar")
    (tmp_path / "e.tar").rename(tmp_path / "e.tar._99999999_")  # of a process that has ended
    source = iter(wds.shardlists.DirectoryShardList(str(tmp_path), poll=None, mode="unlink"))
    assert next(source)["url"] == f"{tmp_path}/e.tar._{os.getpid()}_", "it was not read to its end"
    source.close()
    assert glob.glob(f"{tmp_path}/e*") == [f"{tmp_path}/e.tar"], "nor now"
    with pytest.raises(wds.UsageError, match="`mode` is resample or unlink or keep"):
        wds.shardlists.DirectoryShardList(str(tmp_path), mode="delete")


def test_files_are_opened_for_reading_and_writing(tmp_path: Path) -> None:
    with wds.gopen(f"{tmp_path}/a", "wb") as file:
        file.write(b"abc")
        assert not (tmp_path / "a").exists()
    with wds.gopen(f"{tmp_path}/a") as file:
        assert (file.read(1), file.read()) == (b"a", b"bc")
    with pytest.raises(ValueError), wds.gopen(f"{tmp_path}/b", "wb") as file:  # noqa: PT011
        raise ValueError
    assert not (tmp_path / "b").exists()
    with wds.gopen(f"pipe:cat > {tmp_path}/c", "wb") as file:
        file.write(b"abc")
    assert (tmp_path / "c").read_bytes() == b"abc"
    with pytest.raises(wds.UsageError, match="'ab'"):
        wds.gopen(f"{tmp_path}/a", "ab")


def test_batches_keep_the_types_of_webdataset_on_request() -> None:
    samples = [(np.ones(2, "f4"), torch.ones(2), 3, "a")] * 2
    assert [type(column) for column in wds.default_collation_fn(samples)] == [torch.Tensor] * 3 + [list]
    as_there = wds.default_collation_fn(samples, combine_tensors=True)
    assert [type(column) for column in as_there] == [np.ndarray, torch.Tensor, np.ndarray, list]
    assert as_there[0].dtype == np.float32
    assert as_there[0].shape == (2, 2)
    apart = wds.default_collation_fn(
        [{"x": np.ones(2), "n": 1}], combine_tensors=False, combine_scalars=False
    )
    assert isinstance(apart["x"], list)
    assert apart["n"] == [1]
    with pytest.raises(wds.FieldError, match="shapes"):
        wds.default_collation_fn([(np.ones(1),), (np.ones(2),)], combine_tensors=True)
    with pytest.raises(wds.FieldError):
        wds.default_collation_fn([{"a": 1}, {"b": 1}], combine_tensors=True)


def test_pipelines_are_used_as_in_webdataset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    urls = write_source(tmp_path, "a", shards=2, samples=3)
    caplog.set_level("INFO", "wdspec")
    with wds.WebDataset(urls, wds.warn_and_continue, shardshuffle=False, verbose=True) as dataset:
        dataset.append(wds.decode())
        dataset.append(wds.to_tuple("cls"))
        assert [value for (value,) in dataset] == [0, 1, 2, 3, 4, 5]
        assert dataset.stage(0) is dataset.pipeline[0]
    assert [record.message.rpartition("/")[2] for record in caplog.records] == ["a-000.tar", "a-001.tar"]
    drawn = wds.WebDataset(urls, mode="resampled")
    assert len(list(islice(drawn, 20))) == 20
    with pytest.raises(wds.UsageError, match="`mode`"):
        wds.WebDataset(urls, mode="shuffled")
    kept = wds.DataPipeline(wds.compat.MockDataset({"a": 1}, 2), wds.Cached())
    assert list(kept) == list(kept) == [{"a": 1}] * 2
    assert len(list(wds.DataPipeline(wds.SimpleShardList(urls), wds.tariterators.tarfile_samples))) == 6


def test_map_dict_raises_the_errors_of_dicts() -> None:
    stage = wds.map_dict(b=str)
    with pytest.raises(wds.FieldError, match="'b'"):
        list(stage([{"a": 1}]))
    with pytest.raises(KeyError):
        list(stage([{"a": 1}]))
    assert list(wds.map(int, wds.ignore_and_continue)(["1", "x"])) == [1]  # a handler by its place


def _items(dataset: Any, workers: int) -> int:
    return sum(1 for _ in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers))


def test_an_epoch_counts_per_worker_as_in_webdataset(tmp_path: Path) -> None:
    import webdataset

    urls = write_source(tmp_path, "a", shards=2, samples=4)
    shards = [f"{tmp_path}/a-000.tar", f"{tmp_path}/a-001.tar"]
    theirs = webdataset.WebDataset(shards, shardshuffle=False).repeat().with_epoch(5)
    assert _items(theirs, 2) == 10
    assert _items(wds.WebDataset(urls).with_epoch(5), 2) == 10
    assert _items(wds.WebDataset(urls).with_epoch(5, over="job"), 2) == 5
    batches = wds.WebLoader(wds.WebDataset(urls).batched(2).with_epoch(5), batch_size=None, num_workers=2)
    assert len(list(batches)) == 10


def test_shard_writers_have_the_attributes_of_webdataset(tmp_path: Path) -> None:
    import webdataset

    def states(writer: Any) -> Any:
        for n in range(5):
            writer.write({"__key__": str(n), "cls": n})
            yield (
                Path(writer.fname).name,
                writer.count,
                writer.shard,
                writer.total,
                writer.maxcount,
                writer.maxsize,
            )

    for lib in (wds, webdataset):
        (tmp_path / lib.__name__).mkdir()
    ours, theirs = (
        lib.ShardWriter(f"{tmp_path}/{lib.__name__}/s-%d.tar", maxcount=2, start_shard=3, verbose=0)
        for lib in (wds, webdataset)
    )
    assert (ours.shard, ours.count, ours.size, Path(ours.fname).name) == (4, 0, 0, "s-3.tar")
    assert (theirs.shard, theirs.count, theirs.size, Path(theirs.fname).name) == (4, 0, 0, "s-3.tar")
    assert list(states(ours)) == list(states(theirs))
    ours.maxcount = 1
    ours.write({"__key__": "last", "cls": 1})
    assert ours.fname.endswith("s-6.tar")
    assert ours.size > 0
    ours.close()
    theirs.close()


def test_decoding_errors_have_the_attributes_of_webdataset(tmp_path: Path) -> None:
    errors: list[Any] = []
    samples = [{"__key__": "a", "__url__": "u", "cls": b"x"}]
    list(wds.DataPipeline(samples).decode(handler=lambda error: errors.append(error) or True))
    (error,) = errors
    assert isinstance(error, wds.DecodingError)
    assert (error.url, error.key, error.k) == ("u", "a", "cls")


def test_collections_are_read_from_a_file_and_shuffles_accept_a_handler(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("datasets: [{shards: 'a-{0..3}.tar', choose: 2}]")
    shards = wds.MultiShardSample(f"{tmp_path}/f.yaml")
    assert len(list(shards)) == 2
    assert list(shards) == list(wds.MultiShardSample({"datasets": [{"shards": "a-{0..3}.tar", "choose": 2}]}))
    (tmp_path / "f.yaml").write_text("[]")
    with pytest.raises(wds.UsageError, match="is a list; it must be a dictionary with `datasets`"):
        wds.MultiShardSample(tmp_path / "f.yaml")
    numbers = wds.DataPipeline(range(50))
    assert list(numbers.shuffle(9, handler=wds.warn_and_continue, seed=None)) == list(numbers.shuffle(9))
