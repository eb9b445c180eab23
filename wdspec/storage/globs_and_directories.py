"""What a glob or a directory holds, spelt as the spec spells it.

Also where a rule sends it elsewhere: `gs://b/*.tar`, read from `/data/b/`, holds `gs://b/x.tar`. So resume
states and digests do not depend on where the bytes come from.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote

from wdspec.errors import ShardError
from wdspec.formats.suffixes import TAR_SUFFIXES
from wdspec.storage.resolution import Resolution, tidy
from wdspec.storage.storage import Storage
from wdspec.urls.schemes import AIS_PREFIX, local_path, quoted_for, scheme_of
from wdspec.urls.sequence import ShardUrl, kind_of, magic_start


def found_in_store(text: str, prefix: str, base: str, storage: Storage) -> Sequence[str]:
    """The texts that an expanded one stands for: itself, or what the glob or directory holds, sorted.

    Args:
        text: a URL, a glob or a directory.
        prefix: stands before it literally.
        base: absolute directory that relative paths start at.

    Raises:
        MissingShardError: the directory does not exist.
        ShardError: nothing found, a store that cannot be listed, or a rule that changes the names in it.
    """
    kind = kind_of(text)
    if kind == "url":
        return (text,)
    start = magic_start(text) if kind == "glob" else len(text)
    head, tail = text[:start], text[start:]
    url = ShardUrl(prefix + text, base)
    resolution = storage.resolve(url)
    try:
        root = _root(resolution, tail)
        names = storage.list(root, _unquoted(url, tail))
        if not names:
            raise ShardError(_nothing(root.removeprefix(AIS_PREFIX), tail), code="D101")
        scheme = scheme_of(url.text)
        spelt = [head + quoted_for(scheme, name) for name in names]
        for spelling, name in zip(spelt, names, strict=True) if resolution.rule else ():
            # What was found under a rewritten name must be what its spelling in the spec leads to.
            if storage.resolve(ShardUrl(prefix + spelling, base)).location != root + name:
                raise _misspelt(resolution)
    except ShardError as error:
        raise error.at(url=url.text) from None
    return spelt


def _root(resolution: Resolution, tail: str) -> str:
    """The local directory or the location in which a glob or directory is looked up, with its `/`.

    A rule may send the directory elsewhere, but must leave alone what comes after it.
    """
    path = local_path(resolution.location)
    place = resolution.location if path is None else path
    ending = tail if path is None else tidy("/" + _unquoted(resolution.url, tail))
    if not place.endswith(ending):
        raise _misspelt(resolution)
    return place[: len(place) - len(ending)] if path is None else place[: len(place) - len(ending) + 1]


def _misspelt(resolution: Resolution) -> ShardError:
    return ShardError(
        f"the rule {resolution.rule} changes names that a glob or directory must find, so what is found "
        "cannot be spelt as in the spec; write the shards out with braces, or let the rule change only the "
        "directory",
        location=resolution.location,
    )


def _nothing(root: str, tail: str) -> str:
    if tail:
        return f"no file in `{root}` matches `{tail}`; correct the pattern or the directory"
    where = f"among the {len(os.listdir(root))} entries of" if os.path.isdir(root) else "in"
    return (
        f"no shards {where} the directory `{root}`: the names of shards end in "
        f"{', '.join(TAR_SUFFIXES)}; for others write a glob such as `*.dat`, for those in "
        "directories within it `**/*.tar`"
    )


def _unquoted(url: ShardUrl, text: str) -> str:
    return unquote(text, errors="surrogateescape") if scheme_of(url.text) == "file" else text
