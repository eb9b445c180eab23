"""Paths made absolute: those in a file are relative to the file that they are written in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from wdspec.spec.compose.draft import Variant
from wdspec.spec.language.value_types import is_size
from wdspec.spec.tree.nodes import ListNode, MapNode, Node, Scalar, is_null, plain
from wdspec.urls.schemes import is_relative

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
