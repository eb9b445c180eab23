"""Opens one part of one shard: resolved, recognised by magic, split into raw samples.

The part of a shard that a reader asks for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

from wdspec.base.errors import ShardError, StoreError, WdspecError, tell_place
from wdspec.base.process import PerProcess
from wdspec.cache.reading import CopySamples, hold_for_faithful, is_faithful
from wdspec.cache.shard_cache import condemn
from wdspec.fields.samples import SampleFields
from wdspec.formats.choice import raw_samples
from wdspec.formats.compression import format_of
from wdspec.formats.decompress import decompressed
from wdspec.formats.samples import RawSamples, no_field
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.values import Format
from wdspec.storage.ahead import Ahead
from wdspec.storage.storage import Storage
from wdspec.stores.local import LocalFiles
from wdspec.stores.watchdog import open_watched
from wdspec.urls.urls import ShardUrl


@dataclass(frozen=True)
class Piece:
    """The samples of a shard with index ≡ residue (mod stride), from one of them on."""

    shard: ShardUrl
    stride: int = 1
    residue: int = 0
    offset: int = 0
    """Byte offset in the uncompressed shard of the sample to begin with; 0 is the shard's start."""
    index: int = 0
    """Index in the shard of that sample."""


log = logging.getLogger("wdspec")

_MOST_NOTED = 4096
_read_from: PerProcess[dict[tuple[str, str], tuple[ShardUrl, str]]] = PerProcess(dict)
"""By source and URL: the shards of this process that were read from a copy, and its path."""


@dataclass(frozen=True)
class ShardOpener:
    """How the shards of one source are opened; describes only, and pickles."""

    source: str
    """Its name, for `__source__`; "" for shards that are no source's."""
    storage: Storage
    fields: SampleFields
    key: KeyRule
    lenient_end: bool
    format: str = "auto"
    """Of all shards, or ``auto`` to go by the name of each."""
    may_be_empty: bool = False
    """Whether a shard without anything in it is no error."""
    is_local: bool = False
    """Whether all shards are plain local paths, which need no rewriting, no store and no reading ahead."""
    is_by_headers: bool = False
    """Whether samples come without fields, or with the sizes of those that are asked for: their data is not read."""

    def __call__(
        self,
        piece: Piece,
        *,
        on_error: Callable[[ShardError], None],
        ahead: Ahead | LocalFiles | None = None,
        told: Callable[[int], object] | None = None,
    ) -> RawSamples:
        """Opens a piece of a shard, for the caller to close.

        Args:
            piece: which samples.
            on_error: called with what is wrong with a sample; reading goes on behind it unless this raises.
            ahead: of the reader that asks, to have the next shards fetched meanwhile.
            told: called with the number of bytes of each piece that is read.

        Raises:
            ShardError: the shard does not exist, cannot be opened, or is compressed with something unknown.
        """
        field_of = no_field if self.is_by_headers else self.fields.field_of
        return self.samples(piece, field_of, on_error, ahead or self.ahead(), told)

    def ahead(self) -> Ahead | LocalFiles:
        """What a reader of this source opens its shards through, so that the next ones are fetched meanwhile."""
        return LocalFiles(self.storage.environment.directory) if self.is_local else Ahead(self.storage)

    @property
    def headers(self) -> ShardOpener:
        """What opens the same shards to see which samples there are: they come without fields."""
        return replace(self, is_by_headers=True)

    def samples(
        self,
        piece: Piece,
        field_of: Callable[[str], str | None],
        on_error: Callable[[ShardError], None],
        ahead: Ahead | LocalFiles,
        told: Callable[[int], object] | None = None,
    ) -> RawSamples:
        """As a call, with other fields than the source's: `field_of` as for `RawSamples`."""
        shard = piece.shard
        raw = open_watched(lambda: ahead.open(shard), self.storage.timeout, self.source, shard.text)
        where: dict[str, Any] = {"offset": piece.offset, "index": piece.index, "on_error": on_error}
        copy = getattr(raw, "copy_file", None)
        try:
            format = self._format(shard)
            constants = {"__url__": shard.text, **({"__source__": self.source} if self.source else {})}

            def samples_of(file: BinaryIO, **where: Any) -> RawSamples:
                return raw_samples(
                    decompressed(file),
                    format,
                    self.key,
                    self.lenient_end,
                    only_sizes=self.is_by_headers,
                    field_of=field_of,
                    stride=piece.stride,
                    residue=piece.residue,
                    may_be_empty=self.may_be_empty,
                    constants=constants,
                    on_read=told,
                    **where,
                )

            if copy is None:
                return samples_of(raw, **where)
            self._note(shard, str(copy.name))
            return CopySamples(samples_of, copy, raw, partial(self._from_store, shard), **where)
        except BaseException as error:
            raw.close()
            if isinstance(error, WdspecError):
                error.at(source=self.source or None, url=shard.text)
            raise

    def undamaged(self, raw: Mapping[str, Any], error: Exception) -> dict[str, Any] | None:
        """A sample that could not be decoded, once more, if it was read from a copy: as the store has it.

        Args:
            raw: the sample, of which only `__url__` and `__key__` are looked at.
            error: why not; it is told the copy, and what the store said where that cannot be read.

        Returns:
            None where there was no copy, or where its store has been asked before and gave the same.
        """
        url, key = raw["__url__"], raw["__key__"]
        shard, path = _read_from.value.get((self.source, url), (None, ""))
        if shard is None:
            return None
        tell_place(error, copy=path)
        if is_faithful(path):
            return None
        log.warning(
            "a sample of a copy cannot be decoded, so its shard is read from the store again: %s", error
        )
        bare = replace(self, storage=replace(self.storage, cache=None))
        try:
            with closing(bare(Piece(shard), on_error=lambda _: None)) as samples:
                return next((sample for sample in samples if sample["__key__"] == key), None)
        except (WdspecError, OSError) as cause:
            tell_place(error, store=f"cannot be read in its place: {cause}")
            return None

    def settle(self, raw: Mapping[str, Any], *, is_damaged: bool) -> None:
        """Says what became of a sample that `undamaged` gave: if it could be decoded, the copy goes, if it is ours."""
        _, path = _read_from.value[self.source, raw["__url__"]]
        if is_damaged:
            condemn(path)
        else:
            hold_for_faithful(path)

    def _note(self, shard: ShardUrl, path: str) -> None:
        """Remembers what a shard was read from, for `undamaged`; of the last few thousand, in this process."""
        noted = _read_from.value
        noted.pop((self.source, shard.text), None)
        noted[self.source, shard.text] = shard, path
        if len(noted) > _MOST_NOTED:
            del noted[next(iter(noted))]

    def _from_store(self, shard: ShardUrl) -> BinaryIO:
        location = self.storage.resolve(shard).location
        return open_watched(
            lambda: self.storage.open_location(location), self.storage.timeout, self.source, shard.text
        )

    def _format(self, shard: ShardUrl) -> Format:
        """Raises StoreError for one that does not show where an answer was cut, from what cuts without a word."""
        format = format_of(shard.text, self.format)
        etl = self.storage.ais.etl if self.storage.ais else None
        if etl is not None and format != "tar":
            raise StoreError(
                f"the ETL `{etl.name}` must give tar, but this shard is read as {format}, in which an answer that "
                "breaks off looks whole; if it does give tar, set `format: tar`"
            )
        return format
