"""Drafts of the sources of a spec: child specs are inlined, names given, overlays applied by name, defaults filled in.

Each source has a name: the one it states, or one made from the name of its shards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from wdspec.base.errors import did_you_mean
from wdspec.base.redaction import redacted_urls
from wdspec.spec.files import Library
from wdspec.spec.language.effects import keys_in_place
from wdspec.spec.language.options import MixOptions
from wdspec.spec.problems import Problems, describe, list_names
from wdspec.spec.spec import Source, SourceOptions, Spec
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar, is_null, merge, plain
from wdspec.spec.validation import MERGED_SOURCE, MERGED_TOP, keys_of, stands_for
from wdspec.spec.variants import choose_split

Expander = Callable[[MapNode], MapNode]
"""Replaces the variables in a file's tree."""
SHARE_KEYS = ("probability", "weight", "upsample")
KINDS = ("shards", "dataset", "spec")
"""A source has one of these keys."""

_IF_PRESENT = "if_present"
"""The key of a change to a source that need not be there."""

MAX_SOURCES = 20_000
MAX_VALUES = 1_000_000
MAX_NESTING = 16
_BROUGHT = frozenset({"dataset", "mix", "defaults", "vars", "rewrite"})
"""The keys of a child spec that apply."""
_FOR_SAMPLES = ("errors", "map", "storage", "aistore")
"""The keys of a child spec that change how its samples are read, and do not apply."""
_NOT_IN_DEFAULTS = frozenset({*keys_of(Source), *MERGED_SOURCE}.difference(keys_of(SourceOptions)))
GROUP_KEYS = frozenset({*keys_in_place(Source, "group"), "defaults"})
"""The keys that a nested mix may have."""
FILTERS = frozenset(keys_in_place(Source, "both"))
"""The keys of which that of `defaults` and that of a source both apply."""
TOP_MIX_ONLY = keys_in_place(MixOptions, "top")
"""The keys of `mix` that only the top level may have."""

_PATTERN = re.compile(r"[{*?\[]|\$\{")
_SUFFIX = re.compile(
    r"\.(?:tar|tgz|tbz2?|txz|tzst|cbors?|msgpack|mps|jsonl|ndjson|mds|lance)(?:\.\w+)?$|\.txt$"
)
_LONGEST = 100


@dataclass(eq=False, repr=False)
class Draft:
    """A source that will become a `Source`: its merged tree, and the model after its values are checked."""

    node: MapNode
    """The source with its defaults."""
    own: MapNode
    """The source without defaults: what it states itself."""
    name: str
    """Empty if it has no name yet, or a wrong one."""
    children: list[Draft] | None = None
    """The sources of a nested mix."""
    model: Source | None = None
    bad: frozenset[str] = frozenset()
    """Keys whose values are wrong."""

    @property
    def leaves(self) -> list[Draft]:
        """The drafts with shards in this one."""
        return [self] if self.children is None else [leaf for child in self.children for leaf in child.leaves]

    @cached_property
    def stated_shares(self) -> list[str]:
        """The share keys that it has. More than one is a mistake."""
        return [key for key in SHARE_KEYS if self.node.get(key) is not None]


def every_draft(drafts: Iterable[Draft]) -> list[Draft]:
    """List drafts and all drafts in them, each nested mix before its sources."""
    found = []
    for draft in drafts:
        found.append(draft)
        if draft.children:
            found += every_draft(draft.children)
    return found


def draft_sources(
    top: MapNode,
    library: Library,
    expand: Expander,
    chain: tuple[str, ...],
    split: str | None,
    problems: Problems,
    vars: Node | None = None,
) -> list[Draft]:
    """Draft the sources of a top-level tree without variables; none, and a problem, if that is impossible.

    Args:
        library: reads child specs.
        expand: replaces the variables in a file's tree.
        chain: absolute paths of the files that led here, so that a child cannot include its parent.
        split: the split that was chosen, for messages.
        vars: the `vars` of the tree, for lists of sources.
    """
    drafter = _Drafter(library, expand, problems, top, vars)
    dataset = drafter.list_in(top)
    if dataset is None:
        return []
    drafts = drafter.drafts(dataset, chain, 0)
    _give_names(drafts, problems)
    if (patches := top.get("sources")) is not None:
        drafter.patch(drafts, patches, chain, split)
        _give_names(drafts, problems)
    bottom = top.with_entries({"errors": top.entries["errors"]} if "errors" in top.entries else {})
    defaults = _defaults_over(bottom, top.get("defaults"), problems)
    leaves = sum(1 for draft in every_draft(drafts) if draft.children is None)
    if leaves > MAX_SOURCES or leaves * defaults.size > MAX_VALUES:
        message = f"{leaves:,} sources with all their defaults are too many"
        problems.add("E009", dataset, message, "join sources: `shards` takes a list")
        return []
    _fill(drafts, defaults, None, problems)
    return drafts


