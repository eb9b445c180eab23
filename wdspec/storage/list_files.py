"""`@file` lists: one URL a line, blank lines and lines that begin with `#` skipped."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count
from typing import cast

from wdspec.errors import ShardError
from wdspec.storage.storage import Storage
from wdspec.stores.local.local_files import explained

MAX_BYTES = 256 * 2**20
MAX_LINE = 64 * 2**10
_BOM = b"\xef\xbb\xbf"


def lines_of_list(location: str, storage: Storage) -> Iterator[tuple[int, str]]:
    """The number, from 1, and the text of each line that holds a URL, without the white space around it.

    Names that are not UTF-8 survive as ``surrogateescape`` has it.

    Raises:
        MissingShardError, ShardError: it does not exist, cannot be read, is no text, or is too large;
            ``line`` says where.
    """
    size = 0
    with storage.open_location(location) as raw, io.BufferedReader(cast(io.RawIOBase, raw)) as file:
        for number in count(1):
            try:
                line = file.readline(MAX_LINE + 1)
            except ShardError:
                raise
            except OSError as error:
                raise explained(error, location) from None
            if not line:
                return
            size += len(line)
            if fault := _fault(line, size, first=number == 1):
                message = f"{fault}; what `@` names must be a text file with one URL a line"
                raise ShardError(message, location=location, line=number)
            if number == 1:
                line = line.removeprefix(_BOM)
            text = line.strip(b" \t\r\n").decode("utf-8", "surrogateescape")
            if text and not text.startswith("#"):
                yield number, text


def _fault(line: bytes, size: int, first: bool) -> str | None:
    if first and line.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "this list is UTF-16, not UTF-8"
    if first and line.lstrip().startswith((b"<", b"\xef\xbb\xbf<")):
        return "this list is an HTML or XML page, perhaps an error message or a log-in form"
    if b"\0" in line:
        return "this list is a binary file"
    if len(line) > MAX_LINE:
        return f"this list has a line of more than {MAX_LINE:,} bytes"
    if size > MAX_BYTES:
        return f"this list has more than {MAX_BYTES:,} bytes"
    return None
