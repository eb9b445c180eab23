"""A cache of samples in an SQLite file: the first pass fills it, later passes read it.

Each process (rank and worker) fills its own part, which is read only when it is complete. A run with another number of
processes shares the parts of an earlier run, if all of them are complete.
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
from wdspec.fields.encode import freeze, thaw
from wdspec.planning.order import Permutation
from wdspec.planning.topology import find_seat
from wdspec.webdataset.splitting import worker_place
from wdspec.webdataset.stage import PassContext, Stage

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
"""Samples written in one transaction, so that other processes wait only briefly."""


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_PATIENCE = 60.0
"""Seconds to wait for other processes that hold a lock on the file."""


class DBCache(Stage):
    """Caches samples in an SQLite database: ``dataset.compose(wds.DBCache, "cache.db", 1000)``.

    The first pass reads the source and fills the cache, up to its size; a pass that ends early fills nothing. Later
    passes read only the cache, also in later runs. The file remains until you delete it: do so when the data or an
    earlier stage changes.

    It stores bytes, text, numbers, JSON, arrays and tensors, in dicts or tuples, without pickle. The database is in
    WAL mode, which works on local disks only.

    Args:
        dbname: path of the file; None switches the cache off.
        size: samples to store, in all processes together. This is also the length of a pass.
        shuffle: whether to shuffle cached samples in each pass.
        seed: for shuffling.

    Raises:
        FieldError: while filling, a value cannot be stored.
        UsageError: while iterating, the file is not a sample cache.
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
            raise UsageError(f"the name of a file cannot contain a NUL character: {os.fspath(dbname)!r}")
        self.path = None if dbname is None else os.path.abspath(dbname)
        self.size, self.shuffle, self.seed = size, shuffle, seed
        self._stored_size = min(size, 2**62)

    def run(self, source: Iterator[Any], context: PassContext) -> Iterator[Any]:
        """Yield the samples of one pass of this process."""
        if self.path is None:
            yield from source
            return
        seat, (worker, workers) = find_seat(), worker_place()
        part, parts = seat.rank * workers + worker, seat.world_size * workers
        with closing(self._connect(self.path)) as database:
            found = self._find_complete(database, part, parts)
            if found is None:
                yield from self._fill(database, source, part, parts)
            elif self.shuffle:
                order = Permutation(context.key("DBCache", self.seed), len(found)) if found else ()
                for i in range(len(found)):
                    yield _sample(database, found[order[i]])
            else:
                for place in found:
                    yield _sample(database, place)

    def _connect(self, path: str) -> sqlite3.Connection:
        deadline = time.monotonic() + _PATIENCE
        while True:
            database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            try:
                database.execute("PRAGMA synchronous = NORMAL")
                database.execute("PRAGMA foreign_keys = ON")
                if _mark(database) != _APPLICATION:
                    self._create(database, path)
                database.execute("PRAGMA journal_mode = WAL")
                return database
            except sqlite3.DatabaseError as error:
                database.close()
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BUSY:
                    raise UsageError(
                        f"`{path}` cannot be used as a sample cache: {error}; delete it, or use another name"
                    ) from error
                # SQLite does not wait itself where two processes might wait for each other.
                if time.monotonic() > deadline:
                    raise UsageError(
                        f"other processes have locked the sample cache `{path}` for {_PATIENCE:g} s ({error}); check "
                        "whether one of them hangs, or use another name"
                    ) from error
                time.sleep(0.02)
            except BaseException:
                database.close()
                raise

    def _create(self, database: sqlite3.Connection, path: str) -> None:
        """Mark an empty database and create its tables, in one transaction."""
        with database:  # commits, or rolls back
            database.execute("BEGIN IMMEDIATE")
            if _mark(database) == _APPLICATION:
                return
            if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise UsageError(
                    f"`{path}` is not a sample cache but a database of another program; use another name"
                )
            for table in _TABLES:
                database.execute(table)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")

    def _find_complete(
        self, database: sqlite3.Connection, part: int, parts: int
    ) -> list[tuple[int, int]] | None:
        """Return (id, position) of the samples of this process; None if the cache is not complete."""
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

    def _fill(
        self, database: sqlite3.Connection, source: Iterator[Any], part: int, parts: int
    ) -> Iterator[Any]:
        """Yield the samples and store them, under a number that becomes valid with the last of them."""
        limit = self.size // parts + (part < self.size % parts)
        number = self._start_part(database, part, parts)
        rows: list[tuple[int | None, int, bytes]] = []
        count, kept, done = 0, number is not None, False
        try:
            for sample in islice(source, limit):
                if kept:
                    rows.append((number, count, freeze(sample)))
                    if len(rows) == _AT_ONCE:
                        kept = self._write(database, rows)
                        rows = []
                count += 1
                yield sample
            done = kept and self._write(database, rows, number, count)
        finally:
            if not done:
                with contextlib.suppress(sqlite3.Error):  # if this fails too, the next run does it
                    database.execute("DELETE FROM parts WHERE id = ?", (number,))

    def _start_part(self, database: sqlite3.Connection, part: int, parts: int) -> int | None:
        """Return the number of a new part; None, with a warning, if it cannot be created."""
        place = (self._stored_size, parts, part)
        try:
            # Left by a killed run, or by one that is about to fail.
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
        """Write samples, and mark the part with this number as complete. On failure, warn and return False."""
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
        warn_user(f"`{self.path}` cannot store more samples, so this pass is not cached: {error}")

    def __repr__(self) -> str:
        return f"DBCache({self.path!r}, {self.size})"


def _sample(database: sqlite3.Connection, place: tuple[int, int]) -> Any:
    return thaw(
        database.execute("SELECT data FROM samples WHERE id = ? AND position = ?", place).fetchone()[0]
    )


def _mark(database: sqlite3.Connection) -> int:
    """Return the number of the application that owns the database; 0 if there is none."""
    return int(database.execute("PRAGMA application_id").fetchone()[0])
