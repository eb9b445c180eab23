"""`make`: fields that are made from others when something first asks for them.

What is made of a sample is kept in its raw sample, in the entry `MADE`: a selection, a cost and the training loop get
the same value, which is made once. `Measures` makes what expressions read; `MakingFields` makes the rest when a
sample is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from wdspec.base.errors import FieldError, WdspecError
from wdspec.fields.audio_file import open_audio
from wdspec.fields.extensions import Naming, is_reserved
from wdspec.fields.made_field import MadeField, NumbersOf
from wdspec.fields.measures import walk
from wdspec.fields.samples import COMPANIONS, MADE, PASS, SampleFields, SampleLayout, add_place
from wdspec.fields.scale import Numbers
from wdspec.spec.language.expressions import EACH, MISSING, Path
from wdspec.spec.language.making import behind, in_order
from wdspec.spec.spec import Source


class MakingFields(SampleFields):
    """The fields of a source with `make`."""

    _wanted: tuple[str, ...]
    """The entries of `make` that samples need, each after those that it is made from."""

    @classmethod
    def over(cls, fields: SampleFields, source: Source, numbers_of: NumbersOf | None = None) -> MakingFields:
        """Return the fields of a source with those that it makes.

        Args:
            fields: those without.
            source: the source.
            numbers_of: the random numbers of a made field of a sample.
        """
        made = source.make
        other = cls.__new__(cls)
        other.__dict__.update(fields.__getstate__())
        entries = {
            name: MadeField(
                name, made[name], source.missing, numbers_of, source.companions, source.name, source.fetch
            )
            for name in in_order(made)
        }
        other.made = {field: entry for entry in entries.values() for field in entry.fields}
        other.draws = any(entry.recipe.draws for entry in entries.values())
        only = fields.naming.only
        names = frozenset(name for each in only or () for name in each.split(";"))
        wanted = frozenset(made) if only is None else behind(made, names)
        other._wanted = tuple(name for name in entries if name in wanted)
        other.naming = other._name_origins(fields.naming)
        return other

    def _name_origins(self, naming: Naming) -> Naming:
        """Return the rules for files with which what is made from is read, and is required if it has to be."""
        needed = [
            (str(path[0]), path in self.made[name].recipe.optional)
            for name in self._wanted
            for path in self.made[name].origins
            if path[0] not in self.made and path[0] not in self.companions and not is_reserved(str(path[0]))
        ]
        asked = [each for each in naming.required if self.made.keys().isdisjoint(each.split(";"))]
        required = dict.fromkeys([*asked, *(name for name, is_optional in needed if not is_optional)])
        only = naming.only and tuple(dict.fromkeys([*naming.only, *(name for name, _ in needed)]))
        return replace(naming, required=tuple(required), only=only)

    def __call__(
        self, raw: Mapping[str, Any], factor: float | None = None, numbers: Numbers | None = None
    ) -> dict[str, Any] | None:
        """Decode one sample and make its fields, as `SampleFields` does. May raise LeftOutError."""
        sample = super().__call__(raw, factor, numbers)
        if sample is None:
            return None
        held = dict(sample.pop(MADE, ()))
        sample.pop(PASS, None)
        beside = sample.get(COMPANIONS) if self.companions else None
        try:
            for name in self._wanted:
                entry = self.made[name]
                if name not in held and self.companions and beside is None and self._is_of_companions(entry):
                    held |= dict.fromkeys(entry.fields)
                elif name not in held:
                    at = {**sample, **held} if held else sample
                    found = (
                        [self._find(at, beside, path, path in entry.in_parts) for path in entry.origins]
                        if beside
                        else [walk(at.get(str(path[0]), MISSING), path, True) for path in entry.origins]
                    )
                    held.update(entry.make(found, raw, at))
                for field in entry.fields:
                    sample[field] = entry.deliver(held[field])
        except WdspecError as error:
            add_place(error, raw)
            raise
        return sample

    def _is_of_companions(self, entry: MadeField) -> bool:
        """Whether an entry is made of companions only: it is null where none are drawn."""
        return all(path[0] in self.companions for path in entry.origins)

    def _find(self, at: Mapping[str, Any], beside: Mapping[str, Any], path: Path, in_parts: bool) -> Any:
        """Return the value at a path in a sample or its companions; None or MISSING if there is none.

        Args:
            in_parts: whether a recording may still be in its file.

        Raises:
            FieldError: a companion has no such value.
        """
        name = str(path[0])
        if name not in beside:
            return walk(at.get(name, MISSING), path, True)
        value = beside[name]
        if value is None:
            return None
        if not (in_parts and len(path) == 2 and isinstance(value, dict)):
            open_audio(value, path[1:])
        try:
            if isinstance(value, list) and len(path) > 1 and isinstance(path[1], str) and path[1] != EACH:
                return [walk(each, path, False) for each in value]
            return walk(value, path, False)
        except FieldError as error:
            seen, _, _ = error.message.partition("; write `default(")  # which only expressions have
            remedy = (
                f"correct the path, or select companions of `{name}` that have it, and not null, by `where`"
            )
            raise FieldError(f"{seen}; {remedy}", **error.place) from error

    def load(self) -> None:
        """Read the files of the steps, before workers are forked."""
        for name in self._wanted:
            self.made[name].load()

    def _lay_out(self, names: tuple[str, ...], fields: Mapping[str, str | None]) -> SampleLayout:
        for entry in self.made.values():
            entry.refuse_taken([name for name, file in fields.items() if file is not None])
        self.media |= {name for name in self._wanted if self.made[name].recipe.makes_media}
        return super()._lay_out(names, fields)

    def _study(
        self, names: tuple[str, ...], raw: Mapping[str, Any]
    ) -> SampleLayout | FieldError | Literal["skip"]:
        layout = super()._study(names, raw)
        self.in_place.clear()  # more is done than decoding
        return layout

    def name_unread(self, error: FieldError, names: Sequence[str]) -> FieldError:
        """Say which step makes a field that samples lack, if it is named; or else the same as for other fields."""
        field = str(error.place.get("field"))
        for name in self._wanted:
            if field in self.made[name].recipe.further and field not in self.made:
                seen, _, _ = error.message.partition(", and it has ")
                remedy = f"write `{field}: {field}` in `make: {name}`, whose step makes it"
                return FieldError(f"{seen}; {remedy}", code=error.code, **error.place)
        return super().name_unread(error, names)
