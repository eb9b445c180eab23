"""How many passes were begun over a pipeline, by each worker: also by workers that are gone."""

from __future__ import annotations

import ctypes
from multiprocessing import context, sharedctypes
from typing import Any

from torch.utils.data import get_worker_info

MOST_WORKERS = 1024


class WorkerCounters:
    """A few integers for each DataLoader worker, and for the process itself, in shared memory.

    Fresh worker processes find what the ones before them left. Under fork and spawn they are shared; a copy by
    pickle alone starts with the values of the original.

    Args:
        names: how many integers each has.
    """

    def __init__(self, names: int = 1) -> None:
        self._names = names
        self._values: Any = sharedctypes.RawArray(ctypes.c_int64, names * (MOST_WORKERS + 1))

    def slot(self) -> int:
        """Where the integers of this process begin."""
        info = get_worker_info()
        return 0 if info is None else (1 + info.id % MOST_WORKERS) * self._names

    def __getitem__(self, index: int) -> int:
        return int(self._values[index])

    def __setitem__(self, index: int, value: int) -> None:
        self._values[index] = value

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is not None:
            return {"names": self._names, "shared": self._values}
        return {"names": self._names, "set": {i: v for i, v in enumerate(self._values) if v}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._names = state["names"]
        if "shared" in state:
            self._values = state["shared"]
            return
        self._values = sharedctypes.RawArray(ctypes.c_int64, self._names * (MOST_WORKERS + 1))
        for index, value in state["set"].items():
            self._values[index] = value
