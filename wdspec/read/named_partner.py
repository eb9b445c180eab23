"""Partners whose samples are named by the records of a shard (`join: {on: audio_filepath}`).

Unlike the samples of other partners, they may have any order, and several records may name one of them, as segments of
one recording do. The headers of the partner are read once. Then one reader goes forward with the records, and a sample
that it has passed is read again from its place. The last sample is kept for the next record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from wdspec.base.errors import ShardError
from wdspec.formats.tar.reader import KeySplitter
from wdspec.read.partner import Loss, Partner, Place, Sample, copy_error

_LATER_SEGMENT = re.compile(r"-sub[0-9]+$")
"""What NeMo adds to the name of a recording in the records of its second and later segments."""


class NamedPartner(Partner):
    """The samples of one partner shard, found by names in the samples of the shard that it belongs to.

    Args:
        value_of: returns the name in a raw sample; None if it has none.
        split: splits the name of a file into key and suffix.
        is_start, options: as of `Partner`.
    """

    def __init__(
        self,
        *options: Any,
        value_of: Callable[[Sample], str | None],
        split: KeySplitter,
        is_start: bool,
        **more: Any,
    ) -> None:
        super().__init__(*options, is_start=False, **more)
        self._value_of, self._split, self._reads_all = value_of, split, is_start
        self._name: str | None = None
        self._fault: ShardError | None = None
        self._lost: list[ShardError] = []
        """Errors of samples whose keys are not known."""
        self._is_loss_known = False
        """Whether a record that misses its sample was told of them."""
        self._used: set[str] = set()
        self._last: tuple[int, Sample] = (-1, {})
        """The last sample that was read, and its index."""
        self._passed = 0
        """The index after the last sample that the reader has passed."""

    def find(self, key: str, raw: Sample | None = None) -> Sample | None:
        """Return the sample that a raw sample names, under its key; None if there is none."""
        assert raw is not None, "it has the name"
        self._fault = None
        places = self._read_places() if self._places is None else self._places
        name = self._name = self._value_of(raw)
        forms = () if name is None else self._forms(name)
        found = next((each for each in forms if each in places or each in self.errors.by_key), None)
        if found is None:
            if name is not None and self._lost:
                self._fault = copy_error(self._lost[0], key)
                self._is_loss_known = True
            return None
        self._used.add(found)
        if found in places and self._last[0] != places[found].at:
            sample = self._read(places[found], found)
            self._last = (-1, {}) if sample is None else (places[found].at, sample)
        if found in self.errors.by_key:
            self._fault = copy_error(self.errors.by_key[found], key)
            return None
        return {**self._last[1], "__key__": key}

    def describe_lack(self) -> str:
        """Say that there is no such sample."""
        if self._name is None:
            return f"cannot be read, as the record has no `{self.options.on}`, which names the sample"
        return f"has no sample named {self._name!r:.100} (`on: {self.options.on}`)"

    def take_fault(self, key: str) -> ShardError | None:
        """Return why the sample that was found last cannot be read."""
        return self._fault

    def finish(self) -> Iterator[ShardError]:
        """Yield the errors of samples that no record names."""
        if self._stride > 1 and self._residue:
            return
        if self._reads_all and self._stride == 1 and self._places is not None:
            self.extra = len(self._places.keys() - self._used)
        if not self._is_loss_known:
            yield from self._lost
        yield from (error for key, error in self.errors.by_key.items() if key not in self._used)

    def count_extra(self) -> int:
        """Return the number of samples that no record names, if the records were read from start to end."""
        return self.extra

    @property
    def next_place(self) -> dict[str, Any]:
        """There is no next sample."""
        return {}

    def _forms(self, name: str) -> Iterator[str]:
        """The keys that a name may mean, the first one that exists counts."""
        yield name
        split = self._split(name.encode("utf-8", "surrogateescape"))
        key = name if split is None else split[0].decode("utf-8", "surrogateescape")
        yield key
        yield _LATER_SEGMENT.sub("", key)

    def _read(self, place: Place, key: str) -> Sample | None:
        """Return the sample at a place, or note why it cannot be read."""
        errors: list[ShardError] = []
        if place.at >= self._passed:
            self._passed = place.at + 1
            sample = self._seek(place)
            errors += [loss.error for loss in self.errors.losses]
        else:
            with closing(self._open_part(place.offset, place.start, 1, 0, errors.append)) as reader:
                sample = next((each for each in reader if reader.next_index > place.at), None)
        if sample is not None and sample["__key__"] == key:
            return sample
        if key not in self.errors.by_key:
            if (fault := next(iter(errors), self.errors.fatal)) is None:
                raise self._changed(place)
            self.errors.by_key[key] = fault
        return None

    def _assign(self, losses: list[Loss], places: Mapping[str, Place]) -> None:
        self._lost = [loss.error for loss in losses]
        self.errors.know(self._lost)
