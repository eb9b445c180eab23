"""How the stages of pipelines read shards: which bytes, which part of them, and whom errors are shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, TypeVar

from wdspec.base.errors import ShardError, UsageError
from wdspec.cache.shard_cache import path_of_copy
from wdspec.fields.samples import SampleFields
from wdspec.fluent.error_handlers import ErrorHandler
from wdspec.read.shard import Piece, ShardOpener
from wdspec.spec.language.samples import KeyRule
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage, with_surveyed_caches
from wdspec.urls.urls import ShardUrl

T = TypeVar("T")
Policy = Callable[[ShardError], None]
"""What a reader calls with an error of the data: it goes on behind it, unless this raises."""


@dataclass(frozen=True)
class ShardReader:
    """How URLs become samples: the storage of the environment, as it was in the parent."""

    storage: Storage
    base: str
    """Absolute directory that relative paths start at."""
    format: str = "tar"
    """Of all shards, or ``auto`` to go by the name of each."""
    may_be_empty: bool = False
    """Whether a shard without anything in it is no error."""
    fields: SampleFields = field(default_factory=lambda: SampleFields(names=("raw",), secure=False))

    @classmethod
    def here(
        cls,
        format: str = "tar",
        urls: Sequence[ShardUrl] = (),
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | None = None,
    ) -> ShardReader:
        """One for the environment and working directory of this process.

        Args:
            format: of the shards.
            urls: the shards, as far as known: copies under their bare names are looked for in the cache.
            cache_dir, cache_size: go before `WDS_CACHE` and `WDS_CACHE_SIZE`.
        """
        environment = Environment.read()
        if cache_dir is not None:
            environment = replace(environment, cache_dir=os.fspath(cache_dir))
        if cache_size is not None:
            environment = replace(environment, cache_size=cache_size)
        storage = with_surveyed_caches({"": Storage.of(environment)}, {"": urls})[""]
        return cls(storage, environment.directory, format)

    def copy_of(self, url: str) -> str | None:
        """The path of the copy of a shard in the cache; None where it is not cached."""
        copies = self.storage.resolve(ShardUrl(url, self.base)).copies if self.storage.cache else None
        return None if copies is None else path_of_copy(copies) or copies.path

    def __repr__(self) -> str:
        return f"ShardReader({self.base!r})"

    def open(self, url: str) -> BinaryIO:
        """The bytes of a shard."""
        return self.storage.watched(ShardUrl(url, self.base))

    def opener(self) -> ShardOpener:
        """Opens whole samples."""
        return ShardOpener(
            "",
            self.storage,
            self.fields,
            KeyRule(),
            lenient_end=False,
            format=self.format,
            may_be_empty=self.may_be_empty,
        )


class _Stop(Exception):  # noqa: N818  # no error: it carries a handler's "stop" out of the reader
    pass


def handled(
    url: str, read: Callable[[Policy], Iterable[T]], handler: ErrorHandler
) -> Generator[T, None, bool]:
    """What is read of one shard, with the handler for its errors.

    Returns:
        Whether the stream goes on behind the shard.
    """

    def decide(error: ShardError) -> None:
        error.at(url=url)
        if not handler(error):
            raise _Stop

    try:
        yield from read(decide)
    except _Stop:
        return False
    except ShardError as error:
        error.at(url=url)
        return handler(error)
    return True


def piece_of(entry: Any, base: str = "") -> Piece:
    """What is to be read of an entry of a shard list, a dict or a URL; `base` is where relative paths start."""
    if isinstance(entry, dict) and isinstance(entry.get("url"), str):
        return Piece(ShardUrl(entry["url"], base), entry.get("stride", 1), entry.get("residue", 0))
    if isinstance(entry, (str, os.PathLike)):
        return Piece(ShardUrl(os.fspath(entry), base))
    raise UsageError(
        f"a {type(entry).__name__} came where shards are read; it takes URLs, or dicts with a `url`, as "
        "SimpleShardList yields"
    )
