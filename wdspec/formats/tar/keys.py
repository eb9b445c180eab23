"""Splitting the name of a member into the key of its sample and a suffix, and finding the field of the suffix.

Fields are decided once for each sequence of suffixes in a shard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from wdspec.base.errors import ShardError, UrlError
from wdspec.formats.tar.headers import shown, text
from wdspec.spec.language.samples import KeyRule
from wdspec.urls.rewrite import check_length

KeySplitter = Callable[[bytes], "tuple[bytes, bytes] | None"]
"""Name → (key, suffix), or None for a member that belongs to no sample."""

_META = re.compile(rb"__[^/]*__(?:/|\Z)")
_UNDERSCORE = ord("_")


def splitter(rule: KeyRule) -> KeySplitter:
    """Return the function that splits names by a rule.

    Names are arbitrary bytes ('..', absolute, with newlines, not UTF-8), as they are only compared. Members belong to
    no sample if their base name starts with a dot (`.DS_Store`, `._a.jpg`), if they are `__meta__` files or in such
    folders, or if the rule cannot split their name.

    Args:
        rule: `first_dot` splits the base name at its first dot, `last_dot` at its last one. A regex matches the whole
            name, and its two groups are key and suffix.
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
    """A place in the sequence of the members of a sample.

    It maps the suffix of the next member, as spelled in its header (padded with NULs or not), to the name its data is
    stored under (None: not needed) and the place after it. Samples of one shard mostly take the same path, so that one
    lookup per member finds its field and excludes duplicates.
    """

    __slots__ = ("fields", "suffixes")

    def __init__(self, suffixes: frozenset[str], fields: frozenset[str]) -> None:
        self.suffixes = suffixes
        self.fields = fields


class SuffixTree:
    """The tree of all sequences of suffixes that occurred.

    Args:
        field_of: suffix as in the file → stored name, or None if it is not needed.
        reserved: names that members cannot have (`__key__` and the constants).
    """

    def __init__(self, field_of: Callable[[str], str | None], reserved: Iterable[str]) -> None:
        self._field_of = field_of
        self._reserved = frozenset(reserved)
        self._steps = 0
        self.root = SuffixNode(frozenset(), self._reserved)

    def step(self, node: SuffixNode, spelling: bytes) -> tuple[str | None, SuffixNode]:
        """Add the step from `node` for a suffix, and return it. Raises ShardError for a duplicate."""
        suffix = shown(text(spelling))
        lowered = suffix.lower()
        if lowered in node.suffixes:
            raise ShardError(
                f"duplicate member: the sample already has a file with the suffix {lowered!r} (case is ignored); was "
                "the shard appended to or packed twice? Pack it again, with each name once",
                code="D204",
            )
        field = self._field_of(suffix)
        if field in self._reserved:
            raise ShardError(
                f"a member with the suffix {suffix!r} would overwrite `{field}` of the sample; rename it",
                code="D206",
            )
        if field in node.fields:
            raise ShardError(
                f"two members of one sample, the second with the suffix {suffix!r}, both become the field {field!r}; "
                "give them different fields in `extensions` or `rename`",
                code="D206",
            )
        self._steps += 1
        if self._steps > 10_000:  # suffixes are unlimited, for example if a number follows the first dot
            self._steps = 0
            self.root = SuffixNode(frozenset(), self._reserved)
        fields = node.fields if field is None else node.fields | {field}
        step = node[spelling] = (field, SuffixNode(node.suffixes | {lowered}, fields))
        return step
