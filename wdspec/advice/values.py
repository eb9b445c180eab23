"""Values of some samples of a source: those that rules compare with what the spec says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from wdspec.base.errors import WdspecError
from wdspec.fields.measures import Measures
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.shards.shards import Shards
from wdspec.spec.language.decoder_options import option_values
from wdspec.spec.language.expressions import MISSING, Path, describe_path, find_thresholds, parse_expression
from wdspec.spec.rules.fields import field_names, files_of
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import spread

MOST_SAMPLES = 1_000
"""Samples of a source that are read."""
MOST_SHARDS = 4
"""Shards that these are in."""

Values = Mapping[str, Sequence[Any]]
"""The values of samples, by path: `json.score`. A sample without the value is left out."""


def read_values(spec: Spec, shards: Shards) -> dict[str, Values]:
    """Read the values of local sources that rules look at, by name of the source; runs no user functions."""
    if spec.functions["decode"]:
        return {}
    found = {}
    for source in spec.sources:
        paths = [] if source.name not in shards.local else list(dict.fromkeys(_list_paths(spec, source)))
        if paths and shards.lists.get(source.name):
            with suppress(WdspecError):  # W502 reports it
                found[source.name] = _read(SourceParts.of(spec, source, shards), shards, source, paths)
    return found


def _read(parts: SourceParts, shards: Shards, source: Source, paths: Sequence[Path]) -> Values:
    fields = parts.transform.fields
    fields = fields.with_naming(fields.naming.of_selection) if fields.naming.asides else fields
    measures = Measures(fields, paths, optional=paths, constants=source.tags)
    found: dict[str, list[Any]] = {describe_path(path): [] for path in paths}
    urls = shards.lists[source.name]
    places = spread(len(urls), MOST_SHARDS)
    for place in places:
        with closing(parts.open(Piece(urls[place]), on_error=lambda error: None)) as samples:
            for raw in islice(samples, MOST_SAMPLES // len(places)):
                for values, value in zip(found.values(), measures(raw) or (), strict=False):
                    if value is not MISSING:
                        values.append(value)
    return found


def _list_paths(spec: Spec, source: Source) -> Iterator[Path]:
    """What rules look at: values that `where` compares with numbers, those of `subset` and `group_by`, and sizes."""
    if source.where is not None:
        yield from (each.path for each in find_thresholds(source.where, spec.costs))
    group_by = None if spec.batch is None else spec.batch.group_by
    for text in (None if source.subset is None else source.subset.of, group_by):
        paths = () if text is None else parse_expression(text, spec.costs).paths
        if len(paths) == 1 and describe_path(paths[0]) == text:
            yield paths[0]
    for field, *_ in resized_fields(source):
        yield from ((field, "width"), (field, "height"))


def resized_fields(source: Source) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """The fields that are resized to a height and a width: (field, decoder, (height, width))."""
    for field in field_names(source) or ():
        for _, decoder in files_of(source, field):
            with suppress(ValueError):
                sides = None if decoder is None else option_values(decoder).get("resize")
                if decoder is not None and isinstance(sides, tuple):
                    yield field, decoder, sides
