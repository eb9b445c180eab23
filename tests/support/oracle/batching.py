"""Samples as batches: columns that are stacked, listed or padded, and rows of packed samples, as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.samples import RunError, build_function, lend_generators
from wdspec.planning.keys import key64, random64

_NUMBERS = "biufc"


def as_tuple(sample, entries):
    """Return the fields of `to_tuple`; of alternatives, the first that the sample has."""
    values = []
    for entry in entries:
        name = next((each for each in entry.split(";") if each in sample), None)
        if name is None:
            raise RunError(f"the sample has no `{entry}`")
        values.append(sample[name])
    return tuple(values)


def collate(samples, spec, place):
    """Return the batch of samples as `collate` and `ragged` say.

    Args:
        place: the place of the first sample in the order of the run, over all ranks.
    """
    batch, entries = spec.batch, spec.to_tuple
    fields = {} if batch.collate is None else batch.collate.fields
    call = None if batch.collate is None else batch.collate.call
    with lend_generators(random64(key64(spec.seed, "collate"), place)):
        if call is not None:
            given = samples if entries is None else [as_tuple(each, entries) for each in samples]
            return build_function(call, spec.folder)(list(given))
        added = {name: how.padding for name, how in fields.items() if how.padding is not None}
        named = {each for pad in added.values() for each in (pad.mask, pad.lengths)} - {None}
        if entries is not None:
            own = [entry for entry in entries if entry not in named]
            columns = zip(*[as_tuple(each, own) for each in samples], strict=True)
            values = dict(zip([entry.split(";")[0] for entry in own], columns, strict=True))
        else:
            if any(set(each) != set(samples[0]) for each in samples):
                raise RunError(f"samples of a batch have other fields than {list(samples[0])}")
            values = {name: [each[name] for each in samples] for name in samples[0]}
        made = {name: _column(name, list(of), batch, fields, spec.folder) for name, of in values.items()}
        for name, pad in added.items() if named else ():
            made[name], mask, lengths = made[name]
            made |= {pad.mask: mask.astype(np.int64), pad.lengths: lengths}
        made.pop(None, None)
        return made if entries is None else tuple(made[entry.split(";")[0]] for entry in entries)


def _column(name, values, batch, fields, folder):
    how = fields.get(name)
    if how is None or how.way == "stack":
        return _stack(name, values, is_strict=how is not None or batch.ragged != "list")
    if how.way == "list":
        return values
    if how.way == "call":
        return build_function(how.call, folder)(values)
    if how.way == "pad":
        return _pad(values, how.padding)
    raise NotImplementedError("nested tensors")


def as_array(value):
    """Return a tensor as an array, and anything else as it is."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _stack(name, values, is_strict):
    values = [as_array(each) for each in values]
    kinds = {type(each) for each in values}
    if len(kinds) == 1 and kinds <= {int, float, bool}:
        dtype = {int: np.int64, float: np.float64, bool: np.bool_}[kinds.pop()]
        if dtype is not np.int64 or all(-(2**63) <= each < 2**63 for each in values):
            return np.array(values, dtype)
    elif kinds == {tuple} and len({len(each) for each in values}) == 1:
        return tuple(_stack(name, list(part), is_strict) for part in zip(*values, strict=True))
    elif all(isinstance(each, (np.ndarray, np.generic)) and each.dtype.kind in _NUMBERS for each in values):
        if len({(each.shape, each.dtype) for each in values}) == 1:
            return np.stack(values)
    elif not any(isinstance(each, (bool, int, float, np.ndarray, np.generic)) for each in values):
        return values
    if is_strict:
        raise RunError(f"the values of `{name}` do not stack")
    return values


