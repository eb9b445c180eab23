"""What a glob or a directory holds, spelt as the spec spells it.

Also where a rule sends it elsewhere: `gs://b/*.tar`, read from `/data/b/`, holds `gs://b/x.tar`. So resume
states and digests do not depend on where the bytes come from.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote

from wdspec.spec.errors import ShardError
from wdspec.storage.access import Access
from wdspec.storage.globbing import SHARD_SUFFIXES, files_matching, shards_in
from wdspec.storage.openers import how_opened
from wdspec.storage.opening import local_path
from wdspec.urls.resolve import Resolution, Resolver, tidy
from wdspec.urls.schemes import quoted_for, scheme_of
from wdspec.urls.sequence import ShardUrl, kind_of, magic_start


def found_in_store(text: str, prefix: str, base: str, resolver: Resolver, access: Access) -> Sequence[str]:
    """The texts that an expanded one stands for: itself, or what the glob or directory holds, sorted.

    Args:
        text: a URL, a glob or a directory.
        prefix: stands before it literally.
        base: absolute directory that relative paths start at.
        resolver, access: of the source.

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
    resolution = resolver(url)
    try:
        root = _root(resolution, tail, access)
        names = files_matching(root, _unquoted(url, tail)) if kind == "glob" else shards_in(root)
        if not names:
            raise ShardError(_nothing(kind, root, tail))
        scheme = scheme_of(url.text)
        spelt = [head + quoted_for(scheme, name) for name in names]
        if resolution.rule:
            _check_spelling(spelt, [root + name for name in names], prefix, resolution, resolver)
    except ShardError as error:
        raise error.at(url=url.text) from None
    return spelt


def _root(resolution: Resolution, tail: str, access: Access) -> str:
    """The local directory in which a glob or directory is looked up, with its `/`.

    A rule may send the directory elsewhere, but must leave alone what comes after it.
    """
    path = local_path(resolution.location)
    if path is None:
        raise ShardError(
            "globs and directories cannot be listed there "
            f"({how_opened(resolution.location, access)}); write the shards out with braces such as "
            "`{000000..000123}`, or in an `@file`",
            location=resolution.location,
        )
    ending = tidy("/" + _unquoted(resolution.url, tail))
    if not path.endswith(ending):
        raise _misspelt(resolution)
    return path[: len(path) - len(ending) + 1]


def _check_spelling(
    texts: Sequence[str], paths: Sequence[str], prefix: str, resolution: Resolution, resolver: Resolver
) -> None:
    """What was found under a rewritten name must be what its spelling in the spec leads to."""
    for text, path in zip(texts, paths, strict=True):
        if resolver(ShardUrl(prefix + text, resolution.url.base)).location != path:
            raise _misspelt(resolution)


def _misspelt(resolution: Resolution) -> ShardError:
    return ShardError(
        f"the rule {resolution.rule} changes names that a glob or directory must find, so what is found "
        "cannot be spelt as in the spec; write the shards out with braces, or let the rule change only the "
        "directory",
        location=resolution.location,
    )


def _nothing(kind: str, root: str, tail: str) -> str:
    if kind == "glob":
        return f"no file in `{root}` matches `{tail}`; correct the pattern or the directory"
    others = len(os.listdir(root))
    return (
        f"no shards among the {others} entries of the directory `{root}`: the names of shards end in "
        f"{', '.join(SHARD_SUFFIXES)}; for others write a glob such as `*.dat`, for those in "
        "directories within it `**/*.tar`"
    )


def _unquoted(url: ShardUrl, text: str) -> str:
    return unquote(text, errors="surrogateescape") if scheme_of(url.text) == "file" else text
