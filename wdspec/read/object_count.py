"""Counts the objects that the samples of a shard name (`fetch`), without requesting them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from itertools import islice

from wdspec.base.errors import FieldError, LeftOutError
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.spec.measurements import NamedObjects
from wdspec.storage.objects import Reference
from wdspec.urls.urls import ShardUrl


def count_objects(
    parts: SourceParts, shard: ShardUrl, most: int | None = None
) -> tuple[int, Mapping[str, NamedObjects]]:
    """Read the samples of a shard that the selection of its source keeps, and count the objects that they name.

    Args:
        parts: how to read the source.
        shard: the shard.
        most: of how many samples at most.

    Returns:
        The number of samples; for each entry of `fetch`, its objects.

    Raises:
        WdspecError: the shard cannot be read, or the selection cannot be evaluated.
    """
    objects = parts.transform.objects
    if objects is None:
        return 0, {}
    budget = ErrorBudget(parts.errors, parts.open.source).without_log()
    choose = None if parts.selection is None else parts.build_choice(budget)
    found: dict[str, list[Reference]] = {each.name: [] for each in objects.fetched}
    measure, samples = objects.measures(), 0
    opened = parts.open(Piece(shard), on_error=lambda error: budget(error, "shard", url=shard.text))
    with closing(opened):
        for raw in islice(opened, most):
            if choose is not None and not choose(raw):
                continue
            samples += 1
            with suppress(LeftOutError, FieldError):  # nothing is requested for it
                for field, references, _ in objects.references_of(measure, raw):
                    found[field.name] += filter(None, references)
    return samples, {name: _sum(references) for name, references in found.items()}


def _sum(references: list[Reference]) -> NamedObjects:
    spans = [each.span for each in references if each.span is not None]
    is_known = len(spans) == len(references)
    size = sum(stop - start for start, stop in spans) if is_known else None
    return NamedObjects(len(references), len(set(references)), size)