class _Drafter:
    """Makes drafts from lists of sources."""

    def __init__(
        self, library: Library, expand: Expander, problems: Problems, top: MapNode, vars: Node | None
    ) -> None:
        self._library, self._expand, self._problems = library, expand, problems
        self._top, self._vars = top, vars
        self._count = 0

    def list_in(self, holder: MapNode) -> ListNode | None:
        """The `dataset` of the top level or of a nested mix; None, and a problem, if it is missing or wrong."""
        dataset = holder.get("dataset")
        if isinstance(dataset, ListNode) and dataset.items:
            return dataset
        return self._list_from(dataset, holder)

    def _list_from(self, dataset: Node | None, holder: MapNode) -> ListNode | None:
        """The sources of a table, `dataset: "@sources.csv"`; None, and a problem, for anything else."""
        if dataset is None:
            hint = "write `dataset:` with a list of sources: `- shards: data-{000..099}.tar`"
            if not stands_for("dataset", holder, [*keys_of(Spec), *MERGED_TOP, "sources"]):
                self._problems.add("E206", holder.key_or_self("dataset"), "the spec has no `dataset`", hint)
        elif isinstance(dataset, Scalar) and str(dataset.value).startswith("@"):
            return self._read_list(dataset)
        elif isinstance(dataset, ListNode):
            self._problems.add("E214", dataset, "this list of sources is empty", "write `- shards: …`")
        else:
            hint = "write `- shards: data-{000..099}.tar` below it"
            if isinstance(dataset, MapNode):
                hint = "put a `-` before the first key of each source: `- shards: …`"
                if any("\u00a0" in name for name in dataset.entries):
                    hint = "replace the non-breaking space (U+00A0) with a normal one"
                names = [name for name, entry in dataset.entries.items() if isinstance(entry.value, MapNode)]
                if names and len(names) == len(dataset.entries):
                    hint = f"write a list, with the names in the sources: `- name: {names[0][:60]}`; `splits` are for "
                    hint += "training and validation"
            elif isinstance(dataset, Scalar) and str(dataset.value).lower().endswith((".csv", ".tsv")):
                hint = f'to read the sources from this file, write `dataset: "@{str(dataset.value)[:60]}"`'
            message = f"`dataset` takes a list of sources, but this is {describe(plain(dataset))}"
            self._problems.add("E202", dataset, message, hint)
        return None

    def _read_list(self, node: Scalar) -> ListNode | None:
        """Read `@sources.csv`, with the variables of this spec."""
        from wdspec.spec.source_lists import read_source_list  # most specs have none

        found = read_source_list(node, self._library, MAX_SOURCES, self._problems)
        if found is None:
            return None
        tree = self._top.with_entries({}).setting("dataset", found)
        dataset = self._expand(tree if self._vars is None else tree.setting("vars", self._vars)).get(
            "dataset"
        )
        return dataset if isinstance(dataset, ListNode) else None

    def drafts(self, dataset: ListNode, chain: tuple[str, ...], depth: int) -> list[Draft]:
        """Draft the sources of a list; entries that are not maps are left out."""
        made = []
        for entry in dataset.items:
            if not isinstance(entry, MapNode):
                text = entry.value if isinstance(entry, Scalar) and isinstance(entry.value, str) else "…"
                message = f"a source is a map of keys, but this is {describe(plain(entry))}"
                key, _, rest = text.partition(":")
                hint = f"write `- shards: {text[:60]}`"
                if key in (*keys_of(Source), *MERGED_SOURCE):
                    hint = f"put a space after the colon: `{key}: {rest[:60].strip()}`"
                self._problems.add("E202", entry, message, hint)
                continue
            if "each" in entry.entries:
                from wdspec.spec.source_lists import sources_of_folders  # most specs have none

                made += self.drafts(entry.list_of(sources_of_folders(entry, self._problems)), chain, depth)
                continue
            self._count += 1
            if depth > MAX_NESTING or self._count > MAX_SOURCES:
                limit = f"{MAX_NESTING} levels" if depth > MAX_NESTING else f"{MAX_SOURCES:,} sources"
                self._problems.add(
                    "E009", entry, f"nested mixes exceed {limit}", "use fewer levels or sources"
                )
                return []
            made.append(self._draft(entry, chain, depth))
        return made

    def _draft(self, entry: MapNode, chain: tuple[str, ...], depth: int) -> Draft:
        kinds = [key for key in KINDS if entry.get(key) is not None]
        if len(kinds) != 1:
            self._note_kinds(entry, kinds)
            entry = entry.without(*kinds[1:])
        name = _read_name(entry)
        if kinds[:1] == ["spec"]:
            return self._child(entry, name, chain, depth)
        if kinds[:1] != ["dataset"]:
            entry = entry.without("dataset", "spec")
            return Draft(entry, entry, name)
        dataset = self.list_in(entry)
        if dataset is None:
            entry = entry.setting("dataset", entry.list_of(()))
        return Draft(entry, entry, name, self.drafts(dataset, chain, depth + 1) if dataset else [])

    def _note_kinds(self, entry: MapNode, kinds: list[str]) -> None:
        """Add the problem of a source with several of `KINDS`, or none."""
        empty = next((key for key in KINDS if key in entry.entries), None)
        if kinds:
            message = f"a source cannot have both `{kinds[0]}` and `{kinds[1]}`"
            self._problems.add("E207", entry.key(kinds[1]), message, "make them two sources")
        elif empty is not None:
            self._problems.add("E206", entry.key(empty), f"`{empty}` is empty", "fill it in")
        elif not stands_for("shards", entry, [*keys_of(Source), "spec", "defaults"]):
            hint = "write `shards: data-{000..099}.tar`"
            self._problems.add("E206", entry, "this source has no `shards`", hint)

    def _child(self, entry: MapNode, name: str, chain: tuple[str, ...], depth: int) -> Draft:
        """Make a nested mix of a `spec:` entry, with the child's dataset, mix, defaults and rewrite."""
        node = entry.entries["spec"].value
        group = entry.without("spec").setting("dataset", node.list_of(()))
        split: str | None = None
        if isinstance(node, Scalar) and isinstance(node.value, str) and "#" in node.value:
            text, _, split = node.value.rpartition("#")
            node = node.scalar(text, width=node.width, directory=node.directory)
        found = self._library.find(node, "spec")
        child = found and self._library.spec(*found, node, chain)
        chosen = child and choose_split(child, split, self._problems, node)
        if not found or not chosen:
            return Draft(group, group, name, [])
        unused = [key for key in chosen.entries if key not in _BROUGHT]
        if not frozenset(_FOR_SAMPLES).isdisjoint(unused):
            self._note_lost(entry, node, chosen)
        tree = self._expand(chosen.without(*unused))
        outer_vars, self._vars = self._vars, chosen.get("vars")
        dataset = self.list_in(tree)
        children = [] if dataset is None else self.drafts(dataset, (*chain, found[0]), depth + 1)
        self._vars = outer_vars
        if dataset is None:
            return Draft(group, group, name, [])
        if name:
            _give_names(children, Problems())
            for draft in every_draft(children):
                draft.name = draft.name and f"{name}/{draft.name}"
        group = group.setting("dataset", dataset)
        if (mix := tree.map_at("mix")) is not None:
            mix = mix.without(*TOP_MIX_ONLY)
            group = group.setting("mix", merge(mix, entry.entries["mix"].value) if entry.get("mix") else mix)
        brought = {key: tree.entries[key] for key in ("rewrite",) if tree.get(key) is not None}
        defaults: Node = tree.with_entries(brought)
        if tree.get("defaults") is not None:
            defaults = merge(defaults, tree.entries["defaults"].value)
        if (outer := entry.get("defaults")) is not None:
            inner, defaults = defaults, merge(outer, defaults)
            if isinstance(outer, MapNode) and isinstance(inner, MapNode) and isinstance(defaults, MapNode):
                defaults = _with_filters(defaults, outer, inner, self._problems)
        group = group.setting("defaults", defaults)
        return Draft(group, group, name, children)

    def _note_lost(self, entry: MapNode, node: Node, child: MapNode) -> None:
        """Warn about keys of a child spec that change how samples are read, and do not apply."""
        defaults = entry.map_at("defaults")
        for key in _FOR_SAMPLES:
            value = child.get(key)
            if (
                value is None
                or self._top.get(key) is not None
                or (defaults is not None and defaults.get(key))
            ):
                continue
            name = _read_name(entry)
            message = (
                f"`{key}` of this spec does not apply here, in the source{f' `{name[:60]}`' if name else ''}"
            )
            form = _in_flow_style(value) if key == "errors" else "…"
            hint = f"write `defaults: {{{key}: {form}}}` in this source, or `{key}` at the top level"
            self._problems.add("W409", node, message, hint)

    def patch(self, drafts: list[Draft], patches: Node, chain: tuple[str, ...], split: str | None) -> None:
        """Lay the `sources:` of an overlay over the sources with these names."""
        if not isinstance(patches, MapNode):
            hint = "write `sources: {name: {scale: 1}}`; the list of sources is called `dataset`"
            self._problems.add("E202", patches, "`sources` takes a map from source names to keys", hint)
            return
        names = [draft.name for draft in every_draft(drafts) if draft.name]
        patches, optional = self._split_off(patches)
        for name, (key, value) in patches.entries.items():
            if name not in names and name not in optional:
                hint = "" if self._problems.full else did_you_mean(name, names)
                if not hint:
                    hint = f"there are {list_names(names)}"
                    if split is not None:
                        form = f"`{name[:60]}: {{if_present: true, …}}`"
                        hint += f"; to change it only in splits that have it, write {form}"
                where = "" if split is None else f" in the split `{split}`"
                self._problems.add("E105", key, f"there is no source `{name[:60]}`{where}", hint)
            elif not isinstance(value, MapNode) and not is_null(value):
                form = f"write `{name[:60]}: {{shuffle: 1000}}`, for example"
                self._problems.add("E202", value, "expected a map of keys of this source", form)
        self._lay_over(drafts, patches, chain)

    def _split_off(self, patches: MapNode) -> tuple[MapNode, set[str]]:
        """The changes without `if_present`, and the names of those that have it."""
        optional: set[str] = set()
        for name, entry in patches.entries.items():
            if not isinstance(entry.value, MapNode) or (said := entry.value.get(_IF_PRESENT)) is None:
                continue
            value = plain(said)
            if not isinstance(value, bool):
                message = f"`{_IF_PRESENT}` takes true or false, but this is {describe(value)}"
                self._problems.add("E202", said, message, "write `true`")
            if value is not False:
                optional.add(name)
            patches = patches.setting(name, entry.value.without(_IF_PRESENT))
        return patches, optional

    def _lay_over(self, drafts: list[Draft], patches: MapNode, chain: tuple[str, ...]) -> None:
        kept = [draft for draft in drafts if not is_null(patches.value_or_self(draft.name))]
        if not kept and drafts:
            message = (
                f"`null` removes every source of this list: {list_names([draft.name for draft in drafts])}"
            )
            hint = "keep at least one; to remove a nested mix, remove it by its own name"
            self._problems.add("E214", patches.key(drafts[0].name), message, hint)
        drafts[:] = kept
        for place, draft in enumerate(drafts):
            patch = patches.map_at(draft.name)
            if patch is not None:
                entry = draft.own.with_entries(merge(draft.own, patch).entries)
                name = _read_name(entry) if "name" in patch.entries else draft.name
                if all(entry.get(key) is draft.own.get(key) for key in KINDS):
                    draft = Draft(entry, entry, name, draft.children)
                else:
                    draft = self._draft(entry, chain, 0)
                    draft.name = name
                drafts[place] = draft
            if draft.children:
                self._lay_over(draft.children, patches, chain)


