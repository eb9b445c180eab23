"""Local files, and what to say where there is none."""

from __future__ import annotations

import difflib
import os
import re
import stat
from itertools import islice
from typing import BinaryIO

from wdspec.errors import MissingShardError, ShardError

_ONE_SLASH = re.compile(r"/([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")


def open_file(path: str) -> BinaryIO:
    """The bytes of a local file, unbuffered.

    Raises:
        MissingShardError: it does not exist; says how far its path does.
        ShardError: it cannot be read.
    """
    try:
        return open(path, "rb", buffering=0)
    except (OSError, ValueError) as error:
        raise explained(error, path) from None


def stat_file(path: str) -> os.stat_result:
    """What the system says of a local file. Raises as `open_file` does."""
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(path)
    except (OSError, ValueError) as error:
        raise explained(error, path) from None
    return found


def explained(error: OSError | ValueError, path: str) -> ShardError:
    """Our error for one of the operating system's, with what is wrong with the path and what to do."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return MissingShardError(_missing(path), location=path)
    if isinstance(error, IsADirectoryError):
        message = "a directory, not a file; end its name with `/` to read the shards in it"
    elif isinstance(error, PermissionError):
        message = "no permission to read it; ask its owner, or check who runs this"
    else:
        message = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
    return ShardError(message, location=path)


def _missing(path: str) -> str:
    if os.path.islink(path):
        return f"a symbolic link to `{os.readlink(path)}`, which does not exist; mend the link"
    if match := _ONE_SLASH.search(path):
        return f"no such file; if `{match.group(1)}` is a URL's scheme, two slashes follow it: `{match.group(1)}://…`"
    parent, name = os.path.split(path.rstrip("/"))
    while parent not in ("", "/") and not os.path.isdir(parent):
        parent, name = os.path.split(parent)
    if os.path.lexists(os.path.join(parent, name)):
        return f"no such file: `{os.path.join(parent, name)}` is not a directory"
    close = difflib.get_close_matches(name, _some_names(parent or "."), 1)
    hint = (
        f"did you mean `{close[0]}`?"
        if close
        else "correct the path, or rewrite it with WDS_REWRITE or `rewrite:`"
    )
    return f"no such file: `{parent or '.'}` has no `{name}`; {hint}"


def _some_names(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in islice(entries, 5000)]
    except OSError:
        return []
