"""Objects that samples name: one is read whole, or is an error."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pkgutil import resolve_name
from struct import Struct
from time import monotonic
from typing import Any, BinaryIO, NamedTuple, Protocol

from wdspec.base.errors import (
    FieldError,
    MissingShardError,
    ShardError,
    StoreError,
    UrlError,
    WdspecError,
    find_lack,
)
from wdspec.base.redaction import redacted_urls
from wdspec.cache.reading import hold_for_faithful, is_faithful, read_in_its_place
from wdspec.cache.shard_cache import CopyFile
from wdspec.fields.decode import one_line
from wdspec.spec.language.fetching import FetchedObject
from wdspec.storage.known_objects import KnownObjects, describe_stream, find_change
from wdspec.storage.ranges import BLOCK, FIRST, ChangedIndexError, RangedFile, indexes, readers
from wdspec.storage.storage import Storage
from wdspec.stores.local import stat_open_file
from wdspec.stores.references import open_local, open_web, stat_web
from wdspec.stores.store import ObjectStat
from wdspec.stores.table import store_of
from wdspec.stores.watchdog import Watch
from wdspec.urls.references import Allowed
from wdspec.urls.urls import ShardUrl, is_command, local_path, scheme_of

log = logging.getLogger("wdspec")

_PIECE = 64 * 1024
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.{0,200}?-->\s*)?<(?:!doctype\s+html|html)[\s>]", re.I | re.DOTALL
)
_WRONG = (ValueError, RuntimeError, OverflowError, struct.error)
"""What libraries raise for files that they cannot read, and for numbers that they cannot represent."""
_PAGES = (".html", ".htm", ".xhtml")


class Reference(NamedTuple):
    """What a sample names."""

    url: str
    """The URL or absolute path of the object, before rewriting."""
    span: tuple[int, int] | None = None
    """The first byte and the one after the last; None for all."""
    sha256: str | None = None
    """The digest that the bytes must have."""
    seconds: tuple[float, float] | None = None
    """Where the part of a video or recording starts and ends; None for all."""
    of_header: bool = False
    """Whether only the size of an image is read, as `pack_size` writes it."""


_SIZE = Struct(">QQ")
START = 64 * 1024
"""Bytes of the start of an image that are read first for its header."""
_MOST_OF_HEADER = 4 * 1024 * 1024
_NEEDS_ALL = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""TIFF: its header is anywhere, and Pillow warns if it is cut."""


def pack_size(name: str, data: bytes) -> bytes:
    """Return the width and height of an image, which `unpack_size` reads.

    Args:
        name: of the field.
        data: the image, or its start.

    Raises:
        Exception: as `image_size`.
    """
    image_size = resolve_name("wdspec.fields.codecs.image_decoder:image_size")
    return _SIZE.pack(*image_size(data, name.lower().rpartition(".")[2]))


def unpack_size(packed: bytes) -> tuple[int, int]:
    """Return the width and height that `pack_size` wrote."""
    width, height = _SIZE.unpack(packed)
    return width, height


class MissingObject(FieldError):  # noqa: N818  # an answer, which `missing` decides about
    """An object does not exist."""


class Reading(Protocol):
    """What the reading of an object is for."""

    def reserve(self, size: int) -> None:
        """Called before more bytes are read than expected, with their number; may wait."""
        ...

    def note_open(self, stream: Any) -> None:
        """Called with the stream of the object, which may have an `abort` to end its reading."""
        ...


class _Alone:
    """A `Reading` that nothing else waits for."""

    def reserve(self, size: int) -> None: ...

    def note_open(self, stream: Any) -> None: ...


