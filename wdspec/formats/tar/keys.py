"""Where a member's name splits into the key of its sample and the suffix that names its field.

Which field each member of a sample becomes, decided once for every sequence of suffixes a shard shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from wdspec.base.errors import ShardError, UrlError
from wdspec.formats.tar.headers import shown, text
from wdspec.spec.language.samples import KeyRule
from wdspec.urls.rewrite import check_length

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


class SuffixNode(dict[bytes, "tuple[str | None, SuffixNode]"]):
    """A place in the sequence of a sample's members.

    Maps the next member's suffix, in the spelling of its header (padded with NULs or not), to the name its
    data is stored under (None: unwanted) and the place after it. Samples of one shard mostly take the same
    path, so that one lookup a member answers what it is and that it is no duplicate.
    """

    __slots__ = ("fields", "suffixes")

    def __init__(self, suffixes: frozenset[str], fields: frozenset[str]) -> None:
        self.suffixes = suffixes
        self.fields = fields


class SuffixTree:
    """The tree of all sequences of suffixes met.

    Args:
        field_of: suffix as in the file -> stored name, or None when unwanted.
        reserved: names that no member may take (`__key__` and the constants).
    """

    def __init__(self, field_of: Callable[[str], str | None], reserved: Iterable[str]) -> None:
        self._field_of = field_of
        self._reserved = frozenset(reserved)
        self._met = 0
        self.root = SuffixNode(frozenset(), self._reserved)

    def step(self, node: SuffixNode, spelling: bytes) -> tuple[str | None, SuffixNode]:
        """Enters what `node` lacks: the step for a suffix spelt so. Raises ShardError for a duplicate."""
        suffix = shown(text(spelling))
        lowered = suffix.lower()
        if lowered in node.suffixes:
            raise ShardError(
                f"duplicate member: the sample already has a file with the suffix {lowered!r} (case does not "
                "count); was the shard appended to or packed twice? pack it anew with each name once",
                code="D204",
            )
        field = self._field_of(suffix)
        if field in self._reserved:
            raise ShardError(
                f"a member with the suffix {suffix!r} would overwrite the sample's {field!r}: rename it",
                code="D206",
            )
        if field in node.fields:
            raise ShardError(
                f"two members of one sample, the second with the suffix {suffix!r}, both become the field "
                f"{field!r}: give them different fields in `extensions` or `rename`",
                code="D206",
            )
        self._met += 1
        if self._met > 10_000:  # suffixes without end, as when a number follows the first dot
            self._met = 0
            self.root = SuffixNode(frozenset(), self._reserved)
        fields = node.fields if field is None else node.fields | {field}
        step = node[spelling] = (field, SuffixNode(node.suffixes | {lowered}, fields))
        return step
