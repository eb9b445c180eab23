"""The encoding of a text, in words: a text that is not UTF-8 is not damaged, and has another remedy."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE

_LOOKED_AT = 512
"""Bytes at the start of a text."""


def name_wide(data: bytes) -> str:
    """Return "UTF-16" or "UTF-32" if a text begins like one in this encoding, otherwise ""."""
    head = data[:_LOOKED_AT]
    if head.startswith((BOM_UTF32_LE, BOM_UTF32_BE)):
        return "UTF-32"
    halves = head[::2], head[1::2]
    zeros = sorted(half.count(0) / max(1, len(half)) for half in halves)
    is_wide = len(head) > 2 and zeros[0] < 0.1 and zeros[1] > 0.6
    return "UTF-16" if is_wide or head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else ""


def describe_encoding(data: bytes) -> str:
    """Say which encoding a text has that is not UTF-8, and what to do; "" if it is UTF-8."""
    if wide := name_wide(data):
        return f"this text is {wide}; save it as UTF-8"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"this text is not UTF-8, as it has the byte 0x{data[error.start]:02x}; save it as UTF-8"
    return ""


def describe_surrogate(error: UnicodeEncodeError) -> str:
    """Say why a text cannot be written as UTF-8, and what to do."""
    number = ord(error.object[error.start])
    if 0xDC80 <= number <= 0xDCFF:  # see `surrogateescape` of Python
        seen = f"the text has the byte 0x{number - 0xDC00:02x}, which is not UTF-8"
        return f"{seen}; save the file that it is from as UTF-8"
    return f"the text has U+{number:04X}, which is half of a character; remove it"
