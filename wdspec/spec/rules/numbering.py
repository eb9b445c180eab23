"""Rules for numbers that mean two things in one batch: classes of `label`, and ids of tokenizers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from wdspec.base.amounts import show_value
from wdspec.base.errors import SpecError
from wdspec.spec.build import Composition
from wdspec.spec.language.class_files import numbers_of
from wdspec.spec.language.expressions import describe_path
from wdspec.spec.language.making import Chat, Label, Take, Tokenize
from wdspec.spec.rules.fields import decoders_of, right_sources, visible_fields
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
        self.owner, self.field, self.at, self.recipe = owner, field, at, recipe
        self.unit = "class" if isinstance(recipe, Label) else "token"
        self.end = (recipe.eos or "") if isinstance(recipe, Tokenize) else None
        self.key = recipe.model_dump_json(include={"file", "names", "eos"})

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """By name; empty if they cannot be read: W440 says if a file does not exist."""
        if not isinstance(self.recipe, Label):
            return read_tokens(self.recipe.file) or {}
        try:
            return numbers_of(self.recipe.names, self.recipe.file)
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
    "Or a source has numbers in its files, such as `cls`, for a field that another one makes of `names`: a `file` in "
    "place of `names` can have the classes in the order of these numbers, as `wdspec create --classes` writes it. "
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


@rule("W457", keys="make")
def file_numbers_beside_names(composition: Composition) -> Findings:
    """Numbers of files in a field that other sources of the mix make of `names`."""
    made = {field: f"`{source}`" for field, source in _made_of_names(composition).items()}
    yield from _find_file_numbers(composition, made)


@rule("W457", needs="splits")
def file_numbers_beside_names_of_splits(splits: Sequence[Composition]) -> Findings:
    """Numbers of files in a field that only other splits make of `names`."""
    made: dict[str, str] = {}
    for each in splits:
        made |= dict.fromkeys(_made_of_names(each).keys() - made.keys(), f"the split `{each.variant.split}`")
    for each in splits:
        mine = _made_of_names(each)
        others = {field: owner for field, owner in made.items() if field not in mine}
        yield from _find_file_numbers(each, others, f"the split `{each.variant.split}`")


def _made_of_names(composition: Composition) -> dict[str, str]:
    """The fields that `label` makes of `names`, and the first source that has each."""
    pairs = [
        (name, leaf.name)
        for leaf, source, _ in makes_of(composition, is_mixed=True)
        for name, recipe in source.make.items()
        if isinstance(recipe, Label) and recipe.names is not None
    ]
    return dict(reversed(pairs))


def _find_file_numbers(composition: Composition, made: Mapping[str, str], owner: str = "") -> Findings:
    """The first source that has each of some fields as it is in its files."""
    for field, other in made.items() if not composition.spec.map else ():
        for leaf, source in right_sources(composition, "extensions", "rename", "decode", "make", "map"):
            step = source.make.get(field)
            is_changed = step is not None or field in source.tags or "txt" in decoders_of(source, field)
            is_named = field in source.rename or field in (visible_fields(source) or ())
            is_in_files = isinstance(step, Take) or (is_named and not is_changed)
            if is_in_files and not any(call.field in (field, None) for call in source.map):
                mine = owner or f"`{leaf.name}`"
                message = f"`{field}` of {mine} has the numbers of its files, but {other} numbers `names`"
                hint = "write `file: classes.txt` in place of `names`, with the classes in the order of the files"
                yield Finding(
                    leaf.node.value_or_self("make" if step else "rename"),
                    message,
                    f"{hint}, or make `{field}` by `label` in both",
                )
                break


@rule(
    "W481",
    "numbers of classes with a gap",
    "The classes of `label` are numbered from 1, or a number between them has no class. A model with as many outputs "
    "as classes has the outputs 0 to n - 1, so the largest number is none of them: losses fail, on a GPU with an error "
    "that does not say why. There is no warning if many numbers are left out, as for some classes of a larger set, "
    "and for lists of names, whose class 0 may be the background. Two names may have one number.",
    keys="make",
    bad="dataset:\n  - {shards: a.tar, make: {class_id: {label: txt, names: {cat: 1, dog: 2}}}}\n",
    good="dataset:\n  - {shards: a.tar, make: {class_id: {label: txt, names: {cat: 0, dog: 1}}}}\n",
)
def gaps_in_numbers(composition: Composition) -> Findings:
    """Fields whose classes, of all sources together, have nearly as many numbers as they need."""
    found: dict[str, tuple[Node, dict[str, int]]] = {}
    lists = set[str]()
    for numbering in _numberings_of(composition):
        recipe = numbering.recipe
        if isinstance(recipe, Label):
            _, numbers = found.setdefault(numbering.field, (numbering.at, {}))
            numbers.update(numbering.numbers)
            if isinstance(recipe.unknown, int):
                numbers[""] = recipe.unknown
            lists |= {numbering.field} if "[" in describe_path(recipe.origins[0]) else set()
    for field, (at, numbers) in found.items():
        classes = [number for number in numbers.values() if number >= 0]
        most = max(classes, default=-1)
        absent = sorted({*range(most)} - {*classes}) if most <= len(classes) else []
        if absent and field not in lists:
            first = f"numbered from {min(classes)}" if absent[0] == 0 else f"up to {most} without {absent[0]}"
            hint = "number them 0, 1, 2, …, as `names: [cat, dog]` does"
            yield Finding(at, f"classes of `{field}` are {first}", hint)


@rule(
    "W497",
    "an alias that looks like another class",
    "An alias of `label` differs from the name of a class in letter case alone, but stands for another class, so that "
    "samples of the one count as the other. There is no warning if both have the same number. Loading a spec gives "
    "this warning, too.",
    keys="make",
    bad="dataset:\n  - shards: a.tar\n"
    "    make: {class_id: {label: txt, names: [cat, dog], aliases: {Cat: dog}}}\n",
    good="dataset:\n  - shards: a.tar\n"
    "    make: {class_id: {label: txt, names: [cat, dog], aliases: {Cat: cat}}}\n",
    warns_at_load=True,
)
def aliases_like_other_classes(composition: Composition) -> Findings:
    """Aliases that are the name of a class but for letter case, and that of another one."""
    for _, source, node in makes_of(composition):
        for field, recipe in source.make.items():
            if not isinstance(recipe, Label) or not recipe.aliases:
                continue
            numbers = _Numbering("", field, recipe, node).numbers
            like = {name.casefold(): name for name in numbers}
            for alias, name in recipe.aliases.items() if numbers.keys().isdisjoint(recipe.aliases) else ():
                own = like.get(alias.casefold(), name)
                if name.casefold() != own.casefold() and numbers.get(name, numbers[own]) != numbers[own]:
                    message = (
                        f"{show_value(alias)} stands for {show_value(name)}, but {show_value(own)} is a class"
                    )
                    hint = f"write `{alias}: {own}`, or choose another name if this is meant"
                    yield Finding(locate(node, (field, "aliases", alias)), message, hint)


_NO_CLASS = re.compile(r"[\W_]*(background|none|other|unknown)[\W_]*$", re.IGNORECASE)


@rule(
    "W491",
    "a selection without the first class",
    "Classes are numbered from 0, and `where: class_id >= 0` leaves out names that are no class. `class_id > 0` also "
    "leaves out class 0, so that a model never sees it. Write `>= 1` if this is meant. There is no warning if class 0 "
    "is called `background`, `none`, `other` or `unknown`. Loading a spec gives this warning, too.",
    keys="where",
    bad="dataset:\n  - {shards: a.tar, make: {class_id: {label: cls, names: [cat, dog]}}, where: class_id > 0}\n",
    good="dataset:\n  - {shards: a.tar, make: {class_id: {label: cls, names: [cat, dog]}}, where: class_id >= 0}\n",
    warns_at_load=True,
)
def first_classes_left_out(composition: Composition) -> Findings:
    """Selections of the numbers above 0 of a field whose class 0 has a name."""
    seen = set[str]()
    for leaf, source, node in makes_of(composition, is_mixed=True):
        for field, recipe in source.make.items():
            name = re.escape(field)
            above = re.search(
                rf"(?<![\w.]){name}\s*>\s*0(?![\w.])|(?<![\w.])0\s*<\s*{name}(?![\w.])", source.where or ""
            )
            if (
                above is None
                or not isinstance(recipe, Label)
                or re.search(r"\b(or|not)\b", source.where or "")
            ):
                continue
            numbers = _Numbering("", field, recipe, node).numbers
            first = next((each for each, number in numbers.items() if number == 0), None)
            if first is not None and len(numbers) > 1 and not _NO_CLASS.match(first) and field not in seen:
                seen.add(field)
                message = (
                    f"`{above[0]}` leaves out all samples of class 0 of `{field}`, {show_value(first, 60)}"
                )
                hint = f"write `{field} >= 0`, or `{field} >= 1` if this is meant"
                yield Finding(leaf.node.value_or_self("where"), message, hint)


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
