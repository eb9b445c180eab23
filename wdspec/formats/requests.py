"""How much of a file of a store is requested at a time, for readers that jump to what they need of it."""

from __future__ import annotations

from typing import Any

FIRST = 64 * 1024
"""Bytes of the first request, whose answer has the size of the file. And those at the end of a table that are read
first: they have most footers."""
NEAR = 1024 * 1024
"""Bytes that are cheaper to read and drop than to skip with a new request.

It is what pyarrow's `CacheOptions.from_network_metrics` gives for 20 ms to the first byte and 50 MiB/s, as within a
region of a cloud. For 100 ms and 85 MiB/s it gives 9 MB, and pyarrow's own default is 8 KB; but bytes that are dropped
may have to be paid for, and requests in turn take time."""


def request_only(file: Any, size: int | None) -> None:
    """Have a file request so many bytes at a time; None: all that follow. What a store sends beyond is paid for."""
    stream = getattr(file, "stream", file)
    if hasattr(stream, "span"):
        stream.span = size
