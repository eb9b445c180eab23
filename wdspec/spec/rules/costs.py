"""Rules for settings that make reading slow."""

from __future__ import annotations

import re

from wdspec.base.amounts import pluralize
from wdspec.spec.build import Composition
from wdspec.spec.language.options import Elastic
from wdspec.spec.problems import list_names
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shards import parts_of
from wdspec.urls.urls import is_command, scheme_of

MANY_WORKERS = 32
"""Workers of one rank that are probably meant for all ranks, if there are fewer shards than slots."""


@rule(
    "W361",
    "fewer shards than slots",
    "A slot is one worker of one rank. With fewer shards than slots, several slots read the same shard, and each one "
    "discards the samples of the others, so the bytes are read several times.",
    keys="elastic workers",
    bad="elastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
    good="elastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..63}.tar'\n",
)
def fewer_shards_than_slots(composition: Composition) -> Findings:
    """Sources with fewer shards than slots in `elastic`, or than `loader.workers`, if they can be counted."""
    elastic, workers = composition.spec.elastic, composition.spec.loader.workers
    slots = elastic.ranks * elastic.workers if elastic is not None else workers
    counts: dict[str, int] = {}
    for leaf, _, parts in parts_of(composition):
        listed = any(part.listed for part in parts)
        counts[leaf.name] = (
            slots if listed else counts.get(leaf.name, 0) + sum(len(part.braces) for part in parts)
        )
    few = [leaf for leaf in composition.leaves if counts.get(leaf.name, slots) < slots > 1]
    if few:
        count, others = counts[few[0].name], [leaf.name for leaf in few[1:]]
        message = f"{pluralize(count, 'shard')} for {slots} slots: each is read by up to {-(-slots // count)} of them"
        message += f"; other sources with too few are {list_names(others, 3)}" if others else ""
        hint = "make more shards (`wdspec split`), or use fewer slots"
        yield Finding(few[0].node.key_or_self("shards"), message, _describe_workers(elastic) + hint)


def _describe_workers(elastic: Elastic | None) -> str:
    """What to write if `workers` are probably those of all ranks together; empty if there are not that many."""
    if (
        elastic is None
        or elastic.ranks < 2
        or elastic.workers < MANY_WORKERS
        or elastic.workers % elastic.ranks
    ):
        return ""
    each = elastic.workers // elastic.ranks
    return (
        f"`workers: {elastic.workers}` is for each of {elastic.ranks} ranks; if it is for all of them, write "
        f"`workers: {each}`; otherwise "
    )


@rule(
    "W364",
    "workers that cannot share the slots",
    "The workers of a rank share the workers in `elastic` evenly, so `loader.workers` must divide `elastic.workers`, "
    "which is 1 by default. With other numbers, a run raises an error, unless its `num_workers` is set elsewhere.",
    keys="workers",
    bad="elastic: {ranks: 2, workers: 4}\nloader: {workers: 3}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
    good="elastic: {ranks: 2, workers: 4}\nloader: {workers: 4}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
)
def uneven_workers(composition: Composition) -> Findings:
    """A `loader.workers` that does not divide `elastic.workers`."""
    elastic, workers = composition.spec.elastic, composition.spec.loader.workers
    if (
        elastic is not None
        and workers
        and elastic.workers % workers
        and not composition.bad & {"elastic", "loader"}
    ):
        divisors = [
            str(each) for each in range(1, min(elastic.workers, 64) + 1) if elastic.workers % each == 0
        ]
        hint = f"write {list_names(divisors)} in `loader`, or `elastic: {{workers: {workers}}}`"
        message = f"{workers} workers cannot share {elastic.workers} of `elastic`"
        yield Finding(composition.top.entries["loader"].value.value_or_self("workers"), message, hint)


_COMPRESSED = re.compile(r"(?i)\.(?:tgz|tbz2?|txz|tzst|gz|bz2|xz|zst)$")


@rule(
    "W362",
    "compressed shards that are interleaved",
    "A compressed shard can only be read from its start. When a run resumes, all open shards are decompressed again up "
    "to where they were, and each one needs a decompressor. Compressed members in plain tars (`jpg`, `txt.gz`) do not "
    "have that cost.",
    keys="interleave",
    bad="dataset:\n  - {shards: 'a-{00..15}.tar.gz', interleave: 8}\n",
    good="dataset:\n  - {shards: 'a-{00..15}.tar', interleave: 8}\n",
)
def compressed_interleave(composition: Composition) -> Findings:
    """A written `interleave` above 1, for shards with the suffix of a compression."""
    seen = set()
    for leaf, text, parts in parts_of(composition):
        source = leaf.model
        written = "interleave" in leaf.node.entries and source is not None and source.interleave > 1
        if written and leaf.name not in seen and any(_COMPRESSED.search(part.text) for part in parts):
            seen.add(leaf.name)
            message = "several compressed shards are open at a time, and each one is read from its start"
            yield Finding(text, message, "write plain tars, or use `interleave: 1`")


LEAST_SHARD = 1_000_000
"""In bytes; usual shards have 100 MB to 1 GB."""


@rule(
    "W363",
    "a cache smaller than a pass",
    "A pass reads every shard once. If they do not all fit into the cache, each one is evicted before it is read "
    "again, so the cache is never used. The size is a number of bytes, or text such as `500GB`.",
    keys="cache",
    bad="cache: {dir: cache, size: 500}\ndataset:\n  - shards: 's3://b/a-{000..099}.tar'\n",
    good="cache: {dir: cache, size: 500GB}\ndataset:\n  - shards: 's3://b/a-{000..099}.tar'\n",
)
def small_caches(composition: Composition) -> Findings:
    """Caches with less than a megabyte for each remote shard."""
    cache = composition.spec.cache
    if cache is None or not cache.size:
        return
    remote = sum(
        1 if part.listed else len(part.braces)
        for _, _, parts in parts_of(composition)
        for part in parts
        if scheme_of(part.text) not in ("", "file") and not is_command(part.text)
    )
    if cache.size < remote * LEAST_SHARD:
        message = f"{cache.size:,} bytes are {cache.size // remote:,} for each of {remote:,} shards"
        yield Finding(
            composition.top.entries["cache"].value.value_or_self("size"),
            message,
            "make it large enough for all of them",
        )
