"""MosaicML Streaming: `streams` with `proportion`, `repeat` or `choose`, as llm-foundry's files have them."""

from __future__ import annotations

import re
from typing import Any

from wdspec.convert.dialect import Dialect
from wdspec.convert.given import Given, number
from wdspec.convert.new_spec import NewSpec

_SIZE = re.compile(r"\s*(\d[\d_,]*(?:\.\d+)?)\s*([kKmMbB]?)\s*")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def _holder(value: Any, depth: int = 0) -> dict[Any, Any] | None:
    """The map that has `streams`, at the top or below `train_loader` and the like."""
    if not isinstance(value, dict) or depth > 4:
        return None
    if isinstance(value.get("streams"), (dict, list)):
        return value
    for key, inner in value.items():
        if "eval" not in str(key) and (found := _holder(inner, depth + 1)) is not None:
            return found
    return None


def _recognises(given: Given) -> bool:
    return _holder(given.value) is not None


def _convert(given: Given, new: NewSpec) -> None:
    holder = _holder(given.value) or {}
    streams = holder["streams"]
    named = list(streams.items()) if isinstance(streams, dict) else [("", each) for each in streams]
    dataset, chosen = [], 0
    for name, stream in named:
        if not isinstance(stream, dict):
            continue
        split = stream.get("split", holder.get("split"))
        place = str(stream.get("remote") or stream.get("local") or "")
        place = place.rstrip("/") + (f"/{split}" if split else "") + "/"
        source = new.source(str(name), new.path(place))
        if stream.get("remote") and stream.get("local"):
            source["cache"] = {"dir": new.path(str(stream["local"]))}
        if (weight := number(stream.get("proportion"))) is not None:
            source["weight"] = weight
        elif (times := number(stream.get("repeat"))) is not None:
            source["upsample"] = times
            new.note(
                f"{source['name']}: `repeat: {times}` is exactly so many passes in an epoch; here it "
                "multiplies the source's "
                "size, so that shares agree over a long run"
            )
        elif (count := number(stream.get("choose"))) is not None:
            source["weight"] = count
            chosen += int(count)
        new.note_unknown(stream, _STREAM, source["name"])
        dataset.append(source)
    weighted = [each for each in dataset if "weight" in each]
    if weighted and len(weighted) < len(dataset):
        new.note(
            "streams without a share of their own counted by size; here they have the weight 1, correct it"
        )
        for each in dataset:
            each.pop("upsample", None)
            each.setdefault("weight", 1)
    new.spec["dataset"] = dataset
    new.note(
        "shards of Streaming (MDS) cannot be read: write them as tar, and correct `shards`, which name the "
        "folders of the "
        "streams"
    )
    _rest(holder, chosen, new)


def _rest(holder: dict[Any, Any], chosen: int, new: NewSpec) -> None:
    spec = new.spec
    if (seed := number(holder.get("shuffle_seed"))) is not None:
        spec["seed"] = int(seed)
    if holder.get("shuffle") is False:
        spec["defaults"] = {"order": "sequential", "shuffle": 0}
    match = _SIZE.fullmatch(str(holder.get("epoch_size") or ""))
    samples = int(float(re.sub("[_,]", "", match[1])) * _UNITS[match[2].lower()]) if match else chosen
    if samples:
        spec["epoch"] = {"samples": samples}
    elif "choose" not in holder:
        new.note(
            "an epoch was as long as its streams; here it is said in samples: `epoch: …`, else it is endless"
        )
    if size := new.whole(holder, "batch_size", 1):
        spec["batch"] = size
    new.note_keys(
        holder,
        {
            "num_canonical_nodes": "the order does not depend on the topology; `elastic: {ranks, workers}` says which "
            "may come",
            "batching_method": "shares hold in each batch (`mix: {draw: even}`); one source a batch is `mix: "
            "{unit: batch}`",
            "shuffle_algo": "shuffling is `shuffle:` and `interleave:`",
            "replication": "ranks that see one batch are given the same `rank=` in `wdspec.loader`",
        },
    )


_STREAM = (
    *(
        "remote",
        "local",
        "split",
        "proportion",
        "repeat",
        "choose",
        "keep_zip",
        "download_retry",
        "download_timeout",
    ),
    *("validate_hash",),
)

DIALECT = Dialect("streaming", "streams of MosaicML Streaming", _recognises, _convert)
