"""Padding: values of different lengths as one tensor, and a mask of what is padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import torch

from wdspec.base.errors import FieldError
from wdspec.fields.values import describe, type_in_words
from wdspec.spec.language.batch import Padding


class _Padded(NamedTuple):
    values: torch.Tensor
    """The values, of shape (B, …, L, …), with their dtype."""
    mask: torch.Tensor
    """True for values, false for padding: bool of shape (B, L), or (B, L1, L2) for two axes, where the items of a list
    may have lengths of their own."""
    lengths: torch.Tensor
    """The length of each value in `values`: int64 of shape (B,), or (B, 2) for two axes; of a list whose items have
    lengths of their own, their number and the longest."""


class Padded(_Padded):
    """A field of a batch that was padded (`batch: {collate: {tokens: pad}}`). B samples; L is the padded length.

    As any tuple, it can also be made from one iterable: the Trainer of transformers copies tuples in this way.
    """

    __slots__ = ()

    def __new__(cls, values: Any, mask: Any = None, lengths: Any = None) -> Padded:
        """Make it from three tensors, or from an iterable of them."""
        if mask is None and lengths is None:
            values, mask, lengths = values
        return super().__new__(cls, values, mask, lengths)


def pad(values: Sequence[Any], options: Padding, on_cut: Callable[[int], None] | None = None) -> Padded:
    """Pad or cut values to one length along the axes of `options`.

    Args:
        values: for each sample a tensor, an array, or a list of numbers, of lists, or of tensors of one shape.
        on_cut: is called with the length of the longest value if it is longer than the `length` of `options`.

    Raises:
        FieldError: they differ in other axes or in their types, or are not numbers.
    """
    evened = [_even_out(value, options, on_cut) for value in values]
    is_ragged = any(mask is not None for _, mask in evened)
    tensors = as_tensors([value for value, _ in evened], is_ragged)
    dims = tensors[0].ndim
    if dims == 0:
        raise FieldError("single numbers have no length to pad; remove the field from `collate`")
    if any(not -dims <= axis < dims for axis in options.axis):
        raise FieldError(
            f"`pad` names axis {listed_numbers(options.axis)}, but the values have {dims} axes: "
            f"{shapes_of(tensors)}"
        )
    axes = tuple(axis % dims for axis in options.axis)
    for axis in range(dims):
        if axis not in axes and len({tensor.shape[axis] for tensor in tensors}) > 1:
            raise FieldError(
                f"`pad` pads axis {listed_numbers(axes)}, but the values differ in axis {axis}: "
                f"{shapes_of(tensors)}; write `{_write_axes(values)}`, or make it equal"
            )
    longest = [max(tensor.shape[axis] for tensor in tensors) for axis in axes]
    sizes = [padded_length(each, options) for each in longest]
    if on_cut is not None and options.length is not None and max(longest) > options.length:
        on_cut(max(longest))
    shape = list(tensors[0].shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    dtype = tensors[0].dtype
    values_out = torch.full((len(tensors), *shape), fill_value(options.value, dtype), dtype=dtype)
    mask = torch.zeros((len(tensors), *sizes), dtype=torch.bool)
    lengths = torch.empty((len(tensors), len(axes)), dtype=torch.int64)
    for row, tensor in enumerate(tensors):
        kept: list[slice[Any, Any, Any]] = [slice(None)] * dims
        filled: list[slice[Any, Any, Any]] = [slice(None)] * dims
        for place, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
            length = min(tensor.shape[axis], size)
            lengths[row, place] = length
            kept[axis] = slice(length)
            filled[axis] = slice(size - length, size) if options.side == "left" else slice(length)
        values_out[row][tuple(filled)] = tensor[tuple(kept)]
        own = evened[row][1]
        mask[row][tuple(filled[axis] for axis in axes)] = (
            True if own is None else own[tuple(kept[axis] for axis in axes)]
        )
    return Padded(values_out, mask, lengths[:, 0].clone() if len(axes) == 1 else lengths)


def padded_length(longest: int, options: Padding) -> int:
    """Return the padded length of values, given the length of the longest one."""
    if options.length is not None:
        return options.length
    if options.multiple is not None:
        longest = -(-longest // options.multiple) * options.multiple
    return longest if options.limit is None else min(longest, options.limit)


def fill_value(value: float, dtype: torch.dtype) -> float | int:
    """Return the number that fills a tensor of a type. Raises FieldError if the type cannot hold it."""
    kind = type_in_words(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        if isfinite(value) and abs(value) > torch.finfo(dtype).max:
            raise FieldError(f"`pad` fills with {value:g}, which {kind} cannot hold")
        return value
    if not isfinite(value) or value != int(value):
        raise FieldError(f"`pad` fills with {value:g}, but the values are {kind}")
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if not low <= value <= high:
        raise FieldError(f"`pad` fills with {value:g}, which {kind} cannot hold")
    return int(value)


def _even_out(
    value: Any, options: Padding, on_cut: Callable[[int], None] | None
) -> tuple[Any, torch.Tensor | None]:
    """Return a list whose items differ in axes that are padded as a tensor, and its mask; others as they are."""
    if len(options.axis) < 2 or not _is_list(value) or not _is_uneven(value):
        return value, None
    dims = _count_axes(value)
    axes = [axis % dims for axis in options.axis]
    if axes[0] != 0 or axes != sorted(set(axes)):
        return value, None
    if any(len(sizes) > 1 and axis not in axes for axis, sizes in enumerate(_sizes_by_axis(value))):
        return value, None  # which is an error that names all of these
    inner = tuple(axis - 1 for axis in axes[1:])
    if on_cut is not None and options.length is not None:
        longest = max(len(value), *(max(_sizes_of(each, inner)) for each in value))
        if longest > options.length:
            on_cut(longest)
    most = options.limit if options.length is None else options.length
    # Items are cut at their own ends, and those that are cut off have no effect on others.
    padded = pad(value[:most], Padding(side=options.side, value=options.value, axis=inner, limit=most))
    return padded.values, padded.mask


def _is_uneven(value: Sequence[Any]) -> bool:
    """Whether the items of a list are lists or arrays that differ in length or shape."""
    return len({_shape_of(each) for each in value}) > 1


def _shape_of(item: Any) -> tuple[int, ...]:
    """Return the shape of an array, and the length of a list; () for others."""
    return tuple(item.shape) if hasattr(item, "shape") else (len(item),) if _is_list(item) else ()


def _write_axes(values: Sequence[Any]) -> str:
    """Return what pads all axes in which values differ: `{pad: {axis: [0, 2]}}`."""
    sizes = _merge_sizes(map(_sizes_by_axis, values))
    has_uneven = any(_is_list(value) and _is_uneven(value) for value in values)
    axes = [axis for axis, found in enumerate(sizes) if len(found) > 1 or (not axis and has_uneven)]
    return f"{{pad: {{axis: {axes if axes[1:] else axes[0]}}}}}"


def _sizes_by_axis(value: Any) -> list[set[int]]:
    """Return the sizes of an array, or of lists of arrays or numbers, along each axis."""
    if _is_list(value):
        return [{len(value)}, *_merge_sizes(map(_sizes_by_axis, value))]
    return [{size} for size in getattr(value, "shape", ())]


def _merge_sizes(each: Iterable[list[set[int]]]) -> list[set[int]]:
    return [set().union(*found) for found in zip_longest(*each, fillvalue=set())]


def _sizes_of(item: Any, axes: Sequence[int]) -> list[int]:
    return [0, *(size for axis, size in enumerate(_shape_of(item)) if axis in axes)]


def _count_axes(value: Any) -> int:
    """Return the number of axes of an array, or of lists of arrays or numbers."""
    if _is_list(value):
        return 1 + max(map(_count_axes, value), default=0)
    return int(getattr(value, "ndim", 0))


def as_tensors(values: Sequence[Any], is_loose: bool = False) -> list[torch.Tensor]:
    """Return values as tensors with one type and number of axes. An empty list gets the shape of the rows of others.

    Args:
        values: the values.
        is_loose: whether tensors of numbers of several types get a common one, as lists do.

    Raises:
        FieldError: a value does not consist of numbers, or values differ in type or number of axes.
    """
    tensors = [as_tensor(value, values) for value in values]
    full = [
        tensor for tensor, value in zip(tensors, values, strict=True) if not _is_empty_list(value)
    ] or tensors
    # Lists from JSON have no type: 1 and 0.5 are both numbers
    if is_loose or any(_is_list(value) for value in values):
        dtype = full[0].dtype
        for tensor in full[1:]:
            dtype = torch.promote_types(dtype, tensor.dtype)
        full = [tensor.to(dtype) for tensor in full]
        rows = iter(full)
        tensors = [
            torch.empty((0, *full[0].shape[1:]), dtype=dtype)
            if _is_empty_list(value) and full[0].ndim
            else next(rows)
            for value in values
        ]
    if len({(tensor.ndim, tensor.dtype) for tensor in tensors}) > 1:
        raise FieldError(f"the values differ in type or in their number of axes: {shapes_of(tensors)}")
    return tensors


def as_tensor(value: Any, among: Sequence[Any] = ()) -> torch.Tensor:
    """Return a tensor, an array or a list of numbers as a tensor.

    Args:
        value: the value.
        among: the values of all samples, which errors describe.

    Raises:
        FieldError: it is none of these.
    """
    if isinstance(value, torch.Tensor):
        return value
    try:
        if _is_list(value) and value and isinstance(value[0], (torch.Tensor, np.ndarray)):
            return torch.stack([as_tensor(each) for each in value])
        array = np.asarray(value)
        if array.dtype.kind in "biufc":
            # A copy, as torch warns of read-only arrays.
            return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    except (ValueError, TypeError, RuntimeError) as error:
        if _is_list(value) and _is_uneven(value):
            raise FieldError(
                "a list in the field is not an array of numbers, as its items differ in length or shape; to pad these, "
                f"too, name all axes that differ, as in `{_write_axes(among or [value])}`"
            ) from error
        raise FieldError(
            f"a {type(value).__name__} in the field is not an array of numbers: {error}"
        ) from error
    if value is None:
        raise FieldError(
            "the value is None: it is null in the data, or missing with `missing: none`; write `missing: skip`, or "
            "`collate: list` for the field"
            + "; or, as others are lists, write an empty list in the data"
            * any(map(_is_list, among))
        )
    raise FieldError(f"a {type(value).__name__} in the field does not hold numbers")


def shapes_of(values: Sequence[Any], most: int = 5) -> str:
    """List the shapes and types of values, each once: `(3, 4) float32, (2, 4) float32`."""
    shown = dict.fromkeys(describe(value) for value in values)
    return ", ".join([*list(shown)[:most], *(["…"] if len(shown) > most else [])])


def listed_numbers(numbers: Sequence[int]) -> str:
    """`0`, or `0 and 1`."""
    return " and ".join(map(str, numbers))


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_empty_list(value: Any) -> bool:
    return _is_list(value) and not len(value)
