"""Merging the samples of a shard with those of its partners (`join`) by key, while all of them stream.

    shard      0001 0002 0003 0004 0005      keys have the same order in both parts, and either may lack some
    partner    0001 0002      0004 0005 0006

As long as each sample of the shard meets its partner at the same place, both are read side by side, and nothing is
looked up. At the first sample that does not (0003 above), the headers of the whole partner are read once: from then on
it is known which keys the partner has, and where. So a partner is never missed because it comes later, and a key that
comes in another order than in the shard, or twice, is an error. Reading resumes in the same way: the shard at the
offset in the state, the partner at the place of the first key that it has. Memory is bounded by the keys of one shard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain, islice, zip_longest
from typing import Any, NamedTuple, Protocol

from wdspec.base.errors import ShardError, WdspecError
from wdspec.fields.extensions import is_reserved
from wdspec.formats.compression import Compression
from wdspec.formats.samples import RawSamples
from wdspec.spec.language.joins import UNJOINED, JoinOptions

SORTED = "sort the shards of both parts by key (`wdspec sort`)"
Sample = dict[str, Any]


class OpenPart(Protocol):
    """Opens the samples of a partner."""

    def __call__(
        self,
        offset: int,
        index: int,
        stride: int,
        residue: int,
        on_error: Callable[[ShardError], None],
        *,
        only_keys: bool = False,
    ) -> RawSamples:
        """Open the samples from an offset on; see `RawSamples`. Raises ShardError."""


class Place(NamedTuple):
    """Where a sample of a partner is."""

    offset: int
    """Byte offset at which reading can start: the end of the readable sample before it."""
    start: int
    """Index of the sample there. It is another one if samples between them are damaged."""
    at: int
    """Index of the sample itself."""


class Loss(NamedTuple):
    """Samples of a partner that cannot be read, and whose keys are not known."""

    at: int
    """Index of the first one. The last one is before the next readable sample, or the next loss."""
    error: ShardError


class Partner:
    """The samples of one partner shard, found by the keys of the shard that it belongs to.

    Args:
        options: the entry of `join`.
        url: of the partner.
        open_part: opens it.
        read_keys: reads the keys of the shard that it belongs to, from start to end.
        is_start: whether the shard is read from its start.
        stride, residue: which samples of the shard are read.
        finds_repeats: whether the reader reports keys that occur again.

    Raises:
        ShardError: it cannot be opened.
    """

    def __init__(
        self,
        options: JoinOptions,
        url: str,
        open_part: OpenPart,
        read_keys: Callable[[], list[str]],
        *,
        is_start: bool,
        stride: int,
        residue: int,
        finds_repeats: bool,
    ) -> None:
        self.options, self.url = options, url
        self.required = frozenset(options.names if options.fields is not None else ())
        self._open_part, self._read_keys = open_part, read_keys
        self._stride, self._residue = stride, residue
        self._is_start = is_start
        self.is_aligned = is_start
        """Whether each sample so far was at the same place as its partner."""
        self._faults: dict[str, ShardError] = {}
        """By key: why the partner of a sample cannot be read."""
        self.loose: list[ShardError] = []
        """Errors that concern no sample of the shard, which are not reported yet."""
        self.fatal: ShardError | None = None
        """Why the rest cannot be read."""
        self.extra = 0
        """The number of samples that the shard lacks, if that was read from start to end. If others read parts of the
        shard, their sum is the number."""
        self._rest: dict[str, ShardError] = {}
        """The ones of `_faults` that no other slot reports, and that were not reported yet."""
        self._loose_before: dict[str, list[ShardError]] = {}
        """By key of the shard: errors to add to `loose` with its partner; by "": those at the end."""
        self._losses: list[Loss] = []
        """What the current reader could not read."""
        self._known_offsets: set[Any] = set()
        """Offsets of the losses that were reported, or that are reported with a sample."""
        self._is_dead = False
        """Whether reading has reached the damage after which nothing can be read."""
        self._places: dict[str, Place] | None = None
        """By key; known once it is not aligned."""
        self._found = -1
        """The index of the last sample that was found by its key."""
        self.last_key = ""
        self._matches = 0
        self._held: tuple[int, Sample] | None = None
        """A sample that was read, but not asked for yet, and its index."""
        self.keys: set[str] | None = None if finds_repeats else set()
        """The keys so far, if the reader does not report repeated ones."""
        self._reader: RawSamples | None = None
        self.samples: Iterator[Sample] = iter(())
        if is_start:
            self._start(0, 0, stride, residue)

    def compare(self, key: str, sample: Sample | None) -> Sample | None:
        """Return the partner of the next sample, as long as `is_aligned`; see `find`.

        Args:
            sample: the next one of `samples`; None at their end.
        """
        if sample is not None and sample["__key__"] == key and (self.keys is None or key not in self.keys):
            self.last_key = key
            if self.keys is not None:
                self.keys.add(key)
            return sample
        self.is_aligned = False
        self.loose = []  # they are found again, with the keys around them
        if sample is None:
            self._note_end()
        elif self._stride == 1 and self._reader is not None:
            self._held = self._reader.next_index - 1, sample
        if self._stride > 1 and self._reader is not None:
            self._reader.close()
            self._reader = None
        return self.find(key)

    def find(self, key: str, raw: Sample | None = None) -> Sample | None:
        """Return the partner of a sample that comes after the earlier ones; None if there is none.

        Args:
            key: of the sample.
            raw: the sample, for partners that are found by other names.

        Raises:
            ShardError: its key has another order, or occurs twice; or the partner changed meanwhile.
        """
        places = self._read_places() if self._places is None else self._places
        self.loose += self._loose_before.pop(key, ())
        place = places.get(key)
        if place is None:
            return None
        if place.at <= self._found:
            raise self.error(
                f"the parts of a join have their keys in different orders, or a key occurs twice; {SORTED}",
                code="D221",
                partner_offset=place.offset,
                partner_key=key,
            )
        self._found = place.at
        self._matches += 1
        sample = self._seek(place)
        if sample is not None and sample["__key__"] == key:
            return sample
        if sample is None and key not in self._faults:
            if self._is_dead and self.fatal is not None:
                self._faults[key] = self.fatal
            elif (loss := self._loss_at(place.at)) is not None:
                self._known_offsets.add(loss.error.place.get("offset"))
                self._faults[key] = copy_error(loss.error, key)
        if sample is not None or key not in self._faults:
            raise self.error(
                "the shard of a join changed while it was read; do not change shards while they are read, and resume "
                "from a saved state",
                code="D223",
                partner_offset=place.offset,
            )
        return None

    @property
    def next_place(self) -> dict[str, Any]:
        """Where it is, for errors: the offset and the key of its next sample."""
        places = (self._places or {}).items()
        following = [(place.at, place.offset, key) for key, place in places if place.at > self._found]
        if not following:
            return {}
        _, offset, key = min(following)
        return {"partner_offset": offset, "partner_key": key}

    def finish(self) -> Iterator[ShardError]:
        """Read the rest of an aligned partner, so that damage is found, and yield the errors not reported yet."""
        if self.is_aligned:
            self.extra = sum(1 for _ in self.samples)
            self._note_end()
        else:
            self._report_passed(None)
            if self._is_start and self._places is not None:
                self.extra = sum(map(self._is_mine, self._places.values())) - self._matches
        if self._stride == 1 or self._residue == 0:
            yield from self._loose_before.pop("", ())
        yield from self.take_loose()
        yield from self._rest.values()
        if self.is_aligned and self.fatal is not None:
            yield self.fatal

    def count_extra(self) -> int:
        """Return the number of samples that the shard lacks, after it was read to its end from any sample on."""
        if self._is_start or self._stride > 1:
            return self.extra
        with suppress(ShardError):  # the samples themselves were read
            places = self._read_places() if self._places is None else self._places
            return len(places.keys() - set(self._read_keys()))
        return 0

    def describe_lack(self) -> str:
        """Say that there is no such sample."""
        return "has no sample of this key"

    def take_loose(self) -> list[ShardError]:
        """Return the errors that concern no sample of the shard, once."""
        loose, self.loose = self.loose, []
        self._known_offsets.update(error.place.get("offset") for error in loose)
        return loose

    def take_fault(self, key: str) -> ShardError | None:
        """Return why the partner of a sample cannot be read."""
        self._rest.pop(key, None)
        return self._faults.get(key)

    def error(self, message: str, *, code: str, **place: Any) -> ShardError:
        """Return an error of the join; the caller adds the place in the shard."""
        return ShardError(message, code=code, partner=self.url, **place)

    def close(self) -> None:
        """Close the shard."""
        if self._reader is not None:
            self._reader.close()

    def _seek(self, place: Place) -> Sample | None:
        """Return the sample at a place after those that were read; None if it cannot be read."""
        if self._reader is None:
            try:
                self._start(place.offset, place.start, 1, 0)
            except ShardError as error:
                self._is_dead = True
                self._note_fatal(error.at(url=self.url))
                return None
        while True:
            if self._held is None:
                assert self._reader is not None
                sample = next(self.samples, None)
                if sample is None:
                    self._note_end()
                    return None
                self._held = self._reader.next_index - 1, sample
            index, sample = self._held
            if index > place.at:
                return None
            self._held = None
            self._report_passed(index)
            if index == place.at:
                return sample

    def _start(self, offset: int, index: int, stride: int, residue: int) -> None:
        def note(error: ShardError) -> None:
            reader = self._reader
            self._note_error(error, index if reader is None else reader.next_index)
            if (key := error.place.get("key")) is not None and (self.is_aligned or self._stride == 1):
                self._rest.setdefault(str(key), error)

        self._losses = []
        self._reader = self._open_part(offset, index, stride, residue, note)
        self.samples = iter(self._reader)

    def _read_places(self) -> dict[str, Place]:
        """Read the headers of the whole partner."""
        places = self._places = {}
        losses: list[Loss] = []

        def note(error: ShardError) -> None:
            error.at(url=self.url)
            if (key := error.place.get("key")) is not None:
                self._faults.setdefault(str(key), error)
            else:
                losses.append(Loss(len(places), error))

        try:
            with closing(self._open_part(0, 0, 1, 0, note, only_keys=True)) as reader:
                offset, start = 0, 0
                for sample in reader:
                    key = sample["__key__"]
                    if key in places:
                        raise self.error(
                            f"a key occurs twice in a shard of a join; {SORTED}, and keep one of the samples",
                            code="D222",
                            partner_offset=offset,
                            partner_key=key,
                        )
                    places[key] = Place(offset, start, reader.next_index - 1)
                    offset, start = reader.next_offset, reader.next_index
                if reader.broken is not None:
                    self._note_fatal(reader.broken)
        except ShardError as error:
            if error.code == "D222":
                raise
            self._note_fatal(error.at(url=self.url))
        if self.last_key in places:
            self._found = places[self.last_key].at
            earlier = (place for place in places.values() if place.at <= self._found)
            self._matches = sum(map(self._is_mine, earlier))
        losses = [loss for loss in losses if loss.error is not self.fatal]
        if self.fatal is not None:
            losses.append(Loss(len(places), self.fatal))
        if losses:
            self._assign(losses, places)
        return places

    def _assign(self, losses: list[Loss], places: Mapping[str, Place]) -> None:
        """Find out which samples of the shard may have their partners among the losses.

        These are the samples without a readable partner between those that surround a loss. It depends neither on where
        reading started, nor on which samples are read here.

        Args:
            losses: in order; `at` is the number of readable samples before each.
            places: of the readable samples, in order.
        """
        ordinals = {key: ordinal for ordinal, key in enumerate(places)}
        self._known_offsets.update(loss.error.place.get("offset") for loss in losses)
        left, alone = list(losses), list[str]()
        for key in [*self._read_keys(), ""]:
            if key in self._faults:
                continue
            if key and key not in ordinals:
                alone.append(key)
                continue
            stop = ordinals[key] if key else len(places)
            here = [loss.error for loss in left if loss.at <= stop]
            left = left[len(here) :]
            for number, each in enumerate(alone[: len(alone) if here else 0]):
                error = here[min(number, len(here) - 1)]
                self._faults[each] = error if error is self.fatal else copy_error(error, each)
            if more := here[len(alone) :]:
                self._loose_before.setdefault(key, []).extend(more)
            alone = []

    def _loss_at(self, index: int) -> Loss | None:
        """Return the loss of the current reader that has a sample which it passed without yielding it."""
        return next((loss for loss in reversed(self._losses) if loss.at <= index), None)

    def _report_passed(self, index: int | None) -> None:
        """Add the losses before a sample (None: all) to `loose` if they concern no sample of the shard."""
        while self._losses and (index is None or self._losses[0].at <= index):
            error = self._losses.pop(0).error
            is_known = error.place.get("offset") in self._known_offsets
            if not is_known and (self._stride == 1 or self._residue == 0):
                self.loose.append(error)

    def _is_mine(self, place: Place) -> bool:
        return place.at % self._stride == self._residue

    def _note_end(self) -> None:
        """Note whether the reader ended because of damage."""
        if self._reader is not None and self._reader.broken is not None:
            self._is_dead = True
            self._note_fatal(self._reader.broken)

    def _note_error(self, error: ShardError, index: int) -> None:
        """Note an error of the current reader, until the sample that it concerns is reached.

        Args:
            index: of the sample after the last one that was read.
        """
        error.at(url=self.url)
        if (key := error.place.get("key")) is not None:
            self._faults.setdefault(str(key), error)
            return
        self._losses.append(Loss(index, error))
        if self.is_aligned:
            self.loose.append(error)

    def _note_fatal(self, error: WdspecError) -> None:
        """Note the error by which the rest is lost; it is not one of a sample."""
        assert isinstance(error, ShardError)
        self.fatal = self.fatal or error
        self.loose = [each for each in self.loose if each is not error]
        self._losses = [each for each in self._losses if each.error is not error]
        self._faults = {key: each for key, each in self._faults.items() if each is not error}
        self._rest = {key: each for key, each in self._rest.items() if each is not error}


def copy_error(error: ShardError, key: str) -> ShardError:
    """Return the error for one of the samples that it concerns."""
    return type(error)(error.message, code=error.code, **{**error.place, "key": key})


class JoinedSamples(RawSamples):
    """The samples of a shard, each with the fields of its partners.

    Args:
        shard: the samples of the shard.
        partners: in the order of `join`.
        lookups: in the order of `lookup`; each adds the fields of a row to a sample.
        url: of the shard.
        source: the name of the source; "" for none.
        on_error: as of `RawSamples`.
    """

    def __init__(
        self,
        shard: RawSamples,
        partners: Sequence[Partner],
        lookups: Sequence[Callable[[Sample], None]],
        url: str,
        source: str,
        on_error: Callable[[ShardError], None],
    ) -> None:
        self._shard, self._partners, self._lookups = shard, partners, lookups
        self._url, self._report_to = url, on_error
        self._constants = {"__url__": url, **({"__source__": source} if source else {})}
        self.is_copy = shard.is_copy
        self._raws: Iterator[Sample] = iter(())
        self._place = shard.next_offset, shard.next_index
        """Where the shard was before the sample that is merged."""
        self._has_ended = False

    def __iter__(self) -> Iterator[Sample]:
        self._raws = iter(self._shard)
        alone = self._partners[0] if len(self._partners) == 1 and not self._lookups else None
        if alone is None or not alone.is_aligned or alone.keys is not None:
            return self._merge_all()
        return chain(self._merge_aligned(alone), self._merge_all())

    @property
    def next_offset(self) -> int:
        """After each yield: as of the shard."""
        return self._shard.next_offset

    @next_offset.setter
    def next_offset(self, offset: int) -> None:
        self._shard.next_offset = offset

    @property
    def next_index(self) -> int:
        """After each yield: as of the shard."""
        return self._shard.next_index

    @next_index.setter
    def next_index(self, index: int) -> None:
        self._shard.next_index = index

    def _merge_aligned(self, partner: Partner) -> Iterator[Sample]:
        """Yield samples as long as each meets its only partner, and nothing has to be reported.

        `_merge_all` does the same; this costs half as much, which counts for small samples.
        """
        shard, url, required, loose, last_key = self._shard, self._url, partner.required, partner.loose, ""
        (offset, index), shared = self._place, len(self._constants) + 1
        for raw, other in zip_longest(self._raws, partner.samples):
            if raw is None or other is None or other["__key__"] != (key := raw["__key__"]) or loose:
                break
            if required and not required <= other.keys():
                break
            if len(other) == shared + 1:  # one field, whose move takes half as long as a union
                name, value = other.popitem()
                if name in raw:
                    other[name] = value
                    break
                raw[name] = value
            else:
                count = len(raw)
                raw |= other
                if len(raw) != count + len(other) - shared:
                    raw = dict(islice(raw.items(), count))  # as it was, for the error
                    break
                raw["__url__"] = url
            yield raw
            last_key, offset, index = key, shard.next_offset, shard.next_index
        else:
            return
        self._place, partner.last_key = (offset, index), last_key
        if raw is not None:
            self._raws = chain([raw], self._raws)
        if other is not None:
            partner.samples = chain([other], partner.samples)

    def _merge_all(self) -> Iterator[Sample]:
        """Yield the samples that are left."""
        shard, partners, lookups, url = self._shard, self._partners, self._lookups, self._url
        offset, index = self._place
        shared = len(self._constants) + 1
        for raw in self._raws:
            key = raw["__key__"]
            try:
                for partner in partners:
                    if partner.is_aligned:
                        other = next(partner.samples, None)
                        if other is not None and other["__key__"] == key and partner.keys is None:
                            partner.last_key = key  # without the call of a function
                        else:
                            other = partner.compare(key, other)
                    else:
                        other = partner.find(key, raw)
                    if partner.loose:
                        self._report_all(partner.take_loose())
                    if other is None or (partner.required and not partner.required <= other.keys()):
                        self._fill_gap(partner, raw, other)
                        continue
                    count, total = len(raw), len(raw) + len(other) - shared
                    raw |= other
                    raw["__url__"] = url
                    if len(raw) != total:
                        raise _clash(partner, list(raw)[:count], other)
                for lookup in lookups:
                    if UNJOINED not in raw:
                        lookup(raw)
            except ShardError as error:
                if error.place.get("url", url) != url:
                    error.at(partner=url)
                else:
                    start = offset if shard.next_index == index + 1 else None
                    error.at(source=raw.get("__source__"), url=url, key=key, offset=start)
                if any(error is partner.fatal for partner in partners) or error.code in _UNUSABLE:
                    self.broken = error
                self._report_to(error)
            else:
                yield raw
            if self.broken is not None:
                return
            offset, index = shard.next_offset, shard.next_index
        self.broken = shard.broken
        for partner in partners:
            self._report_all(partner.finish())
        self.unjoined = sum(partner.extra for partner in partners)
        self._has_ended = True

    def count_unjoined(self) -> int:
        return sum(partner.count_extra() for partner in self._partners) if self._has_ended else 0

    @property
    def compression(self) -> Compression | None:
        return self._shard.compression

    def kinds(self) -> Mapping[str, str] | None:
        return self._shard.kinds()

    def close(self) -> None:
        self._shard.close()
        for partner in self._partners:
            partner.close()

    def _report_all(self, errors: Iterable[ShardError]) -> None:
        for error in errors:
            error.at(partner=self._url)
            self._report_to(error)

    def _fill_gap(self, partner: Partner, raw: Sample, other: Sample | None) -> None:
        """Complete a sample whose partner is missing, as `missing` says. Raises ShardError if that is an error.

        Args:
            other: the partner if it lacks a field.
        """
        if (fault := partner.take_fault(raw["__key__"])) is not None:
            raise fault
        if partner.options.missing == "skip" or UNJOINED in raw:
            raw[UNJOINED] = None
        elif partner.options.missing == "none":
            for name in partner.options.names:
                raw.setdefault(name, None)
        else:
            lacks, place, remedy = partner.describe_lack(), {}, ""
            if other is None:
                place = partner.next_place
                remedy = _describe_affix(raw["__key__"], str(place.get("partner_key", "")))
                if remedy:
                    lacks += f", but {place['partner_key']!r:.80}"
            else:
                names = ", ".join(f"`{name}`" for name in sorted(partner.required - other.keys()))
                lacks = f"has no {names} of this key"
            raise partner.error(
                f"the shard that is joined {lacks}; {remedy}add it, or set `missing: skip` or `none` in `join`",
                code="D220",
                **place,
            )


def _describe_affix(key: str, other: str) -> str:
    """The rule for keys that removes what one of two keys has before or after the other; empty if there is none."""
    short, long = sorted((key, other), key=len)
    if not short:  # a partner whose next sample has no key
        return ""
    before, found, after = long.partition(short)
    affix = before or after
    if not found or (before and after) or not affix or any(each.isdigit() for each in affix):
        return ""
    if re.search(r"[./]", long):
        return ""
    words = re.escape(affix)
    rule = rf"(?:{words})?([^.]+)\.(.+)" if before else rf"([^.]+?)(?:{words})?\.(.+)"
    return f"write `key: {{regex: '{rule}'}}` in the source if `{affix}` is no part of the key, "


def _clash(partner: Partner, own: Sequence[str], other: Sample) -> ShardError:
    names = [name for name in other if name in own and name not in ("__key__", "__url__", "__source__")]
    name = next((name for name in names if not is_reserved(name)), names[0])
    return partner.error(
        f"both parts of a join have the field `{name}`; rename that of the partner, such as "
        f"`rename: {{other_{name}: {name}}}` in `join`, or choose files by `extensions`, or by `fields` in `join`",
        code="D224",
    )


_UNUSABLE = ("D221", "D222", "D223")
"""Errors after which the parts of a pair cannot be merged."""
