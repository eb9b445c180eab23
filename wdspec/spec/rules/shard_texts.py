"""The texts that say where shards are, for the rules that look at them."""

from __future__ import annotations

from collections.abc import Iterator

from wdspec.spec.compose.draft import Composed
from wdspec.spec.tree.nodes import ListNode, Scalar


def shard_texts(composed: Composed) -> Iterator[Scalar]:
    """Every entry of every `shards` that is a text with something in it."""
    for leaf in composed.leaves:
        shards = leaf.node.get("shards")
        for item in shards.items if isinstance(shards, ListNode) else (shards,):
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.strip():
                yield item
