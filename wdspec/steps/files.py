"""The files that steps read: where they are, and what is in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from wdspec.base.errors import SpecError

REMOTE = "hf://"
"""How a tokenizer on the Hugging Face Hub begins: `hf://owner/name@revision`."""
IN_FOLDER = {"file": "tokenizer.json", "folder": "tokenizer.json"}
"""What has to be in a folder, by option."""
BESIDE = {
    "folder": (
        "special_tokens_map.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "chat_template.json",
    )
}
"""What else is read of a folder if it is there, by option."""


def find_file(path: str, option: str = "file") -> str:
    """Return the path of the file that is read: of a folder, the one for this option."""
    path = os.path.expanduser(path)
    return os.path.join(path, IN_FOLDER.get(option, "")) if os.path.isdir(path) else path


def find_beside(path: str, option: str) -> list[str]:
    """Return the paths of what else is read of a folder."""
    path = os.path.expanduser(path)
    return [found for name in BESIDE.get(option, ()) if os.path.isfile(found := os.path.join(path, name))]


def list_files(path: str, option: str = "file") -> list[str]:
    """Return the paths of all that is read of a file or a folder, in the order of their digests."""
    return [find_file(path, option), *find_beside(path, option)]


def files_of_step(files: Mapping[str, str]) -> list[str]:
    """Return the paths of all that a step reads, in the order of their digests; `files` has its paths by option."""
    return [found for option, path in sorted(files.items()) for found in list_files(path, option)]


def digest_file(path: str, option: str = "file") -> str:
    """Return a digest of what is in a file, or in the files of a folder; of a name with a revision, its text.

    Raises:
        SpecError: it does not exist, or cannot be read.
    """
    if path.startswith(REMOTE):
        return path
    try:
        digests = []
        for found in list_files(path, option):
            with open(found, "rb") as file:
                digests.append(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest())
        return " ".join(digests)
    except OSError as error:
        what = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        )
        remedy = "correct its path, which is relative to the spec"
        if os.path.isdir(path):
            remedy = f"write it: `AutoTokenizer.from_pretrained({path!r}).save_pretrained({path!r})`"
        raise SpecError(
            f"the {option.replace('folder', 'file')} {found} of `make` {what}; {remedy}"
        ) from None


def identify_file(path: str, option: str = "file") -> tuple[int, ...]:
    """Return numbers that change if a file is replaced or written; () if it does not exist or is remote."""
    found: tuple[int, ...] = ()
    for each in list_files(path, option):
        try:
            state = os.stat(each)
        except OSError:
            return ()
        found += (state.st_ino, state.st_size, state.st_mtime_ns)
    return found
