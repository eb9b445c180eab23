"""Hugging Face datasets, SPDL, and Megatron-Energon, which indexes the tars first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.contenders.shared import (
    Contender,
    Counts,
    again_and_again,
    of_kinds,
)
from benchmarks.rows import Row
from benchmarks.samples import files_of


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


OTHERS = {
    "Hugging Face datasets": Contender("datasets", of_kinds(raw=hugging_face_raw)),
    "SPDL's tar iterator": Contender("spdl", of_kinds(raw=spdl_raw)),
}
