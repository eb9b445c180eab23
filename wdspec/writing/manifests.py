"""Manifests: a table with a sample in each row, whose columns hold values, or paths of files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wdspec.errors import UsageError
from wdspec.writing.recipes import Ingredient, Recipe

_JSON = frozenset({"json", "jsn"})


@dataclass(frozen=True)
class Columns:
    """What the columns of a manifest mean."""

    key: str | None = None
    """The column of keys; without one samples are numbered, unless there is a column ``__key__``."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Field → column whose values are stored."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Field → column that holds the path of the file to be stored."""


def recipes_of_manifest(
    lines: Iterable[str], name: str, columns: Columns, base: str = "."
) -> Iterator[Recipe]:
    """The samples of a manifest: CSV or TSV with a heading, or JSON lines.

    Without `values` and `files`, each column but that of the keys is a field of values.

    Args:
        lines: the manifest.
        name: what to call it in messages; its suffix says the form.
        columns: what the columns mean.
        base: the folder that paths are relative to.

    Raises:
        UsageError: a row that cannot be understood, or lacks a column; names the row.
    """
    form = os.path.splitext(name)[1].lower().lstrip(".")
    if form in ("jsonl", "ndjson"):
        rows = _json_rows(lines, name)
    elif form in ("csv", "tsv"):
        rows = _table_rows(lines, name, "\t" if form == "tsv" else ",")
    else:
        raise UsageError(f"{name}: a manifest is .csv, .tsv or .jsonl")
    for number, (where, row) in enumerate(rows):
        yield _recipe(row, where, number, columns, base, is_text=form in ("csv", "tsv"))


def _recipe(
    row: Mapping[str, Any], where: str, number: int, columns: Columns, base: str, is_text: bool
) -> Recipe:
    key_column = columns.key or ("__key__" if "__key__" in row else None)
    key = f"{number:09d}" if key_column is None else str(_cell(row, key_column, where))
    values = columns.values
    if not values and not columns.files:
        values = {name: name for name in row if name != key_column}
    fields: dict[str, Ingredient] = {}
    for name, column in columns.files.items():
        path = _cell(row, column, where)
        if not isinstance(path, str) or not path:
            raise UsageError(
                f"{where}: column `{column}` holds {path!r:.60} where the path of a file belongs"
            )
        fields[name] = Ingredient("file", os.path.join(base, path))
    for name, column in values.items():
        value = _cell(row, column, where)
        if is_text and name.rpartition(".")[2].lower() in _JSON:
            value = _parsed(value, where, column)
        fields[name] = Ingredient("value", value)
    return Recipe(key, fields, where)


def _cell(row: Mapping[str, Any], column: str, where: str) -> Any:
    try:
        return row[column]
    except KeyError:
        raise UsageError(f"{where}: no column `{column}`; there are {', '.join(map(str, row))}") from None


def _parsed(value: Any, where: str, column: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise UsageError(f"{where}: column `{column}` is no JSON: {error}") from None


def _table_rows(lines: Iterable[str], name: str, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        headings = next(reader, None)
        if not headings or len(set(headings)) < len(headings):
            raise UsageError(f"{name}: the first line names the columns, each differently")
        for cells in reader:
            if not cells:
                continue
            where = f"{name}:{reader.line_num}"
            if len(cells) != len(headings):
                raise UsageError(f"{where}: {len(cells)} cells under {len(headings)} headings")
            yield where, dict(zip(headings, cells, strict=True))
    except csv.Error as error:
        raise UsageError(f"{name}:{reader.line_num}: {error}") from None


def _json_rows(lines: Iterable[str], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where}: no JSON: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{where}: a row is an object, not {type(row).__name__}")
        yield where, row
