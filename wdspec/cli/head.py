"""`wdspec head`: the first samples as training receives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from wdspec.advice.on_values import settings_that_do_not_fit
from wdspec.advice.tries import may_not_fit, try_samples
from wdspec.base.errors import WdspecError
from wdspec.cli.output import Block, Row, Table, Warning, show_report
from wdspec.cli.samples import HEADINGS, FieldValue, describe_fields, first_batch, first_samples, only_source
from wdspec.cli.spec_options import SpecChoice, choosing
from wdspec.shards.shards import list_readable_shards
from wdspec.spec.spec import Spec

_ORIGIN = ("__key__", "__source__", "__url__")
"""Fields with the origin of a sample."""


@click.command()
@choosing
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=5, show_default=True, help="Number of samples to show."
)
@click.option("--source", metavar="NAME", help="Show only samples of this source, even if its share is 0.")
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    help="Show the order of this many workers if the spec has no `elastic` (default: one process).",
)
@click.option(
    "--batch", "as_batch", is_flag=True, help="Show the first batch as the training loop receives it."
)
def head(
    choice: SpecChoice, form: str, count: int, source: str | None, workers: int | None, as_batch: bool
) -> None:
    """Show the first samples as training receives them, before batching: keys, types, shapes, sizes.

    The command reads shards and runs the user functions of the spec (`map`, `select`, decoders), which may also be in
    the working directory; WDS_SECURE=1 forbids them.
    """
    spec = only_source(choice.load(), source)
    warnings = _warn(spec)
    if as_batch:
        show_report(BatchHead(describe_fields(first_batch(spec)), warnings), form)
        return
    report = Head([], warnings)
    try:
        for sample in first_samples(spec, count, workers, drawn=True):
            report.samples.append(sample)
    finally:  # the samples before an error help to understand it
        show_report(report, form)


def _warn(spec: Spec) -> list[str]:
    """The settings that the first samples do not fit, which the few that are shown may not tell."""
    if not any(map(may_not_fit, spec.sources)):
        return []
    with suppress(WdspecError):  # reading the samples raises it
        tries = try_samples(spec, list_readable_shards(spec), everywhere=True)
        return [f"W531 {advice.message}" for advice in settings_that_do_not_fit(spec, tries, {})]
    return []


@dataclass(frozen=True)
class BatchHead:
    """The columns of a batch."""

    fields: list[FieldValue]
    warnings: list[str]

    def blocks(self) -> Iterator[Block]:
        yield Table(HEADINGS, [field.row for field in self.fields])
        yield from map(Warning, self.warnings)


@dataclass(frozen=True)
class Head:
    """Some samples."""

    samples: list[dict[str, Any]]
    warnings: list[str]

    def blocks(self) -> Iterator[Block]:
        rows: list[Row | None] = []
        for number, sample in enumerate(self.samples):
            if number:
                rows.append(None)
            origin = [(name, "", "", str(sample[name])) for name in _ORIGIN if name in sample]
            for place, row in enumerate([*origin, *(field.row for field in _fields(sample))]):
                rows.append(("" if place else str(number), *row))
        if rows:
            yield Table(("#", *HEADINGS), rows)
        yield from map(Warning, self.warnings)

    def as_json(self) -> dict[str, Any]:
        return {
            "samples": [
                {
                    "index": number,
                    "key": sample.get("__key__"),
                    "source": sample.get("__source__"),
                    "url": sample.get("__url__"),
                    "fields": _fields(sample),
                }
                for number, sample in enumerate(self.samples)
            ],
            "warnings": self.warnings,
        }


def _fields(sample: dict[str, Any]) -> list[FieldValue]:
    return describe_fields((name, value) for name, value in sample.items() if name not in _ORIGIN)
