"""Loaders with their own formats; the samples are converted first."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

from benchmarks.contenders.shared import Contender, Counts, again_and_again, members, of_kinds
from benchmarks.rows import Row


def streaming() -> Any:
    """mosaicml-streaming. It imports torchvision for data sets that are not read here; empty modules replace it."""
    import transformers.utils.import_utils  # noqa: F401 - before it would find them

    names = (
        "torchvision",
        "torchvision.datasets",
        "torchvision.transforms",
        "torchvision.transforms.functional",
    )
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torchvision.datasets"].VisionDataset = object  # type: ignore[attr-defined]
    sys.modules["torchvision.transforms.functional"].to_tensor = None  # type: ignore[attr-defined]
    import streaming

    for name in names:
        del sys.modules[name]
    return streaming


def mosaic_raw(row: Row, folder: Path) -> Counts:
    library = streaming()
    out = folder / f"mds-{row.data}"
    if not out.exists():
        names = next(members(row, folder)).keys()
        with library.MDSWriter(out=str(out), columns=dict.fromkeys(names, "bytes")) as writer:
            for sample in members(row, folder):
                writer.write(sample)
    found = library.StreamingDataset(local=str(out), shuffle=False, batch_size=1)
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


CONVERTED = {
    "mosaicml-streaming, converted": Contender("streaming", of_kinds(raw=mosaic_raw), converts=True),
    "litdata, converted": Contender("litdata", of_kinds(raw=litdata_raw), converts=True),
}
