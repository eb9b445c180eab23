"""Further parts of the samples of a source: shards that are merged by key (`join`), and tables (`lookup`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from wdspec.spec.language import values
from wdspec.spec.language.effects import AffectsOrder, AffectsPlan, Drops, Key
from wdspec.spec.language.expressions import ExpressionError, parse_expression
from wdspec.spec.problems import describe, quote

UNJOINED = "unjoined\0"
"""Marks a raw sample that is dropped because it has no partner. No file has such a name."""
Missing = Annotated[Literal["error", "skip", "none"], Key("order", Drops(("skip",)))]


def read_new_names(value: Any) -> Any:
    """Read `{new: old}`, without alternatives."""
    if isinstance(value, dict):
        for new, old in value.items():
            if isinstance(old, (list, tuple)) or (isinstance(old, str) and ";" in old):
                hint = "write one name; the `rename` of the source can choose among several"
                values.refuse("E215", f"{quote(str(new))} has alternatives, which a join does not take", hint)
    return value


NewNames = Annotated[dict[str, values.FieldPattern], BeforeValidator(read_new_names)]


def read_column(value: Any) -> Any:
    """Read the name of a column, which may have slashes."""
    text = values.read_text(value)
    values.read_field_pattern(text.replace("/", "") or text)
    return text


_Column = Annotated[str, BeforeValidator(read_column), WithJsonSchema(values.TEXT_FORM)]


def read_path(value: Any) -> Any:
    """Read `__key__`, or the path of a value: `json.id`."""
    text = values.read_text(value)
    if text != "__key__":
        hint = "write `__key__`, or the path of a value, such as `json.id`"
        try:
            found = parse_expression(text, {})
        except ExpressionError as error:
            values.refuse("E203", f"{quote(text)} is not a path: {error}", hint)
        if len(found.paths) != 1 or any(sign in text for sign in "()+*/ "):
            values.refuse("E203", f"{quote(text)} is not the path of one value", hint)
    return text


class JoinOptions(values.Model):
    """Additional shards with other files of the same samples."""

    short: ClassVar[str] = "shards"

    shards: AffectsPlan[values.PathsOrUrls] = Field(
        description="The shards: as many as the source has, in the same order. The n-th one is merged with the n-th "
        "shard of the source, by the keys of the samples. Keys must be in the same order in both, but either may "
        "lack some of them."
    )
    missing: Missing = Field(
        "error",
        description="What to do with a sample that these shards lack: `error`; `skip` drops and counts it; `none` "
        "sets `fields`, or else the fields in `rename`, to None.",
    )
    on: AffectsOrder[Annotated[values.Text, BeforeValidator(read_path)] | None] = Field(
        None,
        description="The value that names the sample of these shards, such as `audio_filepath`: keys may then have "
        "any order, and several samples may name one. By default, both have the same key.",
    )
    fields: AffectsOrder[values.FieldPatterns | None] = Field(
        None,
        description="Which files to use, such as `txt`. A sample without one of them counts as missing. By default, "
        "all files that the source needs.",
    )
    rename: AffectsOrder[NewNames] = Field(
        {}, description="New names for files, before the parts are merged: `{caption: txt}`."
    )
    # Not the samples: `auto` and the right word read the same, and a wrong one is an error.
    format: Annotated[Literal["auto", values.Format], Key("neither choice values")] = Field(
        "auto", description="Format of these shards, as for a source."
    )
    base: str = Field("", exclude=True)
    """Absolute directory where relative paths in `shards` start."""

    @property
    def asks_for(self) -> tuple[str, ...]:
        """The files that `on` reads."""
        return () if self.on in (None, "__key__") else parse_expression(str(self.on), {}).fields

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are surely in a joined sample, by their new names."""
        new_of = {old.lower(): new for new, old in self.rename.items()}
        if self.fields is not None:
            return tuple(new_of.get(old.lower(), old) for old in self.fields)
        return tuple(self.rename)

    def field_of(self, needed: Callable[[str], str | None]) -> Callable[[str], str | None]:
        """Return the `field_of` of these shards.

        Args:
            needed: that of the source, for names after `rename`.
        """
        new_of = {old.lower(): new for new, old in self.rename.items()}
        taken = None if self.fields is None else {old.lower() for old in self.fields}
        required = {*self.names} if self.fields is not None else ()

        def field_of(suffix: str) -> str | None:
            suffix = suffix.lower()
            if taken is not None and suffix not in taken:
                return None
            new = new_of.get(suffix, suffix)
            return needed(new) or (new if new in required else None)

        return field_of


