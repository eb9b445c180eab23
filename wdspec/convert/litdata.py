"""litData: `StreamingDataset` in a Python file, also in `CombinedStreamingDataset` and `ParallelStreamingDataset`.

The file is parsed and never run.
"""

from __future__ import annotations

import ast
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number
from wdspec.convert.python_code import Code, keyword, name_of, parse_code

_MIXERS = ("CombinedStreamingDataset", "ParallelStreamingDataset")
_CALLS = (*_MIXERS, "StreamingDataset")


def _parse(given: Given) -> Code | None:
    return parse_code(given.text, *(f"{each}(" for each in _CALLS)) if "litdata" in given.text else None


def _convert(given: Given, new: NewSpec) -> None:
    reading = _parse(given)
    assert reading is not None, "it is recognised by its calls"
    mixers = [call for call in reading.calls if name_of(call) in _MIXERS]
    if mixers:
        new.spec.update(_mixture(mixers[0], reading, new))
        if len(mixers) > 1:
            new.note(f"of {len(mixers)} mixtures in this file the first is converted")
    else:
        singles = [call for call in reading.calls if name_of(call) == "StreamingDataset"]
        new.spec["dataset"] = [_source(call, reading, new) for call in singles]
        if len(singles) > 1:
            new.note("the file does not mix its data sets: remove the sources that are not meant")
    new.note(
        "chunks of litData (`.bin`) cannot be read: convert them to tar, or name the Parquet files that they come from"
    )


def _mixture(call: ast.Call, reading: Code, new: NewSpec) -> dict[str, Any]:
    members = reading.members(call, _CALLS)
    dataset = [_source(each, reading, new) for each in members]
    made: dict[str, Any] = {"dataset": dataset}
    if not members:
        new.note("the data sets of this mixture are made by code, which is not run; write `dataset:` by hand")
    if name_of(call) == "ParallelStreamingDataset":
        new.note(
            "`ParallelStreamingDataset` gave a sample of each data set at every step, whatever their keys: if they are "
            "parts of the same samples, keep the first source, and write the others as its `join`; otherwise combine "
            "neighbours in a `stage`"
        )
        for source in dataset:
            source["weight"] = 1
        return {**made, "mix": {"draw": "round_robin"}}
    weights = reading.literal(keyword(call, "weights"))
    if isinstance(weights, (list, tuple)) and len(weights) == len(dataset):
        for source, weight in zip(dataset, weights, strict=True):
            source["weight"] = number(weight) or 0
    else:
        new.note_concatenated()
    new.set_seed(reading.literal(keyword(call, "seed")))
    if reading.literal(keyword(call, "iterate_over_all")) is not False and weights is None:
        new.note("`iterate_over_all` ended an epoch when all data sets were read; set its length: `epoch: …`")
    if reading.literal(keyword(call, "batching_method")) == "per_stream":
        made["mix"] = {"unit": "batch"}
    return made


def _source(node: ast.expr, reading: Code, new: NewSpec) -> dict[str, Any]:
    if not isinstance(node, ast.Call) or name_of(node) != "StreamingDataset":
        return new.unknown_source(node.lineno)
    given = reading.literal(node.args[0] if node.args else keyword(node, "input_dir"))
    path = new.path(str(given)) if isinstance(given, str) else "unknown/"
    source = new.source("", f"{path.rstrip('/')}/")
    if reading.literal(keyword(node, "shuffle")) is not True:
        source["shuffle"] = 0
        source["order"] = "sequential"
    part = number(reading.literal(keyword(node, "subsample")))
    if part is not None and 0 < part < 1:
        new.note_part(source, part, f"`subsample={part:g}`")
    elif part is not None and part > 1:
        source["upsample"] = part
        new.note(f"{source['name']}: `subsample={part:g}` multiplies its size")
    return source


DIALECT = Dialect("litdata", "data sets of litData", lambda given: _parse(given) is not None, _convert)
