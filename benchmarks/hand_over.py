"""Handing a batch of 64×3×224×224 bytes from one worker to the training process: torch's own way, and parcels.

    python benchmarks/hand_over.py            # a minute
    python benchmarks/hand_over.py --quick    # few batches: checks that it runs

The table has milliseconds of processor time of both processes for each batch, medians of turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.one_run import processor_seconds
from wdspec.run.parcels import Parcel, ring

SHAPE = (64, 3, 224, 224)


class Batches(IterableDataset[Any]):
    """The same batch again and again."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __iter__(self) -> Any:
        batch = torch.zeros(SHAPE, dtype=torch.uint8)
        while True:
            if self.way == "torch":
                yield batch.clone()  # torch moves a tensor that it sends to shared memory
            elif self.way == "parcels, copied":
                yield Parcel(batch)
            else:
                yield Parcel(torch.from_numpy(ring.value.empty(SHAPE, np.uint8)))


def milliseconds(way: str, count: int) -> float:
    loader = DataLoader(Batches(way), batch_size=None, num_workers=1)
    items = (item.open() if isinstance(item, Parcel) else item for item in loader)
    for item in islice(items, 10):
        del item
    start = processor_seconds()
    for item in islice(items, count):
        assert item.shape == SHAPE
        del item
    return (processor_seconds() - start) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few batches")
    options = parser.parse_args()
    turns, count = (1, 10) if options.quick else (5, 300)
    ways = ("torch", "parcels, copied", "parcels, made in the ring")
    found = [[milliseconds(way, count) for way in ways] for _ in range(turns)]
    print("| way | ms | of torch's |\n|--|--:|--:|")
    medians = [statistics.median(each) for each in zip(*found, strict=True)]
    for way, median in zip(ways, medians, strict=True):
        print(f"| {way} | {median:.2f} | {median / medians[0]:.2f} |")


if __name__ == "__main__":
    main()
