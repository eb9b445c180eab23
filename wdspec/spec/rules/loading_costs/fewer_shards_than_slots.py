"""W361: there is a shard for each slot."""

from __future__ import annotations

from wdspec.spec.draft import Composed
from wdspec.spec.rules.lint_rule import Finding, Findings, rule
from wdspec.spec.rules.shard_texts import parts_of


@rule(
    "W361",
    "fewer shards than slots",
    "A slot is one worker of one rank. With fewer shards than slots several slots read the same shard, each "
    "leaving out what is not its own, so the bytes are read several times.",
    bad="elastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..15}.tar'\n",
    good="elastic: {ranks: 8, workers: 4}\ndataset:\n  - shards: 'a-{00..63}.tar'\n",
)
def fewer_shards_than_slots(composed: Composed) -> Findings:
    """Sources whose shards can be counted, and are less than the slots of `elastic`, or than `loader.workers`."""
    elastic, workers = composed.spec.elastic, composed.spec.loader.workers
    slots = elastic.ranks * elastic.workers if elastic is not None else workers
    counts: dict[str, int] = {}
    for leaf, _, parts in parts_of(composed):
        listed = any(part.listed for part in parts)
        counts[leaf.name] = (
            slots if listed else counts.get(leaf.name, 0) + sum(len(part.braces) for part in parts)
        )
    for leaf in composed.leaves:
        count = counts.get(leaf.name, slots)
        if slots > 1 and count < slots:
            message = f"{count} shards for {slots} slots: a shard is read by {-(-slots // count)} of them"
            yield Finding(
                leaf.node.key_or_self("shards"), message, "make more shards (`wdspec split`), or fewer slots"
            )
