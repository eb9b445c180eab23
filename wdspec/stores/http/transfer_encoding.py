"""Bodies that a server compressed for the transfer, although it was asked not to."""

from __future__ import annotations

import zlib

from wdspec.errors import ShardError
from wdspec.formats.compression.kinds import BY_NAME, LONGEST_MAGIC, compression_of
from wdspec.streams.resuming_stream import ResponseBody
from wdspec.streams.retrying import TransientError

ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
"""Values of `Content-Encoding` that can be undone."""

_INPUT = 64 * 1024
_GZIP = BY_NAME["gz"]


def transferred(body: ResponseBody, encoding: str, path: str) -> tuple[ResponseBody, bool]:
    """The body as it was before the transfer, and whether it had to be changed for that.

    Some servers put `Content-Encoding: gzip` on a `.tar.gz` that they send as it is. So for such names the
    encoding is undone only if a gzip file comes out.

    Args:
        body: from its first byte on.
        encoding: the `Content-Encoding`.
        path: of the URL, without a query.

    Raises:
        TransientError: the body is cut.
        ShardError: an encoding that cannot be undone.
    """
    if encoding not in ENCODINGS:
        raise ShardError(
            f"the server compresses with `{encoding}` although it was asked for plain bytes; switch that off for "
            "shards in its configuration"
        )
    start = b""
    while len(start) < LONGEST_MAGIC and (piece := body.read(_INPUT)):
        start += piece
    if not start:
        return body, False
    if compression_of(path) is _GZIP and not _GZIP.magic.match(_opened(start)):
        return _RejoinedBody(start, body), False
    return DecodedBody(_RejoinedBody(start, body)), True


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
        self._begun = False

    def read(self, size: int) -> bytes:
        while True:
            data = self._input or self._body.read(_INPUT)
            decoder = self._decoder
            if not data:
                if decoder.eof or not self._begun:
                    return b""
                raise TransientError("the compressed transfer stops in the middle")
            if decoder.eof:  # one gzip stream behind the other
                decoder = self._decoder = _decoder()
            try:
                out = decoder.decompress(data, size)
            except zlib.error as error:
                raise TransientError(f"the compressed transfer is damaged: {error}") from error
            self._begun = True
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


def _opened(start: bytes) -> bytes:
    try:
        return _decoder().decompress(start, LONGEST_MAGIC)
    except zlib.error:
        return b""
