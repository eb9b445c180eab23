"""`LanceStore`: Lance data sets, which Lance's library opens and reads itself, on local disks and in object stores.

A shard is a fragment: the rows of a data set that were written together. Its name has the number of the version, which
never changes, such as `a.lance?version=7&fragment=0`. Its bytes, for checksums, are what the data set says about it.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from wdspec.base.errors import (
    MissingShardError,
    RefusedShardError,
    ShardError,
    StoreError,
    UnusableStoreError,
    WdspecError,
)
from wdspec.base.files import RawStream
from wdspec.base.process import PerProcess
from wdspec.formats.blocks import REFETCH
from wdspec.formats.lance import USER, keep_after_fork, open_library, reporting, size_of
from wdspec.spec.language.decoders import library
from wdspec.stores.local import open_file, translate_error
from wdspec.stores.store import ObjectStat, Store, StoreSettings
from wdspec.urls.urls import ROWS, LanceUrl, lance_url, path_of_file_url, scheme_of

_MOST_OPEN = 16
"""Data sets that a process keeps open."""
_open: PerProcess[dict[tuple[Any, ...], Any]] = PerProcess(dict, keep_after_fork)
"""The data sets that this process has opened last, by place, version and options."""
_lock = PerProcess(threading.Lock)
"""Held while they change."""

_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "endpoint_url": "aws_endpoint",
        "client_kwargs.region_name": "aws_region",
        "anon": "aws_skip_signature",
        "key": "aws_access_key_id",
        "secret": "aws_secret_access_key",
        "token": "aws_session_token",
        "requester_pays": "aws_request_payer",
    },
    "gs": {"token": "google_service_account"},
    "az": {
        "anon": "azure_skip_signature",
        "account_name": "azure_storage_account_name",
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_token",
        "tenant_id": "azure_storage_tenant_id",
        "client_id": "azure_storage_client_id",
        "client_secret": "azure_storage_client_secret",
    },
}
"""For each store that the library reads, the arguments of fsspec's file system and the same of the library."""


_FOOTER = struct.Struct("<QQQIIHH4s")
"""The end of a file of values: where the descriptions of columns, their places and those of buffers start, the numbers
of buffers and columns, and the version."""
_MISSING = re.compile(r"(?i)not found|does not exist|no such file")
_NO_LOGIN = re.compile(
    r"(?i)unauthorized|invalidaccesskey|(?:expired|invalid) ?token|valid authentication|status(?: code)?: 401"
)
_REFUSED = re.compile(
    r"(?i)access ?denied|permission denied|forbidden|necessary privileges|status(?: code)?: 403"
)
_OF_STORE = re.compile(
    r"Generic (?!LocalFileSystem)\w+ error|(?:\A|: )Not found: |\(os error \d+\)|necessary privileges|"
    "valid authentication"
)
"""Messages of the library. The last ones, within a scan, are no damage of the values."""


class FragmentFile(RawStream):
    """A fragment of a data set, and its description as bytes."""

    def __init__(self, fragment: Any, location: str) -> None:
        self.fragment = fragment
        """`lance.LanceFragment`."""
        self._location = location
        self._bytes = io.BytesIO(_describe(fragment))

    def explain(self, text: str) -> ShardError | None:
        """Return our error for a message of a scan; None if it is about damage."""
        return _translate(text, self._location) if _OF_STORE.search(text) else None

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._bytes.seek(offset, whence)

    def tell(self) -> int:
        return self._bytes.tell()

    def read(self, size: int = -1) -> bytes:
        return self._bytes.read(size)


