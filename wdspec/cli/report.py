"""`wdspec report`: what a run has read, added up over the records of its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from wdspec.base.errors import UsageError
from wdspec.cli.output import Block, Table, Warning, number, percent, pluralize, show_report
from wdspec.cli.spec_options import form_option
from wdspec.read.counts import Amount
from wdspec.run.record import read_record
from wdspec.run.stats import describe_ranks


@click.command()
@click.argument("files", metavar="RECORD...", nargs=-1, required=True)
@form_option
def report(files: tuple[str, ...], form: str) -> None:
    """Add up the records of a run, and show what its ranks have received of each source.

    A RECORD is a file that `wdspec.log_run` wrote: one with the state of all ranks, or one of each rank. Records of
    other runs are an error. `wdspec diff` compares two runs.
    """
    show_report(add_records({file: _read(file) for file in files}), form)


def _read(file: str) -> dict[str, Any]:
    record = read_record(file)
    if record is None:
        raise UsageError(
            "this is no record of a run; name a file that `wdspec.log_run` wrote (`wdspec state` shows saved states)",
            file=file,
        )
    return record


@dataclass(frozen=True)
class ReadReport:
    """What some ranks of a run have received."""

    spec: str
    """The file of the spec."""
    digest: str
    """Of the order of the run."""
    batches: int
    """Global batches that the run had yielded, by the oldest of the records."""
    ranks: tuple[int, ...]
    """The canonical ranks that the records are of."""
    of: int
    """The number of canonical ranks of the run."""
    sources: Mapping[str, Mapping[str, float]]
    """Source -> `samples`, `cost` and `tokens`, without those that are not known."""
    newest: int
    """The number of global batches by the newest of the records."""

    def blocks(self) -> Iterator[Block]:
        known = [kind for kind in Amount._fields if any(kind in each for each in self.sources.values())]
        totals = {kind: sum(each.get(kind, 0) for each in self.sources.values()) for kind in known}
        headings = ("source", *(cell for kind in known for cell in (f"{kind}>", "share>")))
        rows = [(name, *_cells(each, totals)) for name, each in self.sources.items()]
        where = f"ranks {describe_ranks(self.ranks, self.of)}"
        title = f"{self.spec}: {pluralize(self.batches, 'step')}, {where}"
        table = Table(headings, rows, title).of_largest(
            [each.get("samples", 0) for each in self.sources.values()]
        )
        yield table._replace(rows=[*table.rows, None, ("total", *_cells(totals, totals))])
        if missing := sorted({*range(self.of)} - {*self.ranks}):
            yield Warning(
                f"no record is of ranks {describe_ranks(missing, self.of)}: name their records too, or pass "
                "`state=wdspec.gather_state(loader)` to `log_run`"
            )
        if self.newest != self.batches:
            yield Warning(
                f"the records were written at different steps, {self.batches:,} to {self.newest:,}; write them at "
                "the same one"
            )


def _cells(amounts: Mapping[str, float], totals: Mapping[str, float]) -> Iterator[str]:
    """Yield each amount, and its part of the total."""
    for kind, total in totals.items():
        amount = amounts.get(kind)
        yield "?" if amount is None else number(amount)
        yield "?" if amount is None or not total else percent(amount / total)


def add_records(records: Mapping[str, Mapping[str, Any]]) -> ReadReport:
    """Add up records of one run.

    Args:
        records: path of the file -> its record.

    Raises:
        UsageError: they are of different runs, or two have the same rank.
    """
    first, record = next(iter(records.items()))
    owners: dict[int, str] = {}
    for file, each in records.items():
        if each["digest"] != record["digest"]:
            raise UsageError(
                f"this record is of another run than {first}: their orders differ (`wdspec diff` shows how)",
                file=file,
            )
        for rank in each["read"]["canonical_ranks"]:
            if rank in owners:
                raise UsageError(
                    f"{owners[rank]} has rank {rank} too, so it would count twice; leave out one of them",
                    file=file,
                )
            owners[rank] = file
    sources: dict[str, dict[str, float]] = {}
    for kind in Amount._fields:
        parts: Sequence[Mapping[str, float]] = [each["read"].get(kind, {}) for each in records.values()]
        for name in dict.fromkeys(name for part in parts for name in part):
            amounts = [part[name] for part in parts if name in part]
            found = sources.setdefault(name, {})
            if len(amounts) == len(parts) or kind == "samples":
                found[kind] = sum(amounts)
    batches = [each["read"]["batches"] for each in records.values()]
    topology = record["topology"]
    return ReadReport(
        str(record.get("file") or "a spec in Python"),
        record["digest"],
        min(batches),
        tuple(sorted(owners)),
        topology["ranks"],
        sources,
        max(batches),
    )
