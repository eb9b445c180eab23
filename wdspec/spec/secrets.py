"""Secrets in `aistore:` and `storage:` are refused, and never shown in a message."""

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
"""Names that say where a secret is, or of which kind."""
_WORDS = frozenset({"anon", "cloud", "google_default", "browser", "cache"})
"""Values of `token` in gcsfs that are not secrets."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ACCESS_KEY = re.compile(r"A[A-Z]{3}[A-Z0-9]{12,}")
_LOGIN = re.compile(r"[a-z0-9+]+://[^/@]*@", re.IGNORECASE)


def remove_secrets(holder: MapNode, problems: Problems) -> MapNode:
    """Remove the secrets of the top level or a source; each one is a problem that does not show it."""
    if (aistore := holder.map_at("aistore")) is not None:
        _hide_logins(aistore, problems)
        for name in _OF_AISTORE:
            if name in aistore.entries:
                hint = (
                    "remove it; set AIS_AUTHN_TOKEN, or name a file that only you can read: `token_file: …`"
                )
                _refuse(aistore, name, hint, problems)
        holder = holder.setting("aistore", aistore.without(*_OF_AISTORE))
    if (storage := holder.map_at("storage")) is not None:
        holder = holder.setting("storage", _remove_from_storage(storage, problems))
    return holder


def _remove_from_storage(storage: MapNode, problems: Problems) -> MapNode:
    """Remove secrets of `storage`, of its `options` at any depth, and those written in place of variable names."""
    _hide_logins(storage, problems)
    names = [name for name in storage.entries if name not in ("env", "files")]
    names = [name for name in names if _is_secret(name, storage.get(name))]
    for name in names:
        _refuse(storage, name, _remedy(name), problems)
    if (options := storage.map_at("options")) is not None:
        storage = storage.setting("options", _remove_from_options(options, problems))
    if (env := storage.map_at("env")) is not None:
        storage = storage.setting("env", env.without(*_find_values(env, problems)))
    return storage.without(*names)


def _hide_logins(store: MapNode, problems: Problems) -> None:
    endpoint = store.get("endpoint")
    for address in scalars(endpoint) if endpoint else ():
        if "@" in str(address.value):
            problems.hide(address)


def _find_values(env: MapNode, problems: Problems) -> Iterator[str]:
    """The entries of `env` that are not names of variables."""
    for name, (_, value) in env.entries.items():
        text = str(value.value) if isinstance(value, Scalar) else ""
        if isinstance(value, Scalar) and (not _VARIABLE.fullmatch(text) or _ACCESS_KEY.fullmatch(text)):
            problems.hide(value)
            example = f"`env: {{{name[:30]}: LAB_{name[:30].upper()}}}`"
            hint = f"write the name of the variable that has it, such as {example}"
            problems.add(
                "E220", value, "this is not the name of a variable, and may be the secret itself", hint
            )
            yield name


def _remove_from_options(options: MapNode, problems: Problems) -> MapNode:
    names = []
    for name, (_, value) in options.entries.items():
        if _is_secret(name, value):
            _refuse(options, name, _remedy(name), problems)
            names.append(name)
        elif isinstance(value, MapNode):
            options = options.setting(name, _remove_from_options(value, problems))
        else:
            for text in _find_logins(value):
                problems.hide(text)
                hint = "remove it; name the argument for it under `env:` or `files:`"
                message = "this URL has a login, which would be a secret in a file that others can read"
                problems.add("E220", text, message, hint)
                names.append(name)
    return options.without(*names)


def _find_logins(value: Node | None) -> Iterator[Scalar]:
    return (text for text in (scalars(value) if value else ()) if _LOGIN.match(str(text.value)))


def _is_secret(name: str, value: Node | None) -> bool:
    """Whether the value of a key is a secret, by its name. False and null never are."""
    if not isinstance(value, Scalar) or value.value in (None, True, False) or str(value.value) in _WORDS:
        return False
    return bool(_SECRET.fullmatch(name)) and not _NONE.fullmatch(name)


def _remedy(name: str) -> str:
    shown = name[:40]
    return (
        f"remove it; under `env`, give `{shown}` the name of a variable that has it, or under `files` the path of a "
        "file that only you can read"
    )


def _refuse(node: MapNode, name: str, hint: str, problems: Problems) -> None:
    key, value = node.entries[name]
    problems.hide(key)
    problems.hide(value)
    problems.add("E220", key, f"`{name[:60]}` would be a secret in a file that others can read", hint)
