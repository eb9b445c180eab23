"""One entry of `make`: how a field is made of the values of a sample."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any

from wdspec.base.errors import FieldError, LeftOutError, WdspecError, did_you_mean, warn_user
from wdspec.base.trials import Trial, current_source
from wdspec.fields.decode import one_line
from wdspec.fields.extensions import is_reserved
from wdspec.fields.scale import Numbers
from wdspec.spec.language.decoders import library
from wdspec.spec.language.expressions import EACH, MISSING, Path, describe_path
from wdspec.spec.language.fetching import FetchedObject
from wdspec.spec.language.making import Recipe
from wdspec.steps.files import identify_file

Step = Callable[..., Any]
NumbersOf = Callable[[str, Mapping[str, Any]], Numbers]
"""(the name of a made field, a raw sample) → the random numbers for it."""

_NOTHING = ("", "[]", "null", b"", b"[]", b"null")
"""Texts of JSON that have nothing."""
_steps: dict[str, Step] = {}
"""The steps of this process, by their options. Files are read once, and forked workers share what they have."""


def build_step(recipe: Recipe) -> Step:
    """Return the function of a step. It is built once in a process, and in those that are forked from it.

    Raises:
        SpecError: a file of it cannot be used.
        UsageError: a library is not installed.
    """
    states = [identify_file(path, option) for option, path in recipe.files.items()]
    key = f"{recipe.step} {recipe.model_dump_json()} {states}"
    if key not in _steps:
        for module in recipe.needs:
            library(module, f"`{recipe.step}`")
        _steps[key] = resolve_name(recipe.factory)(**recipe.options)
    return _steps[key]


def describe_keys(path: Path, fields: Mapping[str, Any]) -> str:
    """The names where a path ends too early, and how the path may have been meant; empty if they are not known.

    Args:
        fields: the fields of a sample. JSON may be its bytes.
    """
    value: Any = {name: each for name, each in fields.items() if each is not None and not is_reserved(name)}
    for place, part in enumerate(path):
        if isinstance(value, bytes):
            try:
                value = json.loads(value)
            except ValueError:
                return ""
        if part == EACH and isinstance(value, list):
            value = {name: each for item in value if isinstance(item, dict) for name, each in item.items()}
            continue
        before, after = path[:place], path[place:]
        if isinstance(value, list) and (
            not value or any(isinstance(it, dict) and part in it for it in value)
        ):
            return (
                f"; `{describe_path(before)}` is a list, so write `{describe_path((*before, EACH, *after))}`"
            )
        if not isinstance(value, dict):
            return ""
        if part not in value:
            names = [*map(str, value)]
            meant = did_you_mean(str(part), names)
            if not place:  # these may be only the fields that the spec asks for
                return f"; {meant}" * bool(meant)
            keys = ", ".join(names[:8]) or "(none)"
            return f"; `{describe_path(before)}` has the keys {keys}" + f" ({meant})" * bool(meant)
        value = value[part]
    return ""


def _lacks_items(path: Path, value: Any) -> bool:
    """Whether a path leads into the items of a list, and none of them has the value."""
    return EACH in path and isinstance(value, list) and bool(value) and all(each is None for each in value)


class MadeField:
    """One entry of `make`: a field, and perhaps further results of its step. It pickles without what files have.

    Args:
        name: the field.
        recipe: how it is made.
        missing: the `missing` of the source, for samples without what the field is made from.
        numbers_of: the random numbers of a field of a sample, if the step draws.
        drawn: the fields of companions, which a sample may not have.
        source: the name of the source.
        fetch: the fields that it fetches.
    """

    def __init__(
        self,
        name: str,
        recipe: Recipe,
        missing: str,
        numbers_of: NumbersOf | None,
        drawn: Collection[str] = (),
        source: str = "",
        fetch: Mapping[str, FetchedObject] | None = None,
    ) -> None:
        self.name, self.recipe, self._missing, self._source = name, recipe, missing, source
        self._fetch = fetch or {}
        self._numbers_of = numbers_of if recipe.draws else None
        self.origins, self._optional, self.in_parts = recipe.origins, recipe.optional, recipe.in_parts
        self.fields = (name, *recipe.results)
        self._unread = recipe.unread
        self._step: Step | None = None
        self._drawn = frozenset(drawn)
        own = (path for path in self.origins if path[0] not in self._drawn)
        self._trials = {path: Trial(partial(self._describe_lack, path)) for path in own}

    def make(
        self, found: Sequence[Any], raw: Mapping[str, Any], fields: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the fields that the step makes.

        Args:
            found: the values of `origins`; None or MISSING where the sample has none.
            raw: the sample, whose key says what is drawn.
            fields: its decoded fields, which errors describe.

        Raises:
            LeftOutError: the sample is to be left out.
            FieldError: the step cannot use a value.
        """
        outer = current_source.set(self._source)
        try:
            return self._make(found, raw, fields)
        finally:
            current_source.reset(outer)

    def _make(
        self, found: Sequence[Any], raw: Mapping[str, Any], fields: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        values = [None if each is MISSING else each for each in found]
        lacks_all = all(value is None for value in values)
        for path, trial in self._trials.items():
            if trial.is_over:
                continue
            value = values[self.origins.index(path)]
            if not (EACH in path and isinstance(value, list) and not value):
                is_lacking = value is None or _lacks_items(path, value)
                trial.note(self._find_lack(path, {**raw, **(fields or {})}) if is_lacking else None)
        for path, value in zip(self.origins, values, strict=True) if not self.recipe.fills else ():
            if value is None and (lacks_all or path not in self._optional):
                if self._missing == "none":
                    return dict.fromkeys(self.fields)
                raise self._lacking(path, fields or {})
        if self._unread:
            self._warn_of_unread(raw)
        numbers = None if self._numbers_of is None else self._numbers_of(self.name, raw)
        try:
            made = self.recipe.call(self._step or self.load(), values, numbers)
        except WdspecError as error:
            for path, value in zip(self.origins, values, strict=True):
                if _lacks_items(path, value):
                    what = f"`make: {self.name}` finds `{describe_path(path)}` in no item of the list"
                    keys = describe_keys(path, {**raw, **(fields or {})})
                    raise FieldError(f"{what}{keys}; correct the path", field=self.name) from error
            error.message += self._explain_absence(error.message, found, {**raw, **(fields or {})})
            error.at(field=self.name)
            raise
        except Exception as cause:
            said, kind = one_line(cause), f"{type(cause).__name__}: "
            message = f"`{self.recipe.step}` failed: {kind}{said.removeprefix(kind)}"
            raise FieldError(message, field=self.name) from cause
        return dict(zip(self.fields, made, strict=True))

    def measure(self, rest: Path) -> Callable[[Sequence[Any]], Any] | None:
        """Return what reads a value of the field from the values of `origins`, without making it; None if it is made.

        Args:
            rest: the path of the value in the field.
        """
        found = self.recipe.measure(rest)
        if found is None:
            return None
        name, *arguments = found
        function = getattr(self._step or self.load(), name)

        def measure(values: Sequence[Any]) -> Any:
            data, *others = (None if each is MISSING else each for each in values)
            try:
                return function(data, **dict(zip(arguments, others, strict=True)))
            except WdspecError as error:
                error.at(field=self.name)
                raise

        return measure

    def load(self) -> Step:
        """Read the files of the step, unless this process has done so."""
        self._step = build_step(self.recipe)
        return self._step

    def _warn_of_unread(self, raw: Mapping[str, Any]) -> None:
        """Warn once of a field that the step does not read, though the sample has it."""
        for field, why in self._unread.items():
            value = raw.get(field)
            if isinstance(value, (str, bytes)) and value in _NOTHING:
                continue
            if value is not None and (not hasattr(value, "__len__") or len(value)):
                self._unread = {}
                what = f"`{self.recipe.step}` does not read the field `{field}` of sample `{raw['__key__']}`"
                warn_user(f"{what}, {why}; write `{field}: {field}` in `make: {self.name}`")

    def _find_lack(self, path: Path, fields: Mapping[str, Any]) -> str | None:
        """What to say of a sample without an origin; None if that may be meant."""
        keys = describe_keys(path, fields)
        may_be_meant = path in self._optional and not self.recipe.without(path)
        return None if may_be_meant and "did you mean" not in keys else keys

    def _describe_lack(self, path: Path, samples: int, found: Counter[str]) -> str:
        """Return the warning that none of the first samples has an origin."""
        what = f"`make: {self.name}` finds no `{describe_path(path)}` in any of the first samples"
        then = "" if EACH in path else self.recipe.without(path)
        if path not in self._optional and not self.recipe.fills and self._missing != "none":
            then = ""
        elif path not in self._optional and not self.recipe.fills and EACH not in path:
            *others, last = (f"`{field}`" for field in self.fields)
            then = f"{', '.join(others)} and {last} are None" if others else f"{last} is None"
        keys = found.most_common(1)[0][0]
        return f"{what}{f', so {then}' * bool(then)}{keys}{'' if keys.endswith(('?', '`')) else '; correct the path'}"

    def _explain_absence(self, message: str, found: Sequence[Any], fields: Mapping[str, Any]) -> str:
        """Return why an optional origin that an error names has no value; empty if the data have none, as is allowed.

        Args:
            found: the values of `origins`.
            fields: the fields of the sample.
        """
        for path, value in zip(self.origins, found, strict=True):
            if path not in self._optional or f"`{describe_path(path)}`" not in message:
                continue
            if value is MISSING and len(path) == 1:
                return f"; the sample has no field `{path[0]}`{describe_keys(path, fields)}"
            entry = self._fetch.get(str(path[0]))
            is_null = value is None or (isinstance(value, list) and None in value)
            for origin in entry.origins if entry is not None and is_null else ():
                reference: Any = fields
                for part in origin:
                    reference = reference.get(part) if isinstance(reference, Mapping) else None
                if reference:
                    return f"; the object that `{describe_path(origin)}` names could not be fetched"
        return ""

    def _lacking(self, path: Path, fields: Mapping[str, Any]) -> FieldError:
        if self._missing == "skip":
            return LeftOutError("", cause="missing")
        written, keys = describe_path(path), describe_keys(path, fields)
        who = "its companion" if path[0] in self._drawn else "the sample"
        if "is a list" not in keys:
            keys += "; set `missing: skip` to leave out such samples, or `missing: none`"
        return FieldError(
            f"`make: {self.name}` needs `{written}`, which {who} lacks or which is null{keys}",
            code="D201",
            field=self.name,
        )

    def refuse_taken(self, names: Collection[str]) -> None:
        """Raise FieldError if one of its names is that of another field.

        Args:
            names: the fields that the sample has.
        """
        for field in self.fields:
            if field in names:
                raise FieldError(
                    f"`make` makes the field `{field}`, but the sample already has one of this name; choose another "
                    "name in `make`, or give the other one a new name by `rename`",
                    code="D206",
                    field=field,
                )

    def deliver(self, value: Any) -> Any:
        """Return a value in the type in which it is delivered."""
        kind = self.recipe.delivers
        return value.astype(kind) if kind and hasattr(value, "astype") else value

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_step": None}
