"""Who reads what in `python -m benchmarks`: for each contender and row, without end, how many samples an item has."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.samples import files_of, shards_of

BATCH = 64
SIDE = 224


@dataclass(frozen=True)
class Row:
    """What is read, and how."""

    title: str
    data: str
    kind: str
    """`raw`: samples as bytes, in order. `mix`: three sources, shuffled, decoded, batched. `batch`: one, likewise."""
    workers: int = 0


ROWS = {
    "raw-text": Row("raw samples, 0.7 KB txt + json, one process", "text", "raw"),
    "raw-jpg": Row("raw samples, 40 KB jpg + cls + json, one process", "jpg40", "raw"),
    "mix": Row("3 sources mixed, shuffled, txt + json decoded, batches of 64, one process", "text", "mix"),
    "text-0": Row("batches of 64 texts, no worker", "text", "batch"),
    "text-2": Row("batches of 64 texts, 2 workers", "text", "batch", 2),
    "npy16-0": Row("batches of 64 samples of 16 small arrays, no worker", "npy16", "batch"),
    "npy16-2": Row("batches of 64 samples of 16 small arrays, 2 workers", "npy16", "batch", 2),
    "jpg40-0": Row("40 KB jpg, random crop to 224, batches of 64, no worker", "jpg40", "crop"),
    "jpg40-2": Row("40 KB jpg, random crop to 224, batches of 64, 2 workers", "jpg40", "crop", 2),
    "jpg400-2": Row("400 KB jpg, random crop to 224, batches of 64, 2 workers", "jpg400", "crop", 2),
}
Counts = Iterator[int]
Read = Callable[[Row, Path], Counts]


@dataclass(frozen=True)
class Contender:
    """How one of those compared reads each row that it can."""

    package: str = ""
    """What it needs of the peers."""
    rows: dict[str, Read] = field(default_factory=dict)


def of_kinds(**reads: Read) -> dict[str, Read]:
    """Row → how it is read, by the kinds of rows."""
    return {name: reads[row.kind] for name, row in ROWS.items() if row.kind in reads}


def again_and_again(epoch: Callable[[], Any], size: Callable[[Any], int] = lambda item: 1) -> Counts:
    """The samples in each item of epoch after epoch."""
    while True:
        for item in epoch():
            yield size(item)


# wdspec ------------------------------------------------------------------------------------------------------------


def spec_raw(row: Row, folder: Path) -> Counts:
    import wdspec

    source = {
        "name": "a",
        "shards": shards_of(folder, row.data),
        "decode": "raw",
        "order": "sequential",
        "shuffle": 0,
    }
    return again_and_again(lambda: wdspec.compile({"dataset": [source]}))


def stages_raw(row: Row, folder: Path) -> Counts:
    import wdspec

    return again_and_again(lambda: wdspec.WebDataset(shards_of(folder, row.data)))


def spec_mix(row: Row, folder: Path) -> Counts:
    import wdspec

    shares = {"text": 0.5, "text-b": 0.3, "text-c": 0.2}
    sources = [
        {"name": name, "shards": shards_of(folder, name), "probability": share, "shuffle": 1000}
        for name, share in shares.items()
    ]
    return again_and_again(
        lambda: wdspec.loader({"dataset": sources, "batch": BATCH}, num_workers=0), batch_of
    )


def spec_batch(row: Row, folder: Path) -> Counts:
    import wdspec

    source: dict[str, Any] = {"name": "a", "shards": shards_of(folder, row.data)}
    if row.kind == "crop":
        source |= {"decode": f"rgb8+random_resized_crop={SIDE}", "extensions": "jpg"}
    elif row.data == "text":
        source["extensions"] = "txt"
    spec = {"dataset": [source], "batch": BATCH}
    return again_and_again(lambda: wdspec.loader(spec, num_workers=row.workers), batch_of)


def batch_of(item: Any) -> int:
    return BATCH


# webdataset, alone and in torchdata's loader -----------------------------------------------------------------------


def their_samples(row: Row, folder: Path, name: str | None = None) -> Any:
    import webdataset

    urls = shards_of(folder, name or row.data)
    return webdataset.WebDataset(
        urls, shardshuffle=False, nodesplitter=None, workersplitter=webdataset.split_by_worker
    )


def their_raw(row: Row, folder: Path) -> Counts:
    return again_and_again(lambda: their_samples(row, folder))


def their_mix(row: Row, folder: Path) -> Counts:
    import webdataset

    def epoch() -> Any:
        sources = [their_samples(row, folder, name) for name in ("text", "text-b", "text-c")]
        return webdataset.DataPipeline(
            webdataset.RandomMix(sources, [0.5, 0.3, 0.2], longest=True),
            webdataset.shuffle(1000),
            webdataset.decode(),
            webdataset.batched(BATCH, collation_fn=collated, partial=False),
        )

    return again_and_again(epoch, batch_of)


def collated(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A dict of field → tensor or list."""
    import numpy as np
    import torch

    columns = {name: [sample[name] for sample in samples] for name in samples[0]}
    return {
        name: torch.from_numpy(np.stack(values)) if isinstance(values[0], np.ndarray) else values
        for name, values in columns.items()
    }


