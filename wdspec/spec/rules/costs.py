"""Rules for settings that cost more than they bring."""

from __future__ import annotations

import re

from wdspec.spec.build import Composition
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.shard_patterns import parts_of
from wdspec.urls.urls import is_command, scheme_of


@rule(
    "W361",
    "fewer shards than slots",
    "A slot is one worker of one rank. With fewer shards than slots several slots read the same shard, each "
    "leaving out what is not its own, so the bytes are read several times.",
    keys="elastic workers",
    bad="elastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
    good="elastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..63}.tar'\n",
)
def fewer_shards_than_slots(composition: Composition) -> Findings:
    """Sources whose shards can be counted, and are less than the slots of `elastic`, or than `loader.workers`."""
    elastic, workers = composition.spec.elastic, composition.spec.loader.workers
    slots = elastic.ranks * elastic.workers if elastic is not None else workers
    counts: dict[str, int] = {}
    for leaf, _, parts in parts_of(composition):
        listed = any(part.listed for part in parts)
        counts[leaf.name] = (
            slots if listed else counts.get(leaf.name, 0) + sum(len(part.braces) for part in parts)
        )
    for leaf in composition.leaves:
        count = counts.get(leaf.name, slots)
        if slots > 1 and count < slots:
            message = f"{count} shards for {slots} slots: a shard is read by {-(-slots // count)} of them"
            yield Finding(
                leaf.node.key_or_self("shards"), message, "make more shards (`wdspec split`), or fewer slots"
            )


_COMPRESSED = re.compile(r"(?i)\.(?:tgz|tbz2?|txz|tzst|gz|bz2|xz|zst)$")


@rule(
    "W362",
    "compressed shards that are interleaved",
    "A compressed shard can only be read from its beginning. To go on from a state, all of them are "
    "decompressed again up to where they stood, and meanwhile each holds a decompressor. Compressed members "
    "in plain tars (`jpg`, `txt.gz`) do not have that cost.",
    keys="interleave",
    bad="dataset:\n  - {shards: 'a-{00..15}.tar.gz', interleave: 8}\n",
    good="dataset:\n  - {shards: 'a-{00..15}.tar', interleave: 8}\n",
)
def compressed_interleave(composition: Composition) -> Findings:
    """An `interleave` that somebody wrote, above 1, for shards whose names say that they are compressed."""
    seen = set()
    for leaf, text, parts in parts_of(composition):
        source = leaf.model
        written = "interleave" in leaf.node.entries and source is not None and source.interleave > 1
        if written and leaf.name not in seen and any(_COMPRESSED.search(part.text) for part in parts):
            seen.add(leaf.name)
            message = "compressed shards are read side by side, each from its beginning"
            yield Finding(text, message, "write plain tars, or leave `interleave` at 1")


LEAST_SHARD = 1_000_000
"""Bytes; shards are made of 100 MB to 1 GB."""


@rule(
    "W363",
    "a cache smaller than a pass",
    "A pass reads every shard once. A cache that cannot hold them all has thrown out each one before it is "
    "read again, so nothing is ever found in it. The size is in bytes, or in text such as `500GB`.",
    keys="cache",
    bad="cache: {dir: cache, size: 500}\ndataset:\n  - shards: 's3://b/a-{000..099}.tar'\n",
    good="cache: {dir: cache, size: 500GB}\ndataset:\n  - shards: 's3://b/a-{000..099}.tar'\n",
)
def small_caches(composition: Composition) -> Findings:
    """Caches of less than a megabyte for each remote shard of the spec."""
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
            "give it room for all of them",
        )