def _in_flow_style(node: Node) -> str:
    """A value as it is written in one line."""
    if isinstance(node, MapNode):
        return (
            f"{{{', '.join(f'{key}: {_in_flow_style(each.value)}' for key, each in node.entries.items())}}}"
        )
    if isinstance(node, ListNode):
        return f"[{', '.join(map(_in_flow_style, node.items))}]"
    return node.written if isinstance(node, Scalar) else "…"


def _give_names(drafts: list[Draft], problems: Problems) -> None:
    """Name the drafts that have no name. Two drafts with the same name are a problem."""
    named: dict[str, Draft] = {}
    for draft in every_draft(drafts):
        first = named.setdefault(draft.name, draft) if draft.name else draft
        if first is not draft:
            place = (first.own.get("name") or first.own).position
            other = f"line {place.line}" if place.file == draft.own.origin.name and place.line else f"{place}"
            hint = "give each source its own name: the order of its samples depends on it"
            message = f"two sources are called `{draft.name[:60]}`; the other one is in {other}"
            problems.add("E304", draft.own.get("name") or draft.own, message, hint)
    taken = set(named)
    counts: dict[str, int] = {}
    for draft in every_draft(drafts):
        if not draft.name and draft.own.get("name") is None:  # a wrong name is reported with the other values
            draft.name = _find_free(_default_name(draft.own), taken, counts)


