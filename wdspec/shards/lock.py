"""Lock files: the shards of a spec with their sizes and ETags, and whether they have changed since.

`wdspec lock` (`wdspec.jobs.lock`) writes them, and `loader(…, lock=…)` reads them. `wdspec stats` also compares shards
with the functions of this file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from typing import Any, TypeVar

from wdspec.base.amounts import sum_known
from wdspec.base.errors import ShardError, UrlError, UsageError
from wdspec.base.files import open_regular
from wdspec.base.redaction import redacted_urls
from wdspec.spec.load import split_names
from wdspec.spec.measurements import MeasuredShard, Measurements
from wdspec.spec.spec import Source, Spec
from wdspec.storage.ahead import side_by_side
from wdspec.storage.known_objects import SIZE, KnownObjects
from wdspec.storage.storage import Storage
from wdspec.stores.local import TIME
from wdspec.stores.store import ObjectStat
from wdspec.urls.braces import Braces
from wdspec.urls.urls import JoinedUrls, ShardRun, ShardUrl, UrlSequence

T = TypeVar("T")

FORMAT = 1
SUFFIX = ".lock.json"
_BLOCK = 1 << 20
_PAIR = re.compile(r'\[\s+(\d+|null),\s+("(?:[^"\\]|\\.)*"|null)\s+\]')
"""Size and validator of a shard, as `json` formats them."""


@dataclass(frozen=True)
class LockedSource:
    """A source at the time of locking."""

    asked: tuple[str, ...]
    """`shards` as spelled in the spec."""
    via: str
    """Location of the first shard, without secrets. Validators can only be compared for the same location."""
    runs: tuple[ShardRun, ...]
    """The shards, without a base directory."""
    objects: tuple[ObjectStat, ...]
    """Size and validator of each shard, in order."""
    samples: int | None = None
    license: str | None = None
    homepage: str | None = None
    revision: str | None = None
    joins: tuple[LockedSource, ...] = ()
    """The shards of each `join`."""
    tables: tuple[LockedSource, ...] = ()
    """The table of each `lookup`."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Start of locations -> the same at the commit at that time (`Storage.pins`), in stores with commits."""
    hashes: tuple[str | None, ...] = ()
    """The SHA-256 of the bytes of each shard, None for those that were not read; empty if none was."""

    @property
    def known_hashes(self) -> tuple[str | None, ...]:
        """The SHA-256 of each shard; None if it is not known."""
        return self.hashes or (None,) * len(self.objects)

    @property
    def lists(self) -> tuple[LockedSource, ...]:
        """Itself, its joins and its tables."""
        return (self, *self.joins, *self.tables)

    @property
    def pins(self) -> dict[str, str]:
        """The commits of all of its lists; see `Storage.pins`."""
        return {start: pin for part in self.lists for start, pin in part.commits.items()}

    @property
    def size(self) -> int | None:
        """Bytes of all shards; None if a store did not report a size."""
        return sum_known(each.size for each in self.objects)

    def shards(self, base: str) -> UrlSequence:
        """Return the shards, with relative paths starting at `base`."""
        return UrlSequence(run._replace(base=base) for run in self.runs)

    def shards_of(self, source: Source) -> UrlSequence:
        """Return the shards with those of the joins, for a source of a spec."""
        shards = self.shards(source.base)
        if not self.joins:
            return shards
        joins = [part.shards(join.base) for part, join in zip(self.joins, source.join, strict=True)]
        return JoinedUrls(shards.parts, joins)

    def as_json(self) -> dict[str, Any]:
        about = {key: getattr(self, key) for key in ("samples", "license", "homepage", "revision")}
        return {
            "asked": list(self.asked),
            "via": self.via,
            **{key: value for key, value in about.items() if value is not None},
            "size": self.size,
            **({"commits": dict(self.commits)} if self.commits else {}),
            "shards": [_run_as_json(run) for run in self.runs],
            "objects": [[each.size, each.validator] for each in self.objects],
            **({"sha256": list(self.hashes)} if any(self.hashes) else {}),
            **({"joins": [part.as_json() for part in self.joins]} if self.joins else {}),
            **({"tables": [part.as_json() for part in self.tables]} if self.tables else {}),
        }

    @classmethod
    def of_json(cls, entry: Mapping[str, Any]) -> LockedSource:
        """Return the source of an entry. Raises ValueError, KeyError, TypeError or AttributeError if it is damaged."""
        about: dict[str, Any] = {
            key: _optional(str, entry.get(key)) for key in ("license", "homepage", "revision")
        }
        runs = tuple(map(_run_of_json, entry["shards"]))
        objects = tuple(
            ObjectStat(_optional(int, size), _optional(str, validator))
            for size, validator in entry["objects"]
        )
        if len(objects) != sum(len(run.texts) for run in runs):
            raise ValueError("shards and objects differ in number")
        hashes = tuple(_optional(str, each) for each in entry.get("sha256", ()))
        if hashes and len(hashes) != len(objects):
            raise ValueError("shards and checksums differ in number")
        samples, via = _optional(int, entry.get("samples")), _of_type(str, entry["via"])
        joins, tables = (tuple(map(cls.of_json, entry.get(key, ()))) for key in ("joins", "tables"))
        texts = _texts(entry["asked"])
        commits = {key: _of_type(str, each) for key, each in entry.get("commits", {}).items()}
        return cls(
            texts,
            via,
            runs,
            objects,
            samples,
            joins=joins,
            tables=tables,
            commits=commits,
            hashes=hashes,
            **about,
        )


