"""Whether compressed data is whole and undamaged, told while it comes: by its own checksums and its own end."""

from __future__ import annotations

from wdspec.errors import ShardError, UsageError
from wdspec.formats.compression.kinds import LONGEST_MAGIC, Compression, Decompressor, recognised

_OUTPUT = 1024 * 1024


class IntegrityCheck:
    """Takes a file piece by piece, decompresses it if it is compressed, and keeps its first and last bytes.

    Args:
        kept: bytes of each end that are kept, uncompressed.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self.start = b""
        self.end = b""
        self.size = 0
        """Bytes so far, uncompressed."""
        self.known = True
        """Whether what came could be looked at: not without the library for zstd."""
        self._magic: bytes | None = b""
        self._compression: Compression | None = None
        self._stream: Decompressor | None = None
        self._taken = 0

    def feed(self, piece: bytes) -> None:
        """The next bytes of the file. Raises ShardError where they are damaged."""
        if self._magic is not None:
            self._magic += piece
            if len(self._magic) < LONGEST_MAGIC:
                return
            piece = self._begin()
        self._take(piece)

    def finish(self) -> None:
        """Says that this was all. Raises ShardError where something is missing."""
        if self._magic is not None:
            self._take(self._begin())
        if self._stream is not None and not self._stream.eof and self._compression is not None:
            raise ShardError(
                f"truncated: the {self._compression.title} data stops after {self._taken} bytes in the middle of a "
                "stream; fetch or write the shard again",
                code="D114",
            )

    def _begin(self) -> bytes:
        start, self._magic = self._magic or b"", None
        self._compression = recognised(start)
        return start

    def _take(self, piece: bytes) -> None:
        compression = self._compression
        if compression is None:
            self._keep(piece)
            return
        self._taken += len(piece)
        try:
            while piece and self.known:
                if self._stream is None or self._stream.eof:
                    piece = piece.lstrip(b"\0")  # zeros may stand between streams and after them
                    if not piece:
                        return
                    self._stream = compression.decompressor(None)
                self._keep(self._stream.decompress(piece, _OUTPUT))
                while not self._stream.eof and not self._stream.needs_input:
                    self._keep(self._stream.decompress(b"", _OUTPUT))
                piece = self._stream.unused_data if self._stream.eof else b""
        except UsageError:
            self.known, self._stream = False, None
        except Exception as error:  # zlib.error, OSError, LZMAError, EOFError, ZstdError
            raise ShardError(
                f"corrupt {compression.title} data within its first {self._taken} bytes: {error}; "
                "fetch or write the shard again",
                code="D114",
            ) from error

    def _keep(self, data: bytes) -> None:
        if len(self.start) < self._kept:
            self.start += data[: self._kept - len(self.start)]
        self.end = data[-self._kept :] if len(data) >= self._kept else (self.end + data)[-self._kept :]
        self.size += len(data)
