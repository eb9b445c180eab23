"""Which field each member of a sample becomes, decided once for every sequence of suffixes a shard shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wdspec.errors import ShardError
from wdspec.formats.tar.headers import shown, text


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
