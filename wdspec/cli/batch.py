"""`wdspec batch`: which samples a step of a run was made of, or will be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from wdspec.cli.report import Part, Table, print_json, show
from wdspec.cli.samples import extent, value_meaning
from wdspec.cli.spec_options import SpecChoice, choosing, topology_options

if TYPE_CHECKING:
    from wdspec.cli.batch_trace import Trace, TracedSample


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
    from wdspec.cli.batch_trace import trace_step
    from wdspec.cli.samples import read_like_training
    from wdspec.cli.state_files import the_state_in

    read_like_training()
    state = None if saved is None else the_state_in(saved)
    trace = trace_step(
        choice.load(), step, epoch=epoch, ranks=ranks, workers=workers, state=state, decoded=decoded
    )
    kept = [sample for sample in trace.samples if rank is None or sample.rank == rank]
    if not kept:
        raise click.UsageError(f"there is no rank {rank}; there are {trace.samples[-1].rank + 1}")
    if form == "json":
        listed = [_as_json(sample, decoded) for sample in kept]
        print_json(
            {"step": trace.batch, "epoch": trace.epoch, "skipped": trace.is_skipped, "samples": listed}
        )
    else:
        show(*_parts(trace, kept, decoded))


def _parts(trace: Trace, samples: list[TracedSample], decoded: bool) -> Iterator[Part]:
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
        for each in samples
    ]
    headings = ("rank>", "#>", "source", "key", "shard", "index>", "byte>")
    yield Table(headings, rows, title=f"step {trace.batch:,}, epoch {trace.epoch:,}")
    if trace.is_skipped:
        yield "this step is skipped (`skip`): nobody gets these samples"
    padding = sum(each.is_padding for each in samples)
    if padding:
        yield f"{padding:,} of these only fill up the batch (`__mask__` is false)"
    if decoded:
        yield Table(
            ("rank>", "#>", "field", "type", "shape or size", "value"),
            [
                (str(each.rank), str(each.place), str(name), *value_meaning(value))
                for each in samples
                for name, value in each.sample.items()
                if not name.startswith("__")
            ],
        )


def _as_json(sample: TracedSample, decoded: bool) -> dict[str, Any]:
    told = {
        "rank": sample.rank,
        "place": sample.place,
        "source": sample.source,
        "key": sample.key,
        "shard": sample.url,
        "index": sample.number,
        "offset": sample.offset,
        "padding": sample.is_padding,
    }
    if decoded:
        told["fields"] = [
            {"name": str(name), **value_meaning(value)._asdict(), **extent(value)}
            for name, value in sample.sample.items()
            if not name.startswith("__")
        ]
    return told


def _text(sample: TracedSample, number: int | None) -> str:
    if number is not None:
        return f"{number:,}"
    return "gone" if sample.url else ""
