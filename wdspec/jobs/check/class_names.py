"""The names of classes in the data, compared with those that a step `label` with `unknown` knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

from wdspec.advice.class_names import compare_names, labels_of
from wdspec.base.errors import SpecError
from wdspec.jobs.check.facts import CheckedData, CheckedSource, DataProblem
from wdspec.spec.language.class_files import numbers_of
from wdspec.spec.language.expressions import paths_read_by
from wdspec.spec.language.making import Label
from wdspec.spec.problems import list_names


def unknown_classes(collection: CheckedData) -> Iterator[DataProblem]:
    """One problem for the names that a step has no class for, and the names of the step that no sample has.

    Sources whose steps are the same count together: their `aliases` may be in `defaults`.
    """
    steps: dict[tuple[str, str], list[tuple[CheckedSource, Label]]] = defaultdict(list)
    for source in collection.own:
        for name, recipe in labels_of(source.source.make):
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
        lost = [_count_unknown(source, name, recipe) for source in sources]
        message = compare_names(
            counts, [*classes], recipe, all(source.is_read_in_full for source in sources), others
        )
        if message:
            first = sources[lost.index(max(lost))].name
            yield DataProblem("D341", f"`make: {name}`: {message}", first, field=name)


def _count_unknown(source: CheckedSource, name: str, recipe: Label) -> int:
    """How many names of a field of a source are no class. Raises SpecError."""
    counts = source.facts.names.get(name, {})
    known = {*numbers_of(recipe.names, recipe.file), *recipe.aliases} if counts else ()
    return sum(n for each, n in counts.items() if each not in known)


def find_lost_names(source: CheckedSource, costs: Mapping[str, str]) -> str:
    """Find a field that `where` reads and whose names that are no class are most of what it leaves out; else empty."""
    where, lost = source.source.where or "", source.facts.causes.get("where", 0)
    read = {str(path[0]) for path in paths_read_by(where, dict(costs))} if lost else ()
    with suppress(SpecError):  # reported when samples are read
        for name, recipe in labels_of(source.source.make):
            if name in read and 2 * _count_unknown(source, name, recipe) > lost:
                return name
    return ""
