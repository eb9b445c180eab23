"""VeOmni's multi-source data: `sources`, `names` and a `schedule` of weights."""

from __future__ import annotations

from typing import Any

from wdspec.convert.dialect import Dialect
from wdspec.convert.given import Given, maps_in, number, texts_in
from wdspec.convert.new_spec import NewSpec

_KNOWN = ("sources", "names", "schedule", "level", "stopping_strategy", "val_sources", "upstream_sharded")


def _recognises(given: Given) -> bool:
    steps = maps_in(given.top.get("schedule"))
    return bool(texts_in(given.top.get("sources"))) and any("schedule_type" in each for each in steps)


def _convert(given: Given, new: NewSpec) -> None:
    top, spec = given.top, new.spec
    steps = maps_in(top["schedule"])
    weights = [number(each) for each in _weights(steps[0])]
    if len(steps) > 1 or steps[0].get("schedule_type") != "const":
        new.note(
            "weights that change are `mix: {schedule: […]}`, which counts samples and is to be written by "
            "hand; here they are "
            "those of the beginning"
        )
    train = _sources(texts_in(top["sources"]), texts_in(top.get("names")), weights, new)
    val = texts_in(top.get("val_sources"))
    if val:
        names = [f"{each}-val" for each in texts_in(top.get("names"))]
        spec["splits"] = {
            "train": {"dataset": train},
            "val": {"dataset": _sources(val, names, [], new), "epoch": "pass"},
        }
    else:
        spec["dataset"] = train
    if top.get("level") == "token":
        new.note(
            "weights were shares of tokens; here they are shares of samples: divide each by the mean length of a sample"
        )
    if strategy := top.get("stopping_strategy"):
        new.note(
            f"`stopping_strategy: {strategy}` is left out: sources begin anew, and an epoch is said by `epoch: …`"
        )
    new.note(
        "sources must be folders or files of tar or JSON lines; Parquet cannot be read: write shards of it"
    )
    new.note_unknown(top, _KNOWN, "the file")


def _weights(step: dict[Any, Any]) -> list[Any]:
    found = step.get("weights", step.get("init_weights"))
    return found if isinstance(found, list) else []


def _sources(
    paths: list[str], names: list[str], weights: list[float | int | None], new: NewSpec
) -> list[dict[str, Any]]:
    if weights and len(weights) != len(paths):
        new.note(
            f"there are {len(paths)} sources, but {len(weights)} weights; none is taken, write `weight` yourself"
        )
        weights = []
    return [
        new.source(
            names[at] if at < len(names) else "",
            _folder(new.path(path)),
            weight=weights[at] if weights else None,
        )
        for at, path in enumerate(paths)
    ]


def _folder(path: str) -> str:
    """A path that names no file as a folder of shards."""
    return path if path.endswith("/") or "." in path.rpartition("/")[2] else f"{path}/"


DIALECT = Dialect("veomni", "multi-source data of VeOmni", _recognises, _convert)
