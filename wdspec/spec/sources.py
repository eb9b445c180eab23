"""The list of sources as it takes effect: child specs inlined, overlays by name, defaults filled in.

Every source gets a name: its own, or one made from the name of its shards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from wdspec.base.errors import did_you_mean
from wdspec.base.redaction import redacted_urls
from wdspec.spec.draft import SHARE_KEYS, Draft
from wdspec.spec.files import Library
from wdspec.spec.problems import Problems, listed, shown
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar, is_null, merge, plain
from wdspec.spec.validation import MERGED_TOP, keys_of, stands_for
from wdspec.spec.variants import choose_split

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


MAX_SOURCES = 20_000
MAX_VALUES = 1_000_000
MAX_NESTING = 16
GROUP_KEYS = frozenset({"name", "probability", "weight", "upsample", "dataset", "mix", "defaults", "tags"})
_BROUGHT = frozenset({"dataset", "mix", "defaults", "vars", "rewrite"})
"""What a child spec brings with it."""
_NOT_IN_DEFAULTS = frozenset({"name", "shards", "dataset", "spec", "mix", "defaults"})


Expander = Callable[[MapNode], MapNode]


class Assembly:
    """Builds the drafts of a spec from its merged tree.

    Args:
        library: where child specs come from.
        expand: gives a file's tree with the variables of its own scope replaced.
        problems: where what is wrong is noted.
    """

    def __init__(self, library: Library, expand: Expander, problems: Problems) -> None:
        self._library = library
        self._expand = expand
        self._problems = problems
        self._count = 0
        self._chain: tuple[str, ...] = ()

    def drafts(self, top: MapNode, chain: tuple[str, ...]) -> list[Draft] | None:
        """The sources of an expanded top-level tree; None, and a problem, when there are none.

        Args:
            chain: absolute paths of the files that are open, so that a child cannot be its own parent.
        """
        listed = self._listed(top, top)
        if listed is None:
            return None
        self._chain = chain
        dataset = with_names(self._inlined(listed, chain, 0), self._problems)
        patches = top.get("sources")
        if patches is not None:
            dataset = with_names(self._patched(dataset, patches), self._problems)
        bottom: MapNode = top.with_entries({})
        if top.get("errors") is not None:
            bottom = bottom.with_entries({"errors": top.entries["errors"]})
        defaults = self._defaults_over(bottom, top.get("defaults"))
        leaves = sum(1 for entry in every_source(dataset) if entry.get("dataset") is None)
        if leaves > MAX_SOURCES or leaves * defaults.size > MAX_VALUES:
            message = f"{leaves:,} sources with all their defaults are more than can be held"
            self._problems.add("E009", listed, message, "join sources: `shards` takes a list")
            return None
        return self._built(dataset, defaults, None)

    def _listed(self, holder: MapNode, at: MapNode) -> ListNode | None:
        dataset = holder.get("dataset")
        if dataset is None:
            hint = "write `dataset:` with a list of sources: `- shards: data-{000..099}.tar`"
            position = at.key("dataset") if "dataset" in at.entries else at
            if not stands_for("dataset", holder, [*keys_of(Spec), *MERGED_TOP, "sources"]):
                self._problems.add("E206", position, "the spec has no `dataset`", hint)
            return None
        if isinstance(dataset, ListNode) and dataset.items:
            return dataset
        if isinstance(dataset, ListNode):
            self._problems.add("E214", dataset, "this list of sources is empty", "write `- shards: …`")
        else:
            hint = "write `- shards: data-{000..099}.tar` below it"
            if isinstance(dataset, MapNode):
                hint = "put a `-` before the first key of each source: `- shards: …`"
            message = f"`dataset` takes a list of sources, but this is {shown(plain(dataset))}"
            self._problems.add("E202", dataset, message, hint)
        return None

    def _inlined(self, dataset: ListNode, chain: tuple[str, ...], depth: int) -> ListNode:
        """The list with `spec:` entries turned into nested mixes, and entries that are no maps dropped."""
        items: list[Node] = []
        for item in dataset.items:
            if not isinstance(item, MapNode):
                text = item.value if isinstance(item, Scalar) and isinstance(item.value, str) else "…"
                hint = f"write `- shards: {text[:60]}`"
                message = f"a source is a map of keys, but this is {shown(plain(item))}"
                self._problems.add("E202", item, message, hint)
                continue
            self._count += 1
            if depth > MAX_NESTING or self._count > MAX_SOURCES:
                limit = f"{MAX_NESTING} levels" if depth > MAX_NESTING else f"{MAX_SOURCES:,} sources"
                self._problems.add("E009", item, f"mixes are nested into more than {limit}", "flatten them")
                return dataset.list_of(())
            items.append(self._source(item, chain, depth))
        return dataset.list_of(items)

    def _source(self, entry: MapNode, chain: tuple[str, ...], depth: int) -> MapNode:
        kinds = [key for key in ("shards", "dataset", "spec") if entry.get(key) is not None]
        if len(kinds) > 1:
            message = f"a source has either `{kinds[0]}` or `{kinds[1]}`, not both"
            self._problems.add("E207", entry.key(kinds[1]), message, "make two sources of it")
            entry = entry.without(*kinds[1:])
        elif not kinds:
            self._note_missing(entry)
        if entry.get("spec") is not None:
            return self._child(entry, chain, depth)
        nested = entry.get("dataset")
        if nested is None:
            return entry.without("dataset", "spec")
        listed = self._listed(entry, entry)
        empty = entry.list_of(())
        return entry.setting("dataset", self._inlined(listed, chain, depth + 1) if listed else empty)

    def _note_missing(self, entry: MapNode) -> None:
        empty = next((key for key in ("shards", "dataset", "spec") if key in entry.entries), None)
        if empty is not None:
            self._problems.add("E206", entry.key(empty), f"`{empty}` is empty", "fill it in")
            return
        if not stands_for("shards", entry, [*keys_of(Source), "spec", "defaults"]):
            hint = "write `shards: data-{000..099}.tar`"
            self._problems.add("E206", entry, "this source has no `shards`", hint)

    def _child(self, entry: MapNode, chain: tuple[str, ...], depth: int) -> MapNode:
        """A `spec:` entry as a nested mix that brings the child's dataset, mix, defaults and rewrite."""
        node = entry.entries["spec"].value
        empty = node.list_of(())
        group = entry.without("spec").setting("dataset", empty)
        split: str | None = None
        if isinstance(node, Scalar) and isinstance(node.value, str) and "#" in node.value:
            text, _, split = node.value.rpartition("#")
            node = node.scalar(text, width=node.width, directory=node.directory)
        found = self._library.find(node, "spec")
        child = found and self._library.spec(*found, node, chain)
        chosen = child and choose_split(child, split, self._problems, node)
        if not found or not chosen:
            return group
        unused = (key for key in chosen.entries if key not in _BROUGHT)
        tree = self._expand(chosen.without(*unused))
        listed = self._listed(tree, tree)
        if listed is None:
            return group
        dataset = self._inlined(listed, (*chain, found[0]), depth + 1)
        prefix = name_of(entry)
        if prefix is not None:
            dataset = prefixed(with_names(dataset, Problems()), prefix)
        group = group.setting("dataset", dataset)
        mix = tree.get("mix")
        if isinstance(mix, MapNode):
            applying = mix.without("draw", "unit", "schedule")
            own = entry.get("mix")
            group = group.setting("mix", merge(applying, own) if own is not None else applying)
        brought = {key: tree.entries[key] for key in ("rewrite",) if tree.get(key) is not None}
        defaults: Node = tree.with_entries(brought)
        if tree.get("defaults") is not None:
            defaults = merge(defaults, tree.entries["defaults"].value)
        if entry.get("defaults") is not None:
            defaults = merge(entry.entries["defaults"].value, defaults)
        return group.setting("defaults", defaults)

    def _patched(self, dataset: ListNode, patches: Node) -> ListNode:
        if not isinstance(patches, MapNode):
            hint = "write `sources: {name: {scale: 1}}`; the list of sources is called `dataset`"
            self._problems.add("E202", patches, "`sources` takes a map from source names to keys", hint)
            return dataset
        names = [name for entry in every_source(dataset) if (name := name_of(entry)) is not None]
        for name, (key, value) in patches.entries.items():
            if name not in names:
                hint = (
                    "" if self._problems.full else did_you_mean(name, names) or f"there are {listed(names)}"
                )
                self._problems.add("E105", key, f"there is no source `{name[:60]}`", hint)
            elif not isinstance(value, MapNode) and not is_null(value):
                self._problems.add("E202", value, "expected a map of keys of this source")

        def patched(entry: MapNode) -> MapNode:
            patch = patches.get(name_of(entry) or "")
            if not isinstance(patch, MapNode):
                return entry
            entry = entry.with_entries(merge(entry, patch).entries)
            is_other = any(key in patch.entries for key in ("shards", "dataset", "spec"))
            return self._source(entry, self._chain, 0) if is_other else entry

        return with_each(dataset, patched)

    def _defaults_over(self, far: MapNode, near: Node | None) -> MapNode:
        if near is None:
            return far
        if not isinstance(near, MapNode):
            hint = "write `defaults: {shuffle: 1000}`"
            self._problems.add("E202", near, "`defaults` takes a map of source keys", hint)
            return far
        for key in near.entries:
            if key in _NOT_IN_DEFAULTS:
                self._problems.add(
                    "E216", near.key(key), f"`{key}` cannot stand in `defaults`", "it belongs to a source"
                )
        return merge(far, near.without(*_NOT_IN_DEFAULTS))

    def _built(self, dataset: ListNode, defaults: MapNode, tags: Node | None) -> list[Draft]:
        drafts = []
        for entry in dataset.items:
            assert isinstance(entry, MapNode)
            name = name_of(entry) or ""
            nested = entry.get("dataset")
            if isinstance(nested, ListNode):
                inner_tags = (
                    merge(tags, entry.entries["tags"].value) if entry.get("tags") is not None else tags
                )
                inner = self._defaults_over(defaults, entry.get("defaults"))
                drafts.append(Draft(entry, name, self._built(nested, inner, inner_tags), entry))
            else:
                drafts.append(Draft(self._filled(entry, defaults, tags), name, None, entry))
        return drafts

    def _filled(self, entry: MapNode, defaults: MapNode, tags: Node | None) -> MapNode:
        """A source with the defaults below it; one share key of its own keeps the others out."""
        below = defaults
        if any(entry.get(key) is not None for key in SHARE_KEYS):
            below = below.without(*SHARE_KEYS)
        if tags is not None:
            inherited = below.get("tags")
            tags = merge(inherited, tags) if inherited is not None else tags
            below = below.setting("tags", tags)
        return merge(below, entry)
