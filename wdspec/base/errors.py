"""The errors that users may see, with the place of each one; hints for misspelled words; warnings about user code.

The message of an error says what was seen and what to do. Its *place* says where, and grows as the error passes the
rooms that know more: the tar reader knows the offset and the member, the source reader the URL and the source's name.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from wdspec.base.redaction import escape_controls, redact

PLACE_ORDER = (
    "stage",
    "source",
    "list",
    "line",
    "url",
    "location",
    "copy",
    "column",
    "offset",
    "key",
    "member",
    "field",
    "partner",
    "partner_offset",
    "partner_key",
)
_LABELS = {"offset": "byte", "partner_offset": "its byte", "partner_key": "its key"}
_NAMES_IN_SHARDS = ("key", "member", "field", "partner_key")


class WdspecError(Exception):
    """Base of every error that wdspec raises for a mistake in a spec, an argument or the data.

    Its text and its pickles hide the passwords and signatures of URLs; ``message`` and ``place`` have them unchanged.

    Args:
        message: what was seen and what to do, without the place.
        place: whatever is known of ``source``, ``list`` (an `@file`), ``line`` (in it), ``url``, ``location`` (where
            its bytes come from), ``copy`` (the file of a cache with these bytes), ``column`` (in a text, from 1),
            ``offset`` (bytes in the uncompressed shard), ``key``, ``member``, ``field``; and of the other part of a
            join ``partner`` (its URL), ``partner_offset`` and ``partner_key``.
        code: of the kind of damage, if it is more exact than that of the class (`wdspec rule D107`).
    """

    code: str = ""

    def __init__(self, message: str, *, code: str = "", **place: Any) -> None:
        super().__init__(redact(message))
        self.message = message
        if code:
            self.code = code
        self.place: dict[str, Any] = {k: v for k, v in place.items() if v is not None}

    def at(self, **place: Any) -> WdspecError:
        """Add to the place, keeping what is already known; return the error itself."""
        for name, value in place.items():
            if value is not None:
                self.place.setdefault(name, value)
        return self

    def __str__(self) -> str:
        place = dict(self.place)
        if place.get("location") == place.get("url"):
            place.pop("location", None)
        known = sorted(place.items(), key=lambda item: _rank(item[0]))
        where = ", ".join(
            f"{_LABELS.get(name, name)} {escape_controls(redact(str(value)))}" for name, value in known
        )
        message = escape_controls(redact(self.message), "\n\t")
        return f"{message} [{where}]" if where else message

    def __reduce__(self) -> tuple[Any, ...]:
        place = {
            name: redact(value) if isinstance(value, str) and name not in _NAMES_IN_SHARDS else value
            for name, value in self.place.items()
        }
        notes = {"__notes__": self.__notes__} if hasattr(self, "__notes__") else None
        return _rebuild, (type(self), redact(self.message), {"code": self.code, **place}), notes


class SpecError(WdspecError, ValueError):
    """An unusable spec; the message lists every problem with file, line and column.

    Args:
        message: all problems as text.
        problems: the same as objects (`wdspec.spec.problems.Problem`), in file order.
    """

    def __init__(self, message: str, problems: Iterable[Any] = (), **place: Any) -> None:
        super().__init__(message, **place)
        self.problems: tuple[Any, ...] = tuple(problems)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (kind, message, place), notes = super().__reduce__()
        return rebuild, (kind, message, {"problems": self.problems, **place}), notes


class UsageError(WdspecError, ValueError):
    """A function was called, or a program started, in a way that cannot work (topology, arguments, order)."""


class UrlError(WdspecError, ValueError):
    """An invalid URL, brace pattern, list or rewrite rule."""

    @property
    def column(self) -> int | None:
        """Index of the fault in the text, from 0 (the message counts from 1); None: all of it."""
        shown = self.place.get("column")
        return None if shown is None else int(shown) - 1


class ShardError(WdspecError, OSError):
    """A shard could not be opened or read completely; no part of the damaged sample was delivered."""

    code = "D102"


class MissingShardError(ShardError, FileNotFoundError):
    """The shard, list or directory does not exist."""

    code = "D101"


class StoreError(WdspecError):
    """A store is set up wrongly, or refuses access: none of its shards could be read, so no error policy skips it."""


class UnusableStoreError(ShardError, StoreError):
    """A shard cannot be read for a reason that holds for all shards: a login that is refused, no descriptors left."""


class RefusedShardError(ShardError):
    """A store denies access to a shard. This may be how it reports a missing one, or a login without access."""


_NO_ROOM = "free some space there, or name another folder in TMPDIR if it is for temporary files"
_FEWER_FILES = "raise the limit (`ulimit -n`), or read fewer shards at a time (`interleave`, workers)"
_LACKS = {
    errno.EMFILE: f"this process has too many open files: {_FEWER_FILES}",
    errno.ENFILE: f"this machine has too many open files: {_FEWER_FILES}",
    errno.ENOMEM: "no memory is left: use fewer workers, smaller batches or smaller buffers (`shuffle`)",
    errno.ENOSPC: f"a disk is full: {_NO_ROOM}",
    errno.EDQUOT: f"the quota of a disk is used up: {_NO_ROOM}",
}
_HIDE_A_LACK = frozenset(
    {"gaierror", "NameResolutionError", "ClientConnectorDNSError", "SSLCertVerificationError"}
)
"""Errors of connecting that a system also reports if it cannot open the files and sockets that it needs for that."""
_FILES_TO_CONNECT = 4
"""Descriptors that looking up the name of a host takes: files of names, and sockets."""
_NO_TEMPORARY_FOLDER = "No usable temporary directory"  # what `tempfile` says
_NO_THREADS = (
    "no more threads or processes can be started: raise the limit (`ulimit -u`), or use fewer workers"
)
_NO_GPU_MEMORY = "no memory of the GPU is left: use smaller batches, or fewer processes on it"
_BROKEN_GPU = (
    "the GPU refuses all work after an error: repeat it with CUDA_LAUNCH_BLOCKING=1 to see which call failed"
)
NO_SHARED_MEMORY = (
    "give the container more (`docker run --shm-size=8g`), or use threads (`loader: {kind: threads}`), fewer workers, "
    "a smaller prefetch_factor or smaller batches"
)
_RUNTIME_LACKS = {
    "unable to allocate shared memory": f"shared memory (`/dev/shm`) is full: {NO_SHARED_MEMORY}",
    "DefaultCPUAllocator": _LACKS[errno.ENOMEM],
    "can't start new thread": _NO_THREADS,
    "CUDA out of memory": _NO_GPU_MEMORY,
    "CUDA error: out of memory": _NO_GPU_MEMORY,
    "CUDA error": _BROKEN_GPU,
}
"""Parts of messages of PyTorch and Python, whose error is a RuntimeError."""


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, also those that libraries keep as arguments."""
    seen: list[BaseException] = []  # `raise error from error` makes a chain without an end
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or next(
            (each for each in error.args if isinstance(each, BaseException)), None
        )


