"""Loaders for frameworks: one saves the state of the whole job, one starts from the beginning each time.

`forward_inputs` selects what a model takes of a batch, and `real_rows` leaves out the padding of a pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from wdspec.base.errors import UsageError, warn_user
from wdspec.read.padding import Padded
from wdspec.run.loader import Loader
from wdspec.run.ranks import gather_state
from wdspec.run.state import State
from wdspec.spec.language.values import MASK
from wdspec.spec.problems import list_names


class WholeJob:
    """A loader whose state covers all ranks, for frameworks where rank 0 saves the state and all ranks load it.

    With Accelerate: ``accelerator.register_for_checkpointing(WholeJob(loader))``.

    Args:
        loader: the loader of this rank.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> State:
        """Return the merged state of all ranks. This is a collective: call it on every rank, after the same batch."""
        return gather_state(self.loader)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load this rank's part of a merged state, regardless of how many ranks saved it."""
        self.loader.load_state_dict(state)


class FromStart:
    """A loader for evaluation: every iteration yields the same batches, even if the previous one was stopped early.

    Args:
        loader: the loader of this rank, before its first batch.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._start = loader.state_dict()

    def __iter__(self) -> Iterator[Any]:
        self.loader.load_state_dict(self._start)
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)


LABELS = ("labels", "label", "label_ids")
"""The fields that models of transformers take as labels."""


class RealRows:
    """Batches without the copies that fill the batches of a pass; see `real_rows`.

    Args:
        batches: dicts, such as those of a loader.
    """

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return map(real_rows, self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def real_rows(batch: Any) -> Any:
    """Return a batch without its padding: the samples for which `__mask__` is false.

    A batch of padding alone keeps one row, as every rank must take part in each step. Its `__mask__` stays false, and
    its integer labels are -100, which the losses of transformers ignore.

    Args:
        batch: field -> value. Packed rows, batches without padding, and anything but a dict are returned as they are.
    """
    mask = batch.get(MASK) if isinstance(batch, Mapping) else None
    if not isinstance(mask, torch.Tensor) or mask.ndim != 1 or bool(mask.all()):
        return batch
    real: list[int] = mask.nonzero()[:, 0].tolist()
    kept = {name: _take_rows(value, real or [0], len(mask)) for name, value in batch.items()}
    for name in () if real else LABELS:
        if _is_integer(kept.get(name)):
            kept[name] = torch.full_like(kept[name], -100)
    return kept


def _take_rows(value: Any, kept: list[int], rows: int) -> Any:
    """Some rows of a value of a batch, or the value itself if its first axis is not the batch."""
    if isinstance(value, torch.Tensor) and value.is_nested:
        parts = value.unbind()
        return torch.nested.nested_tensor([parts[row] for row in kept], layout=value.layout)
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value[kept] if value.ndim and value.shape[0] == rows else value
    if isinstance(value, list):
        return [value[row] for row in kept] if len(value) == rows else value
    if isinstance(value, tuple):
        parts = tuple(_take_rows(part, kept, rows) for part in value)
        return type(value)(*parts) if hasattr(value, "_fields") else parts
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64


def forward_inputs(model: Any, batch: Mapping[str, Any], also: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a batch that the `forward` of a model takes, by the names of its parameters.

    Fields such as `__key__` stay in the batch, and so do the samples of a pass that are padding (see `real_rows`).
    Use it as ``model(**forward_inputs(model, batch))``. A `forward` whose only parameters are ``*args`` and
    ``**kwargs`` gets all other fields.

    Args:
        model: a module, also one that `DistributedDataParallel` or peft wraps.
        batch: field -> value.
        also: further fields to keep.

    Raises:
        UsageError: it takes none of the fields, or one that is `Padded`, whose mask would be lost, or labels or token
            ids that are text.
    """
    batch = real_rows(batch)
    while hasattr(model, "module") or hasattr(model, "get_base_model"):
        model = model.get_base_model() if hasattr(model, "get_base_model") else model.module
    parameters = inspect.signature(model.forward).parameters.values()
    names = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    fields = [name for name in batch if not name.startswith("__")]
    taken = [name for name in fields if name in names or name in also or not names]
    if not taken:
        raise UsageError(
            f"`{type(model).__name__}.forward` takes {list_names(names, 6)}, but the batch has "
            f"{list_names(fields, 6)}; use these names in the spec, such as `rename: {{input_ids: ids}}`"
        )
    for name in taken:
        if isinstance(batch[name], Padded):
            raise UsageError(
                f"`{name}` is padded, and its mask would be lost; name a field for it, `batch: {{collate: {{{name}: "
                "{pad: {mask: attention_mask}}}}`: padded fields are then plain tensors"
            )
        _refuse_text(name, batch[name])
    _warn_of_padding(model, batch)
    return {name: batch[name] for name in taken}


def _refuse_text(name: str, value: Any) -> None:
    """Raise a UsageError if labels or token ids are text."""
    is_text = isinstance(value, list) and isinstance(next(iter(value), None), (str, bytes))
    if is_text and (name in LABELS or name == "input_ids"):
        step, file = ("tokenize", "tokenizer.json") if name == "input_ids" else ("label", "names.txt")
        raise UsageError(
            f"`{name}` is text, such as {value[0][:40]!r}, but a model takes numbers; give the text another name with "
            f"`rename`, such as `text`, and make numbers of it: `make: {{{name}: {{{step}: text, file: {file}}}}}`"
        )


def _warn_of_padding(model: Any, batch: Mapping[str, Any]) -> None:
    """Warn if a model trains on a row of padding, because there are no labels that can be ignored."""
    mask = batch.get(MASK)
    if not getattr(model, "training", False) or not isinstance(mask, torch.Tensor) or bool(mask.any()):
        return
    if not any(_is_integer(batch.get(name)) for name in LABELS):
        warn_user(
            "a batch of this rank has only padding, and no integer `labels` that a loss ignores, so a copy of a sample "
            "is trained; use `epoch: {pass: drop, reshuffle: true}`, or more samples than a global batch has"
        )
