"""`wdspec batch`: which samples a step of a run was made of, or will be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from wdspec.cli.batch_trace import Trace, TracedSample, trace_step
from wdspec.cli.report import Block, Table, show_report
from wdspec.cli.samples import HEADINGS, FieldValue, describe_fields, read_like_training
from wdspec.cli.spec_options import SpecChoice, choosing, topology_options
from wdspec.cli.state_files import the_state_in


@click.command()
@choosing
@click.option("--step", type=click.IntRange(min=0), required=True, help="Global batch, from 0.")
@click.option("--epoch", type=click.IntRange(min=0), help="Count the step in this epoch, from 0.")
@topology_options
@click.option("--rank", type=click.IntRange(min=0), help="Only what this rank gets.")
@click.option(
    "--state", "saved", metavar="FILE", help="A saved state of the run: its topology, and where to begin."
)
@click.option("--samples", "decoded", is_flag=True, help="Decode the samples, and show their fields.")
def batch(
    choice: SpecChoice,
    form: str,
    step: int,
    epoch: int | None,
    ranks: int | None,
    workers: int | None,
    rank: int | None,
    saved: str | None,
    decoded: bool,
) -> None:
    """Show which samples a step of a run was made of, or will be: source, key, shard, index and byte offset of each.

    Reads the headers of what comes before the step in its slots, or, with `epoch: pass`, nothing. A source that leaves
    samples out by what is in them (`select`, `missing: skip`, `errors: skip`) is read and decoded up to there.
    --state goes on from a state that was saved before the step, and knows the topology of the run.
    """
    read_like_training()
    state = None if saved is None else the_state_in(saved)
    trace = trace_step(
        choice.load(), step, epoch=epoch, ranks=ranks, workers=workers, state=state, decoded=decoded
    )
    samples = [sample for sample in trace.samples if rank is None or sample.rank == rank]
    if not samples:
        raise click.UsageError(f"there is no rank {rank}; there are {trace.samples[-1].rank + 1}")
    show_report(StepReport(trace._replace(samples=samples), decoded), form)


@dataclass(frozen=True)
class StepReport:
    """The samples of a step."""

    trace: Trace
    decoded: bool
    """Whether to show their fields."""

    def blocks(self) -> Iterator[Block]:
        """What is shown of them."""
        trace = self.trace
        rows = [
            (
                str(each.rank),
                str(each.place),
                each.source,
                each.key,
                each.url or "made by `stage`",
                _text(each, each.number),
                _text(each, each.offset),
            )
            for each in trace.samples
        ]
        headings = ("rank>", "#>", "source", "key", "shard", "index>", "byte>")
        yield Table(headings, rows, title=f"step {trace.batch:,}, epoch {trace.epoch:,}")
        if trace.is_skipped:
            yield "this step is skipped (`skip`): nobody gets these samples"
        padding = sum(each.is_padding for each in trace.samples)
        if padding:
            yield f"{padding:,} of these only fill up the batch (`__mask__` is false)"
        if self.decoded:
            fields = [
                (str(each.rank), str(each.place), *field.row)
                for each in trace.samples
                for field in _fields(each)
            ]
            yield Table(("rank>", "#>", *HEADINGS), fields)

    def as_json(self) -> dict[str, Any]:
        """The same as values."""
        samples = [
            {
                "rank": each.rank,
                "place": each.place,
                "source": each.source,
                "key": each.key,
                "shard": each.url,
                "index": each.number,
                "offset": each.offset,
                "padding": each.is_padding,
                **({"fields": _fields(each)} if self.decoded else {}),
            }
            for each in self.trace.samples
        ]
        trace = self.trace
        return {"step": trace.batch, "epoch": trace.epoch, "skipped": trace.is_skipped, "samples": samples}


def _fields(sample: TracedSample) -> list[FieldValue]:
    return describe_fields(
        (name, value) for name, value in sample.sample.items() if not name.startswith("__")
    )


def _text(sample: TracedSample, number: int | None) -> str:
    if number is not None:
        return f"{number:,}"
    return "gone" if sample.url else ""
