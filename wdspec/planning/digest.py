"""A description of everything that the order of a run depends on, so that a resume can detect and report changes.

It covers every key whose definition declares that it affects the order (`spec.language.effects`). Many keys are
described by their effect on the plan (`AffectsPlan`). The others are included by name if their value is not the
default, so a new key does not change the digests of specs that do not use it. Keys that affect only
the samples (`decode`, `map`, …) have a separate digest: if it changes, wdspec warns. Where an expression reads a field
that `rename`, `tags` or `decode` concern, these are included for this field (`expressions.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

from wdspec.base.amounts import percent, pluralize
from wdspec.base.redaction import redact
from wdspec.planning.expressions import describe_costs, describe_selection, made_for_order, made_leaving_out
from wdspec.planning.passes import Pass
from wdspec.planning.plan import Plan
from wdspec.spec.language.effects import declared_keys, described, plain_value
from wdspec.spec.language.fetching import SKIPPING
from wdspec.spec.language.making import MADE_FILES
from wdspec.spec.spec import Source, Spec
from wdspec.steps.files import files_of_step
from wdspec.urls.urls import ShardUrl, UrlSequence

EXPAND_UP_TO = 1 << 16
"""Shard lists up to this length are hashed shard by shard, longer ones by their patterns, which is much faster."""

_NAMED = {
    "keys": "its files have other keys",
    "exclude": "its files have other keys",
    "join": "it has other shards",
    "lookup": "a table has other rows",
}
"""What changed, if a digest of files that a key of a source names has changed."""

CONTENTS = "has other contents"
"""What is said of a file of `make` that has changed."""

NO_FILES: Mapping[str, Mapping[str, str]] = {}


def describe_order(
    spec: Spec, plan: Plan, files: Mapping[str, Mapping[str, str]] = NO_FILES
) -> dict[str, Any]:
    """Describe everything that the order depends on as plain JSON values; `files` has digests, as `Shards.files`."""
    options = {source.name: source for source in spec.sources}
    skipping = [s for s in options.values() if s.missing == "skip" or (s.fetch and s.fetch in SKIPPING)]
    asked = {each.name: described(each, "fields") | described(spec, "fields") for each in skipping}
    reads = {
        source.name: read
        for source in options.values()
        if (source.where or source.subset or source.keys_of or source.make)
        and (read := _describe_reads(source, spec, source.name in asked))
    }
    return {
        **({} if plan.finite is None else {"pass": _finite(plan.finite)}),
        "seed": spec.seed,
        "elastic": {"ranks": plan.topology.ranks, "workers": plan.topology.workers},
        "batch": plan.batching.per_slot if plan.batching.batched else None,
        **({"batch.size": spec.batch.size} if spec.batch and plan.batching.windowed else {}),
        "mix": plan.draw,
        **_mixing(plan),
        **{key.replace("max_tokens", "max_cost"): each for key, each in described(spec, "order").items()},
        **_mixes(spec),
        **(_costs_read(spec, plan, files) if plan.batching.windowed else {}),
        "sources": {
            source.name: {
                "share": str(source.share),
                "shards": digest_shards(source.shards),
                "order": source.order.kind,
                "shuffle": source.delays.size,
                "interleave": source.interleave,
                **described(options[source.name], "order", only_whole=True),
                "key": options[source.name].key.regex or options[source.name].key.kind,
                **asked.get(source.name, {}),
                **described(options[source.name], "order"),  # after those above, as in older states
                **reads.get(source.name, {}),
                **(_files(files[source.name], options[source.name], spec) if source.name in files else {}),
            }
            for source in plan.sources
        },
        **({"companions": _describe_companions(spec, plan, files)} if plan.companions else {}),
    }


def _describe_reads(source: Source, spec: Spec, has_steps: bool) -> dict[str, Any]:
    """What expressions read that select samples, and what decides which samples steps leave out.

    Args:
        has_steps: whether all steps are described already.
    """
    names = frozenset[str]() if has_steps else made_leaving_out(source)
    steps = {name: source.make[name].leaving_out or source.make[name] for name in names}
    reads = describe_selection(source, spec.costs)
    return {**({"make": plain_value(steps)} if steps else {}), **({"reads": reads} if reads else {})}


def _describe_companions(spec: Spec, plan: Plan, files: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Describe everything that the streams of companions depend on, and which samples get some."""
    batching, found = replace(plan.batching, windowed=False), {}
    bare = replace(plan, batching=batching, finite=None, schedule=(), companions=())
    for each in plan.companions:
        alone = spec.of_companions.of([spec.companions[each.stream.name]])
        mix = replace(bare, sources=(each.stream,))
        order = describe_order(alone, mix, files)
        chance = {"chance": each.threshold / (1 << 64), "count": each.count}
        name = each.stream.name  # the order of its shards depends on it
        found[f"{each.owner}/{each.field}"] = {"source": name, **chance, **order["sources"][name]}
    return found


