"""Handing batches from one worker to the training process, which were made before: torch's own way, and parcels.

    python benchmarks/hand_over.py            # a minute
    python benchmarks/hand_over.py --quick    # few batches: checks that it runs

Batches are 64×3×224×224 bytes, or 64 texts of 0.7 KB, without and with JSON. The table has microseconds of processor
time of both processes for each batch, medians of turns. So it is the least that workers add to the time of reading.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.one_run import processor_seconds
from wdspec.run.parcels import Bundle, Parcel, ring
from wdspec.run.tasks import Delivery

SHAPE = (64, 3, 224, 224)
TOGETHER = 30
"""Batches of texts in a delivery, about as many as a loader sends."""
WORDS = " ".join(["the words of a text"] * 36)


def texts(number: int, has_json: bool) -> dict[str, Any]:
    """A batch of texts, each with its own memory."""
    keys = [f"{number:04}{index:04}" for index in range(64)]
    batch: dict[str, Any] = {"__key__": keys, "__url__": ["a/b.tar"] * 64, "__source__": ["a"] * 64}
    batch["txt"] = [f"{key} {WORDS}" for key in keys]
    if has_json:
        batch["json"] = [{"index": number, "caption": f"number {key}", "size": [640, 480]} for key in keys]
    return batch


class Batches(IterableDataset[Any]):
    """The same batches again and again."""

    def __init__(self, what: str, way: str) -> None:
        self.what, self.way = what, way

    def __iter__(self) -> Any:
        if self.what == "images":
            return self.images()
        batches = [texts(number, self.what == "texts and JSON") for number in range(TOGETHER)]
        return self.together(batches) if self.way == "parcels" else cycle(batches)

    def images(self) -> Any:
        batch = torch.zeros(SHAPE, dtype=torch.uint8)
        while True:
            if self.way == "torch":
                yield batch.clone()  # torch moves a tensor that it sends to shared memory
            elif self.way == "parcels":
                yield Delivery([Parcel(batch)])
            else:
                yield Delivery([Parcel(torch.from_numpy(ring.value.empty(SHAPE, np.uint8)))])

    def together(self, batches: list[dict[str, Any]]) -> Any:
        size = sum(Parcel(batch).size for batch in batches)
        while True:
            bundle = Bundle(size)
            yield Delivery([Parcel(batch, bundle) for batch in batches], lease=bundle.lend())


def microseconds(what: str, way: str, count: int) -> float:
    """Processor time of both processes for a batch."""
    loader = DataLoader(Batches(what, way), batch_size=None, num_workers=1)

    def batches() -> Any:
        for item in loader:
            if isinstance(item, Delivery):
                yield from (parcel.open() for parcel in item.parcels if isinstance(parcel, Parcel))
            else:
                yield item

    found = batches()
    for item in islice(found, count // 10):
        del item
    start = processor_seconds()
    for item in islice(found, count):
        del item
    return (processor_seconds() - start) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few batches")
    options = parser.parse_args()
    turns, scale = (1, 1) if options.quick else (5, 30)
    cases = [("images", way, 10) for way in ("torch", "parcels", "parcels, made in the ring")]
    cases += [(what, way, 120) for what in ("texts", "texts and JSON") for way in ("torch", "parcels")]
    found = [[microseconds(what, way, count * scale) for what, way, count in cases] for _ in range(turns)]
    print("| batch | way | µs | of torch's |\n|--|--|--:|--:|")
    torchs = 0.0
    for (what, way, _), each in zip(cases, zip(*found, strict=True), strict=True):
        median = statistics.median(each)
        torchs = median if way == "torch" else torchs
        print(f"| {what} | {way} | {median:,.0f} | {median / torchs:.2f} |")


if __name__ == "__main__":
    main()