def find_lack(error: BaseException) -> str | None:
    """What the machine lacks, and what to do, if this caused an error; such an error is never one of the data."""
    for each in causes_of(error):
        if isinstance(each, MemoryError):
            return _LACKS[errno.ENOMEM]
        if isinstance(each, OSError) and each.errno in _LACKS:
            return _LACKS[each.errno]
        if type(each) is BlockingIOError:  # of `fork`; those of libraries for videos are subclasses
            return _NO_THREADS
        if isinstance(each, RuntimeError) and not isinstance(each, WdspecError):
            said = str(each)
            if (
                lack := next((_RUNTIME_LACKS[part] for part in _RUNTIME_LACKS if part in said), None)
            ) is not None:
                return lack
        if type(each).__name__ in _HIDE_A_LACK and (lack := _find_lack_of_files()) is not None:
            return lack
        if isinstance(each, FileNotFoundError) and _NO_TEMPORARY_FOLDER in str(each):
            return "no folder for temporary files can be written: mount one, or free some space, and name it in TMPDIR"
    return None


def lacks_descriptors(error: BaseException) -> bool:
    """Whether an error is due to too many open files, of this process or the machine."""
    return find_lack(error) in (_LACKS[errno.EMFILE], _LACKS[errno.ENFILE])


def _find_lack_of_files() -> str | None:
    """What keeps this process from opening a few files now."""
    opened = []
    try:
        for _ in range(_FILES_TO_CONNECT):
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return _LACKS.get(error.errno or 0)
    finally:
        for each in opened:
            os.close(each)
    return None


class FieldError(WdspecError, ValueError):
    """A field of a sample is missing, or its bytes could not be decoded."""

    code = "D202"

    @property
    def url(self) -> str | None:
        """The shard of the sample, if known. This and the others are attributes of webdataset's error."""
        return self.place.get("url")

    @property
    def key(self) -> str | None:
        """The key of the sample, if known."""
        return self.place.get("key")

    @property
    def k(self) -> str | None:
        """The name of the field, if known."""
        return self.place.get("field")


DecodingError = FieldError
"""Its name in webdataset."""


class LeftOutError(FieldError):
    """A step of `make` leaves out a sample. Readers count it, and deliver the others.

    Args:
        message: why.
        cause: the name under which it is counted.
    """

    def __init__(self, message: str, cause: str = "make") -> None:
        super().__init__(message)
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return LeftOutError, (self.message, self.cause)


class MissingFieldError(FieldError, KeyError):
    """A function needs a field that the sample does not have."""

    code = "D201"


for _public in (
    *(WdspecError, SpecError, UsageError, UrlError),
    *(ShardError, MissingShardError, StoreError, FieldError),
):
    _public.__module__ = "wdspec"  # tracebacks show the name that users catch, and pickle finds it there