@dataclass(frozen=True)
class LockedObjects:
    """The file next to a lock that says which versions of objects samples name (`fetch`)."""

    count: int
    """The number of objects."""
    unknown: int
    """Those of which nothing is known by which another version would be noticed."""
    digest: str
    """Of the file."""

    @classmethod
    def of_file(cls, path: str, unknown: int = 0) -> LockedObjects:
        """Describe a file. Raises OSError if it cannot be read."""
        digest = hashlib.blake2b(digest_size=16)
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
            return cls(file.tell() // SIZE, unknown, digest.hexdigest())

    def check(self, path: str) -> None:
        """Raise a UsageError unless a file is the one that was written."""
        remedy = "write it again with `wdspec lock --objects --update SPEC`"
        try:
            found = LockedObjects.of_file(path, self.unknown)
        except OSError as error:
            raise UsageError(
                f"the objects of the lock cannot be read: {error.strerror}; copy them, too, or {remedy}",
                file=path,
            ) from None
        if found != self:
            raise UsageError(f"the objects are not those of the lock next to them; {remedy}", file=path)


@dataclass(frozen=True)
class Lock:
    """The sources of a spec at the time of locking, by name."""

    sources: Mapping[str, LockedSource]
    split: str | None = None
    environment: str | None = None
    objects: LockedObjects | None = None
    """The objects that samples name; None if stores were not asked about them."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Lock:
        """Read a lock file.

        Raises:
            UsageError: not a path, not a lock file, of another wdspec, or edited by hand.
            OSError: the file cannot be read.
        """
        if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
            raise UsageError(f"`lock` is the path of a file that `wdspec lock` wrote, not {path!r}")
        with open_regular(path) as file:
            return cls.of_text(file.read(), os.fspath(path))

    @classmethod
    def of_text(cls, text: bytes, name: str) -> Lock:
        """Return the lock in the bytes of a file; see `read`."""
        remedy = "write it again with `wdspec lock SPEC`"
        try:
            document = json.loads(text)
            if document["lock"] != FORMAT:
                raise UsageError(
                    f"a lock of another wdspec, of format {document['lock']}; {remedy}", file=name
                )
            sources = {str(key): LockedSource.of_json(each) for key, each in document["sources"].items()}
            split, environment = (_optional(str, document.get(key)) for key in ("split", "environment"))
            objects = None
            if (about := document.get("objects")) is not None:
                count, unknown = (_of_type(int, about[key]) for key in ("count", "unknown"))
                objects = LockedObjects(count, unknown, _of_type(str, about["digest"]))
            lock = cls(sources, split, environment, objects)
            digest = document["digest"]
        except UsageError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            raise UsageError(f"this is not a lock that `wdspec lock` wrote; {remedy}", file=name) from None
        if digest != lock.digest:
            raise UsageError(f"the digest of this lock does not match its content; {remedy}", file=name)
        return lock

    @property
    def text(self) -> str:
        """The text of the file, with one line per shard, so that diffs are readable."""
        document = {
            "lock": FORMAT,
            "wdspec": version("wdspec"),
            "split": self.split,
            "environment": self.environment,
            "digest": self.digest,
            **({} if self.objects is None else {"objects": asdict(self.objects)}),
            "sources": {name: source.as_json() for name, source in sorted(self.sources.items())},
        }
        return _PAIR.sub(r"[\1, \2]", json.dumps(document, indent=1)) + "\n"

    @cached_property
    def digest(self) -> str:
        """A short hash of the shards of all sources, their sizes, ETags and checksums.

        It is the same wherever copies of them are, and whatever the spec says about them, such as a license. Objects
        that samples name count with all that is known of them.
        """
        described: list[list[Any]] = [
            [
                name,
                *(_run_as_json(run) for run in part.runs),
                *(_lasting(each) for each in part.objects),
                *sorted(part.commits.items()),
                *filter(None, part.hashes),
            ]
            for name, source in sorted(self.sources.items())
            for part in source.lists
        ]
        if self.objects is not None:
            described.append([*astuple(self.objects)])
        return hashlib.blake2b(json.dumps(described).encode(), digest_size=16).hexdigest()

    def with_hashes(self, hashes: Mapping[str, Sequence[Sequence[str | None]]]) -> Lock:
        """Return the lock with the checksums of each list of each source."""
        sources = {}
        for name, source in self.sources.items():
            own, *parts = (
                replace(part, hashes=tuple(each))
                for part, each in zip(source.lists, hashes[name], strict=True)
            )
            joins, tables = tuple(parts[: len(source.joins)]), tuple(parts[len(source.joins) :])
            sources[name] = replace(own, joins=joins, tables=tables)
        return replace(self, sources=sources)

    def misfits(self, spec: Spec) -> Iterator[str]:
        """Yield how the shards of a spec differ from the locked ones."""
        named = {source.name: source for source in spec.collections}
        yield from (f"the source `{name}` is not in it" for name in named if name not in self.sources)
        yield from (
            f"it has a source `{name}`, which the spec does not have"
            for name in self.sources
            if name not in named
        )
        for name, source in named.items():
            locked = self.sources.get(name)
            if locked is not None and locked.asked != tuple(source.shards or ()):
                yield f"the source `{name}` has other `shards`"
            elif locked is not None and [part.asked for part in locked.lists[1:]] != texts_of_parts(source):
                yield f"the source `{name}` has another `join` or `lookup`"
            # Measured numbers may change without the spec; states depend on them through shares.
            elif locked is not None and _about(source, spec.stats) != _about(locked, spec.stats):
                yield f"the source `{name}` has another license, homepage, revision or number of samples"

    def shards(self, spec: Spec, name: str = "the lock") -> dict[str, UrlSequence]:
        """Return the shards of every source, as listed at the time of locking.

        Args:
            name: name of the file, for errors.

        Raises:
            UsageError: the lock does not fit the spec.
        """
        for misfit in self.misfits(spec):
            raise UsageError(
                f"the lock does not fit the spec: {misfit}; `wdspec lock SPEC` writes it again", file=name
            )
        return {source.name: self.sources[source.name].shards_of(source) for source in spec.collections}

    def freeze(
        self, spec: Spec, storages: Mapping[str, Storage], name: str
    ) -> tuple[dict[str, UrlSequence], dict[str, Storage]]:
        """Return the shards of every source, and the storages that read them, and objects, as they were at that time.

        Args:
            storages: of every source.
            name: name of the file, for errors.

        Raises:
            UsageError: the lock does not fit the spec, or the file with its objects is missing or damaged.
        """
        lists, path = self.shards(spec, name), os.path.abspath(objects_name(name))
        if self.objects is not None:
            self.objects.check(path)
        found = {}
        for source in spec.collections:
            pins = self.sources[source.name].pins
            known = KnownObjects(path, source.base, name) if self.objects is not None else None
            found[source.name] = replace(storages[source.name], pins=pins, known=known)
        return lists, found


def texts_of_parts(source: Source) -> list[tuple[str, ...]]:
    """Return the shards of each `join` and the table of each `lookup`, as written in the spec."""
    return [tuple(join.shards) for join in source.join] + [(lookup.table,) for lookup in source.lookup]


def list_splits(spec: str, split: str | None) -> list[str | None]:
    """Return the splits to lock, each in its own file: the chosen one or all; None for a spec without splits."""
    return [split] if split or "#" in spec else [*split_names(spec)] or [None]


def lock_name(spec: str, split: str | None, env: str | None = None) -> str:
    """Return the path of a spec's lock: `train.lock.json` next to `train.yaml`, `train.val.lock.json` for a split.

    If there is one of its own for the environment, such as `train.val.cluster.lock.json`, it is this one.
    """
    if env is not None and os.path.exists(own := beside_spec(spec, split, f".{env}{SUFFIX}")):
        return own
    return beside_spec(spec, split, SUFFIX)


def objects_name(lock: str) -> str:
    """Return the path of the file with the objects of a lock: `train.lock.objects` of `train.lock.json`."""
    return f"{lock.removesuffix('.json')}.objects"


def beside_spec(spec: str, split: str | None, suffix: str) -> str:
    """Return the path of a file that belongs to a spec, or to a split of it: the spec's path with another suffix."""
    path, _, own = spec.partition("#") if not os.path.exists(spec) else (spec, "", "")
    chosen = split or own
    return os.path.splitext(path)[0] + (f".{chosen}" if chosen else "") + suffix


def check_harmless(name: str, runs: Iterable[ShardRun], file: str = "a lock") -> None:
    """Raise a UsageError if the URLs of a source contain secrets, which a shared file must not contain."""
    for run in runs:
        texts = [getattr(run.texts, "pattern", "")] if isinstance(run.texts, Braces) else run.texts
        for text in texts:
            if redacted_urls(run.prefix + text) != run.prefix + text:
                raise UsageError(
                    f"its URLs contain a secret, which {file} would store; use the environment or a login file",
                    source=name,
                )


def _lasting(stat: ObjectStat) -> tuple[int | None, str | None]:
    return stat.size, None if (stat.validator or "").startswith(TIME) else stat.validator


def _about(holder: Source | LockedSource, stats: str | None) -> tuple[Any, ...]:
    return None if stats else holder.samples, holder.license, holder.homepage, holder.revision


def _run_as_json(run: ShardRun) -> dict[str, Any]:
    prefix = {"prefix": run.prefix} if run.prefix else {}
    if isinstance(run.texts, Braces):
        return {"braces": run.texts.pattern, **prefix}
    return {"names": list(run.texts), **prefix}


def _run_of_json(entry: Mapping[str, Any]) -> ShardRun:
    texts = Braces(_of_type(str, entry["braces"])) if "braces" in entry else _texts(entry["names"])
    return ShardRun(texts, _of_type(str, entry.get("prefix", "")), "")


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_of_type(str, each) for each in _of_type(list, values))


