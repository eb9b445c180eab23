"""Merged tree -> `Composed`: variables replaced, sources listed, values checked one by one, defaults in effect.

Paths made absolute: those in a file are relative to the file that they are written in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wdspec.spec.draft import Composed, Draft, Variant
from wdspec.spec.effective import fill_in_effective_values
from wdspec.spec.files import Library
from wdspec.spec.language.values import is_size
from wdspec.spec.measurements import fill_in_measurements
from wdspec.spec.problems import Problems
from wdspec.spec.secrets import without_secrets
from wdspec.spec.sources import GROUP_KEYS, Assembly
from wdspec.spec.spec import Source, Spec
from wdspec.spec.tree import ListNode, MapNode, Node, Scalar, is_null, plain
from wdspec.spec.validation import check_keys, checked, keys_of
from wdspec.urls.urls import is_relative

_PATHS = {
    "aistore": ("token_file", "client_ca", "client_crt", "client_key"),
    "errors": ("log",),
}


def with_absolute_paths(holder: MapNode) -> MapNode:
    """The top level or a source with the paths in its settings made absolute; `~` stays for the reader."""
    for key, names in _PATHS.items():
        settings = holder.get(key)
        if isinstance(settings, MapNode):
            holder = holder.setting(key, _with_absolute(settings, names))
    storage = holder.get("storage")
    files = storage.get("files") if isinstance(storage, MapNode) else None
    if isinstance(storage, MapNode) and isinstance(files, MapNode):
        holder = holder.setting("storage", storage.setting("files", _with_absolute(files, files.entries)))
    return holder


def _with_absolute(settings: MapNode, names: Iterable[str]) -> MapNode:
    for name in names:
        node = settings.get(name)
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.value[:1] not in ("", "~"):
            settings = settings.setting(
                name, node.scalar(os.path.normpath(os.path.join(node.base, node.value)))
            )
    return settings


def absolute_shards(node: Node | None) -> tuple[str, Mapping[str, Any]]:
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
    if not _starts_here(path):
        return text
    literal = re.sub(r"([\\{},*?\[\]])", r"\\\1", base)
    return f"{mark}{literal.rstrip('/')}/{path}"


def _starts_here(path: str) -> bool:
    """Whether a path starts at the directory of the file that names it. What begins with `\\1` is a match's to say."""
    return bool(path.strip()) and not path.startswith("\\") and is_relative(path)


def output_with_base(top: MapNode) -> dict[str, Any]:
    """The `output:` with the directory of the file that says where: relative paths start there."""
    node = top.get("output")
    if node is None or is_null(node):
        return {}
    value = plain(node)
    path = node.get("dir") or node.get("to") if isinstance(node, MapNode) else node
    base = path.base if isinstance(path, Scalar) else ""
    if isinstance(value, str):
        value = {"dir": value}
    return {"output": {**value, "base": base} if isinstance(value, dict) else value}


def absolute_cache(holder: MapNode) -> dict[str, Any]:
    """The `cache:` with its directory made absolute, unless it starts at a home directory."""
    node = holder.get("cache")
    path = node.get("dir") if isinstance(node, MapNode) else node
    if not isinstance(path, Scalar) or not isinstance(path.value, str) or not _starts_here(path.value):
        return {}
    if path is node and is_size(path.value):  # which is refused where it is read
        return {}
    directory = f"{path.base.rstrip('/')}/{path.value.removeprefix('./')}"
    return {"cache": {**plain(node), "dir": directory} if isinstance(node, MapNode) else directory}


def placed_rewrites(holder: MapNode, variant: Variant) -> dict[str, Any]:
    """The rules of a `rewrite:` with where each was written, relative results made absolute."""
    node = holder.get("rewrite")
    if not isinstance(node, ListNode):
        return {}
    listed: list[Any] = []
    for item in node.items:
        rule = plain(item)
        if isinstance(rule, dict) and isinstance(item, MapNode):
            here = item.position
            written = f"{here.file}:{here.line}" if here.line else here.file
            by_overlay = here in variant.overlaid
            rule["overlay"] = by_overlay
            rule["origin"] = (
                f"environment {variant.environment or 'overrides'} ({written})" if by_overlay else written
            )
            to = item.get("to")
            if isinstance(to, Scalar) and isinstance(to.value, str) and _starts_here(to.value):
                base = to.base.replace("\\", r"\\").rstrip("/")
                rule["to"] = f"{base}/{to.value.removeprefix('./')}"
            elif is_null(item.entries["to"].value if "to" in item.entries else None):
                rule["to"] = ""
        listed.append(rule)
    return {"rewrite": listed}


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
