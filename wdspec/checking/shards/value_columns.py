"""What the values of one field show, looked at some hundred at a time, which costs little beside reading them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import eq, mul
from typing import Any, NamedTuple

import numpy as np

from wdspec.checking.shards.image_heads import ImageHead
from wdspec.checking.shards.shard_facts import (
    CLASS_NAMES,
    MOST_CLASSES,
    MOST_KINDS,
    MOST_SIZES,
    FieldFacts,
    Kinds,
    SamplePlace,
    Seen,
    merge,
)
from wdspec.checking.shards.value_briefs import Brief

TellOf = Callable[[str, str, SamplePlace, str], None]
"""(code, message, sample, field) -> None."""


class Rows(NamedTuple):
    """The samples that values are of, by their rows."""

    place: Callable[[int], SamplePlace]
    """Where the sample of a row is: made only of the few that are named."""
    tell_of: TellOf

    def tell(self, code: str, message: str, row: int, field: str) -> None:
        """Tells of a value that is wrong by itself."""
        self.tell_of(code, message, self.place(row), field)


LONGEST_CLASS = 64
"""Characters of a text that may be the name of a class."""
MOST_NAMES = 1_000
"""Different texts, of which more are no classes."""
_NO_NUMBER = (
    "the value is not finite (NaN or infinite), and so will the loss be; drop such samples with `select`"
)


class KindCounts:
    """Counts kinds of values of one shard, with the first place of each.

    Args:
        into: takes the counts in the end, by the text of each kind.
        most: kinds; of more those that come later are left out.
    """

    def __init__(self, into: Kinds, most: int) -> None:
        self._into, self._most = into, most
        self._times: Counter[Any] = Counter()
        self._first: dict[Any, SamplePlace] = {}

    @property
    def kinds(self) -> int:
        """How many there are."""
        return len(self._first)

    def add(self, seen: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        """Counts what was seen in the samples of these rows."""
        self._times.update(seen)
        if len(self._times) > len(self._first) < self._most:
            for row, kind in zip(rows, seen, strict=True):
                if kind not in self._first:
                    self._first[kind] = samples.place(row)

    def finish(self) -> None:
        """Puts the counts where they belong."""
        own = ((kind, Seen(self._times[kind], first)) for kind, first in self._first.items())
        named = ((kind if isinstance(kind, str) else _shaped(*kind), seen) for kind, seen in own)
        for name, seen in named:
            merge(self._into, {name: seen}, self._most)


class FieldWatch:
    """Gathers what one field of a shard shows.

    Args:
        name: of the field.
        facts: of all fields, by name: entries of JSON are added as `json.label`.
    """

    def __init__(self, name: str, facts: dict[str, FieldFacts]) -> None:
        self.name, self._all = name, facts
        self._facts = facts.setdefault(name, FieldFacts())
        last = name.rpartition(".")[2].lower()
        self._is_class = last in CLASS_NAMES
        self._last: Any = None
        self._inner: dict[str, FieldWatch] = {}
        own = self._facts
        self._kinds, self._modes = KindCounts(own.kinds, MOST_KINDS), KindCounts(own.modes, MOST_KINDS)
        self._sizes = KindCounts(own.sizes, MOST_SIZES)
        self._counted = None if own.classes is None else KindCounts(own.classes, MOST_CLASSES + 1)

    def finish(self) -> None:
        """Puts what was counted into the facts."""
        for tally in (self._kinds, self._modes, self._sizes, self._counted):
            if tally is not None:
                tally.finish()
        if self._counted is None:
            self._facts.classes = None
        for inner in self._inner.values():
            inner.finish()

    def look(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        """Takes in values in the order of the shard, with the rows of their samples."""
        types = set(map(type, values))
        if len(types) > 1:
            for kind in types:
                own = [at for at, value in enumerate(values) if type(value) is kind]
                self._look([values[at] for at in own], samples, [rows[at] for at in own])
        else:
            self._look(values, samples, rows)

    def _look(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        first = values[0]
        if isinstance(first, Brief):
            self._briefs(values, samples, rows)
        elif isinstance(first, (bool, int, np.integer)):
            self._kinds.add([type(first).__name__] * len(values), samples, rows)
            self._classes(values, samples, rows)
        elif isinstance(first, (float, np.floating)):
            self._kinds.add([type(first).__name__] * len(values), samples, rows)
            for row, value in zip(rows, values, strict=True):
                if not np.isfinite(value):
                    samples.tell("D208", _NO_NUMBER, row, self.name)
        elif isinstance(first, (str, bytes, list, tuple, dict)):
            self._kinds.add([type(first).__name__] * len(values), samples, rows)
            self._lengths(list(map(len, values)))
            if isinstance(first, str):
                self._names(values, samples, rows)
            elif isinstance(first, dict):
                self._entries(values, samples, rows)
        else:
            self._kinds.add([type(first).__name__] * len(values), samples, rows)

    def _briefs(self, values: Sequence[Brief], samples: Rows, rows: Sequence[int]) -> None:
        kinds, sizes, heads, finite = zip(*values, strict=True)
        self._kinds.add(kinds, samples, rows)
        known = [size for size in sizes if size is not None]
        if known:
            self._lengths(known)
        for at in [] if all(finite) else [at for at, is_finite in enumerate(finite) if not is_finite]:
            samples.tell("D208", _NO_NUMBER, rows[at], self.name)
        own = rows if None not in heads else [row for row, head in zip(rows, heads, strict=True) if head]
        if own:
            self._heads([head for head in heads if head is not None], samples, own)
        for at in [at for at, head in enumerate(heads) if head is not None and head.is_cut]:
            if sizes[at] is not None:
                message = f"the image ends before its format does, at byte {sizes[at]:,}"
                samples.tell("D212", message, rows[at], self.name)

    def _heads(self, heads: Sequence[ImageHead], samples: Rows, rows: Sequence[int]) -> None:
        modes, widths, heights, _ = zip(*heads, strict=True)
        self._modes.add(modes, samples, rows)
        self._sizes.add(list(zip(widths, heights, strict=True)), samples, rows)
        sides, areas = list(map(min, widths, heights)), list(map(mul, widths, heights))
        low, high = min(sides), max(areas)
        smallest, largest = (samples.place(rows[at]) for at in (sides.index(low), areas.index(high)))
        self._facts.extend((low, smallest), (high, largest))

    def _lengths(self, lengths: list[int]) -> None:
        count, total, low, high = self._facts.lengths
        least = min(lengths)
        low = min(low, least) if count else least
        self._facts.lengths = (count + len(lengths), total + sum(lengths), low, max(high, max(lengths)))

    def _classes(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        facts = self._facts
        if self._is_class and min(values) < 0:
            row = next(at for at, value in enumerate(values) if value < 0)
            samples.tell(
                "D209",
                f"the class {values[row]} is below 0: no loss takes it for an index",
                rows[row],
                self.name,
            )
        counted = self._counted
        if counted is None:
            return
        facts.alike += sum(map(eq, values, values[1:])) + (self._last is not None and values[0] == self._last)
        facts.pairs += len(values) - (self._last is None)
        self._last = values[-1]
        counted.add(list(map(str, values)), samples, rows)
        if counted.kinds > MOST_CLASSES:
            self._counted = None

    def _names(self, values: Sequence[str], samples: Rows, rows: Sequence[int]) -> None:
        """Short texts of which many are equal may be names of classes."""
        if self._counted is None:
            return
        if max(map(len, values)) > LONGEST_CLASS or self._counted.kinds > MOST_NAMES:
            self._counted = None
            return
        self._classes(values, samples, rows)

    def _entries(self, values: Sequence[Any], samples: Rows, rows: Sequence[int]) -> None:
        present = set().union(*values)
        for entry in CLASS_NAMES if not present.isdisjoint(CLASS_NAMES) else ():
            own = [at for at, value in enumerate(values) if isinstance(value.get(entry), (int, str))]
            if own:
                name = f"{self.name}.{entry}"
                watch = self._inner.get(entry)
                if watch is None:
                    watch = self._inner[entry] = FieldWatch(name, self._all)
                watch.look([values[at][entry] for at in own], samples, [rows[at] for at in own])


def _shaped(shape: Any, dtype: Any) -> str:
    """`(224, 224, 3) uint8`; `640x480` of two numbers."""
    if isinstance(shape, int):
        return f"{shape}x{dtype}"
    return f"({', '.join(map(str, shape))}) {str(dtype).removeprefix('torch.')}"