def _optional(kind: type[T], value: Any) -> T | None:
    return None if value is None else _of_type(kind, value)


def _of_type(kind: type[T], value: Any) -> T:
    """Return a value that was read from a file. Raises ValueError for one of another type, and for absurd numbers."""
    if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 2**63):
        raise ValueError(f"{kind.__name__} expected")
    return value


def difference(was: ObjectStat, seen: ObjectStat | None, moved: bool) -> str | None:
    """Describe how a shard has changed; None if nothing shows that it has.

    Args:
        seen: None if the shard is gone.
        moved: whether it is read from another location, where only sizes can be compared.
    """
    if seen is None:
        return "gone"
    if None not in (was.size, seen.size) and was.size != seen.size:
        return f"{was.size:,} bytes then, {seen.size:,} now"
    if not moved and None not in (was.validator, seen.validator) and was.validator != seen.validator:
        return f"{_shown(was.validator)} then, {_shown(seen.validator)} now"
    return None


def _shown(validator: str | None) -> str:
    """A validator for people: a time as a date, to the microsecond."""
    kind, _, rest = (validator or "").partition(" ")
    if f"{kind} " != TIME or not rest.isdecimal():
        return str(validator)
    seconds, nanoseconds = divmod(int(rest), 10**9)
    try:
        day = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(validator)
    return f"{TIME}{day:%Y-%m-%d %H:%M:%S}.{nanoseconds:09d}"


