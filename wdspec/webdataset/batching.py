"""Stages that turn samples into batches, and batches into samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from wdspec.base.errors import FieldError, UsageError
from wdspec.read.batch import collate, stack
from wdspec.webdataset.items import batches, lists
from wdspec.webdataset.stage import stage

_NUMBERS = (torch.int64, torch.float64, torch.bool)
"""The dtypes that `stack` gives to numbers."""


def default_collation_fn(
    samples: Sequence[Any], combine_tensors: bool | None = None, combine_scalars: bool | None = None
) -> Any:
    """Collate samples: tuples into a tuple of columns, dicts into a dict of columns, anything else into one column.

    Tensors, arrays and numbers are stacked into one tensor with a new first axis; text, bytes, None and other objects
    become a list. A batch of dicts keeps `__key__` and `__url__`, as lists of text.

    Args:
        combine_tensors, combine_scalars: if either is given, columns have the types that webdataset's have: arrays and
            numbers become an array, tensors a tensor. False keeps a list of tensors and arrays, or of numbers.
            ``functools.partial(default_collation_fn, combine_tensors=True)`` keeps numpy arrays numpy arrays.

    Raises:
        FieldError: tensors or arrays have different shapes, or samples have different fields.
    """
    column: Callable[[str, list[Any]], Any] = _column
    if combine_tensors is not None or combine_scalars is not None:
        column = partial(_webdatasets_column, combine_tensors is not False, combine_scalars is not False)
    first = samples[0]
    if isinstance(first, dict):
        if column is _column:
            batch = collate(samples)
            for name, values in batch.items():
                _check_stacked(name, values)
            return batch
        collate([dict.fromkeys(sample, "") for sample in samples])  # checks that all have the same fields
        return {name: column(name, [sample[name] for sample in samples]) for name in first}
    if not isinstance(first, (tuple, list)):
        return column("the items", list(samples))
    if any(len(sample) != len(first) for sample in samples):
        lengths = sorted({len(sample) for sample in samples})
        raise FieldError(
            f"tuples of {_join(lengths)} values cannot be batched; give them the same length with `map`"
        )
    return tuple(column(f"value {i}", list(values)) for i, values in enumerate(zip(*samples, strict=True)))


def _webdatasets_column(tensors: bool, scalars: bool, name: str, values: list[Any]) -> Any:
    """Return a column as webdataset would: arrays stay arrays."""
    first = values[0]
    if isinstance(first, (int, float)):
        return np.array(values) if scalars else values
    if not tensors or not isinstance(first, (torch.Tensor, np.ndarray)):
        return values
    joined = _column(name, values)
    return joined.numpy() if isinstance(first, np.ndarray) and isinstance(joined, torch.Tensor) else joined


def _column(name: str, values: list[Any]) -> Any:
    return _check_stacked(name, stack(values))


def _check_stacked(name: str, column: Any) -> Any:
    if isinstance(column, list) and isinstance(column[0], (torch.Tensor, np.ndarray)):
        shapes = sorted({tuple(getattr(value, "shape", ())) for value in column})
        if len(shapes) > 1:
            raise FieldError(
                f"{name}: values of the shapes {_join(shapes)} cannot be stacked into a batch; resize them with `map`, "
                "or pass `collation_fn=None` to get lists"
            )
    return column


def _join(things: Sequence[Any]) -> str:
    return ", ".join(map(str, things[:-1])) + (" and " if len(things) > 1 else "") + str(things[-1])


@stage
def batched(
    source: Iterator[Any],
    batchsize: int = 20,
    collation_fn: Callable[[Sequence[Any]], Any] | None = default_collation_fn,
    partial: bool = True,
) -> Iterator[Any]:
    """Group samples into batches.

    Args:
        batchsize: samples in a batch.
        collation_fn: list of samples → batch; None yields the list.
        partial: whether the last samples make a smaller batch; otherwise they are dropped.

    Raises:
        FieldError: samples cannot be collated.
    """
    if batchsize < 1:
        raise UsageError(f"`batchsize` is {batchsize}; a batch has at least one sample")
    return _group(source, batchsize, collation_fn, partial)


def _group(
    source: Iterator[Any],
    batchsize: int,
    collation_fn: Callable[[Sequence[Any]], Any] | None,
    partial: bool,
) -> Iterator[Any]:
    while True:
        samples = list(islice(source, batchsize))
        if len(samples) == batchsize or (samples and partial):
            yield samples if collation_fn is None else collation_fn(samples)
        if len(samples) < batchsize:
            return


@stage
def unbatched(source: Iterator[Any]) -> Iterator[Any]:
    """Split batches into samples again.

    A tuple (or list) of columns yields tuples, a dict of columns yields dicts. The values of tensors of shape (n,) and
    dtype int64, float64 or bool become Python numbers.

    Raises:
        FieldError: columns have different lengths.
    """
    for batch in batches(source, "unbatched"):
        is_dict = isinstance(batch, dict)
        columns = [_rows(column) for column in (batch.values() if is_dict else batch)]
        lengths = sorted({len(column) for column in columns})
        if len(lengths) > 1:
            raise FieldError(f"a batch with columns of {_join(lengths)} values cannot be split into samples")
        rows = zip(*columns, strict=True)
        if is_dict:
            for row in rows:
                yield dict(zip(batch, row, strict=True))
        else:
            yield from rows


def _rows(column: Any) -> Any:
    if isinstance(column, torch.Tensor):
        return column.tolist() if column.ndim == 1 and column.dtype in _NUMBERS else column.unbind(0)
    if not hasattr(column, "__len__"):
        raise FieldError(
            f"a batch with a column of type {type(column).__name__} cannot be split into samples"
        )
    return column


@stage
def listed(source: Iterator[Any], batchsize: int = 20, partial: bool = True) -> Iterator[Any]:
    """Group samples into lists."""
    return batched(batchsize, None, partial)(source)


@stage
def unlisted(source: Iterator[Any]) -> Iterator[Any]:
    """Yield the items of lists."""
    for items in lists(source, "unlisted"):
        yield from items
