"""Locks: the shards of a spec with their sizes and ETags as a value and as JSON, and whether they are still the same.

`wdspec lock` writes them (`wdspec.jobs.lock`), `loader(…, lock=…)` reads them; `wdspec stats` compares shards in the
same way.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

from wdspec.base.errors import ShardError, UrlError, UsageError
from wdspec.base.redaction import redacted_urls
from wdspec.spec.load import split_names
from wdspec.spec.measurements import MeasuredShard, Measurements
from wdspec.spec.spec import Source, Spec
from wdspec.storage.ahead import side_by_side
from wdspec.storage.storage import Storage
from wdspec.stores.store import ObjectStat
from wdspec.urls.braces import Braces
from wdspec.urls.urls import ShardRun, ShardUrl, UrlSequence

FORMAT = 1
SUFFIX = ".lock.json"
_PAIR = re.compile(r'\[\s+(\d+|null),\s+("(?:[^"\\]|\\.)*"|null)\s+\]')
"""Size and validator of a shard, as `json` lays them out."""


@dataclass(frozen=True)
class LockedSource:
    """One source as it was."""

    asked: tuple[str, ...]
    """`shards` as the spec spelt them."""
    via: str
    """Where the first of them led, without secrets: what stores say holds only for the same place."""
    runs: tuple[ShardRun, ...]
    """The shards, of which the base is left open."""
    objects: tuple[ObjectStat, ...]
    """What the store said of each shard, in order."""
    samples: int | None = None
    license: str | None = None
    homepage: str | None = None
    revision: str | None = None

    @property
    def size(self) -> int | None:
        """Bytes of all shards; None where a store did not say."""
        sizes = [each.size for each in self.objects]
        return None if None in sizes else sum(each for each in sizes if each is not None)

    def shards(self, base: str) -> UrlSequence:
        """The shards as planning has them; relative paths start at a folder."""
        return UrlSequence(run._replace(base=base) for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        about = {key: getattr(self, key) for key in ("samples", "license", "homepage", "revision")}
        return {
            "asked": list(self.asked),
            "via": self.via,
            **{key: value for key, value in about.items() if value is not None},
            "size": self.size,
            "shards": [_run_as_json(run) for run in self.runs],
            "objects": [[each.size, each.validator] for each in self.objects],
        }

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> LockedSource:
        about = {key: said.get(key) for key in ("samples", "license", "homepage", "revision")}
        runs = tuple(map(_run_of_json, said["shards"]))
        objects = tuple(ObjectStat(size, validator) for size, validator in said["objects"])
        if len(objects) != sum(len(run.texts) for run in runs):
            raise ValueError("shards and objects differ in number")
        return cls(tuple(said["asked"]), str(said["via"]), runs, objects, **about)


@dataclass(frozen=True)
class Lock:
    """What a spec came to: its sources by name."""

    sources: Mapping[str, LockedSource]
    split: str | None = None
    environment: str | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Lock:
        """The lock in a file.

        Raises:
            UsageError: it is none, was made by a newer wdspec, or was changed by hand; or this is no path.
            OSError: it cannot be read.
        """
        if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
            raise UsageError(f"`lock` is the path of a file that `wdspec lock` wrote, not {path!r}")
        with open(path, "rb") as file:
            return cls.of_text(file.read(), os.fspath(path))

    @classmethod
    def of_text(cls, text: bytes, name: str) -> Lock:
        """The lock in the bytes of a file; see `read`."""
        again = "write it anew with `wdspec lock SPEC`"
        try:
            said = json.loads(text)
            if said["lock"] != FORMAT:
                raise UsageError(f"a lock of another wdspec, of format {said['lock']}; {again}", file=name)
            sources = {str(key): LockedSource.of_json(each) for key, each in said["sources"].items()}
            lock = cls(sources, said.get("split"), said.get("environment"))
            digest = said["digest"]
        except UsageError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UsageError(f"this is no lock that `wdspec lock` has written; {again}", file=name) from None
        if digest != lock.digest:
            raise UsageError(f"the digest of this lock is not that of what stands in it; {again}", file=name)
        return lock

    @property
    def text(self) -> str:
        """The file: one line for each shard, so that differences read well."""
        document = {
            "lock": FORMAT,
            "wdspec": version("wdspec"),
            "split": self.split,
            "environment": self.environment,
            "digest": self.digest,
            "sources": {name: source.as_json() for name, source in sorted(self.sources.items())},
        }
        return _PAIR.sub(r"[\1, \2]", json.dumps(document, indent=1)) + "\n"

    @cached_property
    def digest(self) -> str:
        """A short hash of the shards of all sources, their sizes and ETags: the same wherever copies of them lie."""
        described = [
            [name, *(_run_as_json(run) for run in source.runs), *(_lasting(each) for each in source.objects)]
            for name, source in sorted(self.sources.items())
        ]
        return hashlib.blake2b(json.dumps(described).encode(), digest_size=16).hexdigest()

    def misfits(self, spec: Spec) -> Iterator[str]:
        """In what a spec differs from the one that was locked, as far as its shards go."""
        named = {source.name: source for source in spec.sources}
        yield from (f"the source `{name}` is not in it" for name in named if name not in self.sources)
        yield from (
            f"it has a source `{name}`, which the spec has not" for name in self.sources if name not in named
        )
        for name, source in named.items():
            locked = self.sources.get(name)
            if locked is not None and locked.asked != tuple(source.shards or ()):
                yield f"the source `{name}` asks for other shards than it did"
            # Numbers that were measured are bound to states by the shares that they make, and change without the spec.
            elif locked is not None and _about(source, spec.stats) != _about(locked, spec.stats):
                yield f"the source `{name}` has another license, homepage, revision or number of samples"

    def shards(self, spec: Spec, name: str = "the lock") -> dict[str, UrlSequence]:
        """The shards of every source, as they were listed then.

        Args:
            name: of the file, for errors.

        Raises:
            UsageError: the lock is not of this spec.
        """
        for misfit in self.misfits(spec):
            raise UsageError(
                f"the lock does not fit the spec: {misfit}; `wdspec lock SPEC` writes it anew", file=name
            )
        return {source.name: self.sources[source.name].shards(source.base) for source in spec.sources}


def list_splits(spec: str, split: str | None) -> list[str | None]:
    """The splits of a spec that have a lock each, the chosen one or all; None stands for a spec without any."""
    return [split] if split or "#" in spec else [*split_names(spec)] or [None]


def lock_name(spec: str, split: str | None) -> str:
    """Where the lock of a spec stands: `train.lock.json` beside `train.yaml`, `train.val.lock.json` of a split."""
    return beside_spec(spec, split, SUFFIX)


def beside_spec(spec: str, split: str | None, suffix: str) -> str:
    """Where a file stands that goes with a spec, or with a split of it: the spec's name with another suffix."""
    path, _, own = spec.partition("#") if not os.path.exists(spec) else (spec, "", "")
    chosen = split or own
    return os.path.splitext(path)[0] + (f".{chosen}" if chosen else "") + suffix