class LanceStore(Store):
    """Lance data sets."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        fragment = _find_fragment(location, settings)
        try:
            _check_files(fragment, cast(LanceUrl, lance_url(location)).folder)
        except WdspecError as error:
            raise error.at(location=location) from None
        except OSError as error:
            raise translate_error(error, location) from None
        with _explaining(location):
            return cast(BinaryIO, FragmentFile(fragment, location))

    def list(self, root: str, pattern: str, settings: StoreSettings) -> list[str]:
        """Return what follows the name of the data set in those of its fragments, in their order."""
        dataset = _open_dataset(root, settings)
        with _explaining(root):
            return [
                f"?version={dataset.version}&fragment={each.fragment_id}"
                for each in dataset.get_fragments()
                if each.count_rows()
            ]

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        import hashlib

        fragment = _find_fragment(location, settings)
        digest = hashlib.blake2b(_describe(fragment), digest_size=16).hexdigest()
        return ObjectStat(size_of(fragment.metadata), f"fragment {digest}")

    @property
    def writes(self) -> bool:
        return False

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "Lance's library"


def _check_files(fragment: Any, folder: str) -> None:
    """Check the sizes in and of the files of a local fragment. The library trusts them: absurd ones end the process.

    Raises:
        ShardError: a file is missing, truncated or damaged.
        OSError: a file cannot be read.
    """
    if scheme_of(folder) not in ("", "file"):
        return
    for file in fragment.metadata.files:
        if file.base_id is None:
            _check_data(os.path.join(_uri_of(folder), "data", file.path), file.file_size_bytes)
    deleted = fragment.metadata.deletion_file
    if deleted is not None and deleted.file_type == "array" and deleted.base_id is None:
        ipc = library("pyarrow.ipc", USER)
        path = os.path.join(_uri_of(folder), deleted.path(fragment.fragment_id))
        with open_file(path) as file:
            data = file.read()
        try:
            with reporting(), ipc.open_file(data) as rows:
                rows.read_all().validate(full=True)
        except WdspecError:
            raise
        except ValueError as error:
            raise ShardError(
                f"damaged: the list of deleted rows in `{path}`: {error}; {REFETCH}", code="D121"
            ) from error


def _check_data(path: str, wanted: int | None) -> None:
    """Check the size of a file of values, and its last bytes: where its descriptions are."""
    with open_file(path) as file:
        size = file.seek(0, io.SEEK_END)
        least = max(wanted or 0, _FOOTER.size)
        if size < least:
            raise ShardError(
                f"truncated: `{path}` ends at byte {size:,}, but has {least:,}; {REFETCH}",
                code="D107",
            )
        file.seek(-_FOOTER.size, io.SEEK_END)
        columns_at, offsets_at, buffers_at, buffers, columns, major, _, mark = _FOOTER.unpack(
            file.read(_FOOTER.size)
        )
        ends = columns_at, offsets_at + 16 * columns, buffers_at + 16 * buffers, size
        if mark == b"LANC" and major < 2:  # the format before version 2
            return
        is_wrong = size != (wanted or size) or mark != b"LANC" or list(ends) != sorted(ends)
        if not is_wrong:
            file.seek(offsets_at)
            table = file.read(size - offsets_at)
            for start, places in ((0, columns), (buffers_at - offsets_at, buffers)):
                for at, length in struct.iter_unpack("<QQ", table[start : start + 16 * places]):
                    is_wrong = is_wrong or at + length > size
    if is_wrong:
        raise ShardError(f"damaged: the sizes in `{path}` do not fit; {REFETCH}", code="D121")


def _describe(fragment: Any) -> bytes:
    return json.dumps(fragment.metadata.to_json(), sort_keys=True, default=str).encode()


def _find_fragment(location: str, settings: StoreSettings) -> Any:
    number = cast(LanceUrl, lance_url(location)).fragment
    if number is None:
        raise ShardError("a Lance data set, in place of one fragment of it", location=location)
    dataset = _open_dataset(location, settings)
    with _explaining(location):
        fragment = dataset.get_fragment(number)
    if fragment is None:
        raise MissingShardError(
            f"version {dataset.version} of the data set has no fragment {number}", location=location
        )
    return fragment


def _open_dataset(location: str, settings: StoreSettings) -> Any:
    """Return the data set of a location at its version.

    Raises:
        MissingShardError: there is no such data set, or no such version of it.
        ShardError: it cannot be read, or is damaged.
        StoreError: its library cannot read the store, or has no such setting.
        UsageError: the library is not installed.
    """
    lance, place = open_library(), cast(LanceUrl, lance_url(location))
    options = _options_of(place.folder, settings)
    version = (
        None if place.version is None else int(place.version) if _is_number(place.version) else place.version
    )
    key = place.folder, version, *sorted(options.items())
    opened = _open.value
    if type(version) is int and (found := opened.get(key)) is not None:  # another thread may remove it
        return found
    with _explaining(location):
        dataset = lance.dataset(_uri_of(place.folder), version=version, storage_options=options or None)
    with _lock.value:
        opened[place.folder, dataset.version, *sorted(options.items())] = dataset
        while len(opened) > _MOST_OPEN:
            opened.pop(next(iter(opened)), None)
    return dataset


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _uri_of(folder: str) -> str:
    scheme = scheme_of(folder)
    if scheme == "file":
        return path_of_file_url(folder)
    aliases = {"s3a": "s3", "gcs": "gs", "abfs": "az"}
    return folder if scheme not in aliases else aliases[scheme] + folder[len(scheme) :]


def _options_of(folder: str, settings: StoreSettings) -> dict[str, str]:
    """Return the options by which the library reaches a store: those of `storage:`, and of fsspec's variables.

    Raises:
        StoreError: the library cannot read the store, or has no such option.
    """
    scheme = scheme_of(folder)
    if scheme in ("", "file"):
        return {}
    kind = next((kind for kind in _OPTIONS if scheme in ROWS[kind].schemes), None)
    if kind is None:
        where = "through AIStore" if folder.startswith("ais") else f"from {scheme}://"
        raise StoreError(
            f"Lance's library reads this data set itself, and cannot do so {where}; use a local folder, or one in "
            "s3://, gs:// or az://",
            location=folder,
        )
    from fsspec.config import conf

    said = {} if settings.login is None else settings.login.arguments(scheme)
    configured = {name: value for each in ROWS[kind].schemes for name, value in conf.get(each, {}).items()}
    given: dict[str, Any] = {}
    for name, value in {**configured, **said}.items():
        given |= (
            {f"{name}.{each}": value[each] for each in value} if isinstance(value, dict) else {name: value}
        )
    found = {
        "client_retry_timeout": str(max(1, int(settings.retry_policy.budget))),
        "request_timeout": f"{max(1, int(settings.retry_policy.read_timeout))}s",
    }
    for name, value in given.items():
        if (kind, name, value) == ("gs", "token", "anon"):
            found["google_skip_signature"] = "true"
        elif name in _OPTIONS[kind]:
            found[_OPTIONS[kind][name]] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise StoreError(
                f"Lance's library reads this data set itself, and has no setting like `{name}` of {scheme}://; it has "
                f"{', '.join(f'`{each}`' for each in _OPTIONS[kind])}, and the variables of the environment",
                location=folder,
            )
    if kind == "s3":
        variables = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        if endpoint := found.get("aws_endpoint") or next(filter(None, variables), None):
            found |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return found


@contextmanager
def _explaining(location: str) -> Iterator[None]:
    """Raise errors of the library as ours."""
    try:
        with reporting():
            yield
    except GeneratorExit:  # at exit, names of this module may be gone
        raise
    except WdspecError as error:
        raise error.at(location=location) from None
    except ValueError as error:
        raise _translate(str(error), location) from None


def _translate(text: str, location: str) -> ShardError:
    """Return our error for an error of the library, which has hardly any types of its own."""
    place = cast(LanceUrl, lance_url(location))
    path = _uri_of(place.folder).partition("://")[2] or _uri_of(place.folder)
    plain = text
    for name in (path.strip("/"), path.strip("/").partition("/")[2], os.path.basename(path)):
        plain = plain.replace(name, "") if name else plain
    is_login = _NO_LOGIN.search(plain) is not None
    if is_login or _REFUSED.search(plain):
        advice = ROWS[scheme_of(location)].advice if scheme_of(location) in ROWS else None
        return (UnusableStoreError if is_login else RefusedShardError)(
            f"the store denies access ({text}); {advice or 'ask its owner, or check which user runs this process'}",
            location=location,
        )
    if not _MISSING.search(plain):
        return ShardError(f"the data set cannot be opened or read: {text}", code="D102", location=location)
    what = "no Lance data set" if place.version is None else f"no version {place.version} of a Lance data set"
    hint = "correct the name: the folder of a data set has `_versions` in it"
    if place.version is not None:
        hint = "name another version, and give those that you need a tag, so that no cleanup removes them"
    return MissingShardError(f"{what} is there ({text}); {hint}", location=location)
