"""Rows of tables that stay rows until they are batched: `Columns`, a part of a slot.

Samples of Parquet and Arrow files often need no step: they have no bytes to decode, and nothing else is done to them. A
dict for each of them would take longer than reading its values. A *row* is a tuple instead: the names of its entries,
then their values. Batches transpose rows; everyone else finds dicts in `TableRows`. Order, states and errors are those
of other slots. Rows with nulls, and shards whose samples need a step, are dicts from the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, overload

from wdspec.read.error_budget import ErrorBudget
from wdspec.read.slot import Part
from wdspec.read.source import SourceStream, StreamState
from wdspec.read.transform import LiveSource, Process, Sample
from wdspec.spec.language.values import SUFFIXES

may_be_table = re.compile(
    rf"(?:{'|'.join(map(re.escape, (*SUFFIXES['parquet'], *SUFFIXES['arrow'])))}|\.lance\?version=.*)\Z"
).search
"""Whether a shard with this URL may have rows."""

Row = tuple[Any, ...]
"""The names of the entries of a sample, then their values."""


class TableRows(Sequence[Sample]):
    """Samples with the same entries, as columns. Each is made a dict when it is requested.

    Args:
        columns: field -> its value in each sample.
    """

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[Sample]:
        names = tuple(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Sample]: ...
    def __getitem__(self, at: int | slice) -> Sample | Sequence[Sample]:
        found = {name: values[at] for name, values in self.columns.items()}
        return TableRows(found) if isinstance(at, slice) else found


class RowStream(SourceStream):
    """The samples of one source, rows of tables as rows. Either `take` them or iterate."""

    def __init__(self, source: LiveSource, slot: int, state: StreamState) -> None:
        opener = replace(source.parts.open, keeps_rows=True)
        super().__init__(replace(source, parts=replace(source.parts, open=opener)), slot, state)
        self._budget = source.budget
        self._finish = self._process = _build_process(self._process, source.budget)
        self._in_order = self._iterate_ordered()
        self._runs = self._read_runs()
        self._due: Iterator[int] = iter(())
        """The ordinals of the current run."""
        self._ended = False
        """Whether the pass has been read to its end."""

    def take(self, count: int) -> list[Any]:
        """Return the next samples: those that iterating yields, without a call for each.

        After an error, the stream is past some of them, and has no valid state.
        """
        samples: list[Any] = []
        while (wanted := count - len(samples)) > 0:
            samples += islice(self._in_order, wanted) if self._is_ordered else self._take_due(wanted)
        return samples

    def _take_due(self, most: int) -> list[Any]:
        """Return samples of the current run. If it has none, start the next one."""
        ordinals = list(islice(self._due, most))
        if not ordinals:
            run, self._ended = next(self._runs, ((), False))
            self._due = iter(run)
            return []
        samples: list[Any] = list(map(self._buffer.pop, ordinals))
        self._last = ordinals[-1]
        if self._process is self._finish and {*map(type, samples)} == {tuple}:
            self._budget.delivered += len(samples)
        else:
            process = self._process
            found = [process(raw, ordinal + 1) for raw, ordinal in zip(samples, ordinals, strict=True)]
            samples = [sample for sample in found if sample is not None]
        if samples:
            self._watch.has_sample = True
            if self._ended and not self._buffer:
                self._end_pass()
        return samples


class Columns(Part[Sample]):
    """Batches whose rows of tables become columns: a `Slot` on a `Mixture` of `RowStream`s."""

    def take(self, m: int) -> Sequence[Sample]:
        """Return the m-th batch."""
        samples: Sequence[Any] = self.below.take(m)
        if {*map(type, samples)} == {tuple}:
            layouts, *columns = zip(*samples, strict=False)
            if layouts.count(layouts[0]) == len(layouts):
                return TableRows(dict(zip(layouts[0], map(list, columns), strict=True)))
        return [_sample_of(each) if type(each) is tuple else each for each in samples]


def may_keep_rows(source: LiveSource) -> bool:
    """Whether rows of tables of a source may need no step."""
    parts = source.parts
    return parts.transform.only_decodes and parts.selection is None and not any(parts.open.parts)


def _build_process(process: Process, budget: ErrorBudget) -> Process:
    """Return the function that passes rows as they are."""

    def finish(raw: Any, ordinal: int) -> Any:
        if type(raw) is not tuple:
            return process(raw, ordinal)
        budget.delivered += 1
        return raw

    return finish


def _sample_of(row: Row) -> Sample:
    return dict(zip(row[0], row[1:], strict=True))
