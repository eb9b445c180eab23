"""Images that workers leave encoded, for the training process to decode: `device` in `decode`.

Workers send the bytes of the files and what was drawn for each image. So large images cross from process to process in
a tenth of their size, and a GPU can decode a whole batch at once. `open_parcel` decodes them there; without worker
processes, collating does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from wdspec.base.errors import FieldError
from wdspec.fields import memory


class BatchDecoder(Protocol):
    """Decodes images that were left encoded."""

    spec: str
    """Its name and options, as in `decode`."""

    def decode_batch(self, images: Sequence[EncodedImage], places: Sequence[Place]) -> Any:
        """Return the batch as a tensor on the device of the decoder.

        Args:
            images: their decoders have the same name and options, and perhaps other extensions.
            places: of the samples, for messages; () if they are not known.

        Raises:
            FieldError: an image cannot be decoded.
        """
        ...


Place = Mapping[str, Any]
"""Where a sample is from: `source`, `url` and `key`."""


class EncodedImage(NamedTuple):
    """An image of a sample."""

    data: bytes
    steps: Any
    """What the decoder is to do with it, as it was drawn."""
    decoder: BatchDecoder


@dataclass(frozen=True)
class EncodedImages:
    """The images of a batch. Pickled as a parcel, the bytes are in shared memory."""

    data: Any
    """A tensor of all bytes."""
    ends: list[int]
    """Where each file ends, after a 0."""
    steps: list[Any]
    decoders: list[BatchDecoder]
    places: list[Place]

    @classmethod
    def of(cls, images: Sequence[EncodedImage], places: list[Place]) -> EncodedImages:
        """Gather the images of a batch, where they can be sent from."""
        import torch

        ends = [0, *np.cumsum([len(image.data) for image in images]).tolist()]
        data = memory.empty((ends[-1],), np.uint8)
        for image, (start, end) in zip(images, pairwise(ends), strict=True):
            data[start:end] = np.frombuffer(image.data, np.uint8)
        steps, decoders = [image.steps for image in images], [image.decoder for image in images]
        return cls(torch.from_numpy(data), ends, steps, decoders, places)

    def decode(self) -> Any:
        """Return the batch as a tensor. See `BatchDecoder.decode_batch`."""
        whole = self.data.numpy()
        files = (whole[start:end].tobytes() for start, end in pairwise(self.ends))
        images = [*map(EncodedImage, files, self.steps, self.decoders)]
        return self.decoders[0].decode_batch(images, self.places)


def gather(images: Sequence[EncodedImage], samples: Sequence[Mapping[str, Any]] = ()) -> Any:
    """Return the images of a batch: in a worker process to be sent, else decoded.

    Args:
        images: the images.
        samples: what they belong to, for messages.

    Raises:
        FieldError: an image cannot be decoded, or the images have different decoders.
    """
    if len({frozenset(image.decoder.spec.split("+")) for image in images}) > 1:
        names = " and ".join(f"`{name}`" for name in sorted({image.decoder.spec for image in images}))
        raise FieldError(
            f"a batch has images for {names}, and with `device` one decoder decodes them all; give all sources the "
            "same options, or remove `device`"
        )
    places: list[Place] = [
        {name: sample.get(f"__{name}__") for name in ("source", "url", "key")} for sample in samples
    ]
    rows = memory.current.last
    if rows is not None and rows.is_sent:
        return EncodedImages.of(images, places)
    return images[0].decoder.decode_batch(images, places)


def is_deferred(field: str) -> bool:
    """Whether images of a field stay encoded in the batch that this thread is reading.

    Not in the workers of DataLoaders of others, which have no GPU and send batches to nobody that decodes.
    """
    from torch.utils.data import get_worker_info

    rows = memory.current.rows
    return rows is not None and rows.stacks(field) and (rows.is_sent or get_worker_info() is None)


def decode_item(item: Any) -> Any:
    """Return an item of a loader with its images decoded. Raises as `EncodedImages.decode`."""
    if isinstance(item, dict):
        return {name: _decode(value) for name, value in item.items()}
    return tuple(map(_decode, item))


def _decode(value: Any) -> Any:
    return value.decode() if isinstance(value, EncodedImages) else value
