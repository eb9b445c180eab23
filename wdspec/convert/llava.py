"""LLaVA's lists: `datasets` with `json_path` and `sampling_strategy`."""

from __future__ import annotations

import json
import os
import re
from typing import Any

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
            "sources counted by their samples, and of some nobody knows here how many these are: give each its "
            "`samples`, with `mix: {by: samples}`; until then they count by files"
        )
    new.note(
        "images stand in files beside the texts, which are not read: write shards with `wdspec create`, and correct "
        "`shards`"
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
        source["upsample"] = round(part, 6)
    if strategy != "all":
        new.note(
            f"{source['name']}: `sampling_strategy: {strategy}` took a part of its samples, always the same; "
            f"here all of them come{', as much more seldom' if part < 1 else ''}"
        )
    return source


def _count(path: str) -> int | None:
    """The samples of a list that is at hand; None where it is not, or is too large to be looked at."""
    try:
        if os.path.getsize(path) > 8 * MAX_BYTES:
            return None
        with open(path, "rb") as file:
            data = file.read()
        if path.endswith(".jsonl"):
            return sum(1 for line in data.splitlines() if line.strip()) or None
        found = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return None
    return len(found) or None if isinstance(found, list) else None


DIALECT = Dialect("llava", "a list of LLaVA", _recognises, _convert)
