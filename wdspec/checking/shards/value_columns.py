"""What the values of one field show, looked at some hundred at a time, which costs little beside reading them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import eq
from typing import Any

import numpy as np

from wdspec.checking.shards.shard_facts import (
    CLASS_NAMES,
    MOST_CLASSES,
    MOST_KINDS,
    MOST_SIZES,
    FieldFacts,
    Kinds,
    SamplePlace,
    Seen,
)
from wdspec.checking.shards.value_briefs import Brief

Tell = Callable[[str, str, int, str], None]
"""(code, message, row of the sample, field) -> None."""

LONGEST_CLASS = 64
"""Characters of a text that may be the name of a class."""
MOST_NAMES = 1_000
"""Different texts, of which more are no classes."""
_NO_NUMBER = (
    "the value is not finite (NaN or infinite), and so will the loss be; drop such samples with `select`"
)


class FieldWatch:
    """Gathers what one field of a shard shows.

    Args:
        name: of the field.
        facts: of all fields, by name: entries of JSON are added as `json.label`.
        tell: is told of values that are wrong by themselves.
    """

    def __init__(self, name: str, facts: dict[str, FieldFacts], tell: Tell) -> None:
        self.name, self._all, self.tell = name, facts, tell
        self._facts = facts.setdefault(name, FieldFacts())
        last = name.rpartition(".")[2].lower()
        self._is_class = last in CLASS_NAMES
        self._last: Any = None
        self._inner: dict[str, FieldWatch] = {}

    def look(self, values: Sequence[Any], places: Sequence[SamplePlace], rows: Sequence[int]) -> None:
        """Takes in values in the order of the shard, with the places of their samples and their rows for `tell`."""
        types = set(map(type, values))
        if len(types) > 1:
            for kind in types:
                own = [at for at, value in enumerate(values) if type(value) is kind]
                self._look([values[at] for at in own], [places[at] for at in own], [rows[at] for at in own])
        else:
            self._look(values, places, rows)

    def _look(self, values: Sequence[Any], places: Sequence[SamplePlace], rows: Sequence[int]) -> None:
        first = values[0]
        facts = self._facts
        if isinstance(first, Brief):
            self._briefs(values, places, rows)
        elif isinstance(first, (bool, int, np.integer)):
            self._see(facts.kinds, [type(first).__name__] * len(values), places)
            self._classes(values, places, rows)
        elif isinstance(first, (float, np.floating)):
            self._see(facts.kinds, [type(first).__name__] * len(values), places)
            for row, value in zip(rows, values, strict=True):
                if not np.isfinite(value):
                    self.tell("D208", _NO_NUMBER, row, self.name)
        elif isinstance(first, (str, bytes, list, tuple, dict)):
            self._see(facts.kinds, [type(first).__name__] * len(values), places)
            self._lengths(list(map(len, values)))
            if isinstance(first, str):
                self._names(values, places, rows)
            elif isinstance(first, dict):
                self._entries(values, places, rows)
        else:
            self._see(facts.kinds, [type(first).__name__] * len(values), places)

    def _briefs(self, values: Sequence[Brief], places: Sequence[SamplePlace], rows: Sequence[int]) -> None:
        facts = self._facts
        self._see(facts.kinds, [value.kind for value in values], places)
        sizes = [value.size for value in values if value.size is not None]
        if sizes:
            self._lengths(sizes)
        for row, (_, size, head, is_finite) in zip(rows, values, strict=True):
            if not is_finite:
                self.tell("D208", _NO_NUMBER, row, self.name)
            if head is not None and head.is_cut and size is not None:
                message = f"the image ends before its format does, at byte {size:,}"
                self.tell("D212", message, row, self.name)
        found = [(value.head, place) for value, place in zip(values, places, strict=True) if value.head]
        if found:
            heads, own = zip(*found, strict=True)
            self._see(facts.modes, [head.mode for head in heads], own)
            self._see(facts.sizes, [(head.width, head.height) for head in heads], own, MOST_SIZES)
            sides = [min(head.width, head.height) for head in heads]
            areas = [head.width * head.height for head in heads]
            low, high = min(sides), max(areas)
            facts.extend((low, own[sides.index(low)]), (high, own[areas.index(high)]))

    def _see(
        self, kinds: Kinds, seen: Sequence[Any], places: Sequence[SamplePlace], most: int = MOST_KINDS
    ) -> None:
        for kind, count in Counter(seen).items():
            text = kind if isinstance(kind, str) else _shaped(*kind)
            known = kinds.get(text)
            if known is not None:
                kinds[text] = Seen(known.times + count, known.first)
            elif len(kinds) < most:
                kinds[text] = Seen(count, places[seen.index(kind)])

    def _lengths(self, lengths: list[int]) -> None:
        count, total, low, high = self._facts.lengths
        least = min(lengths)
        low = min(low, least) if count else least
        self._facts.lengths = (count + len(lengths), total + sum(lengths), low, max(high, max(lengths)))

    def _classes(self, values: Sequence[Any], places: Sequence[SamplePlace], rows: Sequence[int]) -> None:
        facts = self._facts
        if self._is_class and min(values) < 0:
            row = next(at for at, value in enumerate(values) if value < 0)
            self.tell(
                "D209",
                f"the class {values[row]} is below 0: no loss takes it for an index",
                rows[row],
                self.name,
            )
        if facts.classes is None:
            return
        facts.alike += sum(map(eq, values, values[1:])) + (self._last is not None and values[0] == self._last)
        facts.pairs += len(values) - (self._last is None)
        self._last = values[-1]
        self._see(facts.classes, [str(value) for value in values], places, MOST_CLASSES + 1)
        if len(facts.classes) > MOST_CLASSES:
            facts.classes = None

    def _names(self, values: Sequence[str], places: Sequence[SamplePlace], rows: Sequence[int]) -> None:
        """Short texts of which many are equal may be names of classes."""
        if self._facts.classes is None:
            return
        if max(map(len, values)) > LONGEST_CLASS or len(self._facts.classes) > MOST_NAMES:
            self._facts.classes = None
            return
        self._classes(values, places, rows)

    def _entries(self, values: Sequence[Any], places: Sequence[SamplePlace], rows: Sequence[int]) -> None:
        for entry in CLASS_NAMES:
            own = [at for at, value in enumerate(values) if isinstance(value.get(entry), (int, str))]
            if own:
                name = f"{self.name}.{entry}"
                watch = self._inner.get(entry)
                if watch is None:
                    watch = self._inner[entry] = FieldWatch(name, self._all, self.tell)
                watch.tell = self.tell
                watch.look(
                    [values[at][entry] for at in own], [places[at] for at in own], [rows[at] for at in own]
                )


def _shaped(shape: Any, dtype: Any) -> str:
    """`(224, 224, 3) uint8`; `640x480` of two numbers."""
    if isinstance(shape, int):
        return f"{shape}x{dtype}"
    return f"({', '.join(map(str, shape))}) {str(dtype).removeprefix('torch.')}"
