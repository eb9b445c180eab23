"""Energon's metadatasets, versions 1 and 2: splits of blends, of prepared folders or of other metadatasets."""

from __future__ import annotations

import os
from typing import Any

from wdspec.convert.dialect import Dialect
from wdspec.convert.dialects.energon_folder import PreparedFolder
from wdspec.convert.given import Given, maps_in, named, number
from wdspec.convert.new_spec import NewSpec

_DEEPEST = 8


def _recognises(given: Given) -> bool:
    top = given.top
    kind = str(top.get("__class__", ""))
    if "energon" in str(top.get("__module__", "")) and "splits" in top:
        return True
    return kind in ("Metadataset", "MetadatasetV2", "Recipe") or (
        isinstance(top.get("splits"), dict) and any(_is_node(each) for each in top["splits"].values())
    )


def _is_node(value: Any) -> bool:
    """Whether a split is written as Energon has it, in a file that says no class."""
    if not isinstance(value, dict) or "dataset" in value:
        return False
    listed = value.get("datasets") or value.get("blend") or value.get("blend_epochized")
    return any("path" in each or "join" in each for each in maps_in(listed))


def _convert(given: Given, new: NewSpec) -> None:
    splits = given.top.get("splits")
    reader = _Reader(new)
    made = {
        str(name): reader.mixture(node, str(name), given.folder, {}, 0)
        for name, node in (splits.items() if isinstance(splits, dict) else ())
    }
    new.spec["splits"] = made
    for name, split in made.items():
        if name in ("val", "valid", "validation", "test"):
            split["epoch"] = "pass"  # there all samples come once, whatever their weights
            _without_shares(split)
    new.note(
        "batch size, shuffle buffer, seed and length of an epoch were arguments of get_train_dataset: write "
        "them as `batch`, "
        "`shuffle`, `seed` and `epoch`; a TaskEncoder is `map`, `decode` and `stage`"
    )


