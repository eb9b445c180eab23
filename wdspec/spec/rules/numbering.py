"""A rule for numbers that mean two things in one batch: classes of `label`, and ids of tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from wdspec.base.amounts import show_value
from wdspec.base.errors import SpecError
from wdspec.spec.build import Composition
from wdspec.spec.language.class_files import numbers_of
from wdspec.spec.language.making import Chat, Label, Tokenize
from wdspec.spec.rules.making import makes_of
from wdspec.spec.rules.rule import Finding, Findings, rule
from wdspec.spec.rules.tokenizer_files import read_tokens
from wdspec.spec.tree import Node, locate


class _Numbering:
    """How a step numbers the classes or the tokens of a field.

    Args:
        owner: the source or the split, in words.
        field: the field.
        recipe: its step.
        at: its `names` or `file`.
    """

    def __init__(self, owner: str, field: str, recipe: Label | Tokenize | Chat, at: Node) -> None:
        self.owner, self.field, self.at, self._recipe = owner, field, at, recipe
        self.unit = "class" if isinstance(recipe, Label) else "token"
        self.end = (recipe.eos or "") if isinstance(recipe, Tokenize) else None
        self.key = recipe.model_dump_json(include={"file", "names", "eos"})

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """By name; empty if they cannot be read: W440 says if a file does not exist."""
        if not isinstance(self._recipe, Label):
            return read_tokens(self._recipe.file) or {}
        try:
            return numbers_of(self._recipe.names, self._recipe.file)
        except SpecError:
            return {}

    def ends_like(self, other: _Numbering) -> bool:
        """Whether documents end with the same token, as far as it is known: chat templates have their own."""
        return self.end == other.end or None in (self.end, other.end)

    def is_like(self, other: _Numbering) -> bool:
        """Whether both give the same numbers."""
        return self.ends_like(other) and self.numbers == other.numbers


@rule(
    "W457",
    "classes or tokens that are numbered in two ways",
    "Two sources, or two splits, make the same field by `label`, and a class has another number in one than in the "
    "other, or a number another class. Or they make it by `tokenize` or `chat`, and their tokenizers give a token two "
    "ids, or an id to two tokens; or only the documents of one end with `eos`. A model that is trained with both "
    "learns one number for two classes or tokens, and an evaluation counts right predictions as wrong. Write `make` "
    "once, in `defaults`. Other spellings of the name of a class belong into `aliases`, which may differ by source. "
    "There is no warning about splits without a common class, which may be for different tasks, about fields of "
    "different names, and about files that are not on this machine.",
    keys="make",
    bad="defaults: {make: {class_id: {label: cls, names: [cat, dog]}}}\n"
    "dataset:\n  - {shards: a.tar}\n  - {shards: b.tar, make: {class_id: {names: [dog, cat]}}}\n",
    good="defaults: {make: {class_id: {label: cls, names: [cat, dog]}}}\n"
    "dataset:\n  - {shards: a.tar}\n  - {shards: b.tar, make: {class_id: {aliases: {puppy: dog}}}}\n",
)
def numbers_of_two_sources(composition: Composition) -> Findings:
    """Classes or tokens that sources of a mix number in different ways."""
    yield from _find_renumbered(_numberings_of(composition))


@rule("W457", needs="splits")
def numbers_of_two_splits(splits: Sequence[Composition]) -> Findings:
    """Classes or tokens that splits number in different ways, if they have any in common."""
    found: dict[tuple[str, str], _Numbering] = {}
    for each in splits:
        for numbering in _numberings_of(each):
            split = f"the split `{each.variant.split}`"
            numbering.owner = split
            found.setdefault((split, numbering.field), numbering)
    yield from _find_renumbered(
        found.values(),
        lambda one, other: not one.ends_like(other) or bool(one.numbers.keys() & other.numbers.keys()),
    )


def _numberings_of(composition: Composition) -> Iterator[_Numbering]:
    """The classes and tokens of the fields that sources of a mix make."""
    for leaf, source, node in makes_of(composition, is_mixed=True):
        for name, recipe in source.make.items():
            if isinstance(recipe, (Label, Tokenize, Chat)):
                has_names = isinstance(recipe, Label) and recipe.file is None
                at = locate(node, (name, "names" if has_names else "file"))
                yield _Numbering(f"`{leaf.name}`", name, recipe, at)


def _find_renumbered(
    found: Iterable[_Numbering],
    are_comparable: Callable[[_Numbering, _Numbering], bool] = lambda one, other: True,
) -> Findings:
    """What differs from the first that makes the field, once for each way to number it."""
    ways: dict[tuple[str, str], list[_Numbering]] = {}
    for each in found:
        known = ways.setdefault((each.field, each.unit), [])
        if any(each.key == other.key for other in known) or any(map(each.is_like, known)):
            continue  # files of tokenizers are read only if they are two
        first = next((other for other in known if other.numbers), each)
        known.append(each)
        if are_comparable(first, each) and (what := _compare(first, each)):
            hint = f"number the classes once, in `defaults: {{make: {{{each.field}: …}}}}`, and write other names in "
            hint += "`aliases`"
            if each.unit == "token":
                hint = f"write `make: {{{each.field}: …}}` once, in `defaults`"
            yield Finding(each.at, f"{what} in `{each.field}`", hint)


def _compare(one: _Numbering, other: _Numbering) -> str:
    """Return the first number that two steps give another name, or name another number; empty if there is none."""
    for name, number in other.numbers.items():
        if (before := one.numbers.get(name, number)) != number:
            return (
                f"{show_value(name, 60)} is {one.unit} {number} of {other.owner}, but {before} of {one.owner}"
            )
    first, second = (
        {number: name for name, number in reversed([*each.numbers.items()])} for each in (one, other)
    )
    for number in sorted(first.keys() & second.keys()):
        if number >= 0 and first[number] != second[number]:  # below 0, they are no classes
            names = [show_value(each[number], 60) for each in (first, second)]
            return f"{one.unit} {number} is {names[1]} of {other.owner}, but {names[0]} of {one.owner}"
    if not one.ends_like(other):
        ends = [f"end with {show_value(each.end, 60) if each.end else 'no `eos`'}" for each in (other, one)]
        return f"documents of {other.owner} {ends[0]}, but those of {one.owner} {ends[1]},"
    return ""
