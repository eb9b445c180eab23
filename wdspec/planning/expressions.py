"""What the expressions of a spec read of a source, as far as `rename`, `tags`, `decode` and `map` decide it.

A run whose expressions read other values reads other samples, so these keys affect the order where an expression reads
a field that they concern. Fields that are read as they are in the shard are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from wdspec.spec.language.decoders import choose_decoder, is_in_header
from wdspec.spec.language.effects import FOR_DIGEST, plain_value
from wdspec.spec.language.expressions import Path, parse_expression
from wdspec.spec.language.fetching import measured_objects
from wdspec.spec.language.making import MADE_FILES, behind
from wdspec.spec.language.samples import Call, functions_of
from wdspec.spec.spec import Source, Spec


def describe_selection(source: Source, costs: Mapping[str, str]) -> dict[str, Any]:
    """Describe what `where`, `subset`, `keys` and `exclude` read, by field, as plain JSON values.

    Args:
        source: the source.
        costs: the named expressions of the spec.
    """
    keys_of = None if source.only_keys is source.exclude is None else source.keys_of
    subset_of = None if source.subset is None else source.subset.of
    return _describe(source, (source.where, keys_of, subset_of), costs)


def describe_costs(source: Source, spec: Spec, files: Mapping[str, str]) -> dict[str, Any]:
    """Describe what the expressions of `batch` read of a source, by field, as plain JSON values.

    Args:
        source: the source.
        spec: the spec.
        files: digests of what is in the files of `make`.
    """
    assert spec.batch is not None, "windows are planned by the keys of `batch`"
    described = _describe(source, spec.batch.expressions, spec.costs)
    for name in behind(source.make, described):
        described[name] = described.get(name, {}) | _files_of([name], files)
    if spec.batch.is_by_function and (read := _files_of(source.make, files)):
        described[str(spec.batch.cost)] = read
    for name in sorted(spec.fields_after_map(source)):
        if calls := functions_of([name], (*source.map, *spec.map)):
            entry: dict[str, Any] = {"map": [_describe_call(call) for call in calls]}
            if any(call.field is None for call in calls):  # they may read all fields
                others = source.model_dump(
                    mode="json", include={"rename", "decode", "tags", "make"}, context=FOR_DIGEST
                )
                entry |= {key: value for key, value in others.items() if value} | _files_of(
                    source.make, files
                )
            elif decoders := _decoders_of(source, (name,)):
                entry["decode"] = decoders
            described[name] = described.get(name, {}) | entry
    return dict(sorted(described.items()))


def _describe_call(call: Call) -> dict[str, Any]:
    """Describe a function of `map`, without `sets`, which only says what is measured after it."""
    return call.model_dump(mode="json", by_alias=True, context=FOR_DIGEST)


def _describe(source: Source, texts: Iterable[str | None], costs: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    paths = {path: None for text in texts if text for path in parse_expression(text, costs).paths}
    for path in paths:
        name = str(path[0])
        entry = found.setdefault(name, {})
        if name in source.tags:
            entry["tag"] = json.loads(json.dumps(source.tags[name], default=str))
            continue
        for made in sorted(behind(source.make, [name])):
            entry.setdefault("make", {})[made] = plain_value(source.make[made])
            for origin in source.make[made].origins:
                _describe_file(source, origin, entry)
        _describe_file(source, path, entry)
    return {name: entry for name, entry in sorted(found.items()) if entry}


def _describe_file(source: Source, path: Path, entry: dict[str, Any]) -> None:
    """Add to an entry how `rename` and `decode` make a value of a file."""
    if renames := _renames_of(source, str(path[0])):
        entry["rename"] = entry.get("rename", {}) | renames
    if decoders := _decoders_of(source, path):
        entry["decode"] = entry.get("decode", {}) | decoders
    for name in measured_objects(source.fetch, source.rename, [path]).values():
        entry["fetch"] = {name: plain_value(source.fetch[name])}


def made_for_order(source: Source, costs: Mapping[str, str]) -> frozenset[str]:
    """The entries of `make` on which it depends which samples there are: those that the expressions read which select
    samples, and those that leave some out."""
    return behind(source.make, source.selecting_fields(costs)) | made_leaving_out(source)


def made_leaving_out(source: Source) -> frozenset[str]:
    """The entries of `make` that may leave out samples because of what is in them, and those behind these."""
    return behind(source.make, [name for name, recipe in source.make.items() if recipe.leaving_out])


def _files_of(names: Iterable[str], files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The digests of the files of some entries of `make`, under `files`; nothing without files."""
    found = {key: files[key] for name in sorted(names) if (key := f"{MADE_FILES}{name}") in files}
    return {"files": found} if found else {}


def _renames_of(source: Source, name: str) -> dict[str, list[str]]:
    """The entries of `rename` that make a field of this name, or use one up."""
    return {
        new: list(olds)
        for new, olds in source.rename.items()
        if new == name or name.lower() in (old.lower() for old in olds)
    }


def _decoders_of(source: Source, path: Path) -> dict[str, str | None]:
    """The decoders with which the value at a path is read, by suffix, where they are not those of the suffixes."""
    if source.decode is None:
        return {}
    name = str(path[0])
    files = {*source.rename.get(name, (name,))}
    for entry in source.extensions or ():  # the alternatives of a field
        spellings = entry.split(";")
        files |= {*spellings} if files & {*spellings} else set()
    files |= {old for join in source.join for new, old in join.rename.items() if new in files}
    found = {}
    for suffix in sorted(file.lower() for file in files):
        chosen = choose_decoder(source.decode.names, source.decode.fields, name, suffix)
        if not is_in_header(suffix, path[1:]) and chosen != choose_decoder((), {}, name, suffix):
            found[suffix] = chosen
    return found
