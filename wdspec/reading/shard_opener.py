"""Opens one part of one shard: resolved, recognised by magic, split into raw samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from wdspec.cache.copy_reading import CopySamples
from wdspec.errors import ShardError, StoreError, WdspecError
from wdspec.fields.sample_fields import SampleFields
from wdspec.formats.compression.decompressed_file import decompressed
from wdspec.formats.raw_samples import RawSamples, no_field
from wdspec.formats.reader_choice import raw_samples
from wdspec.formats.suffixes import format_of
from wdspec.reading.piece import Piece
from wdspec.spec.language.sample_options import KeyRule
from wdspec.spec.language.vocabulary import Format
from wdspec.storage.storage import Storage
from wdspec.storage.upcoming import Ahead
from wdspec.streams.watchdog import open_watched
from wdspec.urls.sequence import ShardUrl


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

    def __call__(
        self,
        piece: Piece,
        *,
        on_error: Callable[[ShardError], None],
        ahead: Ahead | None = None,
    ) -> RawSamples:
        """Opens a piece of a shard, for the caller to close.

        Args:
            piece: which samples.
            on_error: called with what is wrong with a sample; reading goes on behind it unless this raises.
            ahead: of the reader that asks, to have the next shards fetched meanwhile.

        Raises:
            ShardError: the shard does not exist, cannot be opened, or is compressed with something unknown.
        """
        return self.samples(piece, self.fields.field_of, on_error, ahead or self.ahead())

    def ahead(self) -> Ahead:
        """What a reader of this source opens its shards through, to have the next ones fetched meanwhile."""
        return Ahead(self.storage)

    def headers(self, piece: Piece, *, on_error: Callable[[ShardError], None]) -> RawSamples:
        """Opens a piece of a shard to count its samples: they come without fields, and their data is not read.

        Raises:
            ShardError: as for reading.
        """
        return self.samples(piece, no_field, on_error, self.ahead())

    def samples(
        self,
        piece: Piece,
        field_of: Callable[[str], str | None],
        on_error: Callable[[ShardError], None],
        ahead: Ahead,
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
                    field_of=field_of,
                    stride=piece.stride,
                    residue=piece.residue,
                    may_be_empty=self.may_be_empty,
                    constants=constants,
                    **where,
                )

            if copy is None:
                return samples_of(raw, **where)
            return CopySamples(samples_of, copy, raw, partial(self._from_store, shard), **where)
        except BaseException as error:
            raw.close()
            if isinstance(error, WdspecError):
                error.at(source=self.source or None, url=shard.text)
            raise

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
