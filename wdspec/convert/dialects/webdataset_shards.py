"""webdataset's multi-shard YAML: `prefix`, `buckets`, `datasets`.

It came in two generations that use one word for opposite things: in the older, `perepoch` shards are taken without
replacement and `choose` with; in the newer, `choose` are taken without and `resample` with.
"""

from __future__ import annotations

import os
from typing import Any

from wdspec.convert.dialect import Dialect
from wdspec.convert.given import Given, maps_in, number, texts_in
from wdspec.convert.new_spec import NewSpec, count_shards

_KEYS = frozenset({"name", "buckets", "shards", "choose", "resample", "perepoch"})


def _recognises(given: Given) -> bool:
    top = given.top
    sources = maps_in(top.get("datasets"))
    return (
        bool(sources)
        and set(top) <= {"prefix", "buckets", "datasets"}
        and all("shards" in each and set(each) <= _KEYS for each in sources)
    )


def _convert(given: Given, new: NewSpec) -> None:
    sources = maps_in(given.top["datasets"])
    keys = {key for each in sources for key in each}
    if "choose" in keys and not keys & {"perepoch", "resample"}:
        new.note(
            "`choose` is taken as webdataset 0.1.96 and later have it, without replacement; in older "
            "files it means "
            "with replacement: then add `order: resampled` to these sources"
        )
    is_older = "perepoch" in keys
    sampled = "choose" if is_older else "resample"
    taken = "perepoch" if is_older else "choose"
    parts: list[tuple[dict[str, Any], float | int | None]] = []
    for each in sources:
        shards = [location(given.top, each, text, new) for text in texts_in(each["shards"])]
        count = count_shards(shards)
        asked = number(each.get(sampled)) if sampled in each else number(each.get(taken))
        name = str(each.get("name") or "").lstrip("@")
        source = new.source(name, shards, order="resampled" if sampled in each else None)
        parts.append((source, asked if asked is not None else count))
    if any(sampled in each or taken in each for each in sources):
        for source, weight in parts:
            if weight is None:
                weight = 1
                new.note(f"{source['name']}: nobody knows here how many shards it has; correct its `weight`")
            source["weight"] = weight
        total = sum(weight or 1 for _, weight in parts)
        new.note(
            f"shares were counted in shards, {total:g} an epoch; here they are shares of samples, which is "
            "the same where "
            "shards are of one size, and an epoch is said in samples: `epoch: …`"
        )
    new.spec["dataset"] = [source for source, _ in parts]


def location(top: dict[Any, Any], source: dict[Any, Any], shards: str, new: NewSpec) -> str:
    """The URL of shards: `prefix`, the bucket, and what the source says."""
    buckets = texts_in(source.get("buckets", top.get("buckets")))
    if len(buckets) > 1:
        new.note(f"of several buckets only the first is used, as webdataset did: {buckets[0]}")
    prefix = top.get("prefix") or ""
    return new.path(f"{prefix}{os.path.join(buckets[0], shards) if buckets else shards}")


DIALECT = Dialect("webdataset", "webdataset's multi-shard YAML", _recognises, _convert)
