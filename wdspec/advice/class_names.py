"""The names of classes in the data, as a step `label` with `unknown` gets them, compared with its classes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from wdspec.base.amounts import join_names, show_value
from wdspec.base.errors import FieldError, nearest
from wdspec.fields.measures import Measures
from wdspec.fields.samples import SampleFields
from wdspec.read.selection import Selection
from wdspec.spec.language.class_files import numbers_of
from wdspec.spec.language.expressions import MISSING, paths_read_by
from wdspec.spec.language.making import Label, Recipe, behind
from wdspec.steps.label import find_name, has_items

MOST_NAMES = 20_000
"""Maximum number of different names to count for a field in a shard; later ones are ignored."""
MOST_UNKNOWN = 100
"""Maximum number of names to keep for a field of those that are no class: the most frequent ones."""
MOST_SHOWN = 10

Names = Mapping[str, Mapping[str, int]]
"""How often the names that are no class occur, by the field that `label` makes of them."""


class ClassNames:
    """Counts the names that the steps `label` of a source get.

    Args:
        fields: the fields of the source.
        selection: the selection of the source: `where: class_id >= 0` leaves out names that are no class.
        names: gets the counts, by field.
    """

    def __init__(
        self, fields: SampleFields, selection: Selection | None, names: dict[str, dict[str, int]]
    ) -> None:
        making = {name: entry.recipe for name, entry in fields.made.items()}
        self._labels = dict(labels_of(making))
        self._counted = {
            name: (names.setdefault(name, {}), Measures(fields, recipe.origins, recipe.origins))
            for name, recipe in self._labels.items()
        }
        paths = () if selection is None else paths_read_by(selection.where, dict(selection.costs))
        self._selected = behind(making, [str(path[0]) for path in paths]) & self._counted.keys()

    def look(self, raw: dict[str, Any]) -> None:
        """Look at a raw sample that is delivered."""
        self._count(raw, self._counted)

    def look_at_selected(self, raw: dict[str, Any]) -> None:
        """Look at a raw sample that `where` may drop, for the steps whose fields it reads."""
        self._count(raw, self._selected)

    @property
    def unknown(self) -> Names:
        """The names of the steps whose fields `where` reads that are no class."""
        found = {}
        for name in sorted(self._selected):
            recipe = self._labels[name]
            known = {*numbers_of(recipe.names, recipe.file), *recipe.aliases}
            found[name] = {each: n for each, n in self._counted[name][0].items() if each not in known}
        return pool_names([found])

    def _count(self, raw: dict[str, Any], fields: Iterable[str]) -> None:
        for counts, measure in map(self._counted.__getitem__, fields):
            with suppress(FieldError):  # reported when the sample is read
                (found,) = measure(raw) or (None,)
                for value in (found,) if found is None or not has_items(found) else found:
                    if value is not None and value is not MISSING:
                        name = str(value).strip()
                        if name in counts or len(counts) < MOST_NAMES:
                            counts[name] = counts.get(name, 0) + 1


def labels_of(recipes: Mapping[str, Recipe]) -> Iterator[tuple[str, Label]]:
    for name, recipe in recipes.items():
        if isinstance(recipe, Label) and recipe.unknown != "error":
            yield name, recipe


def pool_names(found: Iterable[Names]) -> Names:
    """Add up the counts of several shards."""
    pooled: dict[str, Counter[str]] = {}
    for names in found:
        for field, counts in names.items():
            pooled.setdefault(field, Counter()).update(counts)
    return {field: dict(counts.most_common(MOST_UNKNOWN)) for field, counts in pooled.items() if counts}


def describe_unknown(counts: Mapping[str, int], recipe: Label) -> tuple[str, str]:
    """Return what is wrong with names that are no class, and what to do about them."""
    lost = f"{'at least ' * (len(counts) >= MOST_UNKNOWN)}{sum(counts.values()):,}"
    what = f"{lost} names are no class, and get {recipe.unknown}: {_show_counts([*counts.items()])}"
    return what, f"add those that are classes to `aliases`; {_advise_on_none([*counts][:MOST_SHOWN], recipe)}"


def _show_counts(counts: Sequence[tuple[str, int]]) -> str:
    more = f", and {len(counts) - MOST_SHOWN:,} more" * (len(counts) > MOST_SHOWN)
    return ", ".join(f"{show_value(name, 60)} ({count:,})" for name, count in counts[:MOST_SHOWN]) + more


def _advise_on_none(names: Sequence[str], recipe: Label) -> str:
    """Say how to declare that names are no class, with the last of them as an example."""
    form = f"a `.csv` file of classes with the line `{names[-1]},{recipe.unknown}`"
    if recipe.names:
        pairs = [dict([*recipe.names.items()][:1]), {names[-1]: recipe.unknown}]
        first, last = (json.dumps(pair, ensure_ascii=False)[1:-1] for pair in pairs)
        form = f"`names: {{{first}, …, {last}}}`"
    return f"if {show_value(names[-1], 60)} is no class on purpose, say so by {form}"


def compare_names(
    counts: Counter[str], classes: list[str], recipe: Label, is_read_in_full: bool, others: str
) -> str:
    """Return what differs between the names in the data, with their counts, and those that a step knows.

    Args:
        others: the sources, if there are several, in words.
    """
    known = {*classes, *recipe.aliases}
    is_counted = len(counts) < MOST_NAMES  # otherwise, samples may have names that were ignored
    unused = [name for name in (*recipe.aliases, *classes) if is_counted and name not in counts]
    unknown = [(name, count) for name, count in counts.most_common() if name not in known]
    said, meant = [], {}
    for name, _ in unknown[:MOST_SHOWN]:
        if near := find_name(name, unused) or nearest(name, unused):
            meant[name] = near
    if unknown:
        lost = sum(count for _, count in unknown)
        what = f"{lost:,} of {counts.total():,} names{others} are no class, and get {recipe.unknown}"
        said.append(f"{what}: {_show_counts(unknown)}")
    lone = [name for name in unused if name in recipe.aliases or is_read_in_full or name in meant.values()]
    if not unknown:
        return ""  # classes and aliases without samples may be for another split, or for other shards
    if lone:
        more = f", and {len(lone) - MOST_SHOWN:,} more" * (len(lone) > MOST_SHOWN)
        said.append(f"no sample has {', '.join(show_value(name, 60) for name in lone[:MOST_SHOWN])}{more}")
    if not meant:
        said.append("add the names that are classes to `aliases`")
    intended = [name for name, _ in unknown[:MOST_SHOWN] if name not in meant]
    said += [_advise_on_none(intended, recipe)] if intended else []
    if meant:
        both = join_names(
            f"{show_value(near, 60)} for {show_value(name, 60)}" for name, near in meant.items()
        )
        said.append(f"did you write {both}?")
    return "; ".join(said)
