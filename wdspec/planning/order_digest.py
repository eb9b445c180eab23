"""What the order of a run depends on, written down so that a change is found and can be named.

Covered: everything that decides which sample comes when. Left out: where bytes come from (rewrite, aistore,
cache), how many at a time (loader), errors, epoch, environments. `decode`, `map` and the like change the
samples but not their order, so a change there is a warning. `rename`, `fields` and `to_tuple` are covered where
`missing: skip` lets them choose the samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from wdspec.planning.finite_pass import Pass
from wdspec.planning.plan import Plan
from wdspec.spec.language.models import Source, Spec
from wdspec.urls.sequence import ShardUrl, UrlSequence

EXPAND_UP_TO = 1 << 16
"""Shard lists up to this length are hashed shard by shard; longer ones by their patterns, in an instant."""


def describe_order(spec: Spec, plan: Plan) -> dict[str, Any]:
    """All that the order depends on, as plain JSON values: names, shares, shards, shuffling, topology."""
    options = {source.name: source for source in spec.sources}
    return {
        **({} if plan.finite is None else {"pass": _finite(plan.finite)}),
        "seed": spec.seed,
        "elastic": {"ranks": plan.topology.ranks, "workers": plan.topology.workers},
        "batch": plan.batching.per_slot if plan.batching.batched else None,
        "mix": plan.draw,
        **_mixing(plan),
        "sources": {
            source.name: {
                "share": str(source.share),
                "shards": digest_shards(source.shards),
                "order": source.order.kind,
                "window": source.windows.size,
                **_reading(options[source.name], spec),
            }
            for source in plan.sources
        },
    }


def describe_samples(spec: Spec) -> str:
    """A digest of what changes the samples but not their order."""
    parts = [
        [source.name, source.decode, source.rename, source.map, source.scale, source.scaleprob, source.tags]
        for source in spec.sources
    ]
    return _hash(repr((parts, spec.map, spec.fields, spec.to_tuple)))


def digest(description: dict[str, Any]) -> str:
    """A short hash of a description."""
    return _hash(json.dumps(description, sort_keys=True))


def digest_shards(shards: Sequence[ShardUrl]) -> str:
    """Number of shards and a hash of their URLs as written."""
    if isinstance(shards, UrlSequence) and len(shards) > EXPAND_UP_TO:
        text = repr([(getattr(run.texts, "pattern", run.texts), run.prefix) for run in shards.parts])
    else:
        text = "\n".join(shard.text for shard in shards)
    return f"{len(shards)}:{_hash(text)}"


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """One line for each difference between two descriptions: the place, what it was, what it is now."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            place = f"{path}.{name}" if path else name
            if name not in new:
                yield f"{place}: removed"
            elif name not in old:
                yield f"{place}: added"
            else:
                yield from differences(old[name], new[name], place)
    elif old != new:
        if path.endswith(".shards"):
            (was, _), (now, _) = str(old).split(":"), str(new).split(":")
            yield f"{path}: " + (
                f"{was} shards, now {now}" if was != now else f"{now} shards, but other ones"
            )
        else:
            yield f"{path}: was {_shown(old)}, now {_shown(new)}"


def _finite(finite: Pass) -> dict[str, Any]:
    return {"samples": finite.samples, "batches": finite.batches, "counts": f"{finite.digest:016x}"}


def _mixing(plan: Plan) -> dict[str, Any]:
    """What `mix` says beside `draw`, where it says something: states of other specs keep their digest."""
    said: dict[str, Any] = {} if plan.unit == "sample" else {"unit": plan.unit}
    if plan.schedule:
        names = [source.name for source in plan.sources]
        said["schedule"] = {
            f"batch {segment.start}": dict(zip(names, map(str, segment.shares), strict=True))
            for segment in plan.schedule
        }
    return said


def _reading(source: Source, spec: Spec) -> dict[str, Any]:
    # What is asked for decides which samples are left out, if that is what happens to those that lack it.
    asked = {
        "rename": {name: list(old) for name, old in source.rename.items()},
        "fields": None if spec.fields is None else list(spec.fields),
        "to_tuple": None if spec.to_tuple is None else list(spec.to_tuple),
    }
    return {
        "extensions": list(source.extensions) if source.extensions is not None else None,
        "missing": source.missing,
        "select": source.select,
        "key": source.key.regex or source.key.kind,
        "interleave": source.interleave,
        **(asked if source.missing == "skip" else {}),
    }


def _shown(value: Any) -> str:
    return json.dumps(value)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
