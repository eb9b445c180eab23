"""Check one shard: find it in its store, read it in full, and collect all of its problems."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from wdspec.advice.class_names import ClassNames
from wdspec.base.amounts import pluralize
from wdspec.base.errors import FieldError, ShardError, UsageError, WdspecError, find_lack
from wdspec.formats.blocks import BLOCK, Blocks
from wdspec.formats.compression import Compression, compression_of, format_of
from wdspec.formats.decompress import decompress
from wdspec.formats.map_names import (
    find_repeated_in_cbor,
    find_repeated_in_json,
    find_repeated_in_msgpack,
)
from wdspec.formats.records import as_texts
from wdspec.formats.samples import RawSamples
from wdspec.formats.statistics import Verification
from wdspec.formats.tar.headers import read_header, to_text
from wdspec.formats.tar.members import member_at
from wdspec.formats.tar.reader import splitter
from wdspec.jobs.check.facts import DataProblem, SampleFacts, SamplePlace, Seen, ShardFacts
from wdspec.jobs.check.token_widths import TokenWidths
from wdspec.jobs.check.values import SampleWatch
from wdspec.jobs.job import ReadTask
from wdspec.read.error_budget import ErrorBudget, code_of, is_mistake
from wdspec.read.left import PARTS
from wdspec.read.shard import Piece
from wdspec.read.transform import Process
from wdspec.read.windows import WindowPlanner
from wdspec.spec.language.decoders import library
from wdspec.spec.language.options import Errors
from wdspec.spec.language.samples import KeyRule
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import is_command

MOST_OF_A_CODE = 20
"""Maximum number of problems with one code to list for a shard; others are counted."""
MOST_RESUMED = 100
"""How often reading continues after damage in one shard."""
MOST_SEARCHED = 64 * 1024 * 1024
"""Number of bytes after damage to search for a header."""


@dataclass(frozen=True)
class ShardLook(ReadTask):
    """A shard to check."""

    in_full: bool
    """Whether to read it; otherwise the store is only asked for it."""
    looks: bool
    """Whether to hash the brightness of images."""
    is_other: bool = False
    """Whether it belongs to the spec of `--against`."""
    planner: WindowPlanner | None = None
    """Measures the samples, for batches that are planned from windows."""
    known: tuple[int | None, str] | None = None
    """Its size and validator at an earlier check; if they are unchanged, it is not checked again."""


def look_at(look: ShardLook) -> ShardFacts:
    """Check a shard. Errors of the data become problems, so this always returns."""
    started = time.monotonic()
    reading = _Reading(look)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about data that the spec allows
            reading.run()
    except Exception as error:
        if find_lack(error) is not None:  # not a fact about the shard, which is looked at again
            raise
        reading.note(error, "shard")
    reading.facts.seconds = time.monotonic() - started
    return reading.facts


def _identify(stat: ObjectStat, partners: Sequence[ObjectStat]) -> str | None:
    """Return what changes if a shard or one of its partners changes; None if it is not known of all of them."""
    found = [stat.validator, *(each.validator and f"{each.size} {each.validator}" for each in partners)]
    return None if None in found else " ".join(filter(None, found))


class _ProblemBudget(ErrorBudget):
    """Collects every error; raises only mistakes in the spec, its code or the environment."""

    def __init__(self, reading: _Reading, source: str) -> None:
        super().__init__(Errors(), source)
        self._reading = reading

    def __call__(self, error: Exception, cause: Any, **place: Any) -> None:
        if is_mistake(error):
            raise error
        self._reading.note(error, cause, **place)
        self.skipped[code_of(error, cause)] += 1

    def note_lost(self, error: FieldError, **place: Any) -> None:
        error.code = "D340"  # a warning
        self._reading.note(error, "decode", **place)


class _Reading:
    """Reads one shard, and collects its findings."""

    def __init__(self, look: ShardLook) -> None:
        self.look, self.url = look, look.shard.text
        self.facts = ShardFacts()
        self._at: tuple[str, int] | None = None
        """Key and offset of the sample being decoded."""
        self._lacking: Counter[str] = Counter()
        """Samples that `missing: skip` drops, by what they lack."""
        self._first_lost: SamplePlace | None = None
        """The first sample that the spec drops."""
        self._errors = 0
        self._members: Blocks | None = None
        self._widths: TokenWidths | None = None
        self._lent: AbstractContextManager[object] = nullcontext()
        self._weigh: Process | None = None
        """Measures a raw sample and the decoded one; None is returned for one that no batch can have."""
        self._sample: dict[str, Any] | None = None

    def run(self) -> None:
        """Ask the store for the shard, and read it."""
        look, open = self.look, self.look.parts.open
        facts = self.facts
        stat = open.storage.stat(look.shard)
        partners = [open.storage.stat(partner) for partner in look.shard.partners]  # raises if one is missing
        facts.size, facts.validator = stat.size, _identify(stat, partners)
        if look.known is not None and look.known == (facts.size, facts.validator):
            facts.is_unchanged = True
            return
        if not look.in_full:
            if stat == type(stat)():  # a store without such facts
                open.storage.open_watched(look.shard).close()
            return
        facts.samples = SampleFacts()
        watch = SampleWatch(self.url, self._add_at, look.looks, look.parts.transform.objects)
        budget = _ProblemBudget(self, look.source)
        try:
            self._samples(watch, budget)
        finally:
            facts.samples = watch.finish()
            facts.keys, facts.contents, facts.looks = watch.hashes()
            facts.samples.samples = len(facts.keys)
            dropped = budget.all_dropped
            facts.samples.dropped = dropped.total()
            dropped["missing"] -= self._lacking.total()
            facts.samples.causes = dict(+dropped + self._lacking)
            facts.samples.first_lost = self._first_lost
            if self._members is not None:
                self._members.file.close()

    def note(self, error: Exception, cause: str, **place: Any) -> None:
        """Add an error of reading, with its member and offset if they can be found."""
        self._errors += 1
        problem = DataProblem.of(error, cause, **{"source": self.look.source, "url": self.url, **place})
        if cause != "shard" and self._at is not None:
            key, offset = self._at
            offset = offset if problem.offset is None else problem.offset
            problem = replace(problem, key=problem.key or key, offset=offset)
        self._add(problem)

    def _add(self, problem: DataProblem) -> None:
        facts = self.facts
        if sum(each.code == problem.code for each in facts.problems) >= MOST_OF_A_CODE:
            facts.hidden[problem.code] = facts.hidden.get(problem.code, 0) + 1
            return
        if problem.field is not None and problem.member is None and problem.key is not None:
            problem = self._with_member(problem)
        facts.problems.append(problem)

    def _add_at(self, code: str, message: str, place: SamplePlace, field: str) -> None:
        self._add(DataProblem.at(code, message, self.look.source, place, field))

    def _compare_name(self, found: Compression | None) -> None:
        """Compare the compression of the shard with its name."""
        format = format_of(self.url, self.look.parts.open.format)
        named = compression_of(self.url.split("?", 1)[0])
        if is_command(self.url) or format == "tokens" or found is named:  # tokens are read as they are
            return
        seen = f"compressed with {found.title}" if found else "not compressed"
        name = f"name it `.tar{found.suffixes[0]}`" if found and format == "tar" else "rename it"
        message = (
            f"the shard is {seen}, but its name says otherwise; wdspec uses its first bytes, other readers the name: "
            f"{name}"
        )
        self._add(DataProblem("D309", message, self.look.source, self.url, offset=0))

    def _samples(self, watch: SampleWatch, budget: _ProblemBudget) -> None:
        """Read the shard to its end; after damage, resume at the next header."""
        look = self.look
        verification = Verification(lambda error: self.note(error, "shard"))
        open = replace(look.parts.open, verify=verification)
        process: Process | None = None
        self._widths = TokenWidths.of(open.tokens, partial(self._add_at, "D365"))
        try:
            process, self._lent = look.build_process(budget)
            if look.planner is not None:
                self._weigh = look.planner.choose(look.parts, budget, lambda raw, index: self._sample)
        except Exception as error:
            self._add_mistake(error)
        piece, resumed, torn = Piece(look.shard), 0, False
        while True:
            opened = open(piece, on_error=lambda error: self.note(error, "shard"))
            with closing(opened):
                if not resumed:
                    self._compare_name(opened.compression)
                process = self._read(opened, watch, process, torn, budget)
                with suppress(ShardError):  # was reported above
                    if (kinds := opened.kinds()) is not None and not resumed:
                        columns = json.dumps(dict(kinds), ensure_ascii=False)
                        watch.facts.columns[columns] = Seen(1, watch.place(0, 0, ""))
            watch.facts.bytes = opened.next_offset
            self.facts.lacks_checksums = verification.lacks_checksums
            broken = opened.broken
            if opened.unjoined:
                more = f"{pluralize(opened.unjoined, 'sample')} that the shard lacks, which are not read"
                seen = f"its partners in `join` have {more}"
                self._add(DataProblem("D319", seen, look.source, self.url))
            if broken is None or resumed == MOST_RESUMED or broken.place.get("url", self.url) != self.url:
                return
            resumed += 1
            at = self._next_header(broken, opened.next_offset)
            if at is None:
                return
            # The first sample after the damage may lack files from before it.
            piece, torn = Piece(look.shard, offset=at, index=opened.next_index), broken.code != "D111"

    def _read(
        self, opened: RawSamples, watch: SampleWatch, process: Process | None, torn: bool, budget: ErrorBudget
    ) -> Process | None:
        names = ClassNames(self.look.parts.transform.fields, self.look.parts.selection, watch.facts.names)
        following, dropped, missing = opened.next_offset, budget.dropped.total(), budget.dropped["missing"]
        by_where = budget.tally("where")
        for raw in opened:
            index, offset, following = opened.next_index - 1, following, opened.next_offset
            watch.raw(raw, index, offset)
            if self._widths is not None:
                self._widths.look(raw, watch.place(index, offset, raw["__key__"]))
            if torn:
                torn = False
                continue
            for name, value in raw.items():
                if type(value) is not bytes:
                    continue
                place = watch.place(index, offset, raw["__key__"])
                if not value:
                    self._add_at("D312", "the file has 0 bytes", place, name)
                elif twice := _find_repeated(name, value):
                    message = (
                        f"a map has two values named {twice!r}, and only the last one is read; remove one"
                    )
                    self._add_at("D320", message, place, name)
            if process is None:
                continue
            self._at, errors, rejected = (raw["__key__"], offset), self._errors, by_where[0]
            try:
                with self._lent:
                    sample = self._sample = process(raw, index)
                    if sample is not None and self._weigh is not None and self._weigh(raw, index) is None:
                        sample = None
            except WdspecError as error:  # a mistake in the spec or its code: no sample can be read
                if find_lack(error) is not None:
                    raise
                self._add_mistake(error)
                process = None
            except Exception as error:
                if find_lack(error) is not None:
                    raise
                self.note(error, "map")
            else:
                if sample is not None:
                    names.look(raw)
                    watch.decoded(sample, raw, index, offset)
                elif budget.dropped["missing"] > missing:
                    naming = self.look.parts.transform.fields.naming
                    self._lacking[budget.lack or naming.describe_lack(raw)] += 1
                    budget.lack = ""
                elif budget.dropped.total() == dropped and self._errors == errors:
                    watch.leave_out()
                    if by_where[0] > rejected:
                        names.look_at_selected(raw)
                if sample is None and self._first_lost is None and budget.all_dropped.keys() - PARTS:
                    self._first_lost = watch.place(index, offset, raw["__key__"])
                dropped, missing = budget.dropped.total(), budget.dropped["missing"]
        self._at = None
        return process

    def _add_mistake(self, error: Exception) -> None:
        cause = error.message if isinstance(error, WdspecError) else f"{type(error).__name__}: {error}"
        message = f"{cause}; no sample of the source can be read"
        self._add(DataProblem("D211", message, self.look.source, self.url))

    def _next_header(self, broken: ShardError, offset: int) -> int | None:
        blocks = self._blocks()
        at = int(broken.place.get("offset", offset))
        if blocks is None:
            return None
        return at if broken.code == "D111" else next_header(blocks, at)

    def _with_member(self, problem: DataProblem) -> DataProblem:
        """Add the name and offset of its member to a problem, if the shard can be searched."""
        parts, field = self.look.parts, problem.field
        blocks = self._blocks()
        if blocks is None or problem.offset is None or problem.key is None or field is None:
            return problem
        fields = parts.open.fields
        for stored in (field, *fields.naming.rename.get(field, ())):
            found = find_member(blocks, problem.offset, problem.key, stored, parts.open.key, fields.field_of)
            if found is not None:
                return replace(problem, member=found[0], offset=found[1])
        return problem

    def _blocks(self) -> Blocks | None:
        """The bytes of the shard, opened again for searching; None if it cannot seek, or is not a tar."""
        open = self.look.parts.open
        if format_of(self.url, open.format) != "tar":
            return None
        if self._members is None:
            with suppress(WdspecError, OSError):
                file = decompress(open.storage.open_watched(self.look.shard))
                if file.seekable():
                    self._members = Blocks(file)
                else:
                    file.close()
        return self._members


def find_member(
    blocks: Blocks, offset: int, key: str, stored: str, rule: KeyRule, field_of: Callable[[str], str | None]
) -> tuple[str, int] | None:
    """Find the member that a field was read from: its name, and the offset of its first header.

    Args:
        blocks: of the uncompressed tar.
        offset: start of the sample.
        key: key of the sample.
        stored: name of the field in the raw sample.
        rule, field_of: as for the reader.
    """
    split = splitter(rule)
    with suppress(ShardError):
        while (member := member_at(blocks, offset)) is not None:
            parts = split(member.name) if member.may_be_sampled else None
            if parts is not None:
                if to_text(parts[0]) != key:
                    return None
                if field_of(to_text(parts[1])) == stored:
                    return to_text(member.name), member.offset
            offset = member.end
    return None


def next_header(blocks: Blocks, offset: int) -> int | None:
    """Find the next header of a member after damage at `offset`; return its offset, or None."""
    at = offset - offset % BLOCK + BLOCK
    with suppress(ShardError):
        while at < offset + MOST_SEARCHED:
            place = blocks.find(at)
            block = blocks.buffer[place : place + BLOCK]
            if len(block) < BLOCK:
                return None
            # Data of members can be anything; only blocks with the magic of a tar header are tried.
            if block[257:262] == b"ustar":
                with suppress(ShardError):
                    read_header(block)
                    return at
            at += BLOCK
    return None


def _find_repeated(name: str, data: bytes) -> str:
    """Return a name that a map in a field of JSON, CBOR or MessagePack has twice; "" if there is none."""
    suffix = name.rpartition(".")[2]
    if suffix == "json":
        return find_repeated_in_json(data)
    with suppress(UsageError):  # its decoder, if it has one, says which library is missing
        if suffix == "cbor":
            cbor2 = library("cbor2", "reading cbor")
            return find_repeated_in_cbor(partial(cbor2.load, **as_texts(cbor2)), data)
        if suffix in ("mp", "msg", "msgpack"):
            return find_repeated_in_msgpack(library("msgpack", "reading mp"), data)
    return ""
