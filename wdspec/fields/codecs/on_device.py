"""Decoding a batch of images in the training process, on a GPU: `device=cuda`.

nvImageCodec decodes all JPEGs of a batch at once, each only as far as its crop requires, and torch resizes them there.
The CPU decodes images of other formats, and JPEGs that nvImageCodec rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate, pad
from torch.utils.dlpack import from_dlpack

from wdspec.fields.codecs.nvimgcodec import jpeg_decoder
from wdspec.fields.codecs.resizing import Fit, Steps

_MODES = {Image.Resampling.BILINEAR: "bilinear", Image.Resampling.BICUBIC: "bicubic"}


def read_batch(
    files: Sequence[bytes],
    steps: Sequence[Steps],
    mode: str,
    device: torch.device,
    read: Callable[[int], np.ndarray[Any, Any]],
    labels: Container[int] = (),
) -> torch.Tensor:
    """Return the pixels of a batch as float32, NCHW, from 0 to 255.

    Args:
        files: the encoded images.
        steps: what to do with each; they give all images one size.
        mode: ``L`` or ``RGB``.
        device: where to.
        read: decodes the image with a number on the CPU, as uint8, HW or HWC, with all of its steps.
        labels: the numbers of the images that are labels.
    """
    gpu, stream = None, 0
    if device.type == "cuda":
        gpu, stream = device.index, torch.cuda.current_stream(device).cuda_stream
    # Labels are not interpolated, so the CPU decodes them.
    jpegs = [at for at, data in enumerate(files) if data.startswith(b"\xff\xd8\xff") and at not in labels]
    boxes = [steps[at].box for at in jpegs]
    images: dict[int, Any] = dict(
        zip(
            jpegs,
            jpeg_decoder(gpu).decode([files[at] for at in jpegs], mode, boxes, stream),
            strict=True,
        )
    )
    rows = []
    for at, each in enumerate(steps):
        if (image := images.get(at)) is None:
            pixels = torch.from_numpy(np.atleast_3d(read(at)).copy()).to(device)
            rows.append(pixels.permute(2, 0, 1).float())
            continue
        row = from_dlpack(np.asarray(image.cpu()) if gpu is None else image).permute(2, 0, 1).float()
        for number, fit in enumerate(each.fits):
            row = _apply(row, fit, is_cut=number == 0 and each.box is not None)
        rows.append(row.flip(2) if each.is_flipped else row)
    return torch.stack(rows)


def _apply(image: torch.Tensor, fit: Fit, is_cut: bool) -> torch.Tensor:
    """Apply a step to CHW.

    Args:
        is_cut: whether only the crop of the step was decoded.
    """
    (width, height), (high, wide) = fit.size, image.shape[1:]
    if fit.crop is not None and not is_cut:
        x, y, end, below = fit.crop
        image = pad(image, (-x, end - wide, -y, below - high))  # where it is negative, it cuts
        high, wide = image.shape[1:]
    if fit.part is None:
        return _resize(image, (height, width), fit)
    left, top, right, bottom = fit.part
    across, down = width / (right - left), height / (bottom - top)
    image = _resize(image, (round(high * down), round(wide * across)), fit)
    x, y = round(left * across), round(top * down)
    return image[:, y : y + height, x : x + width]


def _resize(image: torch.Tensor, size: tuple[int, int], fit: Fit) -> torch.Tensor:
    if tuple(image.shape[1:]) == size:
        return image
    resized = interpolate(image[None], size, mode=_MODES[fit.smooth], antialias=True)[0]
    return resized.clamp_(0, 255).round_()  # bicubic overshoots