def _pad(values, options):
    arrays = [np.asarray(as_array(each)) for each in values]
    axes = tuple(axis % arrays[0].ndim for axis in options.axis)
    if any(isinstance(each, list) for each in values):
        dtype = np.result_type(*[each.dtype for each in arrays if each.size] or [arrays[0].dtype])
        shape = next((each.shape for each in arrays if each.size), arrays[0].shape)
        arrays = [each.astype(dtype) if each.size else np.zeros((0, *shape[1:]), dtype) for each in arrays]
    sizes = []
    for axis in axes:
        size = max(each.shape[axis] for each in arrays)
        if options.length is not None:
            size = options.length
        elif options.multiple is not None:
            size = -(-size // options.multiple) * options.multiple
        sizes.append(size if options.limit is None else min(size, options.limit))
    shape = list(arrays[0].shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    filled = np.full((len(arrays), *shape), options.value, arrays[0].dtype)
    mask = np.zeros((len(arrays), *sizes), np.bool_)
    lengths = np.zeros((len(arrays), len(axes)), np.int64)
    for row, array in enumerate(arrays):
        source, target = [slice(None)] * array.ndim, [slice(None)] * array.ndim
        for place, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
            length = min(array.shape[axis], size)
            lengths[row, place] = length
            source[axis] = slice(length)
            target[axis] = slice(size - length, size) if options.side == "left" else slice(length)
        filled[(row, *target)] = array[tuple(source)]
        mask[(row, *(target[axis] for axis in axes))] = True
    return filled, mask, lengths[:, 0].copy() if len(axes) == 1 else lengths


def pack_row(samples, pack) -> dict[str, Any]:
    """Return the row of the samples of a batch."""
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    row: dict[str, Any] = {
        name: [sample.get(name) for sample in samples] for name in names if name not in pack.fields
    }
    packed = {name: _as_rows(samples, name) for name in pack.fields}
    sizes = [len(each) for each in packed[pack.fields[0]]]
    if any([len(each) for each in values] != sizes for values in packed.values()):
        raise RunError("packed fields of different lengths")
    multiple = pack.pad_to_multiple_of
    spans = [-(-size // multiple) * multiple for size in sizes]
    length = sum(spans) if pack.length is None else pack.length
    if sum(spans) > length:
        raise RunError(f"samples of {sum(spans)} elements do not fit into a row of {length}")
    for name, values in packed.items():
        fill = pack.pad.get(name, 0)
        pieces = []
        for value, span in zip(values, spans, strict=True):
            pieces += [value, np.full((span - len(value), *value.shape[1:]), fill, value.dtype)]
        pieces.append(np.full((length - sum(spans), *values[0].shape[1:]), fill, values[0].dtype))
        row[name] = np.concatenate(pieces)[None]
    rest = length - sum(spans)
    parts = [*spans, rest] if rest else spans
    if pack.position_ids:
        row[pack.position_ids] = np.array([[at for span in parts for at in range(span)]], np.int64).reshape(
            1, -1
        )
    if pack.segment_ids:
        segments: list[int] = []
        for number, (size, span) in enumerate(zip(sizes, spans, strict=True), 1):
            segments += [number] * size + [0] * (span - size)
        row[pack.segment_ids] = np.array([segments + [0] * rest], np.int64).reshape(1, -1)
    if pack.cu_seqlens:
        row[pack.cu_seqlens] = np.array([sum(parts[:n]) for n in range(len(parts) + 1)], np.int32)
    if pack.max_seqlen:
        row[pack.max_seqlen] = max(parts, default=0)
    row["__tokens__"] = sum(sizes)
    return row


def _as_rows(samples, name):
    """Return the values of a packed field: those of lists get a common type, and other values must have one."""
    rows = [_as_row(sample, name) for sample in samples]
    if len({(each.dtype, each.shape[1:]) for each in rows}) > 1:
        is_list = [isinstance(sample[name], (list, tuple)) for sample in samples]
        full = [each for each, listed in zip(rows, is_list, strict=True) if len(each) or not listed] or rows
        if len({each.shape[1:] for each in full}) > 1 or (
            not any(is_list) and len({each.dtype for each in full}) > 1
        ):
            raise RunError(f"the samples of a row differ in the type or shape of `{name}`")
        shape, kind = full[0].shape[1:], np.result_type(*full)
        rows = [each.astype(kind) if len(each) else np.zeros((0, *shape), kind) for each in rows]
    return rows


def _as_row(sample, name):
    if name not in sample:
        raise RunError(f"`pack` needs the field `{name}`")
    value = as_array(sample[name])
    if isinstance(value, (list, tuple)):  # as torch: whole numbers are int64, others float32
        value = np.array(value)
        value = value.astype(np.float32) if value.dtype == np.float64 else value
    return np.asarray(value)
