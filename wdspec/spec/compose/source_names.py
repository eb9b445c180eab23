"""Every source gets a name: its own, or one made from the name of its shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from wdspec.redaction import redacted_urls
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import ListNode, MapNode, Node, Scalar

_PATTERN = re.compile(r"[{*?\[]|\$\{")
_SUFFIX = re.compile(r"\.(?:tar|tgz|tbz2?|txz|tzst|cbors?|msgpack|mps|jsonl|ndjson)(?:\.\w+)?$|\.txt$")
_LONGEST = 100


def entries(dataset: Node | None) -> Iterator[MapNode]:
    """The sources of a list that are maps, as they should be."""
    if isinstance(dataset, ListNode):
        for item in dataset.items:
            if isinstance(item, MapNode):
                yield item


def every_source(dataset: Node | None) -> Iterator[MapNode]:
    """The sources of a list and of the mixes nested in it, each mix before its sources."""
    for entry in entries(dataset):
        yield entry
        yield from every_source(entry.get("dataset"))


def name_of(entry: MapNode) -> str | None:
    """The name that stands in a source."""
    name = entry.get("name")
    return name.value if isinstance(name, Scalar) and isinstance(name.value, str) and name.value else None


def default_name(entry: MapNode) -> str:
    """A name made from the shards: `gs://bucket/ia1-{000..033}.tar` is called `ia1`."""
    if entry.get("shards") is None:
        return "mix"
    shards = entry.get("shards")
    if isinstance(shards, ListNode) and shards.items:
        shards = shards.items[0]
    text = shards.value if isinstance(shards, Scalar) and isinstance(shards.value, str) else ""
    parts = redacted_urls(text.split("::")[0]).split("/")  # names are shown, logged and saved
    for part in reversed(parts):
        cut = _PATTERN.split(part, maxsplit=1)[0] if _PATTERN.search(part) else _SUFFIX.sub("", part)
        name = cut.strip("-_.@$#? ")[:_LONGEST]
        if name and not name.endswith(":"):
            return name
    return "source"


def with_names(dataset: ListNode, problems: Problems) -> ListNode:
    """The same sources, each with a `name`; names that stand twice are problems."""
    taken: dict[str, MapNode] = {}
    for entry in every_source(dataset):
        name = name_of(entry)
        if name is None:
            continue
        if name in taken:
            first = taken[name].entries["name"].value.position
            other = f"line {first.line}" if first.file == entry.origin.name and first.line else f"{first}"
            hint = "the name is the key of a source's order, so give each its own"
            node = entry.entries["name"].value
            problems.add("E304", node, f"two sources are called `{name[:60]}`, the other in {other}", hint)
        taken.setdefault(name, entry)
    counts: dict[str, int] = {}
    names = set(taken)

    def named(entry: MapNode) -> MapNode:
        if entry.get("name") is not None:
            return entry
        return entry.setting("name", entry.scalar(_free(default_name(entry), names, counts)))

    return with_each(dataset, named)


def prefixed(dataset: ListNode, prefix: str) -> ListNode:
    """The same named sources, each called `prefix/name`."""

    def with_prefix(entry: MapNode) -> MapNode:
        name = entry.get("name")
        if not isinstance(name, Scalar) or not isinstance(name.value, str):
            return entry  # which is a problem that is found where its values are checked
        return entry.setting("name", name.scalar(f"{prefix}/{name.value}", width=name.width))

    return with_each(dataset, with_prefix)


def with_each(dataset: ListNode, change: Callable[[MapNode], MapNode]) -> ListNode:
    """The same list with its sources changed, each nested mix before its sources."""

    def changed(item: Node) -> Node:
        if not isinstance(item, MapNode):
            return item
        item = change(item)
        nested = item.get("dataset")
        return item.setting("dataset", with_each(nested, change)) if isinstance(nested, ListNode) else item

    return dataset.mapped(changed)


def _free(name: str, taken: set[str], counts: dict[str, int]) -> str:
    candidate = name
    while candidate in taken:
        counts[name] = counts.get(name, 1) + 1
        candidate = f"{name}-{counts[name]}"
    taken.add(candidate)
    return candidate
