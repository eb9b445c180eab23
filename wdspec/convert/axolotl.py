"""Configurations of axolotl: `datasets` with paths, `sequence_len` and sample packing."""

from __future__ import annotations

from typing import Any

from wdspec.convert.dialect import Dialect, Given, NewSpec, maps_in, pack, texts_in

_LOADERS = ("json", "csv", "parquet", "text", "arrow")
_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".txt", ".arrow", ".gz", ".zst", ".tar")
_OVERLONG = {"drop": "drop", "truncate": "truncate", "raise": "error"}
_NOT_SAID = {
    "val_set_size": "choose shards for evaluation, and write `splits:`",
    "curriculum_sampling": "write `order: sequential` and `shuffle: 0` in `defaults`",
}
_OF_SOURCE = {
    "weight": "it was the part of the data set that was used, the same in each epoch; list some of its shards instead",
    "shards": "list some of its shards",
    "split": "choose the files of a split with `shards`",
}


def _entries(given: Given) -> list[dict[Any, Any]]:
    """The data sets to train on."""
    listed = given.top.get("datasets") or given.top.get("pretraining_dataset")
    listed = [{"path": listed}] if isinstance(listed, str) else listed
    found = maps_in(listed) if isinstance(listed, list) else maps_in([listed])
    is_known = "base_model" in given.top and all(isinstance(each.get("path"), str) for each in found)
    return found if is_known else []


def _convert(given: Given, new: NewSpec) -> None:
    top = given.top
    entries, rows = _entries(given), new.whole(top, "micro_batch_size", 1) or 1
    train: dict[str, Any] = {"dataset": [_source(each, new) for each in entries]}
    if len(entries) > 1:
        new.note_concatenated()
    if (seed := new.whole(top, "seed")) is not None:
        new.spec["seed"] = seed
    is_tokenized = not any(each.get("type") for each in entries)
    if top.get("sample_packing") is True:
        train["batch"] = _pack(top, rows, is_tokenized, new)
    else:
        train["batch"] = rows
        new.note("templates and tokenizers are not converted: write them as a function of `map`")
        if not top.get("datasets"):
            new.note("texts were joined to rows of `sequence_len` tokens: write `batch: {pack: …}`")
    tested = [_source(each, new) for each in maps_in(top.get("test_datasets"))]
    new.set_splits(train, {"dataset": tested, "batch": rows} if tested else None)
    new.note_keys(top, _NOT_SAID)


def _pack(top: dict[Any, Any], rows: int, is_tokenized: bool, new: NewSpec) -> dict[str, Any]:
    """Rows as the multipack sampler makes them: with flash attention, a batch is one long row."""
    length = new.whole(top, "sequence_len", 1) or 512
    kinds = [top.get("attention"), top.get("attn_implementation"), *(key for key in top if top[key] is True)]
    is_flash = any(str(kind).startswith(("flash", "flex", "xformers")) for kind in kinds)
    real = top.get("multipack_real_batches")
    if rows > 1 and (is_flash if real is None else not real):
        new.note(
            f"samples had at most {length:,} tokens, and rows {rows} times as many: filter long ones with `select`"
        )
        length, rows = length * rows, 1
    keys: dict[str, Any] = {"overlong": _OVERLONG.get(str(top.get("excess_length_strategy")), "drop")}
    if top.get("sample_packing_sequentially") is True:
        keys["method"] = "in_order"
    batch = pack(new, length, rows, is_tokenized, position_ids="position_ids", **keys)
    if top.get("pad_to_sequence_len") is False:
        batch["max_cost"] = batch["pack"].pop("length")
    return batch


def _source(entry: dict[Any, Any], new: NewSpec) -> dict[str, Any]:
    path, subset = str(entry.get("path") or "unknown.tar"), entry.get("name")
    files = texts_in(entry.get("data_files"))
    is_local = path.startswith(("/", ".", "~")) or "://" in path or path.endswith(_SUFFIXES)
    if not files and is_local:
        files = [path if path.endswith(_SUFFIXES) else f"{path.rstrip('/')}/"]
    elif path not in _LOADERS and not is_local:
        files = [f"hf://datasets/{path}/{each}" for each in files]
    folder = f"hf://datasets/{path}/" + (f"{subset}/" if subset else "")
    wanted = "-".join(str(each) for each in (path.rpartition("/")[2], subset) if each)
    source = new.source("" if files else wanted, [new.path(each) for each in files] or folder)
    if not all(each.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")) for each in files or [folder]):
        new.note_unreadable(source["name"])
    used = {key: each for key, each in entry.items() if (key, each) != ("split", "train")}
    new.note_keys(used, _OF_SOURCE, source["name"])
    return source


DIALECT = Dialect("axolotl", "a configuration of axolotl", lambda given: bool(_entries(given)), _convert)
