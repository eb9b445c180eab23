"""The texts that say where shards are, for the rules that look at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from wdspec.base.errors import UrlError
from wdspec.spec.draft import Composed, Draft
from wdspec.spec.tree import ListNode, Scalar
from wdspec.urls.urls import Part, parse_shards


def shard_texts(composed: Composed) -> Iterator[tuple[Draft, Scalar, Sequence[Part] | UrlError]]:
    """Every entry of every `shards` that is a text with something in it: its source, itself, the URLs it stands for."""
    for leaf in composed.leaves:
        shards = leaf.node.get("shards")
        for item in shards.items if isinstance(shards, ListNode) else (shards,):
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.strip():
                yield leaf, item, _parsed(item.value, item.base)


def parts_of(composed: Composed) -> Iterator[tuple[Draft, Scalar, Sequence[Part]]]:
    """Those that can be read."""
    for leaf, text, parts in shard_texts(composed):
        if not isinstance(parts, UrlError):  # E213
            yield leaf, text, parts


def written_texts(composed: Composed) -> Iterator[tuple[Scalar, str]]:
    """Every such text as it is written; one that several sources inherit comes once."""
    texts = {id(text): text for _, text, _ in shard_texts(composed)}
    return ((text, str(text.value)) for text in texts.values())


@lru_cache(maxsize=4096)
def _parsed(text: str, base: str) -> Sequence[Part] | UrlError:
    try:
        return parse_shards((text,), base)
    except UrlError as error:
        return error
