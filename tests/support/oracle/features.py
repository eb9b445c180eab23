"""The features of the language that affect the order: which keys belong to each, and what switches it on.

A feature is switched on by a function that changes a draft of a case. Features are switched on in the order of
`FEATURES`: those that replace the sources come first, so that later ones can ask which fields there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from oracle.data import SHARDS
from wdspec.spec.language.effects import declared_keys
from wdspec.spec.load import load
from wdspec.spec.spec import Source, Spec

Fragment = dict[str, Any]
SOURCES = {name: SHARDS[name] for name in ("a", "b", "c", "e", "tiny")}
"""Name of a source of the base specs -> its shards."""
DATA = {"small": ("c", "tiny"), "mixed": ("a", "b", "c"), "large": ("e", "a"), "one": ("a",)}
"""Size of the data -> the sources of a base spec."""


@dataclass
class Draft:
    """A case in the making."""

    spec: Fragment
    calls: list[list[Any]] = field(default_factory=list)
    """What the training loop calls, as [step, method, arguments, keywords]: before it requests that step."""

    @property
    def sources(self) -> list[Fragment]:
        """The sources, of nested mixes as well."""
        return [leaf for each in self.spec["dataset"] for leaf in each.get("dataset", [each])]

    @property
    def has_tokens(self) -> bool:
        """Whether all samples consist of tokens."""
        return all("tokens" in source for source in self.sources)

    @property
    def ids(self) -> str:
        """The field with one-dimensional arrays."""
        if self.has_tokens:
            return "tokens"
        return "ids" if self.sources[0]["name"] in ("rows", "parquet", "arrow") else "ids.npy"

    @property
    def text(self) -> str:
        """The field to measure: text, or tokens."""
        return "tokens" if self.has_tokens else "txt"

    @property
    def size(self) -> str:
        """The expression for the length of `text`."""
        return f"{self.text}.length"

    def batch(self, **keys: Any) -> None:
        """Set keys of `batch`; None removes one."""
        merge(self.spec["batch"], keys)

    def each(self, **keys: Any) -> None:
        """Set keys of every source; None removes one."""
        for source in self.sources:
            merge(source, keys)

    def remove_weights(self) -> None:
        """Remove the weights of the top level."""
        for source in self.spec["dataset"]:
            source.pop("weight", None)

    @property
    def shares(self) -> list[str]:
        """The names of the top-level sources."""
        return [each["name"] for each in self.spec["dataset"]]


def merge(into: Fragment, keys: Fragment) -> None:
    """Merge maps into maps; None removes a key."""
    for key, value in keys.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def base(data: str = "mixed", ranks: int = 2, workers: int = 2) -> Draft:
    """A plain mix, with weights 3, 2 and 1."""
    return Draft(
        {
            "seed": 7,
            "dataset": [
                {"name": name, "shards": SOURCES[name], "weight": weight}
                for name, weight in zip(DATA[data], (3, 2, 1), strict=False)
            ],
            "defaults": {"shuffle": 8, "interleave": 2, "extensions": "txt json ids.npy labels.npy"},
            "batch": {"size": 3, "ragged": "list"},
            "epoch": {"batches": 6},
            "elastic": {"ranks": ranks, "workers": workers},
        }
    )


def _companions(draft: Draft) -> None:
    draft.spec["companions"] = {
        "near": {"shards": "tiny-000.tar", "shuffle": 4},
        "far": {"shards": "b-{000..011}.tar", "order": "resampled"},
    }
    draft.each(
        companions={
            "beside": {"source": "near", "chance": 0.5},
            "others": {"source": "far", "count": 2},
        },
        map="oracle_functions:tell_companions",
    )


@dataclass(frozen=True)
class Feature:
    """One feature."""

    keys: tuple[str, ...]
    """The keys that belong to it: `batch.cost`; those of sources as `dataset.where`."""
    switch: Callable[[Draft], None]
    """Switches it on."""
    constraint: str = ""
    """What it rules out, or needs."""


def _tokens(draft: Draft) -> None:
    draft.spec["dataset"] = [
        {"name": "npy", "shards": "ids-{000..001}.npy", "tokens": {"length": 16}, "weight": 3},
        {"name": "mega", "shards": "mega-{000..001}.bin", "weight": 1, "tokens": {"vocabulary": 5000}},
    ]
    draft.spec["defaults"].pop("extensions")


def _tables(draft: Draft) -> None:
    tables = [
        {"name": "parquet", "shards": "parquet-{000..001}.parquet", "weight": 3},
        {"name": "arrow", "shards": "arrow-{000..001}.arrow", "weight": 2},
    ]
    if draft.has_tokens:  # arrays of the same name
        draft.spec["dataset"].append(tables[0] | {"extensions": "ids", "rename": {"tokens": "ids"}})
        return
    draft.spec["defaults"]["extensions"] = "txt json ids labels"
    draft.spec["dataset"] = tables


def _pass(draft: Draft) -> None:
    draft.spec["epoch"] = "pass"
    draft.spec.pop("mix", None)
    draft.remove_weights()


def _window(draft: Draft) -> None:
    draft.batch(size=None, cost=draft.size, max_cost=100, window=14, overlong="alone")


def _group(draft: Draft) -> None:
    group = "tokens.length > 20" if draft.has_tokens else "json.lang"
    draft.batch(group_by=group, group_wait=14, window=6, incomplete="merge")


def _pack(draft: Draft) -> None:
    fields = [draft.ids]
    if not draft.has_tokens:
        fields.append("labels" if draft.ids == "ids" else "labels.npy")
    pack = {
        "fields": fields,
        "length": 64,
        "pad": {fields[-1]: -100},
        "cu_seqlens": "cu",
        "position_ids": "at",
    }
    draft.batch(size=None, max_cost=64, cost=None, ragged=None, overlong=None, window=14, pack=pack)


def _max_passes(draft: Draft) -> None:
    draft.sources[-1].update(max_passes=1, samples=7, on_exhausted="drop")


def _stop(draft: Draft) -> None:
    draft.sources[0].update(max_passes=1.5, samples=30, on_exhausted="stop")


def _skip(draft: Draft) -> None:
    draft.spec["skip"] = ["2..3", 7]


def _schedule(draft: Draft) -> None:
    first, last = draft.shares[0], draft.shares[-1]
    draft.remove_weights()
    even = dict.fromkeys(draft.shares, 1)
    draft.spec["mix"] = {
        "schedule": [
            {"at": 0, "shares": even},
            {"at": 24, "shares": {**even, first: 4}},
            {"at": 60, "shares": {first: 1, last: 3}, "ramp": "linear"},
        ]
    }


def _live_shares(draft: Draft) -> None:
    first, last = draft.shares[0], draft.shares[-1]
    draft.calls += [[2, "set_shares", [{first: 1, last: 3}], {}], [7, "set_shares", [{first: 1}], {}]]


def _selection(draft: Draft) -> None:
    if draft.has_tokens:
        draft.each(where="tokens.length > 9", subset="80%")
        return
    draft.each(where="json.score >= 2", subset="80%")
    draft.sources[0]["exclude"] = "@bad.txt"


def _join(draft: Draft) -> None:
    partners = {
        "a": "a-gaps-{000..004}.tar",
        "b": "b-gaps-{000..011}.tar",
        "parquet": "a-gaps-{000..001}.tar",
        "arrow": "b-gaps-{000..001}.tar",
    }
    for source in draft.sources:
        shards = partners.get(source["name"], "a-gaps-{000..001}.tar")
        missing = "skip" if source["name"] == "a" else "none"
        if source["name"] not in ("c", "tiny", "e"):
            source["join"] = [{"shards": shards, "fields": "caption.txt", "missing": missing}]
            source["extensions"] = f"{draft.spec['defaults'].get('extensions', '')} caption.txt".strip()
        else:
            source["missing"] = "none"
            source["extensions"] = f"{draft.spec['defaults'].get('extensions', '')} caption.txt".strip()


def _lookup(draft: Draft) -> None:
    table = {"table": "all.parquet", "fields": "grade mark", "rename": {"level": "grade"}}
    draft.each(lookup=[table])
    if not draft.has_tokens:
        draft.sources[0]["lookup"] = [
            table,
            {"table": "ns.csv", "on": "json.n", "fields": "kind", "missing": "skip"},
        ]
        for source in draft.sources[1:]:
            source["lookup"] = [
                table,
                {"table": "ns.csv", "on": "json.n", "fields": "kind", "missing": "none"},
            ]


def _make(draft: Draft) -> None:
    if draft.has_tokens:
        return
    text = {"tokenize": "txt", "file": "letters.json", "eos": "<end>", "truncate": 30}
    lang = {"label": "json.lang", "names": ["en", "de"], "aliases": {"french": "en"}, "unknown": 7}
    draft.each(
        make={
            "lang_id": lang,
            "word_ids": text,
            "kind_id": {"label": "lang_id", "names": {"0": 3}, "unknown": 5},
        }
    )
    draft.each(where="kind_id < 5 or word_ids.length > 12 and json.n != 2")
    batch = draft.spec["batch"]
    if "pack" in batch:
        batch["pack"] = {"fields": ["word_ids"], "length": 64, "segment_ids": "segments"}
    elif "cost" in batch:
        batch["cost"] = "word_ids.length + lang_id"


def _fetch(draft: Draft) -> None:
    if not draft.has_tokens:
        draft.each(fetch={"object.txt": {"url": "json.lang", "root": "objects/", "missing": "skip"}})


def _stage(draft: Draft) -> None:
    function = "by_key" if draft.has_tokens else "by_length"
    draft.spec["stage"] = {"call": f"oracle_functions:{function}", "args": {"hold": 4}, "every": 10}


def _repeat(draft: Draft) -> None:
    if draft.spec["epoch"] != "pass":
        _pass(draft)
    draft.sources[0]["repeat"] = 2.5
    draft.sources[-1]["repeat"] = 0.6 if len(draft.sources) > 1 else 2.5


def _reshuffle(draft: Draft) -> None:
    if draft.spec["epoch"] != "pass":
        _pass(draft)
    draft.spec["epoch"] = {"pass": "drop", "reshuffle": True}


def _threads(draft: Draft) -> None:
    draft.spec["loader"] = {"kind": "threads", "workers": 2}


def _mix(draft: Draft) -> None:
    draft.spec["mix"] = {"draw": "random"}


def _nested(draft: Draft) -> None:
    first, *others = draft.spec["dataset"]
    inner = {"name": "inner", "weight": 2, "mix": {"by": "samples", "temperature": 2}, "dataset": others}
    draft.spec["dataset"] = [first, inner]
    for source, count in zip(others, (28, 7), strict=False):
        source.update(samples=count)
        source.pop("weight", None)


def _sizes(draft: Draft) -> None:
    draft.spec["mix"] = {"by": "samples", "cap": 12, "temperature": 2}
    draft.each(weight=None)
    for source, count in zip(draft.sources, (30, 28, 7), strict=False):
        source["samples"] = count


def _shuffle(draft: Draft) -> None:
    draft.spec["defaults"].update(shuffle=30, interleave=4)
    draft.sources[0].update(order="sequential", interleave=1)


def _topology(draft: Draft) -> None:
    draft.spec["elastic"] = {"ranks": 3, "workers": 1}
    draft.spec["seed"] = 99
    draft.batch(size=None, global_size=12)


def _limit(draft: Draft) -> None:
    draft.spec["limit"] = 24


def _fields(draft: Draft) -> None:
    draft.spec["defaults"].update(
        missing="skip", extensions="txt cls json", rename={"text": "txt", "label": "cls"}
    )
    draft.spec["fields"] = ["text", "label"]
    draft.spec["to_tuple"] = (
        "__key__ text label __mask__" if draft.spec["epoch"] == "pass" else "__key__ text label"
    )


def _key(draft: Draft) -> None:
    dotted = {"name": "dotted", "shards": "dotted-{000..001}.tar", "key": "last_dot", "weight": 1}
    draft.spec["dataset"].append(dotted)
    draft.spec["defaults"]["extensions"] = "txt"


def _expect(draft: Draft) -> None:
    draft.each(expect={"fields": {"txt": {"type": "str", "length": [1, 40]}}})


def _token_shares(draft: Draft) -> None:
    if not draft.spec["batch"].keys() & {"cost", "pack", "group_by"}:
        _window(draft)
    draft.spec["mix"] = {"shares_in": "cost"}
    for source, cost in zip(draft.sources, (12, 30, 20), strict=False):
        source["mean_cost"] = cost


FEATURES: dict[str, Feature] = {
    "tokens": Feature(
        ("dataset.tokens.length", "dataset.tokens.eos", "dataset.tokens.vocabulary"),
        _tokens,
        "samples have no other fields; no join",
    ),
    "tables": Feature(("dataset.shards",), _tables, "rows in Parquet and Arrow; arrays have other names"),
    "nested": Feature(
        tuple(
            f"dataset.mix.{key}"
            for key in (
                *("draw", "unit", "schedule.at", "schedule.shares", "schedule.ramp"),
                *("by", "cap", "shares_in", "temperature"),
            )
        ),
        _nested,
    ),
    "pass": Feature(
        ("epoch.pass",), _pass, "no mix, shares, schedule, set_shares, skip, stage; no resampled shards"
    ),
    "window": Feature(
        (
            *(
                "costs",
                "batch.cost",
                "batch.max_cost",
                "batch.max_tokens",
                "batch.padded",
                "batch.max_size",
                "batch.size_multiple",
            ),
            *("batch.window", "batch.overlong", "batch.limits", "batch.balance"),
        ),
        _window,
        "no size, limit, stage, unit: batch, or epoch of samples",
    ),
    "group": Feature(
        ("batch.group_by", "batch.group_wait", "batch.incomplete", "batch.window"),
        _group,
        "a size or max_cost; no limit, stage, unit: batch, or epoch of samples",
    ),
    "pack": Feature(
        ("batch.pack.length", "batch.pack.pad_to_multiple_of", "batch.pack.method", "batch.overlong"),
        _pack,
        "no collate, ragged or padded; otherwise as window",
    ),
    "max_passes": Feature(
        ("dataset.max_passes", "dataset.samples", "dataset.on_exhausted"),
        _max_passes,
        "the number of samples; no pass, and no batches by cost",
    ),
    "stop": Feature(
        ("dataset.on_exhausted", "dataset.max_passes", "dataset.samples"), _stop, "as max_passes"
    ),
    "skip": Feature(("skip",), _skip, "no pass"),
    "schedule": Feature(
        ("mix.schedule.at", "mix.schedule.shares", "mix.schedule.ramp"),
        _schedule,
        "no shares in sources, no pass, no draw: round_robin",
    ),
    "live shares": Feature((), _live_shares, "no pass, stage, or draw: round_robin"),
    "selection": Feature(
        (
            *(f"dataset.{key}" for key in ("where", "subset", "keys", "exclude", "keys_of", "select")),
            "dataset.subset.part",
            "dataset.subset.of",
            "dataset.subset.seed",
        ),
        _selection,
    ),
    "join": Feature(
        tuple(f"dataset.join.{key}" for key in ("shards", "missing", "on", "fields", "rename")),
        _join,
        "as many partners as shards; no tokens",
    ),
    "lookup": Feature(
        tuple(f"dataset.lookup.{key}" for key in ("table", "on", "key", "fields", "rename", "missing")),
        _lookup,
    ),
    "make": Feature(("dataset.make",), _make, "no tokens"),
    "fetch": Feature(("dataset.fetch",), _fetch, "no tokens"),
    "stage": Feature(
        ("stage.call", "stage.args", "stage.every"),
        _stage,
        "no pass, threads, set_shares, or batches by cost",
    ),
    "repeat": Feature(("dataset.repeat",), _repeat, "only in a pass, which it switches on"),
    "reshuffle": Feature(
        ("epoch.reshuffle",), _reshuffle, "only in a pass, which it switches on; no batches by cost"
    ),
    "threads": Feature(("loader.kind",), _threads, "no user functions"),
    "mix": Feature(("mix.draw", "mix.unit"), _mix, "no pass"),
    "sizes": Feature(
        (
            *("mix.by", "mix.cap", "mix.temperature"),
            *(f"dataset.{key}" for key in ("samples", "bytes", "probability", "weight", "upsample")),
        ),
        _sizes,
        "no pass",
    ),
    "token shares": Feature(
        ("mix.shares_in", "dataset.mean_cost"), _token_shares, "batches by cost; no pass"
    ),
    "shuffle": Feature(("dataset.shuffle", "dataset.order", "dataset.interleave", "dataset.name"), _shuffle),
    "topology": Feature(
        ("elastic.ranks", "elastic.workers", "seed", "batch.size", "batch.global_size"), _topology
    ),
    "limit": Feature(("limit",), _limit, "no batches by cost"),
    "fields": Feature(
        ("dataset.extensions", "dataset.missing", "dataset.rename", "fields", "to_tuple"), _fields
    ),
    "key": Feature(("dataset.key.kind", "dataset.key.regex"), _key),
    "expect": Feature(("dataset.expect.fields",), _expect),
    "companions": Feature(("dataset.companions",), _companions, "no tokens"),
}
"""Name of a feature -> the feature, in the order in which they are switched on."""

PAIRED = (
    *("pass", "window", "group", "pack", "stop", "skip", "schedule", "live shares", "selection"),
    *("join", "lookup", "stage", "repeat", "max_passes", "tables", "tokens", "threads"),
)
"""The features of which each pair has a case."""


def switch_on(draft: Draft, *names: str) -> Draft:
    """Switch on features, in the order of the table."""
    for name, feature in FEATURES.items():
        if name in names:
            feature.switch(draft)
    return draft


@cache
def keys_of_order() -> frozenset[str]:
    """All keys that affect the order, perhaps only with `missing: skip`."""
    found = set()
    for prefix, model in (("", Spec), ("dataset.", Source)):
        for key in declared_keys(model):
            if key.affects and (key.affects.what == "order" or key.affects.order_if_skipping):
                found.add(f"{prefix}{key.name}")
    return frozenset(found)


def keys_used(spec: Fragment) -> set[str]:
    """The keys that affect the order and have another value than the default in a spec without problems."""
    checked = load(spec)
    holders: list[tuple[str, Any]] = [("", checked)]
    for each in checked.dataset:
        holders += [("dataset.", mix) for mix in each.mixes]
    holders += [("dataset.", source) for source in checked.sources]
    found = set()
    for prefix, holder in holders:
        for key in declared_keys(type(holder)):
            if f"{prefix}{key.name}" in keys_of_order() and any(
                value not in (None, (), {}) for value in key.stated(holder)
            ):
                found.add(f"{prefix}{key.name}")
    return found
