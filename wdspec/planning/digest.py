"""A description of everything that the order of a run depends on, so that a resume can detect and report changes.

It covers every key whose definition declares that it affects the order (`spec.language.effects`). Many keys are
described by their effect on the plan (`AffectsPlan`). The others are included by name if their value is not the
default, so a new key does not change the digests of specs that do not use it. Keys that affect only
the samples (`decode`, `map`, …) have a separate digest: if it changes, wdspec warns. Where an expression reads a field
that `rename`, `tags` or `decode` concern, these are included for this field (`expressions.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from wdspec.planning.expressions import describe_costs, describe_selection
from wdspec.planning.passes import Pass
from wdspec.planning.plan import Plan
from wdspec.spec.language.effects import declared_keys, described
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl, UrlSequence

EXPAND_UP_TO = 1 << 16
"""Shard lists up to this length are hashed shard by shard, longer ones by their patterns, which is much faster."""

_NAMED = {
    "keys": "its files have other keys",
    "exclude": "its files have other keys",
    "join": "it has other shards",
    "lookup": "a table has other rows",
}
"""What changed, if a digest of files that a key of a source names has changed."""

NO_FILES: Mapping[str, Mapping[str, str]] = {}


def describe_order(
    spec: Spec, plan: Plan, files: Mapping[str, Mapping[str, str]] = NO_FILES
) -> dict[str, Any]:
    """Describe everything that the order depends on as plain JSON values; `files` has digests, as `Shards.files`."""
    options = {source.name: source for source in spec.sources}
    skipping = [source for source in options.values() if source.missing == "skip"]
    asked = {each.name: described(each, "fields") | described(spec, "fields") for each in skipping}
    reads = {
        source.name: {"reads": read}
        for source in options.values()
        if (source.where or source.subset or source.keys_of)
        and (read := describe_selection(source, spec.costs))
    }
    return {
        **({} if plan.finite is None else {"pass": _finite(plan.finite)}),
        "seed": spec.seed,
        "elastic": {"ranks": plan.topology.ranks, "workers": plan.topology.workers},
        "batch": plan.batching.per_slot if plan.batching.batched else None,
        **({"batch.size": spec.batch.size} if spec.batch and plan.batching.windowed else {}),
        "mix": plan.draw,
        **_mixing(plan),
        **described(spec, "order"),
        **_mixes(spec),
        **(_costs_read(spec, plan) if plan.batching.windowed else {}),
        "sources": {
            source.name: {
                "share": str(source.share),
                "shards": digest_shards(source.shards),
                "order": source.order.kind,
                "shuffle": source.delays.size,
                "interleave": source.interleave,
                **described(options[source.name], "order", only_whole=True),
                "key": options[source.name].key.regex or options[source.name].key.kind,
                **asked.get(source.name, {}),
                **described(options[source.name], "order"),  # after those above, as in older states
                **reads.get(source.name, {}),
                **({"files": dict(files[source.name])} if source.name in files else {}),
            }
            for source in plan.sources
        },
    }


def describe_samples(spec: Spec) -> str:
    """Return a digest of everything that changes the samples but not their order."""
    sources = spec.sources_by_name
    holders: list[tuple[str, Spec | Source]] = [("", spec), *((source.name, source) for source in sources)]
    found: dict[str, dict[str, Any]] = {}
    for name, holder in holders:
        values = described(holder, "samples").items()
        found[name] = {key: value for key, value in values if not key.startswith("aistore.etl.")}
    for source in sources:  # a source inherits an ETL in its own way
        if (etl := spec.etl_of(source)) is not None:
            found[source.name] |= described(etl, "samples")
    # Sorted, because the order of the keys of a map has no effect.
    return _hash(json.dumps(found, sort_keys=True))


def digest(description: dict[str, Any]) -> str:
    """Return a short hash of a description."""
    return _hash(json.dumps(description, sort_keys=True))


def digest_windows(description: dict[str, Any]) -> str:
    """Return a short hash of how batches are planned from windows. If it changes, no run can resume in a window."""
    return digest({key: value for key, value in description.items() if key.startswith(("batch", "costs"))})


def digest_shards(shards: Sequence[ShardUrl]) -> str:
    """Return the number of shards and a hash of their URLs as written, with a colon."""
    count = len(shards)
    if isinstance(shards, UrlSequence) and count > EXPAND_UP_TO:
        text = repr([(getattr(run.texts, "pattern", run.texts), run.prefix) for run in shards.parts])
    else:
        text = "\n".join(shards.texts() if isinstance(shards, UrlSequence) else (s.text for s in shards))
    return f"{count}:{_hash(text)}"


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield one line for each difference between two descriptions: the place, the old value and the new value.

    Parts of a source that are written in two ways, such as `50%` and `[0%, 50%]`, are the same.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            place = f"{path}.{name}" if path else name
            if name not in new:
                yield f"{place}: removed"
            elif name not in old:
                yield f"{place}: added"
            else:
                yield from differences(old[name], new[name], place)
    elif old != new and not (path.endswith(".subset.part") and [*map(Decimal, old)] == [*map(Decimal, new)]):
        if path.endswith(".shards"):
            was, now = str(old).partition(":")[0], str(new).partition(":")[0]
            yield f"{path}: " + (
                f"was {was} shards, now {now}" if was != now else f"still {now} shards, but different ones"
            )
        elif path.rpartition(".")[0].endswith(".files"):
            yield f"{path}: {_NAMED[path.rpartition('.')[2]]}"
        else:
            yield f"{path}: was {json.dumps(old)}, now {json.dumps(new)}"


@cache
def _not_read() -> frozenset[str]:
    """The entries of a source that affect how raw samples are drawn, held or dropped, but not the order of reading."""
    dropping = (
        key.name
        for model in (Source, Spec)
        for key in declared_keys(model)
        if (key.drops and not key.drops.when_read) or (key.affects and key.affects.order_if_skipping)
    )
    return frozenset({"share", "shuffle", "interleave", *dropping})


def reads_alike(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether every slot reads the raw samples of a source in the same order under both descriptions."""
    before, now = (
        {key: value for key, value in described["sources"].get(name, {}).items() if key not in _not_read()}
        for described in (old, new)
    )
    return old["seed"] == new["seed"] and not any(differences(before, now, name))


