"""The shards of a source, listed once in the training process and frozen.

Braces stay arithmetic and need no I/O. Globs, directories and `@file` lists are looked up once. An `@file` has one URL
per line; blank lines and lines that start with `#` are ignored.

Listed shards are spelled as in the spec, even if a rule rewrites them: if `gs://b/*.tar` is read from `/data/b/`, it
lists `gs://b/x.tar`. So resume states and digests do not depend on where the bytes come from.
"""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import cast
from urllib.parse import unquote

from wdspec.base.encodings import name_wide
from wdspec.base.errors import ShardError, UrlError, UsageError, WdspecError, warn_user
from wdspec.base.redaction import redact
from wdspec.formats.compression import TAR_SUFFIXES
from wdspec.formats.mds_index import read_index
from wdspec.spec.language.decoders import BY_NAME, FORMAT_OF
from wdspec.spec.spec import Source
from wdspec.storage.environment import Resolution
from wdspec.storage.storage import Storage
from wdspec.stores.local import translate_error
from wdspec.urls import urls
from wdspec.urls.braces import Braces


def list_matches(text: str, prefix: str, base: str, storage: Storage) -> Sequence[str]:
    """Return the texts that match an expanded one: itself, or what is in the glob or directory, sorted.

    Args:
        text: a URL, a glob or a directory.
        prefix: literal text before it.
        base: absolute directory that relative paths start at.

    Raises:
        MissingShardError: the directory does not exist.
        ShardError: there are no shards, the store cannot list, or a rule changes the names in the directory.
    """
    kind = urls.kind_of(text)
    if kind == "url":
        return (text,)
    if kind == "data set":
        return _list_fragments(text, urls.ShardUrl(prefix + text, base), storage)
    start = urls.magic_start(text) if kind == "glob" else len(text)
    head, tail = text[:start], text[start:]
    url = urls.ShardUrl(prefix + text, base)
    resolution = storage.resolve(url)
    try:
        root = _root(resolution, tail)
        names = storage.list(root, _unquote(url, tail))
        if not names:
            raise ShardError(_describe_no_match(root.removeprefix(urls.AIS_PREFIX), tail), code="D101")
        scheme = urls.scheme_of(url.text)
        spellings = [head + urls.quoted_for(scheme, name) for name in names]
        for spelling, name in zip(spellings, names, strict=True) if resolution.rule else ():
            # The spelling in the spec must lead back to the file that was listed under a rewritten name.
            if storage.resolve(urls.ShardUrl(prefix + spelling, base)).location != root + name:
                raise _rewriting_error(resolution)
    except ShardError as error:
        raise error.at(url=url.text) from None
    return spellings


def _list_fragments(text: str, url: urls.ShardUrl, storage: Storage) -> list[str]:
    """Return the fragments of a Lance data set, each with the version. Raises as `list_matches`."""
    lance = cast(urls.LanceUrl, urls.lance_url(text))
    try:
        resolution = storage.resolve(url)
        names = storage.list(resolution.location, "")
        if not names:
            raise ShardError("the data set has no rows; correct its name, or write to it first", code="D101")
        found = cast(urls.LanceUrl, urls.lance_url(resolution.location))
        last = urls.ShardUrl(url.text.removesuffix(text) + lance.folder + names[-1], url.base)
        if storage.resolve(last).location != found.folder + names[-1]:
            raise _rewriting_error(resolution)
    except ShardError as error:
        raise error.at(url=url.text) from None
    return [lance.folder + name for name in names]


def _root(resolution: Resolution, tail: str) -> str:
    """Return the local directory or the location in which to look up a glob or directory, with its `/`.

    A rule may rewrite the directory, but must keep the text after it.
    """
    path = urls.local_path(resolution.location)
    place = resolution.location if path is None else path
    ending = tail if path is None else urls.tidy_path("/" + _unquote(resolution.url, tail))
    if not place.endswith(ending):
        raise _rewriting_error(resolution)
    return place[: len(place) - len(ending)] if path is None else place[: len(place) - len(ending) + 1]


def _rewriting_error(resolution: Resolution) -> ShardError:
    return ShardError(
        f"the rule {resolution.rule} changes names that a glob or directory must find, so the shards cannot be "
        "spelled as in the spec; write the shards out with braces, or let the rule change only the directory",
        location=resolution.location,
    )


_MEDIA = frozenset({*FORMAT_OF, *BY_NAME["audio"].extensions, *BY_NAME["video"].extensions})
"""Suffixes of images, recordings and videos."""