def read_joins(value: Any) -> Any:
    """Read a list of maps, one map, or the shards alone."""
    entries = value if isinstance(value, (list, tuple)) else [value]
    if entries and all(isinstance(each, str) for each in entries):
        return [{"shards": entries}]
    for each in entries:
        if not isinstance(each, (dict, JoinOptions)):
            hint = "write `join: [{shards: captions-{000..999}.tar}]`"
            values.refuse("E202", f"expected a map with `shards`, but this is {describe(each)}", hint)
    return entries


Joins = Annotated[tuple[JoinOptions, ...], BeforeValidator(read_joins)]


TableFormat = Literal["auto", "parquet", "jsonl", "csv", "sqlite", "npz"]
TABLE_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".npz": "npz",
}
"""Suffix of a table → its format."""


def table_format(text: str) -> str | None:
    """Return the format of a table by its name; None if the name does not show it."""
    name = text.partition("?")[0].partition("#")[0].lower()
    for packed in (".gz", ".zst", ".bz2", ".xz"):
        name = name.removesuffix(packed)
    return next((kind for suffix, kind in TABLE_SUFFIXES.items() if name.endswith(suffix)), None)


class LookupOptions(values.Model):
    """A table with additional fields for the samples."""

    table: AffectsOrder[values.PathOrUrl] = Field(
        description="Path or URL of the table: Parquet, JSON lines, CSV, SQLite (`scores.db#name` names the table "
        "in it) or npz. It is read once per node, and all workers share a copy."
    )
    on: AffectsOrder[Annotated[values.Text, BeforeValidator(read_path)]] = Field(
        "__key__",
        description="The value to look up: `__key__`, the key of a sample, or the path of a value in a file, such "
        "as `json.id`.",
    )
    key: AffectsOrder[values.Text | None] = Field(
        None,
        description="The column with the keys. By default the one named like `on` (or its last part), or else `key`.",
    )
    fields: AffectsOrder[
        Annotated[
            tuple[_Column, ...],
            Field(min_length=1),
            BeforeValidator(values.read_words),
            values.one_or_more(values.TEXT_FORM),
        ]
    ] = Field(description="The columns to add to the samples.")
    rename: AffectsOrder[Annotated[dict[str, _Column], BeforeValidator(read_new_names)]] = Field(
        {}, description="New names of columns: `{score: aesthetic_score}`."
    )
    missing: Missing = Field(
        "error",
        description="What to do with a sample whose key is not in the table: `error`; `skip` drops and counts it; "
        "`none` sets the fields to None.",
    )
    format: Annotated[TableFormat, Key("neither choice values")] = Field(
        "auto", description="Format of the table; by default from its name."
    )
    base: str = Field("", exclude=True)
    """Absolute directory where a relative path starts."""

    @property
    def asks_for(self) -> tuple[str, ...]:
        """The files that `on` reads."""
        return () if self.on == "__key__" else parse_expression(self.on, {}).fields

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that it adds, by their new names."""
        new_of = {old: new for new, old in self.rename.items()}
        return tuple(new_of.get(name, name) for name in self.fields)


def read_lookups(value: Any) -> Any:
    """Read a list of maps, or one map."""
    entries = value if isinstance(value, (list, tuple)) else [value]
    for each in entries:
        if not isinstance(each, (dict, LookupOptions)):
            hint = "write `lookup: {table: scores.parquet, fields: [score]}`"
            if isinstance(each, str):
                hint = f"write `lookup: {{table: {each}, fields: [score]}}`"
            values.refuse("E202", f"expected a map with `table`, but this is {describe(each)}", hint)
    return entries


Lookups = Annotated[tuple[LookupOptions, ...], BeforeValidator(read_lookups)]