def describe_samples(spec: Spec, files: Mapping[str, Mapping[str, str]] = NO_FILES) -> str:
    """Return a digest of everything that changes the samples but not their order; `files` as for `describe_order`.

    Digests of files of `make` follow it, by field, as JSON.
    """
    sources = (*spec.sources_by_name, *spec.companions.values())
    holders: list[tuple[str, Spec | Source]] = [("", spec), *((source.name, source) for source in sources)]
    found: dict[str, dict[str, Any]] = {}
    for name, holder in holders:
        values = described(holder, "samples").items()
        found[name] = {key: value for key, value in values if not key.startswith("aistore.etl.")}
    for source in sources:  # a source inherits an ETL in its own way
        if (etl := spec.etl_of(source)) is not None:
            found[source.name] |= described(etl, "samples")
    # Sorted, because the order of the keys of a map has no effect.
    return _hash(json.dumps(found, sort_keys=True)) + (_digest_made(files) if files else "")


def _digest_made(files: Mapping[str, Mapping[str, str]]) -> str:
    """Return a digest of the files of each field that `make` makes; the files' own if they are the same everywhere."""
    found: dict[str, dict[str, str]] = {}
    for source, digests in files.items():
        for key, value in _made(digests):
            found.setdefault(key, {})[source] = value
    each = {
        key: next(iter(of.values())) if len({*of.values()}) == 1 else _hash(json.dumps(of, sort_keys=True))
        for key, of in found.items()
    }
    return f" {json.dumps(each, sort_keys=True)}" if each else ""


def samples_differences(old: str, new: str, spec: Spec | None = None) -> Iterator[str]:
    """Yield a line for each difference between two results of `describe_samples`: what changes, and what it is now.

    Args:
        old, new: the results.
        spec: the spec of the new one, whose files are named.
    """
    (before, _, old_files), (now, _, new_files) = old.partition(" "), new.partition(" ")
    if before != now:
        yield "`decode`, `scale`, `rename`, `fetch`, `make`, `map` or `tags`"
    made = [json.loads(text or "{}") for text in (old_files, new_files)]
    for key in sorted(made[0].keys() & made[1].keys()):
        if made[0][key] != made[1][key]:
            yield _name_made(key, made[0][key], made[1][key], spec)
    if before == now and made[0].keys() != made[1].keys():
        yield "the files of `make`"


def _name_made(key: str, old: str, new: str, spec: Spec | None) -> str:
    """Name the file of a made field, if it is known, whose contents differ."""
    name = key.removeprefix(MADE_FILES)
    sources = () if spec is None else spec.sources
    lists = {tuple(files_of_step(source.make[name].files)) for source in sources if name in source.make}
    paths = next(iter(lists)) if len(lists) == 1 else ()
    olds, news = old.split(" "), new.split(" ")
    if len(olds) == len(news) == len(paths):
        paths = tuple(path for path, was, now in zip(paths, olds, news, strict=True) if was != now)
    if len(paths) != 1:
        return f"a file of `make: {name}`"
    return f"the file {redact(paths[0])} of `make: {name}`"


