"""Merged tree -> `Composed`: variables replaced, sources listed, values checked one by one, defaults in effect."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from wdspec.spec.compose.absolute_paths import (
    absolute_cache,
    absolute_shards,
    output_with_base,
    placed_rewrites,
    with_absolute_paths,
)
from wdspec.spec.compose.draft import Composed, Draft, Variant
from wdspec.spec.compose.effective_values import fill_in_effective_values
from wdspec.spec.compose.measurements import fill_in_measurements
from wdspec.spec.compose.source_list import GROUP_KEYS, Assembly
from wdspec.spec.compose.spec_files import Library
from wdspec.spec.compose.written_secrets import without_secrets
from wdspec.spec.language.known_keys import check_keys, keys_of
from wdspec.spec.language.models import Source, Spec
from wdspec.spec.language.validation import checked
from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, Node

_TOP_MIX_ONLY = ("draw", "unit", "schedule")


def compose(
    top: MapNode,
    variant: Variant,
    library: Library,
    expand: Callable[[MapNode], MapNode],
    chain: tuple[str, ...],
    problems: Problems,
) -> Composed | None:
    """The spec of a merged tree, and what is wrong with its single values in `problems`; None where none can be made.

    Args:
        top: extends, split, overlay and overrides are merged.
        expand: gives a file's tree with the variables of its own scope replaced.
        chain: absolute paths of the files that are open.
    """
    expanded = expand(top)
    drafts = Assembly(library, expand, problems).drafts(expanded, chain) or []
    _check_defaults(expanded.get("defaults"), problems)
    for draft in drafts:
        _validate(draft, variant, problems)
    open_top = without_secrets(expanded.without("sources"), problems)
    known = with_absolute_paths(check_keys(open_top, Spec, "at the top level", problems))
    extra: dict[str, Any] = {
        "dataset": (),
        "split": variant.split,
        "environment": variant.environment,
        "file": variant.file,
        "folder": os.path.dirname(os.path.abspath(variant.file)) if variant.file else "",
        **placed_rewrites(known, variant),
        **output_with_base(known),
        **absolute_cache(known),
    }
    spec, bad = checked(known.without("dataset", "defaults", "vars"), Spec, extra, problems)
    if spec is None:
        return None
    leaves = [leaf for draft in drafts for leaf in draft.leaves]
    fill_in_effective_values(spec, leaves)
    stats = fill_in_measurements(
        spec, None if "stats" in bad else known.get("stats"), library, leaves, problems
    )
    dataset = tuple(source for draft in drafts if (source := _source(draft)) is not None)
    return Composed(spec.model_copy(update={"dataset": dataset, "stats": stats}), known, drafts, bad, variant)


def _check_defaults(defaults: Node | None, problems: Problems) -> None:
    """Unknown keys in `defaults` are reported also where no source takes them up."""
    if isinstance(defaults, MapNode):
        check_keys(defaults, Source, "in `defaults`", problems)


def _validate(draft: Draft, variant: Variant, problems: Problems) -> None:
    if draft.children is None:
        _validate_leaf(draft, variant, problems)
        return
    _check_defaults(draft.node.get("defaults"), problems)
    node = check_keys(draft.node, Source, "in a source", problems)
    for key in node.entries:
        if key in keys_of(Source) and key not in GROUP_KEYS and node.get(key) is not None:
            hint = f"write `defaults: {{{key}: …}}` beside it, for all sources in it"
            problems.add("E216", node.key(key), f"`{key}` cannot stand in a nested mix", hint)
    mix = node.get("mix")
    if isinstance(mix, MapNode):
        for key in _TOP_MIX_ONLY:
            if mix.get(key) is not None:
                hint = "write it in the `mix:` of the top level"
                problems.add("E216", mix.key(key), f"`{key}` cannot stand in a nested mix", hint)
    group = node.without(*(key for key in node.entries if key not in GROUP_KEYS), "dataset", "defaults")
    extra = {"base": node.origin.directory, "where": node.position}
    draft.model, draft.bad = checked(group, Source, extra, problems)
    for child in draft.children:
        _validate(child, variant, problems)


def _validate_leaf(draft: Draft, variant: Variant, problems: Problems) -> None:
    node = check_keys(without_secrets(draft.node, problems), Source, "in a source", problems)
    node = with_absolute_paths(node)
    for key in ("mix", "defaults"):
        if node.get(key) is not None:
            message = f"`{key}` belongs to a nested mix, but this source has `shards`"
            problems.add("E216", node.key(key), message, "remove it")
    tags = node.get("tags")
    for name in tags.entries if isinstance(tags, MapNode) else ():
        if name.startswith("__"):
            message = f"the tag `{name[:60]}` begins with `__`, as only wdspec's own fields do"
            problems.add("E216", node.entries["tags"].value.key_or_self(name), message, "choose another name")
    base, texts = absolute_shards(node.get("shards"))
    extra = {"base": base, "where": draft.own.position, **texts}
    extra |= placed_rewrites(node, variant) | absolute_cache(node)
    draft.node = node
    draft.model, draft.bad = checked(node.without("mix", "defaults"), Source, extra, problems)


def _source(draft: Draft) -> Source | None:
    """The finished model of a draft."""
    if draft.children is None or draft.model is None:
        return draft.model
    inner = tuple(source for child in draft.children if (source := _source(child)) is not None)
    return draft.model.model_copy(update={"dataset": inner})
