"""Secrets in `aistore:` and `storage:`: refused, and shown in no message."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wdspec.spec.problems import Problems
from wdspec.spec.tree import MapNode, Node, Scalar, scalars

_OF_AISTORE = ("auth_token", "authn_token", "password", "secret", "token")
_SECRET = re.compile(
    r"(.*_)?(key|secret|password|passwd|passphrase|token|credentials?|connection_string|sas|auth)(_.*)?",
    re.IGNORECASE,
)
_NONE = re.compile(r".*_(file|filename|path|name|type|vault|url|scope)", re.IGNORECASE)
"""What tells of a secret where it is, or what kind it is."""
_WORDS = frozenset({"anon", "cloud", "google_default", "browser", "cache"})
"""What gcsfs takes for a `token`, and is none."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ACCESS_KEY = re.compile(r"A[A-Z]{3}[A-Z0-9]{12,}")
_LOGIN = re.compile(r"[a-z0-9+]+://[^/@]*@", re.IGNORECASE)


def without_secrets(holder: MapNode, problems: Problems) -> MapNode:
    """The top level or a source without what is secret in it, each of which is a problem that does not show it."""
    return _storage_without_secrets(_aistore_without_secrets(holder, problems), problems)


def _aistore_without_secrets(holder: MapNode, problems: Problems) -> MapNode:
    node = holder.get("aistore")
    if not isinstance(node, MapNode):
        return holder
    endpoint = node.get("endpoint")
    for address in scalars(endpoint) if endpoint else ():
        if "@" in str(address.value):
            problems.hide(address)
    for name in _OF_AISTORE:
        if name in node.entries:
            hint = "remove it; set AIS_AUTHN_TOKEN, or name a file that only you can read: `token_file: …`"
            _refuse(node, name, hint, problems)
    return holder.setting("aistore", node.without(*_OF_AISTORE))


def _storage_without_secrets(holder: MapNode, problems: Problems) -> MapNode:
    """Secrets of `storage` itself, of its `options` at any depth, and where the name of a variable should stand."""
    node = holder.get("storage")
    if not isinstance(node, MapNode):
        return holder
    endpoint = node.get("endpoint")
    for address in scalars(endpoint) if endpoint else ():
        if "@" in str(address.value):
            problems.hide(address)
    names = [
        name for name in node.entries if name not in ("env", "files") and _is_secret(name, node.get(name))
    ]
    for name in names:
        _refuse(node, name, _remedy(name), problems)
    options, env = node.get("options"), node.get("env")
    if isinstance(options, MapNode):
        node = node.setting("options", _options_without_secrets(options, problems))
    if isinstance(env, MapNode):
        node = node.setting("env", env.without(*_no_variables(env, problems)))
    return holder.setting("storage", node.without(*names))


def _no_variables(env: MapNode, problems: Problems) -> Iterator[str]:
    """The entries of `env` that have something else than the name of a variable."""
    for name, (_, value) in env.entries.items():
        text = str(value.value) if isinstance(value, Scalar) else ""
        if isinstance(value, Scalar) and (not _VARIABLE.fullmatch(text) or _ACCESS_KEY.fullmatch(text)):
            problems.hide(value)
            example = f"`env: {{{name[:30]}: LAB_{name[:30].upper()}}}`"
            hint = f"write the name of the variable that holds it, such as {example}"
            problems.add("E220", value, "this is no name of a variable, and may be the secret itself", hint)
            yield name


def _options_without_secrets(options: MapNode, problems: Problems) -> MapNode:
    names = []
    for name, (_, value) in options.entries.items():
        if _is_secret(name, value):
            _refuse(options, name, _remedy(name), problems)
            names.append(name)
        elif isinstance(value, MapNode):
            options = options.setting(name, _options_without_secrets(value, problems))
        else:
            for text in _logins(value):
                problems.hide(text)
                hint = "take it out; name the argument for it under `env:` or `files:`"
                problems.add(
                    "E220",
                    text,
                    "this URL holds a login, which would be a secret in a file that is shared",
                    hint,
                )
                names.append(name)
    return options.without(*names)


def _logins(value: Node | None) -> Iterator[Scalar]:
    return (text for text in (scalars(value) if value else ()) if _LOGIN.match(str(text.value)))


def _is_secret(name: str, value: Node | None) -> bool:
    """Whether a key of this name would hold a secret. False and null are none, wherever they stand."""
    if not isinstance(value, Scalar) or value.value in (None, True, False) or str(value.value) in _WORDS:
        return False
    return bool(_SECRET.fullmatch(name)) and not _NONE.fullmatch(name)


def _remedy(name: str) -> str:
    shown = name[:40]
    return (
        f"remove it; write `env: {{{shown}: NAME}}` with the name of a variable that holds it, or "
        f"`files: {{{shown}: path}}` with a file that only you can read"
    )


def _refuse(node: MapNode, name: str, hint: str, problems: Problems) -> None:
    key, value = node.entries[name]
    problems.hide(key)
    problems.hide(value)
    problems.add("E220", key, f"`{name[:60]}` would be a secret in a file that is shared", hint)