def basis_of(was: ObjectStat, seen: ObjectStat, moved: bool) -> str:
    """What `difference` compares of a shard that exists: `ETag`, `time`, `size` or `name`."""
    if not moved and None not in (was.validator, seen.validator):
        return "time" if (was.validator or "").startswith(TIME) else "ETag"
    return "size" if None not in (was.size, seen.size) else "name"


def is_the_same(was: ObjectStat, seen: ObjectStat, moved: bool) -> bool:
    """Whether a shard is surely unchanged: same size and same validator, or with `moved` only the same size."""
    if was.size != seen.size:
        return False
    return was.size is not None if moved else was.validator is not None and was.validator == seen.validator


def place_of(source: Source, storage: Storage) -> str:
    """Return the location of a source's first shard, without secrets; relative if it is in the spec's directory."""
    return place_of_text((source.shards or ("",))[0], source.base, storage)


def place_of_text(text: str, base: str, storage: Storage) -> str:
    """Return the location of a shard as written, without secrets; relative if it is in a directory."""
    try:
        url = ShardUrl(text.removeprefix("@"), base)
        location = storage.environment.locate(url, storage.rules, storage.ais).location
    except UrlError:
        return ""
    inside = location.startswith(base + os.sep)
    return os.path.relpath(location, base) if inside else redacted_urls(location)


