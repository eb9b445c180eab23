"""Which raw samples of a source are kept: `keys`, `exclude`, `subset` and `where`, in this order.

They are chosen before they are decoded and before they are shuffled, so those that are left out take no place in the
shuffle buffer and use up no draw.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from wdspec.base.errors import FieldError, WdspecError
from wdspec.fields.decode import one_line
from wdspec.fields.measures import Measures
from wdspec.fields.samples import SampleFields
from wdspec.planning.keys import GOLDEN, MASK
from wdspec.read.budget import Budget
from wdspec.spec.language.expressions import parse_expression
from wdspec.spec.language.selection import Subset
from wdspec.spec.spec import Source, Spec

RawSample = dict[str, Any]
Choose = Callable[[RawSample], bool]
"""Whether a raw sample is kept. It counts those that are not. May raise, by the error policy of the source."""
_KEY = ("__key__",)


@dataclass(frozen=True)
class Selection:
    """Which raw samples of a source are kept. It holds no open files, so it can be pickled."""

    where: str | None = None
    costs: tuple[tuple[str, str], ...] = ()
    """The named expressions of the spec."""
    subset: Subset | None = None
    keys: Container[str] | None = None
    """The keys to keep; None keeps all."""
    exclude: Container[str] | None = None

    @classmethod
    def of(cls, spec: Spec, source: Source, lists: KeyLists) -> Selection:
        """Return the selection of a source, with the keys of `keys` and `exclude`."""
        return cls(source.where, tuple(spec.costs.items()), source.subset, *lists)

    def build(
        self,
        fields: SampleFields,
        tags: dict[str, Any] | None,
        budget: Budget,
        read_again: Callable[[RawSample, Exception], RawSample | None] | None = None,
    ) -> Choose:
        """Return the function that says whether a raw sample is kept.

        Args:
            fields: the fields of the source.
            tags: its tags, which expressions can read too.
            budget: counts the samples that are left out, by key of the spec, and handles errors.
            read_again: returns a sample that cannot be measured as the store has it, if it was read from a cached copy.
        """
        dropped = budget.dropped

        def recover(error: Exception, cause: str, raw: RawSample) -> bool:
            stored = None if read_again is None else read_again(raw, error)
            if stored is not None:
                raw.clear()
                raw.update(stored)
                return self.build(fields, tags, budget)(raw)
            known = isinstance(error, WdspecError)
            named = error if known else FieldError(f"`{cause}` cannot be evaluated: {one_line(error)}")
            budget(named, "decode", url=raw["__url__"], key=raw["__key__"])
            return False

        def choose_by(cause: str, keeps: Choose, rest: Choose | None) -> Choose:
            def choose(raw: RawSample) -> bool:
                try:
                    kept = keeps(raw)
                except Exception as error:
                    return recover(error, cause, raw)
                if kept:
                    return True if rest is None else rest(raw)
                dropped[cause] += 1
                return False

            return choose

        chosen: Choose | None = None
        for cause, keeps in reversed(self._tests(fields, tags or {})):
            chosen = choose_by(cause, keeps, chosen)
        assert chosen is not None, "a selection has a test"
        return chosen

    def _tests(self, fields: SampleFields, tags: dict[str, Any]) -> list[tuple[str, Choose]]:
        """Return the key and the test of each part of the selection, the cheapest first."""
        tests: list[tuple[str, Choose]] = []
        keys, exclude, subset = self.keys, self.exclude, self.subset
        if keys is not None:
            tests.append(("keys", lambda raw: raw["__key__"] in keys))
        if exclude is not None:
            tests.append(("exclude", lambda raw: raw["__key__"] not in exclude))
        if subset is not None:
            tests.append(("subset", _subset_test(subset, fields, tags)))
        if self.where is not None:
            tests.append(("where", _where_test(self.where, dict(self.costs), fields, tags)))
        return tests


KeyLists = tuple[Container[str] | None, Container[str] | None]
"""The keys of `keys` and of `exclude`; None without such a list."""


def _subset_test(subset: Subset, fields: SampleFields, tags: dict[str, Any]) -> Choose:
    first, stop = (int(end * 2**64) for end in subset.part)
    start = crc32(str(subset.seed).encode()) if subset.seed else 0
    if subset.of is None:

        def of_key(raw: RawSample) -> bool:  # `hash_part`, without the call
            try:
                number = crc32(raw["__key__"].encode(), start)
            except UnicodeEncodeError:
                number = crc32(raw["__key__"].encode("utf-8", "surrogateescape"), start)
            return first <= (number ^ number >> 16) * GOLDEN & MASK < stop

        return of_key
    expression = parse_expression(subset.of)
    measure = Measures(fields, expression.paths, constants=tags, keeps_decoded=True)

    def of_value(raw: RawSample) -> bool:
        values = measure(raw)
        if values is None:
            return True  # `missing: skip` drops it later
        (value,) = values
        if not isinstance(value, (str, int)):
            raise FieldError(f"`subset: {{of: {subset.of}}}` is {value!r:.40}; it must be text or an integer")
        return first <= hash_part(str(value), start) < stop

    return of_value


def hash_part(text: str, start: int = 0) -> int:
    """Return where a text is in the parts of `subset`, as a 64-bit integer: part p holds the numbers below p · 2⁶⁴.

    The CRC-32 c of the UTF-8 text is spread over 64 bits as (c xor c >> 16) · ⌊2⁶⁴/φ⌋, modulo 2⁶⁴. A CRC alone is
    linear, so numbered keys would not be spread evenly.
    """
    number = crc32(text.encode("utf-8", "surrogateescape"), start)
    return (number ^ number >> 16) * GOLDEN & MASK


def _where_test(text: str, named: dict[str, str], fields: SampleFields, tags: dict[str, Any]) -> Choose:
    expression = parse_expression(text, named)
    measure = Measures(fields, expression.paths, expression.optional, tags, keeps_decoded=True)
    return measure.applying(
        expression.evaluate, absent=True
    )  # `missing: skip` drops a sample without values later
