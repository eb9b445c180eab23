"""Digests of how a spec reads the shards of a source, by which results of `wdspec check` and `wdspec stats` stay valid.

Each digest has the values of all keys on which some steps of reading depend, as these keys declare (`Key`). Keys that
are the default are left out, so a new key does not change the digests of specs that do not use it. Functions count only
by name. Where a source is does not count: a shard is known by its size and its validator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from wdspec.spec.language.effects import described
from wdspec.spec.language.making import MADE_FILES, behind
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
    made = found.pop("make", {})
    found |= {f"{MADE_FILES}{name}": value for name, value in made.items()}
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
    return _digest_each(describe_reading(spec, source, "shard damage"))


def digest_writing(spec: Spec, source: Source, files: Mapping[str, str], code: Mapping[str, str]) -> str:
    """Return digests of all that the samples depend on that `wdspec process` writes, by key, as `digest_shards` does.

    Args:
        spec: the spec.
        source: the source.
        files: as in `describe_reading`.
        code: digests of the code of user functions, by name; only those that the source uses count.
    """
    found = describe_reading(spec, source, "shard choice values", files)
    found.pop("errors.skip", None)
    found["errors"] = source.errors.skip
    found["limit"] = spec.limit
    step = spec.map_batches
    found["map_batches"] = None if step is None else [step.call, step.args, step.batch]
    text = json.dumps(found, default=str)
    used = {f"{_CODE}{name}": digest for name, digest in code.items() if json.dumps(name) in text}
    if not (used or source.scale or source.decode):
        found.pop("spec.seed", None)  # nothing draws random numbers
    return _digest_each(found | used)


def _digest_each(found: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_digest(value)[:8]}" for key, value in sorted(found.items()))


_CODE = "code:"


def changed_keys(before: str, now: str) -> list[str]:
    """Return the keys in which two results of `digest_shards` or `digest_writing` differ, as messages name them."""
    digests = [
        dict(each.rpartition("=")[::2] for each in text.split() if "=" in each) for text in (before, now)
    ]
    keys = sorted(
        key for key in digests[0].keys() | digests[1].keys() if digests[0].get(key) != digests[1].get(key)
    )
    shown = []
    for key in keys:
        if key.startswith(_CODE) and not all(key in each for each in digests):
            continue  # the key that names it has changed, too
        first = key.removeprefix("spec.").partition(".")[0]
        code = f"the code of `{key.removeprefix(_CODE)}`" if key.startswith(_CODE) else ""
        if key.startswith(MADE_FILES):
            code = f"`make: {key.removeprefix(MADE_FILES)}`"
        shown.append(code or _SHOWN.get(key) or _SHOWN.get(first) or f"`{first}`")
    return list(dict.fromkeys(shown))


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
    """Return digests of what a sample of a source costs, by key; empty if neither shares nor a pass need it.

    Fields of `make` count that the cost or a selection reads, and those that may leave samples out.

    Args:
        spec: the spec.
        source: the source.
        files: as in `describe_reading`. Only a pass needs those that are not of `make`.
    """
    batch = spec.batch
    if batch is None or not batch.has_windows:
        return ""
    if not spec.is_pass and not spec.needs_costs:
        return ""
    mapped = spec.fields_after_map(source)
    decodes = batch.is_by_function or source.select is not None or mapped
    steps = f"shard damage choice cost{' packing' if spec.is_pass else ''}{' values' if decodes else ''}"
    found = describe_reading(spec, source, steps, files if spec.is_pass else NO_FILES)
    asked = described(source, "fields") | described(spec, "fields") if source.missing == "skip" else {}
    asked.pop("make", None)  # counted by field
    read = source.make if decodes else behind(source.make, spec.measured_fields)
    counted = {
        name
        for name, recipe in source.make.items()
        if name in read or recipe.leaving_out or source.missing == "skip"
    } | behind(source.make, source.selecting_fields(spec.costs))
    for name in source.make.keys() - counted:
        del found[f"{MADE_FILES}{name}"]
    found |= {"map": sorted(mapped)} if mapped else {}
    found |= {"fields": asked} if asked else {}
    made = {key: files[key] for name in sorted(read) if (key := f"{MADE_FILES}{name}") in files}
    return _digest_each(found) + (f"{_MADE}{_digest(made)}" if made else "")


_MADE = " of-made-files="
"""Before the digest of the files of `make` that a cost reads, at the end of `digest_costing`."""


def split_costing(costing: str) -> tuple[str, str]:
    """Return `digest_costing` without files, which are only read where shards are listed, and the digest of files."""
    without, _, made = costing.partition(_MADE)
    return without, made


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
