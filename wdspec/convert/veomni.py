"""VeOmni's multi-source data: `sources`, `names` and a `schedule` of weights."""

from __future__ import annotations

from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, maps_in, number, texts_in

_KNOWN = ("sources", "names", "schedule", "level", "stopping_strategy", "val_sources", "upstream_sharded")


def _recognises(given: Given) -> bool:
    steps = maps_in(given.top.get("schedule"))
    return bool(texts_in(given.top.get("sources"))) and any("schedule_type" in each for each in steps)


def _convert(given: Given, new: NewSpec) -> None:
    top = given.top
    first, *later = maps_in(top["schedule"])
    if later or first.get("schedule_type") != "const":
        new.note(
            "only the first weights are converted; write weights that change as `mix: {schedule: […]}`, which counts "
            "samples"
        )
    weights = first.get("weights", first.get("init_weights"))
    names = texts_in(top.get("names"))
    train = _sources(texts_in(top["sources"]), names, weights if isinstance(weights, list) else [], new)
    tested = _sources(texts_in(top.get("val_sources")), [f"{each}-val" for each in names], [], new)
    new.set_splits({"dataset": train}, {"dataset": tested} if tested else None)
    if top.get("level") == "token":
        new.note(
            "weights were shares of tokens; here they are shares of samples: divide each one by the mean length of a "
            "sample"
        )
    if strategy := top.get("stopping_strategy"):
        new.note(
            f"`stopping_strategy: {strategy}` is not converted: sources repeat, and `epoch` sets the length of an epoch"
        )
    new.note("sources must be directories of tars, or files of tar, JSON lines, Parquet or Arrow")
    new.note_unknown(top, _KNOWN, "the file")


def _sources(paths: list[str], names: list[str], weights: list[Any], new: NewSpec) -> list[dict[str, Any]]:
    if weights and len(weights) != len(paths):
        new.note(
            f"there are {len(paths)} sources, but {len(weights)} weights; none is used, write `weight` yourself"
        )
        weights = []
    made = []
    for at, path in enumerate(paths):
        place = new.path(path)
        is_file = place.endswith("/") or "." in place.rpartition("/")[2]
        weight = number(weights[at]) if weights else None
        name = names[at] if at < len(names) else ""
        made.append(new.source(name, place if is_file else f"{place}/", weight=weight))
    return made


DIALECT = Dialect("veomni", "multi-source data of VeOmni", _recognises, _convert)
