"""`wdspec head`: the first samples, as training would get them."""

from __future__ import annotations

from typing import Any

import click

from wdspec.cli.report import Row, Table, print_json, show
from wdspec.cli.samples import columns_of, extent, first_samples, only_source, value_meaning
from wdspec.cli.spec_options import SpecChoice, choosing
from wdspec.spec.spec import Spec

_ORIGIN = ("__key__", "__source__", "__url__")
"""Entries that say where a sample comes from."""


@click.command()
@choosing
@click.option("-n", "count", type=click.IntRange(min=1), default=5, show_default=True, help="Samples shown.")
@click.option("--source", metavar="NAME", help="Only samples of this source, even if its share is 0.")
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    help="Show the order of so many workers, where `elastic` does not say (default: one process).",
)
@click.option("--batch", "as_batch", is_flag=True, help="Show the first batch instead, as the loop gets it.")
def head(
    choice: SpecChoice, form: str, count: int, source: str | None, workers: int | None, as_batch: bool
) -> None:
    """Show the first samples as training gets them, before they are batched: keys, types, shapes, sizes.

    Reads shards and runs the functions that the spec names (`map`, `select`, decoders), which are also looked for in
    the working directory; WDS_SECURE=1 forbids them.
    """
    spec = choice.load()
    if source is not None:
        spec = only_source(spec, source)
    if as_batch:
        return _show_batch(spec, form)
    samples: list[dict[str, Any]] = []
    try:
        for sample in first_samples(spec, count, workers, drawn=True):
            samples.append(sample)
    finally:  # what came before an error helps to understand it
        if form == "json":
            print_json({"samples": [_as_json(n, s) for n, s in enumerate(samples)]})
        elif samples:
            show(_table(samples))


def _show_batch(spec: Spec, form: str) -> None:
    columns = columns_of(spec)
    if form == "json":
        fields = [{"name": name, **value_meaning(part)._asdict(), **extent(part)} for name, part in columns]
        print_json({"fields": fields})
    else:
        show(Table(("field", "type", "shape or size", "value"), [(n, *value_meaning(p)) for n, p in columns]))


def _table(samples: list[dict[str, Any]]) -> Table:
    rows: list[Row | None] = []
    for number, sample in enumerate(samples):
        if number:
            rows.append(None)
        origin = [(name, "", "", str(sample[name])) for name in _ORIGIN if name in sample]
        fields = [(str(name), *value_meaning(value)) for name, value in sample.items() if name not in _ORIGIN]
        for place, row in enumerate([*origin, *fields]):
            rows.append(("" if place else str(number), *row))
    return Table(("#", "field", "type", "shape or size", "value"), rows)


def _as_json(number: int, sample: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": number,
        "key": sample.get("__key__"),
        "source": sample.get("__source__"),
        "url": sample.get("__url__"),
        "fields": [
            {"name": str(name), **value_meaning(value)._asdict(), **extent(value)}
            for name, value in sample.items()
            if name not in _ORIGIN
        ],
    }
