"""The values of one field → what a batch has of them: stacked, listed, padded, nested, or by a function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from wdspec.errors import FieldError
from wdspec.reading.batches.padding import as_tensors, described, pad
from wdspec.reading.collate import stack
from wdspec.reading.user_steps import built
from wdspec.spec.language.steps.batch_options import FieldCollation

Column = Callable[[str, list[Any], "Sequence[dict[str, Any]]"], Any]
"""(field, its values, the samples that they are of) -> what the batch has of them."""
_LISTED = frozenset({str, bytes, bytearray, dict, list, type(None)})
"""What stays a list: no number of it is meant."""


def strict_column(field: str, values: list[Any], samples: Sequence[dict[str, Any]]) -> Any:
    """Numbers, arrays and tensors as one tensor; tuples part by part; text, bytes, dicts, lists and others as a list.

    Raises:
        FieldError: numbers, arrays, tensors or images that do not stack.
    """
    column = stack(values)
    if column is not values:
        return column
    kinds = set(map(type, values))
    if kinds <= _LISTED:
        return values
    if tuple in kinds:
        return _parts(field, values, samples, strict_column)
    if any(map(_should_stack, values)):
        raise unstackable(field, values, samples)
    return values


def loose_column(field: str, values: list[Any], samples: Sequence[dict[str, Any]]) -> Any:
    """The same with a list of what does not stack."""
    try:
        return strict_column(field, values, samples)
    except FieldError:
        return values


def column_of(collation: FieldCollation, folder: str) -> Column:
    """What makes a field's column as the spec says.

    Raises:
        SpecError: a function cannot be imported, or is none.
    """
    if collation.way == "call":
        assert collation.call is not None, "a function has a name"
        function = built(collation.call, "collate", {}, folder)
        return lambda field, values, samples: function(values)
    if collation.way == "pad":
        padding = collation.padding
        assert padding is not None, "`pad` says how"
        return _placed(lambda values: pad(values, padding))
    return {"stack": strict_column, "list": _listed, "nested": _placed(_nested)}[collation.way]


def unstackable(field: str, values: Sequence[Any], samples: Sequence[dict[str, Any]]) -> FieldError:
    """The error for values that do not stack: which, of which samples, and what to do."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for value, sample in zip(values, samples, strict=True):
        groups[described(value)].append(sample)
    lines = [f"  {kind}: {_whose(found)}" for kind, found in list(groups.items())[:6]]
    if len(groups) > len(lines):
        lines.append(f"  and {len(groups) - len(lines)} more")
    axes = {getattr(value, "ndim", None) for value in values}
    whole = hasattr(values[0], "mode") or axes & {2, 3}
    remedies = [
        f"bring images to one size as they are decoded, `decode: {{{field}: rgb8+random_resized_crop=224}}`"
    ] * bool(whole) + [
        "make the values alike in `map`",
        f"pad them, `batch: {{collate: {{{field}: pad}}}}`",
        f"or ask for a list, `batch: {{ragged: {{{field}: list}}}}`",
    ]
    sources = {sample.get("__source__") for sample in samples}
    return FieldError(
        f"the values of `{field}` in a batch of {len(values)} do not stack:\n"
        + "\n".join(lines)
        + f"\n{'; '.join(remedies)}",
        source=sources.pop() if len(sources) == 1 else None,
        field=field,
    )


def _whose(samples: Sequence[dict[str, Any]]) -> str:
    """Which samples, by source and key."""
    by_source: dict[Any, list[str]] = defaultdict(list)
    for sample in samples:
        by_source[sample.get("__source__", "?")].append(str(sample.get("__key__", "?")))
    return "; ".join(
        f"{source}: {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
        for source, keys in by_source.items()
    )


def _should_stack(value: Any) -> bool:
    """Whether a value is of a kind of which a batch is expected to hold a tensor."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return isinstance(value, (bool, int, float, complex, torch.Tensor, np.number, np.bool_)) or (
        type(value).__module__.partition(".")[0] == "PIL"
    )


def _parts(field: str, values: list[Any], samples: Sequence[dict[str, Any]], column: Column) -> Any:
    """Tuples of one length, such as sound and its rate, as a tuple of columns."""
    lengths = {len(value) if isinstance(value, tuple) else None for value in values}
    if len(lengths) > 1:
        raise unstackable(field, values, samples)
    return tuple(column(field, list(part), samples) for part in zip(*values, strict=True)) or values


def _placed(make: Callable[[list[Any]], Any]) -> Column:
    """A column of arrays; of tuples that hold arrays, such as sound and its rate, only the arrays are made so."""

    def column(field: str, values: list[Any], samples: Sequence[dict[str, Any]]) -> Any:
        if all(isinstance(value, tuple) and any(map(_is_array, value)) for value in values):
            return _parts(field, values, samples, inner)
        return inner(field, values, samples, always=True)

    def inner(field: str, values: list[Any], samples: Sequence[dict[str, Any]], always: bool = False) -> Any:
        if not always and not any(map(_is_array, values)):
            return strict_column(field, values, samples)
        try:
            return make(values)
        except FieldError as error:
            keys = [str(sample.get("__key__", "?")) for sample in samples]
            sources = sorted({str(sample.get("__source__", "?")) for sample in samples})
            raise error.at(
                source=", ".join(sources[:3]),
                field=field,
                key=", ".join(keys[:3]) + (", …" if keys[3:] else ""),
            ) from error.__cause__

    return column


def _is_array(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray))


def _listed(field: str, values: list[Any], samples: Sequence[dict[str, Any]]) -> Any:
    return values


def _nested(values: list[Any]) -> Any:
    tensors = as_tensors(values)
    try:
        return torch.nested.nested_tensor(tensors, layout=torch.jagged)
    except RuntimeError as error:
        raise FieldError(
            f"torch makes no nested tensor of {', '.join(dict.fromkeys(map(described, tensors)))}: {error}"
        ) from error
