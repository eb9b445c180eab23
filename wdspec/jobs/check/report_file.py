"""The report file of `wdspec check`: the findings of each shard, from which an interrupted or later check resumes."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import asdict
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from wdspec.base.errors import UsageError, warn_user
from wdspec.jobs.check.facts import DataProblem, Hashes, SampleFacts, ShardFacts
from wdspec.jobs.check.look import ShardLook
from wdspec.read.left import LACKS
from wdspec.shards.lock import Lock
from wdspec.stores.store import ObjectStat

_PROBLEMS, _HIDDEN = TypeAdapter(list[DataProblem]), TypeAdapter(dict[str, int])
_APPLICATION = 0x77647363
_VERSION = 5
_TABLE = """CREATE TABLE shards (
    source TEXT, url TEXT, reading TEXT, in_full INTEGER, looks INTEGER, size INTEGER, validator TEXT, samples TEXT,
    problems TEXT, hidden TEXT, keys BLOB, contents BLOB, look_hashes BLOB, seconds REAL, PRIMARY KEY (source, url)
) WITHOUT ROWID"""


class ReportFile:
    """An SQLite database with a row for each checked shard, saved at once. A context manager.

    Args:
        path: of the file, which is created if it does not exist.
        must_exist: whether it is only read.

    Raises:
        UsageError: it is not a report, or cannot be opened.
    """

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        self._path = path
        if must_exist and not os.path.isfile(path):
            raise UsageError(f"the report `{path}` does not exist; `wdspec check --report {path}` creates it")
        try:
            self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
        except sqlite3.Error as error:
            raise UsageError(f"`{path}` cannot be opened: {error}") from None
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                (mark,) = self._database.execute("PRAGMA application_id").fetchone()
                (version,) = self._database.execute("PRAGMA user_version").fetchone()
                (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if mark != _APPLICATION and (tables or must_exist):
                    raise UsageError(f"`{path}` is not a report of `wdspec check`; give another name")
                is_other = mark == _APPLICATION and version != _VERSION
                if is_other and (must_exist or version > _VERSION):
                    raise UsageError(
                        f"`{path}` was written by another version of wdspec; delete it, or give another name"
                    )
                if is_other:
                    warn_user(f"`{path}` is of an older version of wdspec, so all shards are checked again")
                    self._database.execute("DROP TABLE shards")
                if is_other or not tables:
                    self._database.execute(_TABLE)
                    self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
                    self._database.execute(f"PRAGMA user_version = {_VERSION}")
        except sqlite3.Error as error:
            self._database.close()
            raise self._refusal(error) from None
        except UsageError:
            self._database.close()
            raise

    def __enter__(self) -> ReportFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def known(self, look: ShardLook, reading: str) -> tuple[int | None, str] | None:
        """The size and validator of a shard when it was checked in the same way; None if it was not."""
        found = self._row(
            "SELECT size, validator FROM shards WHERE source = ? AND url = ? AND reading = ? AND in_full >= ? AND "
            "looks >= ?",
            (look.source, _url_of(look), reading, look.in_full, look.looks),
        )
        return None if found is None or found[1] is None else (found[0], found[1])

    def facts(self, look: ShardLook) -> ShardFacts:
        """The findings of a shard."""
        row = self._row(
            "SELECT size, validator, samples, problems, hidden, keys, contents, look_hashes, seconds FROM shards "
            "WHERE source = ? AND url = ?",
            (look.source, _url_of(look)),
        )
        try:
            size, validator, samples, problems, hidden, keys, contents, looks, seconds = row
            facts = ShardFacts(None if samples is None else SampleFacts.model_validate(json.loads(samples)))
            facts.size, facts.validator = None if size is None else int(size), validator
            facts.seconds = float(seconds)
            facts.problems = _PROBLEMS.validate_python(json.loads(problems))
            facts.hidden = _HIDDEN.validate_python(json.loads(hidden))
            facts.keys, facts.contents, facts.looks = (_hashes(each) for each in (keys, contents, looks))
        except (TypeError, ValueError):
            raise self._refusal("it is damaged") from None
        return facts

    def _row(self, query: str, values: tuple[Any, ...]) -> Any:
        """The first row of the answer; None without one."""
        try:
            return self._database.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise self._refusal(error) from None

    def _refusal(self, reason: object) -> UsageError:
        return UsageError(
            f"`{self._path}` cannot be used as a report: {reason}; delete it, or give another name"
        )

    def keep(self, look: ShardLook, reading: str, facts: ShardFacts) -> None:
        """Save the findings of a shard, replacing earlier ones.

        A missing function or library is not a property of the shard: after such a problem the shard is read again. Nor
        are objects that samples name (`fetch`): the shard is read again if there may be something wrong with one.
        """
        is_of_shard = not any(problem.code == "D211" for problem in facts.problems)
        if look.parts.transform.objects is not None:
            causes = () if facts.samples is None else facts.samples.causes
            is_of_shard = not (facts.problems or any(cause.startswith(LACKS) for cause in causes))
        row = (
            look.source,
            _url_of(look),
            reading,
            facts.samples is not None,
            look.looks or len(facts.looks) > 0,
            facts.size,
            facts.validator if is_of_shard else None,
            None if facts.samples is None else json.dumps(facts.samples.model_dump()),
            json.dumps([asdict(problem) for problem in facts.problems]),
            json.dumps(facts.hidden),
            *(each.tobytes() for each in (facts.keys, facts.contents, facts.looks)),
            facts.seconds,
        )
        try:
            self._database.execute(f"INSERT OR REPLACE INTO shards VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.Error as error:
            raise UsageError(f"the report `{self._path}` cannot be written: {error}") from None


def _url_of(look: ShardLook) -> str | bytes:
    """The URL of a shard as SQLite stores it: as bytes if it is not valid Unicode."""
    text = look.shard.text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
    return text


def _hashes(data: bytes) -> Hashes:
    return np.frombuffer(data, np.uint64)


class LockedShards:
    """The shards of a lock, in place of a report: they existed, and nothing is known about their contents.

    Args:
        lock: of the checked spec, or of an earlier version of it; other shards and sources are checked.
    """

    def __init__(self, lock: Lock) -> None:
        self._objects: dict[tuple[str, str], ObjectStat] = {
            (name, shard.text): found
            for name, source in lock.sources.items()
            for shard, found in zip(source.shards(""), source.objects, strict=True)
        }

    def known(self, look: ShardLook, reading: str) -> tuple[int | None, str] | None:
        """The size and validator of a shard when it was locked; None if it has partners or tables, which may differ."""
        is_alone = not (look.is_other or look.shard.partners or look.shard.tables)
        found = self._objects.get((look.source, look.shard.text)) if is_alone else None
        return None if found is None or found.validator is None else (found.size, found.validator)

    def facts(self, look: ShardLook) -> ShardFacts:
        """No findings: the shard is unchanged."""
        return ShardFacts(is_unchanged=True)
