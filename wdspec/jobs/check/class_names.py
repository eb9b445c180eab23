"""The names of classes in the data, compared with those that a step `label` with `unknown` knows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from wdspec.base.amounts import join_names, show_value
from wdspec.base.errors import FieldError, SpecError, nearest
from wdspec.fields.measures import Measures
from wdspec.fields.samples import SampleFields
from wdspec.jobs.check.facts import CheckedData, CheckedSource, DataProblem, SampleFacts
from wdspec.read.selection import Selection
from wdspec.spec.language.class_files import numbers_of
from wdspec.spec.language.expressions import MISSING, paths_read_by
from wdspec.spec.language.making import Label, Recipe, behind
from wdspec.spec.problems import list_names
from wdspec.steps.label import find_name, has_items

MOST_NAMES = 20_000
"""Maximum number of different names to count for a field in a shard; later ones are ignored."""
MOST_SHOWN = 10


class ClassNames:
    """Counts the names that the steps `label` of a source get.

    Args:
        fields: the fields of the source.
        facts: gets the counts.
        selection: the selection of the source: `where: class_id >= 0` leaves out names that are no class.
    """

    def __init__(self, fields: SampleFields, facts: SampleFacts, selection: Selection | None) -> None:
        making = {name: entry.recipe for name, entry in fields.made.items()}
        self._counted = {
            name: (facts.names.setdefault(name, {}), Measures(fields, recipe.origins, recipe.origins))
            for name, recipe in _labels_of(making)
        }
        paths = () if selection is None else paths_read_by(selection.where, dict(selection.costs))
        self._selected = behind(making, [str(path[0]) for path in paths]) & self._counted.keys()

    def look(self, raw: dict[str, Any]) -> None:
        """Look at a raw sample that is delivered."""
        self._count(raw, self._counted)

    def look_at_dropped(self, raw: dict[str, Any]) -> None:
        """Look at a raw sample that `where` drops, for the steps whose fields it reads."""
        self._count(raw, self._selected)

    def _count(self, raw: dict[str, Any], fields: Iterable[str]) -> None:
        for counts, measure in map(self._counted.__getitem__, fields):
            with suppress(FieldError):  # reported when the sample is read
                (found,) = measure(raw) or (None,)
                for value in (found,) if found is None or not has_items(found) else found:
                    if value is not None and value is not MISSING:
                        name = str(value).strip()
                        if name in counts or len(counts) < MOST_NAMES:
                            counts[name] = counts.get(name, 0) + 1


def _labels_of(recipes: Mapping[str, Recipe]) -> Iterator[tuple[str, Label]]:
    for name, recipe in recipes.items():
        if isinstance(recipe, Label) and recipe.unknown != "error":
            yield name, recipe


def unknown_classes(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for the names that a step has no class for, and the names of the step that no sample has.

    Sources whose steps are the same count together: their `aliases` may be in `defaults`.
    """
    steps: dict[tuple[str, str], list[tuple[CheckedSource, Label]]] = defaultdict(list)
    for source in collection.own:
        for name, recipe in _labels_of(source.source.make):
            if source.facts.names.get(name):
                of_classes = recipe.model_dump_json(exclude={"label"})
                steps[name, of_classes].append((source, recipe))
    for (name, _), found in steps.items():
        sources, (recipe, *_) = zip(*found, strict=True)
        counts = sum((Counter(source.facts.names[name]) for source in sources), Counter[str]())
        others = f" of {list_names([source.name for source in sources], 4)}" * (len(sources) > 1)
        try:
            classes = numbers_of(recipe.names, recipe.file)
        except SpecError:  # reported when samples are read
            continue
        known = {*classes, *recipe.aliases}
        lost = [
            sum(n for each, n in source.facts.names[name].items() if each not in known) for source in sources
        ]
        message = _compare(
            counts, [*classes], recipe, all(source.is_read_in_full for source in sources), others
        )
        if message:
            first = sources[lost.index(max(lost))].name
            yield DataProblem("D341", f"`make: {name}`: {message}", first, field=name)


def _compare(
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
        more = f", and {len(unknown) - MOST_SHOWN:,} more" * (len(unknown) > MOST_SHOWN)
        shown = ", ".join(f"{show_value(name, 60)} ({count:,})" for name, count in unknown[:MOST_SHOWN])
        lost = sum(count for _, count in unknown)
        said.append(
            f"{lost:,} of {counts.total():,} names{others} are no class, and get {recipe.unknown}: "
            f"{shown}{more}"
        )
    lone = [name for name in unused if name in recipe.aliases or is_read_in_full or name in meant.values()]
    if not unknown:
        return ""  # classes and aliases without samples may be for another split, or for other shards
    if lone:
        more = f", and {len(lone) - MOST_SHOWN:,} more" * (len(lone) > MOST_SHOWN)
        said.append(f"no sample has {', '.join(show_value(name, 60) for name in lone[:MOST_SHOWN])}{more}")
    if not meant:
        said.append("add the names that are classes to `aliases`")
    intended = [name for name, _ in unknown[:MOST_SHOWN] if name not in meant][-1:]
    for name in intended:
        form = f"a `.csv` file of classes with the line `{name},{recipe.unknown}`"
        if recipe.names:
            pairs = [{classes[0]: recipe.names[classes[0]]}, {name: recipe.unknown}]
            first, last = (json.dumps(pair, ensure_ascii=False)[1:-1] for pair in pairs)
            form = f"`names: {{{first}, …, {last}}}`"
        said.append(f"if {show_value(name, 60)} is no class on purpose, say so by {form}")
    if meant:
        both = join_names(
            f"{show_value(near, 60)} for {show_value(name, 60)}" for name, near in meant.items()
        )
        said.append(f"did you write {both}?")
    return "; ".join(said)