def _made(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the digests of the files of `make`."""
    return ((key, value) for key, value in files.items() if key.startswith(MADE_FILES))


def _files(files: Mapping[str, str], source: Source, spec: Spec) -> dict[str, Any]:
    """Return the digests of the files of a source on which reading depends, and those on which `select` may depend."""
    read = {f"{MADE_FILES}{name}" for name in made_for_order(source, spec.costs)}
    made = dict(_made(files))
    found = {key: value for key, value in files.items() if key in read or key not in made}
    later = {"select.files": made} if source.select and made else {}
    return {**({"files": found} if found else {}), **later}


def digest(description: dict[str, Any]) -> str:
    """Return a short hash of a description."""
    return _hash(json.dumps(description, sort_keys=True))


def digest_windows(description: dict[str, Any]) -> str:
    """Return a short hash of how batches are planned from windows. If it changes, no run can resume in a window."""
    return digest({key: value for key, value in description.items() if key.startswith(("batch", "costs"))})


def digest_shards(shards: Sequence[ShardUrl]) -> str:
    """Return the number of shards and a hash of their URLs as written, with a colon."""
    count = len(shards)
    if isinstance(shards, UrlSequence) and count > EXPAND_UP_TO:
        text = repr([(getattr(run.texts, "pattern", run.texts), run.prefix) for run in shards.parts])
    else:
        text = "\n".join(shards.texts() if isinstance(shards, UrlSequence) else (s.text for s in shards))
    return f"{count}:{_hash(text)}"


def differences(old: Any, new: Any, path: str = "", spec: Spec | None = None) -> Iterator[str]:
    """Yield one line for each difference between two descriptions: the place, the old value and the new value.

    Parts of a source that are written in two ways, such as `50%` and `[0%, 50%]`, are the same. A file of `make` that
    has other contents is one difference, whichever sources read it.

    Args:
        old, new: the descriptions, or parts of them.
        path: where the parts are.
        spec: the spec of the new one, whose files of `make` are named.
    """
    yield from dict.fromkeys(_differences(old, new, path, spec))


def _differences(old: Any, new: Any, path: str, spec: Spec | None) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            place = f"{path}.{name}" if path else name
            if name not in new:
                yield f"{place}: removed"
            elif name not in old:
                yield f"{place}: added"
            else:
                yield from _differences(old[name], new[name], place, spec)
    elif old != new and not (path.endswith(".subset.part") and [*map(Decimal, old)] == [*map(Decimal, new)]):
        if path.endswith(".shards"):
            was, now = str(old).partition(":")[0], str(new).partition(":")[0]
            yield f"{path}: " + (
                f"was {pluralize(int(was), 'shard')}, now {now}"
                if was != now
                else f"still {pluralize(int(now), 'shard')}, but different ones"
            )
        elif f".files.{MADE_FILES}" in path:
            key = MADE_FILES + path.rpartition(f".files.{MADE_FILES}")[2]
            yield f"{_name_made(key, old, new, spec)} {CONTENTS}"
        elif ".files." in path:
            yield f"{path}: {_NAMED[path.rpartition('.files.')[2].partition('.')[0]]}"
        elif path.endswith(".share") or path.startswith("schedule."):
            was, now = _show_shares(old, new)
            limited = spec is not None and any(each.max_passes is not None for each in spec.sources)
            changes = limited or (spec is not None and bool(spec.mix.schedule))
            largest = " (the largest, as shares change)" * (changes and path.endswith(".share"))
            yield f"{path}{largest}: was {was}, now {now}"
        else:
            yield f"{path}: was {json.dumps(old)}, now {json.dumps(new)}"


def _show_shares(*shares: str) -> list[str]:
    """Return shares as `2/3` or as percentages, with as many digits as it takes to tell them apart."""
    numbers = [Fraction(share) for share in shares]
    shown = [str(each) if each.denominator < 100 else percent(float(each)) for each in numbers]
    return shown if len({*shown}) > 1 else [f"{100 * float(each):.15g}%" for each in numbers]


_DRAWN = frozenset({"share", "shuffle", "interleave", "max_passes", "on_exhausted"})
"""The entries of a source that say how often its samples are drawn, and how many are held."""


@cache
def _not_read() -> frozenset[str]:
    """The entries of a source that affect how raw samples are drawn, held or dropped, but not the order of reading."""
    dropping = (
        key.name
        for model in (Source, Spec)
        for key in declared_keys(model)
        if (key.drops and not key.drops.when_read) or (key.affects and key.affects.order_if_skipping)
    )
    return frozenset({*_DRAWN, "select.files", *dropping})


def reads_alike(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether every slot reads the raw samples of a source in the same order under both descriptions."""
    before, now = (
        {key: value for key, value in described["sources"].get(name, {}).items() if key not in _not_read()}
        for described in (old, new)
    )
    return old["seed"] == new["seed"] and not any(differences(before, now, name))


def drops_alike(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the same samples of a source are left out under both descriptions, but for those of `select`."""
    keys = _not_read() - {*_DRAWN, "select", "select.files"}
    before, now = (
        {key: value for key, value in described["sources"].get(name, {}).items() if key in keys}
        for described in (old, new)
    )
    return not any(differences(before, now, name))


def with_unsaid(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return an older description with what states of earlier versions say nothing of.

    That is what expressions read, by which steps samples are left out, and the sources of companions. It is taken
    from the description of the run that resumes, whose samples must have the same description. What is measured after
    `map` is left out, as earlier versions measured before it.
    """
    sources = _complete(old["sources"], new["sources"])
    read = {
        name: before
        for name, fields in new.get("costs.read", {}).items()
        if (before := {field: entry for field, entry in fields.items() if "map" not in entry})
    }
    companions = _complete(old.get("companions", {}), new.get("companions", {}))
    found = {**({"costs.read": read} if read else {}), **old, "sources": sources}
    return found | ({"companions": companions} if companions else {})


def _complete(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return older descriptions of sources with what they do not say, by name."""
    found = {}
    for name, of in old.items():
        now = new.get(name, {})
        found[name] = {key: now[key] for key in ("source", "reads", "make") if key in now} | of
        if files := dict(_made(now.get("files", {}))) | of.get("files", {}):
            found[name]["files"] = files
    return found


def _finite(finite: Pass) -> dict[str, Any]:
    said = {"samples": finite.samples, "batches": finite.batches, "counts": f"{finite.digest:016x}"}
    return {**said, **({"reshuffle": True} if finite.is_reshuffled else {})}


def _mixing(plan: Plan) -> dict[str, Any]:
    """The effects of `mix` besides `draw`. Defaults are left out, so that older states keep their digests."""
    said: dict[str, Any] = {} if plan.unit == "sample" else {"unit": plan.unit}
    if plan.schedule:
        names = [source.name for source in plan.sources]
        said["schedule"] = {
            f"batch {segment.start}": dict(zip(names, map(str, segment.shares), strict=True))
            for segment in plan.schedule
        }
    return said


def _costs_read(spec: Spec, plan: Plan, files: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The effect of `rename`, `tags`, `decode`, `make` and `map` on what `batch` measures, by source."""
    active = {source.name for source in plan.sources}
    read = {
        source.name: describe_costs(source, spec, files.get(source.name, {}))
        for source in spec.sources
        if source.name in active
    }
    said = {name: each for name, each in read.items() if each}
    return {"costs.read": said} if said else {}


def _mixes(spec: Spec) -> dict[str, Any]:
    """The keys of nested mixes that affect the order, besides those that only affect the shares of their sources."""
    stated = {mix.name: described(mix, "order", whole=False) for each in spec.dataset for mix in each.mixes}
    said = {name: values for name, values in stated.items() if values}
    return {"mixes": said} if said else {}


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
