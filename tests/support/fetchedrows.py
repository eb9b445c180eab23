"""Rows that name objects, and what a loader makes of them."""

import json

import wdspec


def jsonl(path, rows):
    """Write a shard of JSON Lines; return its path."""
    path.write_text("".join(f"{json.dumps({'__key__': str(at), **row})}\n" for at, row in enumerate(rows)))
    return str(path)


def read(shards, entry, rows=1, **more):
    """The values of the field `bin` of the first samples of a source, in order, and its counts."""
    source = {"shards": shards, "name": "a", "shuffle": 0, "interleave": 1, "fetch": {"bin": entry}}
    source |= more.pop("source", {})
    with wdspec.loader({"dataset": [source], "epoch": rows, **more}, num_workers=0) as loader:
        return [sample["bin"] for sample in loader], loader.stats().sources["a"]
