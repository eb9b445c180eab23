"""Rows of CSV, TSV and JSON Lines that people write: tables of lookups, manifests, classes, lists of sources."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Any

# By default, a cell of over 131,072 characters, such as a long document, is an error.
csv.field_size_limit(2**31 - 1)

_QUOTES = 'a cell has a `"` that does not end, or text after it; write `"` in a cell twice'


class RowError(ValueError):
    """A row cannot be read.

    Args:
        message: why.
        line: its number, from 1.
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def read_csv(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not empty, with the number of its last line.

    Raises:
        RowError: a cell has a quote that does not end, or text after it. Python's reader takes the rest of the file for
            one cell, unless it is strict.
    """
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    before = 0
    try:
        for cells in rows:
            before = rows.line_num
            if cells:
                yield before, cells
    except GeneratorExit:  # when Python exits, the names below may no longer exist
        raise
    except csv.Error:
        raise RowError(_QUOTES, before + 1) from None


def read_json_lines(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row of each line that is not empty, with its number.

    Raises:
        RowError: a line is not JSON, not an object, has a name twice, or is nested too deeply.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_build_object)
        except json.JSONDecodeError as error:
            raise RowError(f"this is not JSON: {error}", number) from None
        except (ValueError, RecursionError) as error:
            raise RowError(str(error), number) from None
        if not isinstance(row, dict):
            raise RowError(f"a row must be an object, not {type(row).__name__}", number)
        yield number, row


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return row
