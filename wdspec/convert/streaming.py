"""MosaicML Streaming: `streams` with `proportion`, `repeat` or `choose`, as in files of llm-foundry."""

from __future__ import annotations

import re
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, map_with, number

_SIZE = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kKmMbB]?)")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_KNOWN = [
    "remote",
    "local",
    "split",
    "proportion",
    "repeat",
    "choose",
    "keep_zip",
    "download_retry",
    "download_timeout",
    "validate_hash",
]
_NOT_SAID = {
    "num_canonical_nodes": "the order does not depend on the topology; set the largest one with `elastic: {ranks, "
    "workers}`",
    "batching_method": "each batch has the shares (`mix: {draw: even}`); for one source per batch write `mix: {unit: "
    "batch}`",
    "shuffle_algo": "set shuffling with `shuffle:` and `interleave:`",
    "replication": "pass the same `rank=` to `wdspec.loader` on all ranks that need the same batch",
}


def _holder(given: Given) -> dict[Any, Any] | None:
    """The map that has `streams`, at the top level or below a key such as `train_loader`."""
    return map_with(
        given.value, lambda each: isinstance(each.get("streams"), (dict, list)), without=("eval",)
    )


def _convert(given: Given, new: NewSpec) -> None:
    holder = _holder(given) or {}
    found = holder["streams"]
    streams = found.items() if isinstance(found, dict) else [("", each) for each in found]
    streams = [(str(name), each) for name, each in streams if isinstance(each, dict)]
    dataset = [_source(name, stream, holder.get("split"), new) for name, stream in streams]
    if 0 < sum("weight" in each for each in dataset) < len(dataset):
        new.note(
            "streams without a share were weighted by size; here they have the weight 1, which you must correct"
        )
        for each in dataset:
            each.pop("upsample", None)
            each.setdefault("weight", 1)
    new.spec["dataset"] = dataset
    new.set_seed(holder.get("shuffle_seed"))
    if holder.get("shuffle") is False:
        new.spec["defaults"] = {"order": "sequential", "shuffle": 0}
    size = _read_size(holder.get("epoch_size"))
    chosen = sum(_count_chosen(stream) for _, stream in streams)
    if samples := int(number(chosen if size is None else size) or 0):
        new.spec["epoch"] = {"samples": samples}
    elif "choose" not in holder:
        new.note(
            "an epoch was as long as its streams; here it is endless unless you set its samples: `epoch: …`"
        )
    if batch := new.whole(holder, "batch_size", 1):
        new.spec["batch"] = batch
    new.note_keys(holder, _NOT_SAID)


def _source(name: str, stream: dict[Any, Any], split: Any, new: NewSpec) -> dict[str, Any]:
    split = stream.get("split", split)
    place = str(stream.get("remote") or stream.get("local") or "").rstrip("/")
    folder = new.path(f"{place}{f'/{split}' if split else ''}/")
    source = new.source(name, folder)
    source["shards"] = f"@{folder}index.json"
    if stream.get("remote") and stream.get("local"):
        source["cache"] = {"dir": new.path(str(stream["local"]))}
    if (weight := number(stream.get("proportion"))) is not None:
        source["weight"] = weight
    elif (times := number(stream.get("repeat"))) is not None:
        source["upsample"] = times
        new.note_passes(source["name"], f"repeat: {times}")
    elif (count := number(stream.get("choose"))) is not None:
        source["weight"] = count
    new.note_unknown(stream, _KNOWN, source["name"])
    return source


def _count_chosen(stream: dict[Any, Any]) -> int:
    """The samples that an epoch takes of a stream; 0 if its share is given in another way."""
    if any(number(stream.get(key)) is not None for key in ("proportion", "repeat")):
        return 0
    return int(number(stream.get("choose")) or 0)


def _read_size(value: Any) -> float | int | None:
    """Read `10_000` or `1.5m`; None if it is not a size."""
    match = _SIZE.fullmatch(str(value or "").strip())
    if match is None:
        return None
    return (number(re.sub("[_,]", "", match[1])) or 0) * _UNITS[match[2].lower()]


DIALECT = Dialect(
    "streaming", "streams of MosaicML Streaming", lambda given: _holder(given) is not None, _convert
)
