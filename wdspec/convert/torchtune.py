"""torchtune's configurations: `dataset:` as a list, or `datasets:` with weights."""

from __future__ import annotations

from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, maps_in, number, pack, texts_in, with_text_keys

_PLAIN = ("json", "text", "csv", "parquet", "webdataset")
_NOT_SAID = {
    "split": "choose the files of a split with `shards`, or write `splits:`",
    "filter_fn": "filter samples with `select: package.module:function`",
}

_PACKED = {"packed": "write `batch: {pack: {fields: [tokens, labels], length: …}}` for all sources together"}


def _entries(given: Given) -> list[dict[Any, Any]]:
    for key in ("datasets", "dataset"):
        found = given.top.get(key)
        listed = maps_in(found) or maps_in([found])
        if listed and all("_component_" in each or "source" in each for each in listed):
            return listed
    return []


def _convert(given: Given, new: NewSpec) -> None:
    entries, top = _entries(given), given.top
    weighted = any(number(each.get("weight")) is not None for each in entries)
    new.spec["dataset"] = [_source(each, weighted, new) for each in entries]
    new.set_seed(top.get("seed"))
    size, tokenizer = new.whole(top, "batch_size", 1), with_text_keys(top.get("tokenizer"))
    length = new.whole(tokenizer, "max_seq_len", 1) if all(each.get("packed") for each in entries) else None
    if length:
        is_cut = all(each.get("split_across_pack") for each in entries)
        keys: dict[str, Any] = {
            "fields": ["tokens", "labels"],
            "method": "concatenate" if is_cut else "in_order",
        }
        new.spec["batch"] = pack(new, length, size or 1, **keys, position_ids="input_pos")
    else:
        for each, source in zip(entries, new.spec["dataset"], strict=True):
            new.note_keys(each, _PACKED, source["name"])
        if size:
            new.spec["batch"] = size
    if top.get("shuffle") is False:
        new.spec["defaults"] = {"order": "sequential", "shuffle": 0}
    if not weighted and len(entries) > 1:
        new.note_concatenated()
    new.note("write templates, tokenizers and other steps of components as functions of `map`")


def _source(entry: dict[Any, Any], weighted: bool, new: NewSpec) -> dict[str, Any]:
    kind, subset = str(entry.get("source") or entry.get("_component_") or ""), entry.get("subset")
    files, columns = texts_in(entry.get("data_files")), entry.get("column_map")
    named = "-".join(str(part) for part in (kind.rpartition("/")[2].rpartition(".")[2], subset) if part)
    folder = f"hf://datasets/{kind}/" + (f"{subset}/" if subset else "")
    source = new.source(
        "" if kind in _PLAIN and files else named,
        [new.path(text) for text in files] if files else [folder],
        rename=dict(columns) if isinstance(columns, dict) else None,
    )
    if weighted:
        weight = number(entry.get("weight"))
        source["weight"] = 1 if weight is None else weight
    if not files or kind in ("csv", "text", "parquet"):
        new.note_unreadable(source["name"])
    new.note_keys(entry, _NOT_SAID, source["name"])
    return source


DIALECT = Dialect("torchtune", "a configuration of torchtune", lambda given: bool(_entries(given)), _convert)
