"""`TarSamples`: reading a tar shard as raw samples, the hot path of reading, and the names of members.

A name is split into the key of a sample and the suffix of a field. Names stay bytes, as a tar does not specify their
encoding.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO
from zlib import adler32

from wdspec.base.errors import ShardError, UrlError
from wdspec.formats.blocks import BLOCK, CHUNK, REFETCH, Blocks
from wdspec.formats.samples import RawSamples, Unread, no_field
from wdspec.formats.tar.headers import (
    BODILESS,
    INDIRECT,
    NAME,
    PAX,
    ZERO_BLOCK,
    byte_sum,
    read_number,
    text,
    to_text,
)
from wdspec.formats.tar.members import IndirectReader, Member, check_end, member_at
from wdspec.formats.tar.runs import SampleRuns
from wdspec.spec.language.samples import KeyRule
from wdspec.urls.rewrite import check_length

_FIRST_DOT = KeyRule()

_split_header = struct.Struct("148s8s356s").unpack_from
"""What comes before the checksum, the checksum, and the tail: typeflag, link, magic, owner, prefix."""

CHECKSUM_BLANK = 8 * ord(" ")
"""The checksum field counts as blanks in the sum of its header."""

_REAPPEARS = (
    "the key has occurred before, and other keys since, so its sample is split, and its first files were "
    "read as a sample; put them together with `wdspec sort`, or sort the files by name when packing "
    "(`tar --sort=name`), and pack each key once"
)


class ShardWarning(UserWarning):
    """A shard is read although it has a flaw, as the spec allows."""


class TarSamples(RawSamples):
    """The samples of one uncompressed tar: adjacent members with the same key, strictly checked.

    Iterating (once) yields dicts: `__key__`, the constants, then one `bytes` value for each member that is needed, in
    the order of the shard. A sample without such members is yielded too, so that indices do not depend on `field_of`,
    and code that matches fields sees what is missing.

    A sample is yielded when the header of the next one, or the end marker, shows that it is complete. Anything
    incomplete is a ShardError with the byte offset (in the uncompressed shard), the key and the member: truncation, bad
    headers, a missing end marker, bytes or too many zeros after the marker, a duplicate member in a sample, a symbolic
    link or a device in place of a file, a key that occurs again after others. Changed bytes in the data of a member
    cannot be detected, as only headers have a checksum.

    Args:
        file: see `RawSamples`; a local file opened with `buffering=0` is fastest.
        key_rule: where names are split into key and suffix.
        lenient_end: whether a shard without an end marker, or with more zeros after it than a writer adds, causes one
            `ShardWarning` instead of an error. Truncated data is still an error.
        only_sizes: whether to skip the data of members in the file. Data that is not in the window is replaced by an
            `Unread` of its size, and links always by one of no bytes.
        leaves_out: says of a sample of which only the first files were read that it will be left out, so that the data
            of large ones among its other files is not read: it is replaced as by `only_sizes`.
        options: of `RawSamples`. `field_of` is called once for each sequence of suffixes, spelled as in the file;
            members that are not needed are never read. With `offset`, a key that occurs again is noticed only if it
            occurred after the offset. `on_error` can continue after duplicates, keys that occur again, and links that
            cannot be read.
    """

    yields_parts = False
    """Whether the files of a key that occurs again are yielded as another sample, in place of an error."""

    def __init__(
        self,
        file: BinaryIO,
        *,
        key_rule: KeyRule = _FIRST_DOT,
        lenient_end: bool = False,
        only_sizes: bool = False,
        leaves_out: Callable[[dict[str, Any]], bool] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(file, **options)
        self._key_rule, self._lenient_end = key_rule, lenient_end
        self._only_sizes, self._leaves_out = only_sizes, leaves_out

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first = base = self.next_offset
        at, buffer, end = 0, b"", 0
        key: bytes | None = None
        try:
            blocks, numbers = Blocks(self._file, base, self._on_read), _numbers
            take: Callable[[int, int], bytes | Unread] = Unread if self._only_sizes else blocks.take
            is_out = self._leaves_out and LeanReading(blocks, self._leaves_out).leaves_out
            take_indirect = _unread if self._only_sizes else IndirectReader(blocks).read
            split, dotted = splitter(self._key_rule), self._key_rule.kind != "regex"
            template = {"__key__": "", **self._constants}
            tree = SuffixTree(self._field_of, template)
            node = tree.root
            stride, residue = self._stride, self._residue
            runs = SampleRuns(split, tree.fields_of, template, stride, residue)
            seen: set[bytes] = set()
            index = self.next_index - 1
            sample: dict[str, Any] = {}
            # the window that was searched for a run; whether the current sample will be yielded
            searched, mine = b"", False
            # The start of the names of members of the current sample, if this and a known suffix are sufficient to
            # recognize them: not with a regex, nor if `__x.y__` would be a meta file.
            prefix: bytes | None = None
            after_prefix = 0
            extended = -1  # offset of the first extended header before the member's own, if there is one
            # Members written by one program mostly have the same tail, so its sum and meaning are stored.
            file_tail, file_sum, pax_tail, pax_sum = b"", 0, b"", 0

            while True:
                if at + BLOCK > end:
                    at = blocks.find(base + at)
                    buffer, base, end = blocks.buffer, blocks.base, len(blocks.buffer)
                    if at + BLOCK > end:
                        break
                head, checksum, tail = _split_header(buffer, at)
                step = None
                if tail == file_tail and adler32(head, 0) & 0xFFFF == numbers[checksum] - file_sum:
                    member = None
                    data = at + BLOCK
                    size = numbers[head[124:136]]
                    if head[:after_prefix] == prefix:
                        step = node.get(head[after_prefix:100])
                elif (
                    tail == pax_tail
                    and adler32(head, 0) & 0xFFFF == numbers[checksum] - pax_sum
                    and (past := _past_idle_pax(buffer, at + BLOCK, numbers[head[124:136]]))
                ):
                    extended = base + at if extended < 0 else extended
                    at = past
                    continue
                else:
                    member = member_at(blocks, base + at)
                    if member is None:
                        break
                    if tail[:1] == PAX:
                        pax_tail, pax_sum = tail, byte_sum(tail) + CHECKSUM_BLANK
                    elif member.is_ordinary(tail):
                        file_tail, file_sum = tail, byte_sum(tail) + CHECKSUM_BLANK
                    extended = member.offset if extended < 0 else extended
                    buffer, base, end = blocks.buffer, blocks.base, len(blocks.buffer)
                    data = member.data_offset - base
                    at = data - BLOCK
                    size = 0 if member.type in BODILESS else member.size

                if step is None:
                    name = head[:100].partition(b"\0")[0] if member is None else member.name
                    parts = split(name) if member is None or member.may_be_sampled else None
                    if parts is None:
                        check_whole(name, text(buffer[at : at + NAME]), member, extended in (-1, base + at))
                        step = None, node
                    else:
                        new_key, suffix = parts
                        if new_key != key:
                            if mine:
                                self.next_offset = base + at if extended < 0 else extended
                                self.next_index = index + 1
                                yield sample
                            if dotted and member is None and buffer is not searched and runs.patience:
                                searched = buffer
                                like = (base + at - first) // max(1, len(seen)), file_tail, file_sum
                                run = runs.find(buffer, base, at, index + 1, like, seen)
                                if run is not None:
                                    for self.next_offset, self.next_index, sample in run.samples:
                                        yield sample
                                    key, index, at = run.key, index + run.length, run.end
                                    mine, prefix, extended = False, None, -1
                                    continue
                            key = new_key
                            index += 1
                            mine = index % stride == residue
                            if mine:
                                sample = template.copy()
                                sample["__key__"] = to_text(key)
                            prefix = key + b"." if dotted and key[:2] != b"__" else None
                            after_prefix = len(key) + 1
                            node = tree.root
                            if key in seen and mine and not self.yields_parts:
                                mine = False
                                error = ShardError(_REAPPEARS, code="D205")
                                self._report(error, offset=base + at, key=to_text(key), member=to_text(name))
                            seen.add(key)
                        spelling = suffix if member or prefix is None else head[after_prefix:100]
                        step = node.get(spelling)
                        try:
                            if step is None:
                                step = tree.step(node, spelling)
                            if mine and member and member.type in INDIRECT and step[0] is not None:
                                sample[step[0]] = take_indirect(member)
                                step = None, step[1]
                        except ShardError as error:
                            step = step or (None, node)
                            if mine:
                                mine = False
                                self._report(error, offset=base + at, key=to_text(key), member=to_text(name))
                field, node = step
                extended = -1

                at = data + size + (-size & 511)
                if at <= end:
                    if mine and field is not None:
                        sample[field] = buffer[data : data + size]
                else:
                    try:
                        if mine and field is not None:
                            read = Unread if is_out and is_out(sample, size) else take
                            sample[field] = read(base + data, size)
                        at = blocks.find(base + at)
                    except ShardError as error:
                        at = data - BLOCK
                        error.at(member=to_text(text(head[:100]) if member is None else member.name))
                        raise
                    buffer, base, end = blocks.buffer, blocks.base, len(blocks.buffer)

            # Before the last sample is yielded, as zeros may have started inside it.
            beyond = self._check_end(blocks, base + at, extended)
            self.next_offset, self.next_index = base + at, index + 1
            if mine:
                yield sample
            key = None
            if beyond is not None:
                raise beyond
        except GeneratorExit:  # at exit, the names below may already be None
            raise
        except ShardError as error:
            self._report_end(error, offset=base + at, key=None if key is None else to_text(key))

    def _check_end(self, blocks: Blocks, offset: int, extended: int) -> ShardError | None:
        """Check the end after the last member, and return the error to raise after the last sample, if any.

        Args:
            offset: where the end marker should be.
            extended: offset of an extended header just before it; -1 if there is none.

        Raises:
            ShardError: the last sample may be incomplete.
        """
        if extended >= 0:
            raise ShardError(f"no member follows an extended header; {REFETCH}", code="D113", offset=extended)
        warning, beyond = check_end(
            blocks, offset, lenient=self._lenient_end, may_be_empty=self._may_be_empty
        )
        if warning:
            placed = self._add_place(ShardError(warning), offset=offset)
            warnings.warn(str(placed), ShardWarning, stacklevel=3)
        return beyond


class LeanReading:
    """Decides for each large file whether it is read, and how much of the shard to read at a time.

    Between files that are not read, a window has room for little more than headers and small files.

    Args:
        blocks: the window.
        leaves_out: as for `TarSamples`.
    """

    def __init__(self, blocks: Blocks, leaves_out: Callable[[dict[str, Any]], bool]) -> None:
        self._blocks, self._leaves_out = blocks, leaves_out
        # Others may ask a server for each piece.
        self._skips = isinstance(getattr(blocks.file, "stream", blocks.file), io.FileIO)

    def leaves_out(self, sample: dict[str, Any], size: int) -> bool:
        """Return whether a file of a sample, which has the files before it, is not read."""
        if size < _LARGE:
            return False
        is_out = self._leaves_out(sample)
        if self._skips:
            self._blocks.chunk = _LEAN if is_out else min(CHUNK, 2 * self._blocks.chunk)
        return is_out


_LARGE = 128 * 1024
"""The least bytes of a file that is not read. To read 100 KB in large pieces takes as long as to seek past them."""
_LEAN = 8 * 1024
"""Bytes to read at a time after a sample that is left out."""


def count_samples(file: BinaryIO, **options: Any) -> int:
    """Count the samples of an uncompressed tar by its headers.

    Args:
        options: of `TarSamples`.

    Raises:
        ShardError: see `TarSamples`.
    """
    samples = TarSamples(file, field_of=no_field, **options)
    return sum(1 for _ in samples)


def _unread(member: Member) -> Unread:
    return Unread(0, member.file_size)


_NEWLINE = ord("\n")
_idle_pax = re.compile(rb"(?:\d\d [acm]time=[\d.-]+\n)+").match
"""Matches a pax header that contains only times. Any other may change the name, or be a damaged one that does."""


def _past_idle_pax(buffer: bytes, start: int, size: int) -> int:
    """Return the index after the records of a pax header if all are in the buffer and irrelevant; otherwise 0.

    Python's `tarfile` writes such a header before each member to store fractions of a second.
    """
    end = start + size + (-size & 511)
    if end > len(buffer):
        return 0
    records = _idle_pax(buffer, start, end)
    # The padding is checked too: a damaged size must not hide a record.
    if records is None or buffer[records.end() : end] != ZERO_BLOCK[: end - records.end()]:
        return 0
    at = start
    while at < records.end():  # each record starts with its length, unless it is damaged
        at += int(buffer[at : at + 2])
        if buffer[at - 1] != _NEWLINE:
            return 0
    return end if at == records.end() else 0


class Numbers(dict[bytes, int]):
    """The numbers of header fields by their bytes. A lookup takes a quarter of the time of `int(text, 8)`.

    The dict is limited, as sizes of large files hardly ever repeat.
    """

    def __missing__(self, field: bytes) -> int:
        if len(self) > 20_000:
            self.clear()
        value = self[field] = read_number(field)
        return value


_numbers = Numbers()


KeySplitter = Callable[[bytes], "tuple[bytes, bytes] | None"]
"""Name → (key, suffix), or None for a member that belongs to no sample."""

_META = re.compile(rb"__[^/]*__(?:/|\Z)")
_UNDERSCORE = ord("_")


def splitter(rule: KeyRule) -> KeySplitter:
    """Return the function that splits names by a rule.

    Names are arbitrary bytes ('..', absolute, with newlines, not UTF-8), as they are only compared. Members belong to
    no sample if their base name starts with a dot (`.DS_Store`, `._a.jpg`), if they are `__meta__` files or in such
    folders, or if the rule cannot split their name.

    Args:
        rule: `first_dot` splits the base name at its first dot, `last_dot` at its last one. A regex matches the whole
            name, and its two groups are key and suffix.
    """
    if rule.kind == "regex":
        return _regex_splitter(re.compile(rule.regex or ""))
    return _split_at_first_dot if rule.kind == "first_dot" else _split_at_last_dot


def _split_at_first_dot(name: bytes) -> tuple[bytes, bytes] | None:
    base = name.rfind(b"/") + 1
    dot = name.find(b".", base)
    if dot <= base or (name[0] == _UNDERSCORE and _is_meta(name)):
        return None
    return name[:dot], name[dot + 1 :]


def _split_at_last_dot(name: bytes) -> tuple[bytes, bytes] | None:
    base = name.rfind(b"/") + 1
    dot = name.rfind(b".", base)
    if dot <= base or _is_hidden(name) or _is_meta(name):
        return None
    return name[:dot], name[dot + 1 :]


def _regex_splitter(regex: re.Pattern[str]) -> KeySplitter:
    def split(name: bytes) -> tuple[bytes, bytes] | None:
        if _is_hidden(name) or _is_meta(name):
            return None
        text = to_text(name)
        try:
            check_length(regex.pattern, text)
        except UrlError as error:
            raise ShardError(error.message) from None
        match = regex.fullmatch(text)
        if match is None or match[1] is None or match[2] is None:
            return None
        return match[1].encode("utf-8", "surrogateescape"), match[2].encode("utf-8", "surrogateescape")

    return split


def _is_hidden(name: bytes) -> bool:
    return name.startswith(b".", name.rfind(b"/") + 1)


def _is_meta(name: bytes) -> bool:
    return (name[:2] == b"__" and b"/" not in name and name.endswith(b"__")) or _META.match(name) is not None


def check_whole(name: bytes, field: bytes, member: Member | None, is_alone: bool) -> None:
    """Raise ShardError if the name of a member that belongs to no sample is the start of one that is lost.

    A name that is too long for its field has an extended header. Without it, what is left of the name has no suffix.

    Args:
        name: the name, also with what another field has of it.
        field: the contents of its field.
        member: the member, if it has been read.
        is_alone: whether no extended header comes before the member's own.
    """
    if not is_alone or (member is not None and not member.may_be_sampled):
        return
    if field == _OF_TAR_STREAM:
        seen, unless = "which tar-stream writes in place of a long one", ""
    elif len(field) >= NAME - 1 and b"." not in name[name.rfind(b"/") + 1 :] and not _is_meta(name):
        seen = f"which fills the {NAME} bytes of its field, and has no extension"
        unless = ". If the file belongs to no sample, leave it out of the shard"
    else:
        return
    raise ShardError(
        f"a member has the name {to_text(field)!r}, {seen}: the extended header with its whole name is lost; "
        f"{REFETCH}{unless}",
        code="D113",
    )


_OF_TAR_STREAM = b"PaxHeader"
"""The name of a member with an extended header, as tar-stream (a package of Node) writes it."""


class SuffixNode(dict[bytes, "tuple[str | None, SuffixNode]"]):
    """A place in the sequence of the members of a sample.

    It maps the suffix of the next member, as spelled in its header (padded with NULs or not), to the name its data is
    stored under (None: not needed) and the place after it. Samples of one shard mostly take the same path, so that one
    lookup per member finds its field and excludes duplicates.
    """

    __slots__ = ("fields", "suffixes")

    def __init__(self, suffixes: frozenset[str], fields: frozenset[str]) -> None:
        self.suffixes = suffixes
        self.fields = fields


class SuffixTree:
    """The tree of all sequences of suffixes that occurred.

    Args:
        field_of: suffix as in the file → stored name, or None if it is not needed.
        reserved: names that members cannot have (`__key__` and the constants).
    """

    def __init__(self, field_of: Callable[[str], str | None], reserved: Iterable[str]) -> None:
        self._field_of = field_of
        self._reserved = frozenset(reserved)
        self._steps = 0
        self.root = SuffixNode(frozenset(), self._reserved)

    def fields_of(self, suffixes: list[bytes]) -> list[str | None]:
        """Return the names that the data of a sample with these suffixes is stored under; nothing if one is invalid."""
        node, fields = self.root, []
        try:
            for suffix in suffixes:
                field, node = node.get(suffix) or self.step(node, suffix)
                fields.append(field)
        except ShardError:
            return []
        return fields

    def step(self, node: SuffixNode, spelling: bytes) -> tuple[str | None, SuffixNode]:
        """Add the step from `node` for a suffix, and return it. Raises ShardError for a duplicate."""
        suffix = to_text(spelling.partition(b"\0")[0])
        lowered = suffix.lower()
        if lowered in node.suffixes:
            raise ShardError(
                f"duplicate member: the sample already has a file with the suffix {lowered!r} (case is ignored); was "
                "the shard appended to or packed twice? Pack it again, with each name once",
                code="D204",
            )
        field = self._field_of(suffix)
        if field in self._reserved:
            raise ShardError(
                f"a member with the suffix {suffix!r} would overwrite `{field}` of the sample; rename it",
                code="D206",
            )
        if field in node.fields:
            raise ShardError(
                f"two members of one sample, the second with the suffix {suffix!r}, both become the field {field!r}; "
                "give them different fields in `extensions` or `rename` (in Python: `rename_files=`)",
                code="D206",
            )
        self._steps += 1
        if self._steps > 10_000:  # suffixes are unlimited, for example if a number follows the first dot
            self._steps = 0
            self.root = SuffixNode(frozenset(), self._reserved)
        fields = node.fields if field is None else node.fields | {field}
        step = node[spelling] = (field, SuffixNode(node.suffixes | {lowered}, fields))
        return step


class TarParts(TarSamples):
    """The parts of samples: files of a key that are apart in a tar."""

    yields_parts = True