@dataclass(frozen=True)
class ObjectStorage(Storage):
    """How to reach objects that data choose: only what the spec allows is opened."""

    allowed: Allowed = field(default_factory=Allowed)
    stop: int | None = None
    """The byte after the last one that will be read of an object; None for all."""

    def open_location(self, location: str) -> BinaryIO:
        path = _check_kind(location)
        if path is not None:
            return open_local(path, self._local_root())
        store = store_of(location, self.users)
        if self._is_web(location):
            return open_web(location, self, self.allowed, self.stop)
        return store.open(location, self)

    def stat_location(self, location: str) -> ObjectStat:
        path = _check_kind(location)
        if path is not None:
            with open_local(path, self._local_root()) as file:
                return stat_open_file(file)
        if self._is_web(location):
            return stat_web(location, self, self.allowed)
        return super().stat_location(location)

    def _is_web(self, location: str) -> bool:
        return scheme_of(location) in ("http", "https") and scheme_of(location) not in self.users

    def _local_root(self) -> str:
        """Return the directory that local objects are in: the root, after rewriting."""
        root, located = self.allowed.root, None
        if root is not None:
            located = local_path(self.environment.locate(ShardUrl(root, "/"), self.rules, self.ais).location)
        if located is None:
            raise UrlError(
                "a rewrite rule makes a local file of this reference, but not of its `root`, so it is not known where "
                "it may be; write a rule that rewrites both"
            )
        return located


def _check_kind(location: str) -> str | None:
    """Return the path of a local object; None for others. Raises UrlError for a command."""
    if location == "-" or is_command(location):
        raise UrlError(
            "a rewrite rule makes a command of a reference, which would run data", location=location
        )
    return local_path(location)


