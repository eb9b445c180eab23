"""Random specs, drawn from the published JSON Schema over the data of `oracle.data`.

A draw walks the schema from the top. Every key is drawn, a new one as well: its value is what the schema allows.
`HINTS` says how often a key is drawn, and which value it gets where a schema cannot know a good one. `LEFT_OUT` lists
the keys that are never drawn, and why.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from oracle.data import TOKEN_FILES, TOKENS, UNEVEN

SCHEMA = Path(__file__).parents[3] / "schemas" / "wdspec.schema.json"
RARE = 0.08
"""How often a key without a hint is drawn."""
NOTHING: Any = object()
"""In place of a value: the key is left out of this spec."""
Json = dict[str, Any]

LEFT_OUT = {
    "aistore": "needs an AIStore cluster",
    "storage": "settings of network stores",
    "cache": "copies of remote shards; the data is local",
    "stats": "a file that `wdspec stats` writes; the recorded cases have some",
    "map_batches": "jobs only; a loader does not run it",
    "output": "jobs only; a loader does not write",
    "allow": "lets a spec unpickle, and no shard of the data is pickled",
    "vars": "variables are replaced before a spec has a meaning",
    "extends": "files that a spec is composed of; the result has the same keys",
    "environments": "variants of a spec have the keys of a spec",
    "splits": "variants of a spec have the keys of a spec",
    "dataset.spec": "another spec file; its sources have the keys of a source",
    "dataset.each": "sources of folders have the keys of a source",
    **{
        f"dataset.mix.{key}": "only allowed in the `mix` of the top level"
        for key in ("draw", "unit", "schedule", "shares_in")
    },
    "companions": "tests of companions add them, with names that exist",
    "dataset.companions": "tests of companions add them, with names that exist",
    "dataset.fetch.*": "the hint has a directory that exists, and references that are there",
    "loader.fetch_memory": "how much is read ahead has no effect on samples",
    "dataset.make.*": "the hint has a file that exists, and fields that are there",
    "dataset.scale": "changes the size of images, which the data lacks",
    "dataset.scaleprob": "changes the size of images, which the data lacks",
    "dataset.aistore": "needs an AIStore cluster",
    "dataset.storage": "settings of network stores",
    "dataset.cache": "copies of remote shards; the data is local",
    "dataset.expect.samples": "checked by commands, not by a loader",
    "dataset.expect.dropped": "checked by commands, not by a loader",
    **{
        f"dataset.expect.fields.*.{key}": "as `type` and `length`: samples that differ are errors"
        for key in ("shape", "range", "classes")
    },
    "loader.workers": "chosen with the topology of each run",
    "loader.kind": "chosen with the topology of each run",
    **{
        f"{path}.{key}": why
        for path in ("errors", "dataset.errors")
        for key, why in {
            "max_count": "counts depend on what a process has read",
            "max_rate": "counts depend on what a process has read",
            "log": "writes a file",
            "retry": "only network stores repeat requests",
            "timeout": "only network stores time out",
            "slow_rate": "only network stores are slow",
            "slow_after": "only network stores are slow",
            "min_rate": "only network stores are slow",
        }.items()
    },
    "batch.max_tokens": "the same as `max_cost`, of which cases have both words",
    "mix.schedule.at.batches": "a number of samples by the time that batches are drawn",
    "mix.schedule.at.tokens": "a number of samples by the time that batches are drawn",
    "batch.collate.*.call": "as `package.module:function`",
    "batch.collate.*.args": "as `package.module:function`",
    "batch.collate.call": "builds the whole batch, so that values no longer belong to fields",
    "batch.collate.args": "builds the whole batch, so that values no longer belong to fields",
    "map.*": "functions of fields are written without arguments",
    "dataset.map.*": "functions of fields are written without arguments",
}
"""Path of a key -> why it is not drawn. What is below it is not drawn either."""

FILES = ("a", "b", "c", "e", "tiny")
ROWS = ("rows", "parquet", "arrow", "mds", "lance", "nulls")
ENDINGS = FORMATS = {**dict(zip(ROWS, ROWS, strict=True)), "rows": "jsonl", "nulls": "parquet"}
FUNCTIONS = "oracle_functions"


@dataclass
class Origin:
    """A source of a draft: which shards of the data it reads."""

    name: str
    base: str
    """Name of its shards in the data."""
    shards: list[int]
    parts: list[Origin] = field(default_factory=list)
    """The sources of a nested mix."""
    weight: float = 1
    is_limited: bool = False
    """Whether it has `max_passes`."""
    is_joined: bool = False

    @property
    def samples(self) -> int:
        """Number of its samples."""
        if self.base in UNEVEN:
            return sum(UNEVEN[self.base][shard] for shard in self.shards)
        return {"npy": 247, "megatron": 247, "raw": 120, "grid": 176}[self.base] // 16

    @property
    def leaves(self) -> list[Origin]:
        """The sources that have shards."""
        return [leaf for part in self.parts for leaf in part.leaves] or [self]


class World:
    """What the keys of one spec agree about: the kind of data and of batches, and what goes together."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.family = self.one_of(files=74, rows=13, tokens=13)
        self.is_pass = self.happens(0.3)
        self.batching = self.one_of(none=5, plain=36, cost=22, group=15, pack=22)
        self.has_damage = self.family == "files" and self.happens(0.1)
        self.has_stage = not self.is_pass and self.happens(0.13)
        self.ranks, self.workers = rng.choice((1, 1, 2, 2, 2, 3, 4)), rng.choice((1, 1, 2, 2, 3))
        self.is_elastic = self.happens(0.85)
        self.sources = self._choose_sources()
        self.has_join = any(leaf.is_joined for leaf in self.leaves)
        self.lookup = self.one_of(key=2, value=1)
        self.has_lookup = self.family != "tokens" and self.happens(0.12)
        self._choose_fields()
        self._choose_shares()
        self.has_tags = self.happens(0.1)
        self.is_made = self.has_text and not self.is_renamed and self.happens(0.12)
        self.is_mapped = (
            self.has_text
            and self.text == "txt"
            and not self.has_damage
            and self.is_windowed
            and self.happens(0.2)
        )
        self.method = rng.choice(("best_fit", "best_fit", "in_order", "concatenate"))
        self.overlong = self.one_of(error=3, drop=2, alone=2, truncate=2, split=2)
        self.is_padded = self.happens(0.6)
        self.reshuffles = self.is_pass and self.happens(0.5)
        self.in_tokens = self.family == "tokens" and not self.is_pass and self.happens(0.3)

    def happens(self, chance: float) -> bool:
        """Whether something of this probability happens."""
        return self.rng.random() < chance

    def one_of(self, **weights: float) -> str:
        """Return one of the names."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    @property
    def is_windowed(self) -> bool:
        """Whether batches are planned from windows."""
        return self.batching in ("cost", "group", "pack")

    @property
    def cuts(self) -> bool:
        """Whether samples are cut."""
        return self.batching == "pack" and (
            self.method == "concatenate" or self.overlong in ("truncate", "split")
        )

    @property
    def leaves(self) -> list[Origin]:
        """All sources with shards."""
        return [leaf for source in self.sources for leaf in source.leaves]

    @property
    def slots(self) -> int:
        """Number of samples or batches that slots take together: N."""
        return self.ranks if self.is_elastic else 1

    def _choose_sources(self) -> list[Origin]:
        rng = self.rng
        bases = {"files": list(FILES), "rows": list(ROWS), "tokens": list(TOKENS)}[self.family]
        if self.family == "files" and self.happens(0.08):
            bases = ["dotted", "a", "e"]
        rng.shuffle(bases)
        chosen = bases[: rng.choice((1, 2, 2, 3, 3, 4))]
        if self.has_damage:
            chosen[0] = "broken"
        sources = [self._make_source(base) for base in chosen]
        if len(sources) > 1 and not self.is_pass and self.happens(0.15):
            inner = sources[1:]
            sources = [sources[0], Origin("inner", "", [], inner, rng.choice((1, 2, 3)))]
        return sources

    def _make_source(self, base: str) -> Origin:
        rng = self.rng
        count = len(UNEVEN[base]) if base in UNEVEN else len(TOKEN_FILES[base])
        first, last = 0, count - 1
        if self.happens(0.25):
            first = rng.randrange(count)
            last = rng.randrange(first, count)
        origin = Origin(base, base, list(range(first, last + 1)), weight=rng.choice((1, 1, 2, 3, 5)))
        origin.is_joined = base in ("a", "b") and self.happens(0.18)
        return origin

    def _choose_fields(self) -> None:
        self.ids = {"files": "ids.npy", "rows": "ids", "tokens": "tokens"}[self.family]
        self.labels = {"files": "labels.npy", "rows": "labels", "tokens": ""}[self.family]
        is_dotted = any(leaf.base == "dotted" for leaf in self.leaves)
        if self.family == "tokens":
            self.fields: list[str] | None = None
        elif is_dotted:
            self.fields = ["txt", "cls"]
            self.batching = "plain" if self.batching == "pack" else self.batching
        else:
            self.fields = ["txt"]
            if self.happens(0.75):
                self.fields.append("json")
            if self.happens(0.25) or self.has_damage:
                self.fields.append("cls")
            if self.batching == "pack" or self.happens(0.3):
                self.fields += [self.ids, self.labels]
            if self.has_damage and self.happens(0.5):
                self.fields = [each for each in self.fields if each != "cls"]
        self.has_text = self.family != "tokens"
        self.has_json = self.fields is not None and "json" in self.fields
        self.is_renamed = self.has_text and not self.has_stage and not is_dotted and self.happens(0.07)
        self.text = "text" if self.is_renamed else "txt"
        if self.is_pass:
            self.has_stage = False
        self.is_none_allowed = self.happens(0.5)

    def _choose_shares(self) -> None:
        rng = self.rng
        count = len(self.sources)
        self.shares = "none" if self.is_pass else self.one_of(weight=6, none=2, probability=1, upsample=1)
        self.is_scheduled = not self.is_pass and count > 1 and self.happens(0.2)
        if self.is_scheduled:
            self.shares = "schedule"
        self.by = "shards"
        if self.shares in ("none", "upsample") and not self.is_pass:
            self.by = rng.choice(("shards", "samples", "bytes", "equal"))
        self.draw = self.one_of(even=5, random=2, round_robin=0 if self.shares != "none" else 3)
        self.token_shares = self.is_windowed and not self.is_pass and self.happens(0.12)
        if self.draw == "round_robin":
            self.token_shares, self.by = False, "shards"
        can_stop = not self.is_windowed and not self.has_stage
        self.on_exhausted = rng.choice(("drop", "drop", "error", "stop" if can_stop else "drop"))
        if not self.is_pass and self.draw != "round_robin" and self.happens(0.22):
            for leaf in self.leaves:
                leaf.is_limited = self.happens(0.6)
            if self.on_exhausted == "drop" and self.happens(0.8):  # something stays
                self.leaves[-1].is_limited = False

    @property
    def names(self) -> list[str]:
        """The names of the fields that a sample of every source has."""
        found = [self.text if name == "txt" else name for name in self.fields or ["tokens"]]
        return [name for name in found if name != "cls"]

    @property
    def size(self) -> str:
        """The expression for the length of the text, or of the tokens."""
        if self.is_made and self.happens(0.6):
            return "word_ids.length"
        return f"{self.text}.length" if self.has_text else "tokens.length"

    def test(self) -> str:
        """Return a condition for `where`."""
        rng = self.rng
        choices = [f"{self.size} > {rng.randrange(2, 12)}", f"{self.size} < {rng.randrange(20, 38)}"]
        if self.family == "files" and all(leaf.base != "dotted" for leaf in self.leaves):
            choices += [f"json.score >= {rng.randrange(1, 5)}", "json.lang in ['de', 'en']", "json.n != 3"]
        elif self.has_json:
            choices += [f"json.score >= {rng.randrange(1, 5)}", "json.lang != 'fr'"]
        return rng.choice(choices)

    def group(self) -> str:
        """Return an expression for `group_by`."""
        choices = [f"{self.size} > 20", "__source__"]
        if self.has_json:
            choices += ["json.lang", "json.lang", "json.n", "json.score > 4"]
        return self.rng.choice(choices)


@dataclass
class Context:
    """Where in a spec a value is drawn."""

    world: World
    source: Origin | None = None
    index: int = 0
    """Number of the source in its list."""
    in_defaults: bool = False
    siblings: Json = field(default_factory=dict)
    """What was drawn already of the map that the value is in."""

    @property
    def rng(self) -> random.Random:
        """The generator of the spec."""
        return self.world.rng

    @property
    def is_leaf(self) -> bool:
        """Whether this is a source with shards, and not a nested mix."""
        return self.source is not None and not self.source.parts

    @property
    def is_file(self) -> bool:
        """Whether this is a source of tars."""
        return self.is_leaf and self.source is not None and self.world.family == "files"


Chance = float | Callable[[Context], float]


@dataclass(frozen=True)
class Hint:
    """How often a key is drawn, and its value: by the schema if there is none."""

    chance: Chance
    value: Callable[[Context], Any] | None = None


def _if(test: Callable[[Context], object], chance: float = 1.0, otherwise: float = 0.0) -> Chance:
    return lambda at: chance if test(at) else otherwise


def _choice(*values: Any) -> Callable[[Context], Any]:
    return lambda at: at.rng.choice(values)


def _shards(at: Context) -> Any:
    source = at.source
    assert source is not None
    if source.base in TOKENS:
        pattern = TOKENS[source.base]
        prefix, ending = re.split(r"-\{?[0-9.]+\}?(?=\.)", pattern)
        names = [f"{prefix}-{shard:03d}{ending}" for shard in source.shards]
    else:
        names = [f"{source.base}-{shard:03d}.{ENDINGS.get(source.base, 'tar')}" for shard in source.shards]
    return _braces(at, names)


def _braces(at: Context, names: list[str]) -> Any:
    if len(names) == 1 or at.world.happens(0.3):
        return names if at.world.happens(0.5) or len(names) > 1 else names[0]
    first = re.search(r"\d{3}", names[0])
    last = re.search(r"\d{3}", names[-1])
    assert first is not None
    assert last is not None
    return names[0].replace(first[0], f"{{{first[0]}..{last[0]}}}")


def _join(at: Context) -> Any:
    source = at.source
    assert source is not None
    kind = at.rng.choice(("full", "gaps", "gaps", "lines"))
    missing = at.rng.choice(("skip", "none")) if kind != "full" else at.rng.choice(("error", "skip"))
    if at.world.is_windowed and missing == "none":
        missing = "skip"
    ending = "jsonl" if kind == "lines" else "tar"
    names = [f"{source.base}-{kind}-{shard:03d}.{ending}" for shard in source.shards]
    taken = {"fields": "caption"} if kind == "lines" else {"fields": "caption.txt"}
    if kind == "lines":
        taken["rename"] = {"caption.txt": "caption"}
    if at.world.happens(0.2):
        taken["format"] = ending
    if at.world.happens(0.2):
        taken["on"] = "__key__"
    return [{"shards": _braces(at, names), **taken, "missing": missing}]


def _extensions(at: Context) -> Any:
    fields = at.world.fields
    if fields is None or (at.source is not None and at.source.is_joined and at.in_defaults):
        return NOTHING
    names = [*fields]
    if at.world.has_join:
        names.append("caption.txt")
    return " ".join(names) if at.world.happens(0.7) else names


def _missing(at: Context) -> Any:
    lacks = at.world.has_join or (at.world.fields is not None and "cls" in at.world.fields)
    if lacks:
        return "none" if at.world.is_none_allowed and not at.world.is_windowed else "skip"
    return at.rng.choice(("error", "skip"))


def _make(at: Context) -> Any:
    eos = {"eos": "<end>"} if at.world.happens(0.8) else {}
    most = {"truncate": 25} if at.world.happens(0.3) else {}
    found: Json = {"word_ids": {"tokenize": "txt", "file": "letters.json", **eos, **most}}
    if at.world.has_json:
        unknown = {"unknown": 9} if at.world.happens(0.8) else {}
        found["lang_id"] = {"label": "json.lang", "names": ["de", "en"], **unknown}
        found["kind_id"] = {"label": "lang_id", "names": {"1": 0}, "unknown": -1}
    if at.world.happens(0.4):
        letters = {"file": "letters.json", "mask_token": "<end>", "labels": "masked_labels"}
        found["masked_ids"] = {"mask_tokens": "word_ids", "probability": 0.4, **letters}
    if at.world.has_json and at.world.happens(0.4):
        found["pick"] = {"choose": ["txt", "json.lang"], "weights": [2, 1]}
    return found


def _fetch(at: Context) -> Any:
    missing = at.rng.choice(("skip", "skip", "none", "none", "error"))
    if at.rng.random() < 0.4:
        url = at.rng.choice(("{json.lang}.png", "{json.lang}.png", "{json.lang}.bad"))
        return {"object.png": {"url": url, "root": "pictures/", "missing": missing}}
    return {"object.txt": {"url": "json.lang", "root": "objects/", "missing": missing}}


def _lookup(at: Context) -> Any:
    missing = at.rng.choice(("skip", "none"))
    choices: list[Json] = [
        {"table": "all.parquet", "fields": "grade mark", "rename": {"level": "grade"}},
        {
            "table": "scores.csv",
            "fields": ["grade", "mark"],
            "rename": {"level": "grade"},
            "missing": missing,
        },
        {"table": "scores.parquet", "fields": "grade mark", "rename": {"level": "grade"}, "missing": missing},
    ]
    if at.world.has_json and at.world.lookup == "value":
        found = {"table": "ns.csv", "on": "json.n", "fields": "kind", "missing": missing}
        return [found if at.world.happens(0.5) else {**found, "key": "n"}]
    found = at.rng.choice(choices)
    if at.world.happens(0.2):
        found["format"] = found["table"].rpartition(".")[2]
    return [found]


def _calls(text: str) -> list[Json]:
    """Functions with arguments, and methods."""
    return [
        *([{"call": f"{FUNCTIONS}:add_size"}] if text == "txt" else []),
        {text: {"call": f"{FUNCTIONS}:repeat_text", "args": {"times": 2}}},
        {"call": f"{FUNCTIONS}:add_number", "args": {"name": "number"}, "sets": "number"},
        {"call": f"{FUNCTIONS}:Counter", "args": {"step": 3}, "method": "count", "with": {"name": "counted"}},
    ]


def _map(at: Context) -> Any:
    text = at.world.text
    if at.world.is_mapped:
        return [{"call": f"{FUNCTIONS}:add_size", "sets": "size"}]
    return at.rng.choice(
        ([f"{FUNCTIONS}:jitter"], {text: f"{FUNCTIONS}:shout"}, {text: [f"{FUNCTIONS}:shout"]}, *_calls(text))
    )


def _stage(at: Context) -> Any:
    if not at.world.has_text:
        return {"call": f"{FUNCTIONS}:by_key", "args": {"hold": at.rng.choice((2, 5))}, "every": 12}
    call = at.rng.choice(("mark", "drop_short", "double", "by_length", "join_pairs", "by_key"))
    found: Json = {"call": f"{FUNCTIONS}:{call}", "every": at.rng.choice((3, 7, 10, 25))}
    if call in ("by_length", "by_key"):
        found["args"] = {"hold": at.rng.choice((3, 4, 9))}
    return found


def _schedule(at: Context) -> Any:
    names = [source.name for source in at.world.sources]
    steps, place = [], 0
    for number in range(at.rng.choice((1, 2, 2, 3, 4))):
        shares = {name: at.rng.choice((0, 1, 1, 2, 5)) for name in names}
        if not any(shares.values()):
            shares[names[0]] = 1
        step: Json = {"at": at.rng.choice((place, {"samples": place})), "shares": shares}
        if number and at.world.happens(0.4):
            step["ramp"] = "linear"
        steps.append(step)
        place += at.rng.choice((5, 24, 40, 100))
    used = {name for step in steps for name, share in step["shares"].items() if share}
    for name in names:
        if name not in used:
            steps[-1]["shares"][name] = 1
    return steps


def _epoch(at: Context) -> Any:
    world, rng = at.world, at.rng
    if world.is_pass:
        if world.reshuffles:
            return {"pass": rng.choice(("pad", "drop")), "reshuffle": True}
        return rng.choice(("pass", "pass", {"pass": "drop"}, {"pass": "pad"}))
    if world.in_tokens:
        return {"tokens": rng.choice((300, 900, 2_000))}
    if world.is_windowed:
        return {"batches": rng.choice((4, 6, 9, 15))}
    samples = rng.choice((40, 60, 83))
    if world.batching == "none":
        return rng.choice((samples, {"samples": samples}))
    return rng.choice((samples, {"samples": samples}, {"batches": 5}, {"batches": 11}))


def _skip(at: Context) -> Any:
    ranges: list[Any] = []
    step = at.rng.randrange(6)
    for _ in range(at.rng.choice((1, 1, 2, 3))):
        last = step + at.rng.choice((0, 0, 1, 3, 7))
        ranges.append(step if last == step else f"{step}..{last}")
        step = last + at.rng.randrange(2, 6)
    return ranges[0] if len(ranges) == 1 else ranges


def _limit(at: Context) -> Any:
    if at.world.is_pass:
        return at.rng.choice((24, 50, 61))
    batch = at.siblings.get("batch", {})
    return at.rng.choice((5, 8)) * batch.get("global_size", at.world.slots * batch.get("size", 1))


def _limits(at: Context) -> Any:
    if at.world.has_json and at.world.happens(0.6):
        return {"json.score": at.rng.choice((12, 25))}
    return {at.world.size: at.rng.choice((60, 90))}


def _cost(at: Context) -> Any:
    size = at.world.size
    if at.world.batching == "pack":
        return f"fields[{at.world.ids!r}].length" if at.world.happens(0.5) else NOTHING
    if at.world.is_mapped:
        return at.rng.choice(("size", "size", f"size + before_map({size})"))
    choices = [size, size, f"{size} / 3 + 1", f"max(4, {size})", f"before_map({size})"]
    if at.world.has_json:
        choices += ["json.score + 1", 'default(fields["object.png"].width, 9)']
    if at.world.text == "txt" and at.world.has_text:
        choices.append(f"{FUNCTIONS}:cost")
    choices.append("length_of")
    return at.rng.choice(choices)


def _max_cost(at: Context) -> Any:
    if at.world.batching == "pack":
        return 64
    return at.rng.choice((30, 60) if at.world.overlong in ("drop", "alone") else (60, 90, 150))


def _overlong(at: Context) -> Any:
    choice = at.world.overlong
    if at.world.batching != "pack" and choice in ("truncate", "split"):
        return "alone"
    if at.world.batching == "pack" and choice == "alone":
        return "drop"
    return choice


def _pack_length(at: Context) -> Any:
    if at.world.overlong in ("truncate", "split", "drop"):
        return at.rng.choice((25, 64))
    return 64


def _collate(at: Context) -> Any:
    ids, fields = at.world.ids, at.world.fields
    found: Json = {}
    if fields is None or ids in fields:
        found[ids] = at.rng.choice(
            (
                "list",
                "pad",
                {"pad": {"side": "left", "value": -1, "multiple": 8}},
                {"pad": {"length": 24, "axis": 0}},
            )
        )
        way = found[ids]
        if at.rng.random() < 0.2 and way != "list":
            names = (
                {"mask": "id_mask"} if at.rng.random() < 0.5 else {"lengths": "id_lengths", "mask": "id_mask"}
            )
            found[ids] = {"pad": {**(way["pad"] if isinstance(way, dict) else {}), **names}}
        if at.world.labels and fields is not None:
            found[at.world.labels] = at.rng.choice(("list", {"pad": {"limit": 20}}))
    elif at.world.has_text:
        found[at.world.text] = "list"
    return found


def _to_tuple(at: Context) -> Any:
    masked = ["__mask__"] if at.world.is_pass else []
    fields = at.siblings.get("fields", at.world.names)
    return ["__key__", *fields[: at.rng.randrange(1, 4)], *masked]


def _subset(at: Context) -> Any:
    part = at.rng.choice(("80%", 0.5, ["10%", "90%"], [0.2, 0.7]))
    if at.world.happens(0.5):
        return part
    found: Json = {"part": part}
    is_plain = at.source is not None and at.source.base not in ("dotted", "broken")
    if at.world.family == "files" and is_plain and not at.world.reshuffles:
        found["of"] = "json.user"
    if at.world.happens(0.5):
        found["seed"] = at.rng.randrange(5)
    return found


def _tokens(at: Context) -> Any:
    assert at.source is not None
    base = at.source.base
    found: Json = {}
    if base == "raw":
        found["dtype"] = "uint16"
        found |= at.rng.choice(({"eos": 0}, {"length": 16}))
    elif base == "npy":
        found["length"] = at.rng.choice((16, 16, 10))
    elif base == "megatron" and at.world.happens(0.5):
        found["length"] = 16
    if at.world.happens(0.2):
        found["vocabulary"] = 5000
    return found


def _format(at: Context) -> Any:
    if at.world.family == "tokens":
        return "tokens"
    return at.rng.choice(("auto", FORMATS.get(at.source.base if at.source else "", "tar")))


def _probability(at: Context) -> Any:
    count = len(at.world.sources)
    shares = {1: [1], 2: [0.7, 0.3], 3: [0.5, 0.3, 0.2], 4: [0.4, 0.3, 0.2, 0.1]}[count]
    return shares[at.index]


def _is_top(at: Context) -> bool:
    return at.source is not None and at.source in at.world.sources


def _in_nested(at: Context) -> bool:
    return at.source is not None and not _is_top(at)


def _needs_samples(at: Context) -> bool:
    return at.is_leaf and (at.world.by == "samples" or (at.source is not None and at.source.is_limited))


_ERRORS = _choice("skip", {"skip": True}, {"skip": "shard decode"})
_MIX_KEYS = {
    "draw": Hint(lambda at: 1.0 if at.world.draw != "even" else 0.2, lambda at: at.world.draw),
    "unit": Hint(
        lambda at: 0.3 if not at.world.is_windowed and at.world.batching != "none" else 0.0,
        _choice("batch", "sample"),
    ),
    "schedule": Hint(_if(lambda at: at.world.is_scheduled), _schedule),
    "by": Hint(_if(lambda at: at.world.by != "shards"), lambda at: at.world.by),
    "cap": Hint(
        _if(lambda at: at.world.by in ("samples", "bytes"), 0.4),
        lambda at: at.rng.choice((12, 20)) if at.world.by == "samples" else 900,
    ),
    "shares_in": Hint(_if(lambda at: at.world.token_shares), lambda at: "cost"),
    "temperature": Hint(
        _if(lambda at: at.world.shares == "none" and at.world.draw != "round_robin", 0.3),
        _choice(0.5, 2, 3),
    ),
}

HINTS: dict[str, Hint] = {
    "dataset": Hint(1),
    "mix": Hint(_if(lambda at: not at.world.is_pass, 1.0)),
    **{f"mix.{key}": hint for key, hint in _MIX_KEYS.items()},
    "seed": Hint(0.6, lambda at: at.rng.randrange(100)),
    "map": Hint(
        lambda at: 1.0 if at.world.is_mapped else 0.15 * (at.world.has_text and not at.world.has_damage),
        _map,
    ),
    "dataset.map": Hint(
        _if(lambda at: at.is_leaf and at.world.has_text, 0.08),
        lambda at: at.rng.choice(({at.world.text: f"{FUNCTIONS}:shout"}, *_calls(at.world.text))),
    ),
    "fields": Hint(_if(lambda at: at.world.has_text, 0.1), lambda at: list(at.world.names)),
    "to_tuple": Hint(_if(lambda at: at.world.has_text and at.world.batching != "pack", 0.1), _to_tuple),
    "stage": Hint(_if(lambda at: at.world.has_stage), _stage),
    "batch": Hint(_if(lambda at: at.world.batching != "none")),
    "batch.size": Hint(
        lambda at: 0.8 if at.world.batching in ("plain", "group") else 0.0,
        lambda at: at.rng.choice((1, 2, 3, 4, 6)),
    ),
    "batch.global_size": Hint(
        _if(lambda at: at.world.batching == "plain" and "size" not in at.siblings),
        lambda at: at.world.slots * at.rng.choice((2, 3, 4)),
    ),
    "batch.accumulate": Hint(_if(lambda at: at.world.batching == "plain", 0.2), lambda at: True),
    "batch.ragged": Hint(
        _if(lambda at: at.world.batching != "pack"), lambda at: at.rng.choice(("list",) * 9 + ("error",))
    ),
    "batch.collate": Hint(_if(lambda at: at.world.batching != "pack", 0.15), _collate),
    "batch.cost": Hint(
        lambda at: (
            {"cost": 1.0, "pack": 0.3, "group": 1.0}.get(at.world.batching, 0.0)
            if "size" not in at.siblings
            else 0.0
        ),
        _cost,
    ),
    "batch.max_cost": Hint(
        lambda at: (
            1.0
            if at.world.batching == "cost" or ("cost" in at.siblings and at.world.batching == "group")
            else 0.0
        ),
        _max_cost,
    ),
    "batch.padded": Hint(
        _if(lambda at: "cost" in at.siblings and at.world.batching != "pack"),
        lambda at: at.world.is_padded,
    ),
    "batch.max_size": Hint(
        _if(lambda at: "cost" in at.siblings and at.world.batching != "pack", 0.25),
        _choice(3, 5, 6),
    ),
    "batch.size_multiple": Hint(
        lambda at: (
            0.2 if "cost" in at.siblings and at.world.is_padded and at.world.batching != "pack" else 0.0
        ),
        _choice(2, 3),
    ),
    "batch.window": Hint(_if(lambda at: at.world.is_windowed), _choice(5, 9, 14, 20, 40)),
    "batch.overlong": Hint(
        lambda at: 1.0 if at.world.batching == "pack" or "cost" in at.siblings else 0.0, _overlong
    ),
    "batch.limits": Hint(
        lambda at: 0.2 if at.world.is_windowed and not at.world.cuts else 0.0,
        _limits,
    ),
    "batch.balance": Hint(
        lambda at: 0.2 if at.world.batching in ("cost", "pack") else 0.0,
        lambda at: "json.score" if at.world.has_json else at.world.size,
    ),
    "batch.group_by": Hint(_if(lambda at: at.world.batching == "group"), lambda at: at.world.group()),
    "batch.group_wait": Hint(_if(lambda at: at.world.batching == "group"), _choice(12, 20, 33)),
    "batch.incomplete": Hint(_if(lambda at: at.world.batching == "group", 0.6)),
    "batch.pack": Hint(_if(lambda at: at.world.batching == "pack")),
    "batch.pack.fields": Hint(
        1,
        lambda at: (
            [each for each in (at.world.ids, at.world.labels) if each]
            if at.world.happens(0.7)
            else at.world.ids
        ),
    ),
    "batch.pack.length": Hint(1, _pack_length),
    "batch.pack.pad": Hint(0.4, lambda at: {at.world.ids: at.rng.choice((0, -1, -100))}),
    "batch.pack.pad_to_multiple_of": Hint(_if(lambda at: not at.world.cuts, 0.2), _choice(2, 8)),
    "batch.pack.method": Hint(1, lambda at: at.world.method),
    "batch.pack.position_ids": Hint(0.3, lambda at: "at"),
    "batch.pack.segment_ids": Hint(0.3, lambda at: "segments"),
    "batch.pack.cu_seqlens": Hint(0.3, lambda at: "ends"),
    "batch.pack.max_seqlen": Hint(0.2, lambda at: "longest"),
    "costs": Hint(
        _if(lambda at: at.world.batching in ("cost", "group")),
        lambda at: {"length_of": f"{at.world.size} + 1"},
    ),
    "epoch": Hint(lambda at: 1.0 if at.world.is_pass else 0.8, _epoch),
    "epoch.samples": Hint(0, None),
    "epoch.tokens": Hint(0, None),
    "epoch.batches": Hint(0, None),
    "epoch.pass": Hint(0, None),
    "epoch.reshuffle": Hint(0, None),
    "skip": Hint(_if(lambda at: not at.world.is_pass, 0.2), _skip),
    "elastic": Hint(_if(lambda at: at.world.is_elastic)),
    "elastic.ranks": Hint(1, lambda at: at.world.ranks),
    "elastic.workers": Hint(1, lambda at: at.world.workers),
    "rewrite": Hint(0.05, lambda at: [{"from": "a-", "to": "./a-"}]),
    "errors": Hint(lambda at: 1.0 if at.world.has_damage else 0.05, _ERRORS),
    "loader": Hint(0.1),
    "loader.timeout": Hint(0.3, lambda at: "1m"),
    "loader.pin_memory": Hint(0.1),
    "loader.prefetch": Hint(0.5, _choice(1, 2, 5)),
    "limit": Hint(_if(lambda at: not at.world.is_windowed, 0.08), _limit),
    "defaults": Hint(1),
    "dataset.name": Hint(1, lambda at: at.source.name if at.source else NOTHING),
    "dataset.shards": Hint(_if(lambda at: at.is_leaf), _shards),
    "dataset.dataset": Hint(_if(lambda at: at.source is not None and not at.is_leaf)),
    "dataset.defaults": Hint(_if(lambda at: at.source is not None and not at.is_leaf, 0.3)),
    "dataset.mix": Hint(_if(lambda at: at.source is not None and not at.is_leaf, 0.6)),
    "dataset.mix.by": Hint(1, lambda at: at.world.by),
    "dataset.mix.cap": Hint(_if(lambda at: at.world.by == "samples", 0.3), _choice(12, 20)),
    "dataset.mix.temperature": Hint(0.5, _choice(0.5, 2, 3)),
    "dataset.weight": Hint(
        _if(lambda at: at.world.shares == "weight" and _is_top(at)), lambda at: at.source and at.source.weight
    ),
    "dataset.probability": Hint(
        _if(lambda at: at.world.shares == "probability" and _is_top(at)), _probability
    ),
    "dataset.upsample": Hint(
        _if(lambda at: at.world.shares == "upsample" and _is_top(at)), _choice(1, 2, 0.5)
    ),
    "dataset.extensions": Hint(_if(lambda at: at.in_defaults and at.world.has_text), _extensions),
    "dataset.missing": Hint(
        lambda at: (
            1.0
            if at.in_defaults and (at.world.has_join or "cls" in (at.world.fields or ()))
            else 0.05 * at.in_defaults
        ),
        _missing,
    ),
    "dataset.rename": Hint(
        _if(lambda at: at.in_defaults and at.world.is_renamed), lambda at: {"text": "txt"}
    ),
    "dataset.fetch": Hint(_if(lambda at: at.in_defaults and at.world.has_json, 0.1), _fetch),
    "dataset.make": Hint(_if(lambda at: at.in_defaults and at.world.is_made), _make),
    "dataset.lookup": Hint(_if(lambda at: at.world.has_lookup and at.is_leaf), _lookup),
    "dataset.join": Hint(_if(lambda at: at.source is not None and at.source.is_joined), _join),
    "dataset.decode": Hint(0.05, lambda at: "auto"),
    "dataset.where": Hint(
        _if(lambda at: at.is_leaf and not at.world.reshuffles, 0.2), lambda at: at.world.test()
    ),
    "dataset.subset": Hint(_if(lambda at: at.is_leaf and at.world.family != "tokens", 0.15), _subset),
    "dataset.keys": Hint(
        _if(lambda at: at.is_file, 0.1),
        lambda at: at.rng.choice(("@some.txt", "@some.npy", "@users.txt")[: 2 if at.world.reshuffles else 3]),
    ),
    "dataset.exclude": Hint(
        _if(lambda at: at.is_file and at.siblings.get("keys") != "@users.txt", 0.12), lambda at: "@bad.txt"
    ),
    "dataset.keys_of": Hint(_if(lambda at: at.siblings.get("keys") == "@users.txt"), lambda at: "json.user"),
    "dataset.select": Hint(
        _if(lambda at: at.is_leaf and at.world.has_text, 0.12),
        _choice(*(f"{FUNCTIONS}:{name}" for name in ("is_most", "is_heads", "is_most", "is_rare"))),
    ),
    "dataset.shuffle": Hint(0.8, _choice(0, 1, 2, 5, 5, 20, 40, 300)),
    "dataset.order": Hint(
        0.3,
        lambda at: at.rng.choice(
            ("shuffled", "sequential") if at.world.is_pass else ("shuffled", "sequential", "resampled")
        ),
    ),
    "dataset.interleave": Hint(0.6, _choice(1, 2, 3, 4, 9)),
    "dataset.key": Hint(
        _if(lambda at: at.source is not None and at.source.base == "dotted"),
        _choice("last_dot", {"regex": "(.*?)[.]v1[.](.*)"}),
    ),
    "dataset.rewrite": Hint(0.03, lambda at: [{"from": "a-", "to": "./a-"}]),
    "dataset.errors": Hint(_if(lambda at: at.world.has_damage, 0.1, 0.02), _ERRORS),
    "dataset.license": Hint(0.02, lambda at: "CC0-1.0"),
    "dataset.homepage": Hint(0.02, lambda at: "https://example.org"),
    "dataset.revision": Hint(0.02, lambda at: "v1"),
    "dataset.meta": Hint(0.02, lambda at: {"owner": "vision"}),
    "meta": Hint(0.02, lambda at: {"ticket": 12}),
    "requires": Hint(0.02, lambda at: "wdspec >= 0.1"),
    "dataset.tags": Hint(_if(lambda at: at.in_defaults and at.world.has_tags), lambda at: {"kind": 1}),
    "dataset.samples": Hint(
        lambda at: 1.0 if _needs_samples(at) else 0.02 * (at.is_leaf and at.world.family != "tokens"),
        lambda at: at.source and at.source.samples,
    ),
    "dataset.max_passes": Hint(
        _if(lambda at: at.source is not None and at.source.is_limited), _choice(0.5, 1, 1.5, 2, 3, 10)
    ),
    "dataset.on_exhausted": Hint(
        _if(lambda at: at.source is not None and at.source.is_limited), lambda at: at.world.on_exhausted
    ),
    "dataset.repeat": Hint(
        _if(lambda at: at.world.is_pass and at.is_leaf, 0.3), _choice(1, 2, 2.5, 0.6, 0.3, 3)
    ),
    "dataset.bytes": Hint(_if(lambda at: at.is_leaf and at.world.by == "bytes"), _choice(500, "2 KiB", 4000)),
    "dataset.mean_cost": Hint(
        _if(lambda at: at.is_leaf and (at.world.token_shares or at.world.in_tokens)), _choice(5, 12, 20)
    ),
    "dataset.format": Hint(_if(lambda at: at.is_leaf, 0.08), _format),
    "dataset.empty": Hint(0.03),
    "dataset.tar": Hint(_if(lambda at: at.is_file and at.source and at.source.base != "broken", 0.05)),
    "dataset.expect": Hint(
        _if(lambda at: at.is_leaf and at.world.has_text, 0.04),
        lambda at: {"fields": {at.world.text: {"type": "str", "length": at.rng.choice(([1, 400], [1, 38]))}}},
    ),
    "dataset.tokens": Hint(_if(lambda at: at.is_leaf and at.world.family == "tokens"), _tokens),
}
"""Path of a key -> its hint. Keys of `defaults` have those of a source."""


# Walking the schema


@cache
def load_schema() -> Json:
    """Return the published schema."""
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def resolve(node: Json) -> Json:
    """Return a node, or what it refers to."""
    if "$ref" in node:
        return load_schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def list_alternatives(node: Json) -> list[Json]:
    """Return the nodes of which a value matches one, without null and without variables."""
    node = resolve(node)
    found = [each for part in ("anyOf", "oneOf") for each in node.get(part, ())]
    if not found:
        return [] if _is_null(node) or _is_variable(node) else [node]
    rest = {key: value for key, value in node.items() if key not in ("anyOf", "oneOf")}
    flat = [each for part in found for each in list_alternatives(part)]
    return [{**rest, **each} for each in flat]


def _is_null(node: Json) -> bool:
    return node.get("type") in ("null", ["null"])


def _is_variable(node: Json) -> bool:
    return node.get("pattern") in (r"\$\{", r"^((?!))$|\$\{")


def _types(node: Json) -> set[str]:
    found = node.get("type", [])
    return {found} if isinstance(found, str) else set(found)


def below(path: str, key: str) -> str:
    """Return the path of a key of a map, as in `HINTS`: keys of `defaults` are those of sources."""
    if path in ("defaults", "dataset.defaults", "dataset.dataset"):
        path = "dataset"
    return f"{path}.{key}" if path else key


def reason_to_leave_out(path: str) -> str | None:
    """Return why a key is not drawn, or None if it is."""
    return next((why for each, why in LEFT_OUT.items() if f"{path}.".startswith(f"{each}.")), None)


def list_paths(node: Json | None = None, path: str = "", inside: frozenset[str] = frozenset()) -> set[str]:
    """Return the paths of all keys of the schema that are drawn or left out themselves."""
    found: set[str] = set()
    for each in list_alternatives(load_schema() if node is None else node):
        children = list(each.get("properties", {}).items())
        for key, child in children:
            if child is False:
                continue
            mine = below(path, key)
            if mine in inside:
                continue
            found.add(mine)
            if reason_to_leave_out(mine) is None:
                found |= list_paths(child, mine, inside | {mine})
        for child, mark in ((each.get("items"), ""), (each.get("additionalProperties"), ".*")):
            if isinstance(child, dict):
                mine = f"{path}{mark}"
                if mark and reason_to_leave_out(mine) is not None:
                    found.add(mine)
                    continue
                found |= list_paths(child, mine, inside)
    return found


class Draw:
    """One draw of a spec.

    Args:
        seed: decides all of it.

    Attributes:
        spec: the spec.
        world: what its keys agree about.
        paths: the paths of its keys, as in `HINTS`.
    """

    def __init__(self, seed: object) -> None:
        self.world = World(random.Random(f"spec {seed}"))
        self._sparse = 0.15 if random.Random(f"sparse {seed}").random() < 0.2 else 1
        """What chances are multiplied by: one of five specs has few keys, as those that most people write."""
        self.paths: set[str] = set()
        self.spec: Json = self._draw_map(load_schema(), "", Context(self.world))

    def _draw_map(self, node: Json, path: str, at: Context) -> Json:
        found: Json = {}
        required = set(node.get("required", ()))
        for key, child in node.get("properties", {}).items():
            mine = below(path, key)
            if child is False or reason_to_leave_out(mine) is not None:
                continue
            if path == "dataset" and at.source is not None and at.source.parts and key not in _OF_NESTED:
                continue
            inner = Context(at.world, at.source, at.index, at.in_defaults or key == "defaults", found)
            hint = HINTS.get(mine, Hint(RARE if mine not in HINTS else 1))
            chance = hint.chance(inner) if callable(hint.chance) else hint.chance
            if inner.in_defaults and path.endswith("defaults") and mine not in _OF_DEFAULTS:
                chance *= 0.3
            if chance < 1:
                chance *= self._sparse
            if key not in required and not at.world.happens(chance):
                continue
            value = hint.value(inner) if hint.value is not None else self._draw(child, mine, inner)
            if value is NOTHING or (value == {} and hint.value is None):
                continue
            found[key] = value
            self.paths.add(mine)
            self.paths |= set(_paths_of(value, mine))
        return found

    def _draw(self, node: Json, path: str, at: Context) -> Any:
        """Return a value that the schema allows; NOTHING if it says too little."""
        if path in ("dataset", "dataset.dataset"):
            sources = at.world.sources if path == "dataset" else (at.source.parts if at.source else [])
            entry = load_schema()["$defs"]["SourceEntry"]
            return [
                self._draw_map(entry, "dataset", Context(at.world, source, number))
                for number, source in enumerate(sources)
            ]
        choices = list_alternatives(node)
        maps = [each for each in choices if "object" in _types(each) and each.get("properties")]
        if maps and HINTS.keys() & {below(path, key) for key in maps[0]["properties"]}:
            choices = maps
        for each in at.rng.sample(choices, len(choices)):
            value = self._draw_one(each, path, at)
            if value is not NOTHING:
                return value
        return NOTHING

    def _draw_one(self, node: Json, path: str, at: Context) -> Any:
        rng, types = at.rng, _types(node)
        if "const" in node:
            return node["const"]
        if "enum" in node:
            return rng.choice(node["enum"])
        if "boolean" in types:
            return rng.random() < 0.5
        if types & {"integer", "number"}:
            least = node.get("minimum", node.get("exclusiveMinimum", 0))
            most = min(node.get("maximum", least + 20), least + 20)
            return rng.randint(int(least) + ("exclusiveMinimum" in node), int(most))
        if "string" in types:
            return "text" if re.search(node.get("pattern", ""), "text") else NOTHING
        if "array" in types:
            items = [self._draw(node["items"], path, at) for _ in range(max(1, node.get("minItems", 1)))]
            return NOTHING if any(each is NOTHING for each in items) else items
        if "object" in types:
            if node.get("properties"):
                return self._draw_map(node, path, at)
            child = node.get("additionalProperties")
            value = self._draw(child, f"{path}.*", at) if isinstance(child, dict) else 1
            return NOTHING if value is NOTHING else {at.world.names[0]: value}
        return NOTHING


_OF_NESTED = ("name", "weight", "probability", "upsample", "dataset", "mix", "defaults")
"""Keys of a nested mix."""
_OF_DEFAULTS = {
    f"dataset.{key}"
    for key in ("extensions", "missing", "rename", "tags", "shuffle", "order", "interleave", "make", "fetch")
}
"""Keys that are as frequent in `defaults` as their hints say."""


def _paths_of(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of the keys in a value."""
    if isinstance(value, list):
        for each in value:
            yield from _paths_of(each, path)
    elif isinstance(value, dict):
        for key, each in value.items():
            mine = below(path, key)
            yield mine
            yield f"{path}.*"
            yield from _paths_of(each, mine)
            yield from _paths_of(each, f"{path}.*")


