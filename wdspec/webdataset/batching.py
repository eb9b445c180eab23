"""Samples into batches and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from wdspec.base.errors import FieldError, UsageError
from wdspec.read.batch import collate, stack
from wdspec.webdataset.stage import stage

_NUMBERS = (torch.int64, torch.float64, torch.bool)
"""The types of tensor that `stack` makes of Python's numbers."""


def default_collation_fn(
    samples: Sequence[Any], combine_tensors: bool | None = None, combine_scalars: bool | None = None
) -> Any:
    """Samples as one batch: a tuple of columns for tuples, a dict of fields for dicts, else a column.

    Tensors and arrays become one tensor with a new first axis, and so do numbers; text, bytes, None and other
    objects a list. A batch of dicts keeps `__key__` and `__url__`, as lists of text.

    Args:
        combine_tensors, combine_scalars: given, a batch has the types that webdataset's has: arrays make one array,
            numbers one array, and tensors one tensor; False leaves tensors and arrays, or numbers, a list.
            ``functools.partial(default_collation_fn, combine_tensors=True)`` keeps numpy what is numpy.

    Raises:
        FieldError: tensors or arrays of unequal shapes, or samples with unequal fields.
    """
    column: Callable[[str, list[Any]], Any] = _column
    if combine_tensors is not None or combine_scalars is not None:
        column = partial(_column_in_kind, combine_tensors is not False, combine_scalars is not False)
    first = samples[0]
    if isinstance(first, dict):
        if column is _column:
            batch = collate(samples)
            for name, values in batch.items():
                _check_stacked(name, values)
            return batch
        collate([dict.fromkeys(sample, "") for sample in samples])  # the same fields in all of them
        return {name: column(name, [sample[name] for sample in samples]) for name in first}
    if not isinstance(first, (tuple, list)):
        return column("the items", list(samples))
    if any(len(sample) != len(first) for sample in samples):
        lengths = sorted({len(sample) for sample in samples})
        raise FieldError(
            f"tuples of {_joined(lengths)} values cannot make one batch; make them alike with `map`"
        )
    return tuple(column(f"value {i}", list(values)) for i, values in enumerate(zip(*samples, strict=True)))


def _column_in_kind(tensors: bool, scalars: bool, name: str, values: list[Any]) -> Any:
    """A column of the batch that webdataset would make: arrays stay arrays."""
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
                f"{name}: values of the shapes {_joined(shapes)} cannot make one batch; resize them with `map` "
                "first, or use `collation_fn=None` for lists"
            )
    return column


def _joined(things: Sequence[Any]) -> str:
    return ", ".join(map(str, things[:-1])) + (" and " if len(things) > 1 else "") + str(things[-1])


@stage
def batched(
    source: Iterator[Any],
    batchsize: int = 20,
    collation_fn: Callable[[Sequence[Any]], Any] | None = default_collation_fn,
    partial: bool = True,
) -> Iterator[Any]:
    """Batches of so many samples, each as soon as its last sample is there.

    Args:
        batchsize: samples in a batch.
        collation_fn: list of samples → batch; None leaves the list.
        partial: whether what is left at the end makes a smaller batch, or is dropped.

    Raises:
        FieldError: samples that cannot make one batch.
    """
    if batchsize < 1:
        raise UsageError(f"a batch has at least one sample, not {batchsize}")
    return _batched(source, batchsize, collation_fn, partial)


def _batched(
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
    """The samples of batches: what `batched` or a DataLoader put together, apart again.

    Tuples (and lists) of columns give tuples, dicts of columns dicts. Numbers that became a tensor of shape (n,)
    and type int64, float64 or bool are Python's numbers again.

    Raises:
        FieldError: columns of unequal length.
    """
    for batch in source:
        is_dict = isinstance(batch, dict)
        columns = [_rows(column) for column in (batch.values() if is_dict else batch)]
        lengths = sorted({len(column) for column in columns})
        if len(lengths) > 1:
            raise FieldError(f"a batch has columns of {_joined(lengths)} values, so it is not taken apart")
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
        raise FieldError(f"a batch has a {type(column).__name__} for a column, so it is not taken apart")
    return column


@stage
def listed(source: Iterator[Any], batchsize: int = 20, partial: bool = True) -> Iterator[Any]:
    """Lists of so many samples, as they are."""
    return batched(batchsize, None, partial)(source)


@stage
def unlisted(source: Iterator[Any]) -> Iterator[Any]:
    """The items of lists, one by one."""
    for items in source:
        yield from items
