"""Compressed fields: ``json.gz`` is unpacked, then read as json. The suffix says so, and the data must agree.

What decoders raise: what the data is at fault for, and what may be a mistake in code of the user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from wdspec.base.errors import FieldError
from wdspec.formats.compression import BY_NAME as COMPRESSIONS

MAX_DECOMPRESSED = 1 << 30
"""Bytes to which one compressed field may grow (1 GiB); beyond, it is taken for a decompression bomb."""
_MAX_WINDOW = 1 << 28
"""Memory that one xz or zstd stream may ask for; `xz -9` needs 65 MiB, `zstd --ultra -22` 128 MiB."""


def unpack(packing: str, data: bytes) -> bytes:
    """Decompresses a field, of one stream or several.

    Raises:
        ValueError: it grows beyond `MAX_DECOMPRESSED`.
        UsageError: zst, and nothing that reads it is installed.
        EOFError, OSError, zlib.error, lzma.LZMAError, ZstdError: it is not what the suffix says, or damaged.
    """
    return COMPRESSIONS[packing].decompress(data, MAX_DECOMPRESSED, _MAX_WINDOW)


UNPACKERS: dict[str, Callable[[bytes], bytes]] = {name: partial(unpack, name) for name in COMPRESSIONS}
"""Last part of a suffix → what undoes it."""


def unpacked(suffix: str) -> tuple[str, tuple[str, ...]]:
    """A suffix without its packings, and these, outermost first: ``json.gz`` is ``json`` and ``(gz,)``."""
    layers: list[str] = []
    while True:
        shorter, _, last = suffix.rpartition(".")
        if last not in COMPRESSIONS:
            return suffix, tuple(layers)
        suffix = shorter
        layers.append(last)


def check_size(size: int) -> None:
    """Raises ValueError for a field that unpacks to more than `MAX_DECOMPRESSED` bytes."""
    if size > MAX_DECOMPRESSED:
        raise ValueError(f"it decompresses to more than {MAX_DECOMPRESSED:,} bytes; read it as `raw`")


class UserDecoderError(FieldError):
    """A function that the user names in `decode` has failed: on bad data or by a mistake in it, nobody can tell.

    A function that knows that the data is at fault raises a FieldError itself.
    """

    code = "D203"


def one_line(cause: Exception) -> str:
    """What an exception says, in one line of bounded length; with its type where words are not enough."""
    text = " ".join(str(cause).split())
    if not text or not isinstance(cause, (ValueError, OSError, EOFError)):
        text = f"{type(cause).__name__}: {text}".rstrip(": ")
    return text if len(text) <= 300 else f"{text[:300]}…"
