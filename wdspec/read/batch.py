"""Batches: collating samples in the process that read them.

`build_collate` chooses the function that turns the samples of a step into a batch: plain stacking, columns as `collate`
and `ragged` of the spec define them, or a user function.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from wdspec.base.amounts import pluralize
from wdspec.base.errors import FieldError, SpecError, warn_user
from wdspec.fields import memory
from wdspec.fields.deferred import EncodedImage, gather
from wdspec.fields.values import Audio, describe, is_array, is_image
from wdspec.planning.keys import key64, random64
from wdspec.read.padding import Padded, as_tensors, pad
from wdspec.read.randomness import GlobalGenerators
from wdspec.read.rows import TableRows
from wdspec.read.transform import Sample, build_function, find_field, missing_field
from wdspec.spec.language.batch import Batch, Collation, FieldCollation, Padding

Column = Callable[[str, list[Any], Sequence[Sample]], Any]
"""(field, its values, the samples they belong to) → the column of the batch."""
Collate = Callable[[Sequence[Sample], int], Any]
"""(samples, the place of the first one in the order of the run, over all ranks) → batch."""

_LISTED = frozenset({str, bytes, bytearray, dict, list, type(None)})
"""Types whose values stay in a list, as they are not numbers."""


def build_collate(batch: Batch, entries: tuple[str, ...] | None, folder: str = "", seed: int = 0) -> Collate:
    """Return the function that turns samples into a batch.

    Args:
        batch: the `batch` of the spec.
        entries: its `to_tuple`.
        folder: its folder, which is searched for user functions first.
        seed: its seed.
    """
    if entries is None and batch.collate is None and batch.ragged == "error":
        return stack_samples
    return BatchMaker(batch, entries, folder, seed)


def stack_samples(samples: Sequence[Sample], place: int = 0) -> dict[str, Any]:
    """Return a dict of field → `strict_column`, in the order of the fields of the first sample.

    Raises:
        FieldError: the samples do not have the same fields, or the values of a field do not stack.
    """
    return {name: strict_column(name, values, samples) for name, values in _values_by_field(samples).items()}


class BatchMaker:
    """Turns samples into a dict of field → column, a tuple of columns with `to_tuple`, or what a user function returns.

    User functions are imported with the first batch, in the process that collates it. The random numbers they draw
    from torch, numpy and `random` depend only on the seed and on the place of the batch in the order.

    Raises:
        FieldError: the samples do not have the same fields, or the values of a field do not make a column.
        SpecError: a function cannot be imported; `collate` names a field that does not exist.
    """

    def __init__(
        self, batch: Batch, entries: tuple[str, ...] | None, folder: str = "", seed: int = 0
    ) -> None:
        self._batch = batch
        self._entries = entries
        self._folder = folder
        self._seed = seed
        self._key = key64(seed, "collate")

    def __call__(self, samples: Sequence[Sample], place: int = 0) -> Any:
        """Return the batch whose first sample has this place in the order of the run, over all ranks."""
        if self._generators is None:
            return self._make(samples)
        with self._generators:
            self._generators.seed(random64(self._key, place))
            return self._make(samples)

    @cached_property
    def _generators(self) -> GlobalGenerators | None:
        """The random generators lent to user functions; None without user functions."""
        if not self._collation.functions:
            return None
        generators = GlobalGenerators()
        generators.seed_random_too()
        return generators

    def _make(self, samples: Sequence[Sample]) -> Any:
        entries, columns = self._entries, self._columns
        if self._whole is not None:
            return self._whole(
                list(samples) if entries is None else [as_tuple(sample, entries) for sample in samples]
            )
        if entries is None:
            found: Mapping[str, list[Any]] = _values_by_field(samples)
        else:
            own = [entry for entry in entries if entry not in self._batch.added]
            if isinstance(samples, TableRows) and all(find_field(entry, samples.columns) for entry in own):
                parts: Iterable[Iterable[Any]] = as_tuple(samples.columns, own)
            else:
                parts = zip(*[as_tuple(sample, own) for sample in samples], strict=True)
            found = {entry.split(";")[0]: list(part) for entry, part in zip(own, parts, strict=True)}
        self._check(found)
        made = {name: columns.get(name, self._other)(name, values, samples) for name, values in found.items()}
        for name, padding in self._taken_apart.items():
            _add_parts(made, name, padding)
        return made if entries is None else tuple(made[entry.split(";")[0]] for entry in entries)

    @property
    def _collation(self) -> Collation:
        return self._batch.collate or Collation()

    @cached_property
    def _whole(self) -> Any:
        """The user function that collates whole batches, if there is one."""
        call = self._collation.call
        return None if call is None else build_function(call, "collate", {}, self._folder)

    @cached_property
    def _other(self) -> Column:
        """The function for the columns of fields that `collate` does not name."""
        return loose_column if self._batch.ragged == "list" else strict_column

    @cached_property
    def _columns(self) -> dict[str, Column]:
        return {name: build_column(how, self._folder, name) for name, how in self._collation.fields.items()}

    @cached_property
    def _taken_apart(self) -> dict[str, Padding]:
        """The padded fields, if masks or lengths are fields of the batch."""
        ways = self._collation.fields if self._collation.added else {}
        return {name: how.padding for name, how in ways.items() if how.padding is not None}

    def _check(self, names: Collection[str]) -> None:
        for name in self._columns:
            if name not in names:
                known = ", ".join(name for name in names if not name.startswith("__")) or "no fields"
                raise SpecError(
                    f"`batch: {{collate: …}}` names the field `{name}`, but a sample has {known}; name one of these"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchMaker, (self._batch, self._entries, self._folder, self._seed)


def collate(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return a dict of field → values, stacked along a new first axis, in the order of the fields of the first sample.

    See `stack` for what becomes a tensor. `__key__`, `__url__` and `__source__` are lists of strings.

    Raises:
        FieldError: the samples do not have the same fields; lists them by source.
    """
    return {name: stack(values) for name, values in _values_by_field(samples).items()}


