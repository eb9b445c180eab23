"""Digests of how a spec reads the shards of a source, by which results of `wdspec check` and `wdspec stats` stay valid.

Each digest has the values of all keys on which some steps of reading depend, as these keys declare (`Key`). Keys that
are the default are left out, so a new key does not change the digests of specs that do not use it. Functions count only
by name. Where a source is does not count: a shard is known by its size and its validator. Objects that samples name
(`fetch`) are known by nothing, so where they are counts for their values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Any

from wdspec.spec.language.decoders import draws
from wdspec.spec.language.effects import STEPS, described, plain_value
from wdspec.spec.language.making import MADE_FILES, behind, names_in
from wdspec.spec.language.samples import Decode
from wdspec.spec.spec import Source, Spec, selecting_keys

NO_FILES: Mapping[str, str] = {}
_SHOWN = {"errors.skip": "`errors: {skip: shard}`", "etl": "`aistore: {etl: …}`"}
_FILES = "files."
"""What digests of files are listed under, before the key that names them."""


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
    found: dict[str, Any] = {f"{_FILES}{key}": digest for key, digest in files.items()}
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
    if "spec.seed" in found and not _draws(spec, source):
        del found["spec.seed"]
    if "values" in steps and (places := _places_of_objects(source)):
        found["fetch.places"] = places
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


def _draws(spec: Spec, source: Source) -> bool:
    """Whether a step of a source may draw random numbers. Any function may."""
    decoders = () if source.decode is None else (*source.decode.names, *source.decode.fields.values())
    functions = spec.map or source.map or source.select or spec.map_batches
    return (
        bool(functions or source.scale or (spec.batch and spec.batch.is_by_function))
        or any(":" in name or draws(name) for name in decoders)
        or any(recipe.draws for recipe in source.make.values())
    )


def _places_of_objects(source: Source) -> dict[str, Any]:
    """Where the objects are that samples name, by field. What is in the folder of the spec is relative to it."""
    roots = {name: (each.root or "").removeprefix(f"{source.base}/") for name, each in source.fetch.items()}
    return {name: [roots[name], each.hosts] for name, each in source.fetch.items()}


def _own_values(holder: Source | Spec, step: str) -> dict[str, Any]:
    """The values on which a step depends, without the ETL, which a source inherits in its own way."""
    return {key: value for key, value in described(holder, step).items() if not key.startswith("aistore.")}


def digest_content(spec: Spec, source: Source, files: Mapping[str, str] = NO_FILES) -> str:
    """Return a digest of all that `wdspec check` finds in shards depends on."""
    return _digest(describe_reading(spec, source, "shard choice values cost packing", files))


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
    of_others = (_CODE, _FILES)  # if only one has them, the key that names them has changed, too
    both = digests[0].keys() & digests[1].keys()
    return list(dict.fromkeys(_name(key) for key in keys if key in both or not key.startswith(of_others)))


def _name(key: str) -> str:
    """Return how messages name what is described under a key."""
    if key.startswith(_CODE):
        return f"the code of `{key.removeprefix(_CODE)}`"
    if key.startswith(_FILES):
        return f"a file of {_name(key.removeprefix(_FILES))}"
    if key.startswith(MADE_FILES):
        return f"`make: {key.removeprefix(MADE_FILES)}`"
    first = key.removeprefix("spec.").partition(".")[0]
    return _SHOWN.get(key) or _SHOWN.get(first) or f"`{first}`"


def digest_decoding(spec: Spec, source: Source, files: Mapping[str, str] = NO_FILES) -> str:
    """Return digests of all that the lengths of decoded values depend on, by key, as `digest_shards` does."""
    return _digest_each(describe_reading(spec, source, "shard damage choice values", files))


def digest_keeping(spec: Spec, source: Source, files: Mapping[str, str]) -> str:
    """Return digests of what chooses samples of a source, by key, as `digest_shards` does; empty if nothing does.

    Args:
        spec: the spec.
        source: the source.
        files: as in `describe_reading`.
    """
    return _digest_each(_describe_choice(spec, source, files))


def _describe_choice(spec: Spec, source: Source, files: Mapping[str, str]) -> dict[str, Any]:
    if not (source.copies % 1 or any(getattr(source, key) for key in selecting_keys().values())):
        return {}
    names = source.selecting_fields(spec.costs)
    found = _describe_keeping(spec, source, files)
    if source.decode is not None and not source.lookup:  # any value may be looked up
        origins = [each for made in behind(source.make, names) for each in names_in(source.make[made])]
        found["decode"] = _decoding_of(source, source.decode, (*names, *origins))
    return found


def is_same_selection(keeping: str, spec: Spec, source: Source, files: Mapping[str, str]) -> bool:
    """Return whether a digest is that of what chooses samples of a source; older ones are not by key, or have all
    entries of `decode`."""
    now = _describe_choice(spec, source, files)
    older = (_digest(now), _digest(_describe_keeping(spec, source, files))) if now else ()
    return keeping in (_digest_each(now), *older)


def changed_selection(keeping: str, spec: Spec, source: Source, files: Mapping[str, str] | None) -> list[str]:
    """Return the keys in which what chooses samples differs from a result of `digest_keeping`, as messages name them.

    Args:
        files: as in `describe_reading`; None if they are unknown, and the same.
    """
    now = digest_keeping(spec, source, files or {})
    if files is None:
        keeping = " ".join(each for each in keeping.split() if not each.startswith(_FILES))
    return changed_keys(keeping, now) if "=" in keeping else []


def _describe_keeping(spec: Spec, source: Source, files: Mapping[str, str]) -> dict[str, Any]:
    found = describe_reading(spec, source, "shard damage choice again", files)
    return _with_made(found, source, behind(source.make, source.selecting_fields(spec.costs)))


def _decoding_of(source: Source, decode: Decode, names: Iterable[str]) -> dict[str, Any] | None:
    """Describe `decode` without what is surely for other fields: entries that share no part of a name with these."""
    groups: list[Iterable[str]] = [(new, *olds) for new, olds in source.rename.items()]
    groups += [entry.split(";") for entry in source.extensions or ()]
    groups += [pair for join in source.join for pair in join.rename.items()]
    spellings = {name.lower() for name in names}
    for group in groups:
        spellings |= lowered if (lowered := {each.lower() for each in group}) & spellings else set()
    parts = {part for each in spellings for part in each.split(".")}
    read = {field: name for field, name in decode.fields.items() if parts & {*field.lower().split(".")}}
    return plain_value(Decode(names=decode.names, fields=read)) if decode.names or read else None


def _with_made(found: Mapping[str, Any], source: Source, names: Collection[str]) -> dict[str, Any]:
    """Leave out the entries of `make`, and their files, except those that are named."""
    others = {f"{MADE_FILES}{name}" for name in source.make.keys() - set(names)}
    return {key: value for key, value in found.items() if key.removeprefix(_FILES) not in others}


def digest_requesting(spec: Spec, source: Source, files: Mapping[str, str]) -> str:
    """Return a digest of what decides which parts of tables, and which objects (`fetch`), a run requests.

    Args:
        spec: the spec.
        source: the source.
        files: as in `describe_reading`.
    """
    asked = [described(source, "fields"), described(spec, "fields")]
    return _digest([describe_reading(spec, source, " ".join(sorted(STEPS)), files), asked])


def digest_costing(spec: Spec, source: Source, files: Mapping[str, str]) -> str:
    """Return digests of what a sample of a source costs, by key; empty if neither shares nor a pass need it.

    Fields of `make` count that the cost or a selection reads, and those that may leave samples out.

    Args:
        spec: the spec.
        source: the source.
        files: as in `describe_reading`.
    """
    batch = spec.batch
    if batch is None or not batch.has_windows:
        return ""
    if not spec.is_pass and not spec.needs_costs:
        return ""
    mapped = spec.fields_after_map(source)
    decodes = batch.is_by_function or source.select is not None or mapped
    steps = f"shard damage choice cost{' packing' if spec.is_pass else ''}{' values' if decodes else ''}"
    found = describe_reading(spec, source, steps)
    asked = described(source, "fields") | described(spec, "fields") if source.missing == "skip" else {}
    asked.pop("make", None)  # counted by field
    read = source.make if decodes else behind(source.make, spec.measured_fields)
    counted = {
        name
        for name, recipe in source.make.items()
        if name in read or recipe.leaving_out or source.missing == "skip"
    } | behind(source.make, source.selecting_fields(spec.costs))
    found = _with_made(found, source, counted)
    found |= {"map": sorted(mapped)} if mapped else {}
    if spec.measured_objects(source) and not decodes:
        found |= {"fetch": plain_value(source.fetch), "fetch.places": _places_of_objects(source)}
    found |= {"fields": asked} if asked else {}
    made = {f"{MADE_FILES}{name}" for name in ({*read, *counted} if spec.is_pass else read)}
    used = {key: files[key] for key in sorted(files) if key in made or not key.startswith(MADE_FILES)}
    return _digest_each(found) + (f"{_OF_FILES}{_digest(used)}" if used else "")


_OF_FILES = " of-made-files="
"""Before the digest of the files that a cost may depend on, at the end of `digest_costing`."""


def split_costing(costing: str) -> tuple[str, str]:
    """Return `digest_costing` without files, which are only read where shards are listed, and the digest of files."""
    without, _, made = costing.partition(_OF_FILES)
    return without, made


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
