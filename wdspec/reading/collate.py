"""Samples into batches: a dict of tensors, collated where the samples were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from wdspec.errors import FieldError
from wdspec.reading.transform import Sample, missing_field, present

Batch = dict[str, Any]


def collate(samples: Sequence[Sample]) -> Batch:
    """A dict of field -> values stacked along a new first axis, in the order of the first sample's fields.

    See `stack` for what becomes a tensor. `__key__`, `__url__` and `__source__` are lists of text.

    Raises:
        FieldError: the samples do not have the same fields; lists them by source.
    """
    first = samples[0]
    try:
        batch = {name: stack([sample[name] for sample in samples]) for name in first}
    except KeyError:
        raise unlike(samples) from None
    width = len(first)
    if any(len(sample) != width for sample in samples):
        raise unlike(samples)
    return batch


def stack(values: list[Any]) -> Any:
    """Values of one field as a tensor of shape (len(values), …), or the list itself where they do not stack.

    Tensors and numeric arrays of one shape and dtype keep their dtype; int becomes int64, float float64, bool
    bool (as torch's own `default_collate` does). Text, bytes, None, dicts, images of other libraries and
    values of unequal shape or type stay a list.
    """
    kind = type(values[0])
    if len(set(map(type, values))) > 1:
        return values
    if kind in (int, float, bool):
        try:
            return torch.tensor(
                values, dtype={int: torch.int64, float: torch.float64, bool: torch.bool}[kind]
            )
        except (OverflowError, RuntimeError, ValueError):  # an int beyond 64 bits
            return values
    if isinstance(values[0], torch.Tensor):
        alike = all(v.shape == values[0].shape and v.dtype == values[0].dtype for v in values)
        return torch.stack(values) if alike else values
    if isinstance(values[0], (np.ndarray, np.generic)):
        alike = all(v.shape == values[0].shape and v.dtype == values[0].dtype for v in values)
        if alike and values[0].dtype.kind in "biufc":
            stacked = np.stack(values)
            try:
                return torch.from_numpy(stacked.astype(stacked.dtype.newbyteorder("="), copy=False))
            except TypeError:  # torch has no such type: long doubles
                return values
    return values


def as_tuple(sample: Sample, entries: Sequence[str]) -> tuple[Any, ...]:
    """The sample's fields in the order of `to_tuple`; of alternatives `a;b` the first present."""
    values = []
    for entry in entries:
        if (name := present(entry, sample)) is None:
            raise missing_field(entry, sample)
        values.append(sample[name])
    return tuple(values)


def unlike(samples: Sequence[Sample]) -> FieldError:
    """The error for sources that deliver different fields, with the `rename` that would make them alike."""
    layouts: dict[str, list[str]] = {}
    for sample in samples:
        names = [name for name in sample if not name.startswith("__")]
        known = layouts.setdefault(sample.get("__source__", "?"), names)
        if set(known) != set(names):
            return FieldError(
                f"samples of one source differ in their fields ({_listed(known)}; {_listed(names)}), so they cannot "
                "be batched; ask for the fields with `fields`, and set `missing: skip` or `none`",
                source=sample.get("__source__"),
                url=sample.get("__url__"),
                key=sample.get("__key__"),
            )
    lines = [f"  {source}: {_listed(names)}" for source, names in layouts.items()]
    (_, wanted), *others = layouts.items()
    advice = []
    for source, names in others:
        lacking = [name for name in wanted if name not in names]
        surplus = [name for name in names if name not in wanted]
        if lacking and len(lacking) == len(surplus):
            pairs = ", ".join(f"{new}: {old}" for new, old in zip(lacking, surplus, strict=True))
            advice.append(f"  in {source}: rename: {{{pairs}}}")
    remedy = "perhaps:\n" + "\n".join(advice) if advice else "use `rename` and `fields` to make them alike"
    return FieldError("sources with different fields cannot be batched:\n" + "\n".join(lines) + f"\n{remedy}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "no fields"