def _values_by_field(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """Return field → its value in each sample, in the order of the fields of the first sample."""
    if isinstance(samples, TableRows):
        return samples.columns
    first = samples[0]
    if set(map(len, samples)) != {len(first)}:
        raise _different_fields(samples)
    try:
        return {name: list(map(itemgetter(name), samples)) for name in first}
    except KeyError:
        raise _different_fields(samples) from None


def stack(values: list[Any], samples: Sequence[Sample] = ()) -> Any:
    """Return the values of one field as a tensor of shape (len(values), …), or the list itself if they do not stack.

    Tensors and numeric arrays of one shape and dtype keep their dtype. int becomes int64, float float64, bool bool, as
    in torch's `default_collate`. Text, bytes, None, dicts, images of other libraries and values of different shapes or
    types stay a list.
    """
    kind = type(values[0])
    if len(set(map(type, values))) > 1:
        return values
    if kind in (int, float, bool):
        try:
            return torch.tensor(
                values, dtype={int: torch.int64, float: torch.float64, bool: torch.bool}[kind]
            )
        except (OverflowError, RuntimeError, ValueError):  # an int of more than 64 bits
            return values
    if isinstance(values[0], torch.Tensor):
        is_uniform = all(v.shape == values[0].shape and v.dtype == values[0].dtype for v in values)
        return _stack_tensors(values) if is_uniform else values
    if isinstance(values[0], (np.ndarray, np.generic)):
        is_uniform = all(v.shape == values[0].shape and v.dtype == values[0].dtype for v in values)
        if is_uniform and values[0].dtype.kind in "biufc":
            stacked = memory.take_batch(values)
            if stacked is None:
                stacked = np.stack(values, out=memory.empty((len(values), *values[0].shape), values[0].dtype))
            try:
                return torch.from_numpy(stacked.astype(stacked.dtype.newbyteorder("="), copy=False))
            except TypeError:  # a type that torch does not have, such as long double
                return values
    return gather(values, samples) if kind is EncodedImage else values


def _stack_tensors(values: list[torch.Tensor]) -> torch.Tensor:
    """Stack tensors of one shape and type; without a copy if they were written where the batch is."""
    batch = memory.take_batch(values)
    if batch is not None:
        return torch.from_numpy(batch)
    first = values[0]
    size = len(values) * first.numel() * first.element_size()
    is_plain = type(first) is torch.Tensor and first.layout is torch.strided and first.device.type == "cpu"
    if size < memory.LARGE or not is_plain or any(value.requires_grad for value in values):
        return torch.stack(values)
    out = torch.from_numpy(memory.empty((size,), np.uint8)).view(first.dtype).view(len(values), *first.shape)
    return torch.stack(values, out=out)


def strict_column(field: str, values: list[Any], samples: Sequence[dict[str, Any]]) -> Any:
    """Return numbers, arrays and tensors as one tensor, tuples part by part, and anything else as a list.

    Raises:
        FieldError: numbers, arrays, tensors or images that do not stack.
    """
    kinds = set(map(type, values))
    if kinds <= _LISTED:
        return values
    column = stack(values, samples)
    if column is not values:
        return column
    if tuple in kinds or Audio in kinds:
        return _parts(field, values, samples, strict_column)
    if any(map(_should_stack, values)):
        raise _unstackable(field, values, samples)
    return values


def loose_column(field: str, values: list[Any], samples: Sequence[dict[str, Any]]) -> Any:
    """Return the `strict_column`, or a list if the values do not stack."""
    try:
        return strict_column(field, values, samples)
    except FieldError:
        return values


def build_column(collation: FieldCollation, folder: str, name: str) -> Column:
    """Return the function that makes the column of a field as `collate` says.

    Raises:
        SpecError: a function cannot be imported or called.
    """
    if collation.way == "call":
        assert collation.call is not None, "`call` names a function"
        function = build_function(collation.call, "collate", {}, folder)
        return lambda field, values, samples: function(values)
    if collation.way == "pad":
        padding = collation.padding
        assert padding is not None, "`pad` has options"
        on_cut = _CutWarning(name, padding.length)
        return _place_arrays(lambda values: pad(values, padding, on_cut))
    return {"stack": strict_column, "list": _list_column, "nested": _place_arrays(_nest)}[collation.way]


class _CutWarning:
    """Warns once that `length` cuts the values of a field: its name says only that they have this length."""

    def __init__(self, field: str, length: int | None) -> None:
        self._field, self._length, self._is_known = field, length, False

    def __call__(self, longest: int) -> None:
        """Warn about a value of a length."""
        if not self._is_known:
            self._is_known = True
            name, length = self._field, self._length
            warn_user(
                f"`{name}: {{pad: {{length: {length}}}}}` cuts longer values off, such as one of {longest:,}; "
                f"if you mean that, write `{{pad: {{limit: {length}, multiple: {length}}}}}`. Otherwise, use a larger "
                f"`length` or, for token ids, `truncate` of `tokenize` or `where: {name}.length <= {length}`"
            )


def _add_parts(batch: dict[str, Any], name: str, padding: Padding) -> None:
    """Make a padded field a plain tensor, and its mask (int64, as tokenizers give it) and lengths fields of their own.

    Raises:
        FieldError: the batch has a field of that name.
    """
    for new in padding.added:
        if new in batch:
            raise FieldError(
                f"the samples have a field `{new}`, which `pad` would replace; choose another name in `collate: "
                f"{{{name}: {{pad: …}}}}`, or remove the field with `fields`",
                field=new,
            )
    column = batch[name]
    parts = column if type(column) is tuple else (column,)  # audio: padded waveforms, and their rates
    padded = next(part for part in parts if isinstance(part, Padded))
    plain = tuple(part.values if part is padded else part for part in parts)
    batch[name] = plain if type(column) is tuple else plain[0]
    if padding.mask is not None:
        batch[padding.mask] = padded.mask.to(torch.int64)
    if padding.lengths is not None:
        batch[padding.lengths] = padded.lengths


def as_tuple(sample: Sample, entries: Sequence[str]) -> tuple[Any, ...]:
    """Return the fields of a sample in the order of `to_tuple`. Of alternatives `a;b`, the first one present counts."""
    values = []
    for entry in entries:
        if (name := find_field(entry, sample)) is None:
            raise missing_field(entry, sample)
        values.append(sample[name])
    return tuple(values)


def _different_fields(samples: Sequence[Sample]) -> FieldError:
    """Return the error for sources with different fields, with the `rename` that would make them equal."""
    layouts: dict[str, list[str]] = {}
    for sample in samples:
        names = [name for name in sample if not name.startswith("__")]
        known = layouts.setdefault(sample.get("__source__", "?"), names)
        if set(known) != set(names):
            return FieldError(
                f"samples of one source have different fields ({_name_fields(known)}; {_name_fields(names)}), so they "
                "cannot be batched; list the fields in `fields`, and set `missing: skip` or `none` (in Python: "
                "`to_tuple(…, missing_is_error=False)`)",
                source=sample.get("__source__"),
                url=sample.get("__url__"),
                key=sample.get("__key__"),
            )
    lines = [f"  {source}: {_name_fields(names)}" for source, names in layouts.items()]
    (_, wanted), *others = layouts.items()
    advice = []
    for source, names in others:
        lacking = [name for name in wanted if name not in names]
        surplus = [name for name in names if name not in wanted]
        if lacking and len(lacking) == len(surplus):
            pairs = ", ".join(f"{new}: {old}" for new, old in zip(lacking, surplus, strict=True))
            advice.append(f"  in {source}: rename: {{{pairs}}}")
    remedy = "perhaps:\n" + "\n".join(advice) if advice else "use `rename` and `fields` to make them equal"
    return FieldError("sources with different fields cannot be batched:\n" + "\n".join(lines) + f"\n{remedy}")


def _name_fields(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "no fields"


def _unstackable(field: str, values: Sequence[Any], samples: Sequence[dict[str, Any]]) -> FieldError:
    """Return the error for values that do not stack: which ones, of which samples, and what to do."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for value, sample in zip(values, samples, strict=True):
        groups[describe(value)].append(sample)
    lines = [f"  {kind}: {_list_keys(found)}" for kind, found in list(groups.items())[:6]]
    if len(groups) > len(lines):
        lines.append(f"  and {len(groups) - len(lines)} more")
    remedies = [
        *_remedies_of_kind(field, values, [sample.get(field) for sample in samples]),
        "make the values equal in type and shape in `map`",
        f"or keep a list, `batch: {{collate: {{{field}: list}}}}`",
    ]
    sources = {sample.get("__source__") for sample in samples}
    return FieldError(
        f"the values of `{field}` in a batch of {len(values)} do not stack:\n"
        + "\n".join(lines)
        + f"\n{'; '.join(remedies)}",
        source=sources.pop() if len(sources) == 1 else None,
        field=field,
    )


def _remedies_of_kind(field: str, values: Sequence[Any], wholes: Sequence[Any]) -> list[str]:
    """Return what to do about values that do not stack, first by what they are: audio, images, videos.

    Args:
        field: the field.
        values: what does not stack.
        wholes: the values of the samples, of which `values` may be parts.
    """
    if any(type(whole) is Audio for whole in wholes):
        pad = f"{{pad: {{axis: -1, lengths: {field}_lengths}}}}"
        return [
            "take a part of each recording: add `+clip=5s` to the decoder (shorter ones stay as they are)",
            f"pad them, `batch: {{collate: {{{field}: {pad}}}}}`",
        ]
    if any(value is None for value in values):
        return [f"leave out samples without a value, `where: {field} != none`; give them one in `map`"]
    padding = _describe_padding(field, values)
    remedies = [f"pad them, `batch: {{collate: {{{field}: {padding}}}}}`"] if padding else []
    if any(map(_is_image, values)):
        example = f"`decode: {{{field}: rgb8+random_resized_crop=224}}`"
        return [f"resize images while decoding, as in {example}", *remedies]
    if all(is_array(value) and len(value.shape) == 4 for value in values):
        example = f"`decode: {{{field}: video+frames=8+resize=128+center_crop=112}}`"
        return [f"take as many frames of one size while decoding, as in {example}", *remedies]
    return remedies


def _describe_padding(field: str, values: Sequence[Any]) -> str:
    """Return how `collate` pads values, as it is written; "" if it cannot.

    Whole numbers in a row are tokens, which need a mask, or labels, which losses leave out if they are -100.
    """
    try:
        tensors = as_tensors(values)
    except FieldError:
        return ""
    shapes = [tensor.shape for tensor in tensors]
    axes = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
    if axes not in ([], [0]):
        return f"{{pad: {{axis: {axes if axes[1:] else axes[0]}}}}}"
    if not axes or len(shapes[0]) > 1 or tensors[0].dtype.is_floating_point or tensors[0].dtype == torch.bool:
        return "pad" if axes else ""
    is_label = any(word in field for word in ("label", "target", "class")) or any(
        (row < 0).any() for row in tensors
    )
    is_label &= tensors[0].dtype.is_signed
    return f"{{pad: {{value: {'-100' if is_label else f'0, mask: {field}_mask'}}}}}"


def _is_image(value: Any) -> bool:
    """Whether a value is an image: one of Pillow, or an array with channels, or of bytes."""
    if not is_array(value):
        return is_image(value)
    shape = tuple(value.shape)
    if len(shape) == 3:
        return bool({1, 3, 4} & {shape[0], shape[-1]})
    return len(shape) == 2 and str(value.dtype).endswith("uint8")


def _list_keys(samples: Sequence[dict[str, Any]]) -> str:
    """List samples by source and key."""
    by_source: dict[Any, list[str]] = defaultdict(list)
    for sample in samples:
        by_source[sample.get("__source__", "?")].append(str(sample.get("__key__", "?")))
    return "; ".join(
        f"{source}: {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
        for source, keys in by_source.items()
    )


def _should_stack(value: Any) -> bool:
    """Whether users expect a batch to hold values of this type as a tensor."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return isinstance(value, (bool, int, float, complex, torch.Tensor, np.number, np.bool_)) or (
        type(value).__module__.partition(".")[0] == "PIL"
    )


def _parts(field: str, values: list[Any], samples: Sequence[dict[str, Any]], column: Column) -> Any:
    """Return tuples of one length, such as audio and its sample rate, as a tuple of columns."""
    lengths = {len(value) if isinstance(value, tuple) else None for value in values}
    if any(type(value) is Audio for value in values):
        _check_audio(field, values, samples)
    if len(lengths) > 1:
        raise _unstackable(field, values, samples)
    return tuple(column(field, list(part), samples) for part in zip(*values, strict=True)) or values


def _check_audio(field: str, values: Sequence[Any], samples: Sequence[dict[str, Any]]) -> None:
    """Refuse recordings that do not belong into one tensor: those of several rates or numbers of channels."""
    found = [(value, sample) for value, sample in zip(values, samples, strict=True) if type(value) is Audio]
    rates: dict[str, list[dict[str, Any]]] = defaultdict(list)
    channels: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for value, sample in found:
        rates[f"{value.rate:,} Hz"].append(sample)
        if getattr(value.samples, "ndim", 0) == 2:  # `map` may have changed it
            channels[pluralize(len(value.samples), "channel")].append(sample)
    base = "torch_audio" if isinstance(found[0][0].samples, torch.Tensor) else "audio"
    for code, what, groups, option in (
        ("D231", "sample rates", rates, "rate=16000"),
        ("D232", "numbers of channels", channels, "mono"),
    ):
        if len(groups) > 1:
            lines = [f"  {name}: {_list_keys(groups[name])}" for name in sorted(groups, key=_leading_number)]
            sources = {sample.get("__source__") for sample in samples}
            raise FieldError(
                f"the recordings of `{field}` in a batch of {len(values)} have several {what}:\n"
                + "\n".join(lines)
                + f"\nmake them equal while decoding: add `+{option}` to the decoder, as in `decode: {{{field}: "
                f"{base}+{option}}}`; or keep a list, "
                f"`batch: {{collate: {{{field}: list}}}}`",
                code=code,
                source=sources.pop() if len(sources) == 1 else None,
                field=field,
            )


def _leading_number(text: str) -> int:
    return int(text.partition(" ")[0].replace(",", ""))


def _place_arrays(make: Callable[[list[Any]], Any]) -> Column:
    """Return a column function for arrays; of tuples, such as audio and its sample rate, it changes only the arrays."""

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


def _list_column(field: str, values: list[Any], samples: Sequence[dict[str, Any]]) -> Any:
    return values


def _nest(values: list[Any]) -> Any:
    tensors = as_tensors(values)
    try:
        return torch.nested.nested_tensor(tensors, layout=torch.jagged)
    except RuntimeError as error:
        raise FieldError(
            f"torch cannot make a nested tensor of {', '.join(dict.fromkeys(map(describe, tensors)))}: {error}"
        ) from error
