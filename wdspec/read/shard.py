"""Opening a part of a shard: `ShardOpener` finds the bytes, decompresses them, and chooses the reader of the format."""

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
from wdspec.formats.compression import format_of
from wdspec.formats.decompress import decompress
from wdspec.formats.records import RecordSamples, splitter_of
from wdspec.formats.samples import RawSamples, no_field
from wdspec.formats.tar.reader import TarSamples
from wdspec.read.join import JoinedSamples, Partner
from wdspec.spec.language.joins import JoinOptions, LookupOptions
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.values import Format
from wdspec.storage.ahead import Ahead
from wdspec.storage.storage import Storage
from wdspec.stores.local import LocalFiles
from wdspec.stores.watchdog import open_watched
from wdspec.urls.urls import ShardUrl


@dataclass(frozen=True)
class Piece:
    """The samples of a shard with index ≡ residue (mod stride), starting with one of them."""

    shard: ShardUrl
    stride: int = 1
    residue: int = 0
    offset: int = 0
    """Byte offset of the first sample, in the uncompressed shard; 0 is the start of the shard."""
    index: int = 0
    """Index of the first sample in the shard."""


log = logging.getLogger("wdspec")

_MOST_NOTED = 4096
_read_from: PerProcess[dict[tuple[str, str], tuple[ShardUrl, tuple[str, ...]]]] = PerProcess(dict)
"""By source and URL: shards that this process has read from cached copies (their own, or of partners), and the paths of
these."""


