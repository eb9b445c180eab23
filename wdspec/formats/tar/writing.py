"""Tar headers to be written: plain ustar wherever that can say it, which every tar reads, and ours fastest.

A header costs about a microsecond here, and some fifty in `tarfile`: of the members that one writer packs, only
the name, the size and so the checksum differ.
"""

from __future__ import annotations

from typing import Literal

from wdspec.formats.blocks import BLOCK
from wdspec.formats.tar.headers import NAME, ZERO_BLOCK, byte_sum, shown

TarFormat = Literal["auto", "ustar", "gnu", "pax"]

END = ZERO_BLOCK * 20
"""The end marker, filled up to the 10,240 bytes that tars come in."""

_PREFIX = 155
_MOST_OCTAL = 8**11 - 1
"""The largest size that ustar can say: 8 GiB less one byte."""
_DIALECTS: dict[object, TarFormat] = {
    **dict.fromkeys((None, "auto"), "auto"),
    **dict.fromkeys((0, "ustar", "USTAR_FORMAT"), "ustar"),
    **dict.fromkeys((1, "gnu", "GNU_FORMAT"), "gnu"),
    **dict.fromkeys((2, "pax", "PAX_FORMAT"), "pax"),
}


def dialect(name: object) -> TarFormat:
    """What is meant by a name or by one of `tarfile`'s numbers; None is ``auto``. Raises ValueError."""
    try:
        return _DIALECTS[name]
    except (KeyError, TypeError):
        raise ValueError(f"{name!r} is no tar format; there are auto, ustar, gnu and pax") from None


class HeaderMaker:
    """Makes the headers of regular files that differ in name and size only.

    Args:
        user, group: names of the owner, at most 31 bytes each.
        mode: the permissions.
        mtime: seconds since 1970.
        format: for what ustar cannot say (names that do not fit in 100 bytes, or in 155 and 100 around a
            slash; sizes from 8 GiB on): ``auto`` and ``gnu`` write GNU headers, ``pax`` POSIX ones, and ``ustar``
            refuses. `gnu` differs from `auto` in never splitting a name.
    """

    def __init__(
        self, user: str = "", group: str = "", mode: int = 0o444, mtime: int = 0, format: TarFormat = "auto"
    ) -> None:
        self._format = format
        owner = b"".join(
            _padded(name.encode("utf-8", "surrogateescape"), 32, f"owner's name {name!r}")
            for name in (user, group)
        )
        self._middle = b"%07o\0" % (mode & 0o7777) + b"0000000\0" * 2
        self._time = _number(mtime, "mtime")
        self._tail = b"0" + bytes(100) + b"ustar\x0000" + owner + b"0000000\0" * 2
        fixed = (self._middle, self._time, self._tail + bytes(_PREFIX + 12))
        middle, time, rest = (part.replace(b"%", b"%%") for part in fixed)
        self._layout = b"%b" + middle + b"%b" + time + b"%06o\0 " + rest
        self._sum = byte_sum(self._middle + self._time + self._tail) + 8 * ord(" ")
        self._sizes: dict[int, tuple[bytes, int]] = {}

    def header(self, name: bytes, size: int) -> bytes:
        """All headers of a member: one block, or three where ustar cannot say its name or size.

        Raises:
            ValueError: format `ustar` cannot say it.
        """
        if len(name) > NAME or size > _MOST_OCTAL:
            return self._long(name, size)
        field = self._sizes.get(size)
        if field is None:
            if len(self._sizes) > 20_000:
                self._sizes.clear()
            digits = b"%011o\0" % size
            field = self._sizes[size] = digits, sum(digits)
        digits, total = field
        checksum = self._sum + total + sum(name)
        return self._layout % (name.ljust(NAME, b"\0"), digits, checksum)

    def _long(self, name: bytes, size: int) -> bytes:
        if self._format == "pax":
            return self._pax(name, size)
        if size <= _MOST_OCTAL and self._format != "gnu":
            parts = _split(name)
            if parts is not None:
                return self._finished(parts[1], b"%011o\0" % size, b"0", parts[0])
        if self._format == "ustar":
            raise ValueError(
                f"format ustar cannot hold {_what(name, size)}; leave `format` out, or make it gnu or pax"
            )
        longer = b""
        if len(name) > NAME:
            body = name + b"\0"
            longer = self._finished(b"././@LongLink", b"%011o\0" % len(body), b"L") + _filled(body)
        return longer + self._finished(name[:NAME], _number(size, "size"), b"0")

    def _pax(self, name: bytes, size: int) -> bytes:
        records = b""
        if len(name) > NAME:
            try:
                name.decode("utf-8")
            except UnicodeDecodeError:
                records += _record(b"hdrcharset", b"BINARY")
            records += _record(b"path", name)
        if size > _MOST_OCTAL:
            records += _record(b"size", b"%d" % size)
        header = self._finished(b"././@PaxHeader", b"%011o\0" % len(records), b"x")
        own = self._finished(name[:NAME], b"%011o\0" % (size if size <= _MOST_OCTAL else 0), b"0")
        return header + _filled(records) + own

    def _finished(self, name: bytes, size: bytes, kind: bytes, prefix: bytes = b"") -> bytes:
        head = name.ljust(NAME, b"\0") + self._middle + size + self._time
        tail = kind + self._tail[1:] + prefix.ljust(_PREFIX, b"\0") + bytes(12)
        return b"%b%06o\0 %b" % (head, byte_sum(head + tail) + 8 * ord(" "), tail)


def padding(size: int) -> bytes:
    """The zeros that fill a member of this size up to whole blocks."""
    return ZERO_BLOCK[: -size % BLOCK]


def _filled(body: bytes) -> bytes:
    return body + padding(len(body))


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """A name as (prefix, rest) at a slash, where both fit."""
    cut = name.rfind(b"/", 0, _PREFIX + 1)
    if cut <= 0 or not 0 < len(name) - cut - 1 <= NAME:
        return None
    return name[:cut], name[cut + 1 :]


def _record(key: bytes, value: bytes) -> bytes:
    """One pax record; its length counts the digits of the length too."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(b"%d" % length):
        length = len(rest) + len(b"%d" % length)
    return b"%d" % length + rest


def _number(value: int, what: str) -> bytes:
    """Twelve bytes: octal, or base-256 as GNU has it where that is too short."""
    if value < 0:
        raise ValueError(f"{what} {value} is negative")
    if value <= _MOST_OCTAL:
        return b"%011o\0" % value
    return b"\x80" + value.to_bytes(11, "big")


def _padded(data: bytes, size: int, what: str) -> bytes:
    if len(data) >= size or b"\0" in data:
        raise ValueError(
            f"the {what} does not fit in a tar header; use at most {size - 1} bytes, or leave it out"
        )
    return data.ljust(size, b"\0")


def _what(name: bytes, size: int) -> str:
    if size > _MOST_OCTAL:
        return f"a member of {size:,} bytes"
    return f"the {len(name)} bytes of the name {shown(name)[:60]!r}…"
