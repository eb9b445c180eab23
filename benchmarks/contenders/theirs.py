"""webdataset, alone and in torchdata's loader."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.contenders.shared import (
    Contender,
    Counts,
    again_and_again,
    batch_of,
    collated,
    cropped,
    cropped_by_torch,
    cropped_from_simplejpeg,
    normalized,
    of_kinds,
    sound,
)
from benchmarks.rows import BATCH, Row
from benchmarks.samples import repeated, samples_in, shards_of


def samples(urls: str, **more: Any) -> Any:
    import webdataset

    return webdataset.WebDataset(
        urls, shardshuffle=False, nodesplitter=None, workersplitter=webdataset.split_by_worker, **more
    )


def raw(row: Row, folder: Path) -> Counts:
    return again_and_again(lambda: samples(shards_of(folder, row.data)))


def mix(row: Row, folder: Path) -> Counts:
    import webdataset

    def epoch() -> Any:
        mixed = [samples(shards_of(folder, name)) for name in ("text", "text-b", "text-c")]
        return webdataset.DataPipeline(
            webdataset.RandomMix(mixed, [0.5, 0.3, 0.2], longest=True),
            webdataset.shuffle(1000),
            webdataset.decode(),
            webdataset.batched(BATCH, collation_fn=collated, partial=False),
        )

    return again_and_again(epoch, batch_of)


def sources(count: int, row: Row, folder: Path) -> Counts:
    import webdataset

    places = [repeated(folder, row.data, 1, of=f"{number:04}") for number in range(count)]

    def epoch() -> Any:
        mixed = [samples(shards_of(place, row.data)) for place in places]
        return webdataset.DataPipeline(webdataset.RandomMix(mixed, longest=True), webdataset.shuffle(1000))

    return again_and_again(epoch)


CROPS = {"": cropped, "simplejpeg": cropped_from_simplejpeg, "torch": cropped_by_torch}


def to_crop(way: str, floats: bool, sample: dict[str, Any]) -> dict[str, Any]:
    values = CROPS[way](sample["jpg"])
    return {"__key__": sample["__key__"], "jpg": normalized(values) if floats else values}


def to_text(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "txt": sample["txt"].decode()}


def audio(row: Row, folder: Path) -> Counts:
    from webdataset.autodecode import handle_extension

    return again_and_again(
        lambda: samples(shards_of(folder, row.data)).decode(handle_extension("flac", sound))
    )


def pipeline(row: Row, folder: Path, way: str) -> Any:
    import webdataset

    crop = partial(to_crop, way, row.floats)
    steps = {
        "jpg40": [webdataset.map(crop)],
        "jpg400": [webdataset.map(crop)],
        "text": [webdataset.map(to_text)],
        "npy16": [webdataset.decode()],
    }[row.data]
    batched = webdataset.batched(BATCH, collation_fn=collated, partial=False)
    return webdataset.DataPipeline(
        samples(shards_of(folder, row.data)), webdataset.shuffle(1000), *steps, batched
    )


def batches(row: Row, folder: Path, way: str = "") -> Counts:
    import webdataset

    return again_and_again(
        lambda: webdataset.WebLoader(pipeline(row, folder, way), batch_size=None, num_workers=row.workers),
        batch_of,
    )


def torchdata_batches(row: Row, folder: Path) -> Counts:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return again_and_again(
        lambda: StatefulDataLoader(pipeline(row, folder, ""), batch_size=None, num_workers=row.workers),
        batch_of,
    )


def far(row: Row, folder: Path, **more: Any) -> Counts:
    urls = shards_of(folder, row.data).replace("s3://", f"{os.environ.get('AWS_ENDPOINT_URL')}/")
    return again_and_again(lambda: samples(f"pipe:curl -s {urls}", **more))


def cached(row: Row, folder: Path) -> Counts:
    """From the second epoch on."""
    counts = far(row, folder, cache_dir=tempfile.mkdtemp(dir=folder))
    next(islice(counts, samples_in(folder, row.data) - 1, None))
    return counts


THEIRS = {
    "webdataset": Contender(
        "webdataset",
        of_kinds(raw=raw, mix=mix, batch=batches, crop=batches, audio=audio, far=far, cached=cached),
    ),
    **{
        f"webdataset, {count} source{'s' * (count > 1)}": Contender(
            "webdataset", of_kinds(sources=partial(sources, count))
        )
        for count in (1, 5, 50)
    },
    "webdataset, simplejpeg": Contender("webdataset", of_kinds(crop=partial(batches, way="simplejpeg"))),
    "webdataset, simplejpeg and torch's kernel": Contender(
        "webdataset", of_kinds(crop=partial(batches, way="torch"))
    ),
    "torchdata over webdataset": Contender(
        "torchdata",
        of_kinds("text-2", "npy16-2", "jpg40-2", batch=torchdata_batches, crop=torchdata_batches),
    ),
}
