"""Merged tree -> `Spec`: variables, sources, models, and the rules that look at several of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wdspec.spec.compose.absolute_paths import with_absolute_paths
from wdspec.spec.compose.source_list import GROUP_KEYS, Assembly, Draft
from wdspec.spec.compose.spec_files import Library
from wdspec.spec.language.known_keys import check_keys, keys_of
from wdspec.spec.language.models import Source, Spec
from wdspec.spec.language.options import Mix
from wdspec.spec.language.validation import checked
from wdspec.spec.problems.problems import Problems
from wdspec.spec.rules import (
    batch_and_epoch,
    clusters,
    decode_keys,
    finite_passes,
    mix_schedule,
    rewrites,
    safety,
    scaling,
    share_sums,
    visible_fields,
)
from wdspec.spec.tree.nodes import ListNode, MapNode, Node, Scalar, is_null, plain
from wdspec.spec.tree.positions import Position

__all__ = ["Choice", "Composed", "compose"]

_NOT_LOCAL = re.compile(r"(?:(?i:pipe|file):|[A-Za-z][A-Za-z0-9+.-]*://|[/~\\]|-$|$)")
_TOP_MIX_ONLY = ("draw", "unit", "schedule")


@dataclass(frozen=True)
class Choice:
    """What was chosen of a file that holds several specs."""

    split: str | None = None
    environment: str | None = None
    file: str | None = None
    """The file as the user named it."""
    overlaid: set[Position] = field(default_factory=set)
    """Where the rewrite rules of the overlay stand: they go before all others."""
    secure: bool = False
    """Whether WDS_SECURE is set."""
    has_endpoint: bool = False
    """Whether AIS_ENDPOINT is set."""


@dataclass(frozen=True)
class Composed:
    """A spec with the trees it came from; `spec` is None where nothing could be made of them."""

    spec: Spec | None
    leaves: list[Draft]


def compose(
    top: MapNode,
    choice: Choice,
    library: Library,
    expand: Callable[[MapNode], MapNode],
    chain: tuple[str, ...],
    problems: Problems,
) -> Composed:
    """The spec of a merged tree, and all that is wrong with it in `problems`.

    Args:
        top: extends, split, overlay and overrides are merged.
        expand: gives a file's tree with the variables of its own scope replaced.
        chain: absolute paths of the files that are open.
    """
    expanded = expand(top)
    drafts = Assembly(library, expand, problems).drafts(expanded, chain) or []
    leaves = [leaf for draft in drafts for leaf in draft.leaves]
    _check_defaults(expanded.get("defaults"), problems)
    for draft in drafts:
        _check_draft(draft, choice, problems)
    open_top = clusters.without_secrets(expanded.without("sources"), problems)
    known = with_absolute_paths(check_keys(open_top, Spec, "at the top level", problems))
    extra: dict[str, Any] = {
        "dataset": (),
        "split": choice.split,
        "environment": choice.environment,
        "file": choice.file,
        **_rewrites(known, choice),
        **_output(known),
        **_cache(known),
    }
    spec, bad = checked(known.without("dataset", "defaults", "vars"), Spec, extra, problems)
    if spec is None:
        return Composed(None, leaves)
    _check_rules(spec, bad, known, drafts, leaves, choice, problems)
    dataset = tuple(source for draft in drafts if (source := _source(draft)) is not None)
    return Composed(spec.model_copy(update={"dataset": dataset}), leaves)


def _check_rules(
    spec: Spec,
    bad: frozenset[str],
    top: MapNode,
    drafts: list[Draft],
    leaves: list[Draft],
    choice: Choice,
    problems: Problems,
) -> None:
    """Everything that takes more than one value to see."""
    if spec.wdspec != 1:
        hint = "this release reads `wdspec: 1`"
        problems.add(
            "E218", top.entries["wdspec"].value, f"there is no version {spec.wdspec} of the format", hint
        )
    mix = top.get("mix")
    if drafts:
        at = top.entries["dataset"].value
        top_mix = mix if isinstance(mix, MapNode) else None
        share_sums.check_shares(drafts, at, top_mix, problems)
        if "mix" not in bad and "batch" not in bad:
            mix_schedule.check_mix(spec, top_mix, drafts, problems)
    scaling.settle_scales(leaves, problems)
    if "epoch" not in bad:
        finite_passes.settle_pass(spec, top, drafts, problems)
    for holder in (top, *(leaf.node for leaf in leaves)):
        held = next((leaf.model.errors for leaf in leaves if leaf.node is holder and leaf.model), spec.errors)
        batch_and_epoch.check_errors(held, holder, problems)
        rewrites.check_rewrites(holder, problems)
    batch = None if "batch" in bad else spec.batch
    batch_and_epoch.check_batch(batch, spec.elastic, top, problems)
    batch_and_epoch.check_epoch(None if "epoch" in bad else spec.epoch, batch, spec.elastic, top, problems)
    wanted = {key: None if key in bad else getattr(spec, key) for key in ("fields", "to_tuple")}
    visible_fields.check_fields(
        leaves,
        wanted,
        top,
        batched=batch is not None and spec.mix.unit != "batch",
        mapped=top.get("map") is not None,
        problems=problems,
    )
    clusters.check_clusters(spec, top, leaves, choice.has_endpoint, problems)
    decode_keys.check_decode_keys(leaves, problems)
    safety.check_allow(top, spec.allow, problems)
    for leaf in leaves:
        safety.check_pickle(leaf, spec.allow, problems)
    if choice.secure:
        safety.check_secure(top, leaves, problems)


def _check_defaults(defaults: Node | None, problems: Problems) -> None:
    """Unknown keys in `defaults` are told also where no source would take them up."""
    if isinstance(defaults, MapNode):
        check_keys(defaults, Source, "in `defaults`", problems)


def _check_draft(draft: Draft, choice: Choice, problems: Problems) -> None:
    if draft.children is None:
        _check_leaf(draft, choice, problems)
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
    draft.mix = draft.model.mix if draft.model else Mix()
    for child in draft.children:
        _check_draft(child, choice, problems)


def _check_leaf(draft: Draft, choice: Choice, problems: Problems) -> None:
    node = check_keys(clusters.without_secrets(draft.node, problems), Source, "in a source", problems)
    node = with_absolute_paths(node)
    for key in ("mix", "defaults"):
        if node.get(key) is not None:
            message = f"`{key}` belongs to a nested mix, but this source has `shards`"
            problems.add("E216", node.key(key), message, "remove it")
    for name in _tag_names(node):
        if name.startswith("__"):
            tags = node.get("tags")
            assert isinstance(tags, MapNode)
            message = f"the tag `{name[:60]}` begins with `__`, as only wdspec's own fields do"
            problems.add("E216", tags.key(name), message, "choose another name")
    base, texts = _shards(node.get("shards"))
    extra = {"base": base, "where": draft.own.position, **texts, **_rewrites(node, choice), **_cache(node)}
    draft.node = node
    draft.model, draft.bad = checked(node.without("mix", "defaults"), Source, extra, problems)


def _tag_names(node: MapNode) -> list[str]:
    tags = node.get("tags")
    return list(tags.entries) if isinstance(tags, MapNode) else []


def _source(draft: Draft) -> Source | None:
    """The finished model of a draft."""
    if draft.children is None or draft.model is None:
        return draft.model
    inner = tuple(source for child in draft.children if (source := _source(child)) is not None)
    return draft.model.model_copy(update={"dataset": inner})


def _shards(node: Node | None) -> tuple[str, Mapping[str, Any]]:
    """The base directory of a source's shards, and the texts made absolute that start somewhere else.

    A path begun by a variable starts where the variable was given its value.
    """
    items = node.items if isinstance(node, ListNode) else (node,)
    texts = [item for item in items if isinstance(item, Scalar) and isinstance(item.value, str)]
    if node is None or not texts:
        return "" if node is None else node.origin.directory, {}
    base = texts[0].base
    if len(texts) != len(items) or all(text.base == base for text in texts):
        return base, {}
    return base, {
        "shards": [text.value if text.base == base else _absolute(text.value, text.base) for text in texts]
    }


def _absolute(text: str, base: str) -> str:
    mark = "@" if text.startswith("@") else ""
    path = text.removeprefix("@")
    if _NOT_LOCAL.match(path):
        return text
    literal = re.sub(r"([\\{},*?\[\]])", r"\\\1", base)
    return f"{mark}{literal.rstrip('/')}/{path}"


def _output(top: MapNode) -> dict[str, Any]:
    """The `output:` with the directory of the file that says where: relative paths start there."""
    node = top.get("output")
    if node is None or is_null(node):
        return {}
    value = plain(node)
    place = node.get("dir") or node.get("to") if isinstance(node, MapNode) else node
    base = place.base if isinstance(place, Scalar) else ""
    if isinstance(value, str):
        value = {"dir": value}
    return {"output": {**value, "base": base} if isinstance(value, dict) else value}


def _cache(holder: MapNode) -> dict[str, Any]:
    """The `cache:` with its directory made absolute, unless it starts at a home directory."""
    node = holder.get("cache")
    place = node.get("dir") if isinstance(node, MapNode) else node
    if not isinstance(place, Scalar) or not isinstance(place.value, str) or _NOT_LOCAL.match(place.value):
        return {}
    directory = f"{place.base.rstrip('/')}/{place.value.removeprefix('./')}"
    return {"cache": {**plain(node), "dir": directory} if isinstance(node, MapNode) else directory}


def _rewrites(holder: MapNode, choice: Choice) -> dict[str, Any]:
    """The rules of a `rewrite:` with where each was written, relative results made absolute."""
    node = holder.get("rewrite")
    if not isinstance(node, ListNode):
        return {}
    listed: list[Any] = []
    for item in node.items:
        rule = plain(item)
        if isinstance(rule, dict) and isinstance(item, MapNode):
            here = item.position
            place = f"{here.file}:{here.line}" if here.line else here.file
            by_overlay = here in choice.overlaid
            rule["origin"] = (
                f"environment {choice.environment or 'overrides'} ({place})" if by_overlay else place
            )
            to = item.get("to")
            if isinstance(to, Scalar) and isinstance(to.value, str) and not _NOT_LOCAL.match(to.value):
                base = to.base.replace("\\", r"\\").rstrip("/")
                rule["to"] = f"{base}/{to.value.removeprefix('./')}"
            elif is_null(item.entries["to"].value if "to" in item.entries else None):
                rule["to"] = ""
        listed.append(rule)
    return {"rewrite": listed}
