"""The cases of the golden records: every feature, every pair of them, every value of keys, and changes of each."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oracle.features import FEATURES, PAIRED, Draft, Fragment, base, merge, switch_on
from oracle.record import CUTS


@dataclass(frozen=True)
class Leg:
    """A run that resumes from a state of a case with a changed spec."""

    change: str
    cut: int
    spec: Fragment
    wrong: str = ""

    @property
    def name(self) -> str:
        """Its name in the record."""
        return f"{self.change} after {self.cut}"


@dataclass(frozen=True)
class Case:
    """One spec, what the training loop calls, and its legs."""

    name: str
    features: frozenset[str]
    spec: Fragment
    calls: list[list[Any]] = field(default_factory=list)
    wrong: str = ""
    """The number of a known fault that the program shows here; its results are not right."""
    legs: tuple[Leg, ...] = ()


WINDOWED = frozenset({"window", "group", "pack", "token shares"})
"""Features whose batches are planned from windows."""

# Changes that a run may resume with

Change = Callable[[Draft], Any]
"""Changes a spec; False if it has nothing that could be changed in this way."""


def _other_weight(draft: Draft) -> bool:
    source = draft.spec["dataset"][0]
    if "schedule" in draft.spec.get("mix", {}):
        draft.spec["mix"]["schedule"][0]["shares"][source["name"]] = 5
        return True
    return "weight" in source and not source.update(weight=1)


def _other_weight_back(draft: Draft) -> bool:
    last = draft.spec["dataset"][-1]
    return "weight" in last and not last.update(weight=5)


def _added_source(draft: Draft) -> bool:
    if draft.has_tokens:
        added = {"name": "grid", "shards": "grid-{000..001}.npy", "tokens": {}}
    elif draft.ids == "ids":
        added = {"name": "rows", "shards": "rows-{000..002}.jsonl"}
    else:
        added = {"name": "e", "shards": "e-{000..001}.tar"}
    if any("join" in source for source in draft.sources):
        added |= {"missing": "none", "extensions": draft.sources[0]["extensions"]}
    if any("lookup" in source for source in draft.sources):
        lookup = [{"table": "all.parquet", "fields": "grade mark", "rename": {"level": "grade"}}]
        added["lookup"] = [*lookup, *draft.sources[-1]["lookup"][1:]]
    if "schedule" in draft.spec.get("mix", {}):
        draft.spec["mix"]["schedule"][0]["shares"]["e"] = 1
    elif "weight" in draft.sources[0]:
        added["weight"] = 2
    if "mean_cost" in draft.sources[0]:
        added["mean_cost"] = 15
    if "samples" in draft.sources[0]:
        added["samples"] = 80
    draft.spec["dataset"].append(added)
    return True


def _removed_source(draft: Draft) -> bool:
    if len(draft.spec["dataset"]) == 1 or draft.calls:
        return False
    gone = draft.spec["dataset"].pop()["name"]
    for step in draft.spec.get("mix", {}).get("schedule", ()):
        step["shares"].pop(gone, None)
        if not any(step["shares"].values()):
            return False
    return True


def _added_shards(draft: Draft) -> bool:
    source = draft.sources[0]
    if source.get("join") or draft.has_tokens:
        return False
    source["shards"] = [source["shards"], "e-{000..001}.tar" if draft.ids != "ids" else "rows-000.jsonl"]
    return draft.ids != "ids"


def _removed_shards(draft: Draft) -> bool:
    source = draft.sources[0]
    if source.get("join") or source["name"] != "a":
        return False
    return not source.update(shards="a-{001..004}.tar")


def _set(**keys: Any) -> Change:
    return lambda draft: merge(draft.spec, keys)


def _each(**keys: Any) -> Change:
    return lambda draft: draft.each(**keys)


def _other_batch(draft: Draft) -> bool:
    batch = draft.spec["batch"]
    if "size" not in batch:
        return not draft.batch(max_cost=batch.get("max_cost", 64) + 20) if "cost" in batch else False
    draft.batch(size=2)
    return True


def _other_window(draft: Draft) -> bool:
    return "window" in draft.spec["batch"] and not draft.batch(window=10)


def _other_rename(draft: Draft) -> bool:
    source = draft.sources[0]
    if draft.has_tokens or "rename" in draft.spec["defaults"] or "loader" in draft.spec:
        return False
    source["tags"] = {"origin": "new"}
    for other in draft.sources[1:]:
        other["tags"] = {"origin": "old"}
    return True


def _epoch(draft: Draft) -> bool:
    return draft.spec["epoch"] != "pass" and not draft.spec.update(epoch={"batches": 4})


def _skip(draft: Draft) -> bool:
    return draft.spec["epoch"] != "pass" and not draft.spec.update(skip=["0..1", "9..10"])


def _without_pass(draft: Draft) -> bool:
    if draft.spec["epoch"] != "pass" or any("repeat" in source for source in draft.sources):
        return False
    draft.spec["epoch"] = {"batches": 5}
    return True


CHANGES: dict[str, Change] = {
    "weight": _other_weight,
    "weight of the last source": _other_weight_back,
    "shuffle": _set(defaults={"shuffle": 3}),
    "more shuffle": _set(defaults={"shuffle": 40}),
    "interleave": _set(defaults={"interleave": 1}),
    "select": lambda draft: "loader" not in draft.spec and not draft.each(select="oracle_functions:is_most"),
    "source added": _added_source,
    "source removed": _removed_source,
    "shards added": _added_shards,
    "shards removed": _removed_shards,
    "order": _each(order="sequential"),
    "subset": _each(subset="70%"),
    "seed": _set(seed=8),
    "batch": _other_batch,
    "window": _other_window,
    "tags": _other_rename,
    "epoch": _epoch,
    "skip": _skip,
    "errors": _set(errors={"skip": True, "max_count": 5}),
    "storage": _set(rewrite=[{"from": "a-", "to": "./a-"}, {"from": "b-", "to": "./b-"}]),
    "loader": _set(loader={"prefetch": 3, "timeout": "1m"}),
    "no pass": _without_pass,
}
"""What changes -> how; docs/order.md says which of them lose or repeat nothing."""

EXACT = ("weight", "weight of the last source", "shuffle", "more shuffle", "interleave", "select")
FREE = ("epoch", "skip", "errors", "storage", "loader")
"""Changes of keys that do not affect the order: they need no `allow_changed`."""
KEEPING = (*EXACT, "order", "seed", "skip", "errors", "storage", "loader")
"""Changes that keep the length of a pass. After others, one that reshuffles begins its epoch at another step."""
_REPLANNED = frozenset({"weight", "weight of the last source", "shuffle", "more shuffle", "interleave"})
_REPLANNED |= {
    "select",
    "source added",
    "source removed",
    "shards added",
    "shards removed",
    "order",
    "subset",
}
_REPLANNED |= {"seed", "batch", "window"}


def _legs(
    draft: Draft, features: frozenset[str], names: tuple[str, ...], cuts: tuple[int, ...]
) -> Iterator[Leg]:
    for name, cut in itertools.product(names, cuts):
        changed = copy.deepcopy(draft)
        if CHANGES[name](changed) is False or changed.spec == draft.spec:
            continue
        opened = features & (WINDOWED | {"stage"}) and "pass" not in features
        yield Leg(name, cut, changed.spec, "1" if opened and name in _REPLANNED else "")


VARIANTS: dict[str, Fragment] = yaml.safe_load(
    Path(__file__).with_name("variants.yaml").read_text(encoding="utf-8")
)
"""Name of a case -> the features that it switches on, in `with`, and what it changes then."""

SIZES: tuple[tuple[str, str], ...] = tuple(
    itertools.product(
        ("small", "large"),
        (
            "",
            "pass",
            "window",
            "group",
            "pack",
            "stage",
            "repeat",
            "stop",
            "schedule",
            "pass,window",
            "pass,pack",
        ),
    )
)
"""Size of the data, and features."""

_FAULTS: dict[str, str] = {
    "group of sources, cost, size_multiple, pass": "4",
    "group of sources, cost, size_multiple=3, pass": "4",
    "set_shares, two workers": "2",
    "join, cut line, skip": "7",
    "join, cut line, none": "12",
    "join, cut line, error": "7",
    "window, pass, random select": "5",
    "pack, pass, random select": "5",
    "broken, window, skip": "3",
    "broken, pack, skip": "3",
    "join, damaged partner, none": "12",
    "join, no partner shard": "12",
    "join, no partner shard, pass, window": "12",
    "join, damaged partner, two workers": "7",
    "on_exhausted=stop at once": "7",
    "on_exhausted=error at once": "7",
    "pair stop skip": "11",
    "on_exhausted=stop, skip across the end": "11",
    "on_exhausted=stop, skip a whole epoch": "11",
    "pack, one name twice": "13",
    "pack, names of each other": "13",
    "pack, pad of another field": "13",
    "pack, pad too large": "13",
    "where of an array": "13",
    "rename, where": "6",
    "tags, where": "6",
}
"""Name of a case -> the number of the known fault that it shows."""


def _fault(name: str, draft: Draft, features: frozenset[str]) -> str:
    sets_shares = any(call[1] == "set_shares" for call in draft.calls)
    return _FAULTS.get(name, "2" if sets_shares and features & WINDOWED else "")


def vary(draft: Draft, fragment: Fragment) -> Draft:
    """Change a draft: `sources` by name, where `*` is all of them, or None to keep only the others that are named."""
    top = {key: value for key, value in fragment.items() if key not in ("with", "sources", "calls")}
    merge(draft.spec, copy.deepcopy(top))
    draft.calls = fragment.get("calls", draft.calls)
    changes = dict(fragment.get("sources", {}))
    if "*" in changes and changes["*"] is None:
        draft.spec["dataset"] = [each for each in draft.spec["dataset"] if each["name"] in changes]
    draft.spec["dataset"] = [
        each for each in draft.spec["dataset"] if changes.get(each["name"], {}) is not None
    ]
    for source in draft.sources:
        merge(source, copy.deepcopy(changes.get("*") or {}))
    for source in [*draft.sources, *draft.spec["dataset"]]:
        if source["name"] in changes:
            merge(source, copy.deepcopy(changes.pop(source["name"])))
    return draft


def _case(name: str, draft: Draft, features: frozenset[str], changes: tuple[str, ...] = ()) -> Case:
    cuts = CUTS if features & (WINDOWED | {"stage"}) else CUTS[:1]
    legs = tuple(_legs(draft, features, changes, cuts))
    return Case(name, features, draft.spec, draft.calls, _fault(name, draft, features), legs)


def _list_cases() -> Iterator[Case]:
    yield _case("plain", base(), frozenset(), tuple(CHANGES))
    for name in FEATURES:
        changes = KEEPING if name == "reshuffle" else tuple(CHANGES)
        yield _case(name, switch_on(base(), name), frozenset({name}), changes)
    for pair in itertools.combinations(PAIRED, 2):
        changes = EXACT if frozenset(pair) & (WINDOWED | {"stage"}) else ()
        yield _case(f"pair {' '.join(pair)}", switch_on(base(), *pair), frozenset(pair), changes)
    for name, fragment in VARIANTS.items():
        features = frozenset(fragment.get("with", ()))
        yield _case(name, vary(switch_on(base(), *features), fragment), features)
    for data, listed in SIZES:
        features = frozenset(listed.split(",")) - {""}
        yield _case(
            f"{data} data, {listed or 'plain'}",
            switch_on(base(data), *features),
            features,
            ("weight", "shuffle"),
        )


CASES: tuple[Case, ...] = tuple(_list_cases())
"""All cases."""
