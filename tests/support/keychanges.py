"""Changes of every key, and specs of many kinds to try them in: which digests move?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from oracle.generator import Draw
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import WdspecError
from wdspec.planning.digest import describe_order, describe_samples, digest
from wdspec.shards.shards import list_shards
from wdspec.spec.language.effects import declared_keys
from wdspec.spec.reading import (
    digest_content,
    digest_costing,
    digest_decoding,
    digest_keeping,
    digest_shards,
)
from wdspec.spec.spec import Source, Spec

KEYS = {
    f"{kind} {key.name}": key
    for kind, model in (("top", Spec), ("source", Source))
    for key in declared_keys(model)
}

BASE = {"elastic": {"ranks": 2, "workers": 1}, "batch": {"size": 4}, "epoch": {"batches": 9}}
SOURCES = {"a": {"shards": "a-{0..3}.tar"}, "b": {"shards": "b-{0..5}.tar"}}

AIS = {"endpoint": "http://ais:51080", "use_for": "gs"}
CERTIFIED = {"client_crt": "c", "client_key": "k"}
ANYWHERE: dict[str, tuple[Any, Any]] = {
    "rewrite.from": ({"rewrite": [{"from": "x", "to": "y"}]}, {"rewrite": [{"from": "z", "to": "y"}]}),
    "rewrite.to": ({"rewrite": [{"from": "x", "to": "y"}]}, {"rewrite": [{"from": "x", "to": "z"}]}),
    "aistore.endpoint": ({"aistore": AIS}, {"aistore": {**AIS, "endpoint": "http://other:51080"}}),
    "aistore.use_for": ({"aistore": AIS}, {"aistore": {**AIS, "use_for": "s3"}}),
    **{
        f"aistore.{key}": ({"aistore": AIS}, {"aistore": {**AIS, key: value}})
        for key, value in {
            "token_file": "t",
            "client_ca": "c",
            "skip_verify_crt": True,
            "connect_timeout": 3,
            "read_timeout": 3,
            "checksum": "ignore",
            "latest": True,
            "namespace": "#n",
            "prefetch": 8,
        }.items()
    },
    **{
        f"aistore.{key}": ({"aistore": AIS | CERTIFIED}, {"aistore": AIS | CERTIFIED | {key: "other"}})
        for key in CERTIFIED
    },
    **{
        f"storage.{key}": ({}, {"storage": {key: value}})
        for key, value in {
            "endpoint": "http://s3.lab:9000",
            "profile": "lab",
            "region": "eu-central-1",
            "anonymous": True,
            "requester_pays": True,
            "options": {"version_aware": True},
            "env": {"secret": "LAB_SECRET"},
            "files": {"secret": "~/.lab"},
        }.items()
    },
    "aistore.etl.name": ({"aistore": {**AIS, "etl": "first-etl"}}, {"aistore": {**AIS, "etl": "second-etl"}}),
    **{
        f"aistore.etl.{key}": (
            {"aistore": {**AIS, "etl": "first-etl"}},
            {"aistore": {**AIS, "etl": {"name": "first-etl", key: value}}},
        )
        for key, value in {"args": {"size": 224}, "pipeline": ["second-etl"], "deterministic": True}.items()
    },
    "cache.dir": ({"cache": "x"}, {"cache": "y"}),
    "cache.size": ({"cache": {"dir": "x"}}, {"cache": {"dir": "x", "size": 9}}),
    "cache.verify": ({"cache": "x"}, {"cache": {"dir": "x", "verify": "once"}}),
    "errors.skip": ({}, {"errors": "skip"}),
    "errors.max_count": ({"errors": "skip"}, {"errors": {"max_count": 3}}),
    "errors.max_rate": ({"errors": "skip"}, {"errors": {"max_rate": 0.1}}),
    "errors.log": ({}, {"errors": {"log": "x"}}),
    "errors.retry": ({}, {"errors": {"retry": 3}}),
    "errors.timeout": ({}, {"errors": {"timeout": 3}}),
    "errors.slow_rate": ({}, {"errors": {"slow_rate": "2MB"}}),
    "errors.slow_after": ({}, {"errors": {"slow_after": "1m"}}),
    "errors.min_rate": ({}, {"errors": {"min_rate": "50kB"}}),
    "map.call": ({"map": "m:f"}, {"map": "m:g"}),
    "map.method": ({"map": "m:f"}, {"map": {"call": "m:f", "method": "g"}}),
    "map.with": (
        {"map": {"call": "m:f", "method": "g"}},
        {"map": {"call": "m:f", "method": "g", "with": {"a": 1}}},
    ),
    "map.args": ({"map": "m:f"}, {"map": [{"call": "m:f", "args": {"a": 1}}]}),
    "map.sets": ({"map": "m:f"}, {"map": [{"call": "m:f", "sets": "a"}]}),
}
SCHEDULE = [{"at": 0, "shares": {"a": 1, "b": 1}}]
JOIN = {"shards": "b-{0..3}.tar", "fields": "txt", "rename": {"c": "txt"}}
TABLE = {"table": "t.jsonl", "fields": "f"}
EXAMPLES: dict[str, tuple[Any, Any]] = {
    "source companions": ({}, {"companions": {"beside": {"shards": "b-{0..3}.tar", "chance": 0.5}}}),
    **{
        f"source join.{key}": ({"join": [JOIN]}, {"join": [JOIN | {key: value}]})
        for key, value in {
            "shards": "b-{2..5}.tar",
            "on": "json.name",
            "missing": "skip",
            "fields": "cls txt",
            "rename": {"d": "txt"},
            "format": "jsonl",
        }.items()
    },
    **{
        f"source lookup.{key}": ({"lookup": [TABLE]}, {"lookup": [TABLE | {key: value}]})
        for key, value in {
            "table": "u.jsonl",
            "on": "json.id",
            "key": "k",
            "fields": "g",
            "rename": {"g": "f"},
            "missing": "skip",
            "format": "jsonl",
        }.items()
    },
    **{f"top {key}": values for key, values in ANYWHERE.items()},
    **{f"source {key}": values for key, values in ANYWHERE.items()},
    "top wdspec": ({}, {"wdspec": 1}),
    "top name": ({}, {"name": "n"}),
    "top description": ({}, {"description": "d"}),
    "top requires": ({}, {"requires": "wdspec >= 0.1"}),
    "top meta": ({}, {"meta": {"owner": "vision"}}),
    "top mix.draw": ({}, {"mix": {"draw": "random"}}),
    "top mix.unit": ({}, {"mix": {"unit": "batch"}}),
    "top mix.schedule.at": (
        {"mix": {"schedule": [*SCHEDULE, {"at": 80, "shares": {"a": 1}}]}},
        {"mix": {"schedule": [*SCHEDULE, {"at": 160, "shares": {"a": 1}}]}},
    ),
    "top mix.schedule.ramp": (
        {"mix": {"schedule": [*SCHEDULE, {"at": 80, "shares": {"a": 1}}]}},
        {"mix": {"schedule": [*SCHEDULE, {"at": 80, "shares": {"a": 1}, "ramp": "linear"}]}},
    ),
    "top mix.schedule.shares": (
        {"mix": {"schedule": SCHEDULE}},
        {"mix": {"schedule": [{"at": 0, "shares": {"a": 1, "b": 2}}]}},
    ),
    "top mix.by": ({}, {"mix": {"by": "equal"}}),
    "top mix.cap": ({}, {"mix": {"cap": 4}}),
    "top mix.temperature": ({}, {"mix": {"temperature": 2}}),
    "top mix.shares_in": ({}, {"mix": {"shares_in": "cost"}}),
    "top map_batches.call": ({}, {"map_batches": "m:C"}),
    "top map_batches.args": ({"map_batches": "m:C"}, {"map_batches": {"call": "m:C", "args": {"a": 1}}}),
    "top map_batches.batch": ({"map_batches": "m:C"}, {"map_batches": {"call": "m:C", "batch": 2}}),
    "top map_batches.gpus": ({"map_batches": "m:C"}, {"map_batches": {"call": "m:C", "gpus": 1}}),
    "top seed": (
        {"map_batches": "m:C"},
        {"map_batches": "m:C", "seed": 1},
    ),  # without a function, nothing draws numbers
    "top fields": ({}, {"fields": "txt"}),
    "top to_tuple": ({}, {"to_tuple": "txt"}),
    "top batch.size": ({}, {"batch": {"size": 6}}),
    "top batch.global_size": ({"batch": {"global_size": 8}}, {"batch": {"global_size": 16}}),
    "top batch.accumulate": ({}, {"batch": {"size": 4, "accumulate": True}}),
    "top batch.ragged": ({}, {"batch": {"size": 4, "ragged": "list"}}),
    "top batch.collate": ({}, {"batch": {"size": 4, "collate": {"txt": "list"}}}),
    "top costs": (
        {"batch": {"cost": "q", "max_cost": 9}, "costs": {"q": "txt.length"}},
        {"batch": {"cost": "q", "max_cost": 9}, "costs": {"q": "txt.length + 1"}},
    ),
    "top batch.cost": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length + 1", "max_cost": 9}},
    ),
    "top batch.max_tokens": (
        {"batch": {"cost": "2", "max_tokens": 9}},
        {"batch": {"cost": "2", "max_tokens": 8}},
    ),
    "top batch.max_cost": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 8}},
    ),
    "top batch.padded": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 9, "padded": False}},
    ),
    "top batch.max_size": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 9, "max_size": 3}},
    ),
    "top batch.size_multiple": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 9, "size_multiple": 2}},
    ),
    "top batch.window": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 9, "window": 30}},
    ),
    "top batch.overlong": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 9, "overlong": "drop"}},
    ),
    "top batch.limits": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 9, "limits": {"1": 3}}},
    ),
    "top batch.balance": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length", "max_cost": 9, "balance": "1"}},
    ),
    "top batch.group_by": (
        {"batch": {"size": 4, "group_by": "txt"}},
        {"batch": {"size": 4, "group_by": "__key__"}},
    ),
    "top batch.group_wait": (
        {"batch": {"size": 4, "group_by": "txt"}},
        {"batch": {"size": 4, "group_by": "txt", "group_wait": 30}},
    ),
    "top batch.incomplete": (
        {"batch": {"size": 4, "group_by": "txt"}},
        {"batch": {"size": 4, "group_by": "txt", "incomplete": "drop"}},
    ),
    "top batch.pack.fields": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt", "x"], "length": 9}}},
    ),
    "top batch.pack.length": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 8}}},
    ),
    "top batch.pack.method": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 9, "method": "in_order"}}},
    ),
    "top batch.pack.pad_to_multiple_of": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 9, "pad_to_multiple_of": 3}}},
    ),
    "top batch.pack.pad": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 9, "pad": {"txt": 1}}}},
    ),
    "top batch.pack.position_ids": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 9, "position_ids": "p"}}},
    ),
    "top batch.pack.cu_seqlens": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 9, "cu_seqlens": "p"}}},
    ),
    "top batch.pack.max_seqlen": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 9, "max_seqlen": "p"}}},
    ),
    "top batch.pack.segment_ids": (
        {"batch": {"pack": {"fields": ["txt"], "length": 9}}},
        {"batch": {"pack": {"fields": ["txt"], "length": 9, "segment_ids": "p"}}},
    ),
    "top stage.call": ({}, {"stage": "m:f"}),
    "top stage.args": ({"stage": "m:f"}, {"stage": {"call": "m:f", "args": {"a": 1}}}),
    "top stage.every": ({"stage": "m:f"}, {"stage": {"call": "m:f", "every": 64}}),
    "top epoch.samples": ({"epoch": 80}, {"epoch": 160}),
    "top epoch.tokens": ({"epoch": {"tokens": 80}}, {"epoch": {"tokens": 160}}),
    "top epoch.batches": ({}, {"epoch": {"batches": 10}}),
    "top epoch.reshuffle": ({"epoch": {"pass": "pad"}}, {"epoch": {"pass": "pad", "reshuffle": True}}),
    "top epoch.pass": ({"epoch": {"pass": "pad"}}, {"epoch": {"pass": "drop"}}),
    "top elastic.ranks": ({}, {"elastic": {"ranks": 4, "workers": 1}}),
    "top elastic.workers": ({}, {"elastic": {"ranks": 2, "workers": 2}}),
    "top loader.kind": ({}, {"loader": {"kind": "threads"}}),
    "top loader.workers": ({}, {"loader": {"workers": 2}}),
    "top loader.prefetch": ({}, {"loader": {"prefetch": 2}}),
    "top loader.pin_memory": ({}, {"loader": {"pin_memory": True}}),
    "top loader.persistent": ({}, {"loader": {"persistent": True}}),
    "top loader.fetch_memory": ({}, {"loader": {"fetch_memory": "1MB"}}),
    "top loader.timeout": ({}, {"loader": {"timeout": 3}}),
    "top output.dir": ({}, {"output": "out/"}),
    "top output.from": ({"output": {"from": "a", "to": "b"}}, {"output": {"from": "c", "to": "b"}}),
    "top output.to": ({"output": {"from": "a", "to": "b"}}, {"output": {"from": "a", "to": "c"}}),
    "top skip": ({}, {"skip": "3..4"}),
    "top allow": ({}, {"allow": ["pickle"]}),
    "top stats": ({}, {"stats": "nowhere.json"}),
    "top limit": ({"epoch": "pass"}, {"epoch": "pass", "limit": 11}),
    "source probability": ("a 0.5 b 0.5", "a 0.4 b 0.6"),
    "source weight": ("a 1 b 1", "a 1 b 2"),
    "source upsample": ({}, {"upsample": 2}),
    "source extensions": ({}, {"extensions": "txt"}),
    "source missing": ({}, {"missing": "skip"}),
    "source rename": ({}, {"rename": {"text": "txt"}}),
    "source decode": ({}, {"decode": "raw"}),
    "source fetch": (
        {"fetch": {"image": {"url": "json.a", "root": "s3://b/"}}},
        {"fetch": {"image": {"url": "json.b", "root": "s3://b/"}}},
    ),
    "source make": (
        {"make": {"size": {"label": "txt", "names": ["x", "xx", "xxx"]}}},
        {"make": {"size": {"label": "txt", "names": ["xxx", "xx", "x"]}}},
    ),
    "source scale": ({}, {"scale": 0.5}),
    "source scaleprob": ({"scale": 0.5}, {"scale": 0.5, "scaleprob": 0.1}),
    "source max_passes": ({"samples": 9, "max_passes": 4}, {"samples": 9, "max_passes": 5}),
    "source on_exhausted": (
        {"samples": 9, "max_passes": 4},
        {"samples": 9, "max_passes": 4, "on_exhausted": "drop"},
    ),
    "source repeat": ({"repeat": 2}, {"repeat": 2.5}),
    "source where": ({"where": "txt.length > 1"}, {"where": "txt.length > 2"}),
    "source subset": ({"subset": "10%"}, {"subset": "20%"}),
    "source keys": ({}, {"keys": ["a"]}),
    "source exclude": ({"exclude": ["a"]}, {"exclude": ["a", "b"]}),
    "source keys_of": ({"keys": ["a"]}, {"keys": ["a"], "keys_of": "txt"}),
    "source select": ({}, {"select": "m:f"}),
    "source shuffle": ({}, {"shuffle": 10}),
    "source order": ({}, {"order": "sequential"}),
    "source empty": ({}, {"empty": "allow"}),
    "source interleave": ({}, {"interleave": 2}),
    "source key.kind": ({}, {"key": "last_dot"}),
    "source key.regex": ({"key": {"regex": "(.)(.)"}}, {"key": {"regex": "(..)(.)"}}),
    "source tags": ({}, {"tags": {"lang": "en"}}),
    "source license": ({}, {"license": "CC0-1.0"}),
    "source homepage": ({}, {"homepage": "https://example.org"}),
    "source revision": ({}, {"revision": "v2"}),
    "source meta": ({}, {"meta": {"owner": "vision"}}),
    "source samples": (10, 20),
    "source bytes": (10, 20),
    "source mean_cost": (10, 20),
    "source format": ({}, {"format": "tar"}),
    "source expect.fields": ({}, {"expect": {"fields": {"cls": {"classes": 10}}}}),
    "source expect.samples": ({}, {"expect": {"samples": [1, None]}}),
    "source expect.dropped": ({}, {"expect": {"dropped": 0.1}}),
    "source tokens.length": ({"tokens": {"length": 8}}, {"tokens": {"length": 16}}),
    "source tokens.eos": ({"tokens": {"eos": 1}}, {"tokens": {"eos": 0}}),
    "source tokens.dtype": ({"tokens": {"dtype": "uint16"}}, {"tokens": {"dtype": "int32"}}),
    "source tokens.vocabulary": ({"tokens": {"vocabulary": 8}}, {"tokens": {"vocabulary": 16}}),
    "source tar.end": ({}, {"tar": {"end": "lenient"}}),
    "source name": ({}, {"name": "c"}),
    "source shards": ({}, {"shards": "a-{0..2}.tar"}),
    # a nested mix alone has these
    "source mix.by": ("nested", {"by": "equal"}),
    "source mix.cap": ("nested", {"cap": 4}),
    "source mix.temperature": ("nested", {"temperature": 2}),
    "source mix.shares_in": ("nested", {"shares_in": "cost"}),
}
NOT_IN_SOURCES = {
    f"source mix.{key}" for key in ("draw", "unit", "schedule.at", "schedule.shares", "schedule.ramp")
}


def made(name: str, change: Any) -> dict[str, Any]:
    kind, _, key = name.partition(" ")
    a, b = ({"name": each, **options} for each, options in SOURCES.items())
    by_cost = {"batch": {"cost": "txt.length", "max_cost": 9}}
    costs = {"a": {"mean_cost": 10}, "b": {"mean_cost": 30}}
    if key == "mix.shares_in":
        dataset = [a | costs["a"], b | costs["b"]]
        if kind == "top":
            return {**BASE, **by_cost, **change, "dataset": dataset}
        mix = {} if change == "nested" else {"mix": change}
        return {**BASE, **by_cost, "dataset": [{"name": "in", "dataset": dataset, **mix}]}
    if key == "mean_cost":
        return {
            **BASE,
            **by_cost,
            "mix": {"shares_in": "cost"},
            "dataset": [a | {key: change}, b | costs["b"]],
        }
    if kind == "top":
        return {**BASE, **change, "dataset": [a, b]}
    if key.startswith("mix."):
        mix = {} if change == "nested" else {"mix": change}
        return {**BASE, "dataset": [{"name": "in", "dataset": [a, b], **mix}]}
    if key == "repeat":
        return {**BASE, "epoch": "pass", "dataset": [a | change, b]}
    if key in ("samples", "bytes"):
        return {**BASE, "mix": {"by": key}, "dataset": [a | {key: change}, b | {key: 9}]}
    if key in ("probability", "weight"):
        _, first, _, second = change.split()
        return {**BASE, "dataset": [a | {key: float(first)}, b | {key: float(second)}]}
    return {**BASE, "dataset": [a | change, b]}


Json = dict[str, Any]
BY_COST = {"batch": {"cost": "txt.length", "max_cost": 9, "max_size": 8}}
BY_FUNCTION = {"batch": {"cost": "m:cost", "max_cost": 9}}
AFTER_MAP = {"batch": {"cost": "ids.length", "max_cost": 9}, "map": [{"call": "m:f", "sets": "ids"}]}
GROUPS = {"batch": {"size": 4, "group_by": "txt"}}
SHARED = {"mix": {"shares_in": "cost"}}
SHARD, DECODED = "shard damage", "shard damage choice values"
CONTENT = "shard choice values cost packing"
CHOSEN, COSTS = "shard damage choice again", "shard damage choice cost"
IN_A_PASS = frozenset({"epoch"})


class Context(NamedTuple):
    """A kind of spec: keys that are laid below those of a change."""

    top: Json
    source: Json
    costing: str = COSTS
    """The steps on which the digest of costs depends."""
    needs: frozenset[str] = frozenset()
    """The keys of the top level that make it what it is: changes of these are not tried in it."""


CONTEXTS = {
    "plain": Context({}, {}),
    "kept": Context(
        {"costs": {"q": "txt.length"}}, {"where": "q > 0", "extensions": "txt json", "missing": "none"}
    ),
    "parts": Context(
        {},
        {
            "subset": "50%",
            "join": [{"shards": "b-{0..3}.tar", "fields": "txt", "rename": {"c": "txt"}, "missing": "none"}],
            "lookup": [{"table": "t.jsonl", "fields": "f", "missing": "none"}],
        },
    ),
    "skipping": Context({"errors": {"skip": True}}, {"missing": "skip", "where": "txt.length > 0"}),
    "cost": Context({**BY_COST, **SHARED}, {"where": "txt.length > 0"}),
    "cost skipping": Context({**BY_COST, **SHARED}, {"missing": "skip"}),
    "cost by function": Context({**BY_FUNCTION, **SHARED}, {"select": "m:yes"}, f"{COSTS} values"),
    "cost after map": Context({**AFTER_MAP, **SHARED}, {}, f"{COSTS} values", frozenset({"map"})),
    "pack": Context({"batch": {"pack": {"fields": ["txt"], "length": 9}}, **SHARED}, {}),
    "pass": Context({"epoch": "pass"}, {"repeat": 1.5}, f"{COSTS} packing", IN_A_PASS),
    "pass by cost": Context({"epoch": "pass", **BY_COST}, {}, f"{COSTS} packing", IN_A_PASS),
    "pass by cost of a selection": Context(
        {"epoch": "pass", **BY_COST, "costs": {"q": "txt.length"}},
        {"where": "q > 0", "missing": "skip"},
        f"{COSTS} packing",
        IN_A_PASS,
    ),
    "pass by cost by function": Context(
        {"epoch": "pass", **BY_FUNCTION}, {}, f"{COSTS} packing values", IN_A_PASS
    ),
    "groups": Context(GROUPS, {}),
    "pass of groups": Context({"epoch": "pass", **GROUPS}, {}, f"{COSTS} packing", IN_A_PASS),
    "tokens": Context({}, {"tokens": {"length": 8}}),
    "stage": Context({"stage": "m:f"}, {}),
    "served": Context({"aistore": {"endpoint": "http://ais:51080", "etl": {"name": "first-etl"}}}, {}),
}


def write_data(folder: Path) -> None:
    """Write the shards, tables and functions that the changes name."""
    for name in "tu":
        row = dict.fromkeys(("__key__", "k", "id", "f", "g"), name)
        (folder / f"{name}.jsonl").write_text(json.dumps(row))
    for name, shards in (("a", 4), ("b", 6)):
        for shard in range(shards):
            samples = [(f"{shard}{i}", {"txt": b"x" * (i + 1), "json": b'{"id": 1}'}) for i in range(3)]
            write_shard(folder / f"{name}-{shard}.tar", samples)
    functions = (
        "def f(s, **_): return s\ng = f\ndef yes(s): return True\ndef cost(s): return 1\nclass C: pass\n"
    )
    (folder / "m.py").write_text(functions)


def _lay(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _lay(below.get(key), value) for key, value in above.items()}}


def in_context(document: Json, context: Context) -> Json:
    """Lay a document over the keys of a context."""
    rest = {key: value for key, value in document.items() if key != "dataset"}
    if "batch" in context.top and rest.get("batch") == BASE["batch"]:
        del rest["batch"]
    if "epoch" in context.top and rest.get("epoch") == BASE["epoch"]:
        del rest["epoch"]
    measured = {"mean_cost": 10} if "mix" in context.top else {}

    def lay(sources: list[Json]) -> list[Json]:
        first, *others = sources
        if "dataset" in first:
            return [{**first, "dataset": lay(first["dataset"])}, *others]
        return [_lay(measured | context.source, first), *(_lay(measured, each) for each in others)]

    return {**_lay(context.top, rest), "dataset": lay(document["dataset"])}


def digests_of(document: Json, name: str) -> tuple[Spec, dict[str, str]]:
    """A spec, and all digests of it and of the source with a name (or its first), without those that do not exist."""
    return _digests_of(json.dumps(document), name, os.getcwd())


@lru_cache(maxsize=300)  # most keys are changed in the same specs
def _digests_of(text: str, name: str, _: str) -> tuple[Spec, dict[str, str]]:
    document = json.loads(text)
    spec = local = wdspec.load(document)
    source = next((each for each in spec.sources if each.name == name), spec.sources[0])
    if '"aistore"' in text:  # no cluster is asked: it would have to serve the shards
        sources = [{**each, "aistore": None} for each in document["dataset"]]
        local = wdspec.load({**document, "aistore": None, "dataset": sources})
    files: dict[str, dict[str, str]] = {}
    order = ""
    try:
        files = dict(list_shards(local).files)
        order = digest(describe_order(spec, wdspec.plan(local), files))
    except (WdspecError, ImportError, OSError):
        pass
    own = files.get(source.name, {})
    found = {
        "order": order,
        "samples": describe_samples(spec, files),
        "content": digest_content(spec, source, own),
        "shards": digest_shards(spec, source) or "nothing",
        "decoding": digest_decoding(spec, source, own),
        "keeping": digest_keeping(spec, source, own),
        "costing": digest_costing(spec, source, own),
    }
    return spec, {key: value for key, value in found.items() if value}


def moves(name: str, before: Json, after: Json) -> Iterator[tuple[str, set[str], set[str]]]:
    """For each context in which a changed key is legal: its name, the digests of both specs, and those that differ."""
    kind, _, path = name.partition(" ")
    for title, context in CONTEXTS.items():
        if kind == "top" and path.partition(".")[0] in context.needs:
            continue
        try:
            (spec, one), (changed, other) = (
                digests_of(in_context(each, context), "a") for each in (before, after)
            )
        except WdspecError:
            continue
        both = one.keys() & other.keys()
        if spec != changed:
            yield title, both, {key for key in both if one[key] != other[key]}


@cache
def _drawn() -> dict[str, list[Any]]:
    """Values of keys in specs that are drawn from the JSON Schema, by the path of the key, without repetition."""
    found: dict[str, list[Any]] = {}

    def walk(value: Any, path: str) -> None:
        values = found.setdefault(path, [])
        if value not in values:
            values.append(value)
        if isinstance(value, dict):
            for key, each in value.items():
                walk(each, f"{path}.{key}")

    for seed in range(150):
        spec = json.loads(json.dumps(Draw(f"keys {seed}").spec))
        for key, value in spec.items():
            if key != "dataset":
                walk(value, f"top {key}")
        for source in spec["dataset"]:
            for key, value in source.items():
                walk(value, f"source {key}")
    return found


def draw_changes(name: str, count: int) -> list[tuple[Json, Json]]:
    """Changes of a key between two values that the JSON Schema allows: the maps with the key, before and after."""
    _, _, path = name.partition(" ")
    found = []
    values = _drawn().get(name, [])
    for before, after in pairwise(values):
        for value in (before, after):
            change = value
            for key in reversed(path.split(".")):
                change = {key: change}
            found.append(change)
    return list(zip(found[::2], found[1::2], strict=True))[:count]