def _describe_no_match(root: str, tail: str) -> str:
    if urls.lance_url(tail) is not None:
        return (
            f"`{tail}` is a pattern for files, but a Lance data set is a folder; name each data set, or write braces "
            "such as `part-{0..3}.lance`"
        )
    if tail:
        return f"no file in `{root}` matches `{tail}`; correct the pattern or the directory"
    where = f"among the {len(os.listdir(root))} entries of" if os.path.isdir(root) else "in"
    if os.path.isdir(root) and not any(
        entry.is_file() for entry in os.scandir(root) if entry.name[:1] != "."
    ):
        return (
            f"no shards {where} the directory `{root}`, but folders; for shards in these write `**/*.tar`, and to make "
            "shards from the files of a folder for each class, `wdspec create FOLDER -o OUTPUT --classes`"
        )
    names = os.listdir(root) if os.path.isdir(root) else []
    has_media = any(name.lower().rpartition(".")[2] in _MEDIA for name in names)
    making = (
        f"; for shards of its images or recordings `wdspec create {root} -o 'train-%06d.tar' --maxsize 1GB`"
    )
    return (
        f"no shards {where} the directory `{root}`: the names of shards end in {', '.join(TAR_SUFFIXES)}; for other "
        f"names write a glob such as `*.dat`, for shards in subdirectories `**/*.tar`{making * has_media}"
    )


def _unquote(url: urls.ShardUrl, text: str) -> str:
    return unquote(text, errors="surrogateescape") if urls.scheme_of(url.text) == "file" else text


MAX_BYTES = 256 * 2**20
"""Size of an `@file`."""
MAX_LINE = 64 * 2**10
"""Bytes of a line of it."""
_BOM = b"\xef\xbb\xbf"


def read_list(location: str, storage: Storage) -> Iterator[tuple[int, str]]:
    """Yield the number (from 1) and the stripped text of each line with a URL. Names may be other than UTF-8.

    Raises:
        MissingShardError: the list does not exist.
        ShardError: it cannot be read, is not text, or is too large; ``line`` is where.
    """
    size = 0
    with storage.open_location(location) as raw, io.BufferedReader(cast(io.RawIOBase, raw)) as file:
        for number in count(1):
            try:
                line = file.readline(MAX_LINE + 1)
            except ShardError:
                raise
            except OSError as error:
                raise translate_error(error, location) from None
            if not line:
                return
            size += len(line)
            if fault := _fault(line, size, first=number == 1):
                message = f"{fault}; the file after `@` must be a text file with one URL per line"
                raise ShardError(message, location=location, line=number)
            if number == 1:
                line = line.removeprefix(_BOM)
            text = line.strip(b" \t\r\n").decode("utf-8", "surrogateescape")
            if text and not text.startswith("#"):
                yield number, text


def _fault(line: bytes, size: int, first: bool) -> str | None:
    if first and (wide := name_wide(line)):
        return f"this list is {wide}, not UTF-8"
    if first and line.lstrip().startswith((b"<", b"\xef\xbb\xbf<")):
        return "this list is an HTML or XML page, perhaps an error message or a log-in form"
    if b"\0" in line:
        return "this list is a binary file"
    if len(line) > MAX_LINE:
        return f"this list has a line of more than {MAX_LINE:,} bytes"
    if size > MAX_BYTES:
        return f"this list has more than {MAX_BYTES:,} bytes"
    return None


MAX_LISTED = 1_000_000
"""Globs, directories and `@file`s that one brace pattern may expand to."""

_PLAIN = re.compile(r"(?:(?!::)[^\\{}*?\[@])*[^\\{}*?\[@/]")


_NOT_PLAIN = re.compile(r"[:~\0]|\.lance\?|(?:\A|[{,])-(?:[},]|\Z)")
"""Matches texts and brace patterns that may not be plain paths: a scheme, a home directory, a fragment of Lance,
standard input, a NUL."""


def shards_of(source: Source, storage: Storage) -> urls.UrlSequence:
    """Return the shards of a source. Raises what `list_texts` raises, with the name of the source."""
    try:
        shards = list_texts(source.shards or (), source.base, storage)
        return with_parts(shards, source, storage) if source.join or source.lookup else shards
    except WdspecError as error:
        raise error.at(source=source.name) from None


