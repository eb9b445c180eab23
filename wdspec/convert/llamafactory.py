"""Configurations of LLaMA-Factory: names of `dataset_info.json`, their mixture, `cutoff_len` and packing."""

from __future__ import annotations

import os
from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, number, pack, texts_in, with_text_keys

_STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")
_NOT_SAID = {
    "val_size": "choose shards for evaluation, and write `splits:`",
    "max_samples": "list some of the shards of each source, or write `limit` for a test",
}
_OF_SOURCE = {
    "num_samples": "list some of its shards",
    "split": "choose the files of a split with `shards`",
}


def _recognises(given: Given) -> bool:
    return given.top.get("stage") in _STAGES and bool(_names(given.top.get("dataset")))


def _names(value: Any) -> list[str]:
    """The names in a list, or in a text with commas."""
    return [name.strip() for text in texts_in(value) for name in text.split(",") if name.strip()]


def _convert(given: Given, new: NewSpec) -> None:
    top, spec = given.top, new.spec
    info, folder = _read_info(given, new)
    names = _names(top["dataset"])
    train: dict[str, Any] = {"dataset": [_source(name, info, folder, new) for name in names]}
    _mix(train, top, new)
    if (seed := new.whole(top, "seed")) is not None:
        spec["seed"] = seed
    rows = new.whole(top, "per_device_train_batch_size", 1) or 8
    packing = top.get("packing") if top.get("packing") is not None else top["stage"] == "pt"
    is_neat = top.get("neat_packing") is True
    if packing or is_neat:
        train["batch"] = _pack(top, rows, is_neat, new)
    else:
        train["batch"] = rows
        new.note("templates and tokenizers are not converted: write them as a function of `map`")
    if top.get("streaming") is True and (buffer := new.whole(top, "buffer_size", 1)):
        spec["defaults"] = {"shuffle": buffer}
    if (workers := new.whole(top, "dataloader_num_workers")) is not None:
        spec["loader"] = {"workers": workers}
    val = None
    if tested := _names(top.get("eval_dataset")):
        size = new.whole(top, "per_device_eval_batch_size", 1) or 8
        val = {"dataset": [_source(name, info, folder, new) for name in tested], "batch": size}
    new.set_splits(train, val)
    new.note_keys(top, _NOT_SAID)


def _pack(top: dict[Any, Any], rows: int, is_neat: bool, new: NewSpec) -> dict[str, Any]:
    length, window = new.whole(top, "cutoff_len", 1) or 2048, new.whole(top, "preprocessing_batch_size", 1)
    keys: dict[str, Any] = {}
    if top["stage"] == "pt":
        keys = {"fields": ["input_ids"], "pad": {}, "method": "concatenate"}
    elif is_neat:
        keys = {"position_ids": "position_ids", "segment_ids": "attention_mask"}
    return ({"window": window} if window else {}) | pack(new, length, rows, **keys)


def _mix(train: dict[str, Any], top: dict[Any, Any], new: NewSpec) -> None:
    sources, strategy = train["dataset"], str(top.get("mix_strategy", "concat"))
    texts = str(top.get("interleave_probs") or "").split(",")
    shares = [share for share in map(number, texts) if share is not None]
    if strategy.startswith("interleave"):
        given = len(shares) == len(sources)
        for source, share in zip(sources, shares if given else [1] * len(sources), strict=True):
            source["weight"] = share
        if not given:
            train["mix"] = {"draw": "round_robin"}
        new.note(
            f"`mix_strategy: {strategy}` ended an epoch with one of the sources; now sources repeat, and an epoch ends "
            "after a number of samples: `epoch: …`"
        )
    elif len(sources) > 1:
        new.note_concatenated()


def _read_info(given: Given, new: NewSpec) -> tuple[dict[str, Any], str]:
    """`dataset_info.json` and its directory, which starts where the tool was started: next to the file, or above."""
    place = str(given.top.get("dataset_dir") or "data")
    for above in (".", "..", "../.."):
        folder = os.path.normpath(os.path.join(given.folder, above, place))
        try:
            return with_text_keys(Given.read(os.path.join(folder, "dataset_info.json")).top), folder
        except OSError:
            pass
    new.note(
        f"`{place}/dataset_info.json` was not found, so the shards of its sources are missing: correct `shards`"
    )
    return {}, given.folder


def _source(name: str, info: dict[str, Any], folder: str, new: NewSpec) -> dict[str, Any]:
    entry = with_text_keys(info.get(name))
    hub, subset = entry.get("hf_hub_url"), entry.get("subset")
    if file := entry.get("file_name"):
        place = new.path(str(file), folder)
    elif hub:
        place = f"hf://datasets/{hub}/" + (f"{subset}/" if subset else "")
    else:
        place = str(entry.get("cloud_file_name") or "unknown.tar")
    source = new.source(name, place, rename=with_text_keys(entry.get("columns")))
    if info and name not in info:
        new.note(f"{source['name']}: it is not in dataset_info.json; correct `shards`")
    elif not place.endswith((".jsonl", ".tar")):
        new.note_unreadable(source["name"])
    new.note_keys(entry, _OF_SOURCE, source["name"])
    return source


DIALECT = Dialect("llamafactory", "a configuration of LLaMA-Factory", _recognises, _convert)
