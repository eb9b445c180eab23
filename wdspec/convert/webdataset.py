"""webdataset's YAML with `prefix`, `buckets` and `datasets`; its `.ds.yml` of 2021, sources with loading options; and
indexes of wids.

The first exists in two versions that use a word for opposite things. In the older one, `perepoch` shards are drawn
without replacement and `choose` with it; in the newer one, `choose` shards are drawn without replacement and `resample`
with it.
"""

from __future__ import annotations

import os
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.convert.dialect import Dialect, Given, NewSpec, maps_in, number, texts_in
from wdspec.urls.urls import count_shards, is_relative

_KEYS = frozenset({"name", "buckets", "shards", "choose", "resample", "perepoch"})
_LOADING = {
    *("resampled", "epoch_shuffle", "split_by_worker", "split_by_node", "cachedir", "cachesize"),
    *("subsample", "chunksize", "nworkers", "probability", "shuffle", "epoch"),
}
"""Keys of a source in a `.ds.yml`."""


def _has_shards(given: Given) -> bool:
    sources = maps_in(given.top.get("datasets"))
    return (
        bool(sources)
        and set(given.top) <= {"prefix", "buckets", "datasets"}
        and all("shards" in each and set(each) <= _KEYS for each in sources)
    )


def _convert_shards(given: Given, new: NewSpec) -> None:
    sources = maps_in(given.top["datasets"])
    keys = {key for each in sources for key in each}
    if "choose" in keys and not keys & {"perepoch", "resample"}:
        new.note(
            "`choose` is without replacement, as in webdataset 0.1.96 and later; in older files it is with "
            "replacement: then add `order: resampled` to these sources"
        )
    sampled, taken = ("choose", "perepoch") if "perepoch" in keys else ("resample", "choose")
    parts: list[tuple[dict[str, Any], float | int | None]] = []
    for each in sources:
        shards = _shards(given.top, each, new)
        name = str(each.get("name") or "").lstrip("@")
        source = new.source(name, shards, order="resampled" if sampled in each else None)
        asked = number(each.get(sampled if sampled in each else taken))
        parts.append((source, count_shards(shards, "/") if asked is None else asked))
    if keys & {sampled, taken}:
        for source, weight in parts:
            if weight is None:
                new.note(f"{source['name']}: the number of its shards is unknown; correct its `weight`")
            source["weight"] = 1 if weight is None else weight
        total = sum(source["weight"] for source, _ in parts)
        new.note(
            f"shares were counted in shards, {total:g} per epoch; here they are shares of samples, which is the same "
            "if all shards have the same size; write the length of an epoch in samples, `epoch: …`"
        )
    new.spec["dataset"] = [source for source, _ in parts]


def _has_sources(given: Given) -> bool:
    sources = maps_in(given.top.get("datasets"))
    return (
        bool(sources)
        and all("shards" in each for each in sources)
        and ("epoch" in given.top or any(_LOADING & set(each) for each in sources))
        and "wdspec" not in given.top
    )


def _convert_sources(given: Given, new: NewSpec) -> None:
    dataset = []
    for each in maps_in(given.top["datasets"]):
        name, size = str(each.get("name") or ""), number(each.get("shuffle"))
        source = new.source(
            name,
            _shards(given.top, each, new),
            weight=1,
            order="resampled" if each.get("resampled") else None,
            shuffle=int(size) if size else None,
        )
        if each.get("cachedir"):
            source["cache"] = {"dir": new.path(str(each["cachedir"]))}
            if (limit := number(each.get("cachesize"))) and limit > 0:
                source["cache"]["size"] = int(limit)
        new.note_keys(each, _NOT_SAID, name or "a source")
        dataset.append(source)
    if epoch := number(given.top.get("epoch")):
        new.spec["epoch"] = {"samples": int(epoch)}
        new.note("`epoch` counted the samples of each worker; here it counts those of all ranks")
    if len(dataset) > 1:
        new.note(
            "webdataset ended with the last source; here sources repeat, and `epoch` sets the length of an epoch"
        )
        new.spec["mix"] = {"draw": "round_robin"}
    new.spec["dataset"] = dataset


_NOT_SAID = {
    "probability": "webdataset stored it but never used it, and took turns; if you want these shares, write them "
    "instead of the weights",
    "subsample": "choose samples with `select: package.module:function`",
    "epoch": "an epoch belongs to the whole mixture: `epoch: …` at the top level",
    "nworkers": "workers belong to the whole mixture: `loader: {workers: …}`",
}


def _shards(top: dict[Any, Any], source: dict[Any, Any], new: NewSpec) -> list[str]:
    """The URLs of a source: the prefix, the bucket, and its shards."""
    urls = []
    for shards in texts_in(source["shards"]):
        buckets = texts_in(source.get("buckets", top.get("buckets")))
        if len(buckets) > 1:
            new.note(f"of several buckets only the first is used, as in webdataset: {buckets[0]}")
        prefix = top.get("prefix") or ""
        urls.append(new.path(f"{prefix}{os.path.join(buckets[0], shards) if buckets else shards}"))
    return urls


def _is_index(given: Given) -> bool:
    return "wids_version" in given.top or bool(maps_in(given.top.get("shardlist")))


def _convert_index(given: Given, new: NewSpec) -> None:
    top = given.top
    parts = [top] if maps_in(top.get("shardlist")) else []
    dataset = [_convert_part(part, given.folder, new) for part in (*parts, *maps_in(top.get("datasets")))]
    if any("weight" in source for source in dataset):
        for source in dataset:
            source.setdefault("weight", 1)
    new.spec["dataset"] = dataset


def _convert_part(part: dict[Any, Any], folder: str, new: NewSpec) -> dict[str, Any]:
    """Convert a list of shards with their numbers of samples."""
    if not maps_in(part.get("shardlist")) and isinstance(where := part.get("source_url"), str):
        part, folder = _read_named_index(where, part, folder)
    base = part.get("base") or part.get("base_path")
    prefix = f"{base.rstrip('/')}/" if isinstance(base, str) and base else ""
    urls, counts = [], []
    for each in maps_in(part.get("shardlist")):
        if isinstance(url := each.get("url"), str):
            urls.append(new.path(prefix * is_relative(url) + url, folder))
            counts.append(number(each.get("nsamples")))
    known = [int(count) for count in counts if count is not None and count >= 0]
    samples = sum(known) if known and len(known) == len(counts) else None
    weight = number(part.get("weight"))
    source = new.source(str(part.get("name") or ""), urls or "unknown.tar", weight=weight, samples=samples)
    if not urls:
        new.note(
            f"{source['name']}: its index is not read: {part.get('source_url', 'it has no URL')}; convert it, too, and "
            "write its shards here"
        )
    return source


def _read_named_index(where: str, part: dict[Any, Any], folder: str) -> tuple[dict[Any, Any], str]:
    """Return the index that another one names, and its folder, if it is a local file; otherwise the same."""
    path = os.path.join(folder, where)
    if not is_relative(where) and "://" in where:
        return part, folder
    try:
        found = Given.read(path)
    except (OSError, UsageError):
        return part, folder
    own = {key: each for key, each in part.items() if key != "shardlist"}  # it may be there, but empty
    return {**found.top, **own}, found.folder


INDEX = Dialect("wids", "an index of wids", _is_index, _convert_index)
SHARDS = Dialect("webdataset", "webdataset's multi-shard YAML", _has_shards, _convert_shards)
SOURCES = Dialect("webdataset-ds", "an older `.ds.yml` of webdataset", _has_sources, _convert_sources)