@dataclass(frozen=True)
class ObjectReader:
    """Reads the objects of a field. It can be pickled, and compared."""

    name: str
    """Of the field."""
    storage: ObjectStorage

    @property
    def allowed(self) -> Allowed:
        """What may be read."""
        return self.storage.allowed

    @classmethod
    def of(cls, storage: Storage, entry: FetchedObject, name: str) -> ObjectReader:
        """Return what reads the objects of an entry of `fetch`, reached like the shards of its source."""
        storage = storage.for_any_files
        given: dict[str, Any] = {each.name: getattr(storage, each.name) for each in fields(Storage)}
        return cls(name, ObjectStorage(**given, allowed=Allowed(entry.root, entry.hosts)))

    def __hash__(self) -> int:
        return hash((self.name, self.storage.allowed))

    def __eq__(self, other: object) -> bool:
        return self is other

    def read(self, reference: Reference, most: int, expected: int, reading: Reading) -> bytes:
        """Return the bytes of an object.

        Args:
            reference: what to read.
            most: more bytes than this are an error.
            expected: how many bytes there probably are.
            reading: what it tells about the reading.

        Raises:
            MissingObject: there is no such object.
            FieldError: it cannot be read, or is not the right one.
            StoreError: no object of this store could be read.
        """
        copies: list[CopyFile] = []
        try:
            return self._read(self.storage, reference, most, expected, reading, copies)
        except MissingObject as error:
            if self.storage.known is None or self.storage.known.find(reference.url) is None:
                raise
            raise FieldError(f"{error.message}, but there was one when it was locked", code="D264") from error
        except FieldError as error:
            again = partial(self._read, self._uncached(reference), reference, most, expected, reading, [])
            return read_in_its_place(copies[0] if copies else None, error, again)

    def identify(self, reference: Reference) -> tuple[str, ObjectStat]:
        """Return where an object is, and its size and validator there, without reading it. Raises as `read`."""
        shard = ShardUrl(reference.url, "/")
        with _errors_of(reference):
            return self.storage.resolve(shard).location, self.storage.stat(shard)

    def read_again(self, reference: Reference, data: bytes, most: int) -> bytes | None:
        """Return the bytes that the store has, if they are not those of a cached copy, which is then deleted.

        Args:
            reference: what was read.
            data: what was read of it, and cannot be used.
            most: more bytes than this are an error.

        Returns:
            None if there is no copy, the store has the same bytes, or it cannot be read.
        """
        copy = self.storage.find_copy(ShardUrl(reference.url, "/"))
        if copy is None:
            return None
        with copy:
            if is_faithful(path := str(copy.name)):
                return None
            try:
                stored = self._read(self._uncached(reference), reference, most, len(data), _Alone(), [])
            except (WdspecError, OSError):
                return None
            if stored == data:
                hold_for_faithful(path)
                return None
            log.warning("a copy of an object is damaged, so it is read from the store again: %s", path)
            copy.discard()
            return stored

    def _uncached(self, reference: Reference) -> ObjectStorage:
        """Return the storage without its cache, after the index of a damaged copy is forgotten."""
        key = self, reference.url
        indexes.value.drop(key)
        while (idle := readers.value.take(key)) is not None:
            idle[1].close()
        return replace(self.storage, cache=None)

    def _read(
        self,
        storage: ObjectStorage,
        reference: Reference,
        most: int,
        expected: int,
        reading: Reading,
        copies: list[CopyFile],
    ) -> bytes:
        """As `read`, through a storage; adds the cached copy that is read, if it is one, to a list."""
        with _errors_of(reference):
            start, stop = reference.span or (0, None)
            if stop is not None and stop - start > most:
                raise ShardError(f"the range has {stop - start:,} bytes, {_too_many(most)}")
            if stop is not None and storage.cache is None:
                storage = replace(storage, stop=stop)
            clock = _Clock(storage.timeout, reference.url)
            stream = clock.stream = clock.run(storage.open, storage.resolve(ShardUrl(reference.url, "/")))
            if isinstance(stream, CopyFile):
                copies.append(stream)
            try:
                reading.note_open(stream)
                if reference.of_header:
                    data = self._read_size(stream, reference, most, reading, clock)
                elif reference.seconds is not None:
                    data = self._cut(stream, reference, most, reading, clock)
                else:
                    length = None if stop is None else stop - start
                    if length is not None and hasattr(stream, "span"):
                        stream.span = length  # what a store sends beyond is paid for
                    if start:
                        clock.run(stream.seek, start)
                    data = _read_all(stream, length, most, expected, reading, clock)
                if storage.known is not None:
                    _check_version(storage, storage.known, reference, stream, clock)
            finally:
                stream.close()
        self._check(reference, data)
        return data

    def _read_size(
        self, stream: Any, reference: Reference, most: int, reading: Reading, clock: _Clock
    ) -> bytes:
        """Return the size of an image, of which as much is read as its header needs."""
        data, upto, is_whole = bytearray(), min(START, most), False
        while True:
            with clock.pause():
                reading.reserve(upto)
            if hasattr(stream, "span"):
                stream.span = upto - len(data)
            while len(data) < upto and not is_whole:
                piece = clock.run(stream.read, upto - len(data))
                data += piece
                is_whole = not piece
            self._refuse_page(reference, bytes(data[:1024]))
            is_last = is_whole or upto >= min(_MOST_OF_HEADER, most)
            try:
                if is_last or not data.startswith(_NEEDS_ALL):
                    return pack_size(self.name, bytes(data))
            except Exception as cause:
                if is_last and not isinstance(cause, ImportError) and find_lack(cause) is None:
                    where = "" if is_whole else f" in its first {len(data):,} bytes"
                    raise FieldError(
                        f"the object {_show(reference)} has no header of an image{where}: {one_line(cause)}",
                        code="D264",
                    ) from cause
                if is_last:
                    raise
            upto = min(4 * upto, _MOST_OF_HEADER, most)

    def _cut(self, stream: Any, reference: Reference, most: int, reading: Reading, clock: _Clock) -> bytes:
        """Return a part of a video or recording, of which no more is read than the part needs."""

        read = decoded = 0

        def reserve(size: int) -> None:
            nonlocal read
            if size > most:
                raise ShardError(f"the part needs more than {most:,} bytes, {_too_many(most)}")
            read = size
            with clock.pause():
                reading.reserve(read + decoded)

        def reserve_decoded(size: int) -> None:
            nonlocal decoded
            decoded = size
            with clock.pause():
                reading.reserve(read + decoded)

        key = self, reference.url
        index = indexes.value.get(key)
        if hasattr(stream, "span"):
            stream.span = FIRST * BLOCK  # whether it can seek is seen in the answer to a request
        idle = readers.value.take(key)
        if idle is None and index is None and not clock.run(stream.seekable):
            data = _read_all(stream, None, most, 0, reading, clock)
            read = len(data)
            return self._cut_file(io.BytesIO(data), reference, most, clock, reserve_decoded)
        file, medium = idle or (RangedFile(stream, reserve, index), None)
        file.renew(stream, reserve)
        while True:
            try:
                return self._cut_file(file, reference, most, clock, reserve_decoded, key, medium)
            except ChangedIndexError:
                indexes.value.drop(key)
                read = decoded = 0
                file, medium = RangedFile(stream, reserve), None

    def _cut_file(
        self,
        file: BinaryIO | RangedFile,
        reference: Reference,
        most: int,
        clock: _Clock,
        reserve: Callable[[int], None],
        key: Any = None,
        medium: Any = None,
    ) -> bytes:
        """Return a part of a file.

        Args:
            key: its index is kept under it, and what reads the file.
            medium: what reads the file, if that is open.
        """
        open_medium = resolve_name("wdspec.fields.codecs.spans:open_medium")  # needs numpy
        assert reference.seconds is not None, "it is cut"
        try:
            with contextlib.ExitStack() as closing:
                if medium is None:
                    self._refuse_page(reference, clock.run(file.read, 1024))
                    file.seek(0)
                    medium = clock.run(open_medium, file)
                closing.callback(medium.close)
                _raise_lost(file)
                index = file.index() if isinstance(file, RangedFile) else None
                if index is not None:
                    indexes.value.put(key, index)
                data: bytes = clock.run(medium.cut, *reference.seconds, most, reserve)
                _raise_lost(file)
                if len(data) > most:
                    raise ShardError(f"the part has {len(data):,} bytes, {_too_many(most)}")
                if isinstance(file, RangedFile):
                    clock.run(file.confirm)
                    if index is not None and medium.can_cut_again:
                        medium.rest()
                        file.rest(index)
                        closing.pop_all()
                        readers.value.put(key, file, medium)
        except Exception as cause:
            if isinstance(file, RangedFile) and file.error is not None:
                raise file.error from None  # libraries know only that there are no more bytes
            if isinstance(cause, WdspecError) or not isinstance(cause, _WRONG):
                raise
            if isinstance(file, RangedFile):
                clock.run(file.confirm)  # an old index may be what is wrong
            raise FieldError(
                f"the object {_show(reference)} has no such part: {one_line(cause)}; correct `seconds`, or skip such "
                "samples with `errors: skip`",
                code="D264",
            ) from cause
        return data

    def _check(self, reference: Reference, data: bytes) -> None:
        """Raise FieldError for bytes that are not those of the right object."""
        if reference.of_header:
            return
        if reference.span is not None and len(data) < reference.span[1] - reference.span[0]:
            start, stop = reference.span
            raise FieldError(
                f"the object {_show(reference)} ends at byte {start + len(data):,}, before byte {stop:,}, where the "
                "range ends; correct the range, or the object",
                code="D264",
            )
        if reference.sha256 is not None and hashlib.sha256(data).hexdigest() != reference.sha256:
            raise FieldError(
                f"the object {_show(reference)} has another SHA-256 digest than the sample says: it has changed, or "
                "the sample is wrong",
                code="D264",
            )
        if reference.span is None and reference.seconds is None:
            self._refuse_page(reference, data)

    def _refuse_page(self, reference: Reference, data: bytes) -> None:
        """Raise FieldError for an HTML page, unless one is expected."""
        path = reference.url.partition("?")[0].lower()
        if (
            not path.endswith(_PAGES)
            and not f".{self.name}".lower().endswith(_PAGES)
            and _PAGE.match(data[:1024])
        ):
            raise FieldError(
                f"the object {_show(reference)} is an HTML page; servers send one instead of a status such as 404, or "
                "to ask for a login. Correct the reference, or end the name of the field in `html`",
                code="D264",
            )


