"""Lists of LLaVA: `datasets` with `json_path` and `sampling_strategy`."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from wdspec.base.files import open_regular
from wdspec.convert.dialect import MAX_BYTES, Dialect, Given, NewSpec, maps_in

_STRATEGY = re.compile(r"(first|end|random):(\d+(?:\.\d+)?)(%?)")


def _recognises(given: Given) -> bool:
    sources = maps_in(given.top.get("datasets"))
    return bool(sources) and all("json_path" in each for each in sources)


def _convert(given: Given, new: NewSpec) -> None:
    dataset = [_source(each, given, new) for each in maps_in(given.top["datasets"])]
    new.spec["dataset"] = dataset
    if all("samples" in each for each in dataset):
        new.spec["mix"] = {"by": "samples"}
    elif len(dataset) > 1:
        new.note(
            "sizes of sources were numbers of samples, and some are unknown: add `samples` to each source, and `mix: "
            "{by: samples}`; until then sizes are numbers of files"
        )
    new.note(
        "images are separate files, which are not read: make shards with `wdspec create`, and correct `shards`"
    )


def _source(entry: dict[Any, Any], given: Given, new: NewSpec) -> dict[str, Any]:
    path = str(entry["json_path"])
    source = new.source("", new.path(path))
    count = _count(os.path.join(given.folder, path))
    strategy = str(entry.get("sampling_strategy", "all")).strip()
    match = _STRATEGY.fullmatch(strategy)
    part = 1.0
    if match is not None and match[3]:
        part = float(match[2]) / 100
    elif match is not None and count:
        part = min(1.0, float(match[2]) / count)
    if count:
        source["samples"] = count
    if part < 1:
        source["subset"], source["upsample"] = f"{part * 100:.4g}%", round(part, 6)
        new.note(
            f"{source['name']}: `sampling_strategy: {strategy}` becomes a part of the same size, by a hash of the keys"
        )
    elif strategy != "all":
        new.note(f"{source['name']}: `sampling_strategy: {strategy}` is not converted: all samples are used")
    return source


def _count(path: str) -> int | None:
    """Count the samples of a list; None if it does not exist or is too large."""
    try:
        if os.path.getsize(path) > 8 * MAX_BYTES:
            return None
        with open_regular(path) as file:
            data = file.read()
        if path.endswith(".jsonl"):
            return sum(1 for line in data.splitlines() if line.strip()) or None
        found = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return None
    return len(found) or None if isinstance(found, list) else None


DIALECT = Dialect("llava", "a list of LLaVA", _recognises, _convert)
