"""Samplers of lhotse in a Python file: `DynamicBucketingSampler(cuts, max_duration=…)`, as in recipes of icefall."""

from __future__ import annotations

import ast
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number, texts_in
from wdspec.convert.nemo import AUDIO, batches_by_cost, by_name, deliver_speech
from wdspec.convert.python_code import Code, keyword, name_of, parse_code

_BUCKETS = ("DynamicBucketingSampler", "BucketingSampler")
_SAMPLERS = (*_BUCKETS, "DynamicCutSampler", "SimpleCutSampler", "SingleCutSampler", "CutSampler")
_READERS = ("from_shar", "from_webdataset", "from_file", "load_manifest", "load_manifest_lazy", "mux")
_SORTED = "without buckets, wdspec sorts each `batch.window` of samples by their cost"
_NOT_SAID = {
    **dict.fromkeys(("num_buckets", "duration_bins", "buffer_size"), _SORTED),
    "constraint": "write it as `batch: {cost: …, max_cost: …}`",
    "concurrent": "workers read ahead by themselves",
    "max_samples": "write it as `cost: audio.seconds * RATE`",
    "max_frames": "write it as `cost: audio.seconds * 100`",
}


def _parse(given: Given) -> Code | None:
    return parse_code(given.text, *(f"{name}(" for name in _SAMPLERS), file=given.file)


def _convert(given: Given, new: NewSpec) -> None:
    code = _parse(given)
    assert code is not None, "it is recognised by its calls"
    samplers = [call for call in code.calls if name_of(call) in _SAMPLERS]
    samplers.sort(key=lambda call: name_of(call) not in _BUCKETS)
    if not samplers:
        new.note("the file calls no sampler of lhotse")
        return
    sampler = samplers[0]
    if len(samplers) > 1:
        new.note(f"of {len(samplers)} samplers, the one in line {sampler.lineno} is converted")
    found = {each.arg: _value(code, each.value) for each in sampler.keywords if each.arg}
    most, size = number(found.get("max_duration")), number(found.get("max_cuts"))
    for key in ("max_duration", "max_cuts"):
        if keyword(sampler, key) is not None and number(found[key]) is None and not _is_none(sampler, key):
            new.note(f"`{key}` is set by code, which is not run: write it as `{_KEYS[key]}`")
    by_cost = batches_by_cost(
        {
            "batch_duration": most,
            "quadratic_duration": found.get("quadratic_duration"),
            "use_bucketing": name_of(sampler) in _BUCKETS,
        },
        new,
    )
    if by_cost:
        new.spec["batch"] = by_cost | ({"max_size": int(size)} if size else {})
    elif size:
        new.spec["batch"] = int(size)
    new.set_seed(found.get("seed"))
    defaults: dict[str, Any] = {}
    if found.get("shuffle") is False:
        defaults |= {"order": "sequential", "shuffle": 0}
    elif (held := number(found.get("shuffle_buffer_size"))) is not None:
        defaults["shuffle"] = int(held)
    if defaults:
        new.spec["defaults"] = defaults
    cuts = sampler.args[0] if sampler.args else keyword(sampler, "cuts")
    new.spec["dataset"] = _sources(code, cuts, new)
    if all("join" in each for each in new.spec["dataset"]):
        deliver_speech(new, {"supervisions"})
    new.note_keys({key: each for key, each in found.items() if each is not None}, _NOT_SAID)
    new.note("filters and augmentations of cuts are not converted: use `where`, `select` and `map`")


_KEYS = {"max_duration": "batch: {max_cost: …}", "max_cuts": "batch: {max_size: …}"}


def _is_none(call: ast.Call, name: str) -> bool:
    node = keyword(call, name)
    return isinstance(node, ast.Constant) and node.value is None


def _value(code: Code, node: ast.expr) -> Any:
    """Return the value of an argument: a constant, or the default of the command line option that it comes from."""
    found = code.literal(node)
    if found is None and isinstance(node, ast.Attribute):
        option = f"--{node.attr.replace('_', '-')}"
        for call in code.calls:
            if name_of(call) == "add_argument" and call.args and code.literal(call.args[0]) == option:
                return code.literal(keyword(call, "default"))
    return found


def _sources(code: Code, node: ast.expr | None, new: NewSpec) -> list[dict[str, Any]]:
    """Return the sources of a set of cuts, with weights if it is a mixture."""
    call = None if node is None else code.trace(node, _READERS)
    if not isinstance(call, ast.Call) or name_of(call) not in _READERS:
        new.note("the code that makes the cuts was not found; correct `shards`")
        return [new.source("audio", "unknown.tar", rename={"audio": AUDIO})]
    if name_of(call) != "mux":
        return [_source(code, call, new)]
    with code.inside(call):
        sources = [source for each in call.args for source in _sources(code, each, new)]
    weights = code.literal(keyword(call, "weights"))
    if not isinstance(weights, (list, tuple)) or len(weights) != len(sources):
        weights = [1] * len(sources)
    for source, weight in zip(sources, weights, strict=True):
        source["weight"] = 1 if (share := number(weight)) is None else share
    return sources


def _source(code: Code, call: ast.Call, new: NewSpec) -> dict[str, Any]:
    kind = name_of(call)
    place = code.literal(call.args[0] if call.args else keyword(call, "in_dir") or keyword(call, "path"))
    fields = code.literal(keyword(call, "fields")) or place
    cuts: list[str] = []
    if kind == "from_shar" and isinstance(fields, dict):
        place = next((fields[name] for name in ("recording", "audio", *fields) if name in fields), None)
        cuts = texts_in(fields.get("cuts"))
    elif kind == "from_shar" and isinstance(place, str):
        cuts = [f"{place.rstrip('/')}/cuts.*.jsonl.gz"]
        place = f"{place.rstrip('/')}/recording.*.tar"
    texts = texts_in(place)
    if not texts:
        new.note(f"line {call.lineno}: where the cuts are is set by code, which is not run; correct `shards`")
    shards = [new.path(each) for each in texts] or "unknown.tar"
    source = new.source("" if texts else "audio", shards, rename={"audio": AUDIO})
    if kind == "from_shar":
        return by_name(source, cuts, new, "id") if cuts else source
    if kind == "from_webdataset":
        new.note(f"{source['name']}: lhotse's tars have pickles: write the recordings with `wdspec create`")
    elif texts:
        new.note(
            f"{source['name']}: the recordings of a manifest are files of their own, which a spec cannot read: write "
            "them with `CutSet.to_shar`, or with `wdspec create`, and correct `shards`"
        )
    return source


DIALECT = Dialect(
    "lhotse", "a sampler of lhotse in a Python file", lambda given: _parse(given) is not None, _convert
)
