"""Megatron-Energon: the same tars, which `energon prepare` indexes first; its metadataset mixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.contenders.shared import (
    Contender,
    Counts,
    again_and_again,
    batch_of,
    collated,
    cropped,
    of_kinds,
)
from benchmarks.rows import BATCH, Row
from benchmarks.samples import files_of, repeated

CRUDE = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
"""A dataset.yaml that gives samples as dicts, as they are in the tars."""
SLICES = 100
"""`max_samples_per_sequence`, the first value in its documentation."""


def prepared(folder: Path, name: str) -> Path:
    """A folder with links to the shards of a collection, and their index."""
    from megatron.energon.flavors import BaseWebdatasetFactory

    own = repeated(folder, name, 1, of="energon")
    if not (own / ".nv-meta").exists():
        shards = [Path(path).name for path in files_of(folder, name)]
        BaseWebdatasetFactory.prepare_dataset(own, shards, split_parts_ratio=[("train", 1.0)], workers=2)
        (own / ".nv-meta" / "dataset.yaml").write_text(CRUDE, encoding="utf-8")
    return own


def encoder(row: Row) -> Any:
    """The work on each sample: none, the same as for other contenders, or its own decoder."""
    from megatron.energon import (
        Cooker,
        Sample,
        SampleDecoder,
        TaskEncoder,
        basic_sample_keys,
        edataclass,
        stateless,
    )

    @edataclass
    class Fields(Sample):  # type: ignore[misc]  # its package has no types here
        fields: dict[str, Any]

    @stateless
    def cooked(sample: dict[str, Any]) -> Any:
        if row.kind == "crop":
            fields = {"jpg": cropped(sample["jpg"])}
        elif row.kind == "batch" and row.data == "text":
            fields = {"txt": sample["txt"].decode()}
        else:
            fields = {name: value for name, value in sample.items() if not name.startswith("__")}
        return Fields(**basic_sample_keys(sample), fields=fields)

    class Encoder(TaskEncoder):  # type: ignore[misc, type-arg]
        decoder = SampleDecoder() if row.kind == "mix" or row.data == "npy16" else None
        cookers = (Cooker(cooked),)

        def batch(self, samples: list[Any]) -> Any:
            return collated([{"__key__": sample.__key__, **sample.fields} for sample in samples])

    return Encoder()


def configuration(row: Row) -> Any:
    from megatron.energon import WorkerConfig

    return WorkerConfig(rank=0, world_size=1, num_workers=row.workers)


def raw(row: Row, folder: Path) -> Counts:
    from megatron.energon import get_loader, get_val_dataset

    found = get_val_dataset(
        prepared(folder, row.data),
        split_part="train",
        worker_config=configuration(row),
        batch_size=None,
        task_encoder=encoder(row),
    )
    loader = get_loader(found)
    return again_and_again(lambda: loader)


def batches(row: Row, folder: Path) -> Counts:
    return trained(prepared(folder, row.data), row)


def mix(row: Row, folder: Path) -> Counts:
    shares = {"text": 0.5, "text-b": 0.3, "text-c": 0.2}
    blend = [{"path": str(prepared(folder, name)), "weight": share} for name, share in shares.items()]
    settings = {
        "__module__": "megatron.energon",
        "__class__": "MetadatasetV2",
        "splits": {"train": {"blend": blend}},
    }
    metadataset = folder / "energon-mix.yaml"
    metadataset.write_text(json.dumps(settings), encoding="utf-8")
    return trained(metadataset, row)


def trained(path: Path, row: Row) -> Counts:
    """Batches of a training set, shuffled over 1,000 samples."""
    from megatron.energon import get_loader, get_train_dataset

    found = get_train_dataset(
        path,
        worker_config=configuration(row),
        batch_size=BATCH,
        shuffle_buffer_size=1000,
        max_samples_per_sequence=SLICES,
        task_encoder=encoder(row),
    )
    loader = get_loader(found)
    return again_and_again(lambda: loader, batch_of)


ENERGON = {
    "megatron-energon": Contender(
        "megatron.energon", of_kinds(raw=raw, mix=mix, batch=batches, crop=batches), converts=True
    )
}
