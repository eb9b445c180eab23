"""Recipes: descriptions of samples to build from files, text, values and the output of commands.

They come from folders, from recipes of `tarp create`, and from manifests: tables with one sample per row, whose columns
contain values or paths of files. `gather` builds one sample.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from wdspec.base.errors import FieldError, UsageError
from wdspec.base.files import open_regular
from wdspec.base.text_rows import RowError, read_csv, read_json_lines
from wdspec.formats.tar.headers import to_text
from wdspec.formats.tar.reader import splitter
from wdspec.spec.language.decoders import IMAGE_FIELDS
from wdspec.spec.language.samples import KeyRule
from wdspec.write.coco import rows_of_coco
from wdspec.write.tar_writer import KeySplit

CLASS_FIELDS = ("cls", "label.txt")
"""The fields for the number and the name of a sample's class."""


_OF_SYSTEMS = frozenset({"thumbs.db", "desktop.ini"})
"""Files that Windows puts into folders."""


class Ingredient(NamedTuple):
    """What a field is built from."""

    kind: Literal["file", "pipe", "value"]
    content: Any
    """A path, a shell command, or the value itself (bytes, or a value to encode)."""


class Recipe(NamedTuple):
    """What a sample is built from."""

    key: str
    fields: dict[str, Ingredient]
    where: str
    """Where the recipe comes from, for messages."""


def gather(recipe: Recipe) -> dict[str, Any]:
    """Build the sample: read its files and run its commands.

    Raises:
        FieldError: a file cannot be read, or a command exits with a non-zero code. The error names the key, the field
            and the place of the recipe.
    """
    sample: dict[str, Any] = {"__key__": recipe.key}
    for field, (kind, content) in recipe.fields.items():
        try:
            if kind == "file":
                with open_regular(content) as file:
                    sample[field] = file.read()
            elif kind == "pipe":
                sample[field] = _run(content)
            else:
                sample[field] = content
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FieldError(f"{content}: {reason} ({recipe.where})", key=recipe.key, field=field) from error
    return sample


def size_of(recipe: Recipe) -> int:
    """Estimate the size of the sample in a tar, in bytes. The output of commands is unknown and counts as empty.

    Raises:
        FieldError: a file does not exist.
    """
    total = 0
    for field, (kind, content) in recipe.fields.items():
        size = 0
        if kind == "file":
            try:
                size = os.stat(content).st_size
            except OSError as error:
                raise FieldError(
                    f"{content}: {error.strerror} ({recipe.where})", key=recipe.key, field=field
                ) from error
        elif kind == "value":
            size = len(content) if isinstance(content, (bytes, str)) else 16
        total += 512 + size + -size % 512
    return total


def recipes_of_folder(folder: str, rule: KeySplit = "first_dot") -> list[Recipe]:
    """Return a recipe for each key of the files in a folder and its subfolders, sorted by key. Hidden files and
    those of Windows are ignored.

    Raises:
        UsageError: the folder does not exist or cannot be read, or a file has no extension.
    """
    if not os.path.isdir(folder):
        raise UsageError("no such folder", location=folder)
    return sorted(_group(_list_files(folder), rule), key=lambda recipe: recipe.key)


def recipes_of_classes(folder: str) -> list[Recipe]:
    """Return a recipe for each file in a folder of classes, sorted by key.

    The key is the path without the last suffix. Its dots become `_`, since a tar splits names at the first dot.

    Raises:
        UsageError: as for `recipes_of_folder`, or two files have the same key.
    """
    if not os.path.isdir(folder):
        raise UsageError("no such folder", location=folder)
    found: dict[str, Recipe] = {}
    for name, ingredient, where in _list_files(folder):
        stem, suffix = os.path.splitext(name)
        if not suffix[1:]:
            raise UsageError(f"`{name}` ({where}) has no extension to name its field; rename or remove it")
        place, slash, last = stem.rpartition("/")
        key = f"{place}{slash}{last.replace('.', '_')}"
        if key in found:
            raise UsageError(
                f"`{found[key].where}` and `{where}` would be the same sample, `{key}`; rename one of them (with "
                "--classes, each file is a sample)"
            )
        found[key] = Recipe(key, {suffix[1:]: ingredient}, where)
    return sorted(found.values(), key=lambda recipe: recipe.key)


def list_classes(recipes: Sequence[Recipe]) -> list[str]:
    """Return the names of the folders, which are the classes, in order.

    Raises:
        UsageError: a file is not in a folder, or its sample already has a class.
    """
    for recipe in recipes:
        if "/" not in recipe.key:
            raise UsageError(
                f"{recipe.where} is not in a folder; move it into one, whose name becomes its class"
            )
        for field in CLASS_FIELDS:
            if field in recipe.fields:
                raise UsageError(f"{recipe.where} already has a `{field}`; remove --classes")
    return sorted({recipe.key.partition("/")[0] for recipe in recipes})


