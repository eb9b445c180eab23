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


def random_part(width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom, as torchvision draws them for `RandomResizedCrop`."""
    import math
    import random

    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            break
    else:
        wide, high = width, height
    left, top = random.randint(0, width - wide), random.randint(0, height - high)
    return left, top, left + wide, top + high


def cropped(data: bytes) -> Any:
    """A random crop by Pillow, as torchvision has it."""
    import numpy as np
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    part = image.crop(random_part(*image.size))
    return np.array(part.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def cropped_from_simplejpeg(data: bytes) -> Any:
    """The same, decoded by simplejpeg."""
    import numpy as np
    import simplejpeg
    from PIL import Image

    values = simplejpeg.decode_jpeg(data, "RGB")
    left, top, right, bottom = random_part(values.shape[1], values.shape[0])
    part = Image.fromarray(values[top:bottom, left:right])
    return np.array(part.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def cropped_by_torch(data: bytes) -> Any:
    """The same, decoded by simplejpeg and resized by torch's kernel for bytes."""
    import numpy as np
    import simplejpeg
    import torch

    values = simplejpeg.decode_jpeg(data, "RGB")
    left, top, right, bottom = random_part(values.shape[1], values.shape[0])
    part = np.ascontiguousarray(values[top:bottom, left:right])
    # By its strides, too, a batch of one image with channels last: the kernel's fastest way.
    planes = torch.from_numpy(part).view(1, *part.shape).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(planes, (SIDE, SIDE), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def normalized(values: Any) -> Any:
    """Channels first, in 0..1, minus ImageNet's mean, divided by its deviation, as torchvision has it."""
    import numpy as np

    mean, deviation = (np.array(each, np.float32)[:, None, None] for each in (MEAN, DEVIATION))
    return (values.transpose(2, 0, 1).astype(np.float32) / 255 - mean) / deviation
