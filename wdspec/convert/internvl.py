"""Meta files of InternVL: `{name: {root, annotation, repeat_time, length}}`."""

from __future__ import annotations

from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number

_OPTIONS = ("data_augment", "max_dynamic_patch")
_KNOWN = ("root", "annotation", "repeat_time", "length", *_OPTIONS)


def _recognises(given: Given) -> bool:
    return bool(given.top) and all(
        isinstance(each, dict) and "annotation" in each and ("root" in each or "repeat_time" in each)
        for each in given.top.values()
    )


def _convert(given: Given, new: NewSpec) -> None:
    dataset = []
    for name, entry in given.top.items():
        source = _source(str(name), entry, new)
        new.note_unknown(entry, _KNOWN, source["name"])
        dataset.append(source)
    new.spec["dataset"] = dataset
    if all("samples" in each for each in dataset):
        new.spec["mix"] = {"by": "samples"}
    elif len(dataset) > 1:
        new.note(
            "add `samples` to each source, and `mix: {by: samples}`; until then sizes are numbers of files"
        )
    new.note(
        "images are separate files below `root`, which are not read: make shards with `wdspec create`, and correct "
        "`shards`"
    )


def _source(name: str, entry: dict[Any, Any], new: NewSpec) -> dict[str, Any]:
    length, times = number(entry.get("length")), number(entry.get("repeat_time"))
    source = new.source(
        name,
        new.path(str(entry["annotation"])),
        samples=int(length) if length and length >= 1 else None,
        subset=f"{times * 100:.4g}%" if times and 0 < times < 1 else None,
        upsample=None if times == 1 else times,
        tags={key: entry[key] for key in _OPTIONS if key in entry},
    )
    if times is not None and 0 < times < 1:
        new.note(
            f"{source['name']}: `repeat_time: {times}` becomes a part of that size, by a hash of the keys"
        )
    elif times not in (None, 1):
        new.note_passes(source["name"], f"repeat_time: {times}")
    return source


DIALECT = Dialect("internvl", "a meta file of InternVL", _recognises, _convert)
