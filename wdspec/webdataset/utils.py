"""Small functions that webdataset has in its module `utils`: rank and worker of this process, seeds, repetition."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from wdspec.planning.topology import find_seat
from wdspec.webdataset.splitting import worker_place
from wdspec.webdataset.stage import PipelineStage as PipelineStage


def pytorch_worker_info(group: Any = None) -> tuple[int, int, int, int]:
    """Return (rank, world size, worker, workers). `group` is ignored."""
    seat = find_seat()
    return (seat.rank, seat.world_size, *worker_place())


def pytorch_worker_seed(group: Any = None) -> int:
    """Return a number for this rank and worker, the same in every run."""
    rank, _, worker, _ = pytorch_worker_info(group)
    return rank * 1000 + worker


def identity(x: Any) -> Any:
    """Return the argument."""
    return x


def deprecated(arg: Any = None) -> Any:
    """Decorate a function so that it warns that it is deprecated."""
    if not callable(arg):
        return deprecated

    function: Callable[..., Any] = arg

    @wraps(function)
    def warning(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{function.__name__} is deprecated", DeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warning


def guess_batchsize(batch: Any) -> int:
    """Return the number of samples of a batch, by its first column."""
    columns = list(batch.values()) if isinstance(batch, dict) else batch
    return len(columns[0]) if isinstance(columns, (tuple, list)) else len(columns)


def repeatedly(
    source: Iterable[Any],
    nepochs: int | None = None,
    nbatches: int | None = None,
    nsamples: int | None = None,
    batchsize: Callable[[Any], int] = guess_batchsize,
) -> Iterator[Any]:
    """Yield the items of an iterable again and again, up to a number of passes, items (batches) or samples in them."""
    items = samples = 0
    for number in itertools.count(1):
        empty = True
        for batch in source:
            empty = False
            yield batch
            items += 1
            samples += batchsize(batch) if nsamples is not None else 0
            if items >= (nbatches or sys.maxsize) or (nsamples is not None and samples >= nsamples):
                return
        if empty or number >= (nepochs or sys.maxsize):
            return