def add_classes(recipes: Sequence[Recipe], names: Sequence[str]) -> list[Recipe]:
    """Add the number and the name of its class to each sample, as `CLASS_FIELDS`.

    Args:
        recipes: the recipes of a folder.
        names: the names of the classes, in the order of their numbers.
    """
    numbers = {name: number for number, name in enumerate(names)}
    labeled = []
    for recipe in recipes:
        name = recipe.key.partition("/")[0]
        added = {
            field: Ingredient("value", value)
            for field, value in zip(CLASS_FIELDS, (numbers[name], name), strict=True)
        }
        labeled.append(recipe._replace(fields={**recipe.fields, **added}))
    return labeled


def looks_like_classes(recipes: Sequence[Recipe]) -> bool:
    """Whether every sample is a single image without a label, and the images are in several folders."""
    names = {recipe.key.partition("/")[0] for recipe in recipes if "/" in recipe.key}
    return len(names) > 1 and all(
        "/" in recipe.key and len(recipe.fields) == 1 and next(iter(recipe.fields)).lower() in IMAGE_FIELDS
        for recipe in recipes
    )


def recipes_of_lines(
    lines: Iterable[str], name: str, base: str = ".", rule: KeySplit = "first_dot", run_pipes: bool = False
) -> Iterator[Recipe]:
    """Read the format of `tarp create`: each line has the name of a member, blanks, and its source.

    A source is a path, ``text:`` followed by text, or ``pipe:`` followed by a shell command. Empty lines and lines that
    start with ``#`` are ignored. Members with the same key do not have to be adjacent; samples are in the order of
    their first members.

    Args:
        lines: the lines to read.
        name: the name of their file, for messages.
        base: the folder of relative paths.
        rule: how the names of members are split into key and field.
        run_pipes: whether commands may be run.

    Raises:
        UsageError: a line is invalid, or has a command that may not be run. The error names the line.
    """
    yield from _group(_read_members(lines, name, base, run_pipes), rule)


Named = tuple[str, Ingredient, str]
"""(name of a member, what it is built from, where that is specified)."""


def _read_members(lines: Iterable[str], name: str, base: str, run_pipes: bool) -> Iterator[Named]:
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        text = line.rstrip("\r\n")
        if not text.strip() or text.startswith("#"):
            continue
        parts = text.strip("\t ").split(None, 1)
        if len(parts) < 2:
            raise UsageError(
                f"{where}: `{text[:80]}` has no source; write `name.ext path`, `name.ext text:…` or `name.ext pipe:…`"
            )
        member, source = parts[0], parts[1]
        if source.startswith("text:"):
            yield member, Ingredient("value", source[5:].encode("utf-8", "surrogateescape")), where
        elif source.startswith("pipe:"):
            if not run_pipes:
                raise UsageError(
                    f"{where}: `{source[:80]}` runs a command; if you trust this recipe, add --run-pipes"
                )
            yield member, Ingredient("pipe", source[5:]), where
        else:
            yield member, Ingredient("file", os.path.join(base, source.strip())), where


def _list_files(folder: str) -> Iterator[Named]:
    def fail(error: OSError) -> None:
        raise UsageError(f"cannot be read: {error.strerror}", location=error.filename)

    for path, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith(".") and name.lower() not in _OF_SYSTEMS:
                file = os.path.join(path, name)
                yield os.path.relpath(file, folder), Ingredient("file", file), file


def _group(members: Iterable[Named], rule: KeySplit) -> Iterator[Recipe]:
    split = splitter(KeyRule(kind=rule))
    found: dict[bytes, Recipe] = {}
    for name, ingredient, where in members:
        parts = split(os.fsencode(name))
        if parts is None:
            raise UsageError(
                f"`{name}` ({where}) has no extension to name its field, or is a hidden file; rename or remove it"
            )
        key, suffix = parts
        field = to_text(suffix)
        recipe = found.setdefault(key, Recipe(to_text(key), {}, where))
        if field in recipe.fields:
            raise UsageError(f"{where}: `{name}` is a duplicate; the first one is in {recipe.where}")
        recipe.fields[field] = ingredient
    yield from found.values()


def _run(command: str) -> bytes:
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ValueError(f"the command exited with code {done.returncode}")
    return done.stdout


_JSON = frozenset({"json", "jsn"})


