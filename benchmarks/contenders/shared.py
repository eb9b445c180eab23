"""Shared by contenders: endless epochs, samples by tarfile, the crop of images."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rows import BATCH, ROWS, SIDE, Row
from benchmarks.samples import files_of

Counts = Iterator[int]
"""Without end, how many samples each item has that was read."""
Read = Callable[[Row, Path], Counts]


@dataclass(frozen=True)
class Contender:
    """How a contender reads each row that it supports."""

    package: str = ""
    """What it needs of the peers."""
    rows: dict[str, Read] = field(default_factory=dict)
    converts: bool = False
    """Whether it first makes files, whose time does not count."""


def of_kinds(*only: str, **reads: Read) -> dict[str, Read]:
    """Row → how it is read, by the kinds of rows; of some rows only, if any are named."""
    return {
        name: reads[row.kind]
        for name, row in ROWS.items()
        if row.kind in reads and (not only or name in only)
    }


def again_and_again(epoch: Callable[[], Any], size: Callable[[Any], int] = lambda item: 1) -> Counts:
    """The samples in each item of epoch after epoch."""
    while True:
        for item in epoch():
            yield size(item)


def batch_of(item: Any) -> int:
    return BATCH


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


def sound(data: bytes) -> Any:
    """Float values and the rate, as all contenders decode flac."""
    import soundfile

    return soundfile.read(io.BytesIO(data), dtype="float32")


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
