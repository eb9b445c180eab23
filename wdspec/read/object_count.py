"""Counts the objects that the samples of a shard name (`fetch`), without requesting them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice

from wdspec.base.errors import FieldError, LeftOutError
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.fetching import FetchedField
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
    found: dict[str, list[Reference]] = {each.name: [] for each in objects.fetched}
    samples = 0
    for _, named in iter_objects(parts, shard, most):
        samples += 1
        for field, references in named:
            found[field.name] += references
    return samples, {name: _sum(references) for name, references in found.items()}


def iter_objects(
    parts: SourceParts, shard: ShardUrl, most: int | None = None
) -> Iterator[tuple[str, list[tuple[FetchedField, list[Reference]]]]]:
    """Yield the key of each sample of a shard that the selection of its source keeps, and the objects that it names.

    A sample that names something else, or has no reference, names no object. Arguments and errors are those of
    `count_objects`.
    """
    objects = parts.transform.objects
    assert objects is not None, "the source has `fetch`"
    budget = ErrorBudget(parts.errors, parts.open.source).without_log()
    choose = None if parts.selection is None else parts.build_choice(budget)
    measure = objects.measures()
    opened = parts.open(Piece(shard), on_error=lambda error: budget(error, "shard", url=shard.text))
    with closing(opened):
        for raw in islice(opened, most):
            if choose is not None and not choose(raw):
                continue
            named: list[tuple[FetchedField, list[Reference]]] = []
            with suppress(LeftOutError, FieldError):  # nothing is requested for it
                for field, references, _ in objects.references_of(measure, raw):
                    named.append((field, list(filter(None, references))))
            yield raw["__key__"], named


def _sum(references: list[Reference]) -> NamedObjects:
    spans = [each.span for each in references if each.span is not None]
    is_known = len(spans) == len(references)
    size = sum(stop - start for start, stop in spans) if is_known else None
    return NamedObjects(len(references), len(set(references)), size)
