"""`label`: the name of a class → its number, or a list of names → their numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from wdspec.base.amounts import join_names, show_value
from wdspec.base.errors import FieldError, did_you_mean, nearest
from wdspec.base.trials import Trial
from wdspec.spec.language.class_files import add_aliases, numbers_of

if TYPE_CHECKING:
    pass


def make_label(
    *,
    file: str | None = None,
    names: Mapping[str, int] | None = None,
    aliases: Mapping[str, str] | None = None,
    unknown: int | Literal["error"] = "error",
) -> Callable[[Any], Any]:
    """Return the function from the name of a class to its number, or from a list of names to an int64 array (names,).

    Args:
        file: a file with the classes; see `read_class_file`.
        names: the classes, in place of a file.
        aliases: other names of classes.
        unknown: the number of other names; `error` raises an error for them.

    Raises:
        SpecError: the file cannot be read, or an alias is wrong.
    """
    numbers = add_aliases(numbers_of(names, file), aliases or {}, file)
    are_words = not any(name.isdecimal() for name in numbers)
    unseen = set(numbers)
    """The names that none of the first samples has."""
    trial = Trial(partial(_describe_unknown, numbers, unknown, _where(file)), _MOST)
    spelling = Trial(partial(_describe_spelling, unseen, unknown, _where(file)))

    def label(name: Any) -> Any:
        found = numbers.get(name) if name.__class__ is str else None
        if found is None:
            found = find(name)
        elif not trial.is_over:
            trial.note(None)
            unseen.discard(name)
        return found

    def find(name: Any) -> Any:
        if has_items(name):
            return _label_items(label, name)
        if not isinstance(name, (str, int)) or isinstance(name, bool):
            hint = "; decode it with `txt`" if isinstance(name, bytes) else ""
            raise FieldError(f"`label` needs the name of a class, but this is {show_value(name, 60)}{hint}")
        text = str(name).strip()  # files of text often end with a line feed
        if text in numbers:
            trial.note(None)
            unseen.discard(text)
            return numbers[text]
        if not isinstance(name, str) and are_words and name in numbers.values():
            raise FieldError(
                f"`label` needs the name of a class, but this is the number {name}; if it is that of its class, "
                f'leave the step out; otherwise, name the classes by such numbers: `names: {{"{name}": …}}`'
            )
        if unknown != "error":
            trial.note(text)
            if len(unseen) < len(numbers):  # otherwise, `trial` reports all of them
                spelling.note(text)
            return unknown
        hint = did_you_mean(text, numbers) or (
            f"add it to {'`names`' if file is None else 'the file'}, or, as another name of a class, to `aliases`, "
            "or write `unknown: -100`"
        )
        raise FieldError(f"`label` has no class {show_value(text, 60)}{_where(file)}; {hint}")

    return label


def has_items(value: Any) -> bool:
    """Whether a value is a list of names, and not one name."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1


def _label_items(label: Callable[[Any], int], names: Any) -> Any:
    import numpy as np  # most specs have no lists of names

    names = names.tolist() if hasattr(names, "tolist") else [*names]  # of arrays, as plain numbers and texts
    for place, name in enumerate(names):
        if name is None or has_items(name):
            raise FieldError(
                f"`label` needs the name of a class in each item, but item {place} is {show_value(name, 60)}"
            )
    return np.array([*map(label, names)], np.int64)


_MOST = 0.9
"""The part of the names without a class from which on to warn."""


def _describe_unknown(
    numbers: Mapping[str, int], unknown: object, where: str, samples: int, found: Counter[str]
) -> str:
    shown = join_names([f"{show_value(name, 60)} ({count})" for name, count in found.most_common(3)])
    hints = dict.fromkeys(filter(None, (did_you_mean(name, numbers) for name, _ in found.most_common(3))))
    return (
        f"`label` has no class{where} for {found.total()} of {samples} names, and gives them {unknown}: {shown}; "
        f"{' '.join(hints) or 'correct the path or the classes, or add them to `aliases`'}"
    )


def _describe_spelling(
    unseen: Collection[str], unknown: object, where: str, samples: int, found: Counter[str]
) -> str:
    meant = {name: find_name(name, unseen) or nearest(name, unseen, _NEAR) for name in found}
    pairs = [f"{show_value(name, 60)}, but {show_value(near, 60)}" for name, near in meant.items() if near]
    return (
        f"`label` has no class{where} for {join_names(pairs)}, and gives {unknown}; add the spelling of the data to "
        "`aliases`, or correct it there"
    ) * bool(pairs)


_NEAR = 0.8
"""How similar a name in the data is to one that the first samples do not have, if they are probably the same."""


def find_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs only in letter case, blanks, hyphens and underscores."""

    def fold(name: str) -> str:
        return " ".join(re.split(r"[\s_-]+", name.casefold()))

    return next((each for each in known if fold(each) == fold(name)), None)


def _where(file: str | None) -> str:
    return "" if file is None else f" in {file}"
