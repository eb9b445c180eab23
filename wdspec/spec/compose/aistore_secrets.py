"""Tokens in `aistore:`: refused, and shown in no message."""

from __future__ import annotations

from wdspec.spec.problems.problems import Problems
from wdspec.spec.tree.nodes import MapNode, scalars

_SECRETS = ("auth_token", "authn_token", "password", "secret", "token")


def without_secrets(holder: MapNode, problems: Problems) -> MapNode:
    """The top level or a source without tokens in `aistore`, each of which is a problem that does not show it."""
    node = holder.get("aistore")
    if not isinstance(node, MapNode):
        return holder
    endpoint = node.get("endpoint")
    for address in scalars(endpoint) if endpoint else ():
        if "@" in str(address.value):
            problems.hide(address)
    for name in _SECRETS:
        if name in node.entries:
            key, value = node.entries[name]
            problems.hide(key)
            problems.hide(value)
            hint = "remove it; set AIS_AUTHN_TOKEN, or name a file that only you can read: `token_file: …`"
            problems.add("E220", key, f"`{name}` would be a secret in a file that is shared", hint)
    return holder.setting("aistore", node.without(*_SECRETS))
