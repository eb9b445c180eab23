"""Reading a part of a shard: `SampleReader` finds the bytes, decompresses them, and chooses the reader of a format."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from wdspec.base.errors import ShardError, StoreError, WdspecError, log_fields, tell_place
from wdspec.base.process import PerProcess
from wdspec.cache.reading import CopySamples, hold_for_faithful, is_faithful
from wdspec.cache.shard_cache import condemn
from wdspec.fields.samples import COMPANIONS, PASS, SampleFields
from wdspec.formats.compression import format_of
from wdspec.formats.decompress import decompress
from wdspec.formats.readers import READERS, FetchAhead, Surroundings, as_it_is, seeks
from wdspec.formats.requests import FIRST, request_only
from wdspec.formats.samples import RawSamples, only_key
from wdspec.formats.tar.reader import TarSamples
from wdspec.read.join import JoinedSamples
from wdspec.read.partner import Partner
from wdspec.spec.language.joins import JoinOptions, LookupOptions
from wdspec.spec.language.options import TokenOptions
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.values import Format
from wdspec.storage.ahead import Ahead, fetches_itself
from wdspec.storage.due import DueShards
from wdspec.storage.storage import Storage
from wdspec.stores.local import LocalFiles
from wdspec.stores.read_ahead import ReadAhead
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
    shards: Sequence[ShardUrl] = ()
    """All shards of the source: tables must have columns like those of the first; () to compare nothing."""


log = logging.getLogger("wdspec")

Used = TypeVar("Used")

_MOST_NOTED = 4096
_read_from: PerProcess[dict[tuple[str, str], tuple[ShardUrl, tuple[str, ...]]]] = PerProcess(dict)
"""By source and URL: shards that this process has read from cached copies (their own, or of partners), and the paths of
these."""


_columns: PerProcess[dict[tuple[str, str], tuple[str, Mapping[str, str]] | None]] = PerProcess(dict)
"""By source and URL of its first shard: the URL, and what the columns of the shard are."""


@dataclass(frozen=True)
class SampleReader:
    """Reads the raw samples of the shards of one source, joined with those of partners, with values looked up.

    It holds no open files, so it can be pickled.
    """

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
    tokens: TokenOptions | None = None
    """How files of token ids are cut into samples."""
    is_by_headers: bool = False
    """Whether to read only headers: samples have no fields, or the sizes of the requested fields."""
    parts: tuple[tuple[JoinOptions, ...], tuple[LookupOptions, ...]] = ((), ())
    """The `join` and the `lookup` of the source: how partners are read, and what is looked up."""
    leaves_out: Callable[[dict[str, Any]], bool] | None = None
    """See `TarSamples`."""
    of_tars: type[TarSamples] = TarSamples
    """What reads tars."""
    verify: Callable[..., Iterator[Any]] | None = None
    """Sees what is read of tables, but not of partners; see `TableSamples`."""
    keeps_rows: bool = False
    """Whether samples of tables that need no step are rows (`read/rows.py`) instead of dicts."""

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
        field_of = only_key if self.is_by_headers else self.fields.field_of
        read = self._join if any(self.parts) and not self.is_by_headers else self.samples
        return read(piece, field_of, on_error, ahead or self.ahead(), on_read)

    def ahead(self) -> Ahead | LocalFiles:
        """Return what a reader opens the shards of this source through. It fetches the next ones in the background."""
        storage = self.storage
        return LocalFiles(storage.environment.directory) if self.is_local else Ahead(storage, self._seeks)

    def when_due(self, share: float) -> DueShards | None:
        """Return the same for one of many sources, drawn with this share; None if all its shards are local."""
        return None if self.is_local else DueShards(self.storage, self._seeks, share)

    @property
    def headers(self) -> SampleReader:
        """An opener of the same shards that reads only headers: samples have no fields."""
        return replace(self, is_by_headers=True)

    def only_tables(self, piece: Piece, on_error: Callable[[ShardError], None]) -> RawSamples:
        """Open a part of a shard, with the values of its tables, and no files but those that these ask for."""
        bare = replace(self, parts=((), self.parts[1]))
        whole = replace(piece, shard=piece.shard._replace(partners=()))
        return bare._join(whole, only_key, on_error, bare.ahead(), None)

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
        copy, unpack = getattr(raw, "copy_file", None), decompress
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
                    self.of_tars,
                    key_rule=self.key,
                    lenient_end=self.lenient_end,
                    only_sizes=self.is_by_headers,
                    leaves_out=self.leaves_out,
                    **options,
                )
            else:
                reader, unpack = self._choose_reader(format, piece, raw, options)
            if copy is None:
                return reader(unpack(raw), **start)
            self._note_copy(whole or shard, str(copy.name))
            from_store = partial(self._open_store, shard)
            return CopySamples(lambda file, **at: reader(unpack(file), **at), copy, raw, from_store, **start)
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
        from wdspec.read.lookup import Lookup

        url, (joins, lookups) = piece.shard.text, self.parts
        tables = [
            Lookup(options, table, self.fields, self.storage)
            for options, table in zip(lookups, piece.shard.tables, strict=True)
        ]
        _read_from.value.pop((self.source, url), None)
        asks = (*(join.asks_for for join in joins), *(lookup.asks_for for lookup in lookups))
        if asked := {file.lower() for files in asks for file in files}:
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
                    self._partner_class(options)(
                        options,
                        partner.text,
                        partial(self._open_partner, piece.shard, options, partner, field_of, ahead, on_read),
                        partial(self._keys_of, piece.shard, ahead),
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

    def _partner_class(self, options: JoinOptions) -> Callable[..., Partner]:
        """Return what makes the partner of an entry of `join`."""
        if options.on is None:
            return Partner
        from wdspec.formats.tar.reader import splitter
        from wdspec.read.lookup import ValueOf
        from wdspec.read.named_partner import NamedPartner  # most joins are by key

        return partial(NamedPartner, value_of=ValueOf(options.on, self.fields), split=splitter(self.key))

    def _keys_of(self, shard: ShardUrl, ahead: Ahead | LocalFiles) -> list[str]:
        """Read the keys of the readable samples of a shard from its headers. Raises ShardError."""
        opener = replace(self.headers, leaves_out=None)
        with closing(opener.samples(Piece(shard), only_key, lambda error: None, ahead)) as samples:
            return [sample["__key__"] for sample in samples]

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
        opener = replace(
            self,
            format=options.format,
            may_be_empty=True,
            is_by_headers=only_keys,
            leaves_out=None,
            verify=None,
        )
        wanted = only_key if only_keys else options.field_of(field_of)
        piece = Piece(shard, stride, residue, offset, index)
        return opener.samples(piece, wanted, on_error, ahead, on_read, whole)

    def read_from_store(self, raw: Mapping[str, Any], error: Exception) -> dict[str, Any] | None:
        """Read a sample that could not be decoded again, from the store, if it was read from a cached copy.

        Args:
            raw: the sample; only entries about it, such as `__key__`, are used.
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
            "a sample of a copy cannot be decoded, so its shard is read from the store again: %s",
            error,
            extra=log_fields(error, source=self.source, url=url, key=key),
        )
        bare = replace(self, storage=replace(self.storage, cache=None), keeps_rows=False)
        try:
            with closing(bare(Piece(shard), on_error=lambda _: None)) as samples:
                found = next((sample for sample in samples if sample["__key__"] == key), None)
                return found and {**found, **{name: raw[name] for name in (PASS, COMPANIONS) if name in raw}}
        except (WdspecError, OSError) as cause:
            tell_place(error, store=f"cannot be read in its place: {cause}")
            return None
        finally:
            _read_from.value[self.source, url] = shard, paths  # a join forgets it when it opens the shard

    def try_again(
        self, raw: Mapping[str, Any], error: Exception, use: Callable[[dict[str, Any]], Used]
    ) -> Used:
        """Return what `use` returns for a sample as the store has it, after the same for a copy of it has failed.

        The copy is removed if that succeeds. Raises `error` if there is no copy, and whatever `use` raises.
        """
        stored = self.read_from_store(raw, error)
        if stored is None:
            raise error
        try:
            used = use(stored)
        except Exception:
            self.judge_copy(stored, is_damaged=False)
            raise
        self.judge_copy(stored, is_damaged=True)
        return used

    def judge_copy(self, raw: Mapping[str, Any], *, is_damaged: bool) -> None:
        """Remove the cached copy of a sample from `read_from_store` if it is damaged; otherwise trust it."""
        _, paths = _read_from.value[self.source, raw["__url__"]]
        for path in paths:
            if is_damaged:
                condemn(path)
            else:
                hold_for_faithful(path)

    def _choose_reader(
        self, format: Format, piece: Piece, raw: BinaryIO, options: Mapping[str, Any]
    ) -> tuple[Callable[..., RawSamples], Any]:
        """Return the reader of a format that is not tar, and what opens the bytes of a shard for it."""
        row = READERS[format]
        if row.unpack is as_it_is:
            request_only(raw, FIRST)
            raw.seekable()  # asks the store now, as for other formats: a refusal is then one of opening
            request_only(raw, None)
        is_first = not piece.shards or piece.shards[0].text == piece.shard.text
        surroundings = Surroundings(
            fetch_ahead=None if fetches_itself(raw) else cast(FetchAhead, ReadAhead),
            like=None if is_first else partial(self._columns_of, piece.shards[0]),
            tokens=self.tokens,
            open_beside=partial(self._open_beside, piece.shard),
            takes_all=self.fields.naming.takes_all,
            verify=self.verify,
            are_samples=self.fields.are_samples if self.keeps_rows else None,
        )
        return partial(row.read, surroundings=surroundings, **options), row.unpack

    def _open_beside(self, shard: ShardUrl, suffix: str) -> BinaryIO:
        """Open the file next to a shard whose name has another suffix."""
        name, sign, query = shard.text.partition("?")
        beside = ShardUrl(f"{name.rpartition('.')[0]}{suffix}{sign}{query}", shard.base)
        if self.is_local:
            return LocalFiles(self.storage.environment.directory).open(beside)
        return self.storage.for_any_files.open_watched(beside)

    def _seeks(self, shard: ShardUrl) -> bool:
        return seeks(format_of(shard.text, self.format))

    def _columns_of(self, first: ShardUrl) -> tuple[str, Mapping[str, str]] | None:
        """Return the URL of the first shard, and what its columns are; None if it cannot be read.

        Each process looks at it once.
        """
        known = _columns.value
        place = self.source, first.text
        if place not in known:
            known[place] = None
            with (
                contextlib.suppress(ShardError),
                closing(self.samples(Piece(first), str, _raise, self.ahead())) as samples,
            ):
                kinds = samples.kinds()
                known[place] = None if kinds is None else (first.text, kinds)
        return known[place]

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


def _raise(error: ShardError) -> None:
    raise error
