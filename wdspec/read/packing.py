"""Batches of any size: what they cost, and samples that are joined to one row.

input_ids   a a a b b c c c . .        (1, L): the samples one after the other, then padding
position    0 1 2 0 1 0 1 2 0 1        the place in the sample
segments    1 1 1 2 2 3 3 3 0 0        the number of the sample, 0 for padding
cu_seqlens  0 3 5 8 10                 where samples start, as int32, and the end of the row
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from wdspec.base.errors import FieldError
from wdspec.read.batch import Collate, build_collate
from wdspec.read.padding import as_tensors, fill_value, shapes_of
from wdspec.read.transform import Sample
from wdspec.read.windows import CostedSamples
from wdspec.spec.language.batch import Batch, Packing

COST = "__cost__"
"""What a batch costs."""
SIZE = "__size__"
"""The number of samples in a batch."""
TOKENS = "__tokens__"
"""The number of elements in a packed row, without padding."""


def build_window_collate(
    batch: Batch, entries: tuple[str, ...] | None, folder: str = "", seed: int = 0
) -> Collate:
    """Return the function that turns the samples of a planned batch into a batch.

    A batch that is a dict also gets `__size__`, the number of its samples, and `__cost__`, what it costs; a packed one
    `__tokens__`. Without padding `__cost__` is the sum of its samples' costs, otherwise their number times the largest.

    Args:
        batch: the `batch` of the spec.
        entries: its `to_tuple`.
        folder: its folder, which is searched for user functions first.
        seed: its seed.
    """
    pack = batch.pack
    collate = build_collate(batch, None if pack else entries, folder, seed)

    def make(samples: Sequence[Sample], place: int = 0) -> Any:
        made = collate(samples, place) if pack is None else join_samples(samples, pack)
        if isinstance(made, dict) and isinstance(samples, CostedSamples):
            costs = samples.costs
            made[SIZE] = len(costs)
            made[COST] = sum(costs) if pack or not batch.padded else len(costs) * max(costs, default=0)
        if pack and entries is not None:
            return tuple(made[entry] for entry in entries)
        return made

    return make


def join_samples(samples: Sequence[Sample], pack: Packing) -> dict[str, Any]:
    """Join samples to one row.

    Returns:
        The packed fields as tensors of shape (1, L, …), the added fields, all other fields as lists, and `__tokens__`.

    Raises:
        FieldError: a sample lacks a packed field, their lengths differ, the samples of a field differ in their type or
            in the shape of their elements, the row is longer than `length`, the padding does not fit the type of a
            field, or the samples have a field that is to be added.
    """
    parts = {name: _as_tensors(name, samples) for name in pack.fields}
    sizes = [value.shape[0] for value in parts[pack.fields[0]]]
    for name in pack.fields[1:]:
        for size, value, sample in zip(sizes, parts[name], samples, strict=True):
            if len(value) != size:
                raise _error(
                    f"`{name}` has {len(value)} elements, and `{pack.fields[0]}` {size}", name, sample
                )
    multiple = pack.pad_to_multiple_of
    spans = [-(-size // multiple) * multiple for size in sizes]
    total = sum(spans)
    if pack.length is not None and total > pack.length:
        raise _error(
            f"{len(samples)} samples of {total:,} elements do not fit into a row of {pack.length:,}: `batch.cost` says "
            f"less than their fields have; correct it, or leave it out to use the length of `{pack.fields[0]}`",
            pack.fields[0],
            samples[0],
        )
    length = total if pack.length is None else pack.length
    starts = np.concatenate([[0], np.cumsum(spans)]).astype(np.int64)
    row: dict[str, Any] = {
        name: values for name, values in stack_lists(samples).items() if name not in pack.fields
    }
    for name in pack.added:
        if name in row or name in parts:
            raise _error(
                f"the samples have a field `{name}`, which `pack` would replace; give the field that `pack` adds "
                "another name",
                name,
                samples[0],
            )
    for name, values in parts.items():
        try:
            fill = fill_value(pack.pad.get(name, 0), values[0].dtype)
        except FieldError as error:
            raise _error(error.message, name, samples[0]) from None
        filled = values[0].new_full((max(multiple, length - total), *values[0].shape[1:]), fill)
        pieces: list[torch.Tensor] = []
        for size, span, value in zip(sizes, spans, values, strict=True):
            pieces += (value, filled[: span - size]) if span > size else (value,)
        row[name] = torch.cat([*pieces, filled[: length - total]])[None]
    if pack.position_ids:
        places = torch.arange(length) - torch.from_numpy(np.repeat(starts, [*spans, length - total]))
        row[pack.position_ids] = places[None]
    if pack.segment_ids:
        segments = torch.zeros((1, length), dtype=torch.int64)
        for number, (start, size) in enumerate(zip(starts.tolist(), sizes, strict=False), 1):
            segments[0, start : start + size] = number
        row[pack.segment_ids] = segments
    if pack.cu_seqlens:
        ends = starts if total == length else np.append(starts, length)
        row[pack.cu_seqlens] = torch.from_numpy(ends.astype(np.int32))
    if pack.max_seqlen:
        row[pack.max_seqlen] = max([*spans, length - total])
    row[TOKENS] = sum(sizes)
    return row


def stack_lists(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """Return field → its values, None where a sample lacks it."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: [sample.get(name) for sample in samples] for name in names}


def _as_tensors(name: str, samples: Sequence[Sample]) -> list[torch.Tensor]:
    """Return the values of a packed field, with one type and one shape of elements, as `padding.as_tensors` does."""
    values = [_as_tensor(name, sample) for sample in samples]
    dtype, ndim = values[0].dtype, values[0].ndim
    if ndim == 1 and all(value.dtype is dtype and value.ndim == 1 for value in values):  # most of all
        return values
    kinds = [(value.dtype, value.shape[1:]) for value in values]
    if kinds.count(kinds[0]) == len(kinds):
        return values
    other = next(sample for kind, sample in zip(kinds, samples, strict=True) if kind != kinds[0])
    try:
        values = as_tensors([sample[name] for sample in samples])
    except FieldError as error:
        raise _error(
            f"`{name}` cannot be joined: {error.message}; make them alike in `map`", name, other
        ) from None
    if any(value.shape[1:] != values[0].shape[1:] for value in values):
        found = shapes_of(values)
        raise _error(f"`{name}` cannot be joined: the elements differ in shape: {found}", name, other)
    return values


def _as_tensor(name: str, sample: Sample) -> torch.Tensor:
    if name not in sample:
        raise _error(f"`pack` needs the field `{name}`", name, sample)
    value = sample[name]
    try:
        if isinstance(value, np.ndarray):
            tensor = torch.from_numpy(value)  # `as_tensor` looks for other interfaces first
        else:
            tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as cause:
        raise _error(f"`{name}` is not an array of numbers: {cause}", name, sample) from cause
    if not tensor.ndim:
        raise _error(f"`{name}` is a single number, not an array", name, sample)
    return tensor


def _error(message: str, field: str, sample: Sample) -> FieldError:
    return FieldError(
        message,
        source=sample.get("__source__"),
        url=sample.get("__url__"),
        key=sample.get("__key__"),
        field=field,
    )
