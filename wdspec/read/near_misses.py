"""Why a selection keeps no sample, in words: what its lists and comparisons would match in the first samples."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

from wdspec.base.errors import WdspecError
from wdspec.fields.measures import Measures
from wdspec.read.selection import Selection
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts
from wdspec.shards.key_lists import show_entry
from wdspec.spec.language.expressions import (
    Comparison,
    Path,
    describe_path,
    find_comparisons,
    is_writable,
)
from wdspec.spec.problems import list_names
from wdspec.urls.urls import ShardUrl

MOST_SAMPLES = 200
"""Samples to look at."""
MOST_VALUES = 8
"""Different values of a comparison that are shown, at most."""
MOST_DEPTH = 3
"""How far to look into values that contain others."""
WRITE = "write `where: "
_AFTER = frozenset({"select", "overlong", "decode", "map"})
"""Causes that leave out samples which `keys` and `where` have kept."""
_TEXTS = frozenset({"txt", "cls", "text", "id"})
"""Files whose whole text may be what a list names."""


def explain_nothing(parts: SourceParts, shard: ShardUrl, causes: Collection[str]) -> str:
    """What to change if nothing is left of a source; empty if that is not known.

    Args:
        parts: the source.
        shard: one of its shards, whose first samples are looked at.
        causes: the keys of the spec that left out samples, and the causes of errors that were skipped.
    """
    selection = parts.selection
    if selection is None or not _AFTER.isdisjoint(causes):
        return ""
    try:
        if "keys" in causes and selection.keys is not None:
            return _explain_keys(parts, shard, selection)
        if "where" in causes and selection.where is not None:
            return _explain_where(parts, shard, selection)
    except (WdspecError, ValueError, RecursionError):  # this explains another error
        pass
    return ""


def _explain_keys(parts: SourceParts, shard: ShardUrl, selection: Selection) -> str:
    keys = selection.keys
    assert keys is not None, "the selection has keys"
    key = ""
    for raw in _first_samples(parts, shard):
        key = key or str(raw["__key__"])
        for path, value in _values_of(raw):
            if value in keys and not selection.keys_of:
                return (
                    f"`keys` has no key of a sample, such as {key!r:.80}, but {value!r:.80}, which is a value in "
                    f"samples: add `keys_of: {describe_path(path)}`"
                )
    looked_up = "keys of samples"
    if selection.keys_of:
        looked_up = f"values of `{selection.keys_of}`"
        paths = [each.path for each in find_comparisons(f"{selection.keys_of} == ''", {})]
        key = next((str(value) for values in _read_values(parts, shard, paths) for value in values), "")
    if not key:
        return ""
    entry = show_entry(min(keys), key) if isinstance(keys, Collection) and keys else "others"
    return f"`keys` has keys such as {entry}, but the {looked_up} look like {key!r:.80}"


def _explain_where(parts: SourceParts, shard: ShardUrl, selection: Selection) -> str:
    where, named = str(selection.where), dict(selection.costs)
    comparisons = list(find_comparisons(where, named))
    seen = _read_values(parts, shard, [each.path for each in comparisons])
    explained = [
        _explain_comparison(comparison, values, where)
        for comparison, values in zip(comparisons, seen, strict=True)
        if values and not any(value in values for value in comparison.values)
    ]
    return next((each for each in explained if WRITE in each), next(iter(explained), ""))


def _read_values(parts: SourceParts, shard: ShardUrl, paths: list[Path]) -> list[dict[Any, None]]:
    """The different values at some paths in the first samples."""
    fields = parts.transform.fields
    fields = fields.with_naming(fields.naming.of_selection.lenient)
    seen: list[dict[Any, None]] = [{} for _ in paths]
    measure = Measures(fields, paths, paths, dict(parts.transform.tags or {}))
    with closing(parts.open(Piece(shard), on_error=lambda error: None)) as samples:
        for raw in islice(samples, MOST_SAMPLES):
            for values, value in zip(seen, measure(raw) or (), strict=False):
                if isinstance(value, (str, int, float)):
                    values[value] = None
    return seen


def _explain_comparison(comparison: Comparison, values: Mapping[Any, None], where: str) -> str:
    """What a comparison would have to say to match."""
    found = [_find_like(value, values) for value in comparison.values]
    shown = list_names(
        [json.dumps(each, ensure_ascii=False) for each in islice(values, MOST_VALUES)], MOST_VALUES
    )
    has = (
        f"`{describe_path(comparison.path)}` is {shown} in the first samples, never as in `{comparison.text}`"
    )
    if all(each is None for each in found):
        return f"{has}: correct `where`"
    meant = [own if other is None else other for own, other in zip(comparison.values, found, strict=True)]
    changed = where.strip().replace(comparison.text, comparison.write(meant), 1)
    return f"{has}: {WRITE}{changed:.200}`"


def _find_like(value: Any, values: Iterable[Any]) -> Any:
    """The value that differs only by its kind, by letter case or by blanks around it; None for none."""
    plain = str(value).strip().casefold()
    return next((each for each in values if str(each).strip().casefold() == plain), None)


def _first_samples(parts: SourceParts, shard: ShardUrl) -> Iterator[dict[str, Any]]:
    """The first samples of a shard with all their files."""
    opener = parts.open
    with closing(
        opener.samples(Piece(shard), str.lower, lambda error: None, opener.ahead()),
    ) as samples:
        yield from islice(samples, MOST_SAMPLES)


def _values_of(raw: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The texts and integers in a raw sample, as texts, with the path of each."""
    for name, value in raw.items():
        if name.startswith("__"):
            continue
        ending = name.rpartition(".")[2]
        if isinstance(value, bytes) and ending in ("json", "jsn"):
            value = json.loads(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace") if ending in _TEXTS else None
        yield from _values_in((name,), value)


def _values_in(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(value, dict) and len(path) < MOST_DEPTH:
        for name, each in value.items():
            yield from _values_in((*path, name), each)
    elif isinstance(value, (str, int)) and not isinstance(value, bool) and is_writable(path):
        yield path, str(value)
