"""Many sources in a few lines: `dataset: "@sources.csv"`, a table with a source in each line, and `each: folder`.

Both become the maps that a user would have written by hand, so the rest of the language knows nothing of them.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from wdspec.base.errors import UrlError, did_you_mean
from wdspec.base.text_rows import RowError, read_csv
from wdspec.spec.files import Library, hint_for_missing, reason_of
from wdspec.spec.problems import Problems, describe, list_names
from wdspec.spec.spec import Source
from wdspec.spec.tree import ListNode, MapEntry, MapNode, Node, Origin, Scalar, plain
from wdspec.spec.validation import keys_of
from wdspec.spec.yaml import MAX_BYTES, decode_text, parse_scalar
from wdspec.urls.braces import Braces
from wdspec.urls.globs import match_glob
from wdspec.urls.urls import MAGIC, scheme_of

_COLUMNS = tuple(key for key in (*keys_of(Source), "spec") if key not in ("dataset", "each", "mix"))
_ESCAPED, _ESCAPE = re.compile(r"([\\{},])"), r"\\\1"
"""What is literal in the name of a folder, and not in a pattern."""
_IS_TEXT = frozenset({"name", "shards", "license", "homepage", "citation", "spec"})
"""Columns whose cells are text, also if they look like numbers."""


def read_source_list(node: Scalar, library: Library, most: int, problems: Problems) -> ListNode | None:
    """Read a list of sources: a CSV file, or TSV if its name ends in `.tsv`, whose first line names keys of sources.

    An empty cell leaves the key out. Paths are relative to the list.

    Args:
        node: the text `@file`.
        library: reads the file.
        most: how many sources a spec may have.

    Returns:
        A map for each line, at its position in the file; None, and a problem, if there are none.
    """
    found = library.find(node.scalar(node.value[1:], directory=node.directory), "dataset")
    if found is None:
        return None
    path, named = found
    try:
        data = library.parse_data(path, MAX_BYTES, bytes)
    except (OSError, ValueError) as error:
        problems.add("E001", node, f"cannot read {named}: {reason_of(error)}", hint_for_missing(named))
        return None
    text = decode_text(data, named, problems, kind="list of sources")
    if text is None:
        return None
    table = _Table(Origin(named, os.path.dirname(path), text), text, problems).read(node, most)
    library.tables += [] if table is None else [table]
    return table


class _Table:
    """The lines of a list of sources."""

    def __init__(self, origin: Origin, text: str, problems: Problems) -> None:
        self._origin, self._problems = origin, problems
        self._lines = re.split("\r\n|\n|\r", text)
        self._separator = "\t" if origin.name.lower().endswith(".tsv") else ","

    def read(self, node: Scalar, most: int) -> ListNode | None:
        """Return the map of each line; None, and a problem, if there are none. `node` names the list."""
        rows = self._rows()
        header = next(rows, None)
        columns = None if header is None else self._columns(header[0], header[1])
        if columns is None:
            if header is None:
                message = "this list of sources is empty"
                self._problems.add(
                    "E214", Scalar(self._origin, 1, 1, None), message, "begin it with `name,shards`"
                )
            return None
        items: list[Node] = []
        for number, cells in rows:
            if len(items) >= most:
                message = f"a spec has at most {most:,} sources, and this list has more"
                self._problems.add(
                    "E009", Scalar(self._origin, number, 1, None), message, "use fewer sources"
                )
                return None
            if (item := self._source(columns, number, cells)) is not None:
                items.append(item)
        if not items and not len(self._problems):
            message = "this list of sources has only its first line"
            self._problems.add(
                "E214", Scalar(self._origin, 1, 1, None), message, "add a line for each source"
            )
        return ListNode(node.origin, node.line, node.column, tuple(items)) if items else None

    def _rows(self) -> Iterator[tuple[int, list[Scalar]]]:
        """Yield the number of each line that is not empty, and its cells."""
        for number, line in enumerate(self._lines, 1):
            if not line.strip():
                continue
            try:
                [(_, texts)] = read_csv([line], self._separator)
            except RowError:
                message = 'a cell of this line has a `"` that does not end, or text after it'
                hint = 'write each source in one line, without line breaks in cells, and `"` in a cell twice'
                self._problems.add("E404", Scalar(self._origin, number, 1, None), message, hint)
                continue
            yield number, self._place(number, line, texts)

    def _place(self, number: int, line: str, texts: Iterable[str]) -> list[Scalar]:
        column, cells = 1, []
        is_plain = '"' not in line  # otherwise, the line is the place
        for text in texts:
            at = column + len(text) - len(text.lstrip()) if is_plain else 1
            stripped = text.strip()
            cells.append(
                Scalar(self._origin, number, at, stripped, 0 if is_plain else None, max(1, len(stripped)))
            )
            column += len(text) + 1
        return cells

    def _columns(self, number: int, cells: Sequence[Scalar]) -> list[Scalar] | None:
        """Check the names of the columns; None, and problems, if some are wrong."""
        names = [cell.value for cell in cells]
        if not {*names} & {*_COLUMNS}:
            message = "the first line of a list of sources names keys of sources, and this one has none"
            at = Scalar(self._origin, number, 1, None)
            self._problems.hide(at)  # it may be any file, and its lines secret
            self._problems.add("E201", at, message, "begin it with `name,shards`, for example")
            return None
        wrong = [cell for cell in cells if cell.value not in _COLUMNS or names.count(cell.value) > 1]
        for cell in wrong:
            if cell.value in _COLUMNS:
                message, hint = f"two columns are called `{cell.value}`", "remove one of them"
            else:
                message = f"unknown column `{cell.value[:60]}` in a list of sources"
                hint = did_you_mean(cell.value, _COLUMNS) or (
                    "remove it: columns are keys of sources, such as `name`, `shards`, `weight`, `samples`, `license`"
                )
            self._problems.add("E201", cell, message, hint)
        if not wrong and not {"shards", "spec"} & {*names}:
            message = "this list of sources has no column `shards`"
            self._problems.add("E206", Scalar(self._origin, number, 1, None), message, "add it")
            return None
        return None if wrong else list(cells)

    def _source(self, columns: Sequence[Scalar], number: int, cells: Sequence[Scalar]) -> MapNode | None:
        """Return the map of a line; None, and a problem, if it has other cells than the first line."""
        at = Scalar(self._origin, number, 1, None)
        if len(cells) != len(columns):
            message = f"this line has {len(cells):,} cells, but the first one names {len(columns):,} columns"
            hint = "put text with a comma in double quotes"
            self._problems.add("E404", at, message, hint)
            return None
        entries = {}
        for column, cell in zip(columns, cells, strict=True):
            if cell.value:
                if column.value not in _IS_TEXT:
                    value = parse_scalar(cell.value)
                    cell = Scalar(
                        self._origin, cell.line, cell.column, value, cell.offset, cell.width, text=cell.value
                    )
                entries[column.value] = MapEntry(cell.scalar(column.value, width=cell.width), cell)
            elif column.value in ("name", "shards"):
                self._problems.add("E206", cell, f"`{column.value}` is missing in this line", "fill it in")
                return None
        return MapNode(self._origin, number, 1, entries)


def sources_of_folders(entry: MapNode, problems: Problems) -> list[Node]:
    """Make a source of each folder that the `shards` of an entry with `each: folder` match, named after the folder.

    If the entry has a name, it is put before those of the folders: `web/en`. If no folder matches, as where the data
    are on another machine, the entry stays one source, with a warning that is an error for a run.
    """
    each, shards = entry.entries["each"].value, entry.get("shards")
    alone: list[Node] = [entry.without("each")]
    if plain(each) != "folder":
        if not (isinstance(each, Scalar) and each.value is None):
            problems.add(
                "E203", each, f"{describe(plain(each))} is not a choice for `each`", "write `each: folder`"
            )
        return alone
    if not isinstance(shards, Scalar) or not isinstance(shards.value, str):
        if shards is not None:
            hint = "write one entry for each pattern"
            problems.add("E202", shards, "`each: folder` takes one pattern in `shards`", hint)
        return alone
    text = shards.value
    if scheme_of(text) or "::" in text or text.startswith("@"):
        message = "`each: folder` looks up local folders, and this is no local pattern"
        hint = 'list the folders in a file: `dataset: "@sources.csv"` with the columns `name` and `shards`'
        problems.add("E102", shards, message, hint)
        return alone
    try:
        found = _match_folders(text, shards.base)
    except (UrlError, OSError):
        return alone  # what is wrong with the pattern is said where it is checked
    if found is None:
        message = "no folder in this pattern has a `*`, `?`, `[…]` or `{…}`, so it is one source"
        problems.add("E213", shards, message, "write a pattern of folders and shards, such as `data/*/*.tar`")
        return alone
    last = text.rpartition("/")[2]
    full = {
        name: place for name, place in found.items() if _has_shards(os.path.join(shards.base, place), last)
    }
    if not full:
        message = "no folder with shards matches here, so the spec is checked with one source in their place"
        problems.add("W450", shards, message, "correct the pattern, or check the spec where the data are")
        return alone
    above = {name[:place] for name in full for place, letter in enumerate(name) if letter == "/"}
    if empty := [name for name in found if name not in full and name not in above]:
        message = f"{'this folder has' if len(empty) == 1 else 'these folders have'} no shards: {list_names(empty, 5)}"
        problems.add(
            "W451", shards, message, "write shards to them, remove them, or exclude them by the pattern"
        )
    stated = entry.get("name")
    before = f"{stated.value}/" if isinstance(stated, Scalar) and isinstance(stated.value, str) else ""
    made: list[Node] = []
    for name, place in full.items():
        pattern = f"{_ESCAPED.sub(_ESCAPE, glob.escape(place))}/{last}"
        source = entry.without("each").setting("shards", shards.scalar(pattern, directory=shards.directory))
        made.append(source.setting("name", (stated or shards).scalar(before + name)))
    return made


def _match_folders(text: str, base: str) -> dict[str, str] | None:
    """Find the folders that a pattern of shards matches, by name, which is the part of the path that varies.

    Returns:
        Their paths, relative to `base` as the pattern is; None if no part of the path varies.
    """
    steps = text.split("/")[:-1]
    first = next((number for number, step in enumerate(steps) if MAGIC.search(step) or "{" in step), None)
    if first is None:
        return None
    found: dict[str, str] = {}
    for path in Braces("/".join(steps)):
        above = "".join(f"{step}/" for step in path.split("/")[:first])
        root, varying = os.path.join(base, os.path.expanduser(above)), "/".join(path.split("/")[first:])
        is_deep = varying.endswith("**")
        for folder in match_glob(_Tree(root, _is_own_folder if is_deep else os.path.isdir), varying):
            found[folder] = above + folder
        if is_deep and _has_shards(root, text.rpartition("/")[2]):  # `**` may be no folder at all
            found[os.path.basename(root.rstrip("/"))] = above.rstrip("/") or "."
    return dict(sorted(found.items()))


def _is_own_folder(path: str) -> bool:
    """Whether a path is a folder and no link: `**` does not follow links."""
    return os.path.isdir(path) and not os.path.islink(path)


def _has_shards(folder: str, last: str) -> bool:
    """Whether a folder has a file that the last part of a pattern matches, or braces without a `*` say which it has."""
    if not last:
        return any(not name.startswith(".") for name in os.listdir(folder))
    return any(
        not MAGIC.search(name) or match_glob(_Tree(f"{folder}/", os.path.isfile), name)
        for name in Braces(last)
    )


class _Tree:
    """The folders below a directory, or their files, for `match_glob`."""

    def __init__(self, root: str, is_wanted: Callable[[str], bool]) -> None:
        self._root, self._is_wanted = root, is_wanted

    def has(self, path: str) -> bool:
        return os.path.lexists(self._root + path)

    def is_file(self, path: str) -> bool:
        return self._is_wanted(self._root + path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(self._root + path)

    def names(self, directory: str) -> list[str]:
        place = self._root + directory
        return os.listdir(place) if os.path.isdir(place) else []

    def folders(self, directory: str) -> list[str]:
        return [name for name in self.names(directory) if _is_own_folder(f"{self._root}{directory}{name}")]
