"""HTTP answers: whether to retry, which bytes of which object they have, and bodies compressed for the transfer."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import responses

from wdspec.base.errors import MissingShardError, RefusedShardError, ShardError, UnusableStoreError
from wdspec.formats.blocks import BLOCK
from wdspec.formats.compression import BY_NAME, LONGEST_MAGIC, compression_of, recognize
from wdspec.formats.tar.headers import begins_tar
from wdspec.spec.language.values import BARE
from wdspec.stores.resume import ResponseBody
from wdspec.stores.retry import PASSING, TransientError

_NO_ENCODINGS = ("identity", "aws-chunked")  # uploads to S3 leave the second one behind
_NUMBER = "[0-9]{1,19}"
_RANGE = re.compile(rf"bytes ({_NUMBER})-({_NUMBER})/({_NUMBER}|\*)")
_NO_RANGE = re.compile(rf"bytes \*/({_NUMBER})")
_ADVICE = {
    400: "check the URL, and the signature if it has one",
    401: "give `user:password@` in the URL, or an entry for this host in ~/.netrc",
    403: "check who may read it; a signed URL may have expired",
    407: "give `user:password@` in the proxy's URL (HTTP_PROXY, HTTPS_PROXY)",
    451: "read it from elsewhere with WDS_REWRITE or, in a spec, `rewrite:`",
}


@dataclass(frozen=True)
class Extent:
    """The bytes of an object that an answer has.

    ``total`` is None if unknown. ``validator`` is the ETag, unless it is weak, else the time of the last change.
    ``encoding`` is the `Content-Encoding`, which the server adds for the transfer or which the object always has.
    """

    start: int
    length: int | None
    total: int | None
    validator: str | None
    ranges: bool
    encoding: str


def raise_for_status(
    status: int, headers: Mapping[str, str], excerpt: str, login: str = "", has_certificate: bool = True
) -> None:
    """Raise unless the answer has the requested bytes.

    Args:
        status: 200 and 206 are fine; 416 is left to `extent_of`.
        headers: names in any case.
        excerpt: the start of the server's message.
        login: where the login that was sent is from; "" without one.
        has_certificate: whether a client certificate was sent, or is of no use.

    Raises:
        TransientError: a status that may pass, with the `Retry-After` of the answer.
        MissingShardError: 404 or 410.
        ShardError: any other; UnusableStoreError if the login is refused.
    """
    if status in (200, 206, 416):
        return
    said = f"status {status} {responses.get(status, '')}".rstrip() + (f": {excerpt}" if excerpt else "")
    if status in PASSING:
        raise TransientError(said, retry_after=retry_after(headers.get("retry-after")))
    if status in (404, 410):
        raise MissingShardError(
            f"no such object, says the server: {said}; correct the URL, or rewrite it with "
            "WDS_REWRITE or, in a spec, `rewrite:`"
        )
    advice = _ADVICE.get(status, "check the URL")
    if status == 401 and login:
        advice = f"the login in {login} is not accepted: correct it"
    if status in (400, 403) and not has_certificate:
        advice += ", or name a client certificate in WDS_CLIENT_CERT, if the server asks for one"
    kind = {401: UnusableStoreError, 407: UnusableStoreError, 403: RefusedShardError}.get(status, ShardError)
    raise kind(f"the server refuses: {said}; {advice}")


def extent_of(status: int, headers: Mapping[str, str], start: int, *, is_range: bool | None = None) -> Extent:
    """The bytes in a 200, 206 or 416, for a request from byte `start` on.

    Args:
        status: of the answer.
        headers: names in any case.
        start: the offset of the first byte.
        is_range: whether a range was requested; None: unless `start` is 0.

    Raises:
        TransientError: other bytes than requested, or headers that contradict each other.
        ShardError: the answer is in several parts.
    """
    length = _length(headers)
    encoding = (headers.get("content-encoding") or "").strip().lower()
    encoding = "" if encoding in _NO_ENCODINGS else encoding
    etag = headers.get("etag") or ""
    # A weak ETag may stay when the bytes change.
    validator = headers.get("last-modified") if etag.startswith("W/") or not etag else etag
    if status == 416:
        return _beyond_the_end(headers, start, validator, bool(start) if is_range is None else is_range)
    if status == 200:
        ranges = (headers.get("accept-ranges") or "bytes").strip().lower() != "none"
        return Extent(0, length, length, validator, ranges, encoding)
    if (headers.get("content-type") or "").lower().startswith("multipart/byteranges"):
        raise ShardError(
            "the server answers a request for one range with several parts; it cannot be read with ranges"
        )
    said = (headers.get("content-range") or "")[:100]
    match = _RANGE.fullmatch(said.strip())
    if match is None:
        raise TransientError(
            f"status 206 with the Content-Range `{said}`, which does not say which bytes came"
        )
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if first != start or last < first or (total is not None and last >= total):
        raise TransientError(f"the request was for bytes from {start} on, but the Content-Range is `{said}`")
    if length is not None and length != last - first + 1:
        raise TransientError(f"the Content-Range is `{said}`, but the Content-Length {length}")
    return Extent(first, last - first + 1, total, validator, True, encoding)


def check_has_end(headers: Mapping[str, str], path: str) -> None:
    """Raise ShardError if neither the answer nor the file says where it ends: a cut one would look complete."""
    if path.lower().endswith(BARE) and not ("content-length" in headers or "transfer-encoding" in headers):
        compressed = " Compressing for the transfer may be the cause." * ("content-encoding" in headers)
        raise ShardError(
            f"the server neither says the length of the object nor sends it in chunks, and `{BARE}` files do not say "
            f"how long they are: a cut one would look complete.{compressed} Let the server send `Content-Length`, or "
            "copy the file to another store"
        )


def _beyond_the_end(headers: Mapping[str, str], start: int, validator: str | None, is_range: bool) -> Extent:
    """No bytes, from the end of the object; the length shows whether the object changed."""
    if not is_range:
        raise TransientError("the server refuses a range of bytes (status 416) for a request without a range")
    said = (headers.get("content-range") or "")[:100]
    match = _NO_RANGE.fullmatch(said.strip())
    if match is None or int(match[1]) > start:
        raise TransientError(
            f"bytes from {start} on are refused with status 416 and the Content-Range `{said}`"
        )
    return Extent(start, 0, int(match[1]), validator, True, "")


def _length(headers: Mapping[str, str]) -> int | None:
    said = headers.get("content-length")
    if said is None or "chunked" in (headers.get("transfer-encoding") or "").lower():
        return None
    values = {each.strip() for each in said.split(",")}
    length = read_number(values.pop())
    if values or length is None:
        raise TransientError(f"the Content-Length is `{said[:100]}`, which is not a number of bytes")
    return length


def read_number(text: str | None) -> int | None:
    """The number in a header of at most 19 digits; None for anything else."""
    return int(text) if text and re.fullmatch(_NUMBER, text.strip()) else None


def retry_after(said: str | None) -> float | None:
    """Seconds to wait, from a number or a date."""
    if not said:
        return None
    if (seconds := read_number(said)) is not None:
        return float(seconds)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
"""Values of `Content-Encoding` that can be decoded."""

_TABLES = (b"PAR1", b"ARROW1", b"{")
"""How Parquet, Arrow and JSON lines start."""
_MEDIA = (
    b"\xff\xd8\xff",
    b"\x89PNG",
    b"GIF8",
    b"RIFF",
    b"fLaC",
    b"OggS",
    b"ID3",
    b"\x1aE\xdf\xa3",
    b"\x93NUMPY",
)
"""How images, recordings, videos and arrays start that data name (`fetch`); see also `ftyp`."""
_INPUT = 64 * 1024
_GZIP = BY_NAME["gz"]


def decode_transfer(body: ResponseBody, encoding: str, path: str) -> tuple[ResponseBody, bool]:
    """The body of a whole object without its transfer encoding, and whether it had one.

    Some servers label files with `Content-Encoding: gzip` that they send as they are: a `.tar.gz`, or even a plain tar.
    So the bytes decide. For names that end in `.gz`, the body is decoded only if the result is a gzip file.

    Raises TransientError if the body is cut, and ShardError for an unknown encoding, or bytes that do not have it.
    """
    start = b""
    while len(start) < BLOCK and (piece := body.read(_INPUT)):
        start += piece
    if not start:
        return body, False
    found, whole = recognize(start), _RejoinedBody(start, body)
    inner = _decode_start(start) if found is _GZIP or encoding == "deflate" else None
    if inner is not None and encoding in ENCODINGS:
        is_file = compression_of(path) is _GZIP and not _GZIP.magic.match(inner)
        return (whole, False) if is_file else (DecodedBody(whole), True)
    is_known = start.startswith((*_TABLES, *_MEDIA)) or start[4:8] == b"ftyp" or begins_tar(start[:BLOCK])
    if found is None and not is_known:
        raise ShardError(
            f"the server says that it compresses with `{encoding}`, which was not requested, but "
            + (f"the bytes start with {start[:12]!r}" if encoding in ENCODINGS else "wdspec cannot undo that")
            + "; switch off `Content-Encoding` for shards in its configuration"
        )
    return whole, False


class _WrappedBody:
    """A body that ends when the one inside it does."""

    def __init__(self, body: ResponseBody) -> None:
        self._body = body

    def close(self) -> None:
        self._body.close()

    def abort(self) -> None:
        self._body.abort()


class DecodedBody(_WrappedBody):
    """A body without the gzip or deflate around it; its checksum is checked."""

    def __init__(self, body: ResponseBody) -> None:
        super().__init__(body)
        self._decoder = _decoder()
        self._input = b""
        self._started = False

    def read(self, size: int) -> bytes:
        while True:
            data = self._input or self._body.read(_INPUT)
            decoder = self._decoder
            if not data:
                if decoder.eof or not self._started:
                    return b""
                raise TransientError("the compressed transfer stops in the middle")
            if decoder.eof:  # several gzip streams in a row
                decoder = self._decoder = _decoder()
            try:
                out = decoder.decompress(data, size)
            except zlib.error as error:
                raise TransientError(f"the compressed transfer is damaged: {error}") from error
            self._started = True
            self._input = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            if out:
                return out


class _RejoinedBody(_WrappedBody):
    """A body with the bytes already read from its start put back."""

    def __init__(self, start: bytes, body: ResponseBody) -> None:
        super().__init__(body)
        self._start = start

    def read(self, size: int) -> bytes:
        if self._start:
            data, self._start = self._start[:size], self._start[size:]
            return data
        return self._body.read(size)


def _decoder() -> zlib._Decompress:
    return zlib.decompressobj(wbits=47)


def _decode_start(start: bytes) -> bytes | None:
    try:
        return _decoder().decompress(start, LONGEST_MAGIC)
    except zlib.error:
        return None
