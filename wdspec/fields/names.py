"""Which fields a sample has, and from which of its files: `extensions`, then `rename`, then `missing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wdspec.base.errors import FieldError
from wdspec.fields.extensions import Extensions


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