class _Clock:
    """Ends the reading of an object after some seconds in total."""

    def __init__(self, seconds: float, url: str) -> None:
        self._watch, self._seconds = Watch(seconds, "", url), seconds
        self._end = monotonic() + seconds

    @property
    def stream(self) -> Any:
        """The stream that is ended."""
        return self._watch.stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._watch.stream = stream

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that may take too long. Raises ShardError if it does."""
        self._watch.seconds = max(0.001, self._end - monotonic())
        try:
            return self._watch.run(function, *arguments)
        except ShardError as error:
            if monotonic() < self._end:
                raise
            raise ShardError(
                f"it took more than {self._seconds:g} s (`errors: {{timeout: …}}`); check whether its store or "
                "network hangs, or allow more"
            ) from error

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Do not count the time that is spent in the block."""
        since, left = monotonic(), self._watch.seconds
        self._watch.seconds = math.inf
        try:
            yield
        finally:
            waited = monotonic() - since
            self._end, self._watch.seconds = self._end + waited, left + waited


@contextlib.contextmanager
def _errors_of(reference: Reference) -> Iterator[None]:
    """Raise what fails in the block as an error of the object, unless it is one of the store or the machine."""
    try:
        yield
    except GeneratorExit:  # at exit, the names below may already be None
        raise
    except (MissingShardError, FileNotFoundError) as error:
        raise MissingObject(f"there is no object {_show(reference, error)}", code="D262") from error
    except StoreError:
        raise
    except (ShardError, UrlError) as error:
        raise FieldError(
            f"the object {_show(reference, error)} cannot be fetched: {error.message}", code="D263"
        ) from error
    except OSError as error:
        if find_lack(error) is not None:
            raise
        raise FieldError(
            f"the object {_show(reference, error)} cannot be fetched: {error}", code="D263"
        ) from error


