"""Integers that the DataLoader workers of a rank leave to those that come after them, such as passes begun."""

from __future__ import annotations

import ctypes
from multiprocessing import context, sharedctypes
from typing import Any

from torch.utils.data import get_worker_info

from wdspec.base.errors import UsageError
from wdspec.base.process import MOST_WORKERS


class WorkerCounters:
    """A few integers for each DataLoader worker, and for the process itself, in shared memory; all 0 at first.

    Fresh worker processes find what the ones before them left. Under fork and spawn they are shared; a copy by
    pickle alone starts with the values of the original.

    Args:
        names: how many integers each has.
    """

    def __init__(self, names: int = 1) -> None:
        self._names = names
        self._values: Any = _zeros(names)

    def slot(self) -> int:
        """Where the integers of this process begin.

        Raises:
            UsageError: this is a worker beyond the number that there are counters for.
        """
        info = get_worker_info()
        if info is None:
            return 0
        if info.id >= MOST_WORKERS:
            raise UsageError(
                f"this is DataLoader worker {info.id}, and a pipeline counts the passes of at most "
                f"{MOST_WORKERS:,} workers; give the DataLoader fewer (`num_workers`)"
            )
        return (1 + info.id) * self._names

    def __getitem__(self, index: int) -> int:
        return int(self._values[index])

    def __setitem__(self, index: int, value: int) -> None:
        self._values[index] = value

    def any(self) -> bool:
        """Whether some process has counted since."""
        return any(bytes(self._values))

    def clear(self) -> None:
        """Sets all of them back to 0, for every process."""
        ctypes.memset(self._values, 0, ctypes.sizeof(self._values))

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is not None:
            return {"names": self._names, "shared": self._values}
        return {"names": self._names, "set": {i: v for i, v in enumerate(self._values) if v}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._names = state["names"]
        if "shared" in state:
            self._values = state["shared"]
            return
        self._values = _zeros(self._names)
        for index, value in state["set"].items():
            self._values[index] = value


def _zeros(names: int) -> Any:
    return sharedctypes.RawArray(ctypes.c_int64, names * (MOST_WORKERS + 1))