def _read_name(entry: MapNode) -> str:
    """The name that a source states; empty if there is none, or a wrong one."""
    name = entry.get("name")
    return name.value if isinstance(name, Scalar) and isinstance(name.value, str) else ""


def _default_name(entry: MapNode) -> str:
    """Make a name from the shards: `ia1` for `gs://bucket/ia1-{000..033}.tar`."""
    shards = entry.get("shards")
    if shards is None:
        return "mix"
    if isinstance(shards, ListNode) and shards.items:
        shards = shards.items[0]
    text = shards.value if isinstance(shards, Scalar) and isinstance(shards.value, str) else ""
    parts = (
        redacted_urls(text.split("::")[0]).partition("?version=")[0].removesuffix("/index.json").split("/")
    )  # names are shown, logged and saved
    for part in reversed(parts):
        cut = _PATTERN.split(part, maxsplit=1)[0] if _PATTERN.search(part) else _SUFFIX.sub("", part)
        name = cut.strip("-_.@$#? ")[:_LONGEST]
        if name and not name.endswith(":"):
            return name
    return "source"


def _find_free(name: str, taken: set[str], counts: dict[str, int]) -> str:
    candidate = name
    while candidate in taken:
        counts[name] = counts.get(name, 1) + 1
        candidate = f"{name}-{counts[name]}"
    taken.add(candidate)
    return candidate


