"""How much of a file of a store is requested at a time, for readers that jump to what they need of it."""

from __future__ import annotations

from typing import Any

FIRST = 64 * 1024
"""Bytes of the first request, whose answer has the size of the file. And those at the end of a table that are read
first: they have most footers."""


def request_only(file: Any, size: int | None) -> None:
    """Have a file request so many bytes at a time; None: all that follow. What a store sends beyond is paid for."""
    stream = getattr(file, "stream", file)
    if hasattr(stream, "span"):
        stream.span = size
