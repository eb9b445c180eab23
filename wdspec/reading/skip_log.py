"""The file of `errors: {log: …}`: one line of JSON for each skip, from however many processes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from wdspec.errors import UsageError
from wdspec.system.file_locks import lock_open_file


def append_line(path: str, record: Mapping[str, Any]) -> None:
    """Adds a record to a file as one whole line; makes the file, and its folder, if need be.

    A lock keeps the lines of several processes apart, also where the file system does not append atomically.

    Args:
        path: `~` stands for the home directory.
        record: values that JSON knows.

    Raises:
        UsageError: the file cannot be written.
    """
    line = memoryview(json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n")
    path = os.path.expanduser(path)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            lock_open_file(file, wait=True)
            while line:
                line = line[os.write(file, line) :]
        finally:
            os.close(file)
    except OSError as error:
        raise UsageError(
            f"the skips cannot be listed in `{path}` (`errors.log`): {error.strerror}; name a file that can be "
            "written, or leave it out"
        ) from error
