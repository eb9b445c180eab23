"""The classes of `label`: a map in the spec, or a file with their names, from which they are read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping

from wdspec.base.errors import SpecError, UsageError, did_you_mean
from wdspec.base.files import open_regular
from wdspec.base.text_rows import RowError, read_csv
from wdspec.spec.language.making import Label, Recipe
from wdspec.spec.problems import list_names


def numbers_of(names: Mapping[str, int] | None, file: str | None) -> Mapping[str, int]:
    """Return the classes of a step, name → number, from its `names` or its `file`.

    Raises:
        SpecError: the file cannot be read; see `read_class_file`.
    """
    return names if names is not None else read_class_file(file or "")


def add_aliases(
    numbers: Mapping[str, int], aliases: Mapping[str, str], file: str | None = None
) -> dict[str, int]:
    """Return classes with other names of them.

    Args:
        file: where the classes are from, for messages.

    Raises:
        SpecError: an alias is a class itself, or that of a name which is no class.
    """
    where = "" if file is None else f" in {file}"
    own = [alias for alias in aliases if alias in numbers]
    unknown = [alias for alias, name in aliases.items() if name not in numbers]
    if len(own) + len(unknown) > 1:
        lost = [*dict.fromkeys(aliases[alias] for alias in unknown)]
        seen = [f"the aliases {list_names(own)} are among them"] * bool(own)
        seen += [f"{list_names(lost)}, which aliases stand for, is not"] * bool(lost)
        what = f"`label`: `aliases` do not fit the classes{where}: {', and '.join(seen)}"
        raise SpecError(f"{what}; correct {'`file`, or else ' if file else ''}`aliases`")
    if own:
        raise SpecError(f"`label`: `{own[0]}` is a class itself{where}; remove the alias")
    if unknown:
        name = aliases[unknown[0]]
        hint = did_you_mean(name, numbers) or "correct `aliases`, or add the class"
        raise SpecError(f"`label`: `{unknown[0]}` is an alias of `{name}`, which is no class{where}; {hint}")
    return {**numbers, **{alias: numbers[name] for alias, name in aliases.items()}}


def read_class_file(file: str) -> dict[str, int]:
    """Read a file of classes: return name → number.

    A file that ends with `.json` has a list, or a map of names to numbers or of numbers to names. A `.csv` or `.tsv`
    has a line for each name, with its number; its first line may be a header. Other files have one name per line, which
    are numbered from 0.

    Raises:
        SpecError: the file does not exist, or is not of this form.
    """

    def refuse(what: str) -> SpecError:
        return SpecError(f"`label`: {file} {what}")

    try:
        with io.TextIOWrapper(open_regular(file), encoding="utf-8-sig", newline="") as opened:
            text = opened.read()
    except FileNotFoundError:
        raise refuse("does not exist; correct the path of `file`, which is relative to the spec") from None
    except (OSError, UnicodeDecodeError) as cause:
        raise refuse(f"cannot be read: {cause}") from cause
    name = file.lower()
    if name.endswith(".json"):
        pairs = _read_json(text, refuse)
    elif name.endswith((".csv", ".tsv")):
        pairs = _read_csv(text, "\t" if name.endswith(".tsv") else ",", refuse)
    else:
        lines = text.removesuffix("\n").split("\n") if text.strip() else []
        pairs = [(line.strip(), number) for number, line in enumerate(lines)]
        blank = next((number for name, number in pairs if not name), None)
        if blank is not None:
            raise refuse(f"has an empty line, no. {blank + 1}; each line is a class, so remove it")
    numbers: dict[str, int] = {}
    for name, number in pairs:
        if name in numbers:
            raise refuse(
                f"has the class `{name[:60]}` twice; remove one, and write `aliases` for other names"
            )
        numbers[name] = number
    if not numbers:
        raise refuse("has no classes")
    return numbers


def _read_json(text: str, refuse: Callable[[str], SpecError]) -> list[tuple[str, int]]:
    try:
        found = json.loads(text)
    except ValueError as cause:
        raise refuse(f"is not JSON: {cause}") from None
    if isinstance(found, list) and all(isinstance(name, (str, int)) for name in found):
        return [(str(name), number) for number, name in enumerate(found)]
    if isinstance(found, dict):
        if all(type(number) is int for number in found.values()):
            return [*found.items()]
        if all(isinstance(name, str) for name in found.values()) and all(map(str.isdecimal, found)):
            return [(name, int(number)) for number, name in found.items()]  # as in `id2label`
    raise refuse('needs a list of names, or a map of names to numbers: `{"cat": 0, "dog": 1}`')


def _read_csv(text: str, delimiter: str, refuse: Callable[[str], SpecError]) -> list[tuple[str, int]]:
    found = []
    try:
        for at, (line, row) in enumerate(read_csv(text.splitlines(keepends=True), delimiter)):
            cells = [cell.strip() for cell in row]
            number = cells[1].removeprefix("-") if len(cells) == 2 else ""
            if number.isascii() and number.isdecimal():
                found.append((cells[0], int(cells[1])))
            elif at or len(cells) != 2:  # the first line may be a header
                seen = f"line {line}: {delimiter.join(cells)[:60]!r}"
                raise refuse(f"needs two columns, the name of a class and its number; see {seen}")
    except RowError as error:
        raise refuse(f"cannot be read at line {error.line}: {error}") from None
    return found


def class_names(numbers: Mapping[str, int]) -> list[str] | dict[int, str]:
    """Return the names of classes by number: a list if the numbers are 0, 1, 2, …, or else a dict.

    If several names have the same number, the first one counts. Names with a negative number are no classes.
    """
    names: dict[int, str] = {}
    for name, number in numbers.items():
        if number >= 0:
            names.setdefault(number, name)
    ordered = dict(sorted(names.items()))
    return list(ordered.values()) if [*ordered] == [*range(len(ordered))] else ordered


def names_in_sources(sources: Mapping[str, Mapping[str, Recipe]], field: str) -> list[str] | dict[int, str]:
    """Return the names of the classes of a field; see `Spec.class_names`.

    Args:
        sources: the `make` of each source, by its name.
        field: the field.
    """
    labels = {name: recipe for name, make in sources.items() if isinstance(recipe := make.get(field), Label)}
    if not labels:
        made = [name for make in sources.values() for name in make if isinstance(make[name], Label)]
        hint = did_you_mean(field, made) or f"it has {', '.join(map(repr, dict.fromkeys(made))) or 'none'}"
        raise UsageError(f"no source of the spec makes a field {field!r} by `label`; {hint}")
    found = {name: class_names(numbers_of(recipe.names, recipe.file)) for name, recipe in labels.items()}
    first, *others = found
    for other in others:
        if found[other] != found[first]:
            raise UsageError(
                f"`{first}` and `{other}` number the classes of {field!r} in two ways; write one map in `defaults: "
                "{make: …}`, and other names of classes in `aliases`"
            )
    return found[first]