@dataclass(frozen=True)
class ShardOpener:
    """How to open the shards of one source. It holds no open files, so it can be pickled."""

    source: str
    """The name of the source, for `__source__`; "" for shards without a source."""
    storage: Storage
    fields: SampleFields
    key: KeyRule
    lenient_end: bool
    format: str = "auto"
    """The format of all shards, or ``auto`` to choose it by the name of each shard."""
    may_be_empty: bool = False
    """Whether to accept empty shards."""
    is_local: bool = False
    """Whether all shards are plain local paths, which need no rewriting, no store and no reading ahead."""
    is_by_headers: bool = False
    """Whether to read only headers: samples have no fields, or the sizes of the requested fields."""
    parts: tuple[tuple[JoinOptions, ...], tuple[LookupOptions, ...]] = ((), ())
    """The `join` and the `lookup` of the source: how partners are read, and what is looked up."""

    def __call__(
        self,
        piece: Piece,
        *,
        on_error: Callable[[ShardError], None],
        ahead: Ahead | LocalFiles | None = None,
        on_read: Callable[[int], object] | None = None,
    ) -> RawSamples:
        """Open a part of a shard. The caller closes it.

        Args:
            piece: which samples.
            on_error: called with the error of a sample. Reading continues after the sample unless this raises.
            ahead: `ahead()` of the calling reader, which fetches the next shards in the background.
            on_read: called with the number of bytes of each piece that is read.

        Raises:
            ShardError: the shard does not exist, cannot be opened, or has an unknown compression.
        """
        field_of = no_field if self.is_by_headers else self.fields.field_of
        read = self._join if any(self.parts) and not self.is_by_headers else self.samples
        return read(piece, field_of, on_error, ahead or self.ahead(), on_read)

    def ahead(self) -> Ahead | LocalFiles:
        """Return what a reader opens the shards of this source through. It fetches the next ones in the background."""
        return LocalFiles(self.storage.environment.directory) if self.is_local else Ahead(self.storage)

    @property
    def headers(self) -> ShardOpener:
        """An opener of the same shards that reads only headers: samples have no fields."""
        return replace(self, is_by_headers=True)

    def samples(
        self,
        piece: Piece,
        field_of: Callable[[str], str | None],
        on_error: Callable[[ShardError], None],
        ahead: Ahead | LocalFiles,
        on_read: Callable[[int], object] | None = None,
        whole: ShardUrl | None = None,
    ) -> RawSamples:
        """Open a part of a shard, or of a partner of `whole`, with these fields: see `field_of` of `RawSamples`."""
        shard = piece.shard
        raw = open_watched(lambda: ahead.open(shard), self.storage.timeout, self.source, shard.text)
        start: dict[str, Any] = {"offset": piece.offset, "index": piece.index, "on_error": on_error}
        copy = getattr(raw, "copy_file", None)
        try:
            format = self._format(shard)
            options: dict[str, Any] = {
                "field_of": field_of,
                "stride": piece.stride,
                "residue": piece.residue,
                "may_be_empty": self.may_be_empty,
                "constants": {"__url__": shard.text, **({"__source__": self.source} if self.source else {})},
                "on_read": on_read,
            }
            if format == "tar":
                reader: Callable[..., RawSamples] = partial(
                    TarSamples,
                    key_rule=self.key,
                    lenient_end=self.lenient_end,
                    only_sizes=self.is_by_headers,
                    **options,
                )
            else:
                reader = partial(RecordSamples, split=splitter_of(format), **options)
            if copy is None:
                return reader(decompress(raw), **start)
            self._note_copy(whole or shard, str(copy.name))
            fetch = partial(self._open_store, shard)
            return CopySamples(lambda file, **at: reader(decompress(file), **at), copy, raw, fetch, **start)
        except BaseException as error:
            raw.close()
            if isinstance(error, WdspecError):
                error.at(source=self.source or None, url=shard.text)
            raise

    def _join(
        self,
        piece: Piece,
        field_of: Callable[[str], str | None],
        on_error: Callable[[ShardError], None],
        ahead: Ahead | LocalFiles,
        on_read: Callable[[int], object] | None,
    ) -> RawSamples:
        """Open a part of a shard, its partners, and its tables."""
        from wdspec.read.tables import Lookup

        url, (joins, lookups) = piece.shard.text, self.parts
        tables = [
            Lookup(options, table, self.fields, self.storage)
            for options, table in zip(lookups, piece.shard.tables, strict=True)
        ]
        _read_from.value.pop((self.source, url), None)
        if asked := {file.lower() for lookup in lookups for file in lookup.asks_for}:
            needed, field_of = (
                field_of,
                lambda name: needed(name) or (name.lower() in asked and name.lower()) or None,
            )
        opened: list[RawSamples | Partner] = []
        try:
            opened.append(shard := self.samples(piece, field_of, on_error, ahead, on_read))
            partners = []
            for options, partner in zip(joins, piece.shard.partners, strict=True):
                partners.append(
                    Partner(
                        options,
                        partner.text,
                        partial(self._open_partner, piece.shard, options, partner, field_of, ahead, on_read),
                        is_start=not piece.index,
                        stride=piece.stride,
                        residue=piece.residue,
                        finds_repeats=format_of(partner.text, options.format) == "tar",
                    )
                )
                opened.append(partners[-1])
        except BaseException as error:
            for each in opened:
                each.close()
            if isinstance(error, WdspecError) and error.place.get("url", url) != url:
                error.at(partner=url)
            raise
        return JoinedSamples(shard, partners, tables, url, self.source, on_error)

    def _open_partner(
        self,
        whole: ShardUrl,
        options: JoinOptions,
        shard: ShardUrl,
        field_of: Callable[[str], str | None],
        ahead: Ahead | LocalFiles,
        on_read: Callable[[int], object] | None,
        offset: int,
        index: int,
        stride: int,
        residue: int,
        on_error: Callable[[ShardError], None],
        *,
        only_keys: bool = False,
    ) -> RawSamples:
        """Open a partner of a shard; see `OpenPart`."""
        opener = replace(self, format=options.format, may_be_empty=True, is_by_headers=only_keys)
        wanted = no_field if only_keys else options.field_of(field_of)
        piece = Piece(shard, stride, residue, offset, index)
        return opener.samples(piece, wanted, on_error, ahead, on_read, whole)

    def read_from_store(self, raw: Mapping[str, Any], error: Exception) -> dict[str, Any] | None:
        """Read a sample that could not be decoded again, from the store, if it was read from a cached copy.

        Args:
            raw: the sample; only `__url__` and `__key__` are used.
            error: why it could not be decoded. The path of the copy is added to it, and the error of the store if that
                cannot be read.

        Returns:
            The sample as the store has it; None if there was no copy, or if the store is known to have the same.
        """
        url, key = raw["__url__"], raw["__key__"]
        shard, paths = _read_from.value.get((self.source, url), (None, ()))
        if shard is None:
            return None
        tell_place(error, copy=", ".join(paths))
        if all(map(is_faithful, paths)):
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

    def judge_copy(self, raw: Mapping[str, Any], *, is_damaged: bool) -> None:
        """Remove the cached copy of a sample from `read_from_store` if it is damaged; otherwise trust it."""
        _, paths = _read_from.value[self.source, raw["__url__"]]
        for path in paths:
            if is_damaged:
                condemn(path)
            else:
                hold_for_faithful(path)

    def _note_copy(self, shard: ShardUrl, path: str) -> None:
        """Note that a shard was read from a copy, for `read_from_store`. The last few thousand are kept."""
        noted = _read_from.value
        _, paths = noted.pop((self.source, shard.text), (shard, ()))
        kept = paths if any(self.parts) and path not in paths else ()
        noted[self.source, shard.text] = shard, (*kept, path)
        if len(noted) > _MOST_NOTED:
            del noted[next(iter(noted))]

    def _open_store(self, shard: ShardUrl) -> BinaryIO:
        location = self.storage.resolve(shard).location
        return open_watched(
            lambda: self.storage.open_location(location), self.storage.timeout, self.source, shard.text
        )

    def _format(self, shard: ShardUrl) -> Format:
        """Return the format of a shard. Raises StoreError if an ETL makes a format that does not show truncation."""
        format = format_of(shard.text, self.format)
        etl = self.storage.ais.etl if self.storage.ais else None
        if etl is not None and format != "tar":
            raise StoreError(
                f"the ETL `{etl.name}` must return tar, but this shard is read as {format}, in which a truncated "
                "answer looks complete; if the ETL returns tar, set `format: tar`"
            )
        return format