def cropped(data: bytes) -> Any:
    """The same crop by Pillow, as torchvision has it."""
    import math
    import random

    import numpy as np
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    for _ in range(10):
        area = image.width * image.height * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if width <= image.width and height <= image.height:
            break
    else:
        width, height = image.size
    left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
    part = image.crop((left, top, left + width, top + height))
    return np.array(part.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def to_crop(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "jpg": cropped(sample["jpg"])}


def to_text(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "txt": sample["txt"].decode()}


def their_batches(row: Row, folder: Path) -> Any:
    import webdataset

    stages = {
        "jpg40": [webdataset.map(to_crop)],
        "jpg400": [webdataset.map(to_crop)],
        "text": [webdataset.map(to_text)],
        "npy16": [webdataset.decode()],
    }[row.data]
    batched = webdataset.batched(BATCH, collation_fn=collated, partial=False)
    return webdataset.DataPipeline(their_samples(row, folder), webdataset.shuffle(1000), *stages, batched)


def their_batch(row: Row, folder: Path) -> Counts:
    import webdataset

    return again_and_again(
        lambda: webdataset.WebLoader(their_batches(row, folder), batch_size=None, num_workers=row.workers),
        batch_of,
    )


def torchdata_batch(row: Row, folder: Path) -> Counts:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return again_and_again(
        lambda: StatefulDataLoader(their_batches(row, folder), batch_size=None, num_workers=row.workers),
        batch_of,
    )


# Hugging Face datasets, SPDL ---------------------------------------------------------------------------------------


def hugging_face_raw(row: Row, folder: Path) -> Counts:
    import datasets

    files = {"train": files_of(folder, row.data)}
    found = datasets.load_dataset(
        "webdataset", data_files=files, split="train", streaming=True, cache_dir=str(folder / "huggingface")
    )
    if "jpg" in found.features:
        found = found.cast_column("jpg", datasets.Image(decode=False))
    return again_and_again(lambda: found)


def spdl_raw(row: Row, folder: Path) -> Counts:
    from spdl.io import iter_tarfile

    def epoch() -> Iterator[dict[str, bytes]]:
        for path in files_of(folder, row.data):
            with open(path, "rb") as file:
                key, sample = "", {}
                for name, data in iter_tarfile(file):
                    stem, _, suffix = name.partition(".")
                    if stem != key and sample:
                        yield sample
                        sample = {}
                    key = stem
                    sample[suffix] = bytes(data)
                yield sample

    return again_and_again(epoch)


# Formats of their own, converted first -----------------------------------------------------------------------------


def members(row: Row, folder: Path) -> Iterator[dict[str, bytes]]:
    """The samples, by tarfile."""
    for path in files_of(folder, row.data):
        with tarfile.open(path) as tar:
            key, sample = "", {}
            for member in tar:
                stem, _, suffix = member.name.partition(".")
                if stem != key and sample:
                    yield sample
                    sample = {}
                key = stem
                sample[suffix] = tar.extractfile(member).read()  # type: ignore[union-attr]  # all are files
            yield sample


def mosaic_raw(row: Row, folder: Path) -> Counts:
    from streaming import MDSWriter, StreamingDataset

    out = folder / f"mds-{row.data}"
    if not out.exists():
        names = next(members(row, folder)).keys()
        with MDSWriter(out=str(out), columns=dict.fromkeys(names, "bytes")) as writer:
            for sample in members(row, folder):
                writer.write(sample)
    found = StreamingDataset(local=str(out), shuffle=False, batch_size=1)
    return again_and_again(lambda: found)


def litdata_raw(row: Row, folder: Path) -> Counts:
    import litdata

    out = folder / f"litdata-{row.data}"
    if not out.exists():
        from litdata.streaming import Cache  # the writer that `optimize` drives

        cache = Cache(str(out), chunk_bytes="16MB")
        for number, sample in enumerate(members(row, folder)):
            cache[number] = sample
        cache.done()
        cache.merge()
    found = litdata.StreamingDataset(str(out), shuffle=False)
    return again_and_again(lambda: found)


# Limits ------------------------------------------------------------------------------------------------------------


def cat(row: Row, folder: Path) -> Counts:
    """The same files in blocks of a megabyte; the samples are counted before."""
    files = files_of(folder, row.data)
    total = sum(os.path.getsize(path) for path in files)
    with tarfile.open(files[0]) as tar:
        samples = len({member.name.partition(".")[0] for member in tar})
    each = samples / os.path.getsize(files[0]) * total / max(1, total // 2**20)
    read = 0.0
    while True:
        for path in files:
            with open(path, "rb", buffering=0) as file:
                while file.read(2**20):
                    read += each
                    yield int(read)
                    read -= int(read)


def bare_crop(row: Row, folder: Path) -> Counts:
    """simplejpeg and Pillow's crop on bytes that are in memory, in one process or in as many as there are workers."""
    from multiprocessing import Pipe, Process

    files = [sample["jpg"] for sample, _ in zip(members(row, folder), range(BATCH), strict=False)]
    if not row.workers:
        return map(bare, again_and_again_of(files))
    ends, senders = zip(*(Pipe(duplex=False) for _ in range(row.workers)), strict=True)
    for sender in senders:
        Process(target=bare_many, args=(files, sender), daemon=True).start()
    return received(ends)


def received(ends: Any) -> Counts:
    from multiprocessing.connection import wait

    while True:
        for end in wait(ends):
            yield end.recv()  # type: ignore[union-attr]  # they are connections


def again_and_again_of(files: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from files


def bare(data: bytes) -> int:
    import random

    import numpy as np
    import simplejpeg
    from PIL import Image

    values = simplejpeg.decode_jpeg(data, "RGB")
    side = random.randint(min(values.shape[:2]) // 3, min(values.shape[:2]))
    np.array(Image.fromarray(values[:side, :side]).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return 1


def bare_many(files: list[bytes], sender: Any) -> None:
    for data in again_and_again_of(files):
        sender.send(bare(data))


CONTENDERS = {
    "wdspec, a spec": Contender("", of_kinds(raw=spec_raw, mix=spec_mix, batch=spec_batch, crop=spec_batch)),
    "wdspec, stages": Contender("", of_kinds(raw=stages_raw)),
    "webdataset": Contender(
        "webdataset", of_kinds(raw=their_raw, mix=their_mix, batch=their_batch, crop=their_batch)
    ),
    "torchdata over webdataset": Contender(
        "torchdata", {name: torchdata_batch for name, row in ROWS.items() if row.workers}
    ),
    "Hugging Face datasets": Contender("datasets", of_kinds(raw=hugging_face_raw)),
    "SPDL's tar iterator": Contender("spdl", of_kinds(raw=spdl_raw)),
    "mosaicml-streaming, converted": Contender("streaming", of_kinds(raw=mosaic_raw)),
    "litdata, converted": Contender("litdata", of_kinds(raw=litdata_raw)),
    "limit: cat": Contender("", of_kinds(raw=cat)),
    "limit: bare decoding": Contender("", of_kinds(crop=bare_crop)),
}
REFUSED = {
    "megatron-energon": "reads tars only after `energon prepare` has indexed them and written classes for each field",
    "lhotse Shar": "is for audio cuts with a manifest beside the tars, which these samples have none of",
}
"""Who is not measured, and why."""
