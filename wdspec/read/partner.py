"""The samples of a partner shard, found by the keys of the shard that it belongs to, and errors of reading them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple, Protocol

from wdspec.base.errors import ShardError, WdspecError
from wdspec.formats.samples import RawSamples
from wdspec.spec.language.joins import JoinOptions

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


class PartnerErrors:
    """What of a partner cannot be read. Each error is reported once, with the sample of the shard that it concerns.

    An error with a key is of the sample of that key. One without is a `Loss`: when the keys of both parts are known, it
    is given to the samples of the shard without a partner around it. If there are none, it concerns no sample of the
    shard, and is reported when reading passes it.

    Args:
        url: of the partner.
        is_first: whether it reports errors that concern no sample; other slots read other samples of the same shard.
    """

    def __init__(self, url: str, is_first: bool) -> None:
        self._url, self._is_first = url, is_first
        self.by_key: dict[str, ShardError] = {}
        """Why the samples of these keys cannot be read."""
        self.fatal: ShardError | None = None
        """Why the rest cannot be read."""
        self.loose: list[ShardError] = []
        """Errors that concern no sample of the shard, and are to be reported now."""
        self.losses: list[Loss] = []
        """What the current reader could not read, and has not passed yet."""
        self._loose_before: dict[str, list[ShardError]] = {}
        """By key of the shard: errors to add to `loose` with its partner; by "": those at the end."""
        self._unreported: dict[str, ShardError] = {}
        """Those of `by_key` that only this slot reports."""
        self._known_offsets: set[Any] = set()
        """Offsets of the losses that were reported, or that are reported with a sample."""

    def note(self, error: ShardError, index: int, is_aligned: bool, is_own: bool) -> None:
        """Note an error of the current reader, until the sample that it concerns is reached.

        Args:
            error: the error.
            index: of the sample after the last one that was read.
            is_aligned: as of `Partner`.
            is_own: whether no other slot reports it.
        """
        error.at(url=self._url)
        if (key := error.place.get("key")) is None:
            self.losses.append(Loss(index, error))
            if is_aligned:
                self.loose.append(error)
            return
        self.by_key.setdefault(str(key), error)
        if is_own:
            self._unreported.setdefault(str(key), error)

    def note_fatal(self, error: WdspecError) -> None:
        """Note the error by which the rest is lost; it is not one of a sample."""
        assert isinstance(error, ShardError)
        self.fatal = self.fatal or error
        self.loose = [each for each in self.loose if each is not error]
        self.losses = [each for each in self.losses if each.error is not error]
        self.by_key = {key: each for key, each in self.by_key.items() if each is not error}
        self._unreported = {key: each for key, each in self._unreported.items() if each is not error}

    def assign(self, losses: list[Loss], keys: Sequence[str], places: Mapping[str, Place]) -> None:
        """Find out which samples of the shard may have their partners among the losses.

        These are the samples without a readable partner between those that surround a loss. It depends neither on where
        reading started, nor on which samples are read here.

        Args:
            losses: in order; `at` is the number of readable samples before each.
            keys: those of the shard.
            places: of the readable samples, in order.
        """
        ordinals = {key: ordinal for ordinal, key in enumerate(places)}
        self.know([loss.error for loss in losses])
        left, alone = list(losses), list[str]()
        for key in [*keys, ""]:
            if key in self.by_key:
                continue
            if key and key not in ordinals:
                alone.append(key)
                continue
            stop = ordinals[key] if key else len(places)
            here = [loss.error for loss in left if loss.at <= stop]
            left = left[len(here) :]
            for number, each in enumerate(alone[: len(alone) if here else 0]):
                error = here[min(number, len(here) - 1)]
                self.by_key[each] = error if error is self.fatal else copy_error(error, each)
            if more := here[len(alone) :]:
                self._loose_before.setdefault(key, []).extend(more)
            alone = []

    def know(self, errors: Iterable[ShardError]) -> None:
        """Note that errors are reported, or will be."""
        self._known_offsets.update(error.place.get("offset") for error in errors)

    def reach(self, key: str) -> None:
        """Add the errors before a sample of the shard to `loose`; by "", those at its end."""
        self.loose += self._loose_before.pop(key, ())

    def passed(self, index: int | None) -> None:
        """Add the losses before a sample of the partner (None: all) that concern no sample of the shard to `loose`."""
        while self.losses and (index is None or self.losses[0].at <= index):
            error = self.losses.pop(0).error
            if error.place.get("offset") not in self._known_offsets and self._is_first:
                self.loose.append(error)

    def blame(self, key: str, index: int) -> bool:
        """Find out why the reader passed the sample of a key without yielding it; return whether that is known."""
        loss = next((loss for loss in reversed(self.losses) if loss.at <= index), None)
        if loss is not None:
            self.know([loss.error])
            self.by_key[key] = copy_error(loss.error, key)
        return loss is not None

    def take(self, key: str) -> ShardError | None:
        """Return why the partner of a sample cannot be read."""
        self._unreported.pop(key, None)
        return self.by_key.get(key)

    def take_loose(self) -> list[ShardError]:
        """Return the errors that concern no sample of the shard, once."""
        loose, self.loose = self.loose, []
        self.know(loose)
        return loose

    def take_rest(self) -> list[ShardError]:
        """Return the errors that were not reported when all samples were read."""
        last = self._loose_before.pop("", []) if self._is_first else []
        return [*last, *self.take_loose(), *self._unreported.values()]


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
        self.errors = PartnerErrors(url, stride == 1 or residue == 0)
        self.extra = 0
        """The number of samples that the shard lacks, if that was read from start to end. If others read parts of the
        shard, their sum is the number."""
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
        self.errors.loose = []  # they are found again, with the keys around them
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
        self.errors.reach(key)
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
        errors = self.errors
        if sample is None and key not in errors.by_key:
            if self._is_dead and errors.fatal is not None:
                errors.by_key[key] = errors.fatal
            else:
                errors.blame(key, place.at)
        if sample is not None or key not in errors.by_key:
            raise self._changed(place)
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
            self.errors.passed(None)
            if self._is_start and self._places is not None:
                self.extra = sum(map(self._is_mine, self._places.values())) - self._matches
        yield from self.errors.take_rest()
        if self.is_aligned and self.errors.fatal is not None:
            yield self.errors.fatal

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

    def take_fault(self, key: str) -> ShardError | None:
        """Return why the partner of a sample cannot be read."""
        return self.errors.take(key)

    def error(self, message: str, *, code: str, **place: Any) -> ShardError:
        """Return an error of the join; the caller adds the place in the shard."""
        return ShardError(message, code=code, partner=self.url, **place)

    def _changed(self, place: Place) -> ShardError:
        return self.error(
            "the shard of a join changed while it was read; do not change shards while they are read, and resume from "
            "a saved state",
            code="D223",
            partner_offset=place.offset,
        )

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
                self.errors.note_fatal(error.at(url=self.url))
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
            self.errors.passed(index)
            if index == place.at:
                return sample

    def _start(self, offset: int, index: int, stride: int, residue: int) -> None:
        def note(error: ShardError) -> None:
            at = index if self._reader is None else self._reader.next_index
            self.errors.note(error, at, self.is_aligned, self.is_aligned or self._stride == 1)

        self.errors.losses = []
        self._reader = self._open_part(offset, index, stride, residue, note)
        self.samples = iter(self._reader)

    def _read_places(self) -> dict[str, Place]:
        """Read the headers of the whole partner."""
        places = self._places = {}
        losses: list[Loss] = []

        def note(error: ShardError) -> None:
            error.at(url=self.url)
            if (key := error.place.get("key")) is not None:
                self.errors.by_key.setdefault(str(key), error)
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
                    self.errors.note_fatal(reader.broken)
        except ShardError as error:
            if error.code == "D222":
                raise
            self.errors.note_fatal(error.at(url=self.url))
        if self.last_key in places:
            self._found = places[self.last_key].at
            earlier = (place for place in places.values() if place.at <= self._found)
            self._matches = sum(map(self._is_mine, earlier))
        fatal = self.errors.fatal
        losses = [loss for loss in losses if loss.error is not fatal]
        if fatal is not None:
            losses.append(Loss(len(places), fatal))
        if losses:
            self._assign(losses, places)
        return places

    def _assign(self, losses: list[Loss], places: Mapping[str, Place]) -> None:
        """Find out to which samples the losses belong; see `PartnerErrors.assign`."""
        self.errors.assign(losses, self._read_keys(), places)

    def _is_mine(self, place: Place) -> bool:
        return place.at % self._stride == self._residue

    def _note_end(self) -> None:
        """Note whether the reader ended because of damage."""
        if self._reader is not None and self._reader.broken is not None:
            self._is_dead = True
            self.errors.note_fatal(self._reader.broken)


def copy_error(error: ShardError, key: str) -> ShardError:
    """Return the error for one of the samples that it concerns."""
    return type(error)(error.message, code=error.code, **{**error.place, "key": key})