def _check_version(
    storage: ObjectStorage, known: KnownObjects, reference: Reference, stream: Any, clock: _Clock
) -> None:
    """Raise FieldError for an object that is not the one in the lock, as far as is known."""
    record, shard = known.find(reference.url), ShardUrl(reference.url, "/")
    if record is None:
        raise FieldError(
            f"the object {_show(reference)} is not in the lock `{known.lock}`: the shards, the spec or the object have "
            "changed; `wdspec lock --objects SPEC` adds it",
            code="D264",
        )
    location = storage.resolve(shard).location
    now = describe_stream(record, stream, location, partial(clock.run, storage.stat, shard))
    change, _ = find_change(record, known.base, location, now)
    if change is not None:
        raise FieldError(
            f"the object {_show(reference)} is not the one in the lock `{known.lock}`: {change}; restore it, or lock "
            "it as it is now with `wdspec lock --objects --update SPEC`",
            code="D264",
        )


def _read_all(
    stream: Any, length: int | None, most: int, expected: int, reading: Reading, clock: _Clock
) -> bytes:
    """Return the bytes of a stream, or so many of them."""
    pieces, size, most_read = [], 0, expected + expected // 8 + _PIECE
    known = length
    if known is None and hasattr(stream, "measure"):
        known = clock.run(stream.measure)
    if known is not None and known > most_read:
        _check_fits(known, most)
        with clock.pause():
            reading.reserve(known)
        most_read = known
    if hasattr(stream, "piece"):
        stream.piece = most_read  # an object of known length is one piece, which is not copied
    while length is None or size < length:
        wanted = most_read if length is None else min(most_read, length - size)
        if size:  # more than expected
            left = getattr(stream, "left", None)
            if left == 0:
                break
            wanted = wanted if left is None else min(wanted, left)
            with clock.pause():
                reading.reserve(size + wanted)
        piece = clock.run(stream.read, wanted)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
        _check_fits(size, most)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check_fits(size: int, most: int) -> None:
    if size > most:
        raise ShardError(f"it has more than {most:,} bytes, {_too_many(most)}")


def _raise_lost(file: BinaryIO | RangedFile) -> None:
    """Raise the error of a file that libraries took for its end: what they made of it may lack something."""
    if isinstance(file, RangedFile) and file.error is not None:
        raise file.error


def _too_many(most: int) -> str:
    return f"but `loader: {{fetch_memory: …}}` is {most:,}; raise it if that is right"


def _show(reference: Reference, error: BaseException | None = None) -> str:
    """Return a reference for messages, without secrets, and where it leads if that is not the same."""
    location = getattr(error, "place", {}).get("location")
    where = f" ({redacted_urls(str(location))[:200]})" if location and location != reference.url else ""
    return f"`{redacted_urls(reference.url)[:200]}`{where}"