def check_harmless(name: str, runs: Iterable[ShardRun], kept: str = "a lock") -> None:
    """Raises UsageError where the URLs of a source hold secrets, which a file that is kept and shared must not."""
    for run in runs:
        texts = [getattr(run.texts, "pattern", "")] if isinstance(run.texts, Braces) else run.texts
        for text in texts:
            if redacted_urls(run.prefix + text) != run.prefix + text:
                raise UsageError(
                    f"its URLs hold a secret, which {kept} would keep; give it by the environment or a login file",
                    source=name,
                )


def _lasting(said: ObjectStat) -> tuple[int | None, str | None]:
    return said.size, None if (said.validator or "").startswith("mtime ") else said.validator


def _about(holder: Source | LockedSource, stats: str | None) -> tuple[Any, ...]:
    return None if stats else holder.samples, holder.license, holder.homepage, holder.revision


def _run_as_json(run: ShardRun) -> dict[str, Any]:
    prefix = {"prefix": run.prefix} if run.prefix else {}
    if isinstance(run.texts, Braces):
        return {"braces": run.texts.pattern, **prefix}
    return {"names": list(run.texts), **prefix}


def _run_of_json(said: Mapping[str, Any]) -> ShardRun:
    texts = Braces(said["braces"]) if "braces" in said else tuple(map(str, said["names"]))
    return ShardRun(texts, str(said.get("prefix", "")), "")


def difference(was: ObjectStat, seen: ObjectStat | None, moved: bool) -> str | None:
    """In words, how a shard differs from what it was; None where nothing shows that.

    Args:
        seen: None of one that is gone.
        moved: whether it is read from another place, where sizes alone can be compared.
    """
    if seen is None:
        return "gone"
    if None not in (was.size, seen.size) and was.size != seen.size:
        return f"{was.size:,} bytes then, {seen.size:,} now"
    if not moved and None not in (was.validator, seen.validator) and was.validator != seen.validator:
        return f"{was.validator} then, {seen.validator} now"
    return None


def is_the_same(was: ObjectStat, seen: ObjectStat, moved: bool) -> bool:
    """Whether a shard is surely what it was, as far as stores can tell: by its size and what changes with it.

    Args:
        moved: as for `difference`: then by its size.
    """
    if was.size != seen.size:
        return False
    return was.size is not None if moved else was.validator is not None and was.validator == seen.validator


def place_of(source: Source, storage: Storage) -> str:
    """Where the first of a source's shards leads, without secrets; what lies beside the spec, relative to it."""
    first = (source.shards or ("",))[0]
    try:
        location = storage.resolve(ShardUrl(first.removeprefix("@"), source.base)).location
    except UrlError:
        return ""
    inside = location.startswith(source.base + os.sep)
    return os.path.relpath(location, source.base) if inside else redacted_urls(location)


def still_measured(
    measurements: Measurements, spec: Spec, source: Source, storage: Storage, shards: Iterable[ShardUrl]
) -> Iterator[MeasuredShard | None]:
    """Of each shard what was measured, if the store says that it is the same; else None. In order, side by side.

    Of one that was measured in another place, the validator is that of the place where it is now.
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
            seen = storage.stat(shard)
        except ShardError:  # whoever reads it says so
            return None
        if not is_the_same(ObjectStat(known.size, known.validator), seen, moved):
            return None
        return replace(known, validator=seen.validator) if moved else known

    return side_by_side(ask, shards)