def digest_partners(shard: ShardUrl, storage: Storage) -> str | None:
    """Return a digest of the partners of a shard (`join`), from what the store says of them; None if it has none.

    Raises:
        ShardError: one is missing.
    """
    if not shard.partners:
        return None
    seen = [(partner.text, *astuple(storage.stat(partner))) for partner in shard.partners]
    return hashlib.blake2b(repr(seen).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def find_measured(
    measurements: Measurements, spec: Spec, source: Source, storage: Storage, shards: Iterable[ShardUrl]
) -> Iterator[MeasuredShard | None]:
    """Yield the measurements of each shard in order, or None if the shard has changed. Asks the store in parallel.

    If a shard was measured at another location, its validator is replaced by that of the current one.
    """
    measured = measurements.of(spec, source)
    if measured is None:
        return (None for _ in shards)
    moved = place_of(source, storage) != measured.via
    of_source = measurements.shards.get(source.name, {})

    def ask(shard: ShardUrl) -> MeasuredShard | None:
        known = of_source.get(shard.text)
        if known is None:
            return None
        try:
            if known.beside != digest_partners(shard, storage):
                return None
            seen = storage.stat(shard)
        except ShardError:  # reported when it is read
            return None
        if not is_the_same(ObjectStat(known.size, known.validator), seen, moved):
            return None
        return replace(known, validator=seen.validator) if moved else known

    return side_by_side(ask, shards)
