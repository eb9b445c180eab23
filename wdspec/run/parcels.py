"""Parcels: values sent to another process, with small tensors inside the pickle instead of in shared memory.

torch creates a file in shared memory and a descriptor for every tensor it sends, which costs both processes together
0.7 ms, whatever the size. As bytes through a pipe, 16 KB take 0.1 ms and 512 KB 0.7 ms; from 1 MB on shared memory is
faster. So smaller tensors are sent as bytes. Each arrives with its own memory, so keeping one keeps no other alive.
"""

from __future__ import annotations

import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

INLINE = 1 << 19
"""Size in bytes from which on a tensor is sent in shared memory."""


class Parcel:
    """A value to send to another process. It is pickled at once, so that an error is raised where the value is made.

    It is opened on request, so that its bytes are still in the processor's cache when they are used. But a parcel with
    shared memory is opened on arrival, since the sender keeps the memory and its descriptors until then.
    """

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.dump(value)
        self._data = file.getvalue()
        self._opened: tuple[Any] | None = None
        self.size = len(self._data) + pickler.shared
        """Size in bytes, including shared memory."""

    def open(self) -> Any:
        """Return the value; call it once, since shared memory is handed over."""
        return pickle.loads(self._data) if self._opened is None else self._opened[0]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.size > len(self._data):
            self._opened, self._data = (pickle.loads(self._data),), b""


class _Pickler(ForkingPickler):
    """Pickles for another process as torch does, but small plain tensors by value."""

    shared = 0
    """Bytes of tensors in shared memory."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        if type(value) is torch.Tensor and (value.is_conj() or value.is_neg()):
            # torch would send the memory without the flag that it holds the conjugate or negative.
            return _identity, (value.resolve_conj().resolve_neg(),)
        if type(value) is not torch.Tensor or not _is_small_and_plain(value):
            self.shared += value.numel() * value.element_size()
            return NotImplemented
        flat = value.as_strided((value.numel(),), (1,))  # a dimension of one element may have any stride
        data: Any = flat.view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(data), value.dtype, tuple(value.shape))


def _identity(value: torch.Tensor) -> torch.Tensor:
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
    """Return the tensor over these bytes, without a copy."""
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