def tell_place(error: Exception, **place: Any) -> None:
    """Add the place to an error, also to one of another library, which keeps its type.

    It goes into the text of the error, or into a note if the text is made of something else.
    """
    if isinstance(error, WdspecError):
        error.at(**place)
        return
    where = str(WdspecError("", **place)).strip()
    if not where or where in str(error):
        return
    # Errors of the operating system and of codecs make their text of these, others of their first argument.
    for part in ("strerror", "reason"):
        if isinstance(said := getattr(error, part, None), str):
            setattr(error, part, f"{said} {where}")
            if where in str(error):
                error.args = tuple(getattr(error, part) if each == said else each for each in error.args)
                return
            setattr(error, part, said)
    first, *rest = error.args or ("",)
    before = error.args
    if isinstance(error, KeyError):
        error.args = (_Unquoted(f"{first!r} {where}"), *rest)
    else:
        error.args = (f"{first} {where}".lstrip(), *rest)
    if where not in str(error):
        error.args = before
        if hasattr(error, "add_note"):
            error.add_note(f"while processing a sample {where}")


class _Unquoted(str):
    """The text of a KeyError, which would otherwise show its `repr`."""

    def __repr__(self) -> str:
        return str(self)


def log_fields(
    error: BaseException | None = None, *, code: str | None = None, **place: Any
) -> dict[str, str]:
    """Return the fields of a log record for `extra`, without secrets: `source`, `url`, `key` and `code`, if known."""
    if isinstance(error, WdspecError):
        place, code = {**place, **error.place}, code or error.code
    fields = {name: place.get(name) for name in ("source", "url", "key")}
    return {
        name: redact(str(value)) if name == "url" else str(value)
        for name, value in {**fields, "code": code}.items()
        if value is not None
    }


def _rank(name: str) -> int:
    return PLACE_ORDER.index(name) if name in PLACE_ORDER else len(PLACE_ORDER)


def _rebuild(kind: type[WdspecError], message: str, place: dict[str, Any]) -> WdspecError:
    return kind(message, **place)


def in_one_line(error: BaseException) -> str:
    """The message of an error of a library, in one line of limited length; its type if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def nearest(word: object, known: Iterable[str], least: float = 0.66) -> str | None:
    """The known word most similar to this one, or None if none is similar enough (`least`, as in difflib)."""
    if not isinstance(word, str) or len(word) > 60:
        return None
    import difflib

    words = {each.lower(): each for each in reversed(list(known))}
    folded = word.strip().lower().replace("-", "_").replace(" ", "_")
    if folded in words:
        return words[folded]
    best = difflib.get_close_matches(folded, list(words)[-300:], n=1, cutoff=least)
    return words[best[0]] if best else None


def did_you_mean(word: object, known: Iterable[str], least: float = 0.66) -> str:
    """A hint with the nearest known word, or an empty text; `least` as for `nearest`."""
    best = nearest(word, known, least)
    return f"did you mean `{best}`?" if best else ""


_PACKAGE = __name__.partition(".")[0]


def install_command(package: str) -> str:
    """The command that installs a package, in backquotes.

    An extra of wdspec, such as `wdspec[s3]`, is installed from where wdspec itself came from: a checkout, a repository,
    an archive, or an index.
    """
    name, bracket, extra = package.partition("[")
    options, source = _find_origin() if name == _PACKAGE else ("", f"{name}[]")
    return f"`pip install {options}'{source.replace('[]', bracket + extra)}'`"


@cache
def _find_origin() -> tuple[str, str]:
    """Where pip finds wdspec: options, and the package with `[]` in place of an extra."""
    import json
    from importlib.metadata import distributions
    from urllib.parse import unquote, urlsplit

    origin: dict[str, Any] = {"dir_info": {"editable": True}}  # not installed, but imported from a checkout
    # A build leaves a folder of metadata in the checkout, which comes first if Python starts there.
    with suppress(ValueError):
        texts = [each.read_text("direct_url.json") for each in distributions(name=_PACKAGE)]
        origin = json.loads(next(filter(None, texts), "{}")) if texts else origin
    url, vcs = str(origin.get("url", "")), origin.get("vcs_info")
    if vcs:
        return "", f"{_PACKAGE}[] @ {vcs.get('vcs')}+{url}@{vcs.get('commit_id')}"
    if "dir_info" in origin:
        folder = unquote(urlsplit(url).path) or str(Path(__file__).parents[2])
        return "-e " * bool(origin["dir_info"].get("editable")), f"{folder}[]"
    return "", f"{_PACKAGE}[] @ {url}" if url else f"{_PACKAGE}[]"


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the location of the innermost caller outside this package."""
    level, frame = 1, sys._getframe()
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, caller = level + 1, caller.f_back
    warnings.warn(message, category, stacklevel=level)
