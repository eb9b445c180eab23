"""Names and sizes that a tar holds twice, compared: extended headers have no checksum of their own.

A name of more than 100 bytes stands in full in a block of its own, which no checksum covers, and cut off in the
member's header, which has one. Writers cut in different ways (GNU and most others take the first 100 bytes, Python puts
`?` for what is not ASCII, Go leaves that out, libarchive keeps an end, tar-stream writes `PaxHeader`), so only what
cannot be any of these is taken for damage.
"""

from __future__ import annotations

import contextlib

from wdspec.errors import ShardError
from wdspec.formats.blocks import REFETCH
from wdspec.formats.tar.headers import NAME, Header, shown

_FEW = 2
"""Bytes in which a name that was damaged differs from the other one. Another way of cutting differs in more."""
_ENOUGH = 8
"""Bytes that have to agree before a few that do not are taken for damage."""
_STANDING_IN = b"?_"
"""What writers put for a letter that is no ASCII."""
_MATTERING = (b"path", b"linkpath", b"size", b"hdrcharset")


def check_name(long: bytes, header: Header) -> None:
    """Raises ShardError if a long name and the member's header contradict each other."""
    if long != header.name and _contradict(long, header.name_field, header.name != header.name_field):
        raise ShardError(
            f"an extended header gives the member the name {shown(long)!r}, and its own header says "
            f"{shown(header.name_field)!r}: one of them is damaged; {REFETCH}",
            code="D113",
        )


def check_link(long: bytes, header: Header) -> None:
    """Raises ShardError if a long name of what a link points to and the member's header contradict each other."""
    if _contradict(long, header.link, False):
        raise ShardError(
            f"an extended header has the member be a link to {shown(long)!r}, and its own header says "
            f"{shown(header.link)!r}: one of them is damaged; {REFETCH}",
            code="D113",
        )


def check_size(long: int, header: Header) -> None:
    """Raises ShardError if both sizes are said, and differ."""
    if header.size not in (0, long) and long < 8**11:
        raise ShardError(
            f"a pax header says that the member has {long} bytes, and its own header says {header.size}: one of them "
            f"is damaged; {REFETCH}",
            code="D113",
        )


def check_key(key: bytes) -> None:
    """Raises ShardError for a key of a pax header that only damage makes of one that matters."""
    for known in _MATTERING:
        if len(key) == len(known) and sum(map(int.__ne__, key, known)) == 1:
            raise ShardError(
                f"a pax header has the key {shown(key)!r}, which is a damaged {known.decode()!r}; {REFETCH}",
                code="D113",
            )


def same(first: bytes | None, second: bytes | None, what: str) -> bytes | None:
    """Of what two extended headers of one member say, what is said. Raises ShardError where they differ."""
    if first is not None and second is not None and first != second:
        raise ShardError(
            f"a member has two {what}, {shown(first)!r} and {shown(second)!r}; {REFETCH}", code="D113"
        )
    return second if first is None else first


def _contradict(long: bytes, short: bytes, split: bool) -> bool:
    """Whether a name cannot be what was cut from another.

    Args:
        long: the whole.
        short: what stands in the field of 100 bytes.
        split: whether more of it stands in another field.
    """
    cuts = [long]
    with contextlib.suppress(UnicodeDecodeError):
        text = long.decode("utf-8")
        cuts += [text.encode("latin-1", "replace"), text.encode("ascii", "ignore")]
    differing = [_differences(cut[:NAME], short) for cut in cuts if len(cut[:NAME]) == len(short)]
    if 0 in differing:
        return False
    if len(short) == NAME and not split:
        return True
    return any(difference <= _FEW and len(short) - difference >= _ENOUGH for difference in differing)


def _differences(cut: bytes, short: bytes) -> int:
    """In how many places two texts of one length differ, where neither has put something for what is no ASCII."""
    return sum(
        a != b and not ((a > 127 or a in _STANDING_IN) and (b > 127 or b in _STANDING_IN))
        for a, b in zip(cut, short, strict=True)
    )