def with_parts(
    shards: urls.UrlSequence,
    source: Source,
    storage: Storage,
    joins: Sequence[urls.UrlSequence] | None = None,
) -> urls.UrlSequence:
    """Return the shards of a source with their partners and tables.

    Args:
        joins: the shards of `join`, if they are known already.

    Raises:
        UsageError: there is another number of partners.
        ShardError: a table cannot be read.
    """
    if joins is None:
        joins = [list_texts(join.shards, join.base, storage) for join in source.join]
    for number, (listed, join) in enumerate(zip(joins, source.join, strict=True), 1):
        if len(listed) != len(shards):
            raise UsageError(
                f"the source has {len(shards):,} shards, but its `join` no. {number} "
                f"(`{' '.join(join.shards)[:200]}`) has {len(listed):,}; the n-th shards of both belong together, so "
                f"list as many of each (the first ones are `{shards[0].text}` and `{listed[0].text}`)"
            )
    if not source.lookup:
        return urls.JoinedUrls(shards.parts, joins)
    from wdspec.shards.lookup_tables import make_table  # most sources have none

    return urls.JoinedUrls(shards.parts, joins, [make_table(lookup, storage) for lookup in source.lookup])


def with_tables(frozen: Mapping[str, urls.UrlSequence], source: Source, storage: Storage) -> urls.UrlSequence:
    """Return the frozen shards of a source, with its tables; see `with_parts`."""
    shards = frozen[source.name]
    is_whole = isinstance(shards, urls.JoinedUrls) and len(shards.tables) == len(source.lookup)
    return shards if is_whole or not source.lookup else with_parts(shards, source, storage, shards.joins)


def are_local(shards: urls.UrlSequence, storage: Storage) -> bool:
    """Whether all shards are plain local paths: without scheme or `~`, and not rewritten."""
    runs = [run for each in (shards, *shards.joins) for run in each.parts]
    return _keeps_paths(storage) and all(map(_is_plain, runs))


def _keeps_paths(storage: Storage) -> bool:
    """Whether plain paths are local files: no rule, ETL or user store redirects them."""
    runs_etl = storage.ais is not None and storage.ais.etl is not None
    return not (storage.rules or runs_etl or storage.users.keys() & {"", "file"})


def _is_plain(run: urls.ShardRun) -> bool:
    texts = (run.texts.pattern,) if isinstance(run.texts, Braces) else run.texts
    return not any(_NOT_PLAIN.search(text) for text in (run.prefix, *texts))


def list_texts(texts: Sequence[str], base: str, storage: Storage) -> urls.UrlSequence:
    """List the shards of texts, in order: as written for braces, in code point order for globs and directories.

    A shard that is listed twice is read twice, with a warning unless the spec repeats its text.

    Args:
        texts: as in `shards:` of a spec.
        base: absolute directory that relative paths start at.
        storage: resolves URLs, and looks up globs, directories and lists.

    Raises:
        UrlError: a text is invalid.
        MissingShardError: a directory or `@file` does not exist.
        ShardError: there are no shards, or a store cannot list.
    """
    parts = urls.parse_shards(texts, base)
    listed = {part: _list_part(part, storage) for part in parts if part.listed}
    runs = [
        run
        for part in parts
        for run in (listed[part] if part.listed else [urls.ShardRun(part.braces, "", base)])
    ]
    for run in runs:
        if not (_keeps_paths(storage) and _is_plain(run)):  # forbidden URLs fail before anything is read
            storage.resolve(urls.ShardUrl(run.prefix + run.texts[0], run.base))
    _warn_of_repeats(itertools.chain.from_iterable(listed.values()))
    return urls.UrlSequence(runs)


def _list_part(part: urls.Part, storage: Storage) -> list[urls.ShardRun]:
    runs = _RunList(part.base)
    for text in _expand(part):
        if urls.kind_of(text) == "list":
            runs.extend(_runs_of_list(text, part.base, storage))
        else:
            runs.add(list_matches(text, "", part.base, storage), "")
    return runs.runs()


def _runs_of_list(text: str, base: str, storage: Storage) -> list[urls.ShardRun]:
    """Return the shards of an `@file`; relative lines start at its directory, as spelled in the spec."""
    prefix = _directory_of(text[1:])
    runs = _RunList(base)
    last_line = None
    try:
        if text.endswith(("@", "/")):
            raise UrlError("after `@`, write the name of a text file with one URL per line")
        if is_index(text):
            location = storage.resolve(urls.ShardUrl(text[1:], base)).location
            runs.add(read_index_of(location, storage), prefix)
            return runs.runs()
        for number, line in read_list(storage.resolve(urls.ShardUrl(text[1:], base)).location, storage):
            if last_line is None:
                refuse_other_file(line, prefix, base, storage)
            last_line = number
            if _PLAIN.fullmatch(line) and urls.lance_url(line) is None:
                runs.add((line,), prefix if urls.is_relative(line) else "")
            else:
                _add_line(line, prefix, runs, storage)
    except WdspecError as error:
        raise error.at(list=text, line=last_line) from None
    if last_line is None:
        raise ShardError("no URL in this list; write one per line, without `#` before it", list=text)
    return runs.runs()


