"""Every key declares what it affects, the declaration is true, and the digests of states are made from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import Field
from shardmaking import write_shard

import wdspec
from wdspec.planning.digest import (
    IN_PLAN,
    IN_SOURCE,
    describe_order,
    describe_samples,
    differences,
    digest,
    digest_windows,
)
from wdspec.shards.shards import list_shards
from wdspec.spec.language.effects import Affects, AffectsOrder, AffectsSamples, declared_keys
from wdspec.spec.language.values import Model
from wdspec.spec.spec import Source, Spec
from wdspec.spec.validation import MERGED_SOURCE, MERGED_TOP, keys_of

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
    "errors.skip": ({}, {"errors": "skip"}),
    "errors.max_count": ({"errors": "skip"}, {"errors": {"max_count": 3}}),
    "errors.max_rate": ({"errors": "skip"}, {"errors": {"max_rate": 0.1}}),
    "errors.log": ({}, {"errors": {"log": "x"}}),
    "errors.retry": ({}, {"errors": {"retry": 3}}),
    "errors.timeout": ({}, {"errors": {"timeout": 3}}),
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
    **{
        f"source join.{key}": ({"join": [JOIN]}, {"join": [JOIN | {key: value}]})
        for key, value in {
            "shards": "b-{2..5}.tar",
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
    "top seed": ({}, {"seed": 1}),
    "top fields": ({}, {"fields": "txt"}),
    "top to_tuple": ({}, {"to_tuple": "txt"}),
    "top batch.size": ({}, {"batch": {"size": 6}}),
    "top batch.global_size": ({"batch": {"global_size": 8}}, {"batch": {"global_size": 16}}),
    "top batch.accumulate": ({}, {"batch": {"size": 4, "accumulate": True}}),
    "top batch.ragged": ({}, {"batch": {"size": 4, "ragged": "list"}}),
    "top batch.collate": ({}, {"batch": {"size": 4, "collate": {"txt": "list"}}}),
    "top costs": (
        {"batch": {"cost": "txt.length", "max_cost": 9}, "costs": {"p": "1"}},
        {"batch": {"cost": "txt.length", "max_cost": 9}, "costs": {"p": "2"}},
    ),
    "top batch.cost": (
        {"batch": {"cost": "txt.length", "max_cost": 9}},
        {"batch": {"cost": "txt.length + 1", "max_cost": 9}},
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
    "top epoch.batches": ({}, {"epoch": {"batches": 10}}),
    "top epoch.pass": ({"epoch": {"pass": "pad"}}, {"epoch": {"pass": "drop"}}),
    "top elastic.ranks": ({}, {"elastic": {"ranks": 4, "workers": 1}}),
    "top elastic.workers": ({}, {"elastic": {"ranks": 2, "workers": 2}}),
    "top loader.kind": ({}, {"loader": {"kind": "threads"}}),
    "top loader.workers": ({}, {"loader": {"workers": 2}}),
    "top loader.prefetch": ({}, {"loader": {"prefetch": 2}}),
    "top loader.pin_memory": ({}, {"loader": {"pin_memory": True}}),
    "top loader.persistent": ({}, {"loader": {"persistent": True}}),
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for name in "tu":
        row = dict.fromkeys(("__key__", "k", "id", "f", "g"), name)
        (folder / f"{name}.jsonl").write_text(json.dumps(row))
    for name, shards in (("a", 4), ("b", 6)):
        for shard in range(shards):
            samples = [(f"{name}{shard}{i}", {"txt": b"x"}) for i in range(3)]
            write_shard(folder / f"{name}-{shard}.tar", samples)
    return folder


def described(spec: dict[str, Any]) -> tuple[str, str]:
    loaded = wdspec.load(spec)
    # no cluster is asked: it would have to serve the shards
    local = {**spec, "aistore": None, "dataset": [{**each, "aistore": None} for each in spec["dataset"]]}
    order = describe_order(loaded, wdspec.plan(local), list_shards(wdspec.load(local)).files)
    json.dumps(order)  # plain
    return digest(order), describe_samples(loaded)


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


@pytest.mark.parametrize("name", sorted(KEYS))
def test_every_key_declares_what_it_affects(name):
    assert KEYS[name].affects is not None, (
        f"say what `{name}` affects where it is defined: AffectsOrder[…] or another"
    )


def test_the_test_covers_all_keys_of_the_language():
    for model, kind, merged in ((Spec, "top", MERGED_TOP), (Source, "source", MERGED_SOURCE)):
        firsts = {name.split()[1].split(".")[0] for name in KEYS if name.startswith(kind)}
        assert firsts | {"dataset"} | set(merged) == {*keys_of(model), *merged}


@pytest.mark.parametrize("name", sorted(set(KEYS) - NOT_IN_SOURCES))
def test_a_changed_key_changes_the_digests_that_it_declares(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before, after = (described(made(name, change)) for change in EXAMPLES[name])
    what = KEYS[name].affects.what
    assert (before[0] != after[0]) == (what == "order")
    if what != "order":
        assert (before[1] != after[1]) == (what == "samples")


@pytest.mark.parametrize("name", ["source rename", "top fields", "top to_tuple"])
def test_if_samples_without_fields_are_skipped_other_fields_change_the_order(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    skipping = {"defaults": {"missing": "skip"}}
    before, after = (described({**made(name, change), **skipping}) for change in EXAMPLES[name])
    assert KEYS[name].affects.order_if_skipping
    assert before[0] != after[0]


WHERE = {"where": "m.v == 1 and txt.length > default(t, 0)"}
READS = {
    "rename": ({"rename": {"m": "x.json"}}, {"rename": {"m": "y.json"}}),
    "rename to other files": ({"rename": {"m": "x.json"}}, {"rename": {"m": ["x.json", "y.json"]}}),
    "rename of another field from it": ({"rename": {"m": "x.json"}}, {"rename": {"m": "x.json", "n": "txt"}}),
    "tag": ({"tags": {"m": {"v": 1}}}, {"tags": {"m": {"v": 2}}}),
    "added tag": ({}, {"tags": {"t": 1}}),
    "decoder": ({}, {"decode": {"txt": "m:f"}}),
    "decoder of all": ({}, {"decode": "raw"}),
}


@pytest.mark.parametrize("name", READS)
def test_keys_that_decide_what_an_expression_reads_change_the_order(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    of_source = [described(made("source", change | WHERE)) for change in READS[name]]
    assert of_source[0][0] != of_source[1][0]
    apart = [described(made("source", change)) for change in READS[name]]
    assert apart[0][0] == apart[1][0]
    assert apart[0][1] != apart[1][1]


@pytest.mark.parametrize(
    "batch",
    [
        {"cost": "m.v + 1", "max_cost": 6},
        {"cost": "1", "max_cost": 6, "limits": {"m.v": 9}},
        {"cost": "1", "max_cost": 6, "balance": "m.v"},
        {"size": 4, "group_by": "m.v"},
        {"cost": "named", "max_cost": 6},
        {"pack": {"fields": ["m"], "length": 9}},
    ],
)
def test_keys_that_decide_what_samples_cost_change_the_order_and_the_windows(batch, folder, monkeypatch):
    monkeypatch.chdir(folder)
    costs = {"costs": {"named": "m.v"}} if batch.get("cost") == "named" else {}
    orders = []
    for old in ("x.json", "y.json"):
        spec = made("source", {"rename": {"m": old}}) | {"batch": batch, **costs}
        orders.append(describe_order(wdspec.load(spec), wdspec.plan(spec)))
    assert list(differences(*orders)) == ['costs.read.a.m.rename.m: was ["x.json"], now ["y.json"]']
    assert len({digest_windows(order) for order in orders}) == 2


MEASURES = {
    "cost": {"cost": "ids.length", "max_cost": 60},
    "named cost": {"cost": "named", "max_cost": 60},
    "limits": {"cost": "1", "max_cost": 6, "limits": {"ids.length": 90}},
    "balance": {"cost": "1", "max_cost": 6, "balance": "ids.length"},
    "group_by": {"size": 4, "group_by": "ids.length"},
    "pack": {"pack": {"fields": ["ids"], "length": 90}},
}


def windowed(batch, **more):
    """The description of the order with a field `ids`, made of a text, and its digest of windows."""
    sources = [{"name": "a", "shards": "a-{0..3}.tar", "extensions": "txt json", "rename": {"ids": "txt"}}]
    spec = wdspec.load(BASE | {"dataset": sources, "batch": batch, "costs": {"named": "ids.length"}} | more)
    order = describe_order(spec, wdspec.plan(spec))
    return order, digest_windows(order), describe_samples(spec)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"ids": "m:f"}, {"ids": "m:g"}),
        ({"ids": "m:f"}, {"ids": {"call": "m:f", "args": {"a": 1}}}),
        ({"ids": "m:f"}, {"ids": ["m:f", "m:g"]}),
        ({"ids": ["m:g", "m:f"]}, {"ids": ["m:f", "m:g"]}),
        ({"ids": {"call": "m:C", "method": "f"}}, {"ids": {"call": "m:C", "method": "g"}}),
        ({"call": "m:f", "sets": "ids"}, {"call": "m:g", "sets": "ids"}),
        ([{"call": "m:f"}, {"ids": "m:f"}], [{"call": "m:g"}, {"ids": "m:f"}]),
        (
            [{"json": "m:f"}, {"call": "m:f", "sets": "ids"}],
            [{"json": "m:g"}, {"call": "m:f", "sets": "ids"}],
        ),
        (None, {"ids": "m:f"}),
    ],
)
def test_functions_of_map_that_decide_what_is_measured_change_the_order(name, old, new, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (before, windows, _), (after, others, _) = (
        windowed(MEASURES[name], **({} if each is None else {"map": each})) for each in (old, new)
    )
    lines = list(differences(before, after))
    assert all(line.startswith("costs.read") for line in lines)
    assert lines
    assert windows != others


@pytest.mark.parametrize(
    ("batch", "old", "new"),
    [
        (MEASURES["cost"], {"ids": "m:f", "json": "m:f"}, {"ids": "m:f", "json": "m:g"}),
        (MEASURES["cost"], [{"ids": "m:f"}, {"json": "m:f"}], [{"json": "m:g"}, {"ids": "m:f"}]),
        ({"cost": "before_map(ids.length) / 3", "max_cost": 60}, {"ids": "m:f"}, {"ids": "m:g"}),
        ({"cost": "1", "max_cost": 6, "pack": {"fields": ["ids"]}}, {"ids": "m:f"}, {"ids": "m:g"}),
        ({"cost": "1", "max_cost": 6}, {"ids": "m:f"}, {"call": "m:g", "sets": "ids"}),
    ],
)
def test_functions_of_map_that_decide_no_measure_change_only_the_samples(
    batch, old, new, folder, monkeypatch
):
    monkeypatch.chdir(folder)
    before, after = windowed(batch, map=old), windowed(batch, map=new)
    assert before[:2] == after[:2]
    assert before[2] != after[2]


def test_fields_that_a_function_sets_and_nothing_reads_change_nothing(folder, monkeypatch):
    monkeypatch.chdir(folder)
    calls = [{"call": "m:f", **more} for more in ({}, {"sets": "ids"}, {"sets": ["ids", "labels"]})]
    bare, ids, both = (windowed({"cost": "json.v", "max_cost": 6}, map=[call]) for call in calls)
    assert bare == ids == both
    ids, both = (windowed(MEASURES["cost"], map=[call]) for call in calls[1:])
    assert ids == both


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"rename": {"n": "y.json"}}, {"where": "x.v == 1"}),
        ({"tags": {"n": 1}}, {"where": "json.v == 1"}),
        ({"decode": "rgb8"}, {"where": "json.v == 1 and jpg.width > 2"}),
        ({"decode": {"ids": "raw"}}, {"where": "npy.length > 2"}),
        ({"tags": {"n": 1}}, {"keys": ["a"], "keys_of": "json.uid"}),
    ],
)
def test_keys_that_no_expression_needs_do_not_change_the_order(change, more, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before, after = (described(made("source", each)) for each in (more, more | change))
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_the_decoder_of_a_bucket_changes_the_order(folder, monkeypatch):
    monkeypatch.chdir(folder)
    orders = []
    for size in (512, 1024):
        change = {"decode": {"jpg": f"rgb8+bucket={size}+step=64"}}
        orders.append(described(made("source", change) | {"batch": {"size": 4, "group_by": "jpg.bucket"}})[0])
    assert orders[0] != orders[1]


def test_inputs_of_the_plan_are_declared_to_affect_the_order():
    for kind, table in (("top", IN_PLAN), ("source", IN_SOURCE)):
        assert {KEYS[f"{kind} {key}"].affects._replace(only="") for key in table} == {Affects("order")}


class WithNewKeys(Source):
    """A source as it would be with two keys more, defined nowhere else."""

    jitter: AffectsOrder[int] = Field(0, description="A new key that affects the order.")
    hue: AffectsSamples[float] = Field(0.0, description="A new key that affects the samples.")


def with_new_keys(**values: Any) -> Spec:
    spec = wdspec.load({"elastic": {"ranks": 1, "workers": 1}, "dataset": [{"name": "a", **SOURCES["a"]}]})
    source = WithNewKeys.model_construct(**dict(spec.sources[0]), **values)
    return spec.model_copy(update={"dataset": (source,)})


def test_a_new_key_is_in_the_digests_by_its_declaration_alone():
    plain, other = with_new_keys(), with_new_keys(jitter=3, hue=0.5)
    plan = wdspec.plan(wdspec.load({"elastic": {"ranks": 1}, "dataset": [{"name": "a", **SOURCES["a"]}]}))
    assert list(differences(describe_order(plain, plan), describe_order(other, plan))) == [
        "sources.a.jitter: added"
    ]
    assert describe_samples(plain) != describe_samples(other)


def test_a_new_key_of_a_nested_mix_is_in_the_digest_of_the_order():
    spec = wdspec.load(
        {"elastic": {"ranks": 1}, "dataset": [{"name": "m", "dataset": [{"name": "a", **SOURCES["a"]}]}]}
    )
    plan = wdspec.plan(spec)
    nested = [
        spec.model_copy(
            update={"dataset": (WithNewKeys.model_construct(**dict(spec.dataset[0]), jitter=jitter),)}
        )
        for jitter in (0, 3)
    ]
    assert describe_order(nested[0], plan) == describe_order(spec, plan)
    assert list(differences(*(describe_order(each, plan) for each in nested))) == ["mixes: added"]


class Knob(Model):
    x: AffectsOrder[int] = Field(0, description="One of two.")


class WithKnobs(Source):
    knobs: tuple[Knob, ...] = Field((), description="A list of maps.")


def test_the_position_in_a_list_of_maps_is_in_the_digest():
    (key,) = (key for key in declared_keys(WithKnobs) if key.name == "knobs.x")
    one, two = (
        WithKnobs.model_construct(knobs=knobs) for knobs in ((Knob(x=1), Knob()), (Knob(), Knob(x=1)))
    )
    assert key.stated(one) == [1, None]
    assert key.stated(two) == [None, 1]
    assert key.stated(WithKnobs.model_construct(knobs=(Knob(), Knob()))) == []


ETL = {"aistore": {**AIS, "etl": "first-etl"}}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ETL, {}, True),
        (ETL, {"aistore": {"etl": "first-etl"}}, True),
        (ETL, {"aistore": {"etl": "second-etl"}}, False),
        (ETL, {"aistore": False}, False),
        (ETL, {"aistore": {"etl": False}}, False),
        ({"aistore": AIS}, {"aistore": False}, True),
    ],
)
def test_the_effective_etl_is_in_the_digest_of_the_samples(one, other, same):
    plain, changed = (
        wdspec.load({**one, "dataset": [{"name": "a", **SOURCES["a"], **keys}]}) for keys in ({}, other)
    )
    assert (describe_samples(plain) == describe_samples(changed)) is same


def test_the_order_of_keys_in_a_map_does_not_matter():
    keys = {
        "decode": {"jpg": "rgb8", "cls": "raw"},
        "rename": {"a": "jpg", "b": "cls"},
        "tags": {"x": 1, "y": {"p": 1}},
    }
    turned = {key: dict(reversed(value.items())) for key, value in keys.items()}
    one, other = (
        wdspec.load({"dataset": [{"name": "a", **SOURCES["a"], **values}]}) for values in (keys, turned)
    )
    assert describe_samples(one) == describe_samples(other)


def test_an_unused_key_leaves_the_digests_unchanged():
    plain = wdspec.load({"elastic": {"ranks": 1}, "dataset": [{"name": "a", **SOURCES["a"]}]})
    plan = wdspec.plan(plain)
    assert describe_order(with_new_keys(), plan) == describe_order(plain, plan)
    assert describe_samples(with_new_keys()) == describe_samples(plain)
