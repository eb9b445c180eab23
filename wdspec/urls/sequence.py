"""Shard lists as lazy sequences: a run of texts after the other, each braces or a frozen list.

`a-{000000..999999}.tar::b.tar` is two runs; nothing is materialised. What the store must be asked for (globs,
directories, `@file`) is recognised here and listed by ``wdspec.storage.shard_listing``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple, overload

from wdspec.errors import UrlError
from wdspec.redaction import redacted_urls
from wdspec.urls.braces import MAX_STRINGS, Braces
from wdspec.urls.schemes import has_globs, scheme_of

Kind = Literal["url", "list", "glob", "directory"]

_CUT = re.compile(r"\\.|//\[[^\]/]*\]|(::)", re.DOTALL)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
MAGIC = re.compile(r"[*?[]")
"""What makes a text a glob."""
_ENDS_IN_SLASH = re.compile(r"/[,}]")


class ShardUrl(NamedTuple):
    """A shard as the spec spells it, and the absolute directory that a relative path starts at."""

    text: str
    base: str


class ShardRun(NamedTuple):
    """Shards that share a prefix and a base: ``texts`` is lazy (braces) or frozen (a tuple)."""

    texts: Braces | tuple[str, ...]
    prefix: str
    base: str


class UrlSequence(Sequence[ShardUrl]):
    """The shards of a source, in order: random access in the logarithm of the number of runs; pickles small.

    Args:
        parts: the runs, in order; empty ones are dropped.

    Raises:
        UrlError: more than a thousand million shards.
    """

    __slots__ = ("_ends", "parts")

    def __init__(self, parts: Iterable[ShardRun]) -> None:
        self.parts = tuple(run for run in parts if len(run.texts))
        self._ends = tuple(accumulate(len(run.texts) for run in self.parts))
        if len(self) > MAX_STRINGS:
            raise UrlError(f"{len(self):,} shards in one source; the limit is {MAX_STRINGS:,}")

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> ShardUrl: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ShardUrl]: ...
    def __getitem__(self, index: int | slice) -> ShardUrl | Sequence[ShardUrl]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} shards")
        index %= len(self)
        which = bisect_right(self._ends, index)
        run = self.parts[which]
        return ShardUrl(run.prefix + run.texts[index - self._ends[which] + len(run.texts)], run.base)

    def __iter__(self) -> Iterator[ShardUrl]:
        return (ShardUrl(run.prefix + text, run.base) for run in self.parts for text in run.texts)

    def texts(self) -> list[str]:
        """The texts of all shards, made at once, which is several times as fast as one by one."""
        return [run.prefix + text for run in self.parts for text in _all(run.texts)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UrlSequence) or len(self) != len(other):
            return False
        return self.parts == other.parts or all(map(ShardUrl.__eq__, self, other))

    def __hash__(self) -> int:
        return hash((len(self), *self[:1], *self[-1:]))

    def __repr__(self) -> str:
        ends = " … ".join(self[i].text for i in sorted({0, len(self) - 1})) if self else "nothing"
        return redacted_urls(f"<UrlSequence of {len(self)}: {ends}>")

    def __reduce__(self) -> tuple[type[UrlSequence], tuple[tuple[ShardRun, ...]]]:
        return UrlSequence, (self.parts,)


def _all(texts: Braces | tuple[str, ...]) -> Sequence[str]:
    return texts.all() if isinstance(texts, Braces) else texts


@dataclass(frozen=True)
class Part:
    """What stands between two `::`, not yet listed.

    ``prefix`` stands literally before each of its strings: the directory of the `@file` it was found in.
    """

    braces: Braces
    base: str
    listed: bool
    prefix: str = ""

    @property
    def text(self) -> str:
        """The pattern as written."""
        return self.braces.pattern

    @property
    def run(self) -> ShardRun:
        """The part as a lazy run, for one that nothing must be listed for."""
        return ShardRun(self.braces, self.prefix, self.base)


def parse_shards(texts: Sequence[str], base: str) -> list[Part]:
    r"""The parts of a source's `shards`, cut at `::` before braces are looked at.

    A part is ``listed`` if any of its strings may be a glob, a directory or an `@file`. `\` before a
    character makes it literal, here as in braces.

    Args:
        texts: as written in the spec.
        base: absolute directory that relative paths start at.

    Raises:
        UrlError: no text, an empty part, wrong braces; ``column`` is the index in the text.
    """
    if not texts:
        raise UrlError("an empty list of shards; name at least one shard")
    return [part for text in texts for part in _parts(text, base)]


def kind_of(text: str) -> Kind:
    """What an expanded string of a listed part is: an `@file`, a directory, a glob or a plain URL.

    `http` and `pipe` are never globs: there `?` begins a query, and the shell expands its own.
    """
    if text.startswith("@"):
        return "list"
    scheme = scheme_of(text)
    if scheme == "pipe":
        return "url"
    if text.endswith("/"):
        return "directory"
    return "glob" if has_globs(scheme) and MAGIC.search(text) else "url"


def magic_start(text: str) -> int:
    """Index of the first path segment of a glob that holds `*`, `?` or `[`."""
    match = MAGIC.search(text)
    return len(text) if match is None else text.rfind("/", 0, match.start()) + 1


def _parts(text: str, base: str) -> Iterator[Part]:
    for start, piece in _pieces(text):
        if "\0" in piece:
            raise UrlError(
                "a NUL character in the name of a shard, which no file or URL can have; remove it",
                url=text,
                column=1 + start + piece.index("\0"),
            )
        if not piece:
            seen = "nothing beside a `::`; remove it" if "::" in text else "an empty text"
            raise UrlError(f"{seen}, or write a URL or a path there", url=text, column=1 + start)
        try:
            braces = Braces(piece)
        except UrlError as error:
            raise UrlError(error.message, url=text, column=1 + start + (error.column or 0)) from None
        yield Part(braces, base, _may_need_listing(piece))


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for token in _CUT.finditer(text):
        if token.group(1):
            yield start, text[start : token.start()]
            start = token.end()
    yield start, text[start:]


def _may_need_listing(piece: str) -> bool:
    """Whether any string of the pattern may be more than a plain URL; errs on the side of looking."""
    literal = _ESCAPED.sub("x", piece)
    scheme = scheme_of(literal)
    if scheme == "pipe":
        return False
    if literal.endswith("/") or (literal.endswith("}") and _ENDS_IN_SLASH.search(literal)):
        return True
    if literal.startswith("@") or (literal.startswith("{") and "@" in literal):
        return True
    return has_globs(scheme) and MAGIC.search(literal) is not None