@dataclass(frozen=True)
class Columns:
    """The meaning of the columns of a manifest."""

    key: str | None = None
    """The column of keys. Defaults to ``__key__``; if there is no such column, samples are numbered."""
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Field → column of values."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Field → column of paths of files."""


def recipes_of_manifest(
    lines: Iterable[str], name: str, columns: Columns, base: str = "."
) -> Iterator[Recipe]:
    """Read a manifest: CSV or TSV with a header, JSON lines, or JSON: a list of rows, or images of COCO.

    If `columns` has neither `values` nor `files`, each column except the keys becomes a field with its values.

    Args:
        lines: the lines to read.
        name: the name of the file, for messages. Its suffix determines the format.
        columns: the meaning of the columns.
        base: the folder of relative paths.

    Raises:
        UsageError: a row is invalid, or a column is missing. The error names the row.
    """
    form = os.path.splitext(name)[1].lower().lstrip(".")
    if form in ("jsonl", "ndjson"):
        rows = _read_lines(lines, name)
    elif form in ("csv", "tsv"):
        rows = _read_table(lines, name, "\t" if form == "tsv" else ",")
    elif form == "json":
        rows = _read_json(lines, name)
    else:
        raise UsageError(f"{name} is not a manifest; use a file with the suffix .csv, .tsv, .jsonl or .json")
    try:
        for number, (where, row) in enumerate(rows):
            yield _build_recipe(row, where, number, columns, base, is_text=form in ("csv", "tsv"))
    except GeneratorExit:  # when Python exits, the names below may no longer exist
        raise
    except RowError as error:
        raise UsageError(f"{name}:{error.line}: {error}") from None


def _build_recipe(
    row: Mapping[str, Any], where: str, number: int, columns: Columns, base: str, is_text: bool
) -> Recipe:
    key_column = columns.key or ("__key__" if "__key__" in row else None)
    key = f"{number:09d}" if key_column is None else str(_get_cell(row, key_column, where))
    values = columns.values
    if not values and not columns.files:
        values = {name: name for name in row if name != key_column}
    fields: dict[str, Ingredient] = {}
    for name, column in columns.files.items():
        path = _get_cell(row, column, where)
        if not isinstance(path, str) or not path:
            raise UsageError(f"{where}: column `{column}` has {path!r:.60} instead of the path of a file")
        fields[name] = Ingredient("file", os.path.join(base, path))
    for name, column in values.items():
        value = _get_cell(row, column, where)
        if is_text and name.rpartition(".")[2].lower() in _JSON:
            value = _parse_json(value, where, column)
        fields[name] = Ingredient("value", value)
    return Recipe(key, fields, where)


def _get_cell(row: Mapping[str, Any], column: str, where: str) -> Any:
    try:
        return row[column]
    except KeyError:
        raise UsageError(
            f"{where}: no column `{column}`; the columns are {', '.join(map(str, row))}"
        ) from None


def _parse_json(value: Any, where: str, column: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise UsageError(f"{where}: column `{column}` is not JSON: {error}") from None


def _read_table(lines: Iterable[str], name: str, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = read_csv(lines, delimiter)
    _, headings = next(rows, (0, []))
    if not headings or len(set(headings)) < len(headings):
        raise UsageError(f"{name}: the first line must contain the names of the columns, without duplicates")
    for number, cells in rows:
        where = f"{name}:{number}"
        if len(cells) != len(headings):
            raise UsageError(f"{where}: this row has {len(cells)} cells, but the header has {len(headings)}")
        yield where, dict(zip(headings, cells, strict=True))


def _read_lines(lines: Iterable[str], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((f"{name}:{number}", row) for number, row in read_json_lines(lines))


def _as_row(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise UsageError(f"{where}: a row must be an object, not {type(row).__name__}")
    return row


def _read_json(lines: Iterable[str], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of one list, of the images of COCO, or of JSON lines, which some tools write with this suffix."""
    text = "".join(lines)
    try:
        content = json.loads(text)
    except ValueError:
        return _read_lines(text.splitlines(), name)  # it names the line
    if isinstance(content, dict) and {"images", "annotations"} <= set(content):
        return rows_of_coco(content, name)
    if isinstance(content, dict) and "\n" not in text.strip():
        return _read_lines([text], name)  # a single line
    if not isinstance(content, list):
        raise UsageError(
            f"{name}: expected a list of objects, JSON lines, or an object with `images` and `annotations`, as COCO has"
        )
    return (
        (f"{name}: row {number}", _as_row(row, f"{name}: row {number}")) for number, row in enumerate(content)
    )
