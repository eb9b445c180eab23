"""Data code in the shape of three public programs, with `wdspec` instead of `webdataset`, on generated data.

Each is rewritten, with the same calls on the library in the same order: names imported from its inner modules,
classes derived from its own, and an epoch counted for each worker. A line that had to change is marked `edited`.
"""

from __future__ import annotations

import functools
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from multiprocessing import Value
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from PIL import Image
from shardmaking import write_shard
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

import wdspec as wds
from wdspec.webdataset.shuffling import _shuffle
from wdspec.webdataset.tariterators import base_plus_ext, tar_file_expander, url_opener, valid_sample

SHARDS, SAMPLES, WORKERS = 4, 6, 2


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (12, 10), (number, number, number)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four shards of six samples; the pictures of each shard have its number and theirs in them."""
    folder = tmp_path_factory.mktemp("pairs")
    for shard in range(SHARDS):
        samples = [
            (
                f"{shard:03d}{n:03d}",
                {
                    "jpg": picture(10 * shard + n),
                    "txt": f"caption {10 * shard + n}".encode(),
                    "json": json.dumps({"original_width": 2000 - 500 * (n % 2), "pwatermark": 0.1}).encode(),
                },
            )
            for n in range(SAMPLES)
        ]
        write_shard(folder / f"{shard:03d}.tar", samples)
    return f"{folder}/{{000..{SHARDS - 1:03d}}}.tar"


def skip_and_go_on(error: Exception) -> bool:
    return True


def grouped_without_errors(
    members: Iterator[dict[str, Any]],
    keys: Callable[[str], Any] = base_plus_ext,
    lcase: bool = True,
    handler: Any = None,
) -> Iterator[dict[str, Any]]:
    """Samples out of members, as both training programs group them: every item is taken for a member."""
    sample: dict[str, Any] | None = None
    for member in members:
        assert isinstance(member, dict)
        name, data = member["fname"], member["data"]
        key, suffix = keys(name)
        if key is None:
            continue
        suffix = suffix.lower() if lcase else suffix
        if sample is None or key != sample["__key__"] or suffix in sample:
            if valid_sample(sample):
                assert sample is not None
                yield sample
            sample = {"__key__": key, "__url__": member["__url__"]}
        sample[suffix] = data
    if valid_sample(sample):
        assert sample is not None
        yield sample


def samples_without_errors(source: Any, handler: Any = skip_and_go_on) -> Iterator[dict[str, Any]]:
    streams = url_opener(source, handler=handler)
    return grouped_without_errors(tar_file_expander(streams, handler=handler), handler=handler)


# The shape of open_clip's data module: contrastive training on pictures and captions.


class EpochCounter:
    def __init__(self) -> None:
        self.shared = Value("i", 0)


class ShuffledByEpoch(wds.PipelineStage):
    def __init__(self, bufsize: int, initial: int, seed: int, epoch: EpochCounter) -> None:
        self.bufsize, self.initial, self.seed, self.epoch = bufsize, initial, seed, epoch

    def run(self, src: Iterator[Any]) -> Iterator[Any]:
        rng = random.Random()
        epoch = self.epoch.shared.value
        rng.seed(worker_seed(epoch) if self.seed < 0 else self.seed + epoch)
        return _shuffle(src, self.bufsize, self.initial, rng)


class DrawnShards(IterableDataset[Any]):
    def __init__(self, urls: str, epoch: EpochCounter) -> None:
        super().__init__()
        self.urls = wds.shardlists.expand_urls(urls)
        assert isinstance(self.urls[0], str)
        self.epoch, self.rng = epoch, random.Random()

    def __iter__(self) -> Iterator[dict[str, str]]:
        self.rng.seed(worker_seed(self.epoch.shared.value))
        while True:
            yield {"url": self.rng.choice(self.urls)}


def worker_seed(increment: int) -> int:
    info = get_worker_info()
    return info.seed + increment if info is not None else wds.utils.pytorch_worker_seed()


def to_floats(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image).astype("f4"))


def to_tokens(text: str) -> torch.Tensor:
    return torch.tensor([len(word) for word in text.split()])


def has_picture_and_caption(sample: dict[str, Any]) -> bool:
    return "txt" in sample and any(name in sample for name in ("png", "jpg", "jpeg", "webp"))


def contrastive_loader(urls: str, batch_size: int, num_samples: int, resampled: bool) -> Any:
    epoch = EpochCounter()
    pipeline: list[Any] = [DrawnShards(urls, epoch) if resampled else wds.SimpleShardList(urls)]
    if not resampled:
        pipeline.extend([ShuffledByEpoch(2000, 500, 0, epoch), wds.split_by_node, wds.split_by_worker])
    pipeline.extend([samples_without_errors, wds.shuffle(bufsize=10, initial=5)])
    pipeline.extend(
        [
            wds.select(has_picture_and_caption),
            wds.decode("pilrgb", handler=skip_and_go_on),
            wds.rename(image="jpg;png;jpeg;webp", text="txt"),
            wds.map_dict(image=to_floats, text=to_tokens),
            wds.to_tuple("image", "text"),
            wds.batched(batch_size, partial=False),
        ]
    )
    dataset = wds.DataPipeline(*pipeline)
    num_batches = math.ceil(num_samples / batch_size)
    num_worker_batches = math.ceil(num_batches / WORKERS)
    dataset = dataset.with_epoch(num_worker_batches)
    loader = wds.WebLoader(
        dataset, batch_size=None, shuffle=False, num_workers=WORKERS, persistent_workers=True
    )
    loader.num_batches = num_worker_batches * WORKERS
    loader.num_samples = loader.num_batches * batch_size
    return loader


@pytest.mark.parametrize("resampled", [False, True])
def test_contrastive_training_gets_the_batches_it_expects(shards: str, resampled: bool) -> None:
    loader = contrastive_loader(shards, 3, 48, resampled)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == loader.num_batches == 16
        assert sum(len(images) for images, _ in batches) == loader.num_samples
        for images, texts in batches:
            assert images.shape == (3, 10, 12, 3)
            assert texts.shape == (3, 2)


# The shape of diffusers' consistency distillation: a text-to-image data set, filtered by what JSON says.


def only(names: set[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return functools.partial(_chosen, names)


def _chosen(names: set[str], sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name in names}


class LargeEnough:
    def __init__(self, min_size: int) -> None:
        self.min_size = min_size

    def __call__(self, sample: dict[str, Any]) -> bool:
        return "json" in sample and json.loads(sample["json"]).get("original_width", 0) >= self.min_size


class TextToImage:
    def __init__(self, urls: str, examples: int, batch_size: int, workers: int) -> None:
        def transform(example: dict[str, Any]) -> dict[str, Any]:
            example["image"] = to_floats(example["image"].resize((8, 8))) / 127.5 - 1
            return example

        pipeline = [
            wds.ResampledShards(wds.shardlists.expand_urls(urls)),
            functools.partial(samples_without_errors, handler=wds.warn_and_continue),
            wds.select(LargeEnough(1800)),
            wds.shuffle(10),
            wds.decode("pil", handler=wds.ignore_and_continue),
            wds.rename(image="jpg;png;jpeg;webp", text="text;txt;caption", handler=wds.warn_and_continue),
            wds.map(only({"image", "text"})),
            wds.map(transform),
            wds.to_tuple("image", "text"),
            wds.batched(batch_size, partial=False, collation_fn=default_collate),
        ]
        worker_batches = math.ceil(examples / (batch_size * workers))
        dataset = wds.DataPipeline(*pipeline).with_epoch(worker_batches)
        self.loader = wds.WebLoader(dataset, batch_size=None, shuffle=False, num_workers=workers)
        self.loader.num_batches = worker_batches * workers


def test_distillation_gets_the_batches_it_expects(shards: str) -> None:
    data = TextToImage(shards, examples=32, batch_size=4, workers=WORKERS)
    batches = list(data.loader)
    assert len(batches) == data.loader.num_batches == 8
    for images, texts in batches:
        assert images.shape == (4, 8, 8, 3)
        assert images.min() >= -1
        assert all(int(text.split()[1]) % 2 == 0 for text in texts)  # the large ones


# The shape of DALLE2-pytorch's decoder loader: embeddings from files next to the shards, joined by shard and index.


def insert_embeddings(samples: Any, embeddings_url: str, index_width: int, handler: Any) -> Iterator[Any]:
    files, folder = fsspec.core.url_to_fs(embeddings_url)
    before, values = None, None
    for sample in samples:
        try:
            if sample["__url__"] != before:
                before = sample["__url__"]
                shard = int(before.split("/")[-1].split(".")[0])
                with files.open(f"{folder}/emb_{shard:04d}.npy") as file:
                    values = torch.from_numpy(np.load(file))
            assert values is not None
            embedding = values[int(sample["__key__"][-index_width:])]
            if torch.count_nonzero(embedding) == 0:
                raise RuntimeError("no embedding")
            sample["img_emb"] = embedding
            yield sample
        except Exception as error:
            if not handler(error):
                break


def with_embeddings_only(shards: Any, embeddings_url: str, handler: Any) -> Iterator[Any]:
    files, folder = fsspec.core.url_to_fs(embeddings_url)
    known = {int(name.split("_")[-1].split(".")[0]) for name in files.ls(folder, detail=False)}
    return (shard for shard in shards if int(shard["url"].split("/")[-1].split(".")[0]) in known)


def join_embeddings(samples: Iterator[Any]) -> Iterator[Any]:
    for sample in samples:
        sample["emb"] = {"img": sample["img_emb"]} if "img_emb" in sample else {}
        yield sample


inserted = wds.filters.pipelinefilter(insert_embeddings)
matched = wds.filters.pipelinefilter(with_embeddings_only)


class PicturesWithEmbeddings(wds.DataPipeline, wds.compat.FluidInterface):
    def __init__(self, urls: str, embeddings: str, resample: bool, handler: Any) -> None:
        super().__init__()
        if resample:
            self.append(wds.ResampledShards(urls))
        else:
            self.append(wds.SimpleShardList(urls))
            self.append(wds.filters.shuffle(1000))
        self.append(matched(embeddings_url=embeddings, handler=handler))
        self.append(wds.tarfile_to_samples(handler=handler))
        self.append(wds.decode("pilrgb", handler=handler))
        self.append(inserted(embeddings_url=embeddings, index_width=3, handler=handler))
        self.append(join_embeddings)
        self.append(wds.map(self.prepared))
        self.append(wds.to_tuple("jpg", "emb", "txt"))

    def prepared(self, sample: dict[str, Any]) -> dict[str, Any]:
        sample["jpg"] = to_floats(sample["jpg"])
        return sample


@pytest.mark.parametrize("resample", [False, True])
def test_a_decoder_gets_images_with_their_embeddings(shards: str, tmp_path: Path, resample: bool) -> None:
    for shard in range(SHARDS - 1):  # the last shard has none
        values = np.arange(SAMPLES, dtype="f4")[:, None] + 10 * shard + np.ones(4, "f4")
        values[2] = 0  # and neither has the third sample of each
        np.save(tmp_path / f"emb_{shard:04d}.npy", values)
    dataset = PicturesWithEmbeddings(shards, str(tmp_path), resample, wds.handlers.ignore_and_continue)
    loader = DataLoader(dataset, num_workers=0, batch_size=5, shuffle=False)
    seen = []
    for images, emb, texts in loader:
        numbers = [int(text.split()[1]) for text in texts]
        assert images[:, 0, 0, 0].tolist() == numbers
        assert emb["img"][:, 0].tolist() == [number + 1 for number in numbers]
        seen += numbers
        if len(seen) >= 30:
            break
    expected = {10 * shard + n for shard in range(SHARDS - 1) for n in range(SAMPLES) if n != 2}
    assert set(seen) <= expected
    assert resample or sorted(seen) == sorted(expected)