def drops_alike(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the same samples of a source are left out under both descriptions, but for those of `select`."""
    keys = _not_read() - {"share", "shuffle", "interleave", "select"}
    before, now = (
        {key: value for key, value in described["sources"].get(name, {}).items() if key in keys}
        for described in (old, new)
    )
    return not any(differences(before, now, name))


def with_reads(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return an older description with what expressions read, of which states of earlier versions say nothing.

    It is taken from the description of the run that resumes, whose `rename`, `tags` and `decode` must be the same.
    What is measured after `map` is left out, as earlier versions measured before it.
    """
    sources = {
        name: ({"reads": new["sources"][name]["reads"]} if "reads" in new["sources"].get(name, {}) else {})
        | of
        for name, of in old["sources"].items()
    }
    read = {
        name: before
        for name, fields in new.get("costs.read", {}).items()
        if (before := {field: entry for field, entry in fields.items() if "map" not in entry})
    }
    return {**({"costs.read": read} if read else {}), **old, "sources": sources}


def _finite(finite: Pass) -> dict[str, Any]:
    return {"samples": finite.samples, "batches": finite.batches, "counts": f"{finite.digest:016x}"}


def _mixing(plan: Plan) -> dict[str, Any]:
    """The effects of `mix` besides `draw`. Defaults are left out, so that older states keep their digests."""
    said: dict[str, Any] = {} if plan.unit == "sample" else {"unit": plan.unit}
    if plan.schedule:
        names = [source.name for source in plan.sources]
        said["schedule"] = {
            f"batch {segment.start}": dict(zip(names, map(str, segment.shares), strict=True))
            for segment in plan.schedule
        }
    return said


def _costs_read(spec: Spec, plan: Plan) -> dict[str, Any]:
    """The effect of `rename`, `tags`, `decode` and `map` on what the expressions of `batch` read, by source."""
    active = {source.name for source in plan.sources}
    read = {source.name: describe_costs(source, spec) for source in spec.sources if source.name in active}
    said = {name: each for name, each in read.items() if each}
    return {"costs.read": said} if said else {}


def _mixes(spec: Spec) -> dict[str, Any]:
    """The keys of nested mixes that affect the order, besides those that only affect the shares of their sources."""
    stated = {mix.name: described(mix, "order", whole=False) for each in spec.dataset for mix in each.mixes}
    said = {name: values for name, values in stated.items() if values}
    return {"mixes": said} if said else {}


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
