"""Where a member's name splits into the key of its sample and the suffix that names its field."""

from __future__ import annotations

import re
from collections.abc import Callable

from wdspec.errors import ShardError, UrlError
from wdspec.formats.tar.headers import shown
from wdspec.spec.language.sample_options import KeyRule
from wdspec.urls.regex_cost import check_length

KeySplitter = Callable[[bytes], "tuple[bytes, bytes] | None"]
"""Name -> (key, suffix), or None for a member that belongs to no sample."""

_META = re.compile(rb"__[^/]*__(?:/|\Z)")
_UNDERSCORE = ord("_")


def splitter(rule: KeyRule) -> KeySplitter:
    """A key rule made ready for the reader.

    Names are bytes and may be anything ('..', absolute, with newlines, not UTF-8): they are only compared.
    To no sample belong members whose base name starts with a dot (`.DS_Store`, `._a.jpg`), `__meta__` files
    and folders, and names that the rule cannot split.

    Args:
        rule: `first_dot` splits the base name at its first dot, `last_dot` at its last; a regex matches the
            whole name, and its two groups are key and suffix.
    """
    if rule.kind == "regex":
        return _regex_splitter(re.compile(rule.regex or ""))
    return _split_at_first_dot if rule.kind == "first_dot" else _split_at_last_dot


def _split_at_first_dot(name: bytes) -> tuple[bytes, bytes] | None:
    base = name.rfind(b"/") + 1
    dot = name.find(b".", base)
    if dot <= base or (name[0] == _UNDERSCORE and _is_meta(name)):
        return None
    return name[:dot], name[dot + 1 :]


def _split_at_last_dot(name: bytes) -> tuple[bytes, bytes] | None:
    base = name.rfind(b"/") + 1
    dot = name.rfind(b".", base)
    if dot <= base or _is_hidden(name) or _is_meta(name):
        return None
    return name[:dot], name[dot + 1 :]


def _regex_splitter(regex: re.Pattern[str]) -> KeySplitter:
    def split(name: bytes) -> tuple[bytes, bytes] | None:
        if _is_hidden(name) or _is_meta(name):
            return None
        text = shown(name)
        try:
            check_length(regex.pattern, text)
        except UrlError as error:
            raise ShardError(error.message) from None
        match = regex.fullmatch(text)
        if match is None or match[1] is None or match[2] is None:
            return None
        return match[1].encode("utf-8", "surrogateescape"), match[2].encode("utf-8", "surrogateescape")

    return split


def _is_hidden(name: bytes) -> bool:
    return name.startswith(b".", name.rfind(b"/") + 1)


def _is_meta(name: bytes) -> bool:
    return (name[:2] == b"__" and b"/" not in name and name.endswith(b"__")) or _META.match(name) is not None