def draw_calls(seed: object, spec: Json, steps: int) -> tuple[list[Any], list[Any]]:
    """Return what the training loop calls.

    Returns:
        (step before which `set_shares` is called, shares, `after`), and (step before which `skip_steps` is called,
        first, last), as for the reference model.
    """
    rng = random.Random(f"calls {seed}")
    live: list[Any] = []
    skips: list[Any] = []
    names = [source["name"] for source in spec["dataset"]]
    mix = spec.get("mix", {})
    epoch = spec.get("epoch")
    if epoch == "pass" or (isinstance(epoch, dict) and "pass" in epoch):
        return live, skips
    can_set = mix.get("draw") != "round_robin" and "max_passes" not in json.dumps(spec)
    if len(names) > 1 and can_set and rng.random() < 0.35:
        for step in sorted(rng.sample(range(steps), rng.choice((1, 1, 2, 3)))):
            shares = {name: rng.choice((0, 1, 2, 4)) for name in names}
            if not any(shares.values()):
                shares[names[-1]] = 1
            live.append((step, shares, rng.choice((0, 0, 0, 1, 4))))
    if rng.random() < 0.2:
        for step in sorted(rng.sample(range(steps), rng.choice((1, 2)))):
            first = step + rng.choice((0, 1, 3))
            skips.append((step, first, first + rng.choice((0, 2, 6))))
    return live, skips
