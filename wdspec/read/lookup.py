"""Adds the values of `lookup` to raw samples."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from wdspec.base.amounts import show_value
from wdspec.base.errors import FieldError, ShardError
from wdspec.fields.extensions import Naming
from wdspec.fields.measures import Measures
from wdspec.fields.samples import SampleFields
from wdspec.shards.lookup_tables import Table
from wdspec.spec.language.expressions import MISSING, parse_expression
from wdspec.spec.language.joins import UNJOINED, LookupOptions
from wdspec.storage.storage import Storage


class ValueOf:
    """Reads the value by which something is looked up for a raw sample.

    Args:
        on: `__key__`, or the path of the value.
        fields: of the source; they say how a file is decoded.
    """

    def __init__(self, on: str, fields: SampleFields) -> None:
        self._on = on
        self._measure: Measures | None = None
        if on != "__key__":
            paths = tuple(parse_expression(on, {}).paths)
            files = copy(fields)
            files.naming = Naming()
            self._measure = Measures(files, paths, paths, keeps_decoded=True)

    def __call__(self, raw: dict[str, Any]) -> str | None:
        """Return the value; None if the sample has none. Raises ShardError if it cannot be looked up."""
        if self._measure is None:
            return str(raw["__key__"])
        try:
            values = self._measure(raw)
        except FieldError as error:
            raise ShardError(error.message, code=error.code, field=error.place.get("field")) from error
        value = None if values is None else values[0]
        if value is None or value is MISSING:
            return None
        if type(value) is int or isinstance(value, str):
            return str(value).rstrip("\r\n")  # that ends many text files
        raise ShardError(
            f"`{self._on}` is {show_value(value)}, which cannot be looked up; keys are texts or integers",
            code="D225",
        )


class Lookup:
    """Adds the values of a row to raw samples.

    Args:
        options: the entry of `lookup`.
        table: its rows.
        fields: of the source; they say how a file is decoded.
        storage: where the table is.
    """

    def __init__(self, options: LookupOptions, table: Table, fields: SampleFields, storage: Storage) -> None:
        self._options, self._url = options, table.url
        rows = table.open(options, storage)
        self._find, self._names = rows.find, options.names
        self._columns = tuple(zip(options.names, rows.columns, strict=True))
        self._value = ValueOf(options.on, fields)

    def __call__(self, raw: dict[str, Any]) -> None:
        """Add the values, or mark the sample as dropped. Raises ShardError if the table lacks its key."""
        key = self.key_of(raw)
        row = -1 if key is None else self._find(key)
        if row >= 0:
            count = len(raw) + len(self._columns)
            for name, get in self._columns:
                raw[name] = get(row)
            if len(raw) != count:
                raise self._clash(list(raw)[: count - len(self._columns)])
        elif self._options.missing == "skip":
            raw[UNJOINED] = None
        elif self._options.missing == "none":
            for name in self._names:
                raw.setdefault(name, None)
        else:
            seen = f"has no row with the key {key!r:.100}"
            if key is None:
                seen = f"cannot be used, as the sample has no `{self._options.on}`"
            raise ShardError(
                f"the table of `lookup` {seen}; add it, or set `missing: skip` or `none` in `lookup`",
                code="D225",
                partner=self._url,
            )

    def has(self, key: str) -> bool:
        """Whether the table has a row with a key."""
        return self._find(key) >= 0

    def key_of(self, raw: dict[str, Any]) -> str | None:
        """Return the key that is looked up for a sample; None if it has none. Raises ShardError."""
        try:
            return self._value(raw)
        except ShardError as error:
            error.at(partner=self._url)
            raise

    def _clash(self, names: Sequence[str]) -> ShardError:
        name = next(name for name in self._names if name in names)
        return ShardError(
            f"both the sample and the table of `lookup` have the field `{name}`; rename the one of the table, such as "
            f"`rename: {{table_{name}: {name}}}` in `lookup`, or choose files by `extensions`",
            code="D224",
            partner=self._url,
        )
