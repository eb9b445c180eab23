"""Which raw samples of a source are kept: `keys`, `exclude`, `subset` and `where`, in this order.

They are chosen before they are decoded and before they are shuffled, so those that are left out take no place in the
shuffle buffer and use up no draw.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from zlib import crc32

from wdspec.base.amounts import show_value
from wdspec.base.errors import FieldError, LeftOutError, WdspecError
from wdspec.fields.decode import one_line
from wdspec.fields.measures import Measures
from wdspec.fields.samples import SampleFields
from wdspec.planning.keys import GOLDEN, MASK, encode_text
from wdspec.read.error_budget import ErrorBudget
from wdspec.shards.key_lists import KeyLists
from wdspec.spec.language.expressions import ExpressionError, parse_expression, split_conjunction
from wdspec.spec.language.operators import NullOperandError
from wdspec.spec.language.selection import Subset
from wdspec.spec.spec import Source, Spec

RawSample = dict[str, Any]
Choose = Callable[[RawSample], bool]
"""Whether a raw sample is kept. It counts those that are not. May raise, by the error policy of the source."""
TryAgain = Callable[[RawSample, Exception, Callable[[RawSample], None]], None]
"""See `SampleReader.try_again`."""


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
    keys_of: str | None = None
    """The value that `keys` and `exclude` list; None for the keys of samples."""
    keeps_decoded: bool = True
    """Whether the values that it has to decode replace the bytes in raw samples."""

    @classmethod
    def of(cls, spec: Spec, source: Source, lists: KeyLists) -> Selection:
        """Return the selection of a source, with the keys of `keys` and `exclude`."""
        return cls(source.where, tuple(spec.costs.items()), source.subset, *lists, source.keys_of)

    @property
    def by_key(self) -> Selection | None:
        """The part of it that needs no more than the keys of samples; None if there is none."""
        subset = None if self.subset is None or self.subset.of is not None else self.subset
        keys, exclude = (None, None) if self.keys_of else (self.keys, self.exclude)
        return _or_none(replace(self, where=None, subset=subset, keys=keys, exclude=exclude))

    @property
    def by_value(self) -> Selection | None:
        """The part of it that reads the files of samples; None if there is none."""
        subset = None if self.subset is None or self.subset.of is None else self.subset
        keys, exclude = (self.keys, self.exclude) if self.keys_of else (None, None)
        return _or_none(replace(self, subset=subset, keys=keys, exclude=exclude))

    def build(
        self,
        fields: SampleFields,
        tags: dict[str, Any] | None,
        budget: ErrorBudget,
        try_again: TryAgain | None = None,
    ) -> Choose:
        """Return the function that says whether a raw sample is kept.

        Args:
            fields: the fields of the source.
            tags: its tags, which expressions can read too.
            budget: counts the samples that are left out, by key of the spec, and handles errors.
            try_again: applies a test again to what the store has, if a sample of a cached copy cannot be measured.
        """

        def name_error(error: Exception, cause: str, raw: RawSample) -> WdspecError:
            if not isinstance(error, WdspecError):
                why = one_line(error)
                if "ambiguous" in why:  # what numpy and torch say of `bool(array)`
                    why = "an array is neither true nor false; use its `length`, or one of its values"
                error = FieldError(f"`{cause}` cannot be evaluated: {why}")
            return error.at(url=raw["__url__"], key=raw["__key__"])

        lenient: list[tuple[str, Choose]] = []

        def cause_without(raw: RawSample) -> str | None:
            """What leaves out a sample that lacks a field, if nothing that leaves it out reads this field."""
            if not lenient:
                without_errors = fields.with_naming(fields.naming.without_errors)
                lenient.extend(self._tests(without_errors, tags or {}, apart=True))
            for cause, keeps in lenient:
                try:
                    if not keeps(raw):
                        return cause
                except Exception:  # it reads the field
                    return None
            return None

        def recover(error: Exception, cause: str, keeps: Choose, raw: RawSample) -> bool:
            if isinstance(error, FieldError) and error.code == "D201":
                first = cause_without(raw)
                if first is not None:
                    budget.tally(first)[0] += 1
                    return False

            def replace_raw(stored: RawSample) -> None:
                bool(keeps(stored))  # an array has no truth value
                raw.clear()
                raw.update(stored)

            named = name_error(error, cause, raw)
            if try_again is not None:
                try:
                    try_again(raw, named, replace_raw)
                except Exception as latest:
                    named = name_error(latest, cause, raw)
                else:
                    return self.build(fields, tags, budget)(raw)
            budget(named, "decode", url=raw["__url__"], key=raw["__key__"])
            return False

        def choose_by(cause: str, keeps: Choose, rest: Choose | None) -> Choose:
            tally = budget.tally(cause)

            def choose(raw: RawSample) -> bool:
                try:
                    if not keeps(raw):
                        tally[0] += 1
                        return False
                except Exception as error:
                    if isinstance(error, NullOperandError) and budget.errors.skips("decode"):
                        tally[0] += 1
                        return False
                    if isinstance(error, LeftOutError):  # it is left out, and counted, when it is decoded
                        return True
                    return recover(error, cause, keeps, raw)
                return True if rest is None else rest(raw)

            return choose

        chosen: Choose | None = None
        for cause, keeps in reversed(self._tests(fields, tags or {})):
            test = choose_by(cause, keeps, chosen)
            part = self.subset if cause == "subset" and self.subset and self.subset.of is None else None
            chosen = test if part is None else _choose_keys(part, budget.tally(cause), chosen, test)
        assert chosen is not None, "a selection has a test"
        return chosen

    def build_early(self, fields: SampleFields, tags: dict[str, Any]) -> Choose | None:
        """Return the function that says of the first files of a raw sample that it will be left out, whatever follows.

        Returns:
            None if no test can be made early. The function never raises: faults are found when the sample is complete.
        """
        # With `keys_of`, values are tested before `subset` tests the key.
        is_first = self.by_key is not None and self.keys_of is None
        by_key = [test for _, test in self.by_key._tests(fields, tags)] if self.by_key and is_first else []
        by_value: list[tuple[frozenset[str], Choose]] = []
        if self.by_value is not None:
            lenient = fields.with_naming(fields.naming.lenient)
            subset = self.by_value.subset
            wheres = iter(self._wheres(lenient))
            for cause, test in self.by_value._tests(lenient, tags):
                text = next(wheres) if cause == "where" else self.keys_of
                if cause == "subset" and subset is not None:
                    text = subset.of
                assert text is not None, "a test by values has an expression"
                names = parse_expression(text, dict(self.costs) if cause == "where" else {}).fields
                files = [fields.naming.only_file_of(name) for name in names if name not in tags]
                if not fields.made.keys().isdisjoint(names) or any(file is None for file in files):
                    break
                by_value.append((frozenset(filter(None, files)), test))
        if not by_key and not by_value:
            return None

        def leaves_out(raw: RawSample) -> bool:
            try:
                if not all(test(raw) for test in by_key):
                    return True
                for files, test in by_value:
                    if not files <= raw.keys():
                        return False
                    if not test(raw):
                        return True
            except Exception:  # the complete sample raises it again
                return False
            return False

        return leaves_out

    def _tests(
        self, fields: SampleFields, tags: dict[str, Any], apart: bool = False
    ) -> list[tuple[str, Choose]]:
        """Return the key and the test of each part of the selection, the cheapest first.

        Args:
            apart: whether what `and` connects in `where` is tested one by one: an earlier part may leave out a sample
                without the field that a later one reads.
        """
        fields = fields.with_naming(fields.naming.of_selection) if fields.naming.asides else fields
        tests: list[tuple[str, Choose]] = []
        wheres = split_conjunction(self.where) if apart and self.where else self._wheres(fields)
        keys, exclude, subset = self.keys, self.exclude, self.subset
        if self.keys_of is not None and not (keys is exclude is None):
            read = _text_of(self.keys_of, f"keys_of: {self.keys_of}", fields, tags, self.keeps_decoded)
            if keys is not None:
                tests.append(("keys", lambda raw: (text := read(raw)) is None or text.rstrip("\r\n") in keys))
            if exclude is not None:
                tests.append(
                    ("exclude", lambda raw: (text := read(raw)) is None or text.rstrip("\r\n") not in exclude)
                )
        elif keys is not None or exclude is not None:
            if keys is not None:
                tests.append(("keys", lambda raw: raw["__key__"] in keys))
            if exclude is not None:
                tests.append(("exclude", lambda raw: raw["__key__"] not in exclude))
        if subset is not None:
            tests.append(("subset", _subset_test(subset, fields, tags, self.keeps_decoded)))
        tests += [
            ("where", _where_test(text, dict(self.costs), fields, tags, self.keeps_decoded))
            for text in wheres
        ]
        return tests

    def _wheres(self, fields: SampleFields) -> list[str]:
        """Return the parts of `where` in which it is decided: first what needs no field of `make`."""
        if self.where is None or not fields.made:
            return [] if self.where is None else [self.where]
        early: list[str] = []
        late: list[str] = []
        for part in split_conjunction(self.where):
            names = parse_expression(part, dict(self.costs)).fields
            (early if fields.made.keys().isdisjoint(names) else late).append(part)
        parts = [" and ".join(each) for each in (early, late)]
        try:
            _ = [parse_expression(part, dict(self.costs)) for part in parts]
        except ExpressionError:  # one of them is empty, or too long with its parentheses
            return [self.where]
        return parts


def _or_none(selection: Selection) -> Selection | None:
    tests = (selection.where, selection.subset, selection.keys, selection.exclude)
    return None if all(each is None for each in tests) else selection


def part_again(source: Source) -> Subset | None:
    """Return the part of a source that `repeat` reads once more than the rest; None if it is a whole number.

    It is the start of the samples that `subset` keeps, or of all, by the hash of their keys.
    """
    part = source.copies % 1
    if not part:
        return None
    subset = source.subset
    if subset is None or subset.of is not None:
        return Subset(part=(Decimal(0), part))
    first, stop = subset.part
    return Subset(part=(first, first + part * (stop - first)), seed=subset.seed)


def _bounds(subset: Subset) -> tuple[int, int, int]:
    """Return the first hash of a part, the one after its last, and the CRC to start with."""
    first, stop = (int(end * 2**64) for end in subset.part)
    return first, stop, crc32(str(subset.seed).encode()) if subset.seed else 0


def _choose_keys(subset: Subset, tally: list[int], rest: Choose | None, slowly: Choose) -> Choose:
    """Return the function that keeps the samples whose keys are in a part, with all steps in one.

    Args:
        subset: the part.
        tally: counts the samples that are left out.
        rest: the tests that follow.
        slowly: does the same for keys that are not Unicode.
    """
    bounds = _bounds(subset)

    # Defaults are read faster than the variables of an enclosing function: a tenth of the time.
    def choose(
        raw: RawSample,
        crc32: Callable[[bytes, int], int] = crc32,
        golden: int = GOLDEN,
        mask: int = MASK,
        first: int = bounds[0],
        stop: int = bounds[1],
        start: int = bounds[2],
        tally: list[int] = tally,
        rest: Choose | None = rest,
    ) -> bool:
        try:
            number = crc32(raw["__key__"].encode(), start)
        except UnicodeEncodeError:
            return slowly(raw)
        if first <= (number ^ number >> 16) * golden & mask < stop:  # `hash_part`, without the call
            return True if rest is None else rest(raw)
        tally[0] += 1
        return False

    return choose


def _subset_test(subset: Subset, fields: SampleFields, tags: dict[str, Any], keeps_decoded: bool) -> Choose:
    first, stop, start = _bounds(subset)
    if subset.of is None:
        return lambda raw: first <= hash_part(raw["__key__"], start) < stop
    read = _text_of(subset.of, f"subset: {{of: {subset.of}}}", fields, tags, keeps_decoded)
    return lambda raw: (text := read(raw)) is None or first <= hash_part(text, start) < stop


def _text_of(
    path: str, key: str, fields: SampleFields, tags: dict[str, Any], keeps_decoded: bool
) -> Callable[[RawSample], str | None]:
    """Return the function that reads a text or an integer of a raw sample; None if `missing: skip` drops it later."""
    measure = Measures(fields, parse_expression(path).paths, constants=tags, keeps_decoded=keeps_decoded)

    def read(raw: RawSample) -> str | None:
        values = measure(raw)
        if values is None:
            return None
        (value,) = values
        if not isinstance(value, (str, int)):
            raise FieldError(f"`{key}` is {show_value(value, 40)}; it must be text or an integer")
        return str(value)

    return read


def hash_part(text: str, start: int = 0) -> int:
    """Return where a text is in the parts of `subset`, as a 64-bit integer: part p holds the numbers below p · 2⁶⁴.

    The CRC-32 c of the UTF-8 text is spread over 64 bits as (c xor c >> 16) · ⌊2⁶⁴/φ⌋, modulo 2⁶⁴. A CRC alone is
    linear, so numbered keys would not be spread evenly.
    """
    number = crc32(encode_text(text), start)
    return (number ^ number >> 16) * GOLDEN & MASK


def _where_test(
    text: str, named: dict[str, str], fields: SampleFields, tags: dict[str, Any], keeps_decoded: bool
) -> Choose:
    expression = parse_expression(text, named)
    measure = Measures(fields, expression.paths, expression.optional, tags, keeps_decoded)
    # `missing: skip` drops a sample without values later
    return measure.applying(expression.evaluate, absent=True)
