"""What a worker sends, pickled in one go: small tensors inside the pickle, not each in shared memory of its own.

torch gives every tensor that crosses to another process a file in shared memory and a descriptor, which takes 0.7 ms
of the two processes together, whatever its size. As bytes through a pipe 16 KB take 0.1 ms, 512 KB 0.7 ms, and from
1 MB on it takes longer than torch's way. So smaller tensors go as bytes, and arrive with memory of their own: whoever
keeps one keeps nothing else alive.
"""

from __future__ import annotations

import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

INLINE = 1 << 19
"""Bytes from which on a tensor goes by shared memory."""


class Parcel:
    """A value on its way to another process; pickled when this is made, so that what does not pickle is an error there.

    Opened when it is asked for: bytes that were just read or written are in the processor's cache. But what has memory
    that is shared is opened as it arrives, since a sender keeps that, and its descriptors, until somebody has.
    """

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.dump(value)
        self._data = file.getvalue()
        self._opened: tuple[Any] | None = None
        self.size = len(self._data) + pickler.shared
        """Bytes of it, those in shared memory included."""

    def open(self) -> Any:
        """The value; once, as memory that is shared is handed over."""
        return pickle.loads(self._data) if self._opened is None else self._opened[0]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.size > len(self._data):
            self._opened, self._data = (pickle.loads(self._data),), b""


class _Pickler(ForkingPickler):
    """Pickles for another process, as torch does; small plain tensors by value."""

    shared = 0
    """Bytes of tensors that go by shared memory."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        if type(value) is torch.Tensor and (value.is_conj() or value.is_neg()):
            # torch would send what lies in memory, and leave out that it is to be read as its conjugate.
            return self._resolved(value)
        if type(value) is not torch.Tensor or not _is_small_and_plain(value):
            self.shared += value.numel() * value.element_size()
            return NotImplemented
        flat = value.as_strided((value.numel(),), (1,))  # a dimension of one element may have any stride
        data: Any = flat.view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(data), value.dtype, tuple(value.shape))

    def _resolved(self, value: torch.Tensor) -> Any:
        """How a tensor is sent that is another one read otherwise."""
        return _itself, (value.resolve_conj().resolve_neg(),)


def _itself(value: torch.Tensor) -> torch.Tensor:
    return value


def _is_small_and_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and 0 < tensor.nbytes < INLINE
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized)
    )


def _tensor(data: bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor that such bytes are, in their place."""
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