def _defaults_over(far: MapNode, near: Node | None, problems: Problems) -> MapNode:
    """Lay the defaults of one level over those of the levels above."""
    if near is None:
        return far
    if not isinstance(near, MapNode):
        hint = "write `defaults: {shuffle: 1000}`"
        problems.add("E202", near, "`defaults` takes a map of source keys", hint)
        return far
    for key in near.entries:
        if key in _NOT_IN_DEFAULTS:
            problems.add("E216", near.key(key), f"`{key}` is not allowed in `defaults`", "put it in a source")
    merged = merge(far, near.without(*_NOT_IN_DEFAULTS))
    return merged if FILTERS.isdisjoint(far.entries) else _with_filters(merged, far, near, problems)


def _with_filters(merged: MapNode, defaults: MapNode, above: MapNode, problems: Problems) -> MapNode:
    """Let the filters of `defaults` apply as well as those of what was laid over them."""
    from wdspec.spec.filters import combine_filters  # most specs do not use it

    return combine_filters(defaults, above, merged, problems)


def _fill(drafts: list[Draft], defaults: MapNode, tags: Node | None, problems: Problems) -> None:
    """Lay the sources over their defaults. A source with a share key does not get another one from the defaults."""
    for draft in drafts:
        own = draft.own
        if draft.children is None:
            stated = [key for key in SHARE_KEYS if own.get(key) is not None]
            below = defaults.without(*SHARE_KEYS) if stated else defaults
            if tags is not None:
                below = below.setting("tags", merge(below.get("tags"), tags))
            draft.node = merge(below, own)
            if not FILTERS.isdisjoint(below.entries):
                draft.node = _with_filters(draft.node, below, own, problems)
        else:
            inner_tags = merge(tags, own.entries["tags"].value) if own.get("tags") is not None else tags
            inner = _defaults_over(defaults, own.get("defaults"), problems)
            _fill(draft.children, inner, inner_tags, problems)
