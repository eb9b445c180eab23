"""Decoding a part of a JPEG by nvImageCodec, on the CPU: `roi_decoding`.

It computes only the pixels of the part, reads the file only as far as the part's last row, and yields the same pixels
as decoding all of them. So damage after that row is not noticed.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from wdspec.base.process import PerProcess
from wdspec.spec.language.decoders import library

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


class _Decoder:
    """nvImageCodec on the CPU, in the calling thread."""

    def __init__(self) -> None:
        # Otherwise it writes about each damaged file.
        os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")
        self.codec = codec = library("nvidia.nvimgcodec", "`roi_decoding`")
        self._decoder = codec.Decoder(
            device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY,
            backends=[codec.Backend(codec.CPU_ONLY)],
            max_num_cpu_threads=1,
        )
        self._params = {
            mode: codec.DecodeParams(color_spec=color, apply_exif_orientation=False)
            for mode, color in (("L", codec.ColorSpec.GRAY), ("RGB", codec.ColorSpec.SRGB))
        }

    def read(self, data: bytes, mode: str, box: Box) -> Array | None:
        """As `read_region`, HWC."""
        left, top, right, bottom = box
        region = self.codec.Region(top, left, bottom, right)
        part = self.codec.CodeStream(data).get_sub_code_stream(image_idx=0, region=region)
        image = self._decoder.decode(part, params=self._params[mode])
        return None if image is None else np.asarray(image.cpu())


_decoders: PerProcess[threading.local] = PerProcess(threading.local)
"""The decoder of each thread."""


def read_region(data: bytes, mode: str, box: Box) -> Array | None:
    """Return a part of a JPEG as uint8, HW or HWC; None if it is damaged.

    Args:
        mode: ``L`` for a grey file, or ``RGB``.
        box: within the image.

    Raises:
        UsageError: nvImageCodec is not installed.
    """
    of_thread = _decoders.value.__dict__
    if "decoder" not in of_thread:
        of_thread["decoder"] = _Decoder()
    values: Array | None = of_thread["decoder"].read(data, mode, box)
    return values[:, :, 0] if values is not None and mode == "L" else values
