"""Which rank and worker this process is, and seeds that differ between them, as webdataset has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from wdspec.fluent.stages.splitting import worker_place
from wdspec.planning.keys import key64
from wdspec.planning.topology import find_seat


def pytorch_worker_info(group: Any = None) -> tuple[int, int, int, int]:
    """(rank, ranks, worker, workers); a process group cannot be chosen, so that `group` is left out of account."""
    seat = find_seat()
    return (seat.rank, seat.world_size, *worker_place())


def pytorch_worker_seed(group: Any = None) -> int:
    """A number that differs between ranks and workers, the same on every run."""
    rank, _, worker, _ = pytorch_worker_info(group)
    return rank * 1000 + worker


def make_seed(*args: Any) -> int:
    """31 bits that depend on the arguments alone, the same in every process."""
    return key64(0, *map(repr, args)) >> 33


def identity(x: Any) -> Any:
    """The argument."""
    return x


def deprecated(arg: Any = None) -> Any:
    """Decorator: the function warns that it is old."""
    if not callable(arg):
        return deprecated

    function: Callable[..., Any] = arg

    @wraps(function)
    def warning(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{function.__name__} is deprecated", DeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warning
