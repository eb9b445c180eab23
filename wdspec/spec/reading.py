"""Digests of how a spec reads the shards of a source, by which results of `wdspec check` and `wdspec stats` stay valid.

Each digest has the values of all keys on which some steps of reading depend, as these keys declare (`Key`). Keys that
are the default are left out, so a new key does not change the digests of specs that do not use it. Functions count only
by name. Where a source is does not count: a shard is known by its size and its validator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from wdspec.spec.language.effects import described
from wdspec.spec.language.options import MixOptions
from wdspec.spec.spec import Source, Spec

NO_FILES: Mapping[str, str] = {}
_SHOWN = {"errors.skip": "`errors: {skip: shard}`", "etl": "`aistore: {etl: …}`"}


def describe_reading(
    spec: Spec, source: Source, steps: str, files: Mapping[str, str] = NO_FILES
) -> dict[str, Any]:
    """Return all that some steps of reading a source depend on, as plain JSON values.

    Args:
        spec: the spec.
        source: the source.
        steps: some words of `STEPS`.
        files: digests of the files of keys that the source names, and of the rows of its tables.
    """
    etl = spec.etl_of(source)
    found: dict[str, Any] = {"files": dict(files)} if files else {}
    for step in steps.split():
        found |= {f"spec.{key}": value for key, value in _own_values(spec, step).items()}
        found |= _own_values(source, step)
        found |= {} if etl is None else {f"etl.{key}": value for key, value in described(etl, step).items()}
    found.pop("spec.errors.skip", None)  # merged into those of the source
    if not source.errors.skips("shard"):
        found.pop("errors.skip", None)
    elif "errors.skip" in found:
        found["errors.skip"] = True
    if "repeat" in found:
        found["repeat"] = str(source.copies % 1)
    if "spec.costs" in found:
        texts = source.selecting_texts + (spec.batch.expressions if spec.batch and "cost" in steps else ())
        found["spec.costs"] = _used_expressions(spec.costs, texts)
    return {key: value for key, value in found.items() if key != "spec.costs" or value}


def _used_expressions(costs: Mapping[str, str], texts: Iterable[str]) -> dict[str, str]:
    """The named expressions that some expressions use, also through others."""
    found: dict[str, str] = {}
    pending = list(texts)
    while pending:
        for name in re.findall(r"\w+", pending.pop()):
            if name in costs and name not in found:
                found[name] = costs[name]
                pending.append(costs[name])
    return found


def _own_values(holder: Source | Spec, step: str) -> dict[str, Any]:
    """The values on which a step depends, without the ETL, which a source inherits in its own way."""
    return {key: value for key, value in described(holder, step).items() if not key.startswith("aistore.")}


def digest_content(spec: Spec, source: Source, files: Mapping[str, str] = NO_FILES) -> str:
    """Return a digest of all that `wdspec check` finds in shards depends on."""
    return _digest(describe_reading(spec, source, "shard choice values", files))


def digest_shards(spec: Spec, source: Source) -> str:
    """Return digests of the keys that decide which samples a shard of a source has, by key: `key.kind=1a2b… …`."""
    found = describe_reading(spec, source, "shard damage")
    return " ".join(f"{key}={_digest(value)[:8]}" for key, value in sorted(found.items()))


def changed_keys(before: str, now: str) -> list[str]:
    """Return the keys in which two results of `digest_shards` differ, as messages name them."""
    keys = sorted(each.partition("=")[0] for each in {*before.split()} ^ {*now.split()})
    firsts = ((key, key.partition(".")[0]) for key in keys)
    return list(dict.fromkeys(_SHOWN.get(key) or _SHOWN.get(first) or f"`{first}`" for key, first in firsts))


def digest_decoding(spec: Spec, source: Source, files: Mapping[str, str] = NO_FILES) -> str:
    """Return a digest of all that the lengths of decoded values depend on."""
    return _digest(describe_reading(spec, source, "shard damage choice values", files))


def digest_keeping(spec: Spec, source: Source, files: Mapping[str, str]) -> str:
    """Return a digest of what chooses samples of a source; empty if nothing does.

    Args:
        spec: the spec.
        source: the source.
        files: as in `describe_reading`.
    """
    if not (source.copies % 1 or source.where or source.subset or source.only_keys or source.exclude):
        return ""
    return _digest(describe_reading(spec, source, "shard damage choice again", files))


def digest_costing(spec: Spec, source: Source, files: Mapping[str, str]) -> str:
    """Return a digest of what a sample of a source costs; empty if neither shares nor a pass need it.

    Args:
        spec: the spec.
        source: the source.
        files: as in `describe_reading`. Only a pass needs them.
    """
    batch = spec.batch
    if batch is None or not batch.has_windows:
        return ""
    if not spec.is_pass and not any(mix.shares_in == "cost" for mix in _mixes_of(spec)):
        return ""
    mapped = spec.fields_after_map(source)
    decodes = batch.is_by_function or source.select is not None or mapped
    steps = f"shard damage choice cost{' packing' if spec.is_pass else ''}{' values' if decodes else ''}"
    found = describe_reading(spec, source, steps, files if spec.is_pass else NO_FILES)
    asked = described(source, "fields") | described(spec, "fields") if source.missing == "skip" else {}
    return _digest([found, sorted(mapped), asked])


def _mixes_of(spec: Spec) -> Iterator[MixOptions]:
    yield spec.mix
    yield from (inner.mix for source in spec.dataset for inner in source.mixes)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
