"""Paths in settings, made absolute: they are relative to the file that they are written in."""

from __future__ import annotations

import os

from wdspec.spec.tree.nodes import MapNode, Scalar

_PATHS = {
    "aistore": ("token_file", "client_ca", "client_crt", "client_key"),
    "errors": ("log",),
}


def with_absolute_paths(holder: MapNode) -> MapNode:
    """The top level or a source with the paths in its settings made absolute; `~` stays for the reader."""
    for key, names in _PATHS.items():
        settings = holder.get(key)
        if isinstance(settings, MapNode):
            for name in names:
                node = settings.get(name)
                if (
                    isinstance(node, Scalar)
                    and isinstance(node.value, str)
                    and node.value[:1] not in ("", "~")
                ):
                    path = os.path.normpath(os.path.join(node.base, node.value))
                    settings = settings.setting(name, Scalar(node.origin, node.line, node.column, path))
            holder = holder.setting(key, settings)
    return holder
