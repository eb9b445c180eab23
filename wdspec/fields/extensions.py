"""Choosing the files of a sample and naming its fields: `extensions`, then `rename`, then `missing`.

``"jpg;png txt seg.*"`` has three entries: spaces separate them, and ``;`` separates the alternatives of one. A
*spelling* is an exact suffix (``jpg`` does not match ``seg.jpg``) or a glob (``*``, ``?``, ``[…]``). Case is ignored.
The first alternative that is present wins.

- An entry that starts with an exact suffix makes one field, with the name of this first spelling.
- A glob keeps each file that it matches, under its suffix in lower case. It need not match any file.

A file belongs to one field. Entries that start with a suffix choose before entries that start with a glob, each kind in
the order of the spec, and without the files that were chosen before. A glob never takes a file with the name of a
field, so ``"*.jpg seg.jpg"`` still fills ``seg.jpg``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from fnmatch import translate
from functools import cached_property

from wdspec.base.errors import FieldError, SpecError
from wdspec.spec.language.joins import UNJOINED

_GLOB_SIGNS = re.compile(r"[*?\[]")


def add_alternative(name: str, naming: Naming) -> str:
    """Say which keys to change, so that a field that a sample lacks can come from another file or column."""
    if naming.extensions.entries is None and name not in naming.rename:
        return f"name another one that has it, as in `rename: {{{name}: {name};other}}`"
    return f"add an alternative: write {place_alternative(name, naming, 'other')}"


def place_alternative(name: str, naming: Naming, other: str) -> str:
    """Return what to write in `rename` and `extensions` to take a field from another file as well."""
    new = next((new for new, olds in naming.rename.items() if name in (new, *olds)), None)
    written = ";".join((*(naming.rename[new] if new else (name,)), other))
    places = [f"`{new}: {written}` in `rename`"] if new else []
    places += [f"`{written}` in `extensions`"] if naming.extensions.entries is not None or not new else []
    return " and ".join(places)


@dataclass(frozen=True)
class Spelling:
    """One alternative of an entry: an exact suffix or a glob, as written in the spec."""

    text: str

    @cached_property
    def glob(self) -> re.Pattern[str] | None:
        """The pattern of a glob for lower-case suffixes; None for an exact suffix."""
        return re.compile(translate(self.text.lower())) if _GLOB_SIGNS.search(self.text) else None

    def matches(self, suffix: str) -> bool:
        """Whether it matches a suffix in lower case."""
        return bool(self.glob.match(suffix)) if self.glob else self.text.lower() == suffix


@dataclass(frozen=True)
class ExtensionEntry:
    """The alternatives of one field, the preferred one first."""

    spellings: tuple[Spelling, ...]

    @property
    def name(self) -> str | None:
        """The field of this entry; None if it starts with a glob, whose files keep their names."""
        first = self.spellings[0]
        return None if first.glob else first.text

    def __str__(self) -> str:
        return ";".join(spelling.text for spelling in self.spellings)


class Extensions:
    """The files that a source needs of each sample.

    Args:
        entries: texts in the grammar above, with one or more entries each; None means all files, under their suffix
            in lower case.

    Raises:
        SpecError: an entry is empty, two make the same field, or one is a reserved ``__name__``.
    """

    def __init__(self, entries: Sequence[str] | None = None) -> None:
        self.entries: tuple[ExtensionEntry, ...] | None = None if entries is None else parse_entries(entries)
        every = self.entries or ()
        self._choosing = [e for e in every if e.name is not None] + [e for e in every if e.name is None]
        self._names = {entry.name.lower() for entry in every if entry.name is not None}
        self._spellings = [spelling for entry in self._choosing for spelling in entry.spellings]

    def field_of(self, suffix: str) -> str | None:
        """Return the name under which the reader keeps a file, or None if no entry needs it, so that it is not read.

        It is the final name of the field, unless alternatives or overlapping entries can be decided only for the whole
        sample. Ignoring case, it is always the suffix itself.
        """
        suffix = suffix.lower()
        if self.entries is None:
            return suffix
        matching = [spelling for spelling in self._spellings if spelling.matches(suffix)]
        for spelling in matching:
            if spelling.glob is None:
                return spelling.text
        return suffix if matching else None

    def choose(self, stored: Iterable[str], columns: Set[str] = frozenset()) -> dict[str, str | None]:
        """Choose the fields of a sample, given the names under which the reader kept its files.

        Args:
            columns: names among them that are fields already.

        Returns:
            field name → name of its file; None for a required field without a file.
        """
        if self.entries is None:
            return {name: name for name in stored}
        left = {name.lower(): name for name in stored if name not in columns}
        fields: dict[str, str | None] = {name: name for name in stored if name in columns}
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

    def may_lack(self, suffix: str) -> bool:
        """Whether a file of this suffix may belong to an entry with a named field, which is missing without it."""
        suffix = suffix.lower()
        return any(s.matches(suffix) for entry in self._choosing if entry.name for s in entry.spellings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extensions) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"Extensions({None if self.entries is None else [str(entry) for entry in self.entries]})"


def parse_entries(texts: Sequence[str]) -> tuple[ExtensionEntry, ...]:
    """Parse the entries of `extensions`; see `Extensions` for the errors."""
    entries: list[ExtensionEntry] = []
    seen: dict[str, str] = {}
    for text in " ".join(texts).split():
        entry = ExtensionEntry(tuple(Spelling(part) for part in text.split(";") if part))
        if not entry.spellings:
            raise SpecError(
                f"`extensions` has the entry {text!r} without a suffix; write for example `jpg;png txt`"
            )
        for spelling in entry.spellings:
            if is_reserved(spelling.text):
                raise SpecError(f"`extensions` has {spelling.text!r}, but such names are reserved; remove it")
        if entry.name is not None:
            earlier = seen.get(entry.name.lower())
            if earlier is not None:
                raise SpecError(
                    f"`extensions` makes the field {entry.name!r} twice, by {earlier!r} and {text!r}; "
                    "join them with `;`, or start one with another suffix"
                )
            seen[entry.name.lower()] = text
        entries.append(entry)
    if not entries:
        raise SpecError("`extensions` is empty; remove it to keep all files")
    return tuple(entries)


def is_reserved(name: str) -> bool:
    """Whether a name is like ``__key__``, an entry about the sample and not a field."""
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def listed_fields(names: Iterable[str]) -> str:
    """List the fields among the names of a sample, for messages."""
    return ", ".join(name for name in names if not is_reserved(name)) or "none"


@dataclass(frozen=True)
class Naming:
    """The rules that turn the files of a source into fields."""

    extensions: Extensions = field(default_factory=Extensions)
    rename: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """New name → fields it is taken from; the first one present wins. These fields are removed, others are kept."""
    missing: str = "error"
    """What to do if a required field is missing: ``error``, ``skip`` or ``none``."""
    required: tuple[str, ...] = ()
    """Further required fields, after `rename`; ``a;b`` requires one of the two."""
    only: tuple[str, ...] | None = None
    """If given, other fields are dropped after the checks, and files that become none of these are not read."""
    columns: frozenset[str] = frozenset()
    """Fields from tables (`lookup`), which `extensions` does not choose among."""
    suffixes: Mapping[str, str] = field(default_factory=dict)
    """Fields that `join` renames → the suffix of their file, which chooses their decoder."""
    asides = frozenset[str]()
    """Files that only the selection reads."""
    objects: tuple[str, ...] = ()
    """Fields of `fetch`, which count as present before they are fetched."""

    @property
    def of_selection(self) -> Naming:
        """The rules for the selection, which also sees the files that only it reads."""
        return replace(self, columns=self.columns | self.asides)

    @property
    def without_errors(self) -> Naming:
        """The rules for samples that may lack fields: such fields are None."""
        return replace(self, missing="none")

    @property
    def lenient(self) -> Naming:
        """The rules for a part of a sample: no field is missing."""
        return replace(self, missing="none", required=())

    def only_file_of(self, name: str) -> str | None:
        """Return the name under which the reader keeps the only file that may become a field.

        None if there may be several, or none.
        """
        if name in self.columns or name in self.suffixes:
            return None
        if name in self.asides:
            return name
        for olds in self.rename.values():
            if name in olds and name not in self.rename:
                return None
        olds = self.rename.get(name, (name,))
        if len(olds) != 1:
            return None
        (old,) = olds
        if self.extensions.entries is None:
            return old if old == old.lower() else None
        entries = [entry for entry in self.extensions.entries if entry.name == old]
        has_globs = any(spelling.glob for entry in self.extensions.entries for spelling in entry.spellings)
        return old if len(entries) == 1 and len(entries[0].spellings) == 1 and not has_globs else None

    @property
    def takes_all(self) -> bool:
        """Whether all files of a sample are read."""
        return self.extensions.entries is None and self.only is None

    def field_of(self, suffix: str) -> str | None:
        """Return the name under which the reader keeps a file, or None if it is not read."""
        name = self.extensions.field_of(suffix)
        if name is None or self.only is None or self.extensions.may_lack(suffix):
            return name
        # A required file is read even if its field is dropped later, to notice if it is missing.
        needed = {*self._needed, *(old.lower() for olds in self.rename.values() for old in olds)}
        return name if name in needed or name.lower() in needed else None

    def arrange(self, stored: Sequence[str]) -> dict[str, str | None] | None:
        """Decide the fields of all samples whose files the reader kept under these names, in this order.

        Returns:
            field → name of its file, in the order of the shard; None for a missing field that becomes None. None
            instead of a dict if such samples are skipped.

        Raises:
            FieldError: a required field is missing, or `rename` makes a field that already exists.
        """
        fields = self.extensions.choose(stored, self.columns)
        lacks = {name: "`extensions` requires it" for name, file in fields.items() if file is None}
        if self.rename:
            fields = self._rename(fields, lacks)
        for alternatives in self.required:
            names = [name for name in alternatives.split(";") if name]
            if all(fields.get(name) is None for name in names) and not lacks.keys() & set(names):
                lacks[names[0]] = (
                    f"{alternatives!r} is required (by `make`, `fields`, `to_tuple` or the batch)"
                )
                fields[names[0]] = None
        if UNJOINED in stored or (lacks and self.missing != "none"):
            if UNJOINED in stored or self.missing == "skip":
                return None
            raise self._missing_error(lacks, stored)
        if self.only is not None:
            fields = {name: file for name, file in fields.items() if name in self._needed}
        place = {name: index for index, name in enumerate(stored)}
        return dict(sorted(fields.items(), key=lambda item: place.get(item[1] or "", len(place))))

    def describe_lack(self, stored: Iterable[str]) -> str:
        """Describe what samples whose files have these names lack, if `missing: skip` drops them: "lack `txt`"."""
        names = [name for name in stored if not is_reserved(name)]
        if UNJOINED in names:
            return "lack what `join` or `lookup` adds"
        try:
            replace(self, missing="error").arrange(names)
        except FieldError as error:
            name = str(error.place["field"])
            olds = ";".join(self.rename.get(name, ()))
            return f"lack `{name}`" + (f" (`{olds}`)" if olds else "")
        return "lack a field of `fields` or `to_tuple`"

    @property
    def _needed(self) -> set[str]:
        names = (*(self.only or ()), *self.required)
        return {name for entry in names for name in entry.split(";")}

    def _rename(self, fields: dict[str, str | None], lacks: dict[str, str]) -> dict[str, str | None]:
        """Apply `rename`, and add missing fields to ``lacks``."""
        lowered = {name.lower(): name for name in fields}
        used: set[str] = set()
        renamed: dict[str, str | None] = {}
        for new, olds in self.rename.items():
            renamed[new] = None
            for old in olds:
                name = old if old in fields else lowered.get(old.lower())
                if name is None:
                    continue
                used.add(name)
                if renamed[new] is None:
                    renamed[new] = fields[name]
            if renamed[new] is None:
                lacks[new] = f"`rename` takes it from {' or '.join(map(repr, olds))}"
        kept = {name: file for name, file in fields.items() if name not in used}
        clash = next((new for new in renamed if kept.get(new) is not None), None)
        if clash is not None:
            raise FieldError(
                f"`rename` makes the field {clash!r}, but the sample already has one that `rename` does not mention; "
                f"write `{clash}: {';'.join([clash, *self.rename[clash]])}` to prefer that one, or exclude it by "
                "`extensions`",
                code="D206",
                field=clash,
            )
        return kept | renamed

    def _missing_error(self, lacks: dict[str, str], stored: Sequence[str]) -> FieldError:
        name, reason = next(iter(lacks.items()))
        others = f" (and {', '.join(map(repr, list(lacks)[1:]))})" if len(lacks) > 1 else ""
        has = ", ".join(map(repr, stored[:20])) or "no other field"
        unread = ""
        if self.extensions.entries is not None or self.only is not None:
            needed = "required ones" if self.extensions.entries is None else "fields that `extensions` needs"
            unread = f" of the {needed}; others are not read (`wdspec ls` lists them)"
        dotted = next((each for each in stored if each.startswith(f"{name}.")), None)
        remedy = f"write `rename: {{{name}: {dotted}}}`" if dotted else add_alternative(name, self)
        return FieldError(
            f"the sample has no field {name!r}{others}: {reason}, and it has {has}{unread}; "
            f"{remedy}, or set `missing: skip` or `missing: none`",
            code="D201",
            field=name,
        )


@dataclass(frozen=True)
class NamingWithAsides(Naming):
    """The rules of a source whose selection reads files that `extensions` does not ask for."""

    asides: frozenset[str] = frozenset()

    def field_of(self, suffix: str) -> str | None:
        name = super().field_of(suffix)
        return suffix.lower() if name is None and suffix.lower() in self.asides else name

    @classmethod
    def of(cls, naming: Naming, asides: frozenset[str]) -> NamingWithAsides:
        """Add asides to the rules of a source."""
        given = {each.name: getattr(naming, each.name) for each in fields(naming)}
        return cls(**{**given, "asides": asides | given.get("asides", frozenset())})
