"""`TarWriter`: writing samples into one tar shard, with names that readers split into the same key and field."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from wdspec.base.errors import FieldError, UsageError
from wdspec.fields.encode import Encode, EncodeSample, make_encoder
from wdspec.formats.tar.headers import END, HeaderMaker, dialect, padding
from wdspec.formats.tar.keys import splitter
from wdspec.spec.language.samples import KeyRule
from wdspec.write.writer import OF_THE_READER, Packed, SampleWriter, Target, check_fields

KeySplit = Literal["first_dot", "last_dot"]


class MemberNames:
    """Builds the names of members, and refuses those that readers would split differently.

    Args:
        rule: where readers split names; the `key` of a source in a spec.
    """

    def __init__(self, rule: KeySplit = "first_dot") -> None:
        if rule not in ("first_dot", "last_dot"):
            raise ValueError(f"`key` is {rule!r}; use first_dot or last_dot")
        self._rule = rule
        self._split = splitter(KeyRule(kind=rule))
        self._suffixes: dict[str, bytes] = {}

    def key(self, key: object) -> bytes:
        """Return the key of a sample as the first part of the names of its members.

        Raises:
            FieldError: the key is not a str, or not a relative path that readers would accept.
        """
        if not isinstance(key, str):
            seen = (
                "the sample has no `__key__`"
                if key is None
                else f"`__key__` is {key!r:.60}, which is not a str"
            )
            raise FieldError(f"{seen}; give each sample its own text, such as '000042'")
        name = key.encode("utf-8", "surrogateescape")
        reason = self._objection(key, name)
        if reason:
            raise FieldError(f"the key {key[:200]!r} {reason}", key=key)
        return name + b"."

    def _objection(self, key: str, name: bytes) -> str:
        base = key[key.rfind("/") + 1 :]
        if not base:
            return "is not the name of a file: it is empty or ends with a slash"
        if "\0" in key:
            return "contains a NUL character, which ends names in a tar"
        if key.startswith("/"):
            return "is an absolute path; remove the slash"
        if ".." in key.split("/"):
            return "leaves its folder with `..`; remove that"
        if base.startswith("."):
            return "has a last part that starts with a dot, like a hidden file, which readers skip"
        if self._rule == "first_dot" and "." in base:
            read = key[: len(key) - len(base)] + base.split(".")[0]
            return (
                f"has a dot in its last part, so it would be read as {read!r}; use another character, such as `_`, or "
                "`key='last_dot'` here and `key: last_dot` in the spec"
            )
        if self._split(name + b".x") != (name, b"x"):
            return "looks like a `__meta__` file, which readers skip"
        return ""

    def suffix(self, field: str) -> bytes:
        """Return a field as the last part of the name of its member.

        Raises:
            FieldError: readers would see another field or key.
        """
        known = self._suffixes.get(field)
        if known is not None:
            return known
        reason = ""
        if not field or field.startswith("."):
            reason = f"write {field.lstrip('.') or 'an extension'!r}, without a leading dot"
        elif "/" in field or "\0" in field:
            reason = "an extension cannot contain a slash or a NUL character"
        elif self._rule == "last_dot" and "." in field:
            reason = "with `key='last_dot'`, it cannot contain a dot"
        if reason:
            raise FieldError(
                f"the field {field[:200]!r} cannot be the extension of a file: {reason}", field=field
            )
        if len(self._suffixes) > 10_000:
            self._suffixes.clear()
        suffix = self._suffixes[field] = field.encode("utf-8", "surrogateescape")
        return suffix


class TarWriter(SampleWriter):
    """Writes samples, dicts with a ``__key__``, into one tar: a member ``key.field`` for each field.

    The members of a sample are sorted by field. By default, the same samples give the same bytes, without time and
    owner. The tar appears under its name when it is closed, complete or not at all: after an exception, or if the
    process is killed, nothing appears. The format is plain ustar if names and sizes allow.

    A sample is refused if readers would split its names differently (a dot in the last part of a key, hidden and meta
    files), for absolute paths and `..`, and if its key was written before.

    Args:
        fileobj: a path or URL (see `Storage.output`; ``WDS_REWRITE`` applies), or an open binary file, which gets the
            bytes immediately and stays open.
        user, group: names of the owner.
        mode: permissions of the members.
        compress: ``gz``, ``bz2``, ``xz`` or ``zst``; True for gz, False for none; None to choose by the name.
        encoder: True for `FieldEncoder`, by extension; a dict of extension → function that overrides it; a function
            from sample to sample; False if all values are bytes or text.
        keep_meta: whether to write entries that start with ``_``, except those that say where a sample was read
            (``__key__``, ``__url__``, ``__source__``, ``__local_path__``). Their values are text.
        mtime: seconds since 1970 for all members; None for the current time.
        format: ``auto``, ``ustar``, ``gnu`` or ``pax`` (or `tarfile`'s constants), see `HeaderMaker`.
        key: where readers split names, ``first_dot`` or ``last_dot``.
        allow_pickle: whether to encode ``pkl``, ``pickle``, ``pyd`` and ``pth``.
        overwrite: whether a file of this name may be replaced.
        since: refuse to replace a file younger than this; see `LocalOutput`.

    Raises:
        UsageError: an argument is invalid, the name is taken, or another writer uses it.

    Example:
        >>> import io, wdspec
        >>> file = io.BytesIO()
        >>> with wdspec.TarWriter(file) as writer:
        ...     writer.write({"__key__": "a/000", "cls": 7, "txt": "seven"})
        2048
        >>> len(file.getvalue())
        12288
    """

    end = END

    def __init__(
        self,
        fileobj: Target,
        user: str = "",
        group: str = "",
        mode: int = 0o444,
        compress: bool | str | None = None,
        encoder: bool | Mapping[str, Encode] | EncodeSample | None = True,
        keep_meta: bool = False,
        mtime: float | None = 0,
        format: str | int | None = None,
        *,
        key: KeySplit = "first_dot",
        allow_pickle: bool = False,
        overwrite: bool = True,
        since: int | None = None,
    ) -> None:
        self._encode = make_encoder(encoder, allow_pickle=allow_pickle)
        self._keep_meta = keep_meta
        try:
            self._names = MemberNames(key)
            self._headers = HeaderMaker(
                user, group, mode, int(time.time() if mtime is None else mtime), dialect(format)
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        super().__init__(fileobj, compress, overwrite=overwrite, since=since)

    def pack(self, sample: Mapping[str, Any]) -> Packed:
        check_fields(sample)
        sample = encoded = self._encode(sample)
        key = self._names.key(sample.get("__key__"))
        header, suffix_of = self._headers.header, self._names.suffix
        pieces: list[bytes] = []
        lowered: set[str] = set()
        for field in sorted(encoded):
            data = encoded[field]
            if field[:1] == "_":
                if not self._keep_meta or field in OF_THE_READER:
                    continue
                if not isinstance(data, (str, bytes)):
                    raise FieldError(
                        f"{type(data).__name__} in an entry that starts with `_`; such entries must be text",
                        key=sample["__key__"],
                        field=field,
                    )
            if type(data) is not bytes:
                data = _as_bytes(data, sample, field)
            if field.lower() in lowered:
                raise FieldError(
                    "another field has the same name except for case, which readers ignore",
                    key=sample["__key__"],
                    field=field,
                )
            lowered.add(field.lower())
            size = len(data)
            try:
                pieces += header(key + suffix_of(field), size), data, padding(size)
            except FieldError as error:
                error.at(key=sample["__key__"])
                raise
            except ValueError as error:
                raise FieldError(str(error), key=sample["__key__"], field=field) from None
        if not pieces:
            raise FieldError("the sample has no fields, which a tar cannot store", key=sample["__key__"])
        return Packed(sample["__key__"], b"".join(pieces))


def _as_bytes(data: Any, sample: Mapping[str, Any], field: str) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8")
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise FieldError(
        f"the encoder returned {type(data).__name__} instead of bytes", key=sample["__key__"], field=field
    )