def is_index(text: str) -> bool:
    """Whether a list is the `index.json` of MDS shards, by its name."""
    return _directory_of(text[1:]) + "index.json" == re.split("[?#]", text[1:], maxsplit=1)[0]


def read_index_of(location: str, storage: Storage) -> list[str]:
    """Return the names of the shards in an `index.json` of MDS. In a local folder, those that are there count.

    Raises:
        MissingShardError: it does not exist.
        ShardError: it cannot be read, or is another file.
    """
    folder = os.path.dirname(urls.local_path(location) or "")
    with storage.open_location(location) as raw, io.BufferedReader(cast(io.RawIOBase, raw)) as file:
        try:
            data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise translate_error(error, location) from None
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        names = read_index(data)
    except ValueError as error:
        raise ShardError(
            f"this list is no `index.json` of MDS shards: {error}; name the shards, or list them in a text file"
        ) from error
    return [
        unpacked if unpacked and folder and os.path.exists(os.path.join(folder, unpacked)) else name
        for name, unpacked in names
    ]


_SHARD = re.compile(r"(?i)@?pipe:|.*(?:://|/\Z|\.\w{1,9}(?:[?#].*)?\Z|\{[\w.-]*(?:\.\.|,)[\w.,-]*\})")
"""Matches what is surely a shard, several of them, or a folder."""


def refuse_other_file(line: str, prefix: str, base: str, storage: Storage) -> None:
    """Refuse a list whose first line is no shard. It is another file, whose lines may be secret, and are not shown."""
    if _SHARD.match(line):
        return
    with suppress(WdspecError):
        path = urls.local_path(storage.resolve(urls.ShardUrl(prefix + line, base)).location)
        folder = os.path.dirname(path or "")
        if path is None or os.path.exists(path) or (os.path.dirname(line) and os.path.isdir(folder)):
            return
    raise ShardError(
        "the first line of this file is not the URL or the path of a shard, such as `data/000.tar`: is this the list?"
    )


def _add_line(line: str, prefix: str, runs: _RunList, storage: Storage) -> None:
    for part in urls.parse_shards([line], runs.base):
        mixed = part.text.startswith("{")  # each string may be relative or not
        within = prefix if mixed or urls.is_relative(part.text) else ""
        if not part.listed and not mixed:
            runs.extend([urls.ShardRun(part.braces, within, part.base)])
            continue
        for text in _expand(part):
            if urls.kind_of(text) == "list":
                raise UrlError(f"`{text}` is a list within a list; put its lines here")
            own = within if urls.is_relative(text) else ""
            runs.add(list_matches(text, own, runs.base, storage), own)


def _directory_of(url: str) -> str:
    """Return the directory of a list's URL, with its `/`, where its relative lines start; "" for a bare name."""
    row = urls.row_of(url)
    if row.is_command:
        return ""
    if urls.scheme_of(url) == "file":
        url = urls.path_of_file_url(url)
    elif row.has_queries:
        url = re.split(r"[?#]", url, maxsplit=1)[0]
    return url[: url.rfind("/") + 1]


def _expand(part: urls.Part) -> Braces:
    if len(part.braces) > MAX_LISTED:
        raise UrlError(
            f"{len(part.braces):,} globs, directories or lists; the limit is {MAX_LISTED:,}", url=part.text
        )
    return part.braces


class _RunList:
    """Collects texts into as few runs as possible."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._runs: list[urls.ShardRun] = []
        self._texts: list[str] = []
        self._prefix = ""

    def add(self, texts: Sequence[str], prefix: str) -> None:
        if prefix != self._prefix:
            self._close()
            self._prefix = prefix
        self._texts += texts

    def extend(self, runs: Iterable[urls.ShardRun]) -> None:
        self._close()
        self._runs += runs

    def runs(self) -> list[urls.ShardRun]:
        self._close()
        return self._runs

    def _close(self) -> None:
        if self._texts:
            self._runs.append(urls.ShardRun(tuple(self._texts), self._prefix, self.base))
            self._texts = []


def _warn_of_repeats(runs: Iterable[urls.ShardRun]) -> None:
    """Warn of a shard that is listed twice, by two globs or in a list.

    Repeating a text in the spec is intended: that is how some users double the weight of a shard.
    """
    seen: set[str] = set()
    repeats: list[str] = []
    for run in runs:
        if isinstance(run.texts, tuple):
            for text in map(run.prefix.__add__, run.texts):
                (repeats.append if text in seen else seen.add)(text)
    if repeats:
        warn_user(
            f"{len(repeats)} of the listed shards are found more than once, and are read that many times: for example "
            f"`{redact(repeats[0])}`"
        )
