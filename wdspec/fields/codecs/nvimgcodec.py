"""nvImageCodec: parts of JPEGs on the CPU (`roi_decoding`), and whole batches on a GPU (`device=cuda`).

On the CPU, it computes only the pixels of a part, reads the file only as far as the part's last row, and yields the
same pixels as decoding all of them. So damage after that row is not noticed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from wdspec.base.process import PerProcess
from wdspec.spec.language.decoders import library

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


class JpegDecoder:
    """Decodes on the CPU, in the calling thread, or on a GPU.

    Args:
        gpu: the number of the GPU.

    Raises:
        UsageError: nvImageCodec is not installed.
    """

    def __init__(self, gpu: int | None = None) -> None:
        # Otherwise it writes about each damaged file.
        os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")
        user = "`roi_decoding`" if gpu is None else "`device=cuda`"
        self._codec = codec = library("nvidia.nvimgcodec", user)
        on_cpu = {
            "device_id": codec.NVIMGCODEC_DEVICE_CPU_ONLY,
            "backends": [codec.Backend(codec.CPU_ONLY)],
            "max_num_cpu_threads": 1,
        }
        self._decoder = codec.Decoder(**(on_cpu if gpu is None else {"device_id": gpu}))
        self._params = {
            mode: codec.DecodeParams(color_spec=color, apply_exif_orientation=False)
            for mode, color in (("L", codec.ColorSpec.GRAY), ("RGB", codec.ColorSpec.SRGB))
        }

    def decode(
        self, files: Sequence[bytes], mode: str, boxes: Sequence[Box | None], stream: int = 0
    ) -> list[Any]:
        """Return for each file an image of nvImageCodec, HWC, on the CPU or the GPU; None if it is damaged.

        Args:
            mode: ``L`` or ``RGB``.
            boxes: the parts to decode, within the images; None for all of an image.
            stream: of CUDA.
        """
        codec, streams = self._codec, []
        for data, box in zip(files, boxes, strict=True):
            whole = codec.CodeStream(data)
            if box is None:
                streams.append(whole)
                continue
            left, top, right, bottom = box
            region = codec.Region(top, left, bottom, right)
            streams.append(whole.get_sub_code_stream(image_idx=0, region=region))
        images: list[Any] = self._decoder.decode(streams, params=self._params[mode], cuda_stream=stream)
        return images


_own: PerProcess[threading.local] = PerProcess(threading.local)
"""The decoders of each thread, by GPU."""


def jpeg_decoder(gpu: int | None = None) -> JpegDecoder:
    """Return the decoder of this thread. Raises as `JpegDecoder`."""
    decoders = _own.value.__dict__
    key = str(gpu)
    if key not in decoders:
        decoders[key] = JpegDecoder(gpu)
    found: JpegDecoder = decoders[key]
    return found


def read_region(data: bytes, mode: str, box: Box) -> Array | None:
    """Return a part of a JPEG as uint8, HW or HWC; None if it is damaged.

    Args:
        mode: ``L`` for a grey file, or ``RGB``.
        box: within the image.

    Raises:
        UsageError: nvImageCodec is not installed.
    """
    [image] = jpeg_decoder().decode([data], mode, [box])
    if image is None:
        return None
    values: Array = np.asarray(image.cpu())
    return values[:, :, 0] if mode == "L" else values
