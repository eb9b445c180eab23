"""A tar shard as raw samples: the hot path of reading."""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO
from zlib import adler32

from wdspec.base.errors import ShardError
from wdspec.formats.blocks import BLOCK, REFETCH, Blocks
from wdspec.formats.samples import RawSamples, Unread, no_field
from wdspec.formats.tar.headers import BODILESS, PAX, ZERO_BLOCK, Numbers, byte_sum, shown, text
from wdspec.formats.tar.keys import SuffixTree, splitter
from wdspec.formats.tar.members import HardLinks, Member, check_end, member_at
from wdspec.formats.tar.runs import SampleRuns
from wdspec.spec.language.samples import KeyRule

_FIRST_DOT = KeyRule()

_split_header = struct.Struct("148s8s356s").unpack_from
"""What comes before the checksum, the checksum, and the tail: typeflag, link, magic, owner, prefix."""

CHECKSUM_BLANK = 8 * ord(" ")
"""The checksum field counts as blanks in the sum of its header."""

_REAPPEARS = (
    "a key that came before comes back after other keys, so its sample is torn apart; "
    "sort the files by name when packing (`tar --sort=name`), and pack no key twice"
)


class ShardWarning(UserWarning):
    """A shard is read although it is not quite right, as the spec allows."""


class TarSamples(RawSamples):
    """The samples of one uncompressed tar: adjacent members with the same key, strictly checked.

    Iterating (once) yields dicts: `__key__`, the constants, then one `bytes` value for every wanted member,
    in the shard's order. A sample all of whose members are unwanted is yielded too, with no fields, so that
    indices do not depend on `field_of` and whoever matches fields sees what is missing.

    A sample is delivered once the first header of the next, or the end marker, shows that it is whole.
    Whatever is not whole is a ShardError with the byte offset (in the uncompressed shard), the key and the
    member: truncation, bad headers, a missing end marker, bytes after the marker, or zeros without end, a member
    twice in a sample, a symbolic link or a device in place of a file, a key that comes back after another. Tar
    cannot show changed bytes inside a member's data: only headers have a checksum.

    Args:
        file: as for `RawSamples`; fastest is a local file opened with `buffering=0`.
        key_rule: where names split into key and suffix.
        lenient_end: a shard that stops without the end marker, or has more zeros behind it than a writer puts
            there, gives one `ShardWarning` instead of an error. Data that is cut short stays an error.
        only_sizes: no member's data is asked of the file: where it is not at hand, an `Unread` of its size comes
            instead, and for a link always one of no bytes.
        options: of `RawSamples`. `field_of` is asked once for each sequence of suffixes, as they are in the file;
            an unwanted member is never read. With `offset`, keys that come back are noticed only if they were met
            after it. `on_error` can go on behind duplicates, keys that come back, and links that cannot be read.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        key_rule: KeyRule = _FIRST_DOT,
        lenient_end: bool = False,
        only_sizes: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(file, **options)
        self._key_rule = key_rule
        self._lenient_end = lenient_end
        self._only_sizes = only_sizes

    def __iter__(self) -> Iterator[dict[str, Any]]:
        begun = base = self.next_offset
        at, buffer, end = 0, b"", 0
        key: bytes | None = None
        try:
            blocks = Blocks(self._file, base, self._on_read)
            take: Callable[[int, int], bytes | Unread] = Unread if self._only_sizes else blocks.take
            links = HardLinks(blocks)
            numbers = Numbers()
            split, dotted = splitter(self._key_rule), self._key_rule.kind != "regex"
            template = {"__key__": "", **self._constants}
            tree = SuffixTree(self._field_of, template)
            node = tree.root
            stride, residue = self._stride, self._residue
            runs = SampleRuns(split, tree, template, stride, residue)
            searched = b""  # the window that a run was looked for in
            seen: set[bytes] = set()
            index = self.next_index - 1
            sample: dict[str, Any] = {}
            mine = False  # whether the current sample is going to be delivered
            # How the names of the current sample's members begin, if that and a suffix met before make them its
            # own for sure: not with a regex, nor where `__x.y__` would be a meta file.
            prefix: bytes | None = None
            after_prefix = 0
            extended = -1  # offset of the first extended header before the member's own, if there is one
            # Members written by one program mostly share a tail, so its sum and meaning are kept.
            file_tail, file_sum = b"", 0
            pax_tail, pax_sum = b"", 0

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
                    elif _is_ordinary(member, tail):
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
                                like = (base + at - begun) // max(1, len(seen)), file_tail, file_sum
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
                                sample["__key__"] = shown(key)
                            prefix = key + b"." if dotted and key[:2] != b"__" else None
                            after_prefix = len(key) + 1
                            node = tree.root
                            if key in seen and mine:
                                mine = False
                                self._report(
                                    ShardError(_REAPPEARS, code="D205"),
                                    offset=base + at,
                                    key=shown(key),
                                    member=shown(name),
                                )
                            seen.add(key)
                        spelling = suffix if member or prefix is None else head[after_prefix:100]
                        step = node.get(spelling)
                        try:
                            if step is None:
                                step = tree.step(node, spelling)
                            if mine and member and member.type in BODILESS and step[0] is not None:
                                sample[step[0]] = Unread(0, 0) if self._only_sizes else links.read(member)
                                step = None, step[1]
                        except ShardError as error:
                            step = step or (None, node)
                            if mine:
                                mine = False
                                self._report(error, offset=base + at, key=shown(key), member=shown(name))
                field, node = step
                extended = -1

                at = data + size + (-size & 511)
                if at <= end:
                    if mine and field is not None:
                        sample[field] = buffer[data : data + size]
                else:
                    try:
                        if mine and field is not None:
                            sample[field] = take(base + data, size)
                        at = blocks.find(base + at)
                    except ShardError as error:
                        at = data - BLOCK
                        error.at(member=shown(text(head[:100]) if member is None else member.name))
                        raise
                    buffer, base, end = blocks.buffer, blocks.base, len(blocks.buffer)

            if extended >= 0:
                raise ShardError(
                    f"an extended header is followed by no member; {REFETCH}", code="D113", offset=extended
                )
            offset = base + at
            # Before the last sample is given: zeros may have begun inside that.
            warning, beyond = check_end(
                blocks, offset, lenient=self._lenient_end, may_be_empty=self._may_be_empty
            )
            if warning:
                placed = self._placed(ShardError(warning), offset=offset)
                warnings.warn(str(placed), ShardWarning, stacklevel=2)
            self.next_offset, self.next_index = offset, index + 1
            if mine:
                yield sample
            key = None
            if beyond is not None:
                raise beyond
        except ShardError as error:
            self._report_end(error, offset=base + at, key=None if key is None else shown(key))


def count_samples(file: BinaryIO, **options: Any) -> int:
    """The number of samples in an uncompressed tar, from its headers alone.

    Args:
        options: of `TarSamples`.

    Raises:
        ShardError: as reading does.
    """
    samples = TarSamples(file, field_of=no_field, **options)
    return sum(1 for _ in samples)


def _is_ordinary(member: Member, tail: bytes) -> bool:
    """Whether any header with this tail is a file that its first 156 bytes describe in full.

    Not with a ustar prefix (byte 345 of the header, 189 of the tail); nor with typeflag NUL, which may also
    be a directory.
    """
    return member.is_file and member.data_offset == member.offset + BLOCK and tail[0] != 0 and tail[189] == 0


_NEWLINE = ord("\n")
_idle_pax = re.compile(rb"(?:\d\d [acm]time=[\d.-]+\n)+").match
"""Matches a pax header that only says when: any other might name the member, or be damaged where it did."""


def _past_idle_pax(buffer: bytes, start: int, size: int) -> int:
    """The index after a pax header's records if all are in the buffer and none matters here; else 0.

    Python's `tarfile` writes one before every member just to keep fractions of a second.
    """
    end = start + size + (-size & 511)
    if end > len(buffer):
        return 0
    records = _idle_pax(buffer, start, end)
    # With the padding: a damaged size must not hide a record.
    if records is None or buffer[records.end() : end] != ZERO_BLOCK[: end - records.end()]:
        return 0
    at = start
    while at < records.end():  # each begins with its own length, which a damaged one does not have
        at += int(buffer[at : at + 2])
        if buffer[at - 1] != _NEWLINE:
            return 0
    return end if at == records.end() else 0
