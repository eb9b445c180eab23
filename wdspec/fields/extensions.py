"""Which files of a sample are wanted, and which field each one becomes: the `extensions` grammar.

``"jpg;png txt seg.*"`` is three entries: spaces separate them, ``;`` separates the alternatives of one. A
*spelling* is an exact suffix (``jpg`` is not ``seg.jpg``) or a glob (``*``, ``?``, ``[…]``); letter case is
ignored. The first alternative that is present wins.

- An entry that begins with an exact suffix makes one field, named by that first spelling.
- A glob keeps every file it matches, each under its own suffix in lower case; matching nothing is no lack.

A file serves one field. Entries that name files choose before entries that begin with a glob, each kind in the
order written, and what one took the next do not see; no glob takes a file that is the name of a field. So
``"*.jpg seg.jpg"`` still fills ``seg.jpg``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property

from wdspec.base.errors import FieldError, SpecError

_GLOB_SIGNS = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Spelling:
    """One alternative of an entry: ``text`` as the user wrote it, an exact suffix or a glob."""

    text: str

    @cached_property
    def glob(self) -> re.Pattern[str] | None:
        """What a lower-case suffix must match; None for an exact suffix."""
        return re.compile(translate(self.text.lower())) if _GLOB_SIGNS.search(self.text) else None

    def matches(self, suffix: str) -> bool:
        """Whether a suffix, already in lower case, is meant."""
        return bool(self.glob.match(suffix)) if self.glob else self.text.lower() == suffix


@dataclass(frozen=True)
class ExtensionEntry:
    """The alternatives for one field, the preferred one first."""

    spellings: tuple[Spelling, ...]

    @property
    def name(self) -> str | None:
        """The field this entry makes; None where it begins with a glob, whose finds keep their own names."""
        first = self.spellings[0]
        return None if first.glob else first.text

    def __str__(self) -> str:
        return ";".join(spelling.text for spelling in self.spellings)


class Extensions:
    """The files that a source wants of each sample.

    Args:
        entries: texts in the grammar above, one entry or several each; None wants every file, under its
            suffix in lower case.

    Raises:
        SpecError: an entry is empty, two make the same field, or one asks for a ``__name__`` of wdspec's own.
    """

    def __init__(self, entries: Sequence[str] | None = None) -> None:
        self.entries: tuple[ExtensionEntry, ...] | None = None if entries is None else parse_entries(entries)
        every = self.entries or ()
        self._choosing = [e for e in every if e.name is not None] + [e for e in every if e.name is None]
        self._names = {entry.name.lower() for entry in every if entry.name is not None}
        self._spellings = [spelling for entry in self._choosing for spelling in entry.spellings]

    def field_of(self, suffix: str) -> str | None:
        """The name under which the reader keeps a file, or None where no entry wants it and it goes unread.

        It is the field's final name, unless alternatives or overlapping entries leave that open until the
        whole sample is known; ignoring letter case it is always the suffix itself.
        """
        suffix = suffix.lower()
        if self.entries is None:
            return suffix
        matching = [spelling for spelling in self._spellings if spelling.matches(suffix)]
        for spelling in matching:
            if spelling.glob is None:
                return spelling.text
        return suffix if matching else None

    def choose(self, stored: Iterable[str]) -> dict[str, str | None]:
        """The fields of a sample whose files the reader kept under these names.

        Returns:
            field name → stored name; None for a field that was asked for and has no file.
        """
        if self.entries is None:
            return {name: name for name in stored}
        left = {name.lower(): name for name in stored}
        fields: dict[str, str | None] = {}
        for entry in self._choosing:
            for spelling in entry.spellings:
                found = [suffix for suffix in left if spelling.matches(suffix)]
                if spelling.glob:
                    found = [suffix for suffix in found if suffix not in self._names]
                if found:
                    for suffix in found:
                        name = suffix if spelling.glob else (entry.name or suffix)
                        fields[name] = left.pop(suffix)
                    break
            else:
                if entry.name is not None:
                    fields[entry.name] = None
        return fields

    def asks_for(self, suffix: str) -> bool:
        """Whether an entry that names its field, and so can lack it, may take a file of this suffix."""
        suffix = suffix.lower()
        return any(s.matches(suffix) for entry in self._choosing if entry.name for s in entry.spellings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extensions) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"Extensions({None if self.entries is None else [str(entry) for entry in self.entries]})"


def parse_entries(texts: Sequence[str]) -> tuple[ExtensionEntry, ...]:
    """Reads the entries of `extensions`; see `Extensions` for the errors."""
    entries: list[ExtensionEntry] = []
    seen: dict[str, str] = {}
    for text in " ".join(texts).split():
        entry = ExtensionEntry(tuple(Spelling(part) for part in text.split(";") if part))
        if not entry.spellings:
            raise SpecError(f"`extensions` has the entry {text!r} without a suffix; write `jpg;png txt`")
        for spelling in entry.spellings:
            if is_reserved(spelling.text):
                raise SpecError(
                    f"`extensions` asks for {spelling.text!r}, but names like that are wdspec's own"
                )
        if entry.name is not None:
            earlier = seen.get(entry.name.lower())
            if earlier is not None:
                raise SpecError(
                    f"`extensions` makes the field {entry.name!r} twice, by {earlier!r} and {text!r}; "
                    "join them with `;`, or begin one with another suffix"
                )
            seen[entry.name.lower()] = text
        entries.append(entry)
    if not entries:
        raise SpecError("`extensions` is empty; leave it out to keep every file")
    return tuple(entries)


def is_reserved(name: str) -> bool:
    """Whether a name is one like ``__key__``, which says something of the sample and is no field."""
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def listed_fields(names: Iterable[str]) -> str:
    """The fields among the names of a sample, for messages."""
    return ", ".join(name for name in names if not is_reserved(name)) or "none"


def endings(suffix: str) -> list[str]:
    """A suffix whole and from each dot on: ``a.seg.jpg``, ``seg.jpg``, ``jpg``."""
    parts = suffix.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


@dataclass(frozen=True)
class Naming:
    """The rules by which the files of one source become fields."""

    extensions: Extensions = field(default_factory=Extensions)
    rename: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """New name → the fields it may be, the first present wins. Fields in these lists go, the others stay."""
    missing: str = "error"
    """What a sample gets that lacks a field asked for: ``error``, ``skip`` or ``none``."""
    required: tuple[str, ...] = ()
    """Further fields asked for, after `rename`; ``a;b`` asks for one of the two."""
    only: tuple[str, ...] | None = None
    """If given, all others are dropped after the checks, and files that become none of these go unread."""

    def field_of(self, suffix: str) -> str | None:
        """The name under which the reader keeps a file, or None for a file to leave unread."""
        name = self.extensions.field_of(suffix)
        if name is None or self.only is None or self.extensions.asks_for(suffix):
            return name
        # A name asked for must be read even if it is dropped later, or its absence would go unseen.
        wanted = {*self._kept, *(old.lower() for olds in self.rename.values() for old in olds)}
        return name if name in wanted or name.lower() in wanted else None

    def arrange(self, stored: Sequence[str]) -> dict[str, str | None] | None:
        """Decides the fields of all samples whose files the reader kept under these names, in this order.

        Returns:
            field → stored name, in the order of the shard; None for a field that is missing and becomes None.
            None altogether if samples like this are skipped.

        Raises:
            FieldError: a field asked for is missing, or `rename` makes a field that is there already.
        """
        fields = self.extensions.choose(stored)
        lacks = {name: "`extensions` asks for it" for name, file in fields.items() if file is None}
        if self.rename:
            fields = self._renamed(fields, lacks)
        for wanted in self.required:
            names = [name for name in wanted.split(";") if name]
            if all(fields.get(name) is None for name in names) and not lacks.keys() & set(names):
                lacks[names[0]] = f"{wanted!r} is asked for after the mix (`fields`, `to_tuple` or the batch)"
                fields[names[0]] = None
        if lacks and self.missing != "none":
            if self.missing == "skip":
                return None
            raise self._lacking(lacks, stored)
        if self.only is not None:
            fields = {name: file for name, file in fields.items() if name in self._kept}
        place = {name: index for index, name in enumerate(stored)}
        return dict(sorted(fields.items(), key=lambda item: place.get(item[1] or "", len(place))))

    @property
    def _kept(self) -> set[str]:
        names = (*(self.only or ()), *self.required)
        return {name for entry in names for name in entry.split(";")}

    def _renamed(self, fields: dict[str, str | None], lacks: dict[str, str]) -> dict[str, str | None]:
        """Applies `rename`; what it asked for in vain is added to ``lacks``."""
        lowered = {name.lower(): name for name in fields}
        used: set[str] = set()
        made: dict[str, str | None] = {}
        for new, olds in self.rename.items():
            made[new] = None
            for old in olds:
                name = old if old in fields else lowered.get(old.lower())
                if name is None:
                    continue
                used.add(name)
                if made[new] is None:
                    made[new] = fields[name]
            if made[new] is None:
                lacks[new] = f"`rename` makes it of {' or '.join(map(repr, olds))}"
        kept = {name: file for name, file in fields.items() if name not in used}
        clash = next((new for new in made if kept.get(new) is not None), None)
        if clash is not None:
            raise FieldError(
                f"`rename` makes the field {clash!r}, but the sample already has one that `rename` does not "
                f"mention; write `{clash}: {';'.join([clash, *self.rename[clash]])}` to prefer that one, or "
                "leave it out by `extensions`",
                code="D206",
                field=clash,
            )
        return kept | made

    def _lacking(self, lacks: dict[str, str], stored: Sequence[str]) -> FieldError:
        name, reason = next(iter(lacks.items()))
        others = f" (and {', '.join(map(repr, list(lacks)[1:]))})" if len(lacks) > 1 else ""
        has = ", ".join(map(repr, stored[:20])) or "no other file"
        unread = "" if self.extensions.entries is None else " of the files that `extensions` wants"
        if self.only is not None and not unread:
            unread = " of the files that are asked for; others are not read (`wdspec ls` lists them)"
        return FieldError(
            f"the sample has no field {name!r}{others}: {reason}, and it has {has}{unread}; "
            "add an alternative with `;`, or set `missing: skip` or `missing: none`",
            code="D201",
            field=name,
        )