class _Reader:
    def __init__(self, new: NewSpec) -> None:
        self._new = new

    def mixture(self, node: Any, split: str, folder: str, tags: dict[str, Any], depth: int) -> dict[str, Any]:
        """What one node of a metadataset says, as a map with `dataset` and perhaps `mix`."""
        new = self._new
        node = node if isinstance(node, dict) else {}
        if "path" not in node:
            self._subset(node, f"split `{split}`")
        if "blend_epochized" in node:
            entries = maps_in(node["blend_epochized"])
            made = [self._source(each, split, folder, tags, depth) for each in entries]
            for source, entry in zip(made, entries, strict=True):
                times = number(entry.get("repetitions", 1))
                source["upsample"] = (times or 1) * _fraction(entry)
            new.note(
                "`blend_epochized` repeats each data set exactly so often in an epoch; here `repetitions` "
                "multiply the size, so "
                "that shares agree over a long run"
            )
            known = all("samples" in each for each in made)
            if not known and len(made) > 1:
                new.note(
                    "sizes are counted in shards, as not all folders are here and prepared; give each source "
                    "its `samples`, "
                    "with `mix: {by: samples}`"
                )
            return {"dataset": made, **({"mix": {"by": "samples"}} if known else {})}
        entries = maps_in(node.get("blend", node.get("datasets")))
        if not entries:
            source = self._source(node, split, folder, tags, depth)
            return {"dataset": [source]}
        made = [self._source(each, split, folder, tags, depth) for each in entries]
        for source, entry in zip(made, entries, strict=True):
            weight = number(entry.get("weight", 1))
            source["weight"] = 1 if weight is None else weight
        return {"dataset": made}

    def _source(
        self, entry: dict[Any, Any], split: str, folder: str, tags: dict[str, Any], depth: int
    ) -> dict[str, Any]:
        new = self._new
        if "join" in entry:
            return self._joined(entry, split, folder, tags, depth)
        path, part = str(entry.get("path", "")), str(entry.get("split_part") or split)
        tags = {**_tags(entry), **tags}  # the outer ones win there
        self._subset(entry, path)
        if path.endswith((".yaml", ".yml")):
            return self._nested(path, part, folder, tags, depth)
        full = os.path.join(folder, path.removeprefix("file://"))
        config = str(entry.get("dataset_config") or "dataset.yaml")
        found = PreparedFolder.read(full, path, str(entry.get("split_config") or "split.yaml"), config)
        if "aux" in entry:
            new.note(f"{path}: `aux` data sets, looked up by key, are for a function of `map`")
        multiplier = entry.get("shuffle_over_epochs_multiplier", 1)
        order = "resampled" if multiplier == -1 else "sequential" if multiplier is None else None
        if multiplier not in (None, 1, -1):
            new.note(
                f"{path}: `shuffle_over_epochs_multiplier: {multiplier}`: here each pass is shuffled by itself"
            )
        if found is not None:
            tags = {**named(found.about.get("subflavors")), **tags}
            return found.source(part, new, folder, tags=tags, order=order)
        shards = new.path(path if path.endswith(".jsonl") else f"{path.rstrip('/')}/", folder)
        source = new.source("", shards, tags=tags, order=order)
        if not path.endswith(".jsonl"):
            new.note(
                f"{source['name']}: the folder is not here, or not prepared: all its shards are taken, where "
                f".nv-meta/split.yaml says which are those of `{part}`, and dataset.yaml how fields are called"
            )
        return source

    def _nested(self, path: str, split: str, folder: str, tags: dict[str, Any], depth: int) -> dict[str, Any]:
        new, full = self._new, os.path.join(folder, path)
        name = new.name(os.path.splitext(os.path.basename(path))[0])
        try:
            inner = Given.read(full) if depth < _DEEPEST else None
        except OSError:
            inner = None
        splits = inner.top.get("splits") if inner is not None else None
        if inner is None or not isinstance(splits, dict):
            why = "cannot be read here" if depth < _DEEPEST else "leads back to itself"
            new.note(f"{path} {why}; its sources are missing: correct `{name}`")
            return {"name": name, "shards": "unknown.tar"}
        if split not in splits:
            new.note(f"{path} has no split `{split}`, but {', '.join(map(str, splits))}; correct `{name}`")
            return {"name": name, "shards": "unknown.tar"}
        return {"name": name, **self.mixture(splits[split], split, inner.folder, tags, depth + 1)}

    def _joined(
        self, entry: dict[Any, Any], split: str, folder: str, tags: dict[str, Any], depth: int
    ) -> dict[str, Any]:
        joined = entry["join"]
        parts = maps_in(list(joined.values()) if isinstance(joined, dict) else joined)
        others = ", ".join(str(each.get("path")) for each in parts[1:])
        first = parts[0] if parts else {}
        self._new.note(
            f"{first.get('path')}: the join with {others} cannot be said: samples come from the first alone. "
            "Write shards that "
            "hold all their fields"
        )
        return self._source(
            {**first, "subflavors": {**_tags(first), **_tags(entry)}}, split, folder, tags, depth
        )

    def _subset(self, entry: dict[Any, Any], where: str) -> None:
        if "subset" in entry:
            self._new.note(
                f"{where}: `subset: {entry['subset']}` is left out: all samples come; list fewer shards instead"
            )


def _without_shares(mixture: dict[str, Any]) -> None:
    mixture.pop("mix", None)
    for source in mixture.get("dataset", ()):
        source.pop("weight", None)
        source.pop("upsample", None)
        _without_shares(source)


def _tags(entry: dict[Any, Any]) -> dict[str, Any]:
    single = {"subflavor": entry["subflavor"]} if entry.get("subflavor") is not None else {}
    return {**single, **named(entry.get("subflavors"))}


def _fraction(entry: dict[Any, Any]) -> float | int:
    """The part of a data set that `subset: {range: [0%, 50%]}` leaves; 1 where it is said in samples."""
    subset = entry.get("subset")
    bounds = subset.get("range") if isinstance(subset, dict) else None
    if not isinstance(bounds, list) or len(bounds) != 2:
        return 1
    first, last = (
        number(str(each).removesuffix("%")) if str(each).endswith("%") else None for each in bounds
    )
    return 1 if first is None or last is None else round((last - first) / 100, 6)


DIALECT = Dialect("energon", "an Energon metadataset", _recognises, _convert)
