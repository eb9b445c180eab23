"""A cache of samples in an SQLite file: the first pass fills it, later ones read it.

Every process (rank and worker) fills a part of its own, which is complete or absent: until all of its samples are in,
nobody reads it. A run with other processes reads the parts of an earlier one in common, if they are all there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from wdspec.base.errors import UsageError, warn_user
from wdspec.fields.encode import frozen, thawed
from wdspec.fluent.stage import PassContext, Stage
from wdspec.fluent.stages.splitting import worker_place
from wdspec.planning.shard_order import Permutation
from wdspec.planning.topology import find_seat

_APPLICATION = 0x77647331
_TABLES = (
    """CREATE TABLE parts (
        id INTEGER PRIMARY KEY AUTOINCREMENT, part INTEGER, parts INTEGER, size INTEGER, count INTEGER
    )""",
    """CREATE TABLE samples (
        id INTEGER REFERENCES parts ON DELETE CASCADE, position INTEGER, data BLOB, PRIMARY KEY (id, position)
    ) WITHOUT ROWID""",
)
_AT_ONCE = 64
"""Samples written in one transaction: others wait no longer than it takes."""


_PATIENCE = 60.0
"""Seconds that others may hold the file locked."""


class _BusyError(Exception):
    """Others hold the file locked just now."""


class DBCache(Stage):
    """Caches samples in an SQLite database: ``dataset.compose(wds.DBCache, "cache.db", 1000)``.

    The first pass reads the source and fills the cache, up to its size; a pass that is left early fills nothing.
    Later passes read the cache, also in later runs, and leave the source alone. The file stays until you delete it:
    do so when the data or a stage before this one changes.

    Stored are bytes, text, numbers, JSON, arrays and tensors, in dicts or tuples, without pickle. The database is in
    WAL mode, which works on local disks only.

    Args:
        dbname: path of the file; None passes everything through.
        size: samples to hold, over all processes together. It is also the length of a pass.
        shuffle: whether cached samples come in another order in each pass.
        seed: changes these orders.

    Raises:
        FieldError: while filling, a value that cannot be stored.
        UsageError: while iterating, a file that is no such cache.
    """

    def __init__(
        self,
        dbname: str | os.PathLike[str] | None,
        size: int = sys.maxsize,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        if size < 1:
            raise UsageError(f"a sample cache holds at least one sample, not {size}")
        if dbname is not None and "\0" in os.fspath(dbname):
            raise UsageError(f"no file has a name with a NUL character: {os.fspath(dbname)!r}")
        self.path = None if dbname is None else os.path.abspath(dbname)
        self.size, self.shuffle, self.seed = size, shuffle, seed

    def run(self, source: Iterator[Any], context: PassContext) -> Iterator[Any]:
        """The samples of one pass of this process."""
        if self.path is None:
            yield from source
            return
        seat, (worker, workers) = find_seat(), worker_place()
        part, parts = seat.rank * workers + worker, seat.world_size * workers
        with closing(self._connected(self.path)) as database:
            found = self._complete(database, part, parts)
            if found is None:
                yield from self._fill(database, source, part, parts)
            elif self.shuffle:
                order = Permutation(context.key("DBCache", self.seed), len(found)) if found else ()
                for i in range(len(found)):
                    yield _sample(database, found[order[i]])
            else:
                for place in found:
                    yield _sample(database, place)

    def _connected(self, path: str) -> sqlite3.Connection:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._opened(path)
            except _BusyError as error:
                # SQLite itself does not wait where it fears that two wait for each other.
                if time.monotonic() > deadline:
                    raise UsageError(
                        f"others have held the sample cache `{path}` locked for {_PATIENCE:g} s ({error}); see whether "
                        "one of them hangs, or give another name"
                    ) from error
                time.sleep(0.02)

    def _opened(self, path: str) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA foreign_keys = ON")
            if _mark(database) != _APPLICATION:
                self._make(database, path)
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.DatabaseError as error:
            database.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise _BusyError(str(error)) from error
            raise _unusable(path, error) from error
        except BaseException:
            database.close()
            raise
        return database

    def _make(self, database: sqlite3.Connection, path: str) -> None:
        """Marks an empty database and makes its tables, both at once for whoever looks at it meanwhile."""
        with database:  # commits, or rolls back
            database.execute("BEGIN IMMEDIATE")
            if _mark(database) == _APPLICATION:
                return
            if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise UsageError(
                    f"`{path}` is a database of another program, no sample cache; give another name"
                )
            for table in _TABLES:
                database.execute(table)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")

    def _complete(self, database: sqlite3.Connection, part: int, parts: int) -> list[tuple[int, int]] | None:
        """(id, position) of the samples of this process; None if they are not all there."""
        query = "SELECT id, count FROM parts WHERE count >= 0 AND size = ? AND parts = ? AND part = ?"
        own = database.execute(query, (self._stored_size, parts, part)).fetchone()
        if own:
            return [(own[0], position) for position in range(own[1])]
        query = "SELECT parts FROM parts WHERE count >= 0 AND size = ? GROUP BY parts HAVING count(*) = parts"
        complete = database.execute(query, (self._stored_size,)).fetchone()
        if not complete:
            return None
        query = "SELECT id, count FROM parts WHERE count >= 0 AND size = ? AND parts = ? ORDER BY part"
        rows = database.execute(query, (self._stored_size, complete[0])).fetchall()
        return [(id_, position) for id_, count in rows for position in range(count)][part::parts]

    @property
    def _stored_size(self) -> int:
        return min(self.size, 2**62)

    def _fill(
        self, database: sqlite3.Connection, source: Iterator[Any], part: int, parts: int
    ) -> Iterator[Any]:
        """Passes the samples on, and keeps them: under a number that only the last of them makes valid."""
        limit = self.size // parts + (part < self.size % parts)
        number = self._begin(database, part, parts)
        rows: list[tuple[int | None, int, bytes]] = []
        count, kept, done = 0, number is not None, False
        try:
            for sample in islice(source, limit):
                if kept:
                    rows.append((number, count, frozen(sample)))
                    if len(rows) == _AT_ONCE:
                        kept = self._write(database, rows)
                        rows = []
                count += 1
                yield sample
            done = kept and self._write(database, rows, number, count)
        finally:
            if not done:
                with contextlib.suppress(sqlite3.Error):  # no room for that either; the next filling does it
                    database.execute("DELETE FROM parts WHERE id = ?", (number,))

    def _begin(self, database: sqlite3.Connection, part: int, parts: int) -> int | None:
        """The number of a new part; None, and a warning, if none can be begun."""
        place = (self._stored_size, parts, part)
        try:
            # What a killed run left, or what another one is about to lose.
            database.execute(
                "DELETE FROM parts WHERE count < 0 AND size = ? AND parts = ? AND part = ?", place
            )
            insert = "INSERT INTO parts (size, parts, part, count) VALUES (?, ?, ?, -1)"
            return database.execute(insert, place).lastrowid
        except sqlite3.Error as error:
            self._warn(error)
            return None

    def _write(
        self,
        database: sqlite3.Connection,
        rows: list[tuple[int | None, int, bytes]],
        number: int | None = None,
        count: int = 0,
    ) -> bool:
        """Writes samples, and with a number declares its part complete; False, and a warning, if that failed."""
        try:
            with database:  # commits, or rolls back
                database.execute("BEGIN IMMEDIATE")
                database.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
                if number is not None:
                    database.execute("UPDATE parts SET count = ? WHERE id = ?", (count, number))
        except sqlite3.Error as error:
            self._warn(error)
            return False
        return True

    def _warn(self, error: sqlite3.Error) -> None:
        warn_user(f"`{self.path}` takes no more samples, this pass is not cached: {error}")

    def __repr__(self) -> str:
        return f"DBCache({self.path!r}, {self.size})"


def _sample(database: sqlite3.Connection, place: tuple[int, int]) -> Any:
    return thawed(
        database.execute("SELECT data FROM samples WHERE id = ? AND position = ?", place).fetchone()[0]
    )


def _mark(database: sqlite3.Connection) -> int:
    """The number that says whose database it is; 0 where nobody has said so."""
    return int(database.execute("PRAGMA application_id").fetchone()[0])


def _unusable(path: str, error: Exception) -> UsageError:
    return UsageError(f"`{path}` cannot be used as a sample cache: {error}; delete it, or give another name")
