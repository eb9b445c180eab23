"""What a batch is made of samples by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from wdspec.errors import SpecError
from wdspec.planning.keys import key64, random64
from wdspec.processes.global_generators import GlobalGenerators
from wdspec.reading.batches.columns import Column, column_of, loose_column, strict_column
from wdspec.reading.collate import as_tuple, unlike
from wdspec.reading.transform import Sample
from wdspec.reading.user_steps import built
from wdspec.spec.language.steps.batch_options import Batch, Collation, FieldCollation


class BatchMaker:
    """Samples → a dict of field → column, or a tuple of columns with `to_tuple`; or what the user's function makes.

    Functions of the user's are imported with the first batch, in the process that makes it. What they draw from torch,
    numpy and `random` follows from the seed and the batch's place in the order.

    Args:
        seed: the spec's.

    Raises:
        FieldError: samples that do not have the same fields, or values of a field that do not make a column.
        SpecError: a function cannot be imported; `collate` names a field that there is not.
    """

    def __init__(
        self, batch: Batch, entries: tuple[str, ...] | None, folder: str = "", seed: int = 0
    ) -> None:
        self._batch = batch
        self._entries = entries
        self._folder = folder
        self._seed = seed
        self._key = key64(seed, "collate")

    def __call__(self, samples: Sequence[Sample], place: int = 0) -> Any:
        """The batch whose first sample has this place in the order of the run, over all ranks."""
        if self._generators is None:
            return self._make(samples)
        with self._generators:
            self._generators.seed(random64(self._key, place))
            return self._make(samples)

    @cached_property
    def _generators(self) -> GlobalGenerators | None:
        """What is lent to the user's functions to draw from; None where there are none."""
        if not self._collation.functions:
            return None
        generators = GlobalGenerators()
        generators.seed_random_too()
        return generators

    def _make(self, samples: Sequence[Sample]) -> Any:
        entries, columns = self._entries, self._columns
        if self._whole is not None:
            return self._whole(
                list(samples) if entries is None else [as_tuple(sample, entries) for sample in samples]
            )
        if entries is not None:
            rows = [as_tuple(sample, entries) for sample in samples]
            names = [entry.split(";")[0] for entry in entries]
            self._check(names)
            return tuple(
                columns.get(name, self._other)(name, list(values), samples)
                for name, values in zip(names, zip(*rows, strict=True), strict=True)
            )
        first = samples[0]
        width = len(first)
        if set(map(len, samples)) != {width}:
            raise unlike(samples)
        self._check(first)
        try:
            values = {name: [sample[name] for sample in samples] for name in first}
        except KeyError:
            raise unlike(samples) from None
        return {name: columns.get(name, self._other)(name, values[name], samples) for name in first}

    @property
    def _collation(self) -> Collation:
        return self._batch.collate or Collation()

    @cached_property
    def _whole(self) -> Any:
        """The user's function of the samples, if there is one."""
        call = self._collation.call
        return None if call is None else built(call, "collate", {}, self._folder)

    @cached_property
    def _other(self) -> Column:
        """What makes the columns of fields that nothing is said of."""
        return loose_column if self._batch.ragged == "list" else strict_column

    @cached_property
    def _columns(self) -> dict[str, Column]:
        ragged = self._batch.ragged if isinstance(self._batch.ragged, tuple) else ()
        listed = {name: FieldCollation(way="list") for name in ragged}
        return {
            name: column_of(how, self._folder) for name, how in {**listed, **self._collation.fields}.items()
        }

    def _check(self, names: Sequence[str] | Sample) -> None:
        for name in self._columns:
            if name not in names:
                key = "collate" if name in self._collation.fields else "ragged"
                known = ", ".join(name for name in names if not name.startswith("__")) or "no fields"
                raise SpecError(
                    f"`batch: {{{key}: …}}` names the field `{name}`, but a sample has {known}; name one of those"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchMaker, (self._batch, self._entries, self._folder, self._seed)
